"""What the largest requests cost everyone else: seconds, answer size, worst /health/live meanwhile, memory afterwards.

    python -m benchmarks.hostile            # each request on a fresh server; about five minutes
    python -m benchmarks.hostile --at-once 8 --only fields

Each request is as large as the limits allow and as unkind as texts can be. While it is answered another connection asks
``/health/live`` every 10 ms.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.machine import facts
from benchmarks.peers import Server, ours, resident_bytes, running

RESULT = Path(__file__).parent / "results" / "hostile.json"
_PROBE_INTERVAL_S = 0.01
_REST_S = 12.0  # after the answer; the service gives memory back after ten seconds of rest
_READ_BYTES = 1 << 20
_MEGA = 1_000_000
_WORDS, _AMOUNTS = "a " * (_MEGA // 2), "1€ " * (_MEGA // 3)
_INVOICE = "Acme S.L. CIF B12345674\nFACTURA Nº 2024/12   Fecha: 12/10/2024\n\n"
_ROW = "Descripción          Cantidad   Importe\nTornillos M6{}          2   20,00\nTotal  24,20 €\n"
_DOCUMENTS = "/v1/documents?features=text,tables,fields,chunks"
REQUESTS: Mapping[str, tuple[str, dict[str, Any] | bytes]] = {
    "tokenize 14 MB of 'a '": ("/tokenize", {"inputs": [_WORDS] * 14}),
    "tokenize 1 MB of 'a '": ("/tokenize", {"inputs": _WORDS}),
    "embed 14 MB of 'a '": ("/embed", {"inputs": [f"{index} {_WORDS[:-10]}" for index in range(14)]}),
    "embed 7 MB of 'a '": ("/embed", {"inputs": [f"{index} {_WORDS[:-10]}" for index in range(7)]}),
    "entities of 1 MB of '1€ '": ("/v1/entities", {"input": _AMOUNTS}),
    "analysis of 200 KB of 'a '": ("/v1/analyze", {"input": _WORDS[:200_000]}),
    "classes of 1 MB of 'a '": ("/v1/classify", {"input": _WORDS}),
    "fields of 1 MB of dots": ("/v1/fields", {"input": _INVOICE + _ROW.format("." * (_MEGA - 500))}),
    "fields of 1 MB of '1 '": ("/v1/fields", {"input": _INVOICE + _ROW.format("1 " * (_MEGA // 2 - 500))}),
    "900,000 wrong types of entities": ("/v1/entities", {"input": "a", "types": [1] * 900_000}),
    "900,000 token ids": ("/decode", {"ids": [index % 1000 for index in range(900_000)]}),
    "a table of 1 MB": (_DOCUMENTS, b"a;b;c\n" + b"1;2,00;3\n" * (_MEGA // 9)),
    "a table of 500,000 columns": (_DOCUMENTS, b"a;" * (_MEGA // 4) + b"\n" + b"1;" * (_MEGA // 4)),
    "a page of 100,000 cells": (_DOCUMENTS, b"<!DOCTYPE html><table><tr>" + b"<td>1</td>" * (_MEGA // 10)),
    "a file of one word of 1 MB": (_DOCUMENTS, "á".encode() * (_MEGA // 2)),
    "2,048 cached texts": ("/v1/embeddings", {"input": [f"texto {index}" for index in range(2048)]}),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """What one request cost."""

    status: int
    seconds: float
    answer_bytes: int
    live_worst_s: float  # /health/live while the request was answered
    live_median_s: float
    before_bytes: int  # resident, after a warm-up request
    after_bytes: int  # resident, after ``_REST_S`` of rest


def main() -> None:
    """Measure every request, print a row each, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--only", default="", help="a part of the names of the requests to send")
    parser.add_argument("--at-once", type=int, default=1, help="how often each is sent at the same time")
    options = parser.parse_args()
    circumstances, rows = facts(), {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (path, body) in REQUESTS.items():
            if options.only in name:
                with running(ours(Path(folder)), Path(folder)) as server:
                    rows[name] = asdict(measure(server, path, body, options.at_once))
                print(name, rows[name], file=sys.stderr, flush=True)
    options.out.write_text(json.dumps({**circumstances, "requests": rows}, indent=1) + "\n")


def measure(server: Server, path: str, body: dict[str, Any] | bytes, at_once: int) -> Cost:
    """Send one request, or several at the same time, while another connection probes."""
    _post(server.port, path, b"warm" if isinstance(body, bytes) else dict.fromkeys(body, "warm"))
    _post(server.port, "/embed", {"inputs": ["warm"]})
    before_bytes, probe = resident_bytes(server.pid), _Probe(server.port)
    probe.start()
    started_s = time.perf_counter()
    with ThreadPoolExecutor(at_once) as senders:
        answers = list(senders.map(partial(_post, server.port, path), [body] * at_once))
    status, size = max(answers)
    seconds = time.perf_counter() - started_s
    latencies_s = probe.stop()
    time.sleep(_REST_S)
    return Cost(
        status, seconds, size, latencies_s[-1], latencies_s[len(latencies_s) // 2], before_bytes,
        resident_bytes(server.pid),
    )  # fmt: skip


def _post(port: int, path: str, body: dict[str, Any] | bytes) -> tuple[int, int]:
    """The status and the size of the answer, which is read and dropped. Bytes are a file."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    if isinstance(body, bytes):
        connection.request("POST", path, body, {"Content-Type": "application/octet-stream"})
    else:
        connection.request("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    response = connection.getresponse()
    size = 0
    while chunk := response.read(_READ_BYTES):
        size += len(chunk)
    connection.close()
    return response.status, size


class _Probe(threading.Thread):
    """Asks ``/health/live`` again and again on one connection."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._stopped = threading.Event()
        self._latencies_s: list[float] = []

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        while not self._stopped.wait(_PROBE_INTERVAL_S):
            started_s = time.perf_counter()
            connection.request("GET", "/health/live")
            connection.getresponse().read()
            self._latencies_s.append(time.perf_counter() - started_s)

    def stop(self) -> list[float]:
        """Every latency, ascending."""
        self._stopped.set()
        self.join()
        return sorted(self._latencies_s)


if __name__ == "__main__":
    main()
