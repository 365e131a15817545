"""How the soak knows that an answer is right, and that an attempt may be made again."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator

import numpy as np
import orjson
import pypdfium2
import pytest
from PIL import Image

from benchmarks.soak.caller import Patience, call, refusal
from benchmarks.soak.cluster import free_ports
from benchmarks.soak.content import difference, judged, known_files, marked
from benchmarks.soak.events import Event, faults, parsed
from benchmarks.soak.http_client import Answer, CutOff, HttpClient
from benchmarks.soak.job_client import Known
from benchmarks.soak.rest import Footprint, footprint_faults, job_fault, sums

PROBLEM = {"content-type": "application/problem+json"}


@pytest.mark.parametrize(
    ("expected", "got", "wrong"),
    [
        pytest.param(np.array([1.0, 0.0]), np.array([2.0, 0.0]), False, id="a-vector-by-its-direction"),
        pytest.param(np.array([1.0, 0.0]), np.array([1.0, 0.1]), True, id="another-direction"),
        pytest.param(np.array([1.0, 0.0]), np.array([1.0, np.nan]), True, id="no-number"),
        pytest.param(np.array([1.0, 0.0]), np.array([1.0]), True, id="another-width"),
        pytest.param({"prediction": "a", "a": 0.71}, {"prediction": "a", "a": 0.705}, False, id="a-score-nearly"),
        pytest.param({"prediction": "a", "a": 0.71}, {"prediction": "a", "a": 0.6}, True, id="another-score"),
        pytest.param({"prediction": "a", "a": 0.71}, {"prediction": "a"}, True, id="a-label-is-absent"),
        pytest.param([("ORG", "Acme", 0, 4)], [("ORG", "Acme", 0, 4)], False, id="equal-entities"),
        pytest.param([("ORG", "Acme", 0, 4)], [], True, id="an-entity-is-absent"),
        pytest.param({"pages": {1: "a"}}, {"pages": {1: "b"}}, True, id="another-text"),
    ],
)
def test_wrong_answers_are_found(expected, got, wrong):
    """Vectors by cosine, scores nearly, everything else exactly."""
    assert wrong is bool(difference(expected, got))


@pytest.mark.parametrize("body", [b"", b"{}", b'{"data": []}', b'{"data": [{"embedding": 3}]}'])
def test_an_answer_of_another_shape_is_wrong(body):
    """Also where no right answer is known: it is no error of the soak itself."""
    fault, essence = judged("embeddings", body, None)

    assert "not of the documented shape" in fault
    assert essence is None


@pytest.mark.parametrize(
    ("status", "headers", "fields", "expected"),
    [
        pytest.param(200, PROBLEM, {}, ("", 0.0), id="an-answer"),
        pytest.param(422, PROBLEM, {"retryable": False}, ("", 0.0), id="a-clear-refusal-is-an-answer"),
        pytest.param(500, PROBLEM, {"retryable": False}, ("", 0.0), id="a-500-is-not-tried-again"),
        pytest.param(429, {**PROBLEM, "retry-after": "3"}, {"retryable": True}, ("429", 3.0), id="busy-for-3-s"),
        pytest.param(429, PROBLEM, {"retryable": True}, ("429 without Retry-After", 0.0), id="busy-for-how-long"),
        pytest.param(
            503,
            {**PROBLEM, "retry-after": "1"},
            {"retryable": False},
            ("503 that is not retryable", 0.0),
            id="away-for-good",
        ),
        pytest.param(503, {"content-type": "text/html"}, {}, ("503", 0.0), id="the-proxy-has-no-replica"),
        pytest.param(504, PROBLEM, {"retryable": True}, ("504", 0.0), id="too-late"),
        pytest.param(
            503, {**PROBLEM, "retry-after": "600"}, {"retryable": True}, ("503", 5.0), id="no-client-waits-ten-minutes"
        ),
    ],
)
def test_which_attempts_are_made_again(status, headers, fields, expected):
    """What is retryable by its own word; a refusal without the promised header has a name of its own."""
    assert expected == refusal(Answer(status, headers, orjson.dumps(fields)))


def test_a_marked_file_is_new_and_reads_the_same():
    """The nonce changes the bytes, and no pixel and no page."""
    for name, file in known_files().items():
        new = marked(file, "0123abcd")
        assert new != file, name
        if file.startswith(b"%PDF"):
            assert len(pypdfium2.PdfDocument(new)) == len(pypdfium2.PdfDocument(file))
        else:
            pictures = [Image.open(io.BytesIO(content)) for content in (file, new)]
            assert pictures[0].tobytes() == pictures[1].tobytes()


def page(place: str, number: int) -> Event:
    return Event(place, "page", {"number": number})


END = Event("9-0", "end", {"status": "succeeded"})


@pytest.mark.parametrize(
    ("events", "attempts", "count"),
    [
        pytest.param([page("1-0", 1), page("2-0", 2), END], 1, 0, id="complete"),
        pytest.param([page("1-0", 2), page("1-1", 1), END], 1, 0, id="pages-in-any-order"),
        pytest.param([page("1-0", 1), page("2-0", 1), page("3-0", 2), END], 2, 0, id="again-in-a-second-attempt"),
        pytest.param([page("1-0", 1), page("2-0", 1), page("3-0", 2), END], 1, 1, id="twice-in-one-attempt"),
        pytest.param([page("1-0", 1), END], 1, 1, id="a-page-is-absent"),
        pytest.param([page("2-0", 1), page("1-0", 2), END], 1, 1, id="ids-go-back"),
        pytest.param([page("1-0", 1), page("2-0", 2)], 1, 1, id="no-end"),
        pytest.param([], 1, 2, id="nothing-at-all"),
    ],
)
def test_whether_events_are_complete(events, attempts, count):
    """Ids grow, every page comes, as often as the job was begun at most, and the end is last."""
    assert count == len(faults(events, pages=2, attempts=attempts))


async def test_events_that_arrive_in_pieces():
    """A chunk may end anywhere; an event that is cut off is not given, so Last-Event-ID asks for it again."""

    async def chunks() -> AsyncGenerator[bytes, None]:
        for part in (b"id: 1-0\nevent: pa", b'ge\ndata: {"number":1}\n', b"\n: ping\n\nid: 2-0\nevent: page\nda"):
            yield part

    assert [page("1-0", 1)] == [event async for event in parsed(chunks())]


MOST = {"resident_bytes": 2**30, "files": 40, "threads": 20}


@pytest.mark.parametrize(
    ("after", "count"),
    [
        pytest.param(Footprint(2**30, 40, 20, 0), 0, id="as-at-the-beginning"),
        pytest.param(Footprint(2**30 * 13 // 10, 60, 25, 0), 0, id="within-the-bounds"),
        pytest.param(Footprint(2**30 * 2, 40, 20, 0), 1, id="memory"),
        pytest.param(Footprint(2**30, 400, 200, 3), 3, id="files-threads-and-zombies"),
    ],
)
def test_what_is_left_over(after, count):
    """Memory by a ratio, files and threads by a count, zombies never."""
    assert count == len(footprint_faults(MOST, after, memory_ratio=1.3))


@pytest.mark.parametrize(
    ("state", "status", "body", "forgotten", "wrong"),
    [
        pytest.param("succeeded", 200, b'{"status":"succeeded"}', False, False, id="kept"),
        pytest.param("succeeded", 404, b"", False, True, id="vanished"),
        pytest.param("succeeded", 404, b"", True, False, id="vanished-with-redis"),
        pytest.param("deleted", 404, b"", False, False, id="deleted"),
        pytest.param("deleted", 200, b'{"status":"succeeded"}', False, True, id="back-from-the-dead"),
        pytest.param("cancelled", 200, b'{"status":"running"}', False, True, id="runs-though-cancelled"),
        pytest.param("cancelled", 503, b"{}", False, True, id="no-answer"),
    ],
)
def test_jobs_stand_as_they_ended(state, status, body, forgotten, wrong):
    """Deleted ones stay away, ended ones stay."""
    assert wrong is bool(job_fault(state, status, body, forgotten=forgotten))


def test_metrics_are_summed_over_their_labels():
    """Of the service alone."""
    text = '# HELP x\nfinancia_queue_jobs 2.0\nfinancia_document_jobs_live{state="a"} 1.0\n'
    text += 'financia_document_jobs_live{state="b"} 3.0\npython_info{x="1"} 1.0\n'

    assert {"queue_jobs": 2.0, "document_jobs_live": 4.0} == sums(text)


async def test_a_connection_that_ends_early_is_cut_off():
    """Whether nothing came, half a head, or half a body: one error, which the account knows."""
    answers = iter([b"", b"HTTP/1.1 200 OK\r\nConte", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(next(answers))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = HttpClient(server.sockets[0].getsockname()[1])
    for _ in range(3):
        with pytest.raises(CutOff):
            await client.request("GET", "/", timeout_s=10.0)
    server.close()
    await server.wait_closed()
    with pytest.raises(CutOff):
        await client.request("GET", "/", timeout_s=10.0)


@pytest.mark.parametrize(("ended", "attempts"), [(True, 1), (False, 2)], ids=["ended", "comes-back"])
async def test_a_server_that_has_ended_is_not_asked_again(*, ended: bool, attempts: int):
    """Each attempt at it would count as a failure that no fault excuses, long after it was stopped on purpose."""
    client = HttpClient(free_ports(1)[0])

    made = await call(client, "PUT", "/", patience=Patience(5.0, 0.6), is_gone=lambda: ended)

    assert (None, attempts) == (made.answer, len(made.failures))


async def test_a_kept_connection_and_a_chunked_answer():
    """Two answers over one connection, the second in chunks."""
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab")
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 202 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ncde\r\n1\r\nf\r\n0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = HttpClient(server.sockets[0].getsockname()[1])
    first = await client.request("GET", "/", timeout_s=10.0)
    second = await client.request("GET", "/", timeout_s=10.0)
    client.close()
    server.close()
    await server.wait_closed()

    assert (200, b"ab", 202, b"cdef", 1) == (first.status, first.body, second.status, second.body, connections)


def test_a_job_begins_alive():
    """Until its client knows better."""
    assert "live" == Known("id", "file:slip-0", 0.0).state
