"""Asks on a terminal which card to use, and on nothing else: in a container or CI a question would hang for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TextIO

from backend.device.choice.saved_choice import ChoiceFile, SavedChoice, choice_of
from backend.device.choice.selection import advice, gib, most_free, number_of
from backend.device.facts.compute_capability import architecture
from backend.device.plan.attention import expected_kernels
from backend.device.plan.placement import ceiling, workers_for
from backend.device.plan.precision import dtypes_for
from backend.device.records import DeviceType, GPUInfo, MachineFacts

_LITTLE_RATIO = 0.5  # of a card free: below it somebody else is at home, which a chooser wants to know


def may_ask(stdin: TextIO | None, stdout: TextIO | None, *, ci: bool = False, assume_no: bool = False) -> bool:
    """Whether somebody is there to answer.

    Args:
        stdin: None where the process has none (a service, pythonw).
        ci: the CI variable is set; a build may well run on a pseudo-terminal.
        assume_no: the caller asked for no questions.
    """
    return not ci and not assume_no and _is_terminal(stdin) and _is_terminal(stdout)


def ask(facts: MachineFacts, out: Callable[[str], object], read: Callable[[str], str]) -> GPUInfo | None:
    """The card that somebody names, out of a list with what speaks for each; None leaves the choice automatic.

    Enter takes the suggested one, anything that is no usable card is asked again. A single usable card is not
    asked for.

    Args:
        out: writes one line, as ``print`` does.
        read: shows a prompt and returns the line, as ``input`` does; EOFError ends the questions.
    """
    for line in listing(facts):
        out(line)
    if len(facts.usable) < 2:
        return facts.usable[0] if facts.usable else None
    by_number = {number_of(facts, gpu): gpu for gpu in facts.usable}
    best = most_free(facts.usable)
    names = ", ".join(str(number) for number in sorted(by_number))
    while True:
        try:
            answer = read(f"Card to use [{names}; Enter for {number_of(facts, best)}]: ").strip()
        except EOFError:
            out("No answer: the choice stays automatic.")
            return None
        if not answer:
            return best
        if answer.isascii() and answer.isdigit() and int(answer[:9]) in by_number:
            return by_number[int(answer[:9])]
        out(f"{answer[:40]!r} is none of {names}.")


def choose_card(facts: MachineFacts, file: ChoiceFile, stdin: TextIO, stdout: TextIO) -> SavedChoice | None:
    """Ask which card to use and keep the answer; None where nobody chose, and what was kept stays."""

    def read(prompt: str) -> str:
        stdout.write(prompt)
        stdout.flush()
        if line := stdin.readline():
            return line
        raise EOFError

    gpu = ask(facts, lambda line: stdout.write(f"{line}\n"), read)
    if gpu is None:
        return None
    choice = choice_of(gpu, facts.driver.version, datetime.now(UTC).isoformat(timespec="seconds"))
    if file.save(choice):
        stdout.write(f"\n{gpu.name} ({gpu.uuid or 'no UUID'}) is saved in {file.path}.\n\n")
    return choice


def listing(facts: MachineFacts) -> Iterator[str]:
    """Every card with its architecture, memory, workers and notes, a line at a time."""
    yield f"Platform: {facts.platform.label}"
    if not facts.gpus:
        yield f"No GPU: {facts.why_no_gpu or 'none was found'}"
        return
    yield f"{len(facts.gpus)} GPU(s):"
    suggested = most_free(facts.usable) if len(facts.usable) > 1 else None
    for gpu in facts.gpus:
        number = number_of(facts, gpu)
        yield ""
        yield f"  [{number if number >= 0 else '-'}] {gpu.name}{' (suggested)' if gpu is suggested else ''}"
        for line in _card(facts, gpu):
            yield f"      {line}"
    yield ""


def _card(facts: MachineFacts, gpu: GPUInfo) -> Iterator[str]:
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
    most = ceiling(facts, gpu)
    yield f"Suggested workers: {workers_for(most)}"
    yield from (f"- {note}" for note in _notes(facts, gpu, most.why))


def _notes(facts: MachineFacts, gpu: GPUInfo, ceiling_why: str) -> Iterator[str]:
    yield dtypes_for(gpu).why
    yield ceiling_why
    kernels = expected_kernels(facts.gpu_type, gpu.capability, facts.platform.system)
    if facts.gpu_type is DeviceType.CUDA and any(use.unpadded == "flash" for use in kernels):
        yield "flash attention is part of torch here, nothing to install"
    if gpu.mig:
        yield f"a MIG slice ({gpu.mig}) of a card; a process sees one slice"
    if gpu.unified:
        yield "its memory is the machine's"
    elif gpu.free_bytes is not None and gpu.free_bytes < _LITTLE_RATIO * gpu.total_bytes:
        yield "other processes hold more than half of its memory"


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False
