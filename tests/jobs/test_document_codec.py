"""Options, pages and finished documents written and read back: an answer made from a stored result is the same."""

import zlib
from dataclasses import replace

import numpy as np
import orjson
import pytest

from backend.api.routes.document_answers import document_pieces
from backend.documents.records import (
    ClassParts,
    DocumentAnswer,
    DocumentOptions,
    ExtractedDocument,
    OwnField,
    OwnValue,
    Understood,
)
from backend.errors import JobOfAnotherRelease
from backend.files.einvoice.records import EInvoice
from backend.files.pages import Barcode, Box, TextLocation
from backend.files.text_files import document_of_text
from backend.invoices.extract import extract_fields
from backend.jobs.document_codec import option_fields, options_of, pack_answer, unpack_answer
from backend.tables.find import find_tables
from backend.text.classification import ClassifiedText, Prediction
from backend.text.key_phrases import KeyPhrase
from tests.api.document_fakes import answer_of


def written(answer: DocumentAnswer, form: str = "float") -> bytes:
    return b"".join(document_pieces(answer, form))


def full_answer(options: DocumentOptions | None = None) -> DocumentAnswer:
    """Every field set, with the number types that models give."""
    answer = answer_of(options or DocumentOptions())
    classes = ClassifiedText((Prediction("invoice", np.float32(0.1)), Prediction("letter", 1e-17)), None, 0.1, 9, True)
    parts = ClassParts(None, classes, 1, "page-kinds", combined=False, why="the picture alone")
    phrase = KeyPhrase("Total", np.float64(0.3), np.array([[15, 20], [30, 35]]))
    understood = replace(answer.understood, classes=classes, class_parts=parts, key_phrases=(phrase,))
    return replace(answer, understood=understood)


@pytest.mark.parametrize("form", ["float", "base64"])
@pytest.mark.parametrize("features", [DocumentOptions().features, frozenset({"language"})])
def test_a_stored_answer_is_written_as_before(features, form):
    """Byte for byte: vectors, floats of every width, places, failed pages with their errors, timings."""
    options = DocumentOptions(features=features)
    answer = full_answer(options)
    stored = unpack_answer(pack_answer(answer), option_fields(options))

    assert written(answer, form) == written(stored, form)
    assert answer.document == stored.document


def test_metadata_that_json_cannot_hold():
    """A title with half a surrogate pair is stored as answers write it."""
    answer = full_answer()
    odd = replace(answer.document, metadata={"title": "a\ud800  b"})
    answer = replace(answer, extraction=replace(answer.extraction, document=odd))
    stored = unpack_answer(pack_answer(answer), option_fields(answer.options))

    assert {"title": "a b"} == stored.document.metadata
    assert written(answer) == written(stored)


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(b'{"object":"document"}', id="the-json-of-an-older-version"),
        pytest.param(zlib.compress(b"{}\n{}"), id="without-fields"),
    ],
)
def test_bytes_of_another_release(packed):
    """They are not guessed at, and not taken for an absent result."""
    with pytest.raises(JobOfAnotherRelease, match="result of the job"):
        unpack_answer(packed, option_fields(DocumentOptions()))


def test_unknown_options():
    """A job is not processed without what a later release was asked for; options that were not known are at default."""
    packed, fields = pack_answer(full_answer()), option_fields(DocumentOptions())

    with pytest.raises(JobOfAnotherRelease):
        unpack_answer(packed, fields | {"later": 1})
    del fields["top_phrases"], fields["labels"]
    assert DocumentOptions() == options_of(fields, None)


def test_values_of_a_later_release_are_left_out():
    """A result may say more than this release knows, as long as its format is the same."""
    answer = full_answer()
    first, _, second = zlib.decompress(pack_answer(answer)).partition(b"\n")
    head = orjson.loads(first) | {"cost": 3}
    head["understood"]["mood"] = head["extraction"]["pens"] = head["understood"]["classes"]["odds"] = 1
    stored = unpack_answer(zlib.compress(orjson.dumps(head) + b"\n" + second), option_fields(answer.options))

    assert written(answer) == written(stored)


def test_options_without_their_password():
    options = DocumentOptions(languages=("es", "en"), labels=("a",), password="s3cret", top_phrases=3)
    values = orjson.loads(orjson.dumps(option_fields(options)))

    assert "s3cret" not in str(values)
    assert options == options_of(values, "s3cret")


def test_fields_in_the_callers_words_survive() -> None:
    """What a job was asked for in words, and what it found, is the same after it was stored."""
    options = DocumentOptions(schema='{"km":{"type":"integer"}}')
    value = OwnValue("87500", "87.500", 4, 10, 0.97, "after 'Km'", (TextLocation(1, Box(1.0, 2.0, 3.0, 4.0)),))
    found = OwnField(("coche", "km"), (value,))
    answer = full_answer(options)
    answer = replace(answer, understood=replace(answer.understood, custom=(found,)))
    stored = unpack_answer(pack_answer(answer), option_fields(options))

    assert (found,) == stored.understood.custom
    assert written(answer) == written(stored)
    assert 87500 == orjson.loads(written(stored))["custom"]["coche"]["km"]["value"]


def test_fields_tables_and_electronic_invoices_survive() -> None:
    """What a job found as data is the same after it was stored."""
    goods = ("Concepto     Cantidad     Importe", *(f"Tornillo {size}     {size}     {size},00" for size in (2, 3, 4)))
    rows = ("FACTURA", "Nº factura: 23", "", *goods, "", "Total factura     9,00 €")
    einvoice = EInvoice("UBL", {"InvoiceId": "23"}, ({"Amount": "1.00"},), page=1, box=(1.0, 2.0, 3.0, 4.0))
    code = Barcode(1, "EAN13", "5901234123457", Box(1.0, 2.0, 3.0, 4.0))
    document = replace(document_of_text("\n".join(rows)), einvoice=einvoice, barcodes=(code,))
    understood = Understood(fields=extract_fields(document), tables=find_tables(document))
    answer = DocumentAnswer(
        ExtractedDocument(document, (), 0, 0.0, 0.0, 0.0), document.text, understood, DocumentOptions(), "cpu", 0.0, 0.0
    )

    restored = unpack_answer(pack_answer(answer), option_fields(DocumentOptions()))

    assert understood.fields.fields
    assert understood.tables
    assert understood == restored.understood
    assert (document.einvoice, (code,)) == (restored.document.einvoice, restored.document.barcodes)
