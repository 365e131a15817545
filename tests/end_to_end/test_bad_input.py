"""Broken and hostile uploads to the running service, and that they leave nothing behind."""

import io
import json
import socket
from concurrent.futures import ThreadPoolExecutor

import httpx
import pikepdf
import pytest
from PIL import Image

from tests.clients.server import LiveServer
from tests.end_to_end.client import MARKS, Footprint, answer_of, footprint, metric, problem_of, send, wait_until
from tests.end_to_end.invoices import ENGLISH, SPANISH, scanned
from tests.files.pdfs import encoded, pdf, text

pytestmark = MARKS
BOUNDARY = "vQ7"
CHUNK = b"x" * 2**20
LIMIT_FILE_BYTES = 100 * 2**20
_KEPT_BYTES = 200 * 2**20  # that allocators may keep after everything below


@pytest.fixture(scope="module", autouse=True)
def before(served: LiveServer) -> Footprint:
    """The footprint after each engine has recognised a page and both reader processes have started."""
    with served.client() as client:
        for engine in ("tesseract", "pytesseract", "rapidocr"):
            answer_of(client, scanned([SPANISH.strip, ENGLISH.strip]), engine=engine)
    return footprint(served)


def connected(served: LiveServer, *head: str) -> socket.socket:
    """A connection on which the head of an upload was sent."""
    url = httpx.URL(served.url)
    connection = socket.create_connection((url.host, url.port or 80), timeout=60)
    lines = ["POST /v1/documents HTTP/1.1", "Host: test", *head]
    connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
    return connection


def part(content: bytes) -> bytes:
    """The beginning of a form with this file."""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.pdf"\r\n\r\n'
    return head.encode() + content


