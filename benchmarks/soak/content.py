"""What the soak asks, and what is right: texts and files with answers known beforehand. Pure."""

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import numpy as np
import orjson

from benchmarks.machine import ROOT
from benchmarks.ocr_pages import digital_pdf, scanned_pdf, slip
from benchmarks.texts import distinct_texts

_RECORDING = ROOT / "tests" / "clients" / "data" / "jfk.ogg"
TAUGHT = "soak-taught"  # the classifier that all replicas share: the first that starts brings it from STATE_DIR
LABELS = ("factura", "contrato", "extracto bancario", "reclamación")
_EXAMPLES = {
    "payment": ["The invoice is due in March.", "La factura vence en marzo.", "Pay 30 EUR.", "Se abonará el importe."],
    "other": ["The office opens at nine.", "Abrimos a las nueve.", "It rained in Bilbao.", "La reunión fue breve."],
}
_MIN_COSINE = 0.9999  # batch equals single (backend/ARCHITECTURE.md)
_MAX_SCORE_DIFFERENCE = 0.01
_TEXTS = 32
_FEATURES = "text,language,classes,entities"
JSON = {"Content-Type": "application/json"}
BYTES = {"Content-Type": "application/octet-stream"}


@dataclass(frozen=True, slots=True)
class Question:
    """One request; ``answer_key`` names its expected answer."""

    kind: str
    path: str
    body: bytes
    headers: Mapping[str, str]
    answer_key: str
    method: str = "POST"


def known_texts() -> tuple[str, ...]:
    """Texts that come again and again: after the first time the cache knows them."""
    return distinct_texts(_TEXTS)


def known_files() -> dict[str, bytes]:
    """Files of known content: small scans, and PDFs of scans and of text."""
    files = {f"slip-{number}": slip(number).png for number in range(4)}
    files["scanned-2"] = scanned_pdf([slip(10).png, slip(11).png])
    files["scanned-4"] = scanned_pdf([slip(number).png for number in range(20, 24)])
    files["digital-5"] = digital_pdf("soak", 5)
    return files


PAGES: Mapping[str, int] = {"scanned-2": 2, "scanned-4": 4, "digital-5": 5, **{f"slip-{n}": 1 for n in range(4)}}


def question_of(kind: str, text: str, answer_key: str = "") -> Question:
    """A request of one small text."""
    bodies: dict[str, tuple[str, dict[str, Any]]] = {
        "embeddings": ("/v1/embeddings", {"input": text, "encoding_format": "base64"}),
        "entities": ("/v1/entities", {"input": text}),
        "classify": ("/v1/classify", {"input": text, "model": TAUGHT}),
        "zero-shot": ("/v1/classify", {"input": text, "labels": LABELS}),
    }
    path, fields = bodies[kind]
    return Question(kind, path, orjson.dumps(fields), JSON, answer_key or f"{kind}:{text}")


def scan_of(name: str, file: bytes, nonce: str) -> Question:
    """A small scan or PDF to be read at once; the nonce makes it new to every cache."""
    path = f"/v1/documents?{urlencode({'features': _FEATURES})}"
    return Question("scan", path, marked(file, nonce), BYTES, f"file:{name}")


def recording_of(nonce: str) -> Question:
    """Eleven seconds of speech, new to every cache."""
    path = f"/v1/audio/transcriptions?{urlencode({'language': 'en'})}"
    return Question("speech", path, _RECORDING.read_bytes() + nonce.encode("ascii"), BYTES, "speech")


def job_of(name: str, file: bytes, nonce: str, *, deadline_s: float) -> Question:
    """The same in the background. Its Idempotency-Key lets a client send it again after a lost answer."""
    path = f"/v1/jobs?{urlencode({'features': _FEATURES, 'deadline_s': deadline_s})}"
    return Question("job", path, marked(file, nonce), {**BYTES, "Idempotency-Key": nonce}, f"file:{name}")


def lesson(name: str) -> Question:
    """Teaches a classifier."""
    body = orjson.dumps({"labels": _EXAMPLES})
    return Question("learn", f"/v1/classifiers/{name}", body, JSON, "", "PUT")


