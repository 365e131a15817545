"""Groups the cells of a page into blocks with their labels: letterheads, address windows, boxes of a form."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from backend.files.pages import Word
from backend.files.visual_rows import Cell, PageRows
from backend.invoices.label_match import LabelMatch, Vocabulary, tokens_of
from backend.invoices.parties.labels import (
    ADDRESS,
    ATTENTION,
    CUSTOMER,
    FORM_LABELS,
    GREETING,
    NAME,
    OTHER,
    PARTY_LABELS,
    TOWN,
    VENDOR,
)
from backend.invoices.parties.names import is_form_alone, is_name
from backend.invoices.parties.pieces import LinePart, Role, pieces_of
from backend.invoices.parties.tax_ids import is_tax_label, tax_ids_in
from backend.text.patterns.folding import fold

_LABEL_WORDS = 7
_SHORT_TOKEN = 3  # letters
_WORDS_AFTER_SLASH, _WORDS_BEFORE_SLASH = 4, 2
_GREETING_WORDS = 9
_NUMBER_SIGNS = frozenset(("n", "no", "nr", "num", "numero", "id"))
_ARTICLES = frozenset(("el", "la", "los", "las", "the", "le", "les", "der", "die", "das", "o", "il", "els"))
_GREETING = re.compile(
    r"(?:(?:hello|hi|dear|hey|good (?:morning|afternoon|evening|day)|hola|buenos dias|buenas tardes|estimad[oa]s?"
    r"|apreciad[oa]s?|distinguid[oa]s?|querid[oa]s?|benvolgut|benvolguda|bon dia|sehr geehrte[rs]?|hallo|guten tag"
    r"|liebe[rs]?|bonjour|chere?|gentile|egregi[oa]|buongiorno|ciao|car[oa]|prezad[oa]|ola|geachte|beste)"
    r"(?![^\W_]))[ ,]+(?P<name>[^,:!;.?]+(?:\.[^,:!;?]{1,40})??)(?P<end>[,:!;]|$)",
    re.IGNORECASE,
)
_NOBODY = frozenset(
    re.split(
        " ",
        "customer customers client clients cliente clientes sir madam sirs damen herren kunde kundin kunden kundinnen "
        "senor senora senores amigo amiga all team friend member guest user valued socio socia usuario abonado "
        "monsieur madame messieurs todos there again klant mevrouw heer subscriber parents padres familia",
    )
)


def party_label(cell: Cell) -> LabelMatch | None:
    """The words at the beginning of a cell that say whose name follows; None where there are none."""
    return label_of(cell, PARTY_LABELS) or _greeting(cell)


def label_of(cell: Cell, vocabulary: Vocabulary) -> LabelMatch | None:
    """The label with which a cell begins: all of it, before a colon, or of several words."""
    if vocabulary is PARTY_LABELS and (role := _in_brackets(cell)) is not None:
        return role
    head = cell if len(cell.words) <= _LABEL_WORDS else replace(cell, words=cell.words[:_LABEL_WORDS])
    match = next(iter(vocabulary.find(head)), None)
    if match is None or not _is_certain(match):
        return None
    match = _to_colon(replace(match, cell=cell))
    last, rest = match.words[-1].text, match.rest
    has_colon = last.endswith(":") or (bool(rest) and rest[0].text.startswith(":"))
    if match.first:
        # "Residente / Pagador:", "El obligado al pago:"
        is_after_slash = match.first <= _WORDS_BEFORE_SLASH and cell.words[match.first - 1].text.endswith("/")
        is_after_article = match.first == 1 and fold(cell.words[0].text).text.lower() in _ARTICLES
        return replace(match, first=0) if (is_after_slash or is_after_article) and has_colon else None
    alone = not any(any(map(str.isalnum, word.text)) for word in rest)
    if match.label == ATTENTION:
        return replace(match, label=CUSTOMER) if alone else None
    if alone or has_colon:
        return match
    if match.last == 1 or match.label == OTHER:
        return None
    begins = rest[0].text[:1]
    return match if begins.isupper() or (vocabulary is FORM_LABELS and begins.isdigit()) else None


def _in_brackets(cell: Cell) -> LabelMatch | None:
    """The role that ends a heading: "TITULAR DE LA EXPLOTACIÓN (PROVEEDOR)"."""
    starts = [index for index, word in enumerate(cell.words[:_LABEL_WORDS]) if word.text.startswith("(")]
    if not starts or not starts[-1] or not cell.words[-1].text.rstrip(":").endswith(")"):
        return None
    inside = replace(cell, words=cell.words[starts[-1] :])
    match = next(iter(PARTY_LABELS.find(inside)), None)
    if match is None or match.first or match.rest or match.label == OTHER or len(cell.words) > _LABEL_WORDS:
        return None
    return replace(match, cell=cell, first=0, last=len(cell.words))


def without_colon(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """The words after a label, without the colon that stands apart."""
    if words and not any(map(str.isalnum, words[0].text)):
        return words[1:]
    return words


def _to_colon(match: LabelMatch) -> LabelMatch:
    """The label with what a slash adds to it: "Paciente / alumno:"."""
    if match.rest and match.rest[0].text.startswith("/"):
        for last, word in enumerate(match.rest[:_WORDS_AFTER_SLASH], match.last + 1):
            if word.text.endswith(":"):
                return replace(match, last=last)
    return match


def _is_certain(match: LabelMatch) -> bool:
    """Whether a misread label cannot be another: "Invoice No" is not "Invoice to", "Factura" is not "Factura a"."""
    phrase = tokens_of(match.phrase)
    tokens = tokens_of(" ".join(word.text for word in match.words))
    said, meant = "".join(tokens), "".join(phrase)
    if tokens[-1] in _NUMBER_SIGNS and tokens[-1] not in phrase:
        return False  # "Kunden-Nr." is not "Kundin", nor "Facture n°" "facturer"
    return said == meant or len(phrase[-1]) > _SHORT_TOKEN or (len(said) == len(meant) and said.endswith(phrase[-1]))


def _greeting(cell: Cell) -> LabelMatch | None:
    """The label of "Dear Ana Ruiz,": the words before the name, which ends the cell or has a comma after it."""
    words = [word.text for word in cell.words[:_GREETING_WORDS]]
    match = _GREETING.match(fold(" ".join(words)).text)
    if match is None or (not match["end"] and len(cell.words) > _GREETING_WORDS):
        return None
    name = [word.lower().strip(".") for word in match["name"].split()]
    if not name or not _NOBODY.isdisjoint(name) or not is_name(match["name"]):
        return None
    first = len(match.string[: match.start("name")].split())
    return LabelMatch(GREETING, "greeting", cell, 0, first)


# In heights of the text between two lines of a block; measured on fields_dev, where lines are 0.2 to 0.9 apart.
_GAP, _GAP_BELOW_LABEL = 1.15, 2.6
_ALIGNED = 1.2  # heights between left edges, right edges or middles
_MAX_LINES = 14
_SECTION_ROWS = 5  # below its heading
_MAX_CELLS = 40  # of a row; more are no letterhead
_MAX_UNFINISHED = 100  # blocks that may go on below a row; a page side by side with itself has a dozen
_RIGHT_OF_LABEL = 16.0  # heights from a label to its value at most
_ACROSS, _PAIR = 45.0, 2  # where the two are alone in their row


@dataclass(frozen=True, slots=True)
class BlockLine:
    """One line of a block."""

    cell: Cell
    words: tuple[Word, ...]  # without the label before them
    form: str = ""  # what that label says: "name", "address", "town"

    def pieces(self) -> list[LinePart]:
        """Its names, address parts, tax numbers and the rest."""
        return pieces_of(self.words, self.form)


@dataclass(slots=True)
class Block:
    """Lines below each other."""

    label: str  # of `parties_labels.PARTY_LABELS`; empty where it has none
    label_cell: Cell | None
    lines: list[BlockLine] = field(default_factory=list)
    form: str = ""  # of the first line below a heading of a column: "name", "address", "town"
    prefix: tuple[Word, ...] = ()  # of the first line below the label of a tax number

    def add(self, line: BlockLine) -> None:
        """Put a line below the others."""
        if not self.lines and (self.form or self.prefix):
            line = replace(line, form=self.form, words=(*self.prefix, *line.words))
        self.lines.append(line)

    @property
    def is_column(self) -> bool:
        """Whether it is a column of a small table: a form's label above its value."""
        return not self.label and self.label_cell is not None

    @property
    def first(self) -> Cell:
        """The cell at its top."""
        return self.label_cell or self.lines[0].cell

    @property
    def last(self) -> Cell:
        """The cell at its bottom."""
        return self.lines[-1].cell if self.lines else self.first


