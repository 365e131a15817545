"""The question for a card: only on a terminal, with a description of each card."""

import io

import pytest

from backend.device.choice.prompt import ask_for_card, is_interactive, listing
from backend.device.choice.selection import most_free
from backend.device.facts import simulated
from backend.device.records import DeviceType, GPUInfo, MachineFacts, Platform

GIB = 2**30
BUSY = GPUInfo(0, "NVIDIA GeForce RTX 4090", "GPU-b", 24 * GIB, (8, 9), bf16=True, free_bytes=5 * GIB)
IDLE = GPUInfo(1, "NVIDIA RTX 6000 Ada Generation", "GPU-a", 48 * GIB, (8, 9), bf16=True, free_bytes=47 * GIB)
OLD = GPUInfo(2, "Tesla K80", "GPU-k", 11 * GIB, (3, 7), bf16=False, fault="torch has no kernels for sm_37")
TWO = MachineFacts(8, "a processor", (), 64 * GIB, (BUSY, IDLE, OLD), DeviceType.CUDA, platform=Platform(wsl=True))


class Terminal(io.StringIO):
    """A stream that is a terminal, and raises once closed, as every stream does."""

    def isatty(self):
        return super().isatty() or True


def closed():
    """A closed stream, as in a daemon."""
    stream = Terminal()
    stream.close()
    return stream


@pytest.mark.parametrize(
    ("stdin", "stdout", "ci", "assume_no", "expected"),
    [
        pytest.param(Terminal(), Terminal(), False, False, True, id="a-person"),
        pytest.param(io.StringIO(), Terminal(), False, False, False, id="input-from-a-pipe"),
        pytest.param(Terminal(), Terminal(), True, False, False, id="ci-on-a-pseudo-terminal"),
        pytest.param(Terminal(), Terminal(), False, True, False, id="no-questions-wanted"),
        pytest.param(None, Terminal(), False, False, False, id="no-input-at-all"),
        pytest.param(closed(), Terminal(), False, False, False, id="input-closed"),
        pytest.param(Terminal(), closed(), False, False, False, id="output-closed"),
    ],
)
def test_is_interactive(stdin, stdout, ci, assume_no, expected):
    """Both streams must be terminals; comfy-cli#47 waited for ever in a container."""
    assert expected is is_interactive(stdin, stdout, ci=ci, assume_no=assume_no)


def answers(*lines):
    """A ``read`` that returns these lines and then raises EOFError; and the prompts it was called with."""
    remaining, prompts = list(lines), []

    def read(prompt):
        prompts.append(prompt)
        if not remaining:
            raise EOFError
        return remaining.pop(0)

    return read, prompts


@pytest.mark.parametrize(
    ("lines", "expected", "questions"),
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
def test_ask_for_card(lines, expected, questions):
    """A usable card by its number, or the suggested one, or None at the end of input."""
    read, prompts = answers(*lines)
    output = []

    assert expected == ask_for_card(TWO, output.append, read)
    assert questions == len(prompts)
    assert {"Card to use [0, 1; Enter for 1]: "} == set(prompts)
    assert all(len(line) < 300 for line in output), "a long answer is shortened"


def test_listing():
    """Platform, architecture, memory, workers, notes and faults; an RTX 6000 Ada is Ada, not Blackwell."""
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
    shown, (read, prompts) = [], answers("")

    chosen = ask_for_card(facts, shown.append, read)

    assert len(prompts) == (len(facts.usable) > 1), "with one card or none nothing is asked"
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
