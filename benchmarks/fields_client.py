"""HTTP client of the fields benchmark: sends files and texts, keeps what is scored of the answers."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.client import RequestRefused, ask
from benchmarks.fields_scores import Answer, read_answer

_FEATURES = "text,fields,tables"


@dataclass(frozen=True, slots=True)
class Reading:
    """What the service says of a file."""

    answer: Answer = field(default_factory=Answer)
    text: str = ""
    pages: int = 0
    fields_s: float = 0.0  # fields and tables alone, after the pages were read
    error: str = ""


def read_files(port: int, files: Sequence[Path]) -> list[Reading]:
    """One file at a time, so that the seconds are those of one document."""
    return [_read(port, file) for file in files]


def read_texts(port: int, texts: Sequence[str]) -> list[Answer]:
    """The fields of texts. A refused text answers nothing."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(partial(_read_text, port), texts))


def _read(port: int, file: Path) -> Reading:
    try:
        response = ask(port, f"/v1/documents?features={_FEATURES}", file.read_bytes())
    except RequestRefused as error:
        return Reading(error=str(error))
    return Reading(read_answer(response), response["text"], len(response["pages"]), response["timings"]["understand_s"])


def _read_text(port: int, text: str) -> Answer:
    try:
        return read_answer(ask(port, "/v1/fields", {"input": text}))
    except RequestRefused:
        return Answer()
