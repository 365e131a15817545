"""Letters that stand apart: words of letter-spaced type, and what must not be joined. Read by PDFium."""

from typing import NamedTuple

import pypdfium2 as pdfium
import pytest

from backend.files.pdf_file import read_characters
from backend.files.text_layout import lay_out
from tests.files.pdfs import pdf

SPACE = 0.278  # em, of Helvetica


class Tracked(NamedTuple):
    """A line of text, each letter shown with `spacing` em behind it."""

    text: str
    spacing: float
    x: float = 20
    y: float = 100


def drawn(*lines: Tracked, has_blanks: bool = True) -> bytes:
    """A content stream of lines with TJ, as browsers write letter-spacing, or with distances for blanks."""
    return b"".join(_drawn(line, has_blanks) for line in lines)


def _drawn(line: Tracked, has_blanks: bool) -> bytes:
    shown = []
    for character in line.text:
        if character == " " and not has_blanks:
            shown.append(b"%d" % round(-1000 * (line.spacing + SPACE)))
        else:
            shown.append(b"(%b) %d" % (character.encode("cp1252"), round(-1000 * line.spacing)))
    return b"BT /F1 10 Tf %g %g Td [%b] TJ ET\n" % (line.x, line.y, b" ".join(shown))


def read(content: bytes) -> str:
    """The words of the page, one line a line."""
    file = pdfium.PdfDocument(pdf(content, size=(500, 200)))
    words = lay_out(read_characters(file[0])[0])
    lines: dict[int, list[str]] = {}
    for text, line in zip(words.texts, words.lines.tolist(), strict=True):
        lines.setdefault(line, []).append(text)
    return "\n".join(" ".join(line) for line in lines.values())


@pytest.mark.parametrize("has_blanks", [True, False], ids=["blanks", "distances"])
@pytest.mark.parametrize("spacing", [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4])
@pytest.mark.parametrize(
    "text",
    [
        "NÚMERO DE FACTURA", "Fecha de emisión", "TOTAL A PAGAR", "IBAN ES91 2100 0418 4502 0005 1332", "1.284,50",
        "NIF",
    ],
)  # fmt: skip
def test_words_of_letter_spaced_lines(text: str, spacing: float, has_blanks: bool):
    """Letters are joined, words are not, at any spacing that designs use."""
    assert text == read(drawn(Tracked(text, spacing), has_blanks=has_blanks))


def test_a_spaced_label_beside_a_value():
    """The label's letters are joined although the value's stand close."""
    page = drawn(Tracked("VENCIMIENTO", 0.3), Tracked("31/03/2024", 0, x=170))

    assert "VENCIMIENTO 31/03/2024" == read(page)


def test_digits_and_short_words_under_a_spaced_label():
    """What could be single characters is joined where the page shows words with the same spacing."""
    page = drawn(Tracked("NÚMERO", 0.3, y=140), Tracked("2024-017", 0.3, y=120), Tracked("DE", 0.3))

    assert "NÚMERO\n2024-017\nDE" == read(page)


@pytest.mark.parametrize(
    "text",
    ["de la casa y a la calle", "x + y = a + b", "1 2 3 4 5", "see A and B of it", "y a", "half of them", "p. 3 , 4"],
)
def test_real_blanks_of_plain_text(text: str):
    """Distances of one blank, as programs without blanks write them, end words: single letters, formulas, digits."""
    assert text == read(drawn(Tracked(text, 0), has_blanks=False))


def test_leaders_are_not_joined():
    """The dots between a title and its page number become no word with the number."""
    assert "7" in read(drawn(Tracked(". . . . . . . 7", 0), has_blanks=False)).split()


def test_a_footnote_mark_after_a_spaced_number():
    """A raised digit close behind a number stays a word of its own."""
    page = b"BT /F1 10 Tf 20 100 Td (8,935,112) Tj /F1 6 Tf 4 Ts [-350 (2)] TJ ET"

    assert "8,935,112 2" == read(page)
