"""PURE: which cards CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER make visible to this process, and in which order.

Where torch sees the cards its own numbering counts. This module predicts it where torch cannot start CUDA (a CPU
build, a driver that is too old), and tells cards that are hidden on purpose from faulty ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from backend.device.records import Card


def visible_cards(cards: Sequence[Card], visible: str | None = None, order: str | None = None) -> tuple[Card, ...]:
    """The cards visible to this process, in CUDA's order; the slices of a card stay together.

    As in the driver, a list ends at its first unknown or ambiguous entry, and a repeated entry empties it.

    Args:
        cards: all cards, in PCI order.
        visible: CUDA_VISIBLE_DEVICES: indices, or unique beginnings of "GPU-…" or "MIG-…"; None when not set.
        order: CUDA_DEVICE_ORDER; anything but "PCI_BUS_ID" is the default, FASTEST_FIRST.

    Source: CUDA programming guide, "CUDA Environment Variables"; torch/cuda/__init__.py, _parse_visible_devices.
    """
    boards = _boards(cards, order)
    if visible is None:
        return tuple(card for board in boards for card in board)
    find_board = _by_uuid if visible.strip().startswith(("GPU-", "MIG-")) else _by_index
    selected: list[list[Card]] = []
    for entry in visible.split(","):
        board = find_board(boards, entry.strip())
        if board is None:
            break
        if board in selected:
            return ()
        selected.append(board)
    return tuple(card for board in selected for card in board)


def _boards(cards: Sequence[Card], order: str | None) -> list[list[Card]]:
    """The slices of each card (or the card itself), in CUDA's order."""
    by_board: dict[object, list[Card]] = {}
    for card in cards:
        by_board.setdefault(card.parent_uuid or card.uuid or card.pci_index, []).append(card)
    boards = list(by_board.values())
    if order == "PCI_BUS_ID" or not boards:
        return boards
    # FASTEST_FIRST: the driver moves the card that it estimates to be the fastest to the front. Its estimate is not
    # documented; the newest architecture, then most memory, agrees with it for the usual mixes.
    fastest = max(
        boards, key=lambda board: (board[0].capability or (0, 0), sum(card.total_bytes or 0 for card in board))
    )
    return [fastest, *(board for board in boards if board is not fastest)]


def _by_index(boards: list[list[Card]], entry: str) -> list[Card] | None:
    number = re.match(r"\+?\d+", entry)  # as strtoul: "1gpu2" is 1, "-1" and "none" match no card
    index = int(number.group()) if number else -1
    return boards[index] if 0 <= index < len(boards) else None


def _by_uuid(boards: list[list[Card]], entry: str) -> list[Card] | None:
    if not entry.startswith(("GPU-", "MIG-")):
        return None
    prefix = entry.removeprefix("MIG-") if entry.startswith("MIG-GPU-") else entry  # MIG-GPU-…/gi/ci: before R470
    prefix = prefix.partition("/")[0]
    slices = [[card] for board in boards for card in board if card.mig and card.uuid.startswith(prefix)]
    whole_cards = [board for board in boards if (board[0].parent_uuid or board[0].uuid).startswith(prefix)]
    matches = slices or whole_cards
    return matches[0] if len(matches) == 1 else None
