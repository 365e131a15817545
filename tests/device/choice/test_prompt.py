"""Nobody is asked where nobody can answer; who is asked sees what speaks for each card."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from backend.device.choice.prompt import ask, listing, may_ask
from backend.device.choice.selection import most_free
from backend.device.facts import simulated
from backend.device.records import DeviceType, GPUInfo, MachineFacts, Platform

GIB = 2**30
BUSY = GPUInfo(0, "NVIDIA GeForce RTX 4090", "GPU-b", 24 * GIB, (8, 9), bf16=True, free_bytes=5 * GIB)
IDLE = GPUInfo(1, "NVIDIA RTX 6000 Ada Generation", "GPU-a", 48 * GIB, (8, 9), bf16=True, free_bytes=47 * GIB)
OLD = GPUInfo(2, "Tesla K80", "GPU-k", 11 * GIB, (3, 7), bf16=False, fault="torch has no kernels for sm_37")
TWO = MachineFacts(8, "a processor", (), 64 * GIB, (BUSY, IDLE, OLD), DeviceType.CUDA, platform=Platform(wsl=True))


class Terminal(io.StringIO):
    """A stream that says it is a terminal, and raises once closed, as every stream does."""

    def isatty(self):
        return super().isatty() or True


def closed():
    """A stream that was closed, as a daemon's is."""
    stream = Terminal()
    stream.close()
    return stream


@pytest.mark.parametrize(
    ("stdin", "stdout", "ci", "assume_no", "expected"),
    [
        pytest.param(Terminal(), Terminal(), False, False, True, id="a-person"),
        pytest.param(io.StringIO(), Terminal(), False, False, False, id="input-from-a-pipe"),
        pytest.param(Terminal(), io.StringIO(), False, False, False, id="output-to-a-file"),
        pytest.param(Terminal(), Terminal(), True, False, False, id="ci-on-a-pseudo-terminal"),
        pytest.param(Terminal(), Terminal(), False, True, False, id="no-questions-wanted"),
        pytest.param(None, Terminal(), False, False, False, id="no-input-at-all"),
        pytest.param(Terminal(), None, False, False, False, id="no-output-at-all"),
        pytest.param(closed(), Terminal(), False, False, False, id="input-closed"),
        pytest.param(Terminal(), closed(), False, False, False, id="output-closed"),
    ],
)
def test_may_ask(stdin, stdout, ci, assume_no, expected):
    """Only a person at both ends of a terminal: comfy-cli#47 hung in a container for want of one."""
    assert expected is may_ask(stdin, stdout, ci=ci, assume_no=assume_no)


def answers(*lines):
    """Somebody who types these lines and then closes the input; and the prompts shown."""
    waiting, prompts = list(lines), []

    def read(prompt):
        prompts.append(prompt)
        if not waiting:
            raise EOFError
        return waiting.pop(0)

    return read, prompts


@pytest.mark.parametrize(
    ("lines", "expected", "asked"),
    [
        pytest.param(["0"], BUSY, 1, id="a-number"),
        pytest.param([" 1\t"], IDLE, 1, id="with-blanks"),
        pytest.param([""], IDLE, 1, id="enter-takes-the-suggested"),
        pytest.param(["yes", "-1", "7", "1.0", "0x1", "²", "9" * 5000, "0"], BUSY, 8, id="nonsense-is-asked-again"),
        pytest.param(["2", "1"], IDLE, 2, id="an-unusable-card-is-asked-again"),
        pytest.param([], None, 1, id="end-of-input-leaves-it-automatic"),
        pytest.param(["what?"], None, 2, id="end-after-nonsense"),
    ],
)
def test_ask(lines, expected, asked):
    """A usable card named by its number, or the suggestion, or nothing; never an endless wait."""
    read, prompts = answers(*lines)
    shown = []

    assert expected == ask(TWO, shown.append, read)
    assert asked == len(prompts)
    assert {"Card to use [0, 1; Enter for 1]: "} == set(prompts)
    assert all(len(line) < 300 for line in shown), "an endless answer is not thrown back"


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param(replace(TWO, gpus=(BUSY,)), BUSY, id="one-card"),
        pytest.param(replace(TWO, gpus=(BUSY, OLD)), BUSY, id="one-usable-card"),
        pytest.param(replace(TWO, gpus=(OLD,)), None, id="none-usable"),
        pytest.param(replace(TWO, gpus=(), why_no_gpu="no driver"), None, id="none"),
    ],
)
def test_nothing_to_choose(facts, expected):
    """One usable card is taken and none is told, both without a question."""
    read, prompts = answers()
    shown = []

    assert expected == ask(facts, shown.append, read)
    assert [] == prompts
    assert shown


def test_listing():
    """Platform, architecture by capability, memory, workers, notes, faults: an RTX 6000 Ada is Ada, not Blackwell."""
    text = "\n".join(listing(TWO))
    busy, idle, old = text.split("\n\n")[1:4]

    assert "Platform: WSL2" in text
    assert "[0] NVIDIA GeForce RTX 4090\n" in busy
    assert "Memory: 24.0 GiB, 5.0 GiB free" in busy
    assert "Suggested workers: 1" in busy
    assert "other processes hold more than half" in busy
    assert "[1] NVIDIA RTX 6000 Ada Generation (suggested)" in idle
    assert "Architecture: Ada Lovelace (sm_89)" in idle
    assert "other processes" not in idle
    assert "bf16: native" in idle
    assert "flash attention is part of torch" in idle
    assert "Cannot be used: torch has no kernels for sm_37" in old
    assert "workers" not in old
    assert "source" not in text, "nobody is told to build flash attention from source"


@pytest.mark.parametrize("name", sorted(simulated.MACHINES))
def test_simulated_machines(name):
    """Every machine that we know of is listed, and Enter takes what the automatic choice would."""
    facts = simulated.facts(name)
    shown = []

    chosen = ask(facts, shown.append, lambda _: "")

    assert chosen == (most_free(facts.usable) if facts.usable else None)
    assert all(any(gpu.name in line for line in shown) for gpu in facts.gpus)
    assert not any("None" in line or "[-1]" in line for line in shown)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("h100-mig", "a MIG slice (3g.40gb)"),
        ("gb10", "its memory is the machine's"),
        ("new-card-old-build", "pip install torch==2.13.0+cu129 --index-url"),
        ("wsl2", "Platform: WSL2"),
        ("no-gpu", "No GPU: no NVIDIA driver answers"),
    ],
)
def test_notes(name, words):
    """What is particular about a machine is said."""
    assert any(words in line for line in listing(simulated.facts(name)))
