"""How well fields in the caller's own words are found, on PDFs made for this: eleven layouts, Spanish and English.

    python -m benchmarks.own_words [--papers 150] [--seed 1]

Prints a table: F1, precision and calibration error by how the caller names what the paper names. Values count as equal
but for case and marks. Three labels of a request are of fields that the paper does not have.

    python -m benchmarks.own_words --examples 5

The same by examples, in kinds and layouts that the weights of `own_taught` were not fitted on: a paper set as its
examples were, and one in a layout that none of them has, with names of its own.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from benchmarks.client import ask
from benchmarks.peers import ours, running
from tools.papers.values import Speaker

LAYOUTS = ("lines", "colons", "tab", "two", "two-tab", "below", "grid", "grid-4", "right", "dots", "prose")
HELD_OUT_LAYOUTS = ("equals", "dash", "brackets", "under", "letter")
HELD_OUT_KINDS = 3  # every so many
BY_EXAMPLES = ("set as the examples", "in another layout")
NAMED = ("as printed", "in other words", "in the other language")
ABSENT = 3
_BINS = 10
_X, _STEP, _SIZE = 60, 14, 9  # points
_THERE = 0.9  # of the fields of a series are on each of its papers
_PROSE = {
    "es": "Le comunicamos que {0} es {1}, según lo acordado.",
    "en": "Please note that the {0} is {1}, as agreed.",
}


_LETTER = {
    "es": "En cuanto a {0}, consta {1} a todos los efectos.",
    "en": "As regards {0}, our records show {1} for your file.",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of field."""

    names: dict[str, list[str]]  # by language
    described: dict[str, str]
    values: str


@dataclass(frozen=True, slots=True)
class Paper:
    """A made paper: what it prints and what it says."""

    language: str
    layout: str
    printed: dict[int, tuple[str, str]]  # number of the kind -> its name here, and its value
    pdf: bytes


def read_kinds() -> list[Kind]:
    """The kinds of ``own_words_fields.txt``."""
    kinds = []
    for line in Path(__file__).with_name("own_words_fields.txt").read_text("utf-8").splitlines():
        if not line.startswith("#"):
            english, spanish, said, dicho, values = line.split("|", 4)
            names = {"en": english.split(";"), "es": spanish.split(";")}
            kinds.append(Kind(names, {"en": said, "es": dicho}, values))
    return kinds


def make_paper(rng: random.Random, kinds: Sequence[Kind]) -> Paper:
    """A paper of 4 to 16 fields in one of ``LAYOUTS``."""
    say, layout = _speaker(rng), rng.choice(LAYOUTS)
    return _paper(say, kinds, rng.sample(range(len(kinds)), rng.randint(4, 16)), layout)


def make_series(rng: random.Random, kinds: Sequence[Kind], examples: int, layout: str, *, alike: bool) -> list[Paper]:
    """Papers in one language with mostly the same fields, the last in a layout.

    Args:
        alike: whether the others have the layout, the names and the order of the last; else each its own.
    """
    language = _speaker(rng).language
    numbers = rng.sample(range(0, len(kinds), HELD_OUT_KINDS), rng.randint(10, 14))
    names = {number: rng.choice(kinds[number].names[language]) for number in numbers}
    papers = []
    for index in range(examples + 1):
        there = [number for number in numbers if rng.random() < _THERE]
        if alike:
            papers.append(_paper(_speaker(rng, language), kinds, there, layout, names))
        else:
            own = layout if index == examples else rng.choice(LAYOUTS)
            papers.append(_paper(_speaker(rng, language), kinds, rng.sample(there, len(there)), own))
    return papers


def _speaker(rng: random.Random, language: str = "") -> Speaker:
    wanted = {language} if language else _PROSE.keys()
    while (say := Speaker(rng)).language not in wanted:
        pass
    return say


def _paper(
    say: Speaker, kinds: Sequence[Kind], numbers: Sequence[int], layout: str, names: Mapping[int, str] | None = None
) -> Paper:
    """A paper of some kinds of fields. Args: names, of the kinds; None: any of theirs."""
    printed = {}
    for number in numbers:
        name = names[number] if names else say.rng.choice(kinds[number].names[say.language])
        printed[number] = (name[0].upper() + name[1:], value(kinds[number].values, say))
    return Paper(say.language, layout, printed, _pdf(list(_set(list(printed.values()), layout, say.language))))


