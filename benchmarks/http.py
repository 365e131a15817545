"""This service and its peers under the same load over HTTP, in one run, round after round; results as JSON.

    python -m benchmarks.http            # all peers, several rounds
    python -m benchmarks.http --quick    # one short round, for development

One server runs at a time. Rounds interleave the servers (A, B, C, A, B, C), so a machine that slows down does so for
all; the tables show medians with their spread.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.accuracy import Vectors, accuracy, raw_answer
from benchmarks.engine import reference_vectors
from benchmarks.load import Report, Shape, run_apart
from benchmarks.machine import facts
from benchmarks.peers import (
    INFINITY_SETTINGS,
    ROOT,
    Peer,
    PeerError,
    Server,
    bare_fastapi,
    constant,
    infinity,
    install_infinity,
    log_of,
    ours,
    resident_bytes,
    running,
)
from benchmarks.results import Load, Results, Start
from benchmarks.texts import distinct_texts

RESULT = Path(__file__).parent / "results" / "http.json"

PEERS = ("ours", "fastapi", *INFINITY_SETTINGS)
RATES_PER_S = (20, 80, 300)
HIT_RATIOS = (0.0, 0.5, 0.9, 1.0)

CONSTANTS = ("ours", "bare")  # kinds of constant_app.py

_ACCURACY_TEXTS = 256
_HOPELESS = 1.5  # an open loop at more than this many times a server's own closed-loop rate tells nothing new


@dataclass(frozen=True, slots=True)
class Effort:
    """How long and how often to measure."""

    rounds: int
    duration_s: float  # of one load, after its warm-up
    warmup_s: float
    rates_per_s: tuple[int, ...] = RATES_PER_S
    hit_ratios: tuple[float, ...] = HIT_RATIOS


FULL = Effort(rounds=3, duration_s=6.0, warmup_s=2.0)
QUICK = Effort(rounds=1, duration_s=3.0, warmup_s=1.0, rates_per_s=(20, 200), hit_ratios=(0.0, 0.9, 1.0))


def closed_loads(effort: Effort) -> dict[str, Shape]:
    """The loads without a clock; the first one tells what the server can do at all."""
    base = _timed(effort)
    return {
        "one_text_32_clients": replace(base, clients=32),
        "32_texts_4_clients": replace(base, clients=4, texts=32),
        "one_client": replace(base, clients=1),
    }


def open_loads(effort: Effort, capacity_per_s: float) -> dict[str, Shape]:
    """The loads with a clock that a server of ``capacity_per_s`` requests has a chance to answer."""
    rates_per_s = [rate for rate in effort.rates_per_s if rate <= capacity_per_s * _HOPELESS]
    return {f"open_{rate}_per_s": replace(_timed(effort), rate_per_s=rate) for rate in rates_per_s}


def cache_loads(effort: Effort) -> dict[str, Shape]:
    """One text a request, 32 clients, and a known share of texts the service has seen. No text repeats by accident."""
    base = replace(_timed(effort), clients=32)
    return {
        f"hits_{round(ratio * 100)}_percent": replace(base, hit_ratio=ratio, first_text=index * 10_000)
        for index, ratio in enumerate(effort.hit_ratios)
    }


def _timed(effort: Effort) -> Shape:
    return Shape(warmup_s=effort.warmup_s, duration_s=effort.duration_s)


class Bench:
    """One run over all peers. ``work`` keeps logs, tuning and the constant's body; the caller removes it."""

    def __init__(self, peers: Sequence[Peer], effort: Effort, work: Path) -> None:
        self._peers = peers
        self._effort = effort
        self._work = work
        self._texts = distinct_texts(_ACCURACY_TEXTS)
        self.results = Results()

    def run(self) -> Results:
        """Accuracy once (which also fills our tuning file), then the rounds."""
        with_exact = [*self._peers, ours(self._state, name="ours-exact", PRECISION="exact")]
        reference = reference_vectors(self._texts)
        for peer in with_exact if self._has_ours else self._peers:
            self._on(peer, partial(self._judge, reference=reference))
        for index in range(self._effort.rounds):
            for peer in self._peers:
                self._on(peer, partial(self._load, index=index))
            if self._has_ours:
                self._load_cached(index)
        return self.results

    def _on(self, peer: Peer, measure: Callable[[Server], None]) -> None:
        """Run ``measure`` on a started ``peer``. One that fails is left out from then on, and the reason is kept."""
        if peer.name in self.results.failed:
            return
        try:
            with running(peer, self._work) as server:
                measure(server)
        except (PeerError, OSError, subprocess.CalledProcessError) as error:
            said = log_of(peer, self._work).read_text(encoding="utf-8", errors="replace")[-2000:]
            self.results.failed[peer.name] = f"{error}\n{said}"
            print(f"{peer.name} is left out: {self.results.failed[peer.name]}", file=sys.stderr)

    def _judge(self, server: Server, reference: Vectors) -> None:
        name, url = server.peer.name, server.url("/v1/embeddings")
        self.results.starts.append(Start(name, -1, server.ready_s, resident_bytes(server.pid)))
        self.results.accuracy[name] = accuracy(url, self._texts, reference)
        if name == "ours":
            self._body.write_bytes(raw_answer(url, self._texts[0]))
            with urllib.request.urlopen(server.url("/v1/system"), timeout=10) as answer:
                self.results.system = json.load(answer)

    def _load(self, server: Server, index: int) -> None:
        """All closed loads, then the open ones (last, for they can leave a queue behind)."""
        idle_bytes = resident_bytes(server.pid)
        shapes = closed_loads(self._effort)
        reports = [self._one(server, load, shape, index) for load, shape in shapes.items()]
        capacity_per_s = max(report.requests_per_s for report in reports)
        for load, shape in open_loads(self._effort, capacity_per_s).items():
            self._one(server, load, shape, index)
        loaded_bytes = resident_bytes(server.pid)
        self.results.starts.append(Start(server.peer.name, index, server.ready_s, idle_bytes, loaded_bytes))

    def _load_cached(self, index: int) -> None:
        """Our cache at each hit ratio, and the constant route that bounds a hit, bare and inside our own app."""
        loads = cache_loads(self._effort)
        cached = ours(self._state, name="ours-cached", CACHE_ENABLED="true")
        self._on(cached, partial(self._several, loads=loads, index=index))
        shape = replace(_timed(self._effort), clients=32, hit_ratio=1.0)
        for kind in CONSTANTS:
            load = {"hits_100_percent": shape}
            self._on(constant(kind, self._body), partial(self._several, loads=load, index=index))

    def _several(self, server: Server, loads: Mapping[str, Shape], index: int) -> None:
        for load, shape in loads.items():
            self._one(server, load, shape, index)

    def _one(self, server: Server, load: str, shape: Shape, index: int) -> Report:
        report = run_apart(server.port, shape)
        self.results.add(Load(server.peer.name, load, index, report))
        return report

    @property
    def _has_ours(self) -> bool:
        return any(peer.name == "ours" for peer in self._peers) and "ours" not in self.results.failed

    @property
    def _state(self) -> Path:
        return self._work / "state"

    @property
    def _body(self) -> Path:
        return self._work / "constant.json"


