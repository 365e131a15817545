"""Hypothesis strategies for documents: words of many scripts, laid out in lines on pages."""

from hypothesis import strategies as st

from backend.files.pages import Box, Document, Page, RawWord, make_page

# Strings that are difficult in real pages.
PIECES = [
    "señor", "1.284,50", "€", "Übung", "e\u0301", "😀", "👩\u200d👧", "שלום", "مرحبا", "漢字", "<b>", "&amp;", '"', "'",
    "]]>", "-->", "func-", "a_b*c", "#", "1.", "-", "\u202eabc", "\u00ad", "\ufffd", "x" * 40, "O'Kon", "|",
]  # fmt: skip
WORDS = st.one_of(
    st.sampled_from(PIECES), st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]), min_size=1)
).filter(lambda text: bool("".join(text.split())))
LETTER, LINE = 6.0, 12.0  # page units


def lay_out(blocks: list[list[list[str]]], *, left: float = 20.0, top: float = 20.0) -> list[list[list[RawWord]]]:
    """Words next to each other with gaps, and lines below each other."""
    out = []
    for block in blocks:
        lines = []
        for line in block:
            x, words = left, []
            for text in line:
                width = LETTER * len(text)
                words.append(RawWord(text, Box(x, top, x + width, top + LINE * 0.8), 0.9))
                x += width + LETTER
            lines.append(words)
            top += LINE
        out.append(lines)
        top += LINE
    return out


def page_of(blocks: list[list[list[str]]], number: int = 1, *, rotation: int = 0, **more: object) -> Page:
    """A page of these words, by default an OCR page of A4 in points."""
    fields = {"width": 595.0, "height": 842.0, "source": "ocr", "why": "no text layer", "engine": "tesseract 5.3.0"}
    return make_page(lay_out(blocks), number=number, rotation=rotation, **{**fields, **more})  # type: ignore[arg-type]


def document_of(*pages: Page, kind: str = "pdf") -> Document:
    return Document(kind, pages, len(pages), "ab" * 32)


BLOCKS = st.lists(st.lists(st.lists(WORDS, max_size=5), max_size=4), max_size=4)


@st.composite
def documents(draw: st.DrawFn, kind: str = "pdf") -> Document:
    """Up to three pages; lines, blocks and pages may be empty."""
    drawn = draw(st.lists(BLOCKS, max_size=3))
    return document_of(*(page_of(blocks, number) for number, blocks in enumerate(drawn, 1)), kind=kind)