def blocks_of(rows: PageRows) -> list[Block]:
    """The blocks of a page, by their first rows."""
    finished: list[Block] = []
    unfinished: list[Block] = []
    for index, row in enumerate(rows.rows):
        below = rows.rows[index + 1].cells if index + 1 < len(rows.rows) else ()
        still = [
            block
            for block in unfinished[-_MAX_UNFINISHED:]
            if row.box.top - block.last.box.bottom <= _reach(block, rows)
        ]
        going_on = set(map(id, still))
        finished.extend(block for block in unfinished if id(block) not in going_on)
        unfinished = still
        row_blocks = _row_blocks(row.cells[:_MAX_CELLS], below[:_MAX_CELLS])
        for new in _with_details(row_blocks):
            above = None if new.label_cell else _block_above(new, unfinished, rows)
            if new.label == GREETING:
                finished.append(new)  # what stands below is the letter
            elif above is not None:
                for line in new.lines:
                    above.add(line)
            else:
                unfinished.append(new)
    finished.extend(unfinished)
    _join_columns(finished)
    _join_sections(finished)
    return sorted(
        (block for block in finished if block.lines), key=lambda block: (block.first.row, block.first.box.left)
    )


def _join_columns(blocks: Sequence[Block]) -> None:
    """Moves the columns "NIF", "Domicilio" of a small table into the block of the party whose column is beside them."""
    columns = [block for block in blocks if block.is_column and block.lines]
    owners = {block.first.row: block for block in columns if block.form == NAME}
    owners |= {block.first.row: block for block in blocks if block.label in (CUSTOMER, VENDOR) and block.lines}
    for block in columns:
        owner = owners.get(block.first.row)
        if owner is not None and owner is not block:
            owner.lines.extend(block.lines)
            block.lines.clear()


