"""Asks the operator on a terminal which card to use; never in a container or CI, where it would wait for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TextIO

from backend.device.choice.saved_choice import ChoiceFile, SavedChoice, choice_of
from backend.device.choice.selection import advice, card_number, gib, most_free
from backend.device.facts.compute_capability import architecture
from backend.device.plan.attention import expected_kernels
from backend.device.plan.placement import memory_limit, workers_for
from backend.device.plan.precision import dtypes_for
from backend.device.records import DeviceType, GPUInfo, MachineFacts

_BUSY_FREE_RATIO = 0.5  # with less of a card's memory free, the listing says that other processes use it


def is_interactive(stdin: TextIO | None, stdout: TextIO | None, *, ci: bool = False, assume_no: bool = False) -> bool:
    """Whether both streams are terminals, so that a person can answer.

    Args:
        stdin: None where the process has none (a service, pythonw).
        ci: whether the CI variable is set; a build may run on a pseudo-terminal.
        assume_no: whether the caller asked for no questions.
    """
    return not ci and not assume_no and _is_terminal(stdin) and _is_terminal(stdout)


def ask_for_card(facts: MachineFacts, out: Callable[[str], object], read: Callable[[str], str]) -> GPUInfo | None:
    """List the cards and ask for one; None leaves the choice automatic.

    Enter takes the suggested card; an invalid answer is asked again. With a single usable card nothing is asked.

    Args:
        out: writes one line, as ``print`` does.
        read: shows a prompt and returns the line, as ``input`` does; EOFError ends the questions.
    """
    for line in listing(facts):
        out(line)
    if len(facts.usable) < 2:
        return facts.usable[0] if facts.usable else None
    by_number = {card_number(facts, gpu): gpu for gpu in facts.usable}
    best = most_free(facts.usable)
    names = ", ".join(str(number) for number in sorted(by_number))
    while True:
        try:
            answer = read(f"Card to use [{names}; Enter for {card_number(facts, best)}]: ").strip()
        except EOFError:
            out("No answer: the choice stays automatic.")
            return None
        if not answer:
            return best
        if answer.isascii() and answer.isdigit() and int(answer[:9]) in by_number:
            return by_number[int(answer[:9])]
        out(f"{answer[:40]!r} is none of {names}.")


def choose_card(facts: MachineFacts, file: ChoiceFile, stdin: TextIO, stdout: TextIO) -> SavedChoice | None:
    """Ask which card to use and save the answer; None when nobody answered, which leaves the file unchanged."""

    def read(prompt: str) -> str:
        stdout.write(prompt)
        stdout.flush()
        if line := stdin.readline():
            return line
        raise EOFError

    gpu = ask_for_card(facts, lambda line: stdout.write(f"{line}\n"), read)
    if gpu is None:
        return None
    choice = choice_of(gpu, facts.driver.version, datetime.now(UTC).isoformat(timespec="seconds"))
    if file.save(choice):
        stdout.write(f"\n{gpu.name} ({gpu.uuid or 'no UUID'}) is saved in {file.path}.\n\n")
    return choice


def listing(facts: MachineFacts) -> Iterator[str]:
    """The lines that describe every card: architecture, memory, workers and notes."""
    yield f"Platform: {facts.platform.label}"
    if not facts.gpus:
        yield f"No GPU: {facts.why_no_gpu or 'none was found'}"
        return
    yield f"{len(facts.gpus)} GPU(s):"
    suggested = most_free(facts.usable) if len(facts.usable) > 1 else None
    for gpu in facts.gpus:
        number = card_number(facts, gpu)
        yield ""
        yield f"  [{number if number >= 0 else '-'}] {gpu.name}{' (suggested)' if gpu is suggested else ''}"
        for line in _card_lines(facts, gpu):
            yield f"      {line}"
    yield ""


def _card_lines(facts: MachineFacts, gpu: GPUInfo) -> Iterator[str]:
    if gpu.capability != (0, 0):
        generation = architecture(gpu.capability)
        yield f"Architecture: {generation.name} ({generation.sm})"
    free = "" if gpu.free_bytes is None else f", {gib(gpu.free_bytes)} free"
    yield f"Memory: {gib(gpu.total_bytes)}{free}"
    if gpu.fault:
        yield f"Cannot be used: {gpu.fault}"
        line = advice(facts, gpu)
        if line and line not in gpu.fault:
            yield f"  {line}"
        return
    limit = memory_limit(facts, gpu)
    yield f"Suggested workers: {workers_for(limit)}"
    yield from (f"- {note}" for note in _notes(facts, gpu, limit.why))


def _notes(facts: MachineFacts, gpu: GPUInfo, limit_why: str) -> Iterator[str]:
    yield dtypes_for(gpu).why
    yield limit_why
    kernels = expected_kernels(facts.gpu_type, gpu.capability, facts.platform.system)
    if facts.gpu_type is DeviceType.CUDA and any(use.unpadded == "flash" for use in kernels):
        yield "flash attention is part of torch here, nothing to install"
    if gpu.mig:
        yield f"a MIG slice ({gpu.mig}) of a card; a process sees one slice"
    if gpu.unified:
        yield "its memory is the machine's"
    elif gpu.free_bytes is not None and gpu.free_bytes < _BUSY_FREE_RATIO * gpu.total_bytes:
        yield "other processes hold more than half of its memory"


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False
