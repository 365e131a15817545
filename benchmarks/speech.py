"""Speech benchmark: this service and faster-whisper on the same weights, in one run; results as JSON.

    python -m benchmarks.speech                       # everything, on an idle machine; about an hour and a half
    python -m benchmarks.speech --quick               # few clips, one round, for development
    python -m benchmarks.speech --parts quality,speed # parts alone are printed, and written only with --out

Clips come from ../shared/data/speech. Exit status: 1 when a target is missed, 2 when something could not be measured.
"""

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import speech_hour, speech_quality, speech_speed
from benchmarks.client import RequestRefused
from benchmarks.machine import facts
from benchmarks.peers import OURS, PeerError, ours
from benchmarks.results import write
from benchmarks.speech_peers import BEAMS, COMPUTE_TYPE, versions
from benchmarks.speech_tables import missed, speech_section
from benchmarks.texts import DATA

RESULT = Path(__file__).parent / "results" / "speech.json"
PARTS = ("quality", "speed", "memory", "hour")
MISSED, UNMEASURED = 1, 2


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is heard."""

    rounds: int = 3
    clips: int = 24  # of a load
    memory_clips: int = 500
    peer_memory_clips: int = 100
    rest_s: float = 330.0  # the speech model leaves memory after five minutes without a recording
    hour_s: float = 3600.0
    is_quick: bool = False


QUICK = Effort(rounds=1, clips=6, memory_clips=40, peer_memory_clips=20, rest_s=20.0, hour_s=180.0, is_quick=True)


class Run:
    """One run: where the clips are, how much of them, and what could not be measured."""

    def __init__(self, data: Path, work: Path, effort: Effort) -> None:
        self.unmeasured: dict[str, str] = {}
        self._data, self._work, self._effort = data, work, effort

    def part(self, name: str) -> dict[str, Any]:
        """A part's share of the result; empty, and why under ``unmeasured``, where it failed."""
        started_s = time.perf_counter()
        try:
            told: dict[str, Any] = getattr(self, f"_{name}")()
        except (RequestRefused, PeerError, RuntimeError) as error:
            self.unmeasured[name] = str(error)
            return {}
        return {**told, f"{name}_took_s": time.perf_counter() - started_s}

    def _quality(self) -> dict[str, Any]:
        return speech_quality.measure(self._data, self._work, is_quick=self._effort.is_quick)

    def _speed(self) -> dict[str, Any]:
        effort = self._effort
        return speech_speed.measure(self._data, self._work, effort.clips, effort.rounds)

    def _memory(self) -> dict[str, Any]:
        effort = self._effort
        wanted = {
            speech_speed.FASTAPI: (speech_speed.bare(speech_speed.FASTAPI), effort.peer_memory_clips),
            OURS: (ours(self._work / "state", **speech_quality.LIMITS), effort.memory_clips),
        }
        return {
            "memory": {
                name: speech_speed.measure_memory(self._data, self._work, peer, clips, effort.rest_s)
                for name, (peer, clips) in wanted.items()
            }
        }

    def _hour(self) -> dict[str, Any]:
        return speech_hour.measure(self._data, self._work, self._effort.hour_s)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speech", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few clips, one round: for development")
    parser.add_argument("--parts", default=",".join(PARTS), help="which, in which order (default: %(default)s)")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of sets (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="where the result goes (default: results/, for a run of everything)")
    return parser


def main() -> None:
    """Measure, print the tables, write the result."""
    parser = _parser()
    flags = parser.parse_args()
    parts = flags.parts.split(",")
    if unknown := sorted(set(parts) - set(PARTS)):
        parser.error(f"--parts: {unknown[0]} is none of {', '.join(PARTS)}")
    effort = QUICK if flags.quick else Effort()
    result: dict[str, Any] = {**facts(), "quick": flags.quick, "readers": versions()}
    result |= {"arithmetic": COMPUTE_TYPE, "beams": BEAMS}
    with tempfile.TemporaryDirectory(prefix="speech-") as work:
        run = Run(flags.data, Path(work), effort)
        for part in parts:
            result |= run.part(part)
    result["unmeasured"] = run.unmeasured
    print(speech_section(result))
    is_complete = not flags.quick and set(PARTS) <= set(parts)
    if out := flags.out or (RESULT if is_complete else None):
        write(out, result)
    sys.exit(UNMEASURED if run.unmeasured else MISSED if not flags.quick and missed(result) else 0)


if __name__ == "__main__":
    main()
