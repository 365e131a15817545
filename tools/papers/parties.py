"""Who bills whom, in forms other than a block for each: in small print, in sentences, in a table; and others beside them."""

from __future__ import annotations

import re
from collections.abc import Callable

from tools.papers.facts import Facts
from tools.papers.sheet import Line, Piece
from tools.papers.values import Speaker, document_id, listed

LAYOUTS = ("blocks", "imprint", "sentence", "columns")
SHARES = (60, 28, 6, 6)
_OPENS, _CLOSES = re.compile(r"(?<!\S)[(«\"]+$"), re.compile(r"^[,.;:)»\"]+")


def told(key: str, say: Speaker, facts: Facts, brand: str) -> list[Piece]:
    """A sentence of a list of ``parties.txt`` with its values; marks beside a value are of its word, as in print."""
    values: dict[str, Callable[[], Piece]] = {
        "v": lambda: (facts.vendor, "VendorName"),
        "t": lambda: (facts.vendor_id, "VendorTaxId"),
        "a": lambda: (", ".join(facts.vendor_address), "VendorAddress"),
        "c": lambda: (facts.customer, "CustomerName"),
        "u": lambda: (facts.customer_id, "CustomerTaxId"),
        "d": lambda: (", ".join(facts.customer_address), "CustomerAddress"),
        "i": lambda: (facts.number, "InvoiceId"),
        "y": lambda: (say.date(facts.day), "InvoiceDate"),
        "r": lambda: (registered(say), ""),
        "p": lambda: (say.phone(), ""),
        "s": lambda: (say.web(facts.vendor), ""),
        "b": lambda: (brand, ""),
        "z": lambda: (", ".join(say.address()), ""),
        "o": lambda: (say.company() if say.rng.random() < 0.8 else say.person(), ""),
        "x": lambda: (say.tax_id(person=False), ""),
    }
    pieces: list[Piece] = []
    before = ""  # what opens before a value
    for number, part in enumerate(re.split(r"\{(\w)\}", say.say(key))):
        if number % 2:
            text, label = values[part]()
            pieces.append((before + text, label))
            before = ""
            continue
        closing = _CLOSES.match(part)
        if closing and pieces:
            pieces[-1] = (pieces[-1][0] + closing[0], pieces[-1][1])
            part = part[closing.end() :]
        opening = _OPENS.search(part)
        if opening:
            before, part = opening[0], part[: opening.start()]
        if part.strip():
            pieces.append((part.strip(), ""))
    return pieces


def registered(say: Speaker) -> str:
    """Where a company is registered."""
    text = say.say("registry").replace("{c}", say.say("city").split(",")[0])
    while "{n}" in text:
        text = text.replace("{n}", str(say.rng.randint(100, 99999)), 1)
    return text


def spaced(text: str) -> str:
    """Letters set apart, as in logos."""
    return " ".join(text.replace(" ", ""))


def columns(say: Speaker, facts: Facts) -> list[Line]:
    """Both parties in a table of two columns below one head row, perhaps with the names of the rows before them."""
    rng = say.rng
    heads = [say.say("vendor"), say.say("customer")]
    names, ids = [facts.vendor, facts.customer], [facts.vendor_id, facts.customer_id]
    addresses = [facts.vendor_address, facts.customer_address]
    roles = ["Vendor", "Customer"]
    order = [0, 1] if rng.random() < 0.7 else [1, 0]
    shown = rng.random() < 0.6  # names of the rows
    left = rng.uniform(0.14, 0.25) if shown else 0.0
    step = (1 - left) / 2

    def row(label: str, texts: list[str], part: str) -> Line:
        cells: Line = [(0.0, "l", [(label, "")])] if shown and label else []
        return cells + [
            (left + step * place, "l", [(texts[i], roles[i] + part if part else "")])
            for place, i in enumerate(order)
            if texts[i]
        ]

    form = listed("form", say.language)
    most = max(map(len, addresses))
    padded = [[*lines, *[""] * (most - len(lines))] for lines in addresses]
    in_rows = [row("" if n else form[1], [padded[0][n], padded[1][n]], "Address") for n in range(most)]
    body = [[row(form[0], names, "Name")], in_rows, [row(say.say("taxid"), ids, "TaxId")]]
    if rng.random() < 0.3:
        body = [body[0], body[2], body[1]]
    if rng.random() < 0.25:
        body.append([row(say.say("otherid"), [document_id(rng, 2026), document_id(rng, 2026)], "")])
    return [row("", heads, ""), *(line for lines in body for line in lines)]
