"""Teach the network that tells which printed name is a field in a caller's own words (`documents.own_matches`).

    python -m tools.train_own_matches --output build/own-names.npz

Pages are made from the kinds of fields in ``own_kinds.txt``, in Spanish and English and twelve layouts, and asked for
in other words, in the other language, or as printed beside labels that they do not have; of half of them a few names
alone as well. Each fourth page has the third of the kinds that no other has: these calibrate the score and are
measured, then the weights are fitted on all. The bundled weights' card: ``backend/models/bundled/own-names``.
"""

import argparse
import asyncio
import random
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from backend.bootstrap.services import build
from backend.config import load_settings
from backend.documents import own_fields, own_matches
from backend.documents.printed_names import Segment
from backend.files.pages import Box, Page, RawWord, make_page
from backend.text.embeddings import EmbeddingService
from backend.text.own_labels import STRING, OwnLabel, read_labels
from tools.papers.values import Speaker

HIDDEN, PASSES, RATE, DECAY, BATCH = 24, 22, 1.5e-3, 0.1, 256
PAGES = ((1, 500), (2, 1000))  # seed and number
HELD_OUT = 3  # every so many kinds are on every fourth page alone
FEW_TIMES = 8  # how often a page of few names counts
LIKELY = 0.3  # as where names are chosen
LAYOUTS = (
    "lines", "colons", "tab", "two", "two-tab", "below", "stack", "grid", "grid-4", "right", "dots", "table",
)  # fmt: skip
_KINDS = Path(__file__).with_name("own_kinds.txt")
_TYPES = {
    "date": "date", "num": "number", "money": "money", "pct": "percent", "email": "email", "web": "url",
    "phone": "phone",
}  # fmt: skip
_YES = {"es": ("Sí", "No", "☒ Sí ☐ No", "☐ Sí ☒ No", "sí", "no"), "en": ("Yes", "No", "☒ Yes ☐ No", "yes", "no")}
_HEADINGS = {
    "es": (
        "FICHA DE SERVICIO", "Datos generales", "Documento interno", "Conforme el cliente:", "Servicio técnico",
        "Observaciones de la visita", "Página 1 de 1", "Talleres Moncayo S.L.", "Calle Mayor, 12", "Acuerdos",
        "Copia para el interesado", "Resumen", "Parte de trabajo",
        "Le rogamos que conserve este documento durante dos años.", "Firma", "Sello", "Original", "Datos del vehículo",
        "Importes",
    ),
    "en": (
        "SERVICE SHEET", "General data", "Internal use only", "Customer signature:", "Technical service", "Remarks",
        "Page 1 of 1", "Northfield Services Ltd", "12 High Street", "Summary", "Copy for the holder", "Work report",
        "Please keep this document for two years after the visit.", "Signature", "Stamp", "Original", "Vehicle details",
        "Amounts",
    ),
}  # fmt: skip
_MARGIN, _WIDTH, _STEP, _LETTER = 60, 520, 14, 4.6  # points
_BELOW = ("grid", "grid-4", "below", "stack")
Piece = tuple[float, float, str]  # left end, line, text
Schema = dict[str, dict[str, str]]
Numbers = dict[str, int]  # kinds by the names that are asked for


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of field."""

    names: dict[str, list[str]]  # by language
    described: dict[str, str]
    values: str


@dataclass(frozen=True, slots=True)
class Paper:
    """A made page and what it prints."""

    page: Page
    language: str
    printed: dict[int, tuple[str, list[str]]]  # by kind: its name here, and its value or those of a list


@dataclass(frozen=True, slots=True)
class Asked:
    """A page with what is asked of it, as the network reads it."""

    features: NDArray[np.float32]  # (pairs, features)
    right: NDArray[np.bool_]
    pairs: list[tuple[int, frozenset[Segment]]]  # the label, and the segments of the name and of its value
    is_held_out: bool
    has_few: bool


def read_kinds() -> list[Kind]:
    """The kinds of ``own_kinds.txt``."""
    kinds = []
    for line in _KINDS.read_text("utf-8").splitlines():
        if not line.startswith("#"):
            english, spanish, said, dicho, values = line.split("|", 4)
            kinds.append(Kind({"en": english.split(";"), "es": spanish.split(";")}, {"en": said, "es": dicho}, values))
    return kinds


def make_paper(rng: random.Random, kinds: Sequence[Kind], pool: Sequence[int]) -> Paper:
    """A page of 4 to 14 of the kinds in the pool."""
    say = Speaker(rng)
    while say.language not in _HEADINGS:
        say = Speaker(rng)
    layout, headings = rng.choice(LAYOUTS), _HEADINGS[say.language]
    numbers = rng.sample(pool, min(len(pool), rng.randint(4, 14)))
    pieces: list[Piece] = []
    row = 1.0
    if rng.random() < 0.8:
        pieces.append((_MARGIN, 0, rng.choice(headings)))
        row += rng.choice((1, 2))
    in_capitals, with_colon = rng.random() < 0.12, rng.random() < 0.2
    printed = {}
    for number in numbers:
        name = rng.choice(kinds[number].names[say.language])
        name, values = name[0].upper() + name[1:], _values(kinds[number], say)
        unit = kinds[number].values.removeprefix("num:").strip() if kinds[number].values.startswith("num:") else ""
        if unit and rng.random() < 0.35:
            name, values = f"{name} ({unit})", [values[0].removesuffix(" " + unit)]
        printed[number] = (name.upper() if in_capitals else name, values)
    has_colon = layout in ("colons", "two") or (with_colon and layout != "lines")
    names = [(name + ":" * has_colon, values) for name, values in printed.values()]
    pieces += _set(rng, names, layout, headings, row)
    return Paper(_page(pieces), say.language, printed)


def _set(
    rng: random.Random, names: Sequence[tuple[str, list[str]]], layout: str, headings: Sequence[str], row: float
) -> Iterator[Piece]:
    """The fields of a page from a line on, with headings between and behind them."""
    columns = {"two": 2, "two-tab": 2, "grid": 3, "grid-4": 4}.get(layout, 1)
    column, deepest, pitch = 0, 1.0, rng.choice((1.0, 1.0, 1.5, 2.0))
    for name, values in names:
        left = _MARGIN + column * _WIDTH // columns
        is_stacked = layout in ("tab", "below", "stack", "right")
        lines = values if len(values) > 1 and is_stacked and rng.random() < 0.5 else [", ".join(values)]
        pieces, used = _field(rng, name, lines, layout, headings)
        yield from ((left + further, row + lower, text) for further, lower, text in pieces)
        deepest, column = max(deepest, used, pitch if layout not in _BELOW else 0), column + 1
        if column == columns:
            row, deepest, column = row + deepest, 1.0, 0
        if not column and rng.random() < 0.12:
            yield _MARGIN, row + 0.5, rng.choice(headings)
            row += 1.5 + rng.choice((0, 1))
    if rng.random() < 0.6:
        yield _MARGIN, row + 2, rng.choice(headings)


def _field(
    rng: random.Random, name: str, lines: Sequence[str], layout: str, headings: Sequence[str]
) -> tuple[list[Piece], float]:
    """A name and its value, from its own left end and line on, and how many lines they take."""
    if layout in _BELOW:
        below = [(0, 1 + index, line) for index, line in enumerate(lines)]
        return [(0, 0, name), *below], 1.0 + len(lines) + (layout != "stack")
    if layout in ("lines", "colons", "two"):
        return [(0, 0, f"{name} {lines[0]}")], 1
    if layout == "table":
        return [(0, 0, name), (200, 0, lines[0]), (380, 0, rng.choice(headings).lower())], 1
    at = {"two-tab": 120, "right": 340}.get(layout, rng.choice((150, 200)))
    beside = [(at, index, line) for index, line in enumerate(lines)]
    return [(0, 0, name + " ........" * (layout == "dots")), *beside], len(lines)


def _page(pieces: Sequence[Piece]) -> Page:
    lines: dict[float, list[RawWord]] = {}
    for left, row, text in pieces:
        top = 40 + _STEP * row
        at = left
        for word in text.split():
            lines.setdefault(top, []).append(RawWord(word, Box(at, top, at + _LETTER * len(word), top + 9)))
            at += _LETTER * (len(word) + 0.6)
    blocks = [[sorted(lines[top], key=lambda word: word.box.left) for top in sorted(lines)]]
    return make_page(blocks, number=1, width=640, height=900, source="text_layer", why="", engine="made")


def _values(kind: Kind, say: Speaker) -> list[str]:
    """A value as people of the language write it, or those of a list."""
    rng, (what, _, rest) = say.rng, kind.values.partition(":")
    if _is_boolean(kind):
        return [rng.choice(_YES[say.language])]
    if what == "list":
        count = rng.randint(1, 4)
        return [say.person() for _ in range(count)] if rest == "person" else rng.sample(rest.split(","), min(count, 4))
    if what == "id":
        drawn = {"#": "0123456789", "L": "ABCDEFGHJKLMNPRS"}
        return [re.sub("[#L]", lambda mark: rng.choice(drawn[mark[0]]), rng.choice(rest.split(",")))]
    makers: dict[str, Callable[[], str]] = {
        "words": lambda: rng.choice(rest.split(",")),
        "date": lambda: say.date(date(1990, 1, 1) + timedelta(days=rng.randrange(13_000))),
        "num": lambda: say.number(Decimal(rng.choice((rng.randint(1, 99), rng.randint(100, 250_000)))), 0) + rest,
        "money": lambda: say.money(Decimal(rng.randint(500, 5_000_000)) / 100),
        "pct": lambda: say.number(Decimal(rng.randint(1, 2999)) / 100) + " %",
        "time": lambda: f"{rng.randint(0, 23)}:{rng.randint(0, 59):02}",
        "email": lambda: f"{say.family().partition(' ')[0].lower()}@correo.es",
        "web": lambda: say.web(say.family()),
        "address": lambda: say.address()[0],
        "phone": say.phone,
        "person": say.person,
        "company": say.company,
        "city": say.city,
    }
    return [makers[what]()]


def _is_boolean(kind: Kind) -> bool:
    return kind.values.startswith("words:sí,no")


def _type(kind: Kind, rng: random.Random) -> str:
    what = kind.values.partition(":")[0]
    if _is_boolean(kind) or what == "list":
        return "boolean" if what == "words" else "list"
    type_ = _TYPES.get(what, STRING)
    if type_ == "number":
        rng.random()  # unused: the program before this one drew it, and the same seed makes the same papers
    return type_ if rng.random() < 0.93 else STRING


def ask(rng: random.Random, kinds: Sequence[Kind], pool: Sequence[int], paper: Paper) -> tuple[Schema, Numbers]:
    """Some of a page's fields, and 1 to 4 that it has not."""
    printed = paper.printed
    mode = rng.choices(("as printed", "other words", "other language"), (1, 4, 3))[0]
    language = {"es": "en", "en": "es"}[paper.language] if mode == "other language" else paper.language
    here = list(printed)
    rng.shuffle(here)
    here = here[: rng.randint(max(1, len(here) // 2), len(here))]
    absent = rng.sample([number for number in pool if number not in printed], rng.randint(1, 4))
    is_described = rng.random() >= 0.2
    schema, numbers = Schema(), Numbers()
    for number in here + absent:
        names, described = kinds[number].names[language], kinds[number].described[language]
        if number in printed and mode != "other language":
            own = _bare(printed[number][0])
            names = [own] if mode == "as printed" else [name for name in names if name.lower() != own.lower()]
        if names:
            name = rng.choice(names)
        else:
            rng.random()  # unused, as in `_type`
            name, described = described, ""
        if rng.random() < 0.15:  # by a second name
            described = rng.choice(kinds[number].names[language])
        if name not in schema:
            about = {"description": described} if described and is_described else {}
            schema[name], numbers[name] = {"type": _type(kinds[number], rng), **about}, number
    return schema, numbers


def _bare(name: str) -> str:
    return name.partition(" (")[0]


def ask_as_printed(rng: random.Random, paper: Paper, schema: Schema, numbers: Numbers) -> tuple[Schema, Numbers]:
    """What the page has, mostly by its printed names, so that few names are left for what it has not."""
    kept = {name for name in schema if numbers[name] in paper.printed and rng.random() < 0.15}
    found = {numbers[name] for name in kept}
    names = {_bare(name): number for number, (name, _) in paper.printed.items()}
    asked: Schema = {
        name: {"type": STRING} for name, number in names.items() if number not in found and rng.random() < 0.95
    }
    asked |= {name: schema[name] for name in schema if name in kept}
    asked |= {name: schema[name] for name in schema if numbers[name] not in paper.printed}
    return asked, names | numbers


def _folded(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()


async def read_asked(
    embeddings: EmbeddingService,
    paper: Paper,
    schema: Schema,
    numbers: Numbers,
    few: random.Random | None,
    *,
    held: bool,
) -> Asked | None:
    """What the network sees of a page; None where nothing is left to weigh. Args: few, leaves one to four names."""
    labels, page = read_labels(schema), paper.page
    names = own_fields.names_on(page, labels)
    if few is not None:
        segments = list(dict.fromkeys(name.segment for name in names.others if name.is_likely))
        few.shuffle(segments)
        left = set(segments[: few.choice((1, 2, 2, 3, 4))])
        names = replace(names, others=[name for name in names.others if name.segment in left])
    spelt = {told.label for told in names.spelt}
    asked = [index for index in range(len(labels)) if index not in spelt]
    if not asked or not names.others:
        return None
    embedded = await embeddings.embed_untruncated(own_fields.texts_to_embed(names, labels, asked))
    wanted = [labels[index] for index in asked]
    candidates, own, prompts = own_fields.candidates(embedded.vectors, names, len(wanted))
    read = own_fields.read_all(names, wanted)
    places = [(label, at) for label, row in enumerate(read) for at, values in enumerate(row) if values]
    if not places:
        return None
    rows = own_matches.evidence(candidates, wanted, own, prompts, read)

    def is_right(label: OwnLabel, at: int, values: own_matches.Read) -> bool:
        number = numbers[label.path[-1]]
        if number not in paper.printed:
            return False
        name, printed = paper.printed[number]
        found = _folded("".join(page.text[value.start : value.end] for value, _ in values))
        wanted_text = _folded("".join(printed))
        is_value = found == wanted_text or (label.kind != STRING and bool(found) and found in wanted_text)
        return is_value and _folded(names.others[at].text) in (_folded(name), _folded(_bare(name)))

    right = np.array([is_right(wanted[label], at, read[label][at]) for label, at in places], bool)
    features = np.array([rows[place] for place in places], np.float32)
    pairs = [
        (label, frozenset({names.others[at].segment, *(place.segment for _, place in read[label][at])}))
        for label, at in places
    ]
    return Asked(features, right, pairs, held, few is not None)


async def examples(embeddings: EmbeddingService, pages: Sequence[tuple[int, int]]) -> list[Asked]:
    """All that is asked of the made pages."""
    kinds = read_kinds()
    held = set(range(0, len(kinds), HELD_OUT))
    found, few_names = list[Asked | None](), list[Asked | None]()
    few = random.Random(5)
    for seed, count in pages:
        rng, printed, as_printed = random.Random(seed), random.Random(3), list[Asked | None]()
        for index in range(count):
            is_held = index % 4 == 3
            pool = [number for number in range(len(kinds)) if (number in held) == is_held]
            paper = make_paper(rng, kinds, pool)
            schema, numbers = ask(rng, kinds, pool, paper)
            found.append(await read_asked(embeddings, paper, schema, numbers, None, held=is_held))
            others = ask_as_printed(printed, paper, schema, numbers)
            as_printed.append(await read_asked(embeddings, paper, *others, None, held=is_held))
            if few.random() < 0.55:
                names = list(schema)
                few.shuffle(names)
                some = {name: schema[name] for name in names[: few.choice((1, 1, 2, 3, 5))]}
                few_names.append(await read_asked(embeddings, paper, some, numbers, few, held=is_held))
        found += as_printed
    return [one for one in found + few_names if one is not None]


def fit(asked: Sequence[Asked]) -> Pipeline:
    """The network that tells right pairs from others, behind what standardises its inputs."""
    counted = [one for one in asked for _ in range(FEW_TIMES if one.has_few else 1)]
    network = MLPClassifier(
        (HIDDEN,), alpha=DECAY, random_state=0, max_iter=PASSES, batch_size=BATCH, learning_rate_init=RATE
    )
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):  # more passes fit made pages alone
        return make_pipeline(StandardScaler(), network).fit(
            np.vstack([one.features for one in counted]), np.concatenate([one.right for one in counted])
        )


def likelihoods(network: Pipeline, asked: Asked) -> NDArray[np.float64]:
    return np.asarray(network.predict_proba(asked.features)[:, 1])


def chosen(network: Pipeline, asked: Sequence[Asked]) -> Iterator[tuple[float, bool]]:
    """Likelihood and truth of the pairs that are taken: labels, names and values each once, the likeliest first."""
    for one in asked:
        likely, labels, taken = likelihoods(network, one), set[int](), set[Segment]()
        for at in np.argsort(-likely, kind="stable"):
            label, segments = one.pairs[at]
            if likely[at] >= LIKELY and label not in labels and not segments & taken:
                labels.add(label)
                taken |= segments
                yield float(likely[at]), bool(one.right[at])


def calibration(pairs: Sequence[tuple[float, bool]]) -> tuple[float, float]:
    """Slope and offset of the logistic curve from the odds of pairs as `chosen` to how often they are right."""
    likely, right = np.array(pairs).T
    odds = np.clip(np.log(likely / (1 - likely + 1e-9)), -9, 9)
    curve = LogisticRegression(C=100).fit(odds[:, None], right)
    return float(curve.coef_[0, 0]), float(curve.intercept_[0])


async def teach(pages: Sequence[tuple[int, int]], output: Path) -> None:
    """Make, read, fit, measure on the kinds held out, and write the weights."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"ner_model": "none", "speech_model": "none", "answer_model": "none", "ocr_engine": "tesseract"}
        services = await build(load_settings(state_dir=Path(folder), **settings))
        try:
            asked = await examples(services.embeddings, pages)
        finally:
            await services.close()
    held_out = [one for one in asked if one.is_held_out]
    network = fit([one for one in asked if not one.is_held_out])
    taken = list(chosen(network, held_out))
    right = sum(is_right for _, is_right in taken)
    wanted = sum(
        len({label for (label, _), is_right in zip(one.pairs, one.right, strict=True) if is_right}) for one in held_out
    )
    print(f"{len(asked)} pages; kinds held out: precision {right / len(taken):.3f}, recall {right / wanted:.3f}")
    curve = calibration(taken)
    scaler, network = fit(asked)
    (hidden, out), (hidden_bias, out_bias) = network.coefs_, network.intercepts_
    weights = {
        "mean": scaler.mean_,
        "scale": scaler.scale_,
        "hidden": hidden,
        "hidden_bias": hidden_bias,
        "out": out[:, 0],
        "out_bias": out_bias,
        "calibration": np.array(curve),
    }
    stored: dict[str, Any] = {name: np.asarray(value, np.float32) for name, value in weights.items()}
    np.savez(output, **stored)


def main(arguments: Sequence[str] | None = None) -> None:
    """Teach, write the file that stands in ``backend/models/bundled/own-names``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--pages", type=int, help="of the first seed alone, to try it")
    options = parser.parse_args(arguments)
    asyncio.run(teach(((1, options.pages),) if options.pages else PAGES, options.output))


if __name__ == "__main__":
    main()
