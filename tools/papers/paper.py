"""Papers of every kind, each with a layout of its own: what stands where is drawn at random, block by block."""

from __future__ import annotations

import datetime
import hashlib
import inspect
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from backend.models.fields_network import KINDS
from tools.papers import parties
from tools.papers.facts import Facts, Goods, facts_of
from tools.papers.sheet import Line, MadeWord, Piece, Sheet, scan
from tools.papers.values import LANGUAGES, Speaker, cents, document_id, listed, short_name

_SHARES = (48, 18, 6, 5, 3, 3, 3, 3, 3, 3, 2.5, 2.5)
HAVE_FIELDS = frozenset(KINDS[:4])


def _row(*pieces: Piece) -> Line:
    """A line of one cell, from the left."""
    return [(0.0, "l", list(pieces))]


def _rows(texts: list[str], label: str = "") -> list[Line]:
    """A line for each text."""
    return [_row((text, label)) for text in texts]


def _grid(cells: list[list[Piece]], align: str) -> Line:
    """Cells of the same width beside each other."""
    shift = {"l": 0.0, "c": 0.5, "r": 0.95}[align]
    return [((index + shift) / len(cells), align, pieces) for index, pieces in enumerate(cells)]


def _brand_of(paper: Paper) -> str:
    """A word of the supplier's name, or a brand unlike it."""
    core, other = short_name(paper.facts.vendor), short_name(paper.say.company())
    first, trade = core.split()[0], f"{paper.say.say('trade')} {core.split()[-1]}"
    return paper.rng.choice((first, core, core, trade, first.lower(), core.lower(), other, other.lower()))


def _marked(line: Line) -> Line:
    """The line as the first of a line of goods."""
    return [
        (x, align, [(text, label + "!" if label else label) for text, label in pieces]) for x, align, pieces in line
    ]


Maker = Callable[[], list[Line]]  # writes a block when its place is known
Entry = tuple[str, list[Piece]]  # a label and its value


_COLUMN_SHARES = {"qty": 0.8, "price": 0.72, "code": 0.3, "rate": 0.25, "disc": 0.12, "unit": 0.12, "date": 0.04}
_COLUMN_WIDTHS = dict.fromkeys(("amount", "price", "code", "date"), 1.1) | dict.fromkeys(("qty", "rate", "disc"), 0.8)
_COLUMN_WIDTHS |= {"pos": 0.5, "unit": 0.6, "tax": 1.0}
_COLUMN_ORDER = {"pos": -2.0, "code": 0, "date": 0, "desc": 1, "qty": 2, "unit": 3, "price": 4, "disc": 5, "rate": 6}
_COLUMN_ORDER |= {"tax": 6.5, "amount": 7}