def value(like: str, say: Speaker) -> str:
    """A value of a kind, as people of the language write it."""
    rng, (kind, _, rest) = say.rng, like.partition(":")
    if kind == "id":
        pattern = rng.choice(rest.split(","))
        return re.sub("[#L]", lambda mark: rng.choice("0123456789" if mark[0] == "#" else "ABCDEFGHJKLMNPRS"), pattern)
    makers: dict[str, Callable[[], str]] = {
        "words": lambda: rng.choice(rest.split(",")),
        "date": lambda: say.date(date(1990, 1, 1) + timedelta(days=rng.randrange(13_000))),
        "num": lambda: say.number(Decimal(rng.choice((rng.randint(1, 99), rng.randint(100, 250_000)))), 0) + rest,
        "money": lambda: say.money(Decimal(rng.randint(500, 5_000_000)) / 100),
        "pct": lambda: say.number(Decimal(rng.randint(1, 2999)) / 100) + " %",
        "time": lambda: f"{rng.randint(0, 23)}:{rng.randint(0, 59):02}",
        "email": lambda: f"{say.family().split()[0].lower()}@correo.es",
        "web": lambda: say.web(say.family()),
        "phone": say.phone,
        "person": say.person,
        "company": say.company,
        "city": say.city,
        "address": lambda: say.address()[0],
    }
    return makers[kind]()


def _set(pairs: list[tuple[str, str]], layout: str, language: str) -> Iterator[tuple[float, int, str]]:
    """The pieces of a page: left end, line, text."""
    lines = {"equals": "{0} = {1}", "dash": "{0} \N{EN DASH} {1}", "brackets": "{1} ({0})", "letter": _LETTER[language]}
    if layout in lines:
        yield from ((_X, row, lines[layout].format(name, said)) for row, (name, said) in enumerate(pairs))
        return
    columns = {"under": 2, "two": 2, "two-tab": 2, "grid": 3, "grid-4": 4}.get(layout, 1)
    for index, (name, said) in enumerate(pairs):
        row, column = divmod(index, columns)
        left = _X + column * 520 // columns
        if layout == "under":
            yield left, 3 * row, said
            yield left, 3 * row + 1, name
        elif layout in ("grid", "grid-4", "below"):
            yield left, 3 * row, name
            yield left, 3 * row + 1, said
        elif layout in ("colons", "two", "lines"):
            yield left, row, f"{name}{'' if layout == 'lines' else ':'} {said}"
        elif layout == "prose":
            yield left, row, _PROSE[language].format(name.lower(), said)
        else:
            yield left, row, name + (" ........" if layout == "dots" else "")
            yield left + {"two-tab": 120, "right": 340}.get(layout, 200), row, said


def _pdf(pieces: Sequence[tuple[float, int, str]]) -> bytes:
    height = _STEP * (max(line for _, line, _ in pieces) + 8)
    drawn = []
    for left, line, text in pieces:
        shown = re.sub(rb"([\\()])", rb"\\\1", text.encode("cp1252", "replace"))
        drawn.append(b"BT /F1 %d Tf %d %d Td (%b) Tj ET" % (_SIZE, left, height - _STEP * (line + 4), shown))
    content = b"\n".join(drawn)
    objects = (
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 640 %d]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>" % height,
        b"<</Length %d>>stream\n%b\nendstream" % (len(content), content),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>",
    )
    body, places = b"%PDF-1.4\n", []
    for number, one in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj\n%b\nendobj\n" % (number, one)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    return (
        body + head + table + b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, len(body))
    )


