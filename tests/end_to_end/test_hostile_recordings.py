"""Hostile recordings against the real service: a transcript or a clear refusal, soon, and it serves on."""

import csv
import time
from pathlib import Path

import httpx
import pytest

from tests.conftest import DATA_DIR

NASTY = DATA_DIR / "speech" / "nasty"
MUST = {"nasty-ok": {200}, "nasty-any": {200, 413, 415, 422}, "nasty-error": {400, 413, 415, 422}}
MAX_S = 90.0  # on a machine that does other things; alone the longest takes four


def kinds() -> dict[str, str]:
    """What each file must answer."""
    table = NASTY.parent / "transcripts.tsv"
    if not table.is_file():
        return {}
    with table.open(encoding="utf-8") as lines:
        return {row["file"]: row["kind"] for row in csv.DictReader(lines, delimiter="\t") if "nasty" in row["kind"]}


KINDS = kinds()


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", KINDS)
def test_transcription(client: httpx.Client, name: str):
    """The status that the kind of file allows; a refusal is a problem document that speaks of the file."""
    path: Path = NASTY.parent / name
    began_s = time.monotonic()
    answer = client.post("/v1/audio/transcriptions", files={"file": (path.name, path.read_bytes())}, timeout=2 * MAX_S)

    assert answer.status_code in MUST[KINDS[name]]
    assert time.monotonic() - began_s < MAX_S
    if answer.status_code == 200:
        assert isinstance(answer.json()["text"], str)
    else:
        assert "application/problem+json" == answer.headers["content-type"]
        assert "file" in answer.json()["detail"]
    assert 200 == client.get("/health/live").status_code
