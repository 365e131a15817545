"""Options, pages and finished documents written and read back: an answer made from a stored result is the same."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import orjson
import pytest

from backend.api.responses.documents import document_bytes
from backend.documents.key_phrases import KeyPhrase
from backend.jobs.document_codec import option_fields, options_of, pack_answer, unpack_answer
from backend.services.classification import ClassifiedText, Prediction
from backend.services.documents.records import DocumentAnswer, DocumentOptions
from tests.api.document_fakes import answer_of


def full_answer(options: DocumentOptions | None = None) -> DocumentAnswer:
    """Every field set, with the number types that models give."""
    answer = answer_of(options or DocumentOptions())
    classes = ClassifiedText((Prediction("invoice", np.float32(0.1)), Prediction("letter", 1e-17)), None, 0.1, 9, True)
    phrase = KeyPhrase("Total", np.float64(0.3), np.array([[15, 20], [30, 35]]))
    return replace(answer, understood=replace(answer.understood, classes=classes, key_phrases=(phrase,)))


@pytest.mark.parametrize("form", ["float", "base64"])
@pytest.mark.parametrize("features", [DocumentOptions().features, frozenset({"language"})])
def test_a_stored_answer_is_written_as_before(features, form):
    """Byte for byte: vectors, floats of every width, places, failed pages with their errors, timings."""
    options = DocumentOptions(features=features)
    answer = full_answer(options)
    stored = unpack_answer(pack_answer(answer), option_fields(options))

    assert stored is not None
    assert document_bytes(answer, form) == document_bytes(stored, form)
    assert answer.document == stored.document


def test_metadata_that_json_cannot_hold():
    """A title with half a surrogate pair is stored as answers write it."""
    answer = full_answer()
    odd = replace(answer.document, metadata={"title": "a\ud800  b"})
    answer = replace(answer, extraction=replace(answer.extraction, document=odd))
    stored = unpack_answer(pack_answer(answer), option_fields(answer.options))

    assert stored is not None
    assert {"title": "a b"} == stored.document.metadata
    assert document_bytes(answer) == document_bytes(stored)


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(b'{"object":"document"}', id="the-json-of-an-older-version"),
        pytest.param(zlib.compress(b"{}\n{}"), id="without-fields"),
    ],
)
def test_bytes_of_another_version_are_no_result(packed):
    """They are not guessed at."""
    assert unpack_answer(packed, option_fields(DocumentOptions())) is None


def test_options_of_another_version_give_no_result():
    packed = pack_answer(full_answer())

    assert unpack_answer(packed, option_fields(DocumentOptions()) | {"retired": 1}) is None


def test_options_without_their_password():
    options = DocumentOptions(languages=("es", "en"), labels=("a",), password="s3cret", top_phrases=3)
    values = orjson.loads(orjson.dumps(option_fields(options)))

    assert "s3cret" not in str(values)
    assert options == options_of(values, "s3cret")