class Paper:
    """Blocks of one paper, each a list of lines."""

    def __init__(
        self, rng: random.Random, kind: str, facts: Facts | None = None, noise: random.Random | None = None
    ) -> None:
        self.rng, self.kind = rng, kind
        self.noise = noise or rng  # of scanning
        self.digital = False  # not scanned, whatever is drawn
        self.say = Speaker(rng)
        self.facts = facts or facts_of(kind, self.say)
        self.size = rng.choice((7.0, 8.0, 8.5, 9.0, 9.0, 10.0, 10.0, 11.0, 12.0))
        self.one = rng.random() < 0.6  # one form for all pairs of label and value
        self.has_buyer = rng.random() < (0.25 if kind == "simplified" else 0.96)
        self.has_title = rng.random() < 0.9
        self.id_said = self.date_said = False
        self.rates_said = len(self.facts.taxes) > 1
        self.needs_heading = False  # place alone would not tell the buyer
        self.mixed: dict[str, list[Piece]] = {}  # labels that hold a value
        self.colon_column = rng.random() < 0.35
        self.brand = rng.random() < 0.14
        self.brand_labelled = self.brand and rng.random() < 0.25
        self.clock = rng.random() < (0.5 if kind == "simplified" else 0.03)
        self.layout = rng.choices(parties.LAYOUTS, parties.SHARES)[0]  # of the parties
        self.tells = rng.random() < 0.4  # the supplier's block tells that it is the supplier's: telephone, site
        self.brand_text = _brand_of(self)

    def names_of(self, seller: bool) -> tuple[str, list[str], str]:
        """Name, address and tax id of the supplier or the buyer."""
        facts = self.facts
        if seller:
            return facts.vendor, facts.vendor_address, facts.vendor_id
        return facts.customer, facts.customer_address, facts.customer_id

    # -- parts ----------------------------------------------------------------------------------------------------
    def pair(self, label: str, pieces: list[Piece], form: int) -> list[Line]:
        """A label with its value: beside it, far from it, below it."""
        if form == 0 or not label:
            return [_row((label, ""), *pieces)]
        if form == 1 and label.endswith(":") and self.colon_column:
            return [[(0.0, "l", [(label.rstrip(": "), "")]), (self.tab - 0.03, "l", [(":", ""), *pieces])]]
        if form == 1:
            return [[(0.0, "l", [(label, "")]), (self.tab, "l", pieces)]]
        if form == 2:
            return [[(0.0, "l", [(label, "")]), (1.0, "r", pieces)]]
        if form == 3:
            return [[(self.tab - 0.02, "r", [(label, "")]), (self.tab, "l", pieces)]]
        return [_row((label, "")), _row(*pieces)]

    tab = 0.45

    def joined(self, label: str, value: str, name: str) -> list[Piece]:
        """A label and an id that follows it, at times without a space."""
        if self.rng.random() < 0.06 and label.endswith(":"):
            return [(label + value, name)]
        return [(label, ""), (value, name)]

    def party(self, role: str) -> list[Line]:
        """The block of the supplier or the buyer."""
        rng, say = self.rng, self.say
        seller = role == "Vendor"
        name, address, number = self.names_of(seller)
        lines: list[Line] = []
        told = self.layout != "blocks" and not seller  # by the small print, who is the supplier
        heading = rng.random() < (0.22 if seller else 0.35 if told else 0.72) or (self.needs_heading and not seller)
        label = say.label("vendor" if seller else "customer")
        if rng.random() < 0.06:  # in two languages
            second = rng.choice(listed("vendor" if seller else "customer", rng.choice(LANGUAGES)))
            label = rng.choice(
                (f"{label.rstrip(':')} / {second}", f"{label.rstrip(':')}/{second}:", f"{label} ({second})")
            )
        name_pieces: list[Piece] = [(name, role + "Name")]
        rest: list[Piece] = []
        if say.region == "my" and seller and rng.random() < 0.45:
            form = rng.choice(listed("register.my"))
            register: Piece = (form.format(rng.randint(10000, 999999), rng.choice("ADHKMPTUVWX")), "")
            (rest if rng.random() < 0.6 else name_pieces).append(register)
        if heading and rng.random() < 0.3:
            name_pieces = [(label, ""), *name_pieces]
        elif heading:
            lines.append(_row((label, "")))
        if rng.random() < 0.08:
            lines.append(_row((say.say("goods"), "")))
        name_lines = (
            self.name_lines(name_pieces, role, name)
            if rng.random() < (0.3 if self.kind == "simplified" else 0.06)
            else [_row(*name_pieces)]
        )
        if seller and self.brand_labelled:  # the name stands in the logo only
            name_lines = []
        lines += name_lines
        if rng.random() < (0.03 if seller else 0.09):  # a person of theirs
            lines.append(_row((say.say("contact.person"), ""), (say.person(), "")))
        if rest:
            lines.append(_row(*rest))
        id_label = say.label("taxid") if rng.random() < 0.93 else ""
        id_line: Line = _row(*self.joined(id_label, number, role + "TaxId"))
        has_id = rng.random() < (0.9 if seller else 0.8)
        address_lines = _rows(address, role + "Address")
        if rng.random() < 0.08:
            address_lines[0] = _row((rng.choice(listed("address.label")), ""), *address_lines[0][0][2])
        if rng.random() < 0.93:
            lines += [id_line, *address_lines] if rng.random() < 0.4 else [*address_lines, id_line]
            if not has_id:
                lines.remove(id_line)
        elif has_id:
            lines.append(id_line)
        if name_lines and rng.random() < 0.05 and id_line in lines:
            lines.remove(id_line)
            name_lines[-1][0][2].extend([(rng.choice(("-", "·", "|", "")), ""), *id_line[0][2]])
        tells = seller and self.tells
        if tells or rng.random() < (0.65 if seller else 0.2):
            numbers = range(rng.choice((1, 1, 1, 2, 3)))
            lines.append(_row(*(piece for _ in numbers for piece in ((say.label("contact"), ""), (say.phone(), "")))))
        if tells or rng.random() < (0.5 if seller else 0.15):
            lines.append(_row((say.web(name), "")))
        if seller and rng.random() < 0.04:  # a branch
            lines += self.others()
        if not seller and rng.random() < 0.15:
            lines.append(_row((say.label("otherid"), ""), (document_id(rng, 2026), "")))
        if rng.random() < 0.12:  # in one or two lines, as below a letterhead
            return self.flow(
                [piece for line in lines for cell in line for piece in cell[2]],
                rng.randint(5, 14),
                rng.choice((" · ", " - ", ", ", " | ", "")),
            )
        if rng.random() < 0.1:
            lines = self.as_form(lines, seller)
        align = rng.choice(("l", "l", "l", "l", "r", "c"))
        if self.narrow and seller:
            align = rng.choice(("l", "c", "c"))
        if align != "l":
            lines = [[({"r": 1.0, "c": 0.5}[align], align, cell[2]) for cell in line] for line in lines]
        return lines

    narrow = False

    def name_lines(self, pieces: list[Piece], role: str, name: str) -> list[Line]:
        """A name on two lines, or under a line of its own."""
        words = name.split()
        before = [piece for piece in pieces if not piece[1]]
        if len(words) < 3:
            return [_row(*pieces)]
        cut = self.rng.randint(1, len(words) - 1)
        first: Line = _row(*before, (" ".join(words[:cut]), role + "Name"))
        return [first, _row((" ".join(words[cut:]), role + "Name"))]

    def logo(self) -> list[Line]:
        """A brand: the supplier's name where that stands nowhere else."""
        rng, name = self.rng, self.facts.vendor
        if self.brand_labelled:
            return [_row((name if rng.random() < 0.7 else name.upper(), "VendorName"))]
        text = self.brand_text.upper() if rng.random() < 0.45 else self.brand_text
        label = "VendorName" if text.casefold() == name.casefold() else ""
        form = rng.random()
        if form < 0.08 and len(text) < 16:
            text, label = parties.spaced(text), ""
        mark = rng.choice("⚡◆●▲■★◉✦") if form > 0.94 else ""
        lines: list[Line] = [_row((mark, ""), (text, label))]
        if rng.random() < 0.3:
            lines.append(_row((" · ".join(self.say.say("goods") for _ in range(rng.randint(1, 3))), "")))
        return lines

    def registry(self) -> list[Line]:
        """The line at the foot that says where the supplier is registered, perhaps with its tax id."""
        rng, facts = self.rng, self.facts
        text = parties.registered(self.say)
        pieces: list[Piece] = [(text, "")]
        if rng.random() < 0.5:
            pieces += [(self.say.label("taxid"), ""), (facts.vendor_id, "VendorTaxId")]
        if rng.random() < 0.4:
            pieces = [(facts.vendor, "VendorName"), ("-", ""), *pieces]
        return self.flow(pieces, rng.randint(8, 20))

    def imprint(self) -> list[Line]:
        """The supplier in small print, and others behind it."""
        rng = self.rng
        pieces = self.told("imprint")
        if rng.random() < 0.25:
            pieces += self.told("others")
        lines = self.flow(pieces, rng.randint(7, 26))
        return self.centred(lines) if rng.random() < 0.3 else lines

    def told(self, key: str) -> list[Piece]:
        """A sentence about parties."""
        return parties.told(key, self.say, self.facts, self.brand_text)

    def others(self) -> list[Line]:
        """Who neither sells nor buys, each on a line or in one text."""
        rng = self.rng
        told = [self.told("others") for _ in range(rng.choice((1, 1, 2, 3)))]
        if rng.random() < 0.7:
            return [line for pieces in told for line in self.flow(pieces, rng.randint(6, 12))]
        return self.flow([piece for pieces in told for piece in pieces], rng.randint(8, 18))

    @staticmethod
    def centred(lines: list[Line]) -> list[Line]:
        """The lines about their middle."""
        return [[(0.5, "c", cell[2]) for cell in line] for line in lines]

    def foot_columns(self) -> list[Maker]:
        """The supplier in columns at the foot, with its bank, as in German letters."""
        say, facts = self.say, self.facts

        def who() -> list[Line]:
            return [*_rows([facts.vendor], "VendorName"), *_rows(facts.vendor_address, "VendorAddress")]

        def bank() -> list[Line]:
            return [*_rows([say.say("bank")]), _row((say.label("iban"), ""), (facts.iban, "IBAN"))]

        def ids() -> list[Line]:
            tax_id = _row((say.label("taxid"), ""), (facts.vendor_id, "VendorTaxId"))
            return [tax_id, _row((say.label("contact"), ""), (say.phone(), "")), _row((say.web(facts.vendor), ""))]

        makers: list[Maker] = [who, bank, ids]
        self.rng.shuffle(makers)
        return makers

    def sender(self) -> list[Line]:
        """The supplier on one small line, above the buyer's window."""
        facts, mark = self.facts, self.rng.choice(("·", "-", ",", "|", "•"))
        return [
            _row((facts.vendor, "VendorName"), (mark, ""), *[(text, "VendorAddress") for text in facts.vendor_address])
        ]

    def as_form(self, lines: list[Line], seller: bool) -> list[Line]:
        """The block as a form: a label before everything."""
        say, role = self.say, "Vendor" if seller else "Customer"
        name, address, number = self.names_of(seller)
        form = self.rng.choice((0, 1, 2, 4))
        values = ((name, "Name"), (" ".join(address), "Address"), (number, "TaxId"))
        out = [
            line
            for label, (text, part) in zip(listed("form", say.language), values, strict=False)
            for line in self.pair(label + say.colon, [(text, role + part)], form)
        ]
        return lines[:1] + out if lines and lines[0][0][2][0][1] == "" and len(lines[0][0][2]) == 1 else out

    def flow(self, pieces: list[Piece], words: int, mark: str = "") -> list[Line]:
        """Pieces as running text, a number of words a line."""
        lines: list[Line] = []
        line: list[Piece] = []
        count = 0
        for index, (text, label) in enumerate(pieces):
            if mark and index and label and not pieces[index - 1][0].endswith(":"):
                line.append((mark.strip(), ""))
            parts = text.split()
            while parts:
                taken = parts[: max(1, words - count)]
                parts = parts[len(taken) :]
                line.append((" ".join(taken), label))
                count += len(taken)
                if count >= words:
                    lines.append(_row(*line))
                    line, count = [], 0
        if line:
            lines.append(_row(*line))
        return lines

    def id_label(self) -> str:
        """The label of the paper's number."""
        if self.kind in ("invoice", "utility") or (self.kind == "credit" and self.rng.random() < 0.5):
            return self.say.label("id")
        if self.kind == "simplified" and self.rng.random() < 0.6:
            return self.say.label("id")
        return (
            f"{self.say.say('title.' + self.kind)} {self.rng.choice(('nº', 'n.º', 'no.', '#', ''))}".strip()
            + self.say.colon
        )

    def meta(self) -> list[Line]:
        """Number, dates and references."""
        rng, say, facts = self.rng, self.say, self.facts
        entries: list[Entry] = []
        if not self.id_said:
            entries.append((self.id_label(), [(facts.number, "InvoiceId")]))
        if not self.date_said and rng.random() < 0.97:
            clock: list[Piece] = [(self.clock_time(), "")] if self.clock else []
            label = say.label("date") if not (self.clock and rng.random() < 0.4) else ""
            entries.append((label, [(say.date(facts.day), "InvoiceDate"), *clock]))
        if rng.random() < (0.2 if say.region == "us" else 0.04) and self.kind in HAVE_FIELDS:
            entries.append(
                (say.label("due.amount"), self.amount(self.to_pay(), "AmountDue" if self.differs() else "InvoiceTotal"))
            )
        if rng.random() < (0.2 if say.language == "en" else 0.05):
            entries.append((say.label("pay.label"), [(say.say("terms"), "")]))
        if facts.due and rng.random() < 0.8:
            entries.append((say.label("due"), [(say.date(facts.due), "DueDate")]))
        if rng.random() < 0.22:
            other = facts.day - datetime.timedelta(days=rng.randint(1, 40))
            entries.append((say.label("othdate"), [(say.date(other), "")]))
        if rng.random() < 0.2:
            entries.append((say.label("po"), [(document_id(rng, facts.day.year), "PurchaseOrder")]))
        others = range(rng.choices((0, 1, 2, 3), (55, 25, 13, 7))[0])
        entries += [(say.label("otherid"), [(document_id(rng, facts.day.year), "")]) for _ in others]
        if rng.random() < 0.2:
            entries.append((say.label("pay.label"), [(say.say("pay"), "")]))
        if self.kind == "credit" and rng.random() < 0.8:
            entries.append((say.label("rect"), [(document_id(rng, facts.day.year), "RectifiedInvoiceId")]))
        if rng.random() < 0.12:
            entries.append((say.label("taxid"), [(facts.customer_id, "CustomerTaxId")]))
        if rng.random() < 0.35:
            rng.shuffle(entries)
        return self.entries(entries)

    def clock_time(self) -> str:
        """The time of day, as tills print it."""
        hour, minute, second = self.rng.randint(0, 23), self.rng.randint(0, 59), self.rng.randint(0, 59)
        return f"{hour:02d}:{minute:02d}" + self.rng.choice(("", f":{second:02d}", " PM" if self.say.region else ""))

    def entries(self, entries: list[Entry]) -> list[Line]:
        """Pairs of label and value: in lines, as a grid with a head, or one after the other."""
        rng = self.rng
        form = rng.random()
        if form < 0.2 and 1 < len(entries) <= 6:
            align = rng.choice(("l", "c", "r"))
            heads: list[list[Piece]] = [[(label.rstrip(":"), "")] for label, _ in entries]
            return [_grid(heads, align), _grid([pieces for _, pieces in entries], align)]
        cells: list[list[Piece]] = [[(label, ""), *pieces] for label, pieces in entries]
        if form < 0.28:
            return [_grid(cells, "l")]
        if form < 0.36 and len(entries) > 2:  # two pairs a line
            return [[(j * 0.5, "l", cell) for j, cell in enumerate(cells[i : i + 2])] for i in range(0, len(cells), 2)]
        self.tab = rng.uniform(0.35, 0.6)
        one = rng.choices(range(5), (35, 22, 15, 10, 18))[0]
        return [
            line
            for label, pieces in entries
            for line in self.pair(label, pieces, one if self.one else rng.choices(range(5), (40, 20, 15, 10, 15))[0])
        ]

    def title(self) -> list[Line]:
        """The kind of paper, perhaps with its number and date."""
        rng, say = self.rng, self.say
        text = say.say(f"title.{self.kind}")
        pieces: list[Piece] = [(text, "")]
        if not self.id_said and rng.random() < 0.25:
            pieces += [
                (rng.choice(("Nº", "n.º", "No.", "#", "", "nº:", "N°", "Nr.", "")), ""),
                (self.facts.number, "InvoiceId"),
            ]
            self.id_said = True
            if rng.random() < 0.2:
                pieces += [
                    (rng.choice(("de", "-", "·", "del", "of", "vom", "du", "de fecha")), ""),
                    (say.date(self.facts.day), "InvoiceDate"),
                ]
                self.date_said = rng.random() < 0.8
        return [_row(*pieces)]

    def table(self) -> tuple[list[Line], list[Line]]:
        """The head and the lines of goods."""
        rng, say, facts = self.rng, self.say, self.facts
        columns = ["desc", "amount", *(name for name, share in _COLUMN_SHARES.items() if rng.random() < share)]
        if any(goods.discount for goods in facts.goods) and rng.random() < 0.9 and "disc" not in columns:
            columns.append("disc")
        if rng.random() < 0.14:
            columns.append("pos")
        if rng.random() < 0.07:
            columns.append("tax")
        if rng.random() < 0.03:
            columns.remove("desc")
            columns.append("desc")
        if rng.random() < 0.75:
            order = _COLUMN_ORDER | ({"qty": -1} if rng.random() < 0.3 else {})
            columns.sort(key=lambda name: order[name] + rng.random() * 0.5)
        else:
            rng.shuffle(columns)
            columns.remove("amount")
            columns.append("amount")
        wide = _COLUMN_WIDTHS | {"desc": rng.uniform(2.2, 5)}
        whole = sum(wide[name] for name in columns)
        cells: list[tuple[str, float, str]] = []
        x = 0.0
        figures = rng.choice(("r", "r", "r", "l", "c"))
        for name in columns:
            width = wide[name] / whole
            align = "l" if name in ("desc", "code", "unit", "date", "pos") else figures
            cells.append((name, x + {"l": 0.0, "r": width * 0.96, "c": width / 2}[align], align))
            x += width
        self.room = wide["desc"] / whole
        heads = [(x, align, self.column_head(name)) for name, x, align in cells]
        head: list[Line] = (
            []
            if rng.random() < (0.5 if self.narrow else 0.06)
            else [[(x, align, [(text, "")]) for x, align, text in heads]]
        )
        if head and rng.random() < 0.06:  # heads of two lines
            head = [
                [(x, align, [(text.split()[0], "")]) for x, align, text in heads],
                [(x, align, [(" ".join(text.split()[1:]), "")]) for x, align, text in heads if " " in text],
            ]
        plain = rng.random() < 0.7
        body: list[Line] = []
        self.wrap_form = rng.choices(("first", "last", "middle"), (85, 10, 5))[0]
        sections = rng.random() < 0.08
        two_lines = rng.random() < (0.45 if self.narrow else 0.03)
        for number, goods in enumerate(facts.goods):
            if sections and (number == 0 or rng.random() < 0.2):
                text = (
                    say.say("section")
                    .replace("{id}", document_id(rng, 2026))
                    .replace("{date}", say.date(facts.day))
                    .replace("{city}", say.say("city"))
                )
                body.append([(rng.choice((0.0, cells[0][1])), "l", [(text, "")])])
            body += self.on_two_lines(goods) if two_lines else self.goods_lines(goods, cells, plain, number + 1)
            if rng.random() < 0.015:
                body.append([(cells[0][1], "l", [(say.say("prose")[:50], "")])])
            if rng.random() < 0.01 and number:
                some = sum((goods.amount for goods in facts.goods[: number + 1]), Decimal(0))
                body.append([(0.6, "r", [(say.say("gross"), "")]), (0.99, "r", [(say.number(some), "")])])
        return head, body

    def column_head(self, name: str) -> str:
        """What stands above a column."""
        if name == "pos":
            return self.rng.choice(("Pos.", "Nº", "#", "Ln.", "No."))
        return self.say.say("tax").replace("{r}", "").strip(" ()+") if name == "tax" else self.say.say(f"col.{name}")

    room = 0.5

    wrap_form = "first"

    def on_two_lines(self, goods: Goods) -> list[Line]:
        """Goods as receipts print them: what on one line, how much on the next."""
        rng, say = self.rng, self.say
        whole = goods.quantity == goods.quantity.to_integral_value()
        quantity: Piece = (say.number(goods.quantity, 0 if whole else 2), "ItemQuantity")
        price: Piece = (say.number(goods.price), "ItemPrice")
        amount: list[Piece] = [(say.number(goods.amount), "ItemAmount")]
        if rng.random() < 0.15:
            amount.append((rng.choice(("A", "B", "S", "T", "SR", "ZRL", "*")), ""))
        how: list[Piece] = [quantity, (rng.choice(("x", "X", "@", "*", "UN x", "")), ""), price]
        if rng.random() < 0.2:
            how.insert(1, (goods.unit, "ItemUnit"))
        code: list[Piece] = [(goods.code, "ItemCode")] if rng.random() < 0.4 else []
        what: list[Piece] = [(goods.description, "ItemDescription")]
        form = rng.random()
        if form < 0.45:
            lines: list[Line] = [_row(*code, *what), [(0.1, "l", how), (1.0, "r", amount)]]
        elif form < 0.7 and code:
            lines = [_row(*what), [(0.0, "l", [*code, *how]), (1.0, "r", amount)]]
        elif form < 0.85:
            lines = [[(0.0, "l", [quantity, *what]), (1.0, "r", amount)]]
        else:
            lines = [[(0.0, "l", what), (1.0, "r", amount)], [(0.08, "l", how)]]
        return [_marked(lines[0]), *lines[1:]]

    def goods_lines(self, goods: Goods, cells: list[tuple[str, float, str]], plain: bool, number: int) -> list[Line]:
        """One line of goods, its description perhaps on several."""
        rng, say = self.rng, self.say
        whole = goods.quantity == goods.quantity.to_integral_value()
        texts = {
            "qty": (say.number(goods.quantity, 0 if whole and rng.random() < 0.95 else 2), "ItemQuantity"),
            "price": (say.number(goods.price) if plain else say.money(goods.price), "ItemPrice"),
            "code": (goods.code, "ItemCode"),
            "rate": (say.rate(goods.rate), "ItemTaxRate"),
            "disc": (say.rate(goods.discount) if goods.discount else rng.choice(("", "", "0", "0,00")), "ItemDiscount"),
            "unit": (goods.unit, "ItemUnit"),
            "date": (say.date(self.facts.day), ""),
            "pos": (str(number), ""),
            "tax": (say.number(cents(goods.amount * goods.rate / 100)), ""),
            "amount": (say.number(goods.amount) if plain else say.money(goods.amount), "ItemAmount"),
        }
        words = goods.description.split()
        most = max(1 if rng.random() < 0.1 else 2, int(self.room * (230 if self.narrow else 520) / (self.size * 3.2)))
        chunks = [" ".join(words[i : i + most]) for i in range(0, len(words), most)]
        extra = [goods.extra[:60]] if goods.extra else []
        line: Line = []
        for name, x, align in cells:
            text, label = texts[name] if name != "desc" else (chunks[0], "ItemDescription")
            if text:
                line.append((x, align, [(text, label)]))
        place = next(x for name, x, _ in cells if name == "desc")
        more: list[Line] = [[(place, "l", [(text, "ItemDescription")])] for text in [*chunks[1:], *extra]]
        if not more or self.wrap_form == "first":
            return [_marked(line), *more]
        texts_only: list[Line] = [[(place, "l", [(text, "ItemDescription")])] for text in [*chunks, *extra]]
        at = len(texts_only) - 1 if self.wrap_form == "last" else len(texts_only) // 2
        figures = [cell for cell in line if cell[2][0][1] != "ItemDescription"]
        lines = [
            sorted([*text, *figures], key=lambda cell: cell[0]) if i == at else text
            for i, text in enumerate(texts_only)
        ]
        return [_marked(lines[0]), *lines[1:]]

    # -- sums -----------------------------------------------------------------------------------------------------
    def amount(self, value: Decimal, label: str) -> list[Piece]:
        """An amount; its sign is no part of the value where it stands apart."""
        pieces: list[Piece] = []
        for part in self.say.money(value).split(" "):
            name = label if any(c.isdigit() or c in "-−(" for c in part) else ""
            if pieces and pieces[-1][1] == name:
                pieces[-1] = (f"{pieces[-1][0]} {part}", name)
            else:
                pieces.append((part, name))
        return pieces

    def sums(self) -> list[Line]:
        """All sums, in one of several forms."""
        rng = self.rng
        form = rng.random()
        rows = self.sum_rows(with_rates=True)
        if form < 0.2 or (form < 0.55 and self.rates_said):
            lines = self.tax_table()
            if rng.random() < 0.25:
                return [*self.sum_lines(self.sum_rows(with_rates=False)), *lines]
            return [*lines, *self.sum_lines(self.sum_rows(with_rates=False, rest=rng.random() < 0.5))]
        if (form < 0.3 and len(rows) <= 7) or form > 0.97:
            align = rng.choice(("l", "r", "c"))
            lines = [_grid([[(label.rstrip(":"), "")] for label, _ in rows], align), _grid([p for _, p in rows], align)]
            return lines if rng.random() < 0.85 else lines[::-1]
        if form < 0.33:
            return self.flow([piece for label, pieces in rows for piece in ((label, ""), *pieces)], rng.randint(6, 12))
        return self.sum_lines(rows)

    def sum_lines(self, rows: list[Entry]) -> list[Line]:
        """Sums one below the other."""
        rng = self.rng
        form = rng.choices(range(5), (10, 15, 52, 16, 7))[0]
        self.tab = rng.uniform(0.4, 0.7)
        lines: list[Line] = []
        for label, pieces in rows:
            if form == 3:
                lines.append([(self.tab, "r", [(label, "")]), (1.0, "r", pieces)])
            else:
                lines += self.pair(label, pieces, form)
        return lines

    def sum_of(self, key: str, value: Decimal, label: str = "", rate: Decimal | None = None) -> Entry:
        """A sum with its name before it."""
        return self.say.label(key, rate), self.amount(value, label)

    def sum_rows(self, *, with_rates: bool, rest: bool = True) -> list[Entry]:
        """Label and amount of every sum.

        Args:
            with_rates: one row for each rate of tax; else their sum.
            rest: also base and tax, beside a table of taxes.
        """
        rng, say, facts = self.rng, self.say, self.facts
        rows: list[Entry] = []
        included = self.kind == "simplified" and rng.random() < 0.35
        tax_key = "igic" if facts.igic else "tax"
        if facts.discount:
            rows.append(self.sum_of("gross", facts.gross))
            sign = rng.choice((1, -1))
            rows.append(self.sum_of("discount", sign * facts.discount, "TotalDiscount", facts.discount_rate))
        if self.kind == "utility" and rng.random() < 0.7:
            rows += [
                (say.label("utilrow"), self.amount(cents(facts.base * rng.randint(1, 60) / 100), ""))
                for _ in range(rng.randint(1, 6))
            ]
        if rest and not included and rng.random() < (0.75 if self.kind == "utility" else 0.93):
            rows.append(self.sum_of("base", facts.base, "SubTotal"))
        if with_rates and not included:
            rows += self.tax_rows(tax_key)
        elif rest and not included:
            rows.append(self.sum_of(tax_key, facts.tax, "TotalTax"))
        rows += self.total_rows()
        if included and rng.random() < 0.5:
            rows.append(self.sum_of(tax_key, facts.tax, "TotalTax", facts.taxes[0][0]))
        if self.kind == "simplified" and rng.random() < 0.6:
            given = facts.total + Decimal(rng.choice((0, 0, 5, 10)))
            rows += [self.sum_of("misc", given), self.sum_of("misc", given - facts.total)]
            if rng.random() < 0.25:
                rows.insert(0, (say.label("misc"), [(str(len(facts.goods)), "")]))
            if rng.random() < 0.1:  # before and after rounding
                label = say.label("misc")
                rounding = Decimal("0.00") if rng.random() < 0.5 else Decimal("0.02")
                rows.insert(len(rows) - 2, (label, self.amount(rounding, "")))
        if rng.random() < 0.04 and len(rows) > 2:
            rows.insert(0, rows.pop())
        self.split_rates(rows)
        return rows

    def tax_rows(self, key: str) -> list[Entry]:
        """A row for each rate of tax, with its surcharge."""
        rng, say, facts = self.rng, self.say, self.facts
        several = len(facts.taxes) > 1
        rows: list[Entry] = []
        for index, (rate, base, tax) in enumerate(facts.taxes):
            if not rate and rng.random() < 0.6:
                continue
            said = rate if several or rng.random() < 0.8 else None
            pieces = self.amount(tax, "TaxAmount" if several else "TotalTax")
            if several and rng.random() < 0.25:
                pieces = [*self.amount(base, "TaxBase"), *pieces]
            if rng.random() < 0.12 and not facts.surcharges:  # the rate in a cell of its own
                rows.append((say.label(key), [(say.rate(rate), "TaxRate"), *pieces]))
                continue
            rows.append((say.label(key, said), pieces))
            if facts.surcharges and rng.random() < 0.9:
                surcharge_rate, surcharge = facts.surcharges[index]
                rows.append(self.sum_of("surcharge", surcharge, "EquivalenceSurcharge", surcharge_rate))
        if several and rng.random() < 0.3:
            rows.append((say.say("tax").replace("{r}", "").strip(" ()"), self.amount(facts.tax, "TotalTax")))
        return rows

    def total_rows(self) -> list[Entry]:
        """The total, with what is withheld and paid of it and what is due; where cash is rounded, the rounded one."""
        rng, say, facts = self.rng, self.say, self.facts
        after = self.after()
        if facts.withheld:
            sign = rng.choice((1, -1))
            rate = facts.withheld_rate * (-1 if rng.random() < 0.15 else 1)
            held = self.sum_of("withholding", sign * facts.withheld, "WithholdingAmount", rate)
            total = self.sum_of("total", facts.total, "InvoiceTotal")
            if rng.random() < 0.75 and not after:  # one figure after withholding, the total
                return [held, self.sum_of("total", facts.total - facts.withheld, "InvoiceTotal")]
            return [total, held, *after, self.sum_of("due.amount", self.to_pay(), "AmountDue")]
        total = self.sum_of("total", facts.total, "InvoiceTotal")
        if after:
            return [total, *after, self.sum_of("due.amount", self.to_pay(), "AmountDue")]
        if self.kind == "simplified" and say.region == "my" and rng.random() < 0.45:
            rounded = (facts.total * 20).to_integral_value() / 20
            return [
                (total[0], self.amount(facts.total, "InvoiceTotal" if rounded == facts.total else "")),
                self.sum_of("rounding", cents(rounded - facts.total)),
                self.sum_of("rounded", cents(rounded), "InvoiceTotal"),
            ]
        return [total, self.sum_of("due.amount", facts.total, "AmountDue")] if rng.random() < 0.06 else [total]

    def split_rates(self, rows: list[Entry]) -> None:
        """The rate within a label is a value of its own: put before the amounts, where it ends the label."""
        for index, (label, pieces) in enumerate(rows):  # noqa: B007
            name = {"TotalTax": "TaxRate", "TaxAmount": "TaxRate", "WithholdingAmount": "WithholdingRate"}.get(
                pieces[-1][1] or pieces[0][1]
            )
            words = label.split()
            if name is None or not any("%" in word for word in words):
                continue
            out: list[Piece] = []
            for i, word in enumerate(words):
                is_rate = any(c.isdigit() for c in word) and (
                    "%" in word or (i + 1 < len(words) and words[i + 1].startswith("%"))
                )
                out.append((word, name if is_rate else ""))
            self.mixed[label] = out

    def after(self) -> list[Entry]:
        """What stands between the total and what is due."""
        rows: list[Entry] = []
        if self.facts.paid:
            rows.append((self.say.label("paid"), self.amount(self.rng.choice((1, -1)) * self.facts.paid, "")))
        if self.facts.older:
            rows.append(self.sum_of("older", self.facts.older))
        return rows

    def differs(self) -> bool:
        """Whether what is due is not the total."""
        return bool(self.facts.withheld or self.facts.paid or self.facts.older)

    def to_pay(self) -> Decimal:
        """What is due."""
        facts = self.facts
        return facts.total - facts.withheld - facts.paid + facts.older

    def tax_table(self) -> list[Line]:
        """Rate, base and tax of each rate below heads."""
        rng, say, facts = self.rng, self.say, self.facts
        several = len(facts.taxes) > 1
        columns = ["base", "rate", "tax"] if rng.random() < 0.6 else ["rate", "base", "tax"]
        if facts.surcharges:
            columns += ["srate", "sur"]
        if rng.random() < 0.3:
            columns.append("sum")
        head = {
            "base": say.say("base"),
            "rate": say.say("col.rate"),
            "tax": rng.choice((say.say("tax").replace("{r}", "").strip(" ()+"), "Cuota", "Importe")),
            "srate": "% R.E.",
            "sur": "R.E.",
            "sum": say.say("total"),
        }
        align = rng.choice(("l", "r", "r", "c"))
        lines = [_grid([[(head[name], "")] for name in columns], align)]
        for index, (rate, base, tax) in enumerate(facts.taxes):
            values = {
                "base": self.amount(base, "TaxBase" if several else "SubTotal"),
                "rate": [(say.rate(rate), "TaxRate")],
                "tax": self.amount(tax, "TaxAmount" if several else "TotalTax"),
                "sum": self.amount(base + tax, ""),
            }
            if facts.surcharges:
                values |= {
                    "srate": [(say.rate(facts.surcharges[index][0]), "")],
                    "sur": self.amount(facts.surcharges[index][1], "EquivalenceSurcharge"),
                }
            lines.append(_grid([values[name] for name in columns], align))
        if several and rng.random() < 0.35:
            values = {
                "base": self.amount(facts.base, "SubTotal"),
                "tax": self.amount(facts.tax, "TotalTax"),
                "rate": [(say.say("gross"), "")],
                "sum": self.amount(facts.base + facts.tax, ""),
            }
            lines.append(_grid([values.get(name, []) for name in columns], align))
        return lines

    # -- the rest -------------------------------------------------------------------------------------------------
    def payment(self) -> list[Line]:
        """How to pay."""
        rng, say, facts = self.rng, self.say, self.facts
        entries: list[Entry] = []
        if rng.random() < 0.7:
            entries.append((say.label("pay.label"), [(say.say("pay"), "")]))
        if rng.random() < 0.75:
            if rng.random() < 0.1:
                entries.append((say.label("iban"), [(facts.iban[:9] + " **** **** " + facts.iban[-4:], "")]))
            else:
                entries.append((say.label("iban"), [(facts.iban, "IBAN")]))
        if rng.random() < 0.4:
            entries.append((say.say("bank"), [(rng.choice(("BSCHESMMXXX", "CAIXESBBXXX", "BARCGB22", "")), "")]))
        if facts.due and rng.random() < 0.3:
            pieces: list[Piece] = [
                (say.date(facts.due), "DueDate"),
                *(self.amount(facts.total, "") if rng.random() < 0.4 else []),
            ]
            for more in range(rng.choice((0, 0, 0, 0, 1, 2))):
                pieces += [
                    (say.date(facts.due + datetime.timedelta(days=30 * (more + 1))), ""),
                    *self.amount(cents(facts.total / 2), ""),
                ]
            entries.append((say.label("due"), pieces))
        masked = any("*" in text for _, pieces in entries for text, _ in pieces)
        if self.has_buyer and rng.random() < (0.5 if self.kind == "utility" else 0.25 if masked else 0.03):
            entries.append((say.label("holder"), [(facts.customer, "CustomerName")]))
            if rng.random() < 0.5:
                entries.append((say.label("taxid"), [(facts.customer_id, "CustomerTaxId")]))
        elif rng.random() < 0.12:
            key = "remit" if rng.random() < 0.6 or masked else "holder"
            entries.append((say.label(key), [(facts.vendor, "VendorName")]))
        if say.language in ("es", "ca", "gl") and rng.random() < 0.05:
            entries.append(
                (
                    say.say("bank"),
                    [(" ".join("".join(rng.choice("0123456789") for _ in range(n)) for n in (4, 4, 2, 10)), "")],
                )
            )
        if rng.random() < 0.04:
            entries.append((say.label("words"), [(say.say("inwords"), "")]))
        return self.entries(entries) if entries else []

    def shipping(self) -> list[Line]:
        """Where goods go: an address that is nobody's."""
        say = self.say
        lines: list[Line] = [_row((say.label("ship"), ""))]
        lines.append(_row((self.facts.customer if self.rng.random() < 0.4 else say.person(), "")))
        return [*lines, *(_row((text, "")) for text in say.address())]

    def prose(self, key: str = "prose", most: int = 3) -> list[Line]:
        """Sentences that say nothing."""
        return self.flow(
            [(" ".join(self.say.say(key) for _ in range(self.rng.randint(1, most))), "")], self.rng.randint(7, 16)
        )

    def sentence(self) -> list[Line]:
        """A sentence with values in it."""
        facts, say = self.facts, self.say
        values: dict[str, list[Piece]] = {
            "id": [(facts.number, "InvoiceId")], "date": [(say.date(facts.day), "InvoiceDate")], "city": [(say.say("city"), "")],
            "due": [(say.date(facts.due or facts.day), "DueDate")], "customer": [(facts.customer, "CustomerName")],
            "ctax": [(facts.customer_id, "CustomerTaxId")], "total": self.amount(facts.total, "" if facts.withheld else "InvoiceTotal"),
            "base": self.amount(facts.base, "SubTotal"), "tax": self.amount(facts.tax, "TotalTax"),
        }  # fmt: skip
        pieces: list[Piece] = []
        for number, part in enumerate(say.say("sentence").replace("{", "}").split("}")):
            pieces += values[part] if number % 2 else [(part, "")]
        return self.flow(pieces, self.rng.randint(7, 14))

    def money_rows(self, key: str) -> list[Line]:
        """Rows of a payslip or of an account: figures that are no fields."""
        rng, say = self.rng, self.say
        bank = key == "bankrow"
        count = rng.choice((1, 2, 3, 3)) if not bank else rng.choice((2, 2, 3))
        lines: list[Line] = []
        if rng.random() < 0.8:
            heads = [say.say("bankcol") for _ in range(count + 2)]
            lines.append([(i / (count + 1), "l" if i < 2 else "r", [(text, "")]) for i, text in enumerate(heads)])
        balance = Decimal(rng.randint(0, 900000)) / 100
        for number in range(rng.randint(6, 24)):
            value = Decimal(rng.randint(-90000, 300000)) / 100
            balance += value
            line: Line = [(0.2 if bank else rng.choice((0.0, 0.1)), "l", [(say.say(key), "")])]
            shown = (
                [value, balance]
                if bank
                else [abs(value)] + [Decimal(rng.randint(1, 300000)) / 100 for _ in range(count - 1)]
            )
            for i, amount in enumerate(shown):
                if bank or rng.random() < 0.75:
                    line.append((1.0 - (len(shown) - 1 - i) * 0.17, "r", [(say.number(amount), "")]))
            if bank:
                day = self.facts.day + datetime.timedelta(days=number)
                line = [
                    (0.0, "l", [(say.date(day), "")]),
                    *([(0.1, "l", [(say.date(day), "")])] if rng.random() < 0.3 else []),
                    *line,
                ]
            lines.append(line)
        return lines

    def heads(self, key: str) -> list[Line]:
        """Pairs at the head of a payslip or of an account."""
        rng, say, facts = self.rng, self.say, self.facts
        makers: list[Callable[[], str]] = [
            lambda: say.date(facts.day), lambda: facts.iban, lambda: facts.customer_id, say.person, lambda: document_id(rng, 2026),
            lambda: say.money(Decimal(rng.randint(0, 900000)) / 100), lambda: f"{say.date(facts.day)} - {say.date(facts.day + datetime.timedelta(days=30))}",
        ]  # fmt: skip
        return self.entries([(say.label(key), [(rng.choice(makers)(), "")]) for _ in range(rng.randint(3, 7))])

    # -- where everything stands ----------------------------------------------------------------------------------
    def pages(self) -> list[list[MadeWord]]:
        """The pages' words."""
        rng = self.rng
        narrow = self.kind == "simplified" and rng.random() < 0.75
        width, height = (
            (rng.uniform(180, 300), 800.0) if narrow else rng.choice(((595.0, 842.0), (595.0, 842.0), (612.0, 792.0)))
        )
        self.narrow = narrow
        if narrow:
            self.size = rng.choice((7.0, 8.0, 9.0))
        if not self.has_title or rng.random() < 0.1:
            self.has_title = False
        return Placer(self, width, height).place()