def status_of(connection: socket.socket) -> tuple[int, bytes]:
    with connection.makefile("rb") as stream:
        status, length = int(stream.readline().split()[1]), 0
        while (line := stream.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return status, stream.read(length)


FORM = f"Content-Type: multipart/form-data; boundary={BOUNDARY}"


def test_an_upload_that_is_cut_off(served: LiveServer, client: httpx.Client) -> None:
    """Half a form, then the client is gone: the next upload works."""
    for _ in range(5):
        with connected(served, FORM, "Content-Length: 3000000") as connection:
            connection.sendall(part(ENGLISH.digital + CHUNK))
    assert answer_of(client, ENGLISH.digital, features="text")["text"]


def test_an_endless_upload_is_refused_at_the_byte_that_is_too_many(served: LiveServer, client: httpx.Client) -> None:
    """In chunks, without a known length: 413 before the end, and the memory is freed."""
    before = footprint(served).memory_bytes
    with connected(served, "Content-Type: application/pdf", "Transfer-Encoding: chunked") as connection:
        sent = 0
        try:
            for _ in range(150):
                connection.sendall(b"100000\r\n" + CHUNK + b"\r\n")
                sent += len(CHUNK)
        except OSError:
            pass  # the service closed the connection
        status, answer = status_of(connection)

    assert (413, "too_large") == (status, json.loads(answer)["code"])
    assert sent > LIMIT_FILE_BYTES - 16 * 2**20
    assert 200 == client.get("/health/ready").status_code
    wait_until(client, lambda: footprint(served).memory_bytes < before + 64 * 2**20, "the upload stays in memory")


def test_a_connection_after_a_refusal(served: LiveServer) -> None:
    """The rest of a refused upload is not taken for a request; the next request is answered."""
    smuggled = b"DELETE /v1/classifiers/default HTTP/1.1\r\nHost: test\r\n\r\n"
    length = LIMIT_FILE_BYTES + 2**22
    with connected(served, FORM, f"Content-Length: {length}") as connection:
        status, _ = status_of(connection)
        connection.sendall((smuggled * (length // len(smuggled) + 1))[:length])
        connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: test\r\n\r\n")
        next_status, _ = status_of(connection)

    assert (413, 200) == (status, next_status)


def nested(times: int) -> bytes:
    """A PDF whose form draws itself ``times`` times, recursively."""
    file = pikepdf.new()
    page = file.add_blank_page(page_size=(300, 200))
    form = file.make_stream(
        b"/F Do " * times, Type=pikepdf.Name.XObject, Subtype=pikepdf.Name.Form, BBox=[0, 0, 300, 200]
    )
    form.Resources = pikepdf.Dictionary(XObject=pikepdf.Dictionary(F=form))
    page.Resources = pikepdf.Dictionary(XObject=pikepdf.Dictionary(F=form))
    page.Contents = file.make_stream(b"/F Do")
    target = io.BytesIO()
    file.save(target)
    return target.getvalue()


def attached() -> bytes:
    """A PDF in a PDF in a PDF."""
    inner = ENGLISH.digital
    for _ in range(3):
        with pikepdf.open(io.BytesIO(pdf(text(b"See the attached file")))) as file:
            file.attachments["inner.pdf"] = inner
            target = io.BytesIO()
            file.save(target)
            inner = target.getvalue()
    return inner


def test_pdfs_within_pdfs(client: httpx.Client) -> None:
    """One that draws itself is limited; of one with attachments the own pages are used."""
    assert 200 == send(client, nested(1)).status_code
    assert "See the attached file" == answer_of(client, attached())["text"].strip()


def test_a_picture_that_is_cut_off(client: httpx.Client) -> None:
    """The readable part is processed, and the answer says that it is incomplete."""
    document = answer_of(client, ENGLISH.png[: len(ENGLISH.png) // 4], features="text")

    assert "Northwind Supplies Ltd" in document["text"]
    assert "GB82" not in document["text"]
    assert "cut off or damaged" in document["pages"][0]["why"]


def test_a_client_that_leaves_during_ocr(served: LiveServer, client: httpx.Client) -> None:
    body = part(scanned([SPANISH.strip, ENGLISH.strip] * 20)) + f"\r\n--{BOUNDARY}--\r\n".encode()
    series = 'financia_pages_total{source="ocr"}'
    before = metric(client, series)
    with connected(served, FORM, f"Content-Length: {len(body)}") as connection:
        connection.sendall(body)
        wait_until(client, lambda: metric(client, series) > before, "no page was recognised")
    recognised = metric(client, series)
    for height_px in (500, 501, 502):  # each is new to the cache
        answer_of(client, scanned([ENGLISH.scan.crop((0, 0, ENGLISH.scan.width, height_px))]), features="text")

    assert metric(client, series) <= recognised + 3 + 2, "beside the three, the pages that ran when the client left"


def test_hostile_files_beside_good_ones(served: LiveServer) -> None:
    """Eight at once: each good one gets its answer, each bad one an error, at its deadline at the latest."""
    good = [SPANISH.scanned_pdf, ENGLISH.scanned_pdf, SPANISH.digital, ENGLISH.png]
    bomb = encoded(Image.new("1", (12_000, 12_000)), "PNG")
    bad = [b"%PDF-1.7\n" + b"[" * 100_000, b"\x89PNG\r\n\x1a\n" + b"\x00" * 3000, nested(2), bomb]

    def ask(content: bytes, *, limit_s: float) -> httpx.Response:
        with served.client() as client:
            headers = {"X-Request-Timeout-S": f"{limit_s:g}"}
            return client.post("/v1/documents", files={"file": content}, headers=headers)

    with ThreadPoolExecutor(8) as threads:
        refused = [threads.submit(ask, content, limit_s=3) for content in bad]
        answered = [threads.submit(ask, content, limit_s=60) for content in good]

    for answer in (future.result() for future in answered):
        assert 200 == answer.status_code, answer.text
        assert "12345678Z" in answer.json()["text"]
    for answer in (future.result() for future in refused):
        assert problem_of(answer)[0] in (413, 422, 504)


def test_after_all_of_it(served: LiveServer, client: httpx.Client, before: Footprint) -> None:
    """Ready, with the readers, memory and files of before, and no error in the log."""
    assert 200 == client.get("/health/ready").status_code
    answer_of(client, scanned([SPANISH.strip, ENGLISH.strip]), engine="tesseract")
    wait_until(client, lambda: footprint(served).files <= before.files + 2, "file descriptors are left open")
    wait_until(client, lambda: footprint(served).memory_bytes < before.memory_bytes + _KEPT_BYTES, "memory is kept")

    assert footprint(served).readers <= before.readers
    assert not [line for line in served.log if "Traceback" in line or " ERROR " in line]
