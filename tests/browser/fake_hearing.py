"""A fake of ``POST /v1/audio/transcriptions`` for the page: its events, one by one or at once, driven by the test."""

import asyncio
import io
import json
import math
import wave
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

SPOKEN = (
    (0.4, "es", "La factura vence el treinta y uno de marzo."),
    (3.0, "es", "Llame a María, por favor."),
    (5.0, "en", "Thank you, I will pay it tomorrow."),
)
LENGTH_S = 8.0
_WORD_S = 0.25


def segment(index: int) -> dict[str, Any]:
    """One of the events; every word lasts a quarter of a second, and the last of each is a doubtful one."""
    start, language, text = SPOKEN[index]
    texts = text.split()
    words = [
        {
            "word": word,
            "start": round(start + place * _WORD_S, 3),
            "end": round(start + (place + 1) * _WORD_S, 3),
            "confidence": 0.31 if place == len(texts) - 1 else 0.97,
        }
        for place, word in enumerate(texts)
    ]
    return {
        "type": "transcript.text.delta", "delta": text if index == 0 else f" {text}", "start": start,
        "end": words[-1]["end"], "language": language, "duration": LENGTH_S, "words": words,
    }  # fmt: skip


def whole(count: int = len(SPOKEN), **members: Any) -> dict[str, Any]:
    """The last event."""
    text = " ".join(text for _, _, text in SPOKEN[:count])
    languages = list(dict.fromkeys(language for _, language, _ in SPOKEN[:count]))
    return {
        "type": "transcript.text.done", "task": "transcribe", "language": "spanish" if count else "unknown",
        "duration": LENGTH_S, "text": text, "languages": [{"code": code} for code in languages],
        "language_score": 0.93, "speech_s": 6.5, "dropped": [], "why": "", "model": "whisper-base",
    } | members  # fmt: skip


def minutes(*, why: str = "") -> dict[str, Any]:
    """What makes a document of a recording: two minutes, a passage and two."""
    pages = []
    for number, indices in ((1, (0,)), (2, (1, 2))):
        words: list[dict[str, Any]] = []
        text = ""
        for line, index in enumerate(indices):
            for place, word in enumerate(segment(index)["words"]):
                text += (" " if place else "\n" * bool(line)) + word["word"]
                start = len(text) - len(word["word"])
                times = {"start_s": word["start"] + 60 * (number - 1), "end_s": word["end"] + 60 * (number - 1)}
                rest = {"confidence": word["confidence"], "start": start, "end": len(text), "line": line, "block": 0}
                words.append({"text": word["word"], **times, **rest})
        done = "whisper-base transcribed what is said" + (f"; {why}" if why and number == 2 else "")
        pages.append(
            {
                "number": number, "start_s": 60.0 * (number - 1), "end_s": 60.0 * number, "source": "speech",
                "why": done, "engine": "whisper-base", "confidence": 0.9, "language": SPOKEN[indices[-1]][1],
                "text": text, "words": words, "width": 60.0 * number, "height": 0.0,
            }
        )  # fmt: skip
    metadata = {"duration_s": "120", "speech_s": "6.5"}
    text = "\n\f".join(page["text"] for page in pages)
    return {"kind": "audio", "page_count": 2, "pages": pages, "text": text, "metadata": metadata, "entities": []}


def tone(seconds: float = LENGTH_S, *, times: int = 1) -> bytes:
    """A recording that every browser plays; the same again and again."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        samples = (round(2000 * math.sin(index / 5)) for index in range(round(8000 * seconds)))
        sound.writeframes(times * b"".join(sample.to_bytes(2, "little", signed=True) for sample in samples))
    return file.getvalue()


@dataclass
class FakeHearing:
    """Hears `SPOKEN` in any file. ``step_by_step``: a segment each time that the test calls."""

    installed: bool = True
    step_by_step: bool = False
    done: dict[str, Any] = field(default_factory=whole)
    segments: int = len(SPOKEN)
    refusals: list[Response] = field(default_factory=list)  # answers to the next requests, instead of a stream
    ends: list[dict[str, Any]] = field(default_factory=list)  # last events of the next streams after one segment
    cuts: int = 0  # streams that break off after one segment
    forms: list[dict[str, Any]] = field(default_factory=list)  # of every request: its fields, its file's name and size
    left: int = 0  # clients that went before the end
    guard: Callable[[Request], Response | None] = lambda request: None

    def __post_init__(self) -> None:
        self._steps = asyncio.Semaphore(0)

    def models(self) -> list[dict[str, Any]]:
        return [{"id": "whisper-base", "task": "speech"}] if self.installed else []

    def step(self) -> None:
        """Let one more event out."""
        self._steps.release()

    async def transcribe(self, request: Request) -> Response:
        async with request.form() as form:
            fields: dict[str, Any] = {name: value for name, value in form.items() if isinstance(value, str)}
            upload: Any = form["file"]
            content = await upload.read()
        if refused := self.guard(request):
            return refused
        self.forms.append({**fields, "name": upload.filename, "content": content})
        if self.refusals:
            return self.refusals.pop(0)
        return StreamingResponse(self._events(), media_type="text/event-stream")

    async def _events(self) -> AsyncIterator[str]:
        ended = False
        try:
            yield ": still here\n\n"
            for index in range(self.segments):
                if self.step_by_step:
                    await self._steps.acquire()
                yield _data(segment(index))
                if self.ends:
                    yield _data(self.ends.pop(0))
                    ended = True
                    return
                if self.cuts:
                    self.cuts -= 1
                    ended = True
                    return
            if self.step_by_step:
                await self._steps.acquire()
            ended = True
            yield _data(self.done)
        finally:
            self.left += not ended


def _data(event: dict[str, Any]) -> str:
    return f"data: {json.dumps(event)}\n\n"