class Placer:
    """Puts a paper's blocks on its pages: bands from top to bottom, each of one to three columns."""

    def __init__(self, paper: Paper, width: float, height: float) -> None:
        self.paper, self.rng = paper, paper.rng
        self.margin = self.rng.uniform(0.03, 0.11) * width
        self.width, self.height = width, height
        self.stretch = self.rng.uniform(0.85, 1.12)
        self.mono = self.rng.random() < (0.4 if paper.narrow else 0.06)
        self.leading = self.rng.choice((1.15, 1.25, 1.4, 1.6, 2.0))
        self.sheets = [self.sheet()]
        self.y = self.rng.uniform(0.02, 0.08) * height
        self.imprint_at = ""

    def sheet(self) -> Sheet:
        """An empty page."""
        return Sheet(self.width, self.height, stretch=self.stretch, mono=self.mono)

    def place(self) -> list[list[MadeWord]]:
        """All blocks; the pages' words."""
        rng, paper = self.rng, self.paper
        for band in self.bands():
            if band:
                self.band(band)
            else:
                self.table()
        if rng.random() < 0.05 and not paper.narrow:  # terms behind
            self.sheets.append(self.sheet())
            self.y = rng.uniform(0.03, 0.1) * self.height
            for _ in range(rng.randint(2, 6)):
                self.band([lambda: paper.prose(rng.choice(("prose", "letter")), 7)])
        if self.imprint_at == "foot":
            self.foot()
        for number, sheet in enumerate(self.sheets):
            if len(self.sheets) > 1 or rng.random() < 0.2:
                text = paper.say.say("page").replace("{p}", str(number + 1)).replace("{n}", str(len(self.sheets)))
                place = rng.choice((0.5, 0.9, 0.08))
                sheet.put(
                    self.width * place,
                    self.height * rng.choice((0.96, 0.97, 0.02)),
                    [(text, "")],
                    paper.size * 0.8,
                    "c",
                )
            if rng.random() < 0.06:
                sheet.put(
                    self.width * rng.uniform(0.2, 0.7),
                    self.height * rng.uniform(0.1, 0.9),
                    [(paper.say.say("stamp"), "")],
                    paper.size * rng.uniform(1.5, 4),
                )
            if rng.random() < 0.35 and not paper.digital:
                scan(sheet, paper.noise)
        return [sheet.words for sheet in self.sheets]

    def foot(self) -> None:
        """The small print at the foot of the first page, of the last or of all."""
        rng, lines = self.rng, self.paper.imprint()
        size = self.paper.size * rng.choice((0.6, 0.7, 0.8, 1.0))
        for sheet in rng.choice((self.sheets, self.sheets[:1], self.sheets[-1:])):
            top = max([*(word.box[3] for word in sheet.words), rng.uniform(0.84, 0.95) * self.height]) + size
            self.block(lines, self.margin, top, self.width - 2 * self.margin, size, sheet)

    def bands(self) -> list[list[Maker]]:
        """Which blocks stand beside each other; an empty band is the table of goods."""
        rng, paper = self.rng, self.paper
        if paper.kind in ("contract", "letter", "payslip", "bank"):
            return self.other_bands()
        blocks = self.head_blocks()
        order = list(blocks)
        if rng.random() < 0.35:
            rng.shuffle(order)
        else:
            rank = {"sender": 1.5, "title": rng.random() * 3, "vendor": rng.random() * 2, "meta": rng.random() * 4}
            rank |= {"buyer": 1 + rng.random() * 3, "ship": 3, "sentence": 4, "prose": 5}
            rank |= {"others": rng.random() * 5, "parties": 1.5 + rng.random() * 2}
            order.sort(key=rank.__getitem__)
        if paper.narrow and rng.random() < 0.65:  # receipts begin with the shop
            order.sort(key=lambda name: name != "vendor")
        tail: list[Maker] = []
        if paper.kind != "delivery" or rng.random() < 0.3:
            tail.append(paper.sums)
        if rng.random() < 0.6:
            tail.append(paper.payment)
        if rng.random() < 0.6:
            tail.append(paper.prose)
        if rng.random() < 0.2:
            tail.append(lambda: _rows([paper.say.say("notin") for _ in range(rng.randint(1, 4))]))
        if rng.random() < 0.12 and "vendor" in order:  # the supplier at the foot
            order.remove("vendor")
            tail.append(blocks["vendor"])
        if rng.random() < 0.1:
            tail.append(paper.others)
        if rng.random() < 0.35:
            rng.shuffle(tail)
        if self.imprint_at == "tail":
            tail.insert(rng.randint(0, len(tail)), paper.imprint)
        elif self.imprint_at == "head":
            blocks["imprint"] = paper.imprint
            order.insert(rng.choice((0, 0, 1)), "imprint")
        if rng.random() < 0.14:
            tail.append(paper.registry)
        if (
            "buyer" in order
            and paper.layout == "blocks"
            and not (paper.tells and rng.random() < 0.6)
            and ("vendor" not in order or order.index("buyer") < order.index("vendor") or rng.random() < 0.15)
        ):
            paper.needs_heading = True
        has_table = rng.random() < 0.95
        out = self.in_bands([blocks[name] for name in order])
        if has_table:
            out.append([])
        out += self.in_bands(tail)
        if rng.random() < 0.07:
            rng.shuffle(out)
            paper.needs_heading = paper.needs_heading or paper.layout == "blocks"
        if (paper.brand and not paper.narrow) or (paper.brand and rng.random() < 0.6):
            out.insert(0, [paper.logo])
        else:
            paper.brand = paper.brand_labelled = False
        if rng.random() < (0.2 if paper.say.language == "de" else 0.06) and not paper.narrow:
            out.append(paper.foot_columns())
        return out

    def head_blocks(self) -> dict[str, Maker]:
        """What may stand above the table of goods, by name."""
        rng, paper = self.rng, self.paper
        blocks: dict[str, Maker] = {"vendor": lambda: paper.party("Vendor"), "meta": paper.meta}
        if paper.has_buyer:
            blocks["buyer"] = lambda: paper.party("Customer")
        if paper.has_title:
            blocks["title"] = paper.title
        if rng.random() < (0.3 if paper.say.region == "us" else 0.12):
            blocks["ship"] = paper.shipping
        if paper.has_buyer and rng.random() < 0.05:
            blocks["sender"] = paper.sender
        if paper.layout in ("sentence", "columns") and not (paper.has_buyer and not paper.narrow):
            paper.layout = "blocks"
        told_otherwise: tuple[str, ...] = ()
        if paper.layout == "columns":
            told_otherwise = ("vendor", "buyer", "sender")
            blocks["parties"] = lambda: parties.columns(paper.say, paper.facts)
        elif paper.layout == "sentence":
            told_otherwise = rng.choice((("buyer", "sender"), *[("vendor", "buyer", "sender")] * 3))
            blocks["parties"] = lambda: paper.flow(paper.told("parties"), rng.randint(7, 16))
        elif paper.layout == "imprint":
            told_otherwise = ("vendor", "sender")
            paper.brand, paper.brand_labelled = rng.random() < 0.7, False
            self.imprint_at = rng.choices(("foot", "tail", "head"), (65, 20, 15))[0]
        for name in told_otherwise:
            blocks.pop(name, None)
        others = (("sentence", paper.sentence, 0.12), ("others", paper.others, 0.1), ("prose", paper.prose, 0.15))
        return blocks | {name: maker for name, maker, share in others if rng.random() < share}

    def other_bands(self) -> list[list[Maker]]:
        """Papers without fields."""
        rng, paper = self.rng, self.paper
        blocks: list[Maker] = [lambda: paper.party("Vendor"), lambda: paper.party("Customer"), paper.title]
        if rng.random() < 0.6:
            blocks.append(paper.meta)
        if paper.kind in ("letter", "contract"):
            blocks = [block for block in blocks if rng.random() < 0.7]
        rng.shuffle(blocks)
        out = self.in_bands(blocks)
        if paper.kind == "letter" and rng.random() < 0.15:
            out.append([])
        if paper.kind in ("payslip", "bank"):
            key = "bankhead" if paper.kind == "bank" else "payhead"
            out.insert(rng.randint(0, len(out)), [lambda: paper.heads(key)])
            if rng.random() < 0.4:
                out.append([lambda: paper.heads(key)])
            out.append([lambda: paper.money_rows("bankrow" if paper.kind == "bank" else "payrow")])
        else:
            out += [[lambda: paper.prose("letter", 6)] for _ in range(rng.randint(1, 5))]
        return out

    def in_bands(self, blocks: list[Maker]) -> list[list[Maker]]:
        """Blocks by one, two or three."""
        out = []
        index = 0
        while index < len(blocks):
            count = 1 if self.paper.narrow else self.rng.choices((1, 2, 3), (45, 43, 12))[0]
            out.append(blocks[index : index + count])
            index += count
        return out

    def band(self, makers: list[Maker]) -> None:
        """Blocks side by side; the next band begins below the longest."""
        rng = self.rng
        inner = self.width - 2 * self.margin
        made = [lines for make in makers if (lines := make())]
        if not made:
            return
        if rng.random() < 0.15 and (self.paper.needs_heading or not self.paper.has_buyer):
            rng.shuffle(made)
        step = inner / len(made)
        start = self.y
        longest = max(len(lines) for lines in made) * self.paper.size * self.leading
        if start + longest > self.height * 0.96:
            if longest < self.height * 0.8:
                self.sheets.append(self.sheet())
                start = self.y = rng.uniform(0.03, 0.1) * self.height
            else:
                made = [lines[:20] for lines in made]
        end = start
        for index, lines in enumerate(made):
            left, wide = self.margin + index * step, step * (0.94 if len(made) > 1 else 1.0)
            if len(made) == 1 and not self.paper.narrow:
                share = rng.choice((1.0, 1.0, 0.5, 0.45, 0.4, 0.6))
                wide = inner * share
                left += (inner - wide) * rng.choice((0, 1, 1, 0.5))
            size = self.paper.size * rng.choice((1, 1, 1, 1, 0.85, 1.15))
            shift = rng.choice((0, 0, 0, 2, 5, 11)) if len(made) > 1 else 0
            end = max(end, self.block(lines, left, start + shift, wide, size))
        self.y = end + self.paper.size * rng.choice((0.3, 1, 1.5, 2.5, 4))

    def block(
        self, lines: list[Line], left: float, top: float, wide: float, size: float, sheet: Sheet | None = None
    ) -> float:
        """One block, on the last page unless told which; its end."""
        sheet, y = sheet or self.sheets[-1], top
        open_labels: set[str] = set()
        for number, line in enumerate(lines):
            opened: set[str] = set()
            grown = size * (1.0 if number or self.rng.random() < 0.75 else self.rng.uniform(1.2, 2.2))
            last_end = -1e9
            deepest = grown
            for x, align, pieces in line:
                pieces = (
                    self.paper.mixed.get(pieces[0][0], [pieces[0]]) + pieces[1:]
                    if pieces and not pieces[0][1]
                    else pieces
                )
                pieces = [piece for piece in pieces if piece[0]]
                if not pieces:
                    continue
                continues = bool(pieces[0][1]) and pieces[0][1] in open_labels
                room = sheet.measure(pieces, grown)
                at = left + x * wide
                begin = at - (room if align == "r" else room / 2 if align == "c" else 0)
                if begin < last_end + size * 0.3:  # it would stand on the cell before: moved
                    at += last_end + size * 0.5 - begin
                at = min(at, self.width - 4) if align != "l" else at
                last_end = sheet.put(at, y, pieces, grown, align, continues)
                opened.add(pieces[-1][1].rstrip("!"))
            open_labels = opened & _RUNNING
            y += deepest * self.leading
        return y

    def table(self) -> None:
        """The lines of goods, over as many pages as they take."""
        rng, paper = self.rng, self.paper
        head, body = paper.table()
        inner = self.width - 2 * self.margin
        size = paper.size * rng.choice((1, 1, 0.9))
        leading = rng.choice((self.leading, 1.3, 1.8))
        self.leading, old = leading, self.leading
        room = self.height * rng.uniform(0.75, 0.93)
        chunk: list[Line] = list(head)
        y = self.y
        for line in body:
            if y + (len(chunk) + 1) * size * leading > room and len(chunk) > len(head):
                self.block(chunk, self.margin, y, inner, size)
                if rng.random() < 0.3:
                    carried = [(paper.say.say("carry"), ""), (paper.say.number(paper.facts.gross / 2), "")]
                    self.sheets[-1].put(self.width - self.margin, room + size, carried, size, "r")
                self.sheets.append(self.sheet())
                y = rng.uniform(0.03, 0.15) * self.height
                if rng.random() < 0.5:
                    number = [(paper.id_label(), ""), (paper.facts.number, "InvoiceId")]
                    again: Line = [*_row((paper.facts.vendor, "VendorName")), (1.0, "r", number)]
                    y = self.block([again], self.margin, y, inner, size) + size
                chunk = list(head) if rng.random() < 0.6 else []
            chunk.append(line)
        self.y = self.block(chunk, self.margin, y, inner, size) + size * rng.choice((0.5, 1, 2, 4))
        self.leading = old


