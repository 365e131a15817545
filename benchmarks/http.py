"""Load benchmark over HTTP: this service and its peers under the same load in one run; results as JSON.

    python -m benchmarks.http            # all peers, several rounds
    python -m benchmarks.http --quick    # one short round, for development

One server runs at a time. Rounds interleave the servers (A, B, C, A, B, C), so that a slowdown of the machine affects
all of them; the tables show medians with their spread.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from backend.device.facts.host import cpu
from backend.models.runtimes import fastest_known
from benchmarks.accuracy import Vectors, accuracy, reference_vectors, response_body
from benchmarks.client import RequestRefused, ask
from benchmarks.load import Report, Shape, run_in_subprocess
from benchmarks.machine import ROOT, facts, machine
from benchmarks.peers import (
    INFINITY_SETTINGS,
    OTHER_ENCODERS,
    OURS,
    Peer,
    PeerError,
    Server,
    bare_fastapi,
    constant,
    infinity,
    log_of,
    model_folder,
    other_encoders,
    ours,
    resident_bytes,
    running,
)
from benchmarks.results import Load, Results, Start, write
from benchmarks.texts import distinct_texts

RESULTS = Path(__file__).parent / "results" / "http"

PEERS = ("fastapi", *INFINITY_SETTINGS)  # beside ours, and ours with its other encoders
RATES_PER_S = (20, 80, 300)
HIT_RATIOS = (0.0, 0.5, 0.9, 1.0)

CONSTANTS = ("ours", "bare")  # kinds of constant_app.py

_ACCURACY_TEXTS = 256
_MAX_OVERLOAD = 1.5  # open loops at higher multiples of a server's closed-loop rate are skipped: its queue only grows


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
    """The closed loops; the first one measures the server's maximum throughput."""
    base = _timed(effort)
    return {
        "one_text_32_clients": replace(base, clients=32),
        "32_texts_4_clients": replace(base, clients=4, texts=32),
        "one_client": replace(base, clients=1),
    }


def spanish_loads(effort: Effort) -> dict[str, Shape]:
    """The loads of many clients with Spanish texts only, on which encoders are compared with one another."""
    loads = closed_loads(effort)
    return {
        f"spanish_{load}": replace(loads[load], language="es") for load in ("one_text_32_clients", "32_texts_4_clients")
    }


def open_loads(effort: Effort, capacity_per_s: float) -> dict[str, Shape]:
    """The open loops that a server of ``capacity_per_s`` requests can nearly sustain."""
    rates_per_s = [rate for rate in effort.rates_per_s if rate <= capacity_per_s * _MAX_OVERLOAD]
    return {f"open_{rate}_per_s": replace(_timed(effort), rate_per_s=rate) for rate in rates_per_s}


def cache_loads(effort: Effort) -> dict[str, Shape]:
    """One text per request, 32 clients, and a known share of repeated texts. No text repeats by accident."""
    base = replace(_timed(effort), clients=32)
    return {
        f"hits_{round(ratio * 100)}_percent": replace(base, hit_ratio=ratio, first_text=index * 10_000)
        for index, ratio in enumerate(effort.hit_ratios)
    }


def _timed(effort: Effort) -> Shape:
    return Shape(warmup_s=effort.warmup_s, duration_s=effort.duration_s)


