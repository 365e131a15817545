"""Recordings as documents: minutes as pages, told while they are transcribed, understood and kept like others."""

from dataclasses import replace
from typing import Any

import pytest

from backend.documents.recordings import RecordingExtractor
from backend.documents.records import DocumentEvent, DocumentOptions
from backend.errors import InvalidField
from backend.files.pages import Page
from backend.files.speech_records import Segment, SpokenLanguage, Transcript
from backend.files.stored_file import StoredFile
from backend.jobs.document_codec import option_fields, pack_answer, unpack_answer
from backend.lanes.inference import Urgency
from backend.speech.records import Transcription, TranscriptionEvent, TranscriptionOptions
from tests.documents.conftest import LIMITS, DocumentsFixture

WAV = b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00"
SEGMENTS = (
    Segment(1.0, 4.0, "Escriba a ana@example.com hoy", language="es"),
    Segment(58.0, 63.0, "y pague la factura", language="es"),
    Segment(130.0, 131.0, "Gracias", language="es"),
)
TRANSCRIPT = Transcript(150.0, SpokenLanguage("es", 0.9), SEGMENTS, speech_s=9.0, model="whisper-test")


class ScriptedSpeech:
    """Stands for `TranscriptionService`: hears ``SEGMENTS``, one an event."""

    names = ("whisper-test",)

    def __init__(self) -> None:
        self.asked: list[TranscriptionOptions] = []
        self.expected_s: float | None = None

    async def transcribe(
        self, upload: StoredFile, options: TranscriptionOptions, urgency: Urgency, on_event: Any
    ) -> Transcription:
        self.asked.append(options)
        for segment in SEGMENTS:
            on_event(TranscriptionEvent(segment.end_s, None, (segment,), expected_s=self.expected_s))
        on_event(TranscriptionEvent(150.0, 150.0))
        return Transcription(TRANSCRIPT, 0.1, 0.2, 0.3)


@pytest.fixture
def speech(documents: DocumentsFixture) -> ScriptedSpeech:
    scripted: Any = ScriptedSpeech()
    documents.service._recordings = RecordingExtractor(scripted)
    return scripted  # type: ignore[no-any-return]


async def test_minutes_are_told_while_they_are_transcribed(speech: ScriptedSpeech) -> None:
    """Each page before its event; how many there are is known at the end."""
    pages: list[Page] = []
    events: list[DocumentEvent] = []
    stored = StoredFile.of(WAV, LIMITS)
    extractor = RecordingExtractor(speech)  # type: ignore[arg-type]
    extracted = await extractor.extract(stored, DocumentOptions(), Urgency(), events.append, pages.append)
    document = extracted.document

    assert [(1, 63.0), (2, 120.0), (3, 150.0)] == [(page.number, page.width) for page in pages]
    assert [(0, None), (1, None), (2, None), (3, 3)] == [(event.pages_done, event.pages_total) for event in events]
    assert ("audio", 3, tuple(pages), stored.sha256) == (
        document.kind,
        document.page_count,
        document.pages,
        document.sha256,
    )
    assert {"duration_s": "150", "speech_s": "9"} == document.metadata


@pytest.mark.parametrize(
    ("expected_s", "totals"),
    [(150.0, [3, 3, 3]), (60.0, [1, 2, 3]), (600.0, [10, 10, 3])],
    ids=["right", "less", "more"],
)
async def test_minutes_are_counted_against_what_the_file_says(
    speech: ScriptedSpeech, expected_s: float, totals: list[int]
) -> None:
    """Before its end was decoded; that says how many there are."""
    speech.expected_s = expected_s
    events: list[DocumentEvent] = []
    stored = StoredFile.of(WAV, LIMITS)
    extractor = RecordingExtractor(speech)  # type: ignore[arg-type]
    await extractor.extract(stored, DocumentOptions(), Urgency(), events.append, lambda _page: None)

    assert totals == [event.pages_total for event in events if event.page is not None]


async def test_entities_have_their_seconds(documents: DocumentsFixture, speech: ScriptedSpeech) -> None:
    """Through the boxes of words; what needs a layout is skipped, and that is said."""
    answer = await documents.process(WAV, features=frozenset({"entities", "tables", "fields", "language"}))
    [email] = [placed for placed in answer.understood.entities if placed.entity.text == "ana@example.com"]
    [place] = email.places

    assert 1.0 < place.box.left < place.box.right < 4.0
    assert (0.0, 1.0) == (place.box.top, place.box.bottom)
    assert ["fields", "tables"] == [skipped.feature for skipped in answer.understood.skipped]
    assert (None, ()) == (answer.understood.fields, answer.understood.tables)
    assert "es" == answer.understood.language.code
    assert speech.asked[0].with_words


async def test_a_job_keeps_a_recording_exactly(documents: DocumentsFixture, speech: ScriptedSpeech) -> None:
    """What another replica answers with is what this one has heard."""
    answer = await documents.process(WAV, features=frozenset({"entities", "tables", "text"}))
    restored = unpack_answer(pack_answer(answer), option_fields(answer.options))

    assert replace(answer, options=restored.options) == restored


@pytest.mark.parametrize("option", [{"pages": "1-2"}, {"engine": "tesseract"}, {"source": "ocr"}])
async def test_options_about_print_are_refused(
    documents: DocumentsFixture, speech: ScriptedSpeech, option: dict[str, Any]
) -> None:
    """An explicit wish is never ignored."""
    with pytest.raises(InvalidField, match=next(iter(option))):
        await documents.process(WAV, **option)

    assert [] == speech.asked


async def test_the_language_of_the_request_is_the_one_spoken(
    documents: DocumentsFixture, speech: ScriptedSpeech
) -> None:
    """One of them; of several it is found."""
    await documents.process(WAV, languages=("es",), features=frozenset({"text"}))
    await documents.process(WAV, languages=("es", "en"), features=frozenset({"text"}))
    for spelling in ("spa", "Spanish", "es-MX"):
        await documents.process(WAV, languages=(spelling,), features=frozenset({"text"}))

    assert ["es", None, "es", "es", "es"] == [options.language for options in speech.asked]
