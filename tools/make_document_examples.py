"""Make the example documents that ship with the service: backend/models/bundled/examples/document-type.jsonl.

    python -m tools.make_document_examples [--check]

Documents are filled from tools/document_templates/{en,es}.txt, and those of tools/own_documents.jsonl, written by
hand, are added as they are. Names, numbers and layouts are drawn from a fixed seed: equal templates, equal file.

A template file has a section ``## label`` for each class, and in it templates parted by ``--``:

    {amt}      a made-up value, see ``_VALUES``
    [a|b]      one of these
    ? line     left out now and then
    ~ line     lines like this one that stand together are shuffled
    *line      two to five lines like this one
    " | "      a column's edge, or a line's end
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEMPLATES = ROOT / "tools" / "document_templates"
OWN = ROOT / "tools" / "own_documents.jsonl"
OUTPUT = ROOT / "backend" / "models" / "bundled" / "examples" / "document-type.jsonl"
SEED = 15
PER_CLASS = 14  # documents of each class and language
CHARACTERS_MAX = 1200  # the beginning names a document's kind
_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_NAME = re.compile(r"\{(\w+)\}")
_EDGE = re.compile(r" ?\| ?")
_OR = re.compile(r"(?<! )\||\|(?! )")  # " | " is a column's edge

_LISTS: Mapping[str, Mapping[str, Sequence[str]]] = json.loads((TEMPLATES / "values.json").read_text(encoding="utf-8"))
_HEADERS = ("Página 1 de 2", "1/1", "Page 1 of 2", "COPIA", "Scan 0001", "-- 1 --")


@dataclass(frozen=True, slots=True)
class Writer:
    """Fills templates of one language with values drawn from ``random``."""

    language: str
    random: random.Random

    def document(self, template: str) -> str:
        """A document: choices made, values filled in, laid out as a text layer or OCR gives it."""
        lines = list(self._lines(template.strip("\n").split("\n")))
        return self._laid_out(lines)[:CHARACTERS_MAX]

    def _lines(self, template: Sequence[str]) -> Iterator[str]:
        for is_shuffled, group in itertools.groupby(template, key=lambda line: line.startswith("~ ")):
            lines = [line.removeprefix("~ ") for line in group]
            if is_shuffled:
                self.random.shuffle(lines)
            for line in lines:
                yield from self._filled(line)

    def _filled(self, line: str) -> Iterator[str]:
        if line.startswith("? "):
            if self.random.random() < 0.5:
                yield self._text(line.removeprefix("? "))
        elif line.startswith("*"):
            for _ in range(self.random.randint(2, 5)):
                yield self._text(line.removeprefix("*"))
        else:
            yield self._text(line)

    def _text(self, line: str) -> str:
        while _CHOICE.search(line):  # the innermost first
            line = _CHOICE.sub(lambda match: self.random.choice(_OR.split(match[1])), line)
        return _NAME.sub(lambda match: _VALUES[match[1]](self), line)

    def _laid_out(self, lines: list[str]) -> str:
        """Columns, line ends, page headers, capitals, lost accents and lost titles as files have them."""
        chance = self.random.random
        if chance() < 0.12 and len(lines) > 5:
            lines = lines[1:]  # the title was a picture
        if chance() < 0.12:
            lines = [self.random.choice(_HEADERS), *lines]
        column = self.random.choice(["  ", "   ", "\t", "\n", " "])
        text = self.random.choice(["\n", "\n", "\n\n", " "]).join(_EDGE.sub(lambda _: column, line) for line in lines)
        if chance() < 0.1:
            text = text.upper()
        if chance() < 0.1:
            text = _without_accents(text)
        if chance() < 0.12:
            text = self._misread(text)
        return text

    def _misread(self, text: str) -> str:
        """Some characters as OCR confuses them."""
        pairs = {"0": "O", "l": "1", "O": "0", "í": "i", "ñ": "n", "5": "S", "m": "rn", ",": "."}
        return "".join(pairs[sign] if sign in pairs and self.random.random() < 0.06 else sign for sign in text)

    def pick(self, kind: str) -> str:
        """A name of values.json."""
        return self.random.choice(_LISTS[self.language][kind])

    def digits(self, count: int) -> str:
        return "".join(self.random.choice("0123456789") for _ in range(count))

    def number(self, low: int, high: int) -> str:
        return str(self.random.randint(low, high))

    def person(self) -> str:
        names = [self.pick("first"), self.pick("surname"), *([self.pick("surname")] if self.language == "es" else [])]
        return " ".join(names)

    def company(self) -> str:
        return self.pick("company").replace("{s}", self.pick("surname"))

    def amount(self, low: int, high: int) -> str:
        text = f"{self.random.randint(low * 100, high * 100) / 100:,.2f}"
        return text.translate(str.maketrans(",.", ".,")) if self.language == "es" else text

    def date(self) -> str:
        day, month, year = self.random.randint(1, 28), self.random.randint(1, 12), self.random.randint(2015, 2026)
        forms = [f"{day:02}/{month:02}/{year}", f"{day:02}-{month:02}-{year}", f"{day:02}.{month:02}.{year % 100:02}"]
        return self.random.choice(forms)

    def long_date(self) -> str:
        day, month, year = self.number(1, 28), self.pick("month"), self.number(2015, 2026)
        return f"{day} de {month} de {year}" if self.language == "es" else f"{day} {month} {year}"

    def address(self) -> str:
        street, number, city = self.pick("street"), self.number(1, 120), self.pick("city")
        if self.language == "es":
            return f"{street} {number}, {self.digits(5)} {city}"
        return f"{number} {street}, {city} {self.digits(5)}"

    def iban(self) -> str:
        country = "ES" if self.language == "es" else "GB"
        return " ".join([f"{country}{self.digits(2)}", *(self.digits(4) for _ in range(5))])


_VALUES: Mapping[str, Callable[[Writer], str]] = {
    "address": Writer.address,
    "amt": lambda writer: writer.amount(60, 9000),
    "bank": lambda writer: writer.pick("bank"),
    "cif": lambda writer: writer.random.choice("ABFG") + writer.digits(8),
    "city": lambda writer: writer.pick("city"),
    "CITY": lambda writer: writer.pick("city").upper(),
    "code": lambda writer: writer.random.choice(
        [f"{writer.number(2018, 2026)}/{writer.digits(4)}", f"F-{writer.digits(5)}", f"A{writer.digits(6)}"]
    ),
    "company": Writer.company,
    "company2": Writer.company,
    "COMPANY": lambda writer: writer.company().upper(),
    "cur": lambda writer: writer.random.choice("$£€"),
    "date": Writer.date,
    "email": lambda writer: f"{_without_accents(writer.pick('surname')).lower()}@example.com",
    "first": lambda writer: writer.pick("first"),
    "FIRST": lambda writer: writer.pick("first").upper(),
    "iban": Writer.iban,
    "item": lambda writer: writer.pick("item"),
    "ITEM": lambda writer: writer.pick("item").upper(),
    "job": lambda writer: writer.pick("job"),
    "ldate": Writer.long_date,
    "month": lambda writer: writer.pick("month"),
    "n": lambda writer: writer.number(2, 400),
    "n1": lambda writer: writer.number(1, 9),
    "n2": lambda writer: writer.number(10, 99),
    "n3": lambda writer: writer.digits(3),
    "n4": lambda writer: writer.number(1000, 9999),
    "nif": lambda writer: writer.digits(8) + writer.random.choice("TRWAGMYFPDXBNJZSQVHLCKE"),
    "person": Writer.person,
    "PERSON": lambda writer: writer.person().upper(),
    "phone": lambda writer: f"9{writer.digits(2)} {writer.digits(3)} {writer.digits(3)}",
    "plate": lambda writer: f"{writer.digits(4)} {''.join(writer.random.choice('BCDFGHJKLMNP') for _ in range(3))}",
    "service": lambda writer: writer.pick("service"),
    "small": lambda writer: writer.amount(1, 90),
    "surname": lambda writer: writer.pick("surname"),
    "SURNAME": lambda writer: writer.pick("surname").upper(),
    "time": lambda writer: f"{writer.random.randint(7, 21):02}:{writer.random.randint(0, 59):02}",
    "year": lambda writer: writer.number(2018, 2026),
}


def _without_accents(text: str) -> str:
    return "".join(sign for sign in unicodedata.normalize("NFKD", text) if not unicodedata.combining(sign))


def templates(file: Path) -> dict[str, list[str]]:
    """The templates of each class, in the file's order."""
    sections = file.read_text(encoding="utf-8").split("## ")[1:]
    found = {}
    for section in sections:
        title, _, body = section.partition("\n")
        found[title.split()[0]] = body.strip("\n").split("\n--\n")
    return found


def documents() -> Iterator[dict[str, str]]:
    """Every example: those written by hand, then class after class, ``PER_CLASS`` of each in each language."""
    for line in OWN.read_text(encoding="utf-8").splitlines():
        yield json.loads(line)
    for language in ("es", "en"):
        for label, bodies in templates(TEMPLATES / f"{language}.txt").items():
            writer = Writer(language, random.Random(f"{SEED} {language} {label}"))
            for template in itertools.islice(itertools.cycle(bodies), PER_CLASS):
                yield {"label": label, "lang": language, "text": writer.document(template)}


def main() -> None:
    """Write the file, or with ``--check`` tell whether it is what the templates give."""
    parser = argparse.ArgumentParser(prog="python -m tools.make_document_examples", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the file differs")
    options = parser.parse_args()
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in documents())
    if options.check:
        if not OUTPUT.is_file() or OUTPUT.read_text(encoding="utf-8") != text:
            raise SystemExit(f"{OUTPUT.relative_to(ROOT)} is old: run python -m tools.make_document_examples")
        return
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