def _join_sections(blocks: Sequence[Block]) -> None:
    """Moves a form's columns below a heading that names a party, and has nothing else, into its block."""
    heads: dict[int, list[Block]] = {}
    for block in blocks:
        if block.label in (CUSTOMER, VENDOR) and not block.lines:
            heads.setdefault(block.first.row, []).append(block)
    for block in sorted((block for block in blocks if block.is_column), key=lambda block: block.first.row):
        right = block.first.box.left + block.first.box.height
        above = (heads.get(block.first.row - down, ()) for down in range(1, _SECTION_ROWS + 1))
        beside = ([head for head in row if head.first.box.left <= right] for row in above)
        nearest = next((row for row in beside if row), None)
        if nearest:
            max(nearest, key=lambda head: head.first.box.left).lines.extend(block.lines)
            block.lines.clear()


def _with_details(row: list[Block]) -> list[Block]:
    """Moves the number and address that follow a labelled name in its row into its block.

    "Recipient | Orchard Dental Care | VAT no. | GB 999 9999 73" is a row of a grid.
    """
    owner = row[0] if row else None
    if owner is None or owner.label not in (CUSTOMER, VENDOR) or not owner.lines:
        return row
    if not any(piece.role is Role.TAX_ID for block in row[1:] for line in block.lines for piece in line.pieces()):
        return row
    owner.lines.extend(line for block in row[1:] for line in block.lines)
    return [owner]


