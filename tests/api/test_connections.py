"""What one client can do to the others with its connections: real sockets, a real uvicorn on uvloop, a small app."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import httpx
import pytest
import uvicorn
import uvloop
from starlette.types import Message, Receive, Scope, Send

from backend.api.http_protocol import ConnectionGuard, ConnectionLimits, GuardedProtocol
from backend.api.json_io import JsonBytes
from backend.api.traffic import Traffic

WAIT_S = 30.0  # for what happens at once, on a machine that is busy
BIG = b"x" * 16_000_000  # over what the sockets of both sides hold
SLOW = ConnectionLimits(header_s=3600.0, stalled_s=3600.0)  # no timer fires


@dataclass
class EchoApp:
    """Answers with what it received; ``/wait`` once ``gate`` is open, ``/big`` with 16 MB, ``/early`` unread.

    ``/json`` answers as routes do.
    """

    requests: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        self.requests.append(path)
        try:
            body = b"" if path == "/early" else await self._body(receive)
            if path == "/wait":
                await self._wait(receive)
            headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
            answer = {"path": path[:40], "bytes": len(body), "headers": headers, "version": scope["http_version"]}
            if path == "/json":
                await JsonBytes(BIG)(scope, receive, send)
                return
            content = BIG if path == "/big" else json.dumps(answer).encode()
            await send(_start(401 if path == "/early" else 200, content))
            await send({"type": "http.response.body", "body": content})
        finally:
            self.ended.append(path)

    async def _body(self, receive: Receive) -> bytes:
        parts = []
        while (message := await receive())["type"] == "http.request":
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                break
        return b"".join(parts)

    async def _wait(self, receive: Receive) -> None:
        """As routes do: wait for the work and for the client to leave."""
        waits = {asyncio.ensure_future(self.gate.wait()), asyncio.ensure_future(_left(receive))}
        _, others = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            other.cancel()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _start(status: int, content: bytes) -> Message:
    return {
        "type": "http.response.start",
        "status": status,
        "headers": [(b"content-length", str(len(content)).encode()), (b"content-type", b"application/json")],
    }


class Running:
    """A server in a thread of its own."""

    def __init__(
        self, limits: ConnectionLimits, keep_alive_s: int, traffic: Traffic | None = None, app: EchoApp | None = None
    ) -> None:
        self.app = app or EchoApp()
        self.refused: list[str] = []
        self._clients: list[Client] = []
        guard = ConnectionGuard(limits, self.refused.append, traffic)
        config = uvicorn.Config(
            cast("Any", self.app),
            port=0,
            http=cast("Any", partial(GuardedProtocol, guard=guard)),
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_keep_alive=keep_alive_s,
            timeout_graceful_shutdown=1,
        )
        self._up = threading.Event()
        self._stopping = asyncio.Event()
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._up.wait(WAIT_S)
        self.port: int = self._server.servers[0].sockets[0].getsockname()[1]

    @property
    def connections(self) -> int:
        return len(self._server.server_state.connections)

    def connect(self, address: str = "127.0.0.1") -> Client:
        """A new connection from an address, closed with the server."""
        self._clients.append(Client(self.port, address))
        return self._clients[-1]

    def sent(self, data: bytes, address: str = "127.0.0.1") -> Client:
        """A new connection on which this was sent."""
        client = self.connect(address)
        client.send(data)
        return client

    def call(self, function: Callable[[], object]) -> None:
        """Run ``function`` on the server's loop and wait for it."""
        done = threading.Event()
        self._loop.call_soon_threadsafe(lambda: (function(), done.set()))
        assert done.wait(WAIT_S)

    def pause(self) -> None:
        """Wait until the server has read what was sent: its loop has looked at all sockets twice."""
        for _ in range(2):
            self.call(lambda: None)

    @property
    def header_timers(self) -> int:
        """Connections whose headers are awaited."""
        return sum(connection._head_timer is not None for connection in self._protocols())

    @property
    def unparsed(self) -> bool:
        """Whether part of a head has arrived."""
        return any(connection._unparsed_bytes for connection in self._protocols())

    def end_header_time(self) -> None:
        """Have the time for headers be over, on the connections where it runs."""
        for connection in self._protocols():
            if connection._head_timer is not None:
                connection._head_timer.cancel()
                self.call(connection._on_late_head)

    def _protocols(self) -> list[GuardedProtocol]:
        return cast("list[GuardedProtocol]", list(self._server.server_state.connections))

    def until(self, condition: Callable[[], bool]) -> None:
        """Let the server work until it has come so far."""
        end_s = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < end_s
            self.pause()

    def stop(self) -> None:
        if self._thread.is_alive():
            self.call(self.app.gate.set)
            self.call(self._stopping.set)
            self._thread.join(WAIT_S)
        for client in self._clients:
            client.close()

    def _run(self) -> None:
        uvloop.run(self._serve())

    async def _serve(self) -> None:
        """As uvicorn serves, without the tenths of a second in which it looks whether to stop."""
        self._loop = asyncio.get_running_loop()
        self._server.config.load()
        self._server.lifespan = self._server.config.lifespan_class(self._server.config)
        await self._server.startup()
        self._up.set()
        await self._stopping.wait()
        await self._server.shutdown()


