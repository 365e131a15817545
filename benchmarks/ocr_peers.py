"""The OCR peers, each run in its own process.

    python -m benchmarks.ocr_peers rapidocr < paths.json    # started by the benchmark: seconds and texts as JSON

pytesseract returns words with boxes in one call per page (``image_to_data``), like our response; requesting the text
as well, as many do, doubles its time. Timing starts after a first, small page: models are loaded.
"""

import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.ocr_pages import slip

ROOT = Path(__file__).resolve().parents[1]
TEXT_CACHE = ROOT / "build" / "ocr_readings"  # peers are deterministic
LANGUAGES = "spa+eng"

ReadPage = Callable[[str], str]
ReadPages = Callable[[Sequence[str]], list[str]]


@dataclass(frozen=True, slots=True)
class OcrPeer:
    """A peer: its constructor, called inside its process, and that process's environment."""

    name: str
    make: Callable[[], ReadPages]
    env: Mapping[str, str]
    pages: int | None = None  # of the clean ones, where it takes so long that a rate is seen on a few


@dataclass(frozen=True, slots=True)
class OcrResult:
    """Duration and texts of a peer for some pages."""

    seconds: float
    texts: tuple[str, ...]


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _sequential(read: ReadPage) -> ReadPages:
    return lambda files: [read(file) for file in files]


def _pytesseract_loop() -> ReadPages:
    """As guides show it: one image after the other."""
    from PIL import Image  # each peer's process pays for its own libraries alone

    def read(file: str) -> str:
        with Image.open(file) as image:
            return _words(image)

    return _sequential(read)


def _pytesseract_pool() -> ReadPages:
    """As fast as possible: one tesseract process per core, each reading the file itself."""

    def read_all(files: Sequence[str]) -> list[str]:
        with ThreadPoolExecutor(cores()) as pool:
            return list(pool.map(_words, files))

    return read_all


def _words(image: Any) -> str:
    import pytesseract  # each peer's process pays for its own libraries alone

    data = pytesseract.image_to_data(image, lang=LANGUAGES, output_type=pytesseract.Output.DICT)
    return " ".join(word for word in data["text"] if word.strip())


def _rapidocr() -> ReadPages:
    from rapidocr import RapidOCR  # each peer's process pays for its own libraries alone
    from rapidocr.utils.output import RapidOCROutput

    engine = RapidOCR(params={"Global.log_level": "critical"})

    def read(file: str) -> str:
        output = engine(file)
        assert isinstance(output, RapidOCROutput), "detection and recognition are on"
        return "\n".join(output.txts or ())

    return _sequential(read)


_ONE_THREAD = {"OMP_THREAD_LIMIT": "1"}
PEERS: Mapping[str, OcrPeer] = {
    peer.name: peer
    for peer in (
        OcrPeer("pytesseract", _pytesseract_loop, {}, pages=2),
        OcrPeer("pytesseract-one-thread", _pytesseract_loop, _ONE_THREAD, pages=4),
        OcrPeer("pytesseract-pool", _pytesseract_pool, _ONE_THREAD),
        OcrPeer("rapidocr", _rapidocr, {}, pages=4),
    )
}


def versions() -> dict[str, str]:
    """Versions of all OCR packages. Raises: OSError without tesseract."""
    packages = {
        name: importlib.metadata.version(name) for name in ("pytesseract", "tesserocr", "rapidocr", "pypdfium2")
    }
    output = subprocess.run(["tesseract", "--version"], check=True, capture_output=True, text=True).stdout
    return {"tesseract": output.split("\n", 1)[0].removeprefix("tesseract "), **packages}


def run_in_subprocess(name: str, files: Sequence[Path]) -> OcrResult:
    """Run a peer on the files in a subprocess. Raises: RuntimeError with its stderr."""
    peer = PEERS[name]
    env = {key: value for key, value in os.environ.items() if key not in ("OMP_THREAD_LIMIT", "OMP_NUM_THREADS")}
    completed = subprocess.run(
        [sys.executable, "-m", "benchmarks.ocr_peers", name],
        input=json.dumps([str(file.resolve()) for file in files]),
        cwd=ROOT,
        env={**env, **peer.env},
        capture_output=True,
        text=True,
        check=False,
    )
    if completed.returncode:
        raise RuntimeError(f"{name} ended with status {completed.returncode}: {completed.stderr[-2000:]}")
    output = json.loads(completed.stdout)
    return OcrResult(output["seconds"], tuple(output["texts"]))


def cached_texts(name: str, files: Sequence[Path], version: str, folder: Path = TEXT_CACHE) -> list[str]:
    """A peer's texts of the files; known ones are taken from the cache in ``folder``."""
    cache_files = [folder / f"{name}-{version}" / f"{_digest(file)}.txt" for file in files]
    missing = [
        (file, cache_file) for file, cache_file in zip(files, cache_files, strict=True) if not cache_file.exists()
    ]
    if missing:
        texts = run_in_subprocess(name, [file for file, _ in missing]).texts
        for (_, cache_file), text in zip(missing, texts, strict=True):
            cache_file.parent.mkdir(parents=True, exist_ok=True)
            cache_file.write_text(text, encoding="utf-8")
    return [cache_file.read_text(encoding="utf-8") for cache_file in cache_files]


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def main() -> None:
    """Run the named peer on the paths from stdin; JSON on stdout."""
    files = json.load(sys.stdin)
    read_all = PEERS[sys.argv[1]].make()
    with tempfile.TemporaryDirectory() as folder:
        warm_up = Path(folder) / "slip.png"
        warm_up.write_bytes(slip(0).png)
        read_all([str(warm_up)])
    started_s = time.perf_counter()
    texts = read_all(files)
    json.dump({"seconds": time.perf_counter() - started_s, "texts": texts}, sys.stdout)


if __name__ == "__main__":
    main()
