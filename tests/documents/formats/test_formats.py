"""Output formats and their negotiation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.documents.formats.registry import FORMATS, negotiate, stream_text
from backend.errors import InvalidField, NotAcceptable
from tests.files.drawn import documents

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        pytest.param(None, "json", id="absent"),
        pytest.param("", "json", id="empty"),
        pytest.param("*/*", "json", id="curl"),
        pytest.param("*; q=.2, */*; q=.2", "json", id="java"),
        pytest.param("application/pdf, */*;q=0.1", "pdf", id="pdf"),
        pytest.param("text/*", "text", id="any-text"),
        pytest.param("TEXT/Markdown; charset=utf-8", "markdown", id="case-and-parameters"),
        pytest.param("text/markdown;q=0.5, application/alto+xml", "alto", id="weights"),
        pytest.param("text/vnd.hocr+html", "hocr", id="hocr"),
        pytest.param(BROWSER, "html", id="browser"),
        pytest.param("application/xml", "alto", id="xml"),
        pytest.param("application/json;q=0, */*", "text", id="all-but-json"),
        pytest.param(";;,", "json", id="nothing-in-it"),
    ],
)
def test_the_best_that_accept_allows(accept, expected):
    """The highest weight wins, the most specific range sets a type's weight, the table's order breaks ties."""
    assert expected == negotiate(accept).name


@pytest.mark.parametrize("accept", ["image/png", "text/markdown;q=0", "text/markdown;q=x", "text/plain;q=nan", "json"])
def test_an_unacceptable_type_is_refused_with_the_list(accept):
    """406, listing every media type."""
    with pytest.raises(NotAcceptable) as caught:
        negotiate(accept)

    assert caught.value.status == 406
    assert all(form.media_type in str(caught.value) for form in FORMATS)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_a_format_is_requested_by_name_or_extension(form):
    """``format`` takes precedence over ``Accept``; every media type of the table selects its own format."""
    assert form is negotiate("image/png", form.name.upper())
    assert form is negotiate(None, f" {form.extension} ")
    assert all(form is negotiate(media_type) for media_type in (form.media_type, *form.aliases))


def test_an_unknown_format_lists_the_known_ones():
    with pytest.raises(InvalidField, match=r"docx.*json, text, markdown, html, csv, xlsx, hocr, alto, pdf") as caught:
        negotiate("*/*", "docx")

    assert caught.value.param == "format"


@given(st.text(st.sampled_from("*/,;q=.0159 textapplicationjson+\x00é"), max_size=80))
def test_any_header_is_answered(accept):
    """A format or a 406, whatever a client sends."""
    try:
        assert negotiate(accept) in FORMATS
    except NotAcceptable:
        assert accept.strip(" ;,\t")


def test_text_types_have_a_charset():
    types = {form.name: form.content_type for form in FORMATS}

    assert types["text"] == "text/plain; charset=utf-8"
    assert types["pdf"] == "application/pdf"


@pytest.mark.slow
@given(documents())
def test_plain_text_is_the_documents_text(document):
    """Offsets of other answers hold in it."""
    assert document.text == b"".join(stream_text(document)).decode()