_RUNNING = frozenset({"VendorAddress", "CustomerAddress", "VendorName", "CustomerName", "ItemDescription"})


@dataclass(slots=True)
class MadePage:
    """One page with what it is."""

    words: list[MadeWord]
    width: float
    height: float
    kind: str
    begins: bool  # a document


def make_paper(rng: random.Random) -> list[MadePage]:
    """The pages of one paper."""
    kind = rng.choices(KINDS, _SHARES)[0]
    paper = Paper(rng, kind)
    pages = paper.pages()
    if kind in ("payslip", "bank", "contract", "letter"):
        for page in pages:
            for word in page:
                word.label, word.begins = "", False
    return [MadePage(words, 595.0, 842.0, kind, not number) for number, words in enumerate(pages) if words]


class Design(random.Random):
    """Draws the same at the same place of the code on every paper, whatever its data make others draw before."""

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self._seed = seed
        self._drawn: Counter[tuple[object, ...]] = Counter()

    def getrandbits(self, bits: int, /) -> int:
        """Bits by who asks for them, and how often he has."""
        way: list[object] = []
        frame = inspect.currentframe()
        while frame is not None and frame.f_code is not _paper_of.__code__:
            if frame.f_code.co_filename.startswith(_HERE):
                way += [frame.f_code.co_qualname, frame.f_lasti]
            if frame.f_code is Speaker.__init__.__code__:
                break
            frame = frame.f_back
        self._drawn[tuple(way)] += 1
        drawn = hashlib.blake2b(f"{self._seed} {way} {self._drawn[tuple(way)]}".encode()).digest()
        return int.from_bytes(drawn, "big") >> (8 * len(drawn) - bits)

    def random(self) -> float:
        """As all other draws are made."""
        return self.getrandbits(53) / 2**53


