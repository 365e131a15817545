"""Recordings to pages: transcribed, a page a minute, each as soon as its minute is final."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from backend.documents.records import DocumentEvent, DocumentOptions, EventCallback, ExtractedDocument
from backend.errors import InvalidField
from backend.files.pages import Document, Page
from backend.files.stored_file import StoredFile
from backend.lanes.inference import Urgency
from backend.speech.languages import language_code
from backend.speech.pages import KIND, MinutePages, minutes_of
from backend.speech.records import Transcription, TranscriptionEvent, TranscriptionOptions
from backend.speech.transcription import TranscriptionService

# Options that are about print, and their default: another value asks for what a recording does not have.
_OF_PRINT: tuple[tuple[str, Any, str], ...] = (
    ("pages", "", "a recording is transcribed as a whole; leave it out"),
    ("source", "auto", "a recording has no text layer; leave it out"),
    ("engine", "auto", "it names an OCR engine, and a recording is transcribed; leave it out"),
)


class RecordingExtractor:
    """`DocumentExtractor` for recordings. Used on the event loop only."""

    def __init__(self, speech: TranscriptionService) -> None:
        self._speech = speech

    async def extract(
        self,
        upload: StoredFile,
        options: DocumentOptions,
        urgency: Urgency,
        on_event: EventCallback,
        on_page: Callable[[Page], None],
    ) -> ExtractedDocument:
        """The minutes of a recording as pages.

        Args:
            upload: stays the caller's to close.
            on_page: called with each page as soon as it is final, before ``on_event``.

        Raises: InvalidField for options that are about print; what `TranscriptionService.transcribe` raises.
        """
        asked = transcription_options(options)
        on_event(DocumentEvent("opening"))
        progress = _Progress(MinutePages((self._speech.names or ("",))[0]), on_event, on_page)
        transcription = await self._speech.transcribe(upload, asked, urgency, progress.on_event)
        progress.finish(transcription)
        transcript = transcription.transcript
        metadata = {"duration_s": f"{transcript.duration_s:g}", "speech_s": f"{transcript.speech_s:g}"}
        document = Document(KIND, tuple(progress.pages), len(progress.pages), upload.sha256, metadata)
        return ExtractedDocument(document, (), 0, open_s=0.0, read_s=transcription.total_s, ocr_s=0.0)


class _Progress:
    """Turns what is heard into pages, and tells of them."""

    def __init__(self, minutes: MinutePages, on_event: EventCallback, on_page: Callable[[Page], None]) -> None:
        self.pages: list[Page] = []
        self._minutes, self._on_event, self._on_page = minutes, on_event, on_page
        self._total: int | None = None

    def on_event(self, event: TranscriptionEvent) -> None:
        total_s = event.total_s if event.total_s is not None else event.expected_s
        if total_s is not None:
            self._total = max(1, minutes_of(total_s))
        self._add(self._minutes.add(event.segments, event.done_s))

    def finish(self, transcription: Transcription) -> None:
        """The pages that are left."""
        last = self._minutes.finish(transcription.transcript)
        self._total = len(self.pages) + len(last)
        self._add(last)

    def _add(self, pages: list[Page]) -> None:
        for page in pages:
            self.pages.append(page)
            self._on_page(page)
            total = None if self._total is None else max(self._total, len(self.pages))
            self._on_event(DocumentEvent("reading", len(self.pages), total, page))


def transcription_options(options: DocumentOptions) -> TranscriptionOptions:
    """With the times of words, which entities and search hits have their places from.

    Raises: InvalidField for options that are about print, and for a language that no speech model knows.
    """
    for name, default, why in _OF_PRINT:
        if getattr(options, name) != default:
            raise InvalidField(f"{name}: {why}", param=name)
    codes = [_known_language(language) for language in options.languages]
    return TranscriptionOptions(language=codes[0] if len(codes) == 1 else None, with_words=True)


def _known_language(language: str) -> str:
    """Whisper's code of what OCR takes as a language, too: "spa" and "Spanish" are "es"."""
    code = language_code(language)
    if code is None:
        raise InvalidField(
            f"language: '{language}' is not one that speech is transcribed in; name it by ISO 639-1 (es), ISO 639-2 "
            "(spa) or in English, or leave it out: it is then heard",
            param="language",
        )
    return code
