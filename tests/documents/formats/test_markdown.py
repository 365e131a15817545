"""Markdown, parsed with a CommonMark parser."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from backend.documents.formats.markdown import escape, place_in_markdown, stream_markdown
from backend.files.pages import Box, Document, RawWord, make_page
from tests.files.drawn import document_of, documents, page_of

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
LINES = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=40).map(
    lambda text: " ".join(text.split())
)
MARKS = st.text(st.sampled_from("*_`#>-+=~|[]()<>&;!\\1.) ab:/"), min_size=1, max_size=20).map(
    lambda text: " ".join(text.split())
)


def markdown(document: Document) -> str:
    return b"".join(stream_markdown(document)).decode()


def shown(text: str) -> list[tuple[str, str]]:
    """The element and text of each block, as rendered."""
    found, element = [], ""
    for token in PARSER.parse(text):
        element = token.tag or element
        if token.type == "inline":
            children = token.children or []
            kept = {"text": lambda one: one.content, "softbreak": lambda _: "\n", "hardbreak": lambda _: "⏎\n"}
            assert all(child.type in kept or child.type == "html_inline" for child in children), text
            found.append((element, "".join(kept.get(child.type, lambda _: "")(child) for child in children)))
    return found


def lines_of(*sized: tuple[str, float], width: float = 6.0):
    """A block: lines of text, each with the height of its words."""
    top, lines = 20.0, []
    for text, height in sized:
        place, line = 20.0, []
        for word in text.split():
            line.append(RawWord(word, Box(place, top, place + width * len(word), top + height)))
            place += width * (len(word) + 1)
        lines.append(line)
        top += height * 1.3
    return lines


def document_with(*blocks) -> Document:
    page = make_page(blocks, number=1, width=595, height=842, source="text_layer", why="", engine="pdfium")
    return document_of(page)


@given(st.one_of(LINES, MARKS).filter(bool))
def test_a_line_is_shown_as_it_is(line):
    """No text is taken for markup."""
    assert [("p", line)] == shown(escape(line))


@pytest.mark.slow
@given(documents())
def test_every_word_is_shown_in_its_order(document):
    """Without list marks and extra blanks."""
    expected = "".join(word.text for page in document.pages for word in page.words)
    seen = "".join(text for _, text in shown(markdown(document)))

    def bare(text: str) -> str:
        return "".join(one for one in text if not one.isspace() and one not in "⏎-*•·1.")

    assert bare(expected) == bare(seen)


BODY = ("Este contrato se firma en Madrid entre las dos partes que figuran abajo", 8.0)


@pytest.mark.parametrize(("height", "expected"), [(16.0, "h1"), (12.5, "h2"), (10.6, "h3"), (9.5, "p"), (8.0, "p")])
def test_what_is_set_larger_is_a_heading(height, expected):
    """The size relative to the body text decides the level."""
    document = document_with(lines_of(("Contrato de servicios", height)), lines_of(BODY, BODY, BODY))

    assert (expected, "Contrato de servicios") == shown(markdown(document))[0]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([("1.284,50 €", 16.0)], id="an-amount"),
        pytest.param([("| |", 30.0)], id="a-rule"),
        pytest.param([("uno", 16.0), ("dos", 16.0), ("tres", 16.0)], id="three-lines"),
        pytest.param([("palabra " * 20, 16.0)], id="a-long-line"),
    ],
)
def test_not_all_that_is_large_is_a_heading(lines):
    document = document_with(lines_of(*lines), lines_of(BODY, BODY, BODY, BODY))

    assert "p" == shown(markdown(document))[0][0]


def test_a_heading_close_to_its_text_is_one():
    """Though both are one block; words that are merely tall in the middle of a text are none."""
    text = (*[("El importe vence el 31 de marzo.", 10)] * 3, ("Alto", 14), ("Pago por transferencia.", 10))
    found = shown(markdown(document_with(lines_of(("Condiciones de", 18), ("pago", 18), *text))))

    assert ("h2", "Condiciones de pago") == found[0]
    assert ["p"] == [element for element, _ in found[1:]]


def test_lines_that_were_broken_on_purpose_stay_broken():
    """A line break is hard where the next word would have fitted; wrapped lines are joined."""
    letter = lines_of(("Calle Mayor 5", 8.0), ("28013 Madrid", 8.0), BODY, ("en dos copias", 8.0))

    assert [("p", f"Calle Mayor 5⏎\n28013 Madrid⏎\n{BODY[0]}\nen dos copias")] == shown(markdown(document_with(letter)))


def test_lists_are_lists():
    """Any bullets, and consecutive numbers; text before the list and wrapped lines keep their places."""
    bullets = lines_of(
        ("Incluye:", 8.0), ("• mesa", 8.0), ("\N{EN DASH} silla de oficina con", 8.0), ("ruedas", 8.0), ("• luz", 8.0)
    )
    numbers = lines_of(("1. primero", 8.0), ("2. segundo", 8.0))
    text = markdown(document_with(bullets, numbers))

    assert "Incluye:\n\n- mesa\n- silla de oficina con\n  ruedas\n- luz\n\n1. primero\n2. segundo\n" == text.replace(
        "  \n", "\n"
    )
    kinds = [token.type for token in PARSER.parse(text) if token.type.endswith("list_open")]
    assert ["bullet_list_open", "ordered_list_open"] == kinds


def test_a_number_before_a_line_is_no_list():
    """A single numbered line, or numbers out of sequence, are text."""
    years = lines_of(("12. de marzo", 8.0), ("30. de abril", 8.0))

    assert ["p"] == [element for element, _ in shown(markdown(document_with(years)))]


def test_pages_are_told_apart():
    """A comment gives the number of each page after the first."""
    document = document_of(page_of([[["uno"]]], 2), page_of([]), page_of([[["dos"]]], 5))

    assert "uno\n\n<!-- page 1 -->\n\n<!-- page 5 -->\n\ndos\n" == markdown(document)


def test_words_are_looked_for_around_their_place() -> None:
    """A whole page for each word that it lacks would be the square of the page."""
    text = "total " + "x" * 200_000 + " base"

    assert (0, 5) == place_in_markdown(text, "total", 4_000)
    assert (200_007, 200_011) == place_in_markdown(text, "base", 196_000)
    assert (100_000, 100_000) == place_in_markdown(text, "total", 100_000)