_HERE = str(Path(__file__).parent)
_FIXED = ("vendor", "vendor_address", "vendor_id", "iban")  # of a supplier
_TRIES = 200  # until terms are the supplier's; the rarest are left as they come
_SAME_BUYER = 0.5  # of its papers


class MadePaper(NamedTuple):
    """A paper of a supplier."""

    facts: Facts
    pages: list[MadePage]


def papers_of_supplier(seed: int, count: int, kind: str = "invoice", *, digital: bool = False) -> list[MadePaper]:
    """Papers of one supplier: one design, other goods, sums, dates and numbers on each; some designs are scanned."""
    rng = random.Random(f"supplier {seed}")
    first = facts_of(kind, Speaker(Design(f"{seed}")).drawing_from(rng))
    found = []
    for index in range(count):
        data = random.Random(f"supplier {seed} {index}")
        facts = _facts_like(first, data, seed)
        found.append(MadePaper(facts, _paper_of(seed, facts, data, digital=digital)))
    return found


def _paper_of(seed: int, facts: Facts, data: random.Random, *, digital: bool) -> list[MadePage]:
    kind = facts.kind
    paper = Paper(Design(f"{seed}"), kind, facts, data)
    paper.digital = digital
    pages = paper.pages()
    for word in (word for page in pages for word in page if word.label in ("PurchaseOrder", "RectifiedInvoiceId")):
        word.text = "".join(data.choice("0123456789") if c.isdigit() else c for c in word.text)
    return [MadePage(words, 595.0, 842.0, kind, not number) for number, words in enumerate(pages) if words]


def _facts_like(first: Facts, data: random.Random, seed: int) -> Facts:
    """Other facts of the same supplier, who sells under the same terms."""
    facts = first
    for _ in range(_TRIES):
        facts = facts_of(first.kind, Speaker(Design(f"{seed}")).drawing_from(data))
        terms = [(one.withheld_rate, one.igic, bool(one.surcharges), one.due is None) for one in (facts, first)]
        if terms[0] == terms[1]:
            break
    for name in _FIXED if data.random() > _SAME_BUYER else (*_FIXED, "customer", "customer_address", "customer_id"):
        setattr(facts, name, getattr(first, name))
    facts.number = document_id(random.Random(f"number {seed}"), facts.day.year, data)
    return facts
