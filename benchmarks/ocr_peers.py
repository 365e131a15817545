"""The readers of pages that are compared, each in a process of its own that does nothing else.

    python -m benchmarks.ocr_peers rapidocr < paths.json    # what the benchmark starts: seconds and texts as JSON

pytesseract is asked for words with their boxes in one call a page (``image_to_data``), which is what our answer holds;
asking for the text as well, as many do, doubles its time. The clock starts when one page has been read: models are
loaded, files are in memory.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
READINGS = ROOT / "build" / "ocr_readings"  # peers read the same page the same way every time
LANGUAGES = "spa+eng"

Read = Callable[[str], str]
ReadAll = Callable[[Sequence[str]], list[str]]


@dataclass(frozen=True, slots=True)
class Reader:
    """A peer: how it is made inside its process, and what that process's environment says."""

    name: str
    make: Callable[[], ReadAll]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a peer gave for some pages."""

    seconds: float
    texts: tuple[str, ...]


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_a_loop(read: Read) -> ReadAll:
    return lambda files: [read(file) for file in files]


def _pytesseract_loop() -> ReadAll:
    """As guides show it: open the image, hand it over, take the next one."""
    from PIL import Image  # each peer's process pays for its own libraries alone

    def read(file: str) -> str:
        with Image.open(file) as image:
            return _words(image)

    return _in_a_loop(read)


def _pytesseract_pool() -> ReadAll:
    """At its best: as many programs at once as there are cores, each reading the file itself."""

    def read_all(files: Sequence[str]) -> list[str]:
        with ThreadPoolExecutor(cores()) as pool:
            return list(pool.map(_words, files))

    return read_all


def _words(image: Any) -> str:
    import pytesseract  # each peer's process pays for its own libraries alone

    seen = pytesseract.image_to_data(image, lang=LANGUAGES, output_type=pytesseract.Output.DICT)
    return " ".join(word for word in seen["text"] if word.strip())


def _rapidocr() -> ReadAll:
    from rapidocr import RapidOCR  # each peer's process pays for its own libraries alone
    from rapidocr.utils.output import RapidOCROutput

    engine = RapidOCR(params={"Global.log_level": "critical"})

    def read(file: str) -> str:
        seen = engine(file)
        assert isinstance(seen, RapidOCROutput), "detection and recognition are on"
        return "\n".join(seen.txts or ())

    return _in_a_loop(read)


_ONE_THREAD = {"OMP_THREAD_LIMIT": "1"}
READERS: Mapping[str, Reader] = {
    one.name: one
    for one in (
        Reader("pytesseract", _pytesseract_loop, {}),
        Reader("pytesseract-one-thread", _pytesseract_loop, _ONE_THREAD),
        Reader("pytesseract-pool", _pytesseract_pool, _ONE_THREAD),
        Reader("rapidocr", _rapidocr, {}),
    )
}


def versions() -> dict[str, str]:
    """Of everything that reads. Raises: OSError when there is no tesseract to compare with."""
    found = {name: importlib.metadata.version(name) for name in ("pytesseract", "tesserocr", "rapidocr", "pypdfium2")}
    said = subprocess.run(["tesseract", "--version"], check=True, capture_output=True, text=True).stdout
    return {"tesseract": said.split("\n", 1)[0].removeprefix("tesseract "), **found}


def read_apart(name: str, files: Sequence[Path]) -> Reading:
    """Let a peer read the files. Raises: RuntimeError with what it said when it fails."""
    reader = READERS[name]
    env = {key: value for key, value in os.environ.items() if key not in ("OMP_THREAD_LIMIT", "OMP_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.ocr_peers", name],
        input=json.dumps([str(file.resolve()) for file in files]),
        cwd=ROOT,
        env={**env, **reader.env},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{name} ended with status {done.returncode}: {done.stderr[-2000:]}")
    said = json.loads(done.stdout)
    return Reading(said["seconds"], tuple(said["texts"]))


def kept_texts(name: str, files: Sequence[Path], version: str, folder: Path = READINGS) -> list[str]:
    """A peer's texts of the files; what it has read before is taken from ``folder``."""
    places = [folder / f"{name}-{version}" / f"{_digest(file)}.txt" for file in files]
    missing = [(file, place) for file, place in zip(files, places, strict=True) if not place.exists()]
    if missing:
        texts = read_apart(name, [file for file, _ in missing]).texts
        for (_, place), text in zip(missing, texts, strict=True):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
    return [place.read_text(encoding="utf-8") for place in places]


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def main() -> None:
    """Read the paths on stdin with the reader named; JSON on stdout."""
    files = json.load(sys.stdin)
    read_all = READERS[sys.argv[1]].make()
    read_all(files[:1])
    started_s = time.perf_counter()
    texts = read_all(files)
    json.dump({"seconds": time.perf_counter() - started_s, "texts": texts}, sys.stdout)


if __name__ == "__main__":
    main()
