"""Reads one party out of a block: its name, address and tax numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from backend.files.visual_rows import Cell
from backend.invoices.parties.blocks import Block
from backend.invoices.parties.labels import ADDRESS, NAME, TOWN
from backend.invoices.parties.names import (
    CERTAIN,
    LIKELY,
    POSSIBLE,
    clean_name,
    ends_open,
    has_legal_form,
    has_town,
    is_form_alone,
    is_name,
    is_place,
)
from backend.invoices.parties.pieces import LinePart, Role
from backend.text.patterns.folding import letters_of

_MAX_NAME_LINES = 2  # above its last
_MAX_BETWEEN = 2  # pieces of another kind within an address
_MAX_ADDRESS_PIECES = 8


@dataclass(frozen=True)
class Party:
    """What a block tells of one party."""

    label: str  # of its block
    first: Cell  # with its name, or at the top of its lines
    names: tuple[LinePart, ...]  # the pieces of its name: one, or two where it is broken over lines
    address: tuple[LinePart, ...]
    tax_ids: tuple[LinePart, ...]
    has_contact: bool  # telephone, e-mail or web site
    has_registry: bool
    is_sender: bool = False  # a line with name and address, above others, as above the window of an envelope
    is_addressee: bool = False  # directly below a sender's line

    @cached_property
    def name(self) -> str:
        """Its name as printed."""
        return " ".join(piece.text for piece in self.names)

    @cached_property
    def letters(self) -> str:
        """Letters and digits of its name, by which parties are compared."""
        return letters_of(clean_name(self.name))

    @cached_property
    def address_strength(self) -> float:
        """How sure its lines are an address, added up."""
        return sum(piece.strength for piece in self.address)

    @cached_property
    def has_legal_form(self) -> bool:
        """Whether its name ends, or begins, with a legal form."""
        folded = " ".join(piece.folded for piece in self.names)
        return bool(folded) and has_legal_form(folded)


def read_parties(block: Block) -> list[Party]:
    """The parties of a block: one, or more where the document's heading stands between them."""
    parts: list[list[list[LinePart]]] = [[]]
    senders: set[int] = set()  # indexes of parts that are a line above the window of an envelope
    for line in block.lines:
        pieces = line.pieces()
        if pieces and pieces[0].role is Role.HEADING:
            parts.append([])
            pieces = pieces[1:]
        if _begins_imprint(pieces, parts[-1]):
            parts.append([])
        begun = any(_is_address(piece) for line in parts[-1] for piece in line)
        parts[-1].append(pieces)
        if not begun and _is_sender_line(pieces):  # "Numancia, Toledo, 45230" below its street is no sender
            senders.add(len(parts) - 1)
            parts.append([])
    cells = {word.start: line.cell for line in block.lines for word in line.words}
    found = []
    for index, lines in enumerate(parts):
        pieces = [piece for line in lines for piece in line]
        if pieces:
            party = _read(pieces, block.label if index == 0 else "", cells)
            sender, addressee = index in senders and party.label == "", index - 1 in senders and bool(party.address)
            found.append(replace(party, is_sender=sender, is_addressee=addressee and not party.has_contact))
    return found


def _begins_imprint(pieces: Sequence[LinePart], before: Sequence[Sequence[LinePart]]) -> bool:
    """Whether a company with its address in the line is told below lines that name nobody: notes, telephones."""
    if not pieces or pieces[0].role is not Role.NAME or not has_legal_form(pieces[0].folded):
        return False
    named = any(piece.role is Role.NAME for line in before for piece in line)
    return not named and any(_is_address(piece) and has_town(piece.folded) for piece in pieces)


def _is_sender_line(pieces: Sequence[LinePart]) -> bool:
    """Whether a line has a name and a whole address, as above the window of a German envelope."""
    roles = [piece.role for piece in pieces]
    if not roles or roles[0] is not Role.NAME or Role.TAX_ID in roles or Role.CONTACT in roles:
        return False
    return len(roles) > 1 and any(_is_address(piece) and has_town(piece.folded) for piece in pieces)


