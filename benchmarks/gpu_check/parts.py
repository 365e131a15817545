"""The parts of the check in their order: what each measures, how long it may take, and which fit into one command."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """One part. Its module, ``benchmarks.gpu_check.<module>``, has ``measure(context)``."""

    name: str
    module: str
    title: str
    limit_s: float  # its process is ended after this long
    group: str  # parts of one group take at most nine minutes together


PARTS = (
    Part("card", "card", "the card, its driver and torch", 40, "compute"),
    Part("check", "diagnosis", "check_gpu --full", 60, "compute"),
    Part("rates", "device_rates", "matrix rate, host costs", 60, "compute"),
    Part("shapes", "new_shapes", "what a batch of a new shape costs, for each attention kernel", 80, "compute"),
    Part("encoders", "encoder_rates", "tokens a second of each runtime, beside the matrix rate", 160, "compute"),
    Part("queueing", "queueing", "the host is not held up: queued work, graphs, two batches at once", 80, "graphs"),
    Part("reloads", "graph_reloads", "graphs under reload: no vector of another's memory", 80, "graphs"),
    Part("fidelity", "fidelity", "one vector for a text, alone or in a batch", 80, "graphs"),
    Part("oom", "out_of_memory", "memory that runs out: split, the same vectors, memory back", 60, "graphs"),
    Part("process", "in_process", "the service without HTTP, beside sentence-transformers", 230, "service"),
    Part("http", "http_rates", "the service over HTTP, /metrics/gpu under load", 300, "service"),
    Part("tests", "project_tests", "the tests with --device", 300, "tests"),
    Part("memory", "memory_foreseen", "memory of batches, foreseen and real", 120, "tests"),
    Part("speech", "speech_model", "Whisper on the card", 50, "tests"),
    Part("training", "training_options", "training with each option and with all", 270, "training"),
    Part("devices", "device_table", "embeddings, classes, pages, analysis: CPU and card", 260, "training"),
)
GROUPS = tuple(dict.fromkeys(part.group for part in PARTS))


def chosen_parts(names: Sequence[str]) -> list[Part]:
    """The parts of these names or groups, in the order of PARTS; all for no names. Raises: ValueError."""
    unknown = [name for name in names if name not in GROUPS and name not in {part.name for part in PARTS}]
    if unknown:
        known = ", ".join([*GROUPS, *(part.name for part in PARTS)])
        raise ValueError(f"no part or group is called {', '.join(unknown)}; there are {known}")
    return [part for part in PARTS if not names or part.name in names or part.group in names]
