"""PURE: which cards CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER leave to this process, and in which order.

torch's own numbering is the truth where torch sees the cards; this tells what it would be where torch cannot
(a CPU build, a driver too old), and which cards are hidden on purpose and so no fault.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from backend.device.records import Card


def visible_cards(cards: Sequence[Card], visible: str | None = None, order: str | None = None) -> tuple[Card, ...]:
    """The cards this process may see, in CUDA's order; the slices of a card stay together.

    Follows the driver: a list ends at its first unknown entry, a repeated or ambiguous entry empties it.

    Args:
        cards: all cards, in PCI order.
        visible: CUDA_VISIBLE_DEVICES: indices, or unique beginnings of "GPU-…" or "MIG-…"; None when not set.
        order: CUDA_DEVICE_ORDER; anything but "PCI_BUS_ID" is the default, FASTEST_FIRST.

    Source: CUDA programming guide, "CUDA Environment Variables"; torch/cuda/__init__.py, _parse_visible_devices.
    """
    boards = _boards(cards, order)
    if visible is None:
        return tuple(card for board in boards for card in board)
    pick = _by_uuid if visible.strip().startswith(("GPU-", "MIG-")) else _by_index
    chosen: list[list[Card]] = []
    for entry in visible.split(","):
        found = pick(boards, entry.strip())
        if found is None:
            break
        if found in chosen:
            return ()
        chosen.append(found)
    return tuple(card for board in chosen for card in board)


def _boards(cards: Sequence[Card], order: str | None) -> list[list[Card]]:
    """Each card with its slices, in CUDA's order."""
    boards: dict[object, list[Card]] = {}
    for card in cards:
        boards.setdefault(card.parent_uuid or card.uuid or card.pci_index, []).append(card)
    found = list(boards.values())
    if order == "PCI_BUS_ID" or not found:
        return found
    # FASTEST_FIRST: the driver puts the card that it takes for the fastest first and leaves the others as they are.
    # Its measure is its own; newest architecture, then most memory, is right for the mixes people build.
    fastest = max(
        found, key=lambda board: (board[0].capability or (0, 0), sum(card.total_bytes or 0 for card in board))
    )
    return [fastest, *(board for board in found if board is not fastest)]


def _by_index(boards: list[list[Card]], entry: str) -> list[Card] | None:
    number = re.match(r"\+?\d+", entry)  # as strtoul: "1gpu2" is 1, "-1" and "none" are nothing
    index = int(number.group()) if number else -1
    return boards[index] if 0 <= index < len(boards) else None


def _by_uuid(boards: list[list[Card]], entry: str) -> list[Card] | None:
    if not entry.startswith(("GPU-", "MIG-")):
        return None
    wanted = entry.removeprefix("MIG-") if entry.startswith("MIG-GPU-") else entry  # MIG-GPU-…/gi/ci: before R470
    wanted = wanted.partition("/")[0]
    slices = [[card] for board in boards for card in board if card.mig and card.uuid.startswith(wanted)]
    whole = [board for board in boards if (board[0].parent_uuid or board[0].uuid).startswith(wanted)]
    found = slices or whole
    return found[0] if len(found) == 1 else None