def _read(pieces: Sequence[LinePart], label: str, cells: Mapping[int, Cell]) -> Party:
    start = next((index for index, piece in enumerate(pieces) if _is_address(piece)), len(pieces))
    names, end = _name(pieces[:start])
    if not names and start < len(pieces) and pieces[start].strength < CERTAIN and _goes_on(pieces, start):
        names, end, start = (pieces[start],), start + 1, start + 1  # "Studio 54", "Propietarios Calle Mayor 4"
    if not names:
        names, _ = _form_name(pieces)
    pieces, start = _with_buildings(pieces, end, start)
    contact = [piece for piece in pieces if piece.role is Role.CONTACT]
    first = (names or pieces)[0].words[0].start
    return Party(
        label,
        cells[first],
        names,
        _address(pieces, max(start, end) if start < end else start),
        tuple(piece for piece in pieces if piece.role is Role.TAX_ID),
        bool(contact),
        any(piece.role is Role.REGISTRY for piece in pieces),
    )


def _with_buildings(pieces: Sequence[LinePart], end: int, start: int) -> tuple[Sequence[LinePart], int]:
    """The pieces with those from a building, an estate or a quay to the address as address, too, and where it begins.

    Args:
        end: index after the name.
        start: index at which the address begins.
    """
    between = range(end, start) if start < len(pieces) else ()
    first = next((index for index in between if is_place(pieces[index].folded)), start)
    if first == start or any(piece.role not in (Role.NAME, Role.OTHER) for piece in pieces[first:start]):
        return pieces, start
    buildings = [piece._replace(role=Role.ADDRESS) for piece in pieces[first:start]]
    return [*pieces[:first], *buildings, *pieces[start:]], first


def _is_address(piece: LinePart) -> bool:
    return piece.role is Role.ADDRESS


def _goes_on(pieces: Sequence[LinePart], start: int) -> bool:
    """Whether more of an address follows a first piece that may be a name, too."""
    first = pieces[start]
    if first.strength > POSSIBLE and first.text[:1].isdigit():
        return False
    return any(_is_address(piece) for piece in pieces[start + 1 : start + 3]) and is_name(first.folded)


def _form_name(pieces: Sequence[LinePart]) -> tuple[tuple[LinePart, ...], int]:
    index = next((index for index, piece in enumerate(pieces) if piece.form == NAME), None)
    return ((pieces[index],), index + 1) if index is not None else ((), 0)


def _name(pieces: Sequence[LinePart]) -> tuple[tuple[LinePart, ...], int]:
    """The name among the pieces above an address, and the index after it."""
    names, end = _form_name(pieces)
    if names:
        return names, end
    indexes = [index for index, piece in enumerate(pieces) if piece.role is Role.NAME]
    if not indexes:
        return (), 0
    index = next((index for index in indexes if has_legal_form(pieces[index].folded)), None)
    if index is None:
        index = indexes[0]
    first = index
    while first and index - first < _MAX_NAME_LINES and pieces[first - 1].role is Role.NAME:
        above, said = pieces[first - 1], " ".join(piece.folded for piece in pieces[first : index + 1])
        if not (is_form_alone(said) or ends_open(above.folded)):
            break
        first -= 1
    end = index + 1
    if end < len(pieces) and is_form_alone(pieces[end].folded):
        end += 1
    return tuple(pieces[first:end]), end


def _address(pieces: Sequence[LinePart], start: int) -> tuple[LinePart, ...]:
    """The pieces of the address that begins at an index: up to its town, and a province or country after it."""
    found: list[LinePart] = []
    between: list[LinePart] = []
    for piece in pieces[start:]:
        ended = any(has_town(other.folded) for other in found)
        if found and piece.role is Role.NAME and has_legal_form(piece.folded):
            break  # another party
        if _is_address(piece):
            if ended and not piece.form and (between or not _may_follow_town(piece)):
                break
            found.extend(other for other in between if other.role in (Role.NAME, Role.OTHER))
            found.append(piece)
            between = []
        elif not found or (ended and not _has_form(found)):
            break
        elif piece.role in (Role.TAX_ID, Role.CONTACT) and len(between) == 1 and between[0].role is Role.NAME:
            found.extend(between)  # a town without a postcode
            between = []
            break
        else:
            between.append(piece)
            if len(between) > _MAX_BETWEEN:
                break
        if len(found) >= _MAX_ADDRESS_PIECES:
            break
    return tuple(found)


def _may_follow_town(piece: LinePart) -> bool:
    """A province or a country; a line with digits begins another address."""
    return piece.strength >= LIKELY and not any(map(str.isdigit, piece.text))


def _has_form(pieces: Sequence[LinePart]) -> bool:
    return any(piece.form in (ADDRESS, TOWN) for piece in pieces)