def asked_for(paper: Paper, kinds: Sequence[Kind], named: str, rng: random.Random) -> dict[str, tuple[str, str | None]]:
    """The names of a request, each with its description, and the value that the paper has for it."""
    absent = rng.sample([number for number in range(len(kinds)) if number not in paper.printed], ABSENT)
    other = {"es": "en", "en": "es"}[paper.language]
    language = other if named == NAMED[2] else paper.language
    asked: dict[str, tuple[str, str | None]] = {}
    for number in [*paper.printed, *absent]:
        name, said = paper.printed.get(number, ("", None))
        names = kinds[number].names[language]
        if named == NAMED[0] and said is not None:
            names = [name.lower()]
        elif named == NAMED[1]:
            names = [one for one in names if one.lower() != name.lower()] or names
        asked.setdefault(rng.choice(names), (kinds[number].described[language], said))
    return asked


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.own_words", description=__doc__)
    parser.add_argument("--papers", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--examples", type=int, default=0)
    options = parser.parse_args(arguments)
    kinds = read_kinds()
    with tempfile.TemporaryDirectory() as folder, running(ours(Path(folder) / "state"), Path(folder)) as server:
        rows = [
            "| names asked for | fields | F1 | F1 but prose | precision | recall | ECE |",
            "|---|---|---|---|---|---|---|",
        ]
        for set_as in BY_EXAMPLES if options.examples else ():
            scored = _by_examples(server.port, kinds, options, alike=set_as == BY_EXAMPLES[0])
            layouts = [(set_as, scored)] + [
                (f"{set_as}: {layout}", [one for one in scored if one[0] == layout]) for layout in HELD_OUT_LAYOUTS
            ]
            rows += [row(name, own) for name, own in layouts]
        for named in () if options.examples else NAMED:
            rng = random.Random(options.seed)
            papers = [make_paper(rng, kinds) for _ in range(options.papers)]
            rows.append(
                row(named, [_score(server.port, paper, asked_for(paper, kinds, named, rng)) for paper in papers])
            )
    sys.stdout.write("\n".join(rows) + "\n")
    return 0


Scored = tuple[
    str, Counter[str], list[tuple[float, bool]]
]  # layout, counts, each answer's score and whether it is right


def _by_examples(port: int, kinds: Sequence[Kind], options: argparse.Namespace, *, alike: bool) -> list[Scored]:
    rng, scored = random.Random(options.seed), []
    for index in range(options.papers):
        layout = HELD_OUT_LAYOUTS[index % len(HELD_OUT_LAYOUTS)]
        *papers, last = make_series(rng, kinds, options.examples, layout, alike=alike)
        asked = asked_for(last, kinds, NAMED[1], rng)
        own = _numbers(asked, last, kinds)
        examples = [
            {
                "pages": _read(port, paper.pdf, features="words")["pages"],
                "values": {name: paper.printed[number][1] for name, number in own.items() if number in paper.printed},
            }
            for paper in papers
        ]
        scored.append(_score(port, last, asked, examples))
    return scored


def _score(
    port: int, paper: Paper, asked: dict[str, tuple[str, str | None]], examples: Sequence[Any] | None = None
) -> Scored:
    schema = {name: said for name, (said, _) in asked.items()}
    if examples is not None:
        ask(port, "/v1/extractors/own-words", {"schema": schema, "examples": examples}, method="PUT")
        found = _read(port, paper.pdf, features="fields", extractor="own-words")["custom"]
    else:
        found = _read(port, paper.pdf, features="fields", schema=json.dumps(schema))["custom"]
    counts: Counter[str] = Counter(found=len(found), there=sum(said is not None for _, said in asked.values()))
    answers = []
    for name, answer in found.items():
        said = asked[name][1]
        right = said is not None and _plain(answer["text"]) == _plain(said)
        answers.append((answer["score"], right))
        counts["right"] += right
    return paper.layout, counts, answers


def _numbers(asked: Mapping[str, tuple[str, str | None]], paper: Paper, kinds: Sequence[Kind]) -> dict[str, int]:
    """The kinds of the names that are asked for and are on the paper."""
    described = {kinds[number].described[paper.language]: number for number in paper.printed}
    return {name: described[said] for name, (said, there) in asked.items() if there is not None}


def _read(port: int, pdf: bytes, **fields: str) -> dict[str, Any]:
    answer: dict[str, Any] = ask(port, f"/v1/documents?{urllib.parse.urlencode(fields)}", pdf)
    return answer


def _plain(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def row(named: str, scored: Sequence[Scored]) -> str:
    """A row of the table."""
    total = sum((counts for _, counts, _ in scored), Counter[str]())
    apart = sum((counts for layout, counts, _ in scored if layout != "prose"), Counter[str]())
    bins: dict[int, list[tuple[float, bool]]] = {}
    for score, right in (answer for _, _, answers in scored for answer in answers):
        bins.setdefault(int(score * _BINS), []).append((score, right))
    error = sum(abs(sum(score for score, _ in own) - sum(right for _, right in own)) for own in bins.values())
    precision, recall = total["right"] / max(1, total["found"]), total["right"] / max(1, total["there"])
    numbers = (_f1(total), _f1(apart), precision, recall, error / max(1, total["found"]))
    return f"| {named} | {total['there']} | " + " | ".join(f"{number:.2f}" for number in numbers) + " |"


def _f1(counts: Counter[str]) -> float:
    return 2 * counts["right"] / max(1, counts["found"] + counts["there"])


if __name__ == "__main__":
    sys.exit(main())
