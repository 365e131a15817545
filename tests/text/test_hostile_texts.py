"""Texts made to take long: work grows with their length, never with its square.

Every public way of a text through the service that holds the interpreter is in `READERS`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

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
LENGTHS = (20_000, 40_000, 80_000)
FLOOR_S = 0.02  # what takes less says nothing about its growth
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
    """How the time of ``work`` grew where it more than tripled with a doubled text, twice asked; else empty."""
    before_s = 0.0
    for length in LENGTHS:
        text = unit * (length // len(unit))
        spent_s = cpu_s(work, text)
        limit_s = max(FLOOR_S, 3 * before_s)
        if before_s and spent_s > limit_s and (spent_s := min(spent_s, cpu_s(work, text))) > limit_s:
            return f"{unit!r} x {length}: {before_s:.3f} s, then {spent_s:.3f} s"
        before_s = max(spent_s, FLOOR_S / 3)
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_a_doubled_text_takes_no_more_than_three_times_as_long(unit):
    for reader in READERS.values():
        reader("la factura 1")  # reads its model
    slow = {name: grown for name, reader in READERS.items() if (grown := grows_too_fast(reader, unit))}

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
