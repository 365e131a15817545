"""Texts made to take long: work grows with their length, never with its square.

Every public way of a text through the service that holds the interpreter is in `READERS`.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
import pytest

import backend
from backend.documents.chunks import printed_rows, text_chunks
from backend.documents.formats.markdown import stream_markdown
from backend.errors import CallerGone
from backend.files.pages import Document
from backend.files.text_files import document_of_text, html_text
from backend.invoices.structure import fields_of, tables_of
from backend.models.words import word_places
from backend.search.keywords import query_terms, tokens_of
from backend.text.entity_merge import MODEL, Entity, merge
from backend.text.key_phrases import phrase_candidates
from backend.text.key_sentences import summary_candidates
from backend.text.language import detect
from backend.text.patterns import PATTERN_TYPES, find_patterns
from backend.text.sentences import sentence_spans

UNITS = (
    *(
        "a",
        "A",
        "1",
        "0",
        "@",
        "(",
        "[",
        "\n",
        " ",
        ".",
        ",",
        "-",
        "/",
        ":",
        "_",
        "€",
        "%",
        "|",
        "'",
        "\t",
        "\xa0",
        "中",
        "…",
    ),
    *(
        "a ",
        "A ",
        "1 ",
        "1-",
        "1.",
        "1,",
        "1/",
        "a.",
        "a@a.",
        ".  ",
        "a\u0301",
        "\u0301",
        " \n",
        "ab\n",
        "- a\n",
        "Ab Cd ",
    ),
    *(
        "http://",
        "1€ ",
        "1,00 ",
        "ES12 ",
        "12345678Z ",
        "S.A. ",
        "1 mar ",
        "12 de ",
        "+34 ",
        "Total: ",
        "IVA 21% ",
        "nº ",
    ),
    *("Calle Mayor 1, ", "01/02/2024 ", "| "),
)
LENGTHS = (2_500, 10_000)
GROWTH = 9.0  # times, where the text is four times as long; a square would be sixteen
FLOOR_S = 0.25  # what takes less says nothing about its growth
UNTOUCHED = frozenset({"backend.scaleout"})  # needs Ray; reads no text
# Patterns that the code asks by match or fullmatch only, or for a text of bounded length.
ANCHORED = frozenset(
    {
        "invoices.parties.blocks._TO",
        "invoices.parties.names._FORM_ALONE",
        "invoices.parties.pieces._AMBIGUOUS",
        "invoices.parties.pieces._FIELD",
        "invoices.parties.pieces._HEADING",
        "invoices.parties.pieces._NUMBER",
        "invoices.parties.pieces._POSTCODE_FIRST",
        "search.keywords._VALUE",
        "tables.headers._PERIOD",
        "text.id_formats._IBAN_PART",  # of python-stdnum's own table
        "text.key_phrases._NO_NOUN",
        "text.patterns.bank_accounts._STRUCTURE",  # the same
        "text.patterns.invoice_numbers._AMOUNT",
        "text.sentences._FIGURES",
        "text.sentences._ITEM",
        "text.sentences._WEB_ADDRESS",
    }
)
QUICK_UNITS = (" ", ".", "1 ", "a")


def _sentences(text: str) -> None:
    spans = sentence_spans(text)
    summary_candidates([text[start:stop] for start, stop in spans.tolist()], "es")


def _chunks(text: str) -> None:
    text_chunks(text, np.arange(0, len(text), 4), 256, overlap_tokens=32, rows=printed_rows(text))


def _merged_name(text: str) -> None:
    """A name of a model with a date behind it: it is cut back to the words before the run."""
    text = f"El Hospital{text}12 de octubre de 2024"
    merge([*find_patterns(text), Entity("ORG", text[:-5], 0, len(text) - 5, 0.9, MODEL)], PATTERN_TYPES)


def _phrases(text: str) -> None:
    phrase_candidates(text, word_places(text), sentence_spans(text), "es")


def _invoice(run: str, *, cell: str = "2") -> Document:
    return document_of_text(
        "Acme S.L. CIF B12345674\nFACTURA Nº 2024/12   Fecha: 12/10/2024\n\n"
        f"Descripción          Cantidad   Precio   Importe\nTornillos {run}          {cell}   10,00   20,00\n"
        "Base imponible 20,00\nIVA 21% 4,20\nTotal 24,20 €\n"
    )


READERS: dict[str, Callable[[str], object]] = {
    "language": detect,
    "patterns": find_patterns,
    "merge": _merged_name,
    "sentences": _sentences,
    "phrases": _phrases,
    "chunks": _chunks,
    "words": partial(tokens_of, language="es"),
    "query": query_terms,
    "html": html_text,
    "markdown": lambda text: list(stream_markdown(document_of_text(text))),
    "tables": lambda text: tables_of(document_of_text(text)),
    "fields": lambda text: fields_of(document_of_text(text)),
    "description": lambda text: fields_of(_invoice(text)),
    "cell": lambda text: fields_of(_invoice("M6", cell=text)),
}


def cpu_s(work: Callable[[str], object], text: str) -> float:
    """Seconds of this thread, not of the machine."""
    started_s = time.thread_time()
    work(text)
    return time.thread_time() - started_s


def grows_too_fast(work: Callable[[str], object], unit: str) -> str:
    """How the time of ``work`` grew where it grew more than ``GROWTH`` allows, twice asked; else empty."""
    short, long = (unit * (length // len(unit)) for length in LENGTHS)
    if (spent_s := cpu_s(work, long)) <= FLOOR_S:
        return ""
    before_s, spent_s = cpu_s(work, short), min(spent_s, cpu_s(work, long))
    return f"{unit!r}: {before_s:.3f} s, then {spent_s:.3f} s" if spent_s > GROWTH * before_s else ""


def patterns_of(name: str, value: object) -> Iterator[tuple[str, re.Pattern[str]]]:
    """The patterns that a name of a module stands for, tables of them included."""
    if isinstance(value, re.Pattern):
        if isinstance(value.pattern, str):
            yield name, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from patterns_of(f"{name}[{key!r}]", each)
    elif isinstance(value, tuple | list | frozenset):
        for each in value:
            yield from patterns_of(name, each)


@pytest.fixture(scope="module")
def patterns() -> dict[str, re.Pattern[str]]:
    """Every compiled pattern of backend/ by the module and name that holds it."""
    found: dict[str, re.Pattern[str]] = {}
    for module in pkgutil.walk_packages(backend.__path__, "backend."):
        if not module.name.endswith("__main__") and module.name not in UNTOUCHED:
            for name, value in vars(importlib.import_module(module.name)).items():
                found.update(patterns_of(f"{module.name}.{name}", value))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_time_grows_with_the_length_of_a_text(unit: str):
    for reader in READERS.values():
        reader("la factura 1")  # reads its model
    slow = {name: grown for name, reader in READERS.items() if (grown := grows_too_fast(reader, unit))}

    assert slow == {}


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_time_of_a_pattern_grows_with_the_length_of_a_text(unit: str, patterns: dict[str, re.Pattern[str]]):
    """By match and fullmatch, and by search unless the code asks the pattern at one place only (`ANCHORED`)."""

    def anchored(text: str, pattern: re.Pattern[str]) -> None:
        pattern.match(text)
        pattern.fullmatch(text)

    def searched(text: str, pattern: re.Pattern[str]) -> None:
        for _ in pattern.finditer(text):
            pass

    slow = {}
    for name, pattern in patterns.items():
        anywhere = name.removeprefix("backend.").partition("[")[0] not in ANCHORED
        for work in (anchored, searched) if anywhere else (anchored,):
            if grown := grows_too_fast(partial(work, pattern=pattern), unit):
                slow[name] = grown

    assert 300 < len(patterns)
    assert slow == {}


@pytest.mark.parametrize("unit", QUICK_UNITS)
def test_a_run_of_one_kind_is_soon_read(unit):
    """What stopped the service for 12 to 106 s takes well under one."""
    spent_s = {name: cpu_s(READERS[name], unit * (4_000 // len(unit))) for name in ("merge", "chunks", "description")}

    assert max(spent_s.values()) < 1, spent_s


@pytest.mark.parametrize("unit", ["1€ ", "1 ", "factura uno "])
def test_patterns_and_phrases_end_when_nobody_waits(unit):
    """They ask often enough: after a part of the text."""
    text, asked = unit * 5_000, []

    def check() -> None:
        asked.append(1)
        if len(asked) == 3:
            raise CallerGone("nobody waits")

    with pytest.raises(CallerGone):
        find_patterns(text, check=check)
    asked.clear()
    with pytest.raises(CallerGone):
        phrase_candidates(text, word_places(text), sentence_spans(text), "es", check=check)
