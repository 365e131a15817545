"""Two replicas under Ray Serve beside the service alone, two behind nginx, and infinity.

    python -m benchmarks.scaleout                # ten minutes; needs the extra [ray] and nginx
    python -m benchmarks.scaleout --rounds 1 --seconds 3 --out /tmp/result.json

One server runs at a time, in turns, so that a change of the machine meets all of them. Compare ratios: the load
generator takes a part of the same cores. "cached" repeats texts that are in
the cache: nothing is left but HTTP, which is where a proxy costs most.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.load import Shape, run_in_subprocess
from benchmarks.machine import facts
from benchmarks.peers import INFINITY_SETTINGS, ROOT, Peer, PeerError, infinity, ours, running

RESULT = Path(__file__).parent / "results" / "scaleout.json"
INFINITY_VENV = ROOT / ".venv-infinity"
INFINITY = "infinity-bf16"  # the faster of its settings under the first two loads
SHAPES = {
    "1 text, 32 clients": Shape(clients=32, texts=1, hit_ratio=0, encoding_format="base64"),
    "32 texts, 4 clients": Shape(clients=4, texts=32, encoding_format="base64", first_text=100_000),
    "cached, 32 clients": Shape(clients=32, texts=1, hit_ratio=1, encoding_format="base64"),
}
PLAIN = "plain"
_NGINX = """
worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx-error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off; client_max_body_size 100m; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/1; uwsgi_temp_path {folder}/2; scgi_temp_path {folder}/3;
    upstream replicas {{ least_conn; {servers} keepalive 64; }}
    server {{
        listen 127.0.0.1:PORT;
        location / {{ proxy_pass http://replicas; proxy_http_version 1.1; proxy_set_header Connection ""; }}
    }}
}}
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One load on one server."""

    server: str
    load: str
    requests_per_s: float
    p50_s: float
    p99_s: float
    lost: int
    start_s: float


def main() -> None:
    """Measure, print the ratios, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--servers", nargs="+", default=[PLAIN, "nginx", "ray-haproxy", "ray-python", INFINITY])
    parser.add_argument("--infinity-venv", type=Path, default=INFINITY_VENV)
    parser.add_argument("--state", type=Path, help="a folder with what was measured before; unset: a new one")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    shown = ["--rounds", str(options.rounds), "--seconds", f"{options.seconds:g}", "--servers", *options.servers]
    circumstances = facts(["benchmarks.scaleout", *shown])  # without folders of this machine
    rows: list[Row] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        state = options.state or folder / "state"
        for _ in range(options.rounds):
            for server in options.servers:
                try:
                    rows += measure(server, folder, state, options)
                except PeerError as error:
                    failed.append(f"{server}: {error}")
                    print(failed[-1], file=sys.stderr)
    print(_table(rows))
    result = {**circumstances, "rounds": options.rounds, "seconds": options.seconds, "failed": failed}
    options.out.write_text(json.dumps({**result, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")


def measure(name: str, folder: Path, state: Path, options: argparse.Namespace) -> list[Row]:
    """Every load on one server. Raises: PeerError."""
    rows = []
    with ExitStack() as stack:
        port, start_s = stack.enter_context(serving(name, folder, state, options))
        for load, shape in SHAPES.items():
            if name in INFINITY_SETTINGS and shape.hit_ratio == 1:
                continue  # it has no cache of this kind
            report = run_in_subprocess(port, replace(shape, duration_s=options.seconds))
            lost = sum(count for status, count in report.statuses.items() if status != "200")
            rows.append(Row(name, load, report.requests_per_s, report.p50_s, report.p99_s, lost, start_s))
            print(rows[-1], flush=True)
    return rows


@contextmanager
def serving(name: str, folder: Path, state: Path, options: argparse.Namespace) -> Iterator[tuple[int, float]]:
    """One of the servers, ready: its port, and the seconds that its start took."""
    with ExitStack() as stack:
        if name == "nginx":
            replicas = [
                stack.enter_context(running(_alone(state, f"replica-{number}", LANES="1"), folder)) for number in (1, 2)
            ]
            server = stack.enter_context(running(_nginx(folder, [replica.port for replica in replicas]), folder))
            yield server.port, max(replica.ready_s for replica in replicas)
            return
        server = stack.enter_context(running(_peer(name, folder, state, options), folder))
        yield server.port, server.ready_s


def _peer(name: str, folder: Path, state: Path, options: argparse.Namespace) -> Peer:
    if name == PLAIN:
        return _alone(state, name)
    if name in INFINITY_SETTINGS:
        return infinity(name, options.infinity_venv, folder / "infinity")
    proxy = name.removeprefix("ray-")
    flags = ("--replicas", "2", "--cpus", "1", "--proxy", proxy)
    return replace(_alone(state, name), argv=(sys.executable, "-m", "backend.scaleout", *flags))


def _alone(state: Path, name: str, **settings: str) -> Peer:
    """Speech and names are left out: a start takes them from the cores without anybody asking for them."""
    off = {"NER_MODEL": "none", "SPEECH_MODEL": "none", "CACHE_ENABLED": "true", "OCR_ENGINE": "tesseract"}
    return replace(ours(state, name=name, **off, **settings), settling=())


def _nginx(folder: Path, ports: list[int]) -> Peer:
    program = shutil.which("nginx")
    if program is None:
        raise PeerError("nginx is not installed")
    servers = " ".join(f"server 127.0.0.1:{port};" for port in ports)
    template, written = folder / "nginx.template", folder / "nginx.conf"
    template.write_text(_NGINX.format(folder=folder, servers=servers))
    command = f"sed s/PORT/{{port}}/ {template} > {written} && exec {program} -c {written}"
    return Peer("nginx", ("sh", "-c", command), ready_path="/health/ready")


def _table(rows: list[Row]) -> str:
    lines = []
    for load in SHAPES:
        medians: dict[str, float] = {}
        for server in dict.fromkeys(row.server for row in rows if row.load == load):
            rates = [row.requests_per_s for row in rows if row.load == load and row.server == server]
            medians[server] = statistics.median(rates)
        base = medians.get(PLAIN, 0.0) or 1.0
        lines.append(
            f"{load}: " + ", ".join(f"{name} {rate:.0f}/s ({rate / base:.2f})" for name, rate in medians.items())
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