def chosen_peers(names: Sequence[str], venv: Path, work: Path) -> list[Peer]:
    """The peers of ``names``, in that order; makes infinity's environment when it is among them."""
    if any(name.startswith("infinity") for name in names):
        install_infinity(venv)
    makers: dict[str, Callable[[], Peer]] = {
        "ours": lambda: ours(work / "state"),
        "fastapi": bare_fastapi,
    }
    makers |= {name: partial(infinity, name, venv, work) for name in INFINITY_SETTINGS}
    return [makers[name]() for name in names]


def main() -> None:
    """Measure and write the result; exit status 1 when a peer had to be left out."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.http", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round, for development")
    parser.add_argument("--peers", default=",".join(PEERS), help="which, in which order (default: %(default)s)")
    parser.add_argument("--rounds", type=int, help=f"default {FULL.rounds}")
    parser.add_argument("--infinity-venv", type=Path, default=ROOT / ".venv-infinity")
    parser.add_argument("--out", type=Path, default=RESULT)
    flags = parser.parse_args()
    effort = QUICK if flags.quick else FULL
    effort = replace(effort, rounds=flags.rounds or effort.rounds)
    about = facts()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        peers = chosen_peers(flags.peers.split(","), flags.infinity_venv, Path(folder))
        results = Bench(peers, effort, Path(folder)).run()
    flags.out.parent.mkdir(parents=True, exist_ok=True)
    flags.out.write_text(
        json.dumps(about | {"effort": asdict(effort)} | results.as_json(), indent=2) + "\n",
        encoding="utf-8",
    )
    sys.exit(1 if results.failed else 0)


if __name__ == "__main__":
    main()