class HttpBenchmark:
    """One run over all peers. ``work`` holds logs, tuning and the constant's body; the caller removes it."""

    def __init__(self, peers: Sequence[Peer], effort: Effort, work: Path) -> None:
        self._peers = peers
        self._effort = effort
        self._work = work
        self._texts = distinct_texts(_ACCURACY_TEXTS)
        self.results = Results()

    def run(self) -> Results:
        """Measure accuracy once, which also writes our tuning file, then run the rounds."""
        served = reference_vectors(self._texts)
        for peer in self._peers:
            source = OTHER_ENCODERS.get(peer.name)
            reference = _reference_of(self._texts, model_folder(source)) if source else served
            self._with_server(peer, partial(self._measure_accuracy, reference=reference))
        for index in range(self._effort.rounds):
            for peer in self._peers:
                self._with_server(peer, partial(self._measure_peer, index=index))
            if self._has_ours:
                self._measure_cache(index)
        return self.results

    def _with_server(self, peer: Peer, measure: Callable[[Server], None]) -> None:
        """Run ``measure`` on a started ``peer``. A peer that fails is left out from then on; the reason is recorded."""
        if peer.name in self.results.failed:
            return
        try:
            with running(peer, self._work) as server:
                measure(server)
        except (PeerError, RequestRefused, OSError, subprocess.CalledProcessError) as error:
            log = log_of(peer, self._work).read_text(encoding="utf-8", errors="replace")
            last = "".join(log.splitlines()[-1:])  # the lines of a traceback name folders of this machine
            self.results.failed[peer.name] = f"{error}: {last}"
            print(f"{peer.name} is left out: {error}\n{log[-2000:]}", file=sys.stderr)

    def _measure_accuracy(self, server: Server, reference: Vectors | None) -> None:
        name, port = server.peer.name, server.port
        self.results.starts.append(Start(name, -1, server.ready_s, resident_bytes(server.pid)))
        if reference is not None:
            self.results.accuracy[name] = accuracy(port, self._texts, reference)
        if name == OURS:
            self._body.write_bytes(response_body(port, self._texts[0]))
            self.results.system = ask(port, "/v1/system")

    def _measure_peer(self, server: Server, index: int) -> None:
        """All closed loops, on Spanish texts for our encoders, then the open ones, which can leave a queue behind."""
        idle_bytes, name = resident_bytes(server.pid), server.peer.name
        shapes = closed_loads(self._effort)
        reports = [self._measure_load(server, load, shape, index) for load, shape in shapes.items()]
        if name in (OURS, *OTHER_ENCODERS):
            self._measure_loads(server, spanish_loads(self._effort), index)
        if name not in OTHER_ENCODERS:
            capacity_per_s = max(report.requests_per_s for report in reports)
            self._measure_loads(server, open_loads(self._effort, capacity_per_s), index)
        loaded_bytes = resident_bytes(server.pid)
        self.results.starts.append(Start(server.peer.name, index, server.ready_s, idle_bytes, loaded_bytes))

    def _measure_cache(self, index: int) -> None:
        """Our cache at each hit ratio, and the constant route as upper bound, in a bare app and in ours."""
        loads = cache_loads(self._effort)
        cached = ours(self._state, name="ours-cached", CACHE_ENABLED="true")
        self._with_server(cached, partial(self._measure_loads, loads=loads, index=index))
        shape = replace(_timed(self._effort), clients=32, hit_ratio=1.0)
        for kind in CONSTANTS:
            load = {"hits_100_percent": shape}
            self._with_server(constant(kind, self._body), partial(self._measure_loads, loads=load, index=index))

    def _measure_loads(self, server: Server, loads: Mapping[str, Shape], index: int) -> None:
        for load, shape in loads.items():
            self._measure_load(server, load, shape, index)

    def _measure_load(self, server: Server, load: str, shape: Shape, index: int) -> Report:
        report = run_in_subprocess(server.port, shape)
        self.results.add(Load(server.peer.name, load, index, report))
        return report

    @property
    def _has_ours(self) -> bool:
        return any(peer.name == OURS for peer in self._peers) and OURS not in self.results.failed

    @property
    def _state(self) -> Path:
        return self._work / "state"

    @property
    def _body(self) -> Path:
        return self._work / "constant.json"


def chosen_peers(names: Sequence[str], venv: Path, work: Path) -> list[Peer]:
    """The peers of ``names``, in that order."""
    makers: dict[str, Callable[[], Peer]] = {OURS: lambda: ours(work / "state"), "fastapi": bare_fastapi}
    for name, source in OTHER_ENCODERS.items():
        makers[name] = partial(ours, work / "state", name=name, EMBEDDING_MODEL=source)
    makers |= {name: partial(infinity, name, venv, work) for name in INFINITY_SETTINGS}
    return [makers[name]() for name in names]


def _reference_of(texts: Sequence[str], folder: Path) -> Vectors | None:
    """The vectors of an encoder in float32; None for a table of vectors, which is served as it is."""
    is_static = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type") == "model2vec"
    return None if is_static else reference_vectors(texts, folder)


def result_path() -> Path:
    """The result of this model of processor: runs on others stay."""
    found = machine()
    kind, _ = fastest_known(cpu()[1])
    name = f"{kind or found['cpu']} {found['cpu_family_model']}"
    return RESULTS / f"{re.sub('[^a-z0-9]+', '-', name.lower())}.json"


def main() -> None:
    """Measure and write the result; exit status 1 when a peer had to be left out."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.http", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round, for development")
    every = ",".join([OURS, *other_encoders(), *PEERS])
    parser.add_argument("--peers", default=every, help="which, in which order (default: %(default)s)")
    parser.add_argument("--rounds", type=int, help=f"default {FULL.rounds}")
    parser.add_argument("--infinity-venv", type=Path, default=ROOT / ".venv-infinity")
    parser.add_argument("--out", type=Path, default=result_path())
    flags = parser.parse_args()
    effort = QUICK if flags.quick else FULL
    effort = replace(effort, rounds=flags.rounds or effort.rounds)
    environment = facts()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        peers = chosen_peers(flags.peers.split(","), flags.infinity_venv, Path(folder))
        results = HttpBenchmark(peers, effort, Path(folder)).run()
    write(flags.out, environment | {"effort": asdict(effort)} | results.as_json())
    sys.exit(1 if results.failed else 0)


if __name__ == "__main__":
    main()