def _row_blocks(cells: Sequence[Cell], below: Sequence[Cell]) -> list[Block]:
    """The cells of a row as blocks of one line; a label takes its value to the right, if that is one.

    Args:
        below: the cells of the next row.
    """
    blocks: list[Block] = []
    phrases: set[str] = set()
    rest = list(cells)
    reach = _RIGHT_OF_LABEL if len(rest) > _PAIR else _ACROSS
    while rest:
        cell = rest.pop(0)
        right = rest[0] if rest else None
        party = party_label(cell)
        form = None if party else label_of(cell, FORM_LABELS)
        if party is not None:
            blocks.append(Block(party.label, cell))
            if words := without_colon(party.rest):
                blocks[-1].lines.append(BlockLine(cell, words))
            elif right is not None and _is_value_of(cell, right, below, reach, of_party=True):
                blocks[-1].lines.append(BlockLine(rest.pop(0), right.words))
        elif form is not None:
            words = without_colon(form.rest)
            if not words and right is not None and _is_value_of(cell, right, below, reach, of_party=False):
                words = rest.pop(0).words
            lines = [BlockLine(cell, words, form.label)] if words else []
            is_first = form.phrase not in phrases
            phrases.add(form.phrase)  # a phrase comes twice where two boxes stand side by side
            if lines and is_first and form.label == TOWN and blocks and blocks[-1].form in (ADDRESS, TOWN):
                blocks[-1].lines.extend(lines)  # "C.P.: 33007    Localidad: Oviedo"
                continue
            blocks.append(Block("", None if words else cell, lines, form.label))
        elif is_tax_label(cell.text):
            words = (*cell.words, *right.words) if right is not None else ()
            if words and tax_ids_in(" ".join(word.text for word in words)):
                rest.pop(0)
                blocks.append(Block("", None, [BlockLine(cell, words)]))
            else:
                blocks.append(Block("", cell, [], "", cell.words))
        else:
            blocks.append(Block("", None, [BlockLine(cell, cell.words)]))
    return blocks


def _is_value_of(label: Cell, right: Cell, below: Sequence[Cell], reach: float, *, of_party: bool) -> bool:
    """Whether the cell to the right of a label is its value and not the next column's heading.

    Args:
        of_party: the value of a party's label is a name; that of "Domicilio" anything but a heading or another datum.
    """
    if right.box.left - label.box.right > reach * label.box.height or _is_label(right) or is_tax_label(right.text):
        return False
    role = next((piece.role for piece in pieces_of(right.words)), Role.OTHER)
    if role is not Role.NAME if of_party else role in (Role.HEADING, Role.FIELD):
        return False
    return label.text.rstrip().endswith(":") or not _has_value_below(label, below)


def _is_label(cell: Cell) -> bool:
    return party_label(cell) is not None or label_of(cell, FORM_LABELS) is not None


def _has_value_below(label: Cell, below: Sequence[Cell]) -> bool:
    """Whether a name or an address is under a label, and not another label."""
    cell = next((cell for cell in below if cell.box.shares_width(label.box)), None)
    if cell is None or _is_label(cell) or is_tax_label(cell.text):
        return False
    return any(piece.role in (Role.NAME, Role.ADDRESS) for piece in pieces_of(cell.words))


def _reach(block: Block, rows: PageRows) -> float:
    """How far below its last line a block may go on."""
    if len(block.lines) >= _MAX_LINES:
        return 0.0
    gap = _GAP if block.lines else _GAP_BELOW_LABEL
    return gap * max(block.last.box.height, rows.line_height)


def _block_above(new: Block, blocks: Sequence[Block], rows: PageRows) -> Block | None:
    """The block that a line continues: the best aligned of those that end above it."""
    cell = new.first
    best: tuple[float, Block] | None = None
    for block in blocks:
        height = max(rows.line_height, min(cell.box.height, block.last.box.height))
        if block.last.row >= cell.row:
            continue
        ends = (block.first,) if block.last is block.first else (block.first, block.last)
        offsets = [
            cell.box.aside(other.box) for other in ends if cell.box.shares_width(other.box) or other is block.first
        ]
        offset = min(offsets, default=_ALIGNED * height * 2)
        if cell.box.shares_width(block.last.box) and is_form_alone(cell.text):
            offset = 0.0
        is_better = best is None or offset < best[0] or (offset == best[0] and not best[1].lines)  # a heading gives way
        if offset <= _ALIGNED * height and is_better:
            best = offset, block
    return best[1] if best else None
