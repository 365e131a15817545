"""HTTP client of the speech benchmark: OpenAI's multipart request, one or many at once."""

import json
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.client import sent

TRANSCRIPTIONS = "/v1/audio/transcriptions"
_WAIT_S = 3600.0  # for a response; an hour of sound takes minutes
_BOUNDARY = "financia-benchmark-boundary"
_STAGE = re.compile(r"([a-z_]+);dur=([0-9.]+)")


@dataclass(frozen=True, slots=True)
class Answer:
    """A response, with the seconds it took and what the server says of them."""

    content: dict[str, Any]
    seconds: float
    stages_s: dict[str, float] = field(default_factory=dict)  # of Server-Timing


def multipart(file: Path, **fields: str) -> bytes:
    """The body of a request with a file and fields."""
    parts = [f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields.items()]
    head = f'Content-Disposition: form-data; name="file"; filename="{file.name}"\r\n\r\n'
    told = "".join(f"--{_BOUNDARY}\r\n{part}" for part in [*parts, head])
    return told.encode() + file.read_bytes() + f"\r\n--{_BOUNDARY}--\r\n".encode()


def transcribe(port: int, file: Path, **fields: str) -> Answer:
    """The answer to a file. Raises: RequestRefused."""
    body = multipart(file, **fields)
    started_s = time.perf_counter()
    media_type = f"multipart/form-data; boundary={_BOUNDARY}"
    with sent(port, TRANSCRIPTIONS, body, media_type=media_type, wait_s=_WAIT_S) as response:
        told = response.read()
    seconds = time.perf_counter() - started_s
    stages = {name: float(ms) / 1000 for name, ms in _STAGE.findall(response.headers["Server-Timing"] or "")}
    return Answer(json.loads(told), seconds, stages)


def transcribe_all(port: int, files: Sequence[Path], clients: int, **fields: str) -> list[Answer]:
    """Send files from ``clients`` concurrent clients, each waiting for its answers. Raises: RequestRefused."""
    with ThreadPoolExecutor(clients) as pool:
        return list(pool.map(lambda file: transcribe(port, file, **fields), files))