def marked(file: bytes, nonce: str) -> bytes:
    """The same pages in a file that no cache and no job knows: a comment after a PDF, a text chunk in a PNG."""
    if file.startswith(b"%PDF"):
        return file + f"% {nonce}\n".encode("ascii")
    end = file.rindex(b"IEND") - 4
    chunk = b"tEXt" + f"Comment\x00{nonce}".encode("latin-1")
    framed = (len(chunk) - 4).to_bytes(4, "big") + chunk + zlib.crc32(chunk).to_bytes(4, "big")
    return file[:end] + framed + file[end:]


def essence(kind: str, answer: Mapping[str, Any]) -> Any:
    """What of an answer must be right: the vector, entities, classes, or all of a document."""
    if kind == "embeddings":
        return np.frombuffer(base64.b64decode(answer["data"][0]["embedding"]), "<f4")
    if kind == "entities":
        return _entities(answer["data"][0]["entities"])
    if kind in ("classify", "zero-shot"):
        return _classes(answer["data"][0])
    if kind == "speech":
        return answer["text"]
    pages = {page["number"]: page["text"] for page in answer["pages"]}
    return {
        "pages": pages,
        "text": answer["text"],
        "language": answer["language"]["code"],
        "classes": _classes(answer["classes"]),
        "entities": _entities(answer["entities"]),
    }


def judged(kind: str, body: bytes, expected: Any) -> tuple[str, Any]:
    """What is wrong with an answer (empty where nothing is), and its essence.

    Args:
        expected: None where the right answer is not known yet.
    """
    try:
        got = essence(kind, orjson.loads(body))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        return f"not of the documented shape ({error!r}): {body[:200]!r}", None
    return "" if expected is None else difference(expected, got), got


def difference(expected: Any, got: Any) -> str:
    """What is wrong with an answer's essence; empty where nothing is."""
    if isinstance(expected, np.ndarray):
        return _vector_difference(expected, got)
    if isinstance(expected, dict):
        parts = ((name, difference(value, got.get(name))) for name, value in expected.items())
        return "; ".join(f"{name}: {fault}" for name, fault in parts if fault)
    if isinstance(expected, float):
        near = isinstance(got, float) and abs(expected - got) <= _MAX_SCORE_DIFFERENCE
        return "" if near else f"expected {expected:.4f}, got {got}"
    return "" if expected == got else f"expected {_short(expected)}, got {_short(got)}"


def _vector_difference(expected: np.ndarray, got: np.ndarray) -> str:
    if expected.shape != got.shape or not np.isfinite(got).all():
        return f"expected {expected.shape} numbers, got {got.shape}, all finite: {bool(np.isfinite(got).all())}"
    cosine = float(expected @ got / (np.linalg.norm(expected) * np.linalg.norm(got) or 1.0))
    return "" if cosine >= _MIN_COSINE else f"cosine {cosine:.6f} to the right vector"


def _entities(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row.get(name) for name in ("type", "text", "start", "end", "value")) for row in rows]


def _classes(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"prediction": item["prediction"], **{row["label"]: float(row["score"]) for row in item["predictions"]}}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}…"


def hostile_files() -> tuple[bytes, ...]:
    """Files that no parser can read, or that ask for more than there is; each must get a clear 4xx, or be read."""
    png, pdf = slip(0).png, digital_pdf("hostile", 2)
    huge = png[:16] + (60_000).to_bytes(4, "big") * 2 + png[24:]
    loop = pdf.replace(b"/Kids[4 0 R", b"/Kids[2 0 R")
    bomb = b"%PDF-1.4\n1 0 obj\n<</Type/Catalog/Pages 2 0 R>>\nendobj\n2 0 obj\n<</Type/Pages/Count 99999999/Kids[]>>"
    return (
        bytes(range(256)) * 64,
        png[: len(png) // 2],
        huge,
        pdf[: len(pdf) // 3],
        pdf.replace(b"endstream", b"endstrexm"),
        loop,
        bomb + b"\nendobj\ntrailer\n<</Root 1 0 R>>\n%%EOF",
        b"\xff\xd8\xff\xe0" + b"\x00" * 2000,
        b"II*\x00" + b"\xff" * 400,
        b"PK\x03\x04" + b"\x00" * 100,
        b"%PDF-1.7\n" + b"[" * 100_000,
    )