@dataclass
class Answer:
    """A response, parsed."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """A socket, and what has come from it."""

    def __init__(self, port: int, address: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), WAIT_S, (address, 0))
        self._file = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_until_refused(self, piece: bytes, pieces: int) -> int:
        """Send up to ``pieces`` pieces; returns how many were taken."""
        for index in range(pieces):
            try:
                self.socket.sendall(piece)
            except OSError:
                return index
        return pieces

    def answer(self) -> Answer:
        """The next response."""
        line = self._file.readline()
        assert line, "closed without an answer"
        headers: dict[str, str] = {}
        while (text := self._file.readline().strip()) != b"":
            name, _, value = text.decode().partition(": ")
            headers[name] = value
        status = int(line.split()[1])
        if status == 100:
            return self.answer()
        return Answer(status, headers, self._file.read(int(headers["content-length"])))

    def rest(self) -> bytes:
        """Everything until the server closes."""
        try:
            return self._file.read()
        except ConnectionResetError:
            return b""

    def close(self) -> None:
        self._file.close()
        self.socket.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Running]]:
    """Start a server: ``serve(SLOW)``."""
    servers: list[Running] = []

    def start(limits: ConnectionLimits = SLOW, keep_alive_s: int = 3600, traffic: Traffic | None = None) -> Running:
        servers.append(Running(limits, keep_alive_s, traffic))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def get(path: str = "/", *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: test", *headers, "", ""]).encode()


def post(path: str, body: bytes, *headers: str) -> bytes:
    length = f"Content-Length: {len(body)}"
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: test", length, *headers, "", ""]).encode() + body


# Headers


@pytest.mark.parametrize(
    ("head", "what"),
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: test\r\nX-Long: ", "bytes of request line", id="one-header"),
        pytest.param(b"GET /", "bytes of request line", id="the-path"),
        pytest.param(b"", "bytes of request line", id="blank-lines"),
    ],
)
def test_headers_without_end(serve, head, what):
    """The client reads why while it still sends, and the app never hears of it."""
    server = serve()
    client = server.sent(head)
    client.send_until_refused(b"\r\n" * 4096 if not head else b"a" * 8192, 400)
    answer = client.answer()

    assert (431, "headers_too_large") == (answer.status, answer.json["code"])
    assert what in answer.json["detail"]
    assert "65536" in answer.json["detail"]
    assert ("application/problem+json", "close") == (answer.headers["content-type"], answer.headers["connection"])
    assert answer.json["request_id"] == answer.headers["x-request-id"]
    assert ["headers_too_large"] == server.refused
    assert [] == server.app.requests


def test_headers_up_to_the_limit(serve):
    """63 KiB in one header are served, however they are cut into packets, also after a body in the same packet."""
    server = serve()
    client = server.connect()
    first = post("/first", b"b" * 100_000)
    large = get("/large", "X-Long: " + "a" * 63 * 1024)
    client.send(first + large[:30_000])
    answers = [client.answer()]
    client.send(large[30_000:])
    answers.append(client.answer())

    assert [200, 200] == [answer.status for answer in answers]
    assert [100_000, 0] == [answer.json["bytes"] for answer in answers]
    assert 63 * 1024 == len(answers[1].json["headers"]["x-long"])


@pytest.mark.parametrize(("fields", "status"), [(190, 200), (201, 431)])
def test_the_number_of_header_fields(serve, fields, status):
    server = serve()
    client = server.sent(get("/", *(f"X-{index}: 1" for index in range(fields - 1))))

    assert status == client.answer().status
    assert (status == 200) == bool(server.app.requests)


@pytest.mark.parametrize(
    "endless",
    [
        pytest.param(b"0\r\nTrailer: " + b"t" * 200_000, id="trailers"),
        pytest.param(b"5;" + b"e" * 200_000, id="a-chunk-extension"),
    ],
)
@pytest.mark.parametrize("path", ["/read", "/early"])
def test_what_is_no_body_after_the_headers(serve, endless, path):
    """It is bounded as headers are, whether or not the request was answered already."""
    server = serve()
    client = server.sent(
        f"POST {path} HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n".encode()
    )
    if path == "/early":
        assert 401 == client.answer().status
    client.send_until_refused(endless, 1)

    assert 431 == client.answer().status
    assert ["headers_too_large"] == server.refused


def test_trailers_are_no_headers(serve):
    """What comes after the body reaches no one: keys were checked before it."""
    client = serve().connect()
    chunked = b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
    client.send(chunked + b"5;extension=1\r\nhello\r\n0\r\nAuthorization: Bearer late\r\n\r\n")
    answer = client.answer()

    assert (200, 5) == (answer.status, answer.json["bytes"])
    assert {"host", "transfer-encoding"} == set(answer.json["headers"])


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"GET / HT", id="in-the-request-line"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: te", id="in-a-header"),
        pytest.param(b"\r\n", id="a-blank-line"),
        pytest.param(get("/first") + b"GET /second HTTP", id="of-a-second-request"),
    ],
)
def test_headers_that_never_end(serve, sent):
    """408, and the connection is closed."""
    server = serve()
    client = server.sent(sent)
    if sent.startswith(get("/first")):
        assert 200 == client.answer().status
        client.send(b"/1.1\r\n")
    server.until(lambda: server.header_timers == 1 and server.unparsed)
    server.end_header_time()
    answer = client.answer()

    assert (408, "headers_too_late", True) == (answer.status, answer.json["code"], answer.json["retryable"])
    assert b"" == client.rest()
    assert ["headers_too_late"] == server.refused


def test_a_connection_that_sends_nothing(serve):
    """Closed without a word: browsers open connections in advance."""
    server = serve(ConnectionLimits(header_s=0.05))

    assert b"" == server.connect().rest()
    assert [] == server.refused


def test_a_body_that_comes_slowly_is_no_late_header(serve):
    """The time for headers ends with the headers."""
    server = serve()
    client = server.connect()
    request = post("/", b"hello")
    client.send(request[:-2])
    server.until(lambda: server.app.requests == ["/"])
    assert 0 == server.header_timers
    client.send(request[-2:])

    assert 5 == client.answer().json["bytes"]


@pytest.mark.parametrize(
    "nonsense",
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00", id="tls"),
        pytest.param(b"GET /\xff HTTP/1.1\r\nHost: test\r\n\r\n", id="a-byte-no-path-has"),
        pytest.param(b"GET / HTTP/1.1\r\nHost : test\r\n\r\n", id="a-space-before-the-colon"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", id="two-lengths"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="http2"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="no-host"),
        pytest.param(get("/", "Host: other"), id="two-hosts"),
        pytest.param(b"CONNECT example.com:443 HTTP/1.1\r\nHost: test\r\n\r\n", id="connect"),
    ],
)
def test_what_is_no_http(serve, nonsense):
    """400 as a problem; the app never hears of it."""
    server = serve()
    client = server.sent(nonsense)
    answer = client.answer()

    assert (400, "bad_input") == (answer.status, answer.json["code"])
    assert "callback" not in answer.json["detail"]
    assert b"" == client.rest()
    assert [] == server.app.requests


def test_a_body_that_breaks(serve):
    """The request is refused at once, not at its deadline, and its work is told."""
    server = serve()
    client = server.sent(b"POST /wait HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\nno number\r\n")

    assert 400 == client.answer().status
    client.rest()
    server.until(lambda: ["/wait"] == server.app.ended)


@pytest.mark.parametrize("upgrade", ["h2c", "websocket"])
def test_an_offer_to_upgrade_is_declined(serve, upgrade):
    """The request is served as it is, with its body: Java's HttpClient offers h2c with every request."""
    client = serve().connect()
    offer = (f"Upgrade: {upgrade}", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA")
    client.send(post("/first", b"hello", *offer) + get("/second"))
    answers = [client.answer(), client.answer()]

    assert [("/first", 5), ("/second", 0)] == [(answer.json["path"], answer.json["bytes"]) for answer in answers]


@pytest.mark.parametrize(
    ("request_bytes", "path"),
    [
        pytest.param(get("http://example.com/absolute?x=1"), "/absolute", id="absolute-form"),
        pytest.param(get("/" + "%41" * 4800), "/" + "A" * 39, id="a-long-escaped-path"),
        pytest.param(post("/", b"hello", "Expect: 100-continue"), "/", id="expect"),
        pytest.param(b"GET /old HTTP/1.0\r\n\r\n", "/old", id="http-1.0"),
    ],
)
def test_odd_but_valid_requests(serve, request_bytes, path):
    client = serve().sent(request_bytes)
    answer = client.answer()

    assert (200, path) == (answer.status, answer.json["path"])


def test_chunks_of_one_byte(serve):
    """A body in the smallest chunks arrives whole."""
    client = serve().sent(
        b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 50_000
    )
    client.send(b"0\r\n\r\n")

    assert 50_000 == client.answer().json["bytes"]


# Requests sent in advance


def test_pipelined_requests_are_answered_in_order(serve):
    client = serve().sent(b"".join(get(f"/{index}") for index in range(80)))

    assert [f"/{index}" for index in range(80)] == [client.answer().json["path"] for _ in range(80)]


def test_pipelined_requests_have_an_end(serve):
    """The server takes a hundred in advance and no more, so that they cost little memory; what it took it answers."""
    server = serve()
    client = server.sent(get("/wait"))
    client.send_until_refused(get("/x") * 5000, 1)
    server.pause()
    server.call(server.app.gate.set)
    answers = [client.answer() for _ in range(len(server.app.requests))]
    while len(answers) < 101:
        answers.append(client.answer())

    assert {200} == {answer.status for answer in answers}
    assert "close" == answers[-1].headers["connection"]
    assert b"" == client.rest()
    assert ["bad_input"] == server.refused


def test_nonsense_behind_a_request_does_not_spoil_its_answer(serve):
    """Whole requests are answered first, then the connection is closed."""
    server = serve()
    client = server.sent(get("/wait") + b"nonsense\r\n\r\n")
    server.pause()
    server.call(server.app.gate.set)
    answer = client.answer()

    assert (200, "/wait", "close") == (answer.status, answer.json["path"], answer.headers["connection"])
    assert b"" == client.rest()


# Answers


def test_answers_that_nobody_reads(serve):
    """The connection ends, and with it what waited in memory."""
    server = serve(ConnectionLimits(stalled_s=0.05, header_s=3600.0))
    client = server.sent(get("/big") * 3)
    server.until(lambda: server.refused == ["stalled"] and not server.connections)

    assert len(client.rest()) < len(BIG)


def test_a_last_answer_that_nobody_reads(serve):
    """Also where the connection was to be closed anyway."""
    server = serve(ConnectionLimits(stalled_s=0.05, header_s=3600.0))
    client = server.sent(get("/big", "Connection: close"))
    server.until(lambda: bool(server.app.ended) and not server.connections)

    assert ["stalled"] == server.refused
    assert len(client.rest()) < len(BIG)


def test_many_answers_that_nobody_reads(serve):
    """What waits for one address has a bound: who has read nothing for the longest time goes first, others stay."""
    traffic = Traffic(most_bytes=3 * len(BIG))
    server = serve(traffic=traffic)
    other, *greedy = [server.connect(address) for address in ("127.0.0.2", "127.0.0.1", "127.0.0.1", "127.0.0.1")]
    for answered, client in enumerate([other, *greedy], 1):
        client.send(get("/big", "Connection: close"))
        server.until(lambda count=answered: len(server.app.ended) == count)
    server.until(lambda: server.refused == ["stalled", "stalled"])

    assert traffic.total_bytes < 2 * len(BIG)
    assert [BIG, BIG] == [other.answer().body, greedy[-1].answer().body]
    assert all(len(client.rest()) < len(BIG) for client in greedy[:2])
    server.until(lambda: not server.connections)
    assert 0 == traffic.total_bytes


def test_what_the_app_holds_of_an_answer_counts_too(serve):
    """JSON of megabytes is given to the connection piece by piece."""
    traffic = Traffic(most_bytes=3 * len(BIG))
    server = serve(traffic=traffic)
    client = server.sent(get("/json"))
    server.until(lambda: traffic.total_bytes > len(BIG) // 4)  # the sockets hold some megabytes

    assert BIG == client.answer().body
    server.until(lambda: traffic.total_bytes == 0)


def test_a_large_answer_that_is_read(serve):
    client = serve().sent(get("/big") * 2)

    assert [BIG, BIG] == [client.answer().body for _ in range(2)]


def test_a_large_answer_that_is_read_slowly(serve):
    """It arrives whole, though the connection's time without requests is over before it was read."""
    server = serve(keep_alive_s=1)
    slow, other = server.connect(), server.connect()
    slow.send(get("/big"))
    server.until(lambda: bool(server.app.ended))
    other.send(get("/"))
    other.answer()
    assert b"" == other.rest()  # closed after the time that is over for both

    assert BIG == slow.answer().body
    assert b"" == slow.rest()


# Connections


def test_too_many_connections(serve):
    """The others are told; probes are answered; after one has gone there is room."""
    server = serve(ConnectionLimits(connections=2, idle_s=3600.0, header_s=3600.0))
    kept = [server.connect() for _ in range(2)]
    for client in kept:
        client.send(get("/kept"))
        assert 200 == client.answer().status
    refused, probe = server.connect(), server.connect()
    refused.send(get("/refused"))
    probe.send(get("/health/live"))
    answer = refused.answer()

    assert (503, "too_many_connections", True) == (answer.status, answer.json["code"], answer.json["retryable"])
    assert "LIMIT_CONNECTIONS" in answer.json["detail"]
    assert {"retry-after": "1", "connection": "close"}.items() <= answer.headers.items()
    assert (200, "close") == ((ready := probe.answer()).status, ready.headers["connection"])
    assert b"" == refused.rest() == probe.rest()
    assert ["/kept", "/kept", "/health/live"] == server.app.requests
    assert ["too_many_connections"] == server.refused
    kept[0].close()
    server.until(lambda: server.connections == 1)
    late = server.sent(get("/late"))
    assert 200 == late.answer().status


def test_idle_connections_give_way(serve):
    """A new connection takes the place of those that are kept and do nothing."""
    server = serve(ConnectionLimits(connections=2, idle_s=-1.0, header_s=3600.0))
    kept = [server.connect() for _ in range(2)]
    for client in kept:
        client.send(get("/kept"))
        client.answer()
    late = server.sent(get("/late"))

    assert 200 == late.answer().status
    assert [b"", b""] == [client.rest() for client in kept]
    assert [] == server.refused


def test_far_too_many_connections_are_closed_unheard(serve):
    """Refusing politely has a limit of its own, at which one address leaves room for the probes of others."""
    server = serve(ConnectionLimits(connections=2, idle_s=3600.0, header_s=3600.0))
    clients = [server.connect() for _ in range(2 + 32 + 1)]
    probe = server.sent(get("/health/live"), "127.0.0.2")

    assert 200 == probe.answer().status
    assert b"" == clients[-1].rest()
    assert ["too_many_connections"] == server.refused


def test_connections_without_a_whole_request_give_way(serve):
    """At the limit the time for headers is that of idle connections."""
    server = serve(ConnectionLimits(connections=2, idle_s=-1.0, header_s=3600.0))
    silent, slow = server.connect(), server.connect()
    slow.send(b"GET / HT")
    server.until(lambda: server.unparsed)
    late = server.sent(get("/late"))

    assert 200 == late.answer().status
    assert b"" == silent.rest() == slow.rest()


def test_kept_connections_outlive_a_balancers(serve):
    """A connection is kept for the time that is set, not uvicorn's 5 s."""
    server = serve(keep_alive_s=1)
    client = server.sent(get("/"))
    answer = client.answer()

    assert "connection" not in answer.headers
    assert b"" == client.rest()  # closed by the server, at its time


def test_a_stopping_server_closes_kept_connections(serve):
    server = serve()
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as client:
        assert 200 == client.get("/").status_code
        server.stop()
        with pytest.raises(httpx.TransportError):
            client.get("/")


def test_a_client_that_leaves_behind_requests_in_advance(serve):
    """Its running request is told, though it is not the newest."""
    server = serve(ConnectionLimits(stalled_s=0.05, header_s=3600.0))
    client = server.sent(get("/big") + get("/wait"))
    server.pause()
    client.close()

    server.until(lambda: not server.connections and server.app.requests == server.app.ended)
