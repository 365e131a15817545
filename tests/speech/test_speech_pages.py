"""A transcript as pages of a minute each, with times as boxes, and back."""

import pytest

from backend.files.page_codec import pack_document, pack_page, unpack_document, unpack_page
from backend.files.pages import Box, Document, locate
from backend.files.speech_records import Segment, SpokenLanguage, SpokenWord, Transcript
from backend.speech.pages import KIND, MinutePages, minutes_of, pages_of, seconds_of, transcript_of

MODEL = "whisper-base"


def segment(start_s: float, end_s: float, text: str, language: str = "es") -> Segment:
    words = text.split()
    step_s = (end_s - start_s) / len(words)
    spoken = tuple(
        SpokenWord(word, start_s + index * step_s, start_s + (index + 1) * step_s, 0.5)
        for index, word in enumerate(words)
    )
    return Segment(start_s, end_s, text, spoken, language=language)


def transcript(*segments: Segment, duration_s: float, why: str = "") -> Transcript:
    return Transcript(duration_s, SpokenLanguage("es", 0.9), segments, why=why, model=MODEL)


def test_a_page_ends_with_the_segment_that_crosses_the_minute() -> None:
    """No segment is torn apart: the page of the second minute begins where the first one's last segment has ended."""
    pages = pages_of(
        transcript(
            segment(1, 4, "Hola a todos"), segment(58, 63, "la factura"), segment(64, 70, "llega"), duration_s=90
        )
    )

    assert [(1, 63.0, "Hola a todos\n\nla factura"), (2, 90.0, "llega")] == [
        (page.number, page.width, page.text) for page in pages
    ]
    assert [0.0, 0.0] == [page.height for page in pages]
    assert ["speech", "speech"] == [page.source for page in pages]


def test_words_are_written_together_as_they_were_heard() -> None:
    """A page has the text of its segments, and the segments of a page have it again."""
    words = tuple(
        SpokenWord(text, at, at + 1.0, 0.9, is_joined=at > 0) for at, text in enumerate(["東京", "です", "。"])
    )
    decoded = Segment(0.0, 3.0, "東京です。", words, language="ja")
    pages = pages_of(transcript(decoded, Segment(3.0, 4.0, "OK"), duration_s=5))
    [page] = pages
    first, _ = transcript_of(Document(KIND, tuple(pages), 1, "ab")).segments

    assert "東京です。\nOK" == page.text
    assert ["東京", "です", "。", "OK"] == [page.text[word.start : word.end] for word in page.words]
    assert (decoded.text, decoded.words) == (first.text, first.words)


def test_words_lie_on_the_axis_of_time() -> None:
    """The box of a span says from when to when it is spoken."""
    pages = pages_of(transcript(segment(1, 4, "Hola a todos"), segment(61, 65, "la factura"), duration_s=70))
    document = Document(KIND, tuple(pages), 2, "ab")
    start = document.text.index("factura")
    [place] = locate(document, start, start + 7)

    assert (2, Box(63.0, 0.0, 65.0, 1.0)) == (place.page, place.box)
    assert (63.0, 65.0) == seconds_of(place.box)


def test_minutes_are_final_as_soon_as_the_transcript_has_passed_them() -> None:
    """A long recording gives its pages while it is still transcribed, also silent ones."""
    minutes = MinutePages(MODEL)
    counts = [
        len(minutes.add([segment(2, 3, "uno")], 59.9)),
        len(minutes.add([], 60.0)),
        len(minutes.add([segment(200, 201, "dos")], 201.0)),
    ]
    last = minutes.finish(transcript(duration_s=205))

    assert [0, 1, 2] == counts
    assert [(4, "dos")] == [(page.number, page.text) for page in last]


def test_a_silent_recording_has_an_empty_page_that_says_why() -> None:
    """An empty transcript is an answer, with its reason."""
    [page] = pages_of(transcript(duration_s=10, why="it is silent"))

    assert ("", "nobody speaks here; it is silent", None, None) == (page.text, page.why, page.confidence, page.language)


def test_words_without_times_share_those_of_their_segment() -> None:
    """By their characters: what was not aligned has a place all the same."""
    [page] = pages_of(transcript(Segment(10.0, 20.0, "sí señora", language="es"), duration_s=30))

    assert [(10.0, 13.0), (13.0, 20.0)] == [(word.box.left, word.box.right) for word in page.words]


def test_pages_and_documents_survive_their_codec() -> None:
    """The cache, jobs and other replicas get what was transcribed, exactly."""
    pages = tuple(pages_of(transcript(segment(0.1, 0.7, "año 2024"), duration_s=61.3)))
    document = Document(KIND, pages, len(pages), "ab", {"duration_s": "61.3"})

    assert list(pages) == [unpack_page(pack_page(page)) for page in pages]
    assert document == unpack_document(pack_document(document))


def test_a_document_gives_its_segments_back() -> None:
    """Subtitles of a job are made of its pages."""
    segments = (segment(1, 4, "Hola a todos"), segment(58, 63, "la factura"), segment(64, 70, "llega"))
    pages = pages_of(transcript(*segments, duration_s=90))
    restored = transcript_of(Document(KIND, tuple(pages), 2, "ab"))

    assert segments == restored.segments
    assert (90.0, "es", MODEL) == (restored.duration_s, restored.language.code, restored.model)


@pytest.mark.parametrize(("duration_s", "expected"), [(0.0, 0), (0.1, 1), (60.0, 1), (60.1, 2), (3600.0, 60)])
def test_a_begun_minute_counts(duration_s: float, expected: int) -> None:
    assert expected == minutes_of(duration_s)
