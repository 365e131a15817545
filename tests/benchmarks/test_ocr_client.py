"""The client: files as bodies, fields in the query, events until the first page."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from benchmarks.ocr_client import Refused, events, first_page_s, read, read_all


class StandIn(BaseHTTPRequestHandler):
    """A service that reads every file as its own bytes."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        url = urlsplit(self.path)
        file = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.seen.append(("POST", url.path, file, parse_qs(url.query)))
        if url.path not in self.server.paths:
            self._answer(404, {"detail": "no such route"})
        else:
            self._answer(202 if url.path == "/v1/jobs" else 200, {"id": "j1", "text": file})

    def do_GET(self):
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"retry: 2000\n\n" + self.server.told)

    def do_DELETE(self):
        self.server.seen.append(("DELETE", self.path, "", {}))
        self._answer(200, {})

    def _answer(self, status, fields):
        body = json.dumps(fields).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        """Tests print nothing."""


@pytest.fixture
def service():
    """A stand-in that listens."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), StandIn)
    server.seen, server.told, server.paths = [], b"", {"/v1/ocr", "/v1/jobs"}
    server.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_file_is_the_body(service):
    """Fields travel in the query, one of two languages with its comma."""
    answer = read(service.port, b"a page", language="es,en", engine="auto")

    assert "a page" == answer["text"]
    assert [("POST", "/v1/ocr", "a page", {"language": ["es,en"], "engine": ["auto"]})] == service.seen


def test_answers_come_in_the_order_of_the_files(service):
    """However many are under way."""
    files = [f"page {number}".encode() for number in range(20)]

    answers = read_all(service.port, files, 4)

    assert [file.decode() for file in files] == [answer["text"] for answer in answers]


def test_a_refusal_says_what_was_said(service):
    """A refusal is quick and would look like speed."""
    service.paths.clear()

    with pytest.raises(Refused, match=r"/v1/ocr answered 404.*no such route"):
        read_all(service.port, [b"a page"], 2)


def test_the_first_page_of_a_job(service):
    """Seconds until its event; the rest of the job is not waited for."""
    service.told = b'event: progress\ndata: {}\n\n: still here\n\nevent: page\ndata: {"number":1}\n\nevent: end\n\n'

    assert first_page_s(service.port, b"a scan", features="text") > 0
    assert [("POST", "/v1/jobs"), ("DELETE", "/v1/jobs/j1")] == [seen[:2] for seen in service.seen]


def test_a_job_without_a_page_is_no_number(service):
    """It failed, and did so fast."""
    service.told = b"event: progress\ndata: {}\n\nevent: end\ndata: {}\n\n"

    with pytest.raises(RuntimeError, match="before a page"):
        first_page_s(service.port, b"a scan")


def test_event_names():
    """Data that looks like an event is none."""
    assert ["page", "end"] == list(events(iter([b"event: page\n", b"data: event: no\n", b"\n", b"event:end\n"])))
