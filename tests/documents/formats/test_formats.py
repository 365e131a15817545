"""Which format a request means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.documents.formats import FORMATS, negotiate
from backend.errors import InvalidField, NotAcceptable

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
        pytest.param(BROWSER, "hocr", id="browser"),
        pytest.param("application/xml", "alto", id="xml"),
        pytest.param("application/json;q=0, */*", "text", id="all-but-json"),
        pytest.param(";;,", "json", id="nothing-in-it"),
    ],
)
def test_the_best_that_accept_allows(accept, expected):
    """The highest weight wins, the more exact range decides a type's weight, the table's order decides ties."""
    assert expected == negotiate(accept).name


@pytest.mark.parametrize("accept", ["image/png", "text/markdown;q=0", "text/markdown;q=x", "text/plain;q=nan", "json"])
def test_what_accept_forbids_is_refused_with_the_list(accept):
    """406, and every type that there is."""
    with pytest.raises(NotAcceptable) as caught:
        negotiate(accept)

    assert caught.value.status == 406
    assert all(one.media_type in str(caught.value) for one in FORMATS)


@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.name)
def test_a_format_is_wished_by_name_or_extension(one):
    """``format`` goes before ``Accept``; every type of the table means its own format."""
    assert one is negotiate("image/png", one.name.upper())
    assert one is negotiate(None, f" {one.extension} ")
    assert all(one is negotiate(media_type) for media_type in (one.media_type, *one.also))


def test_an_unknown_wish_lists_what_there_is():
    with pytest.raises(InvalidField, match=r"docx.*json, text, markdown, hocr, alto, pdf") as caught:
        negotiate("*/*", "docx")

    assert caught.value.param == "format"


@given(st.text(st.sampled_from("*/,;q=.0159 textapplicationjson+\x00é"), max_size=80))
def test_any_header_is_answered(accept):
    """A format or a 406, whatever a client sends."""
    try:
        assert negotiate(accept) in FORMATS
    except NotAcceptable:
        assert accept.strip(" ;,\t")


def test_content_types_say_how_text_is_written():
    types = {one.name: one.content_type for one in FORMATS}

    assert types["text"] == "text/plain; charset=utf-8"
    assert types["pdf"] == "application/pdf"
