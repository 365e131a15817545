"""The check_gpu command: its report, its exit codes, and no stack traces."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from backend import check_gpu
from backend.check_gpu import Target, main, observe, simulated_machine
from backend.config import Settings, load_settings
from backend.device.choice.prompt import choose_card
from backend.device.choice.saved_choice import CHOICE_FILE, ChoiceFile
from backend.device.choice.selection import DeviceRequest
from backend.device.diagnosis import Status, diagnose
from backend.device.facts import simulated

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
# Variables of other programs that the page explains: of torch, of CUDA, of guides that are corrected.
FOREIGN_VARIABLES = {
    "CUDA_LAUNCH_BLOCKING",
    "FLASH_ATTENTION_FORCE_BUILD",
    "MAX_JOBS",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TORCH_CUDA_ARCH_LIST",
    "TORCH_CUDNN_V8_API_ENABLED",
    "TORCH_INDEX_URL",  # arguments of the image's build
    "WITH_COMPILER",
}
TWO_CARDS = "ada-and-blackwell"


def run(*arguments: str, cwd: Path = ROOT, start: tuple[str, ...] = ("-m", "backend.check_gpu"), **settings: str):
    """Run the command in a process with only these settings."""
    inherited = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TMPDIR")}
    return subprocess.run(
        [sys.executable, *start, *arguments],
        cwd=cwd,
        env={**inherited, **settings},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )


@pytest.fixture
def settings(monkeypatch, tmp_path) -> Settings:
    """The defaults, with a temporary state folder."""
    monkeypatch.setenv("STATE_DIR", str(tmp_path))
    return load_settings()


@pytest.fixture
def two_cards(monkeypatch, settings) -> Path:
    """Pretend that this machine has two different cards; the path of its saved choice."""
    monkeypatch.setattr(check_gpu, "this_machine", lambda settings: simulated_machine(TWO_CARDS, settings))
    return settings.state_dir / CHOICE_FILE


class Terminal(io.StringIO):
    """Standard input or output that is a terminal."""

    def isatty(self) -> bool:
        return True


class Interrupted(Terminal):
    """A terminal on which Ctrl-C is pressed."""

    def readline(self, size: int = -1) -> str:
        raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "folder"),
    [
        pytest.param(("-m", "backend.check_gpu"), ROOT, id="as-a-module"),
        pytest.param(("backend/check_gpu.py",), ROOT, id="as-a-file"),
        pytest.param(("check_gpu.py",), ROOT / "backend", id="from-its-own-folder"),
        pytest.param((str(ROOT / "backend" / "check_gpu.py"),), Path("/"), id="from-anywhere"),
    ],
)
def test_ways_to_start(tmp_path, start, folder):
    """All of them give the same report; guides run it as a file in its folder."""
    done = run("--json", start=start, cwd=folder, DEVICE="cpu", STATE_DIR=str(tmp_path))

    assert (0, "") == (done.returncode, done.stderr)
    assert ["cpu"] == json.loads(done.stdout)["devices"]


def test_a_file_hides_no_library():
    """Started as a file, packages like "cache" and "models" do not hide libraries of that name."""
    code = "import runpy, sys; sys.path[0] = '.'; runpy.run_path('check_gpu.py'); print(sys.path[0])"

    assert str(ROOT) == run(start=("-c", code), cwd=ROOT / "backend").stdout.strip()


@pytest.mark.slow
def test_this_machine(device, tmp_path):
    """The device of the tests is found, computes, and is what the service would use."""
    done = run("--json", "--verbose", DEVICE=device, STATE_DIR=str(tmp_path))
    report = json.loads(done.stdout)
    kernel = [row for row in report["rows"] if row["topic"] == "kernel"]

    assert done.returncode == report["exit_code"] < 2
    assert [device] == report["devices"] == list(report["attention"])
    assert ["ok"] == [row["status"] for row in kernel]
    assert report["facts"]["torch"]["version"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "faults"),
    [
        pytest.param({"USE_GPU": "maybe"}, ["USE_GPU"], id="one"),
        pytest.param({"LANES": "0", "GPU_MEMORY_FRACTION": "1.5"}, ["GPU_MEMORY_FRACTION", "LANES"], id="two-at-once"),
    ],
)
def test_wrong_settings(settings, faults):
    """Each is a row of the report; the exit code is 2, without a stack trace."""
    done = run("--json", **settings)
    report = json.loads(done.stdout)

    assert (2, "", None) == (done.returncode, done.stderr, report["facts"])
    assert faults == sorted(row["what"].partition("=")[0] for row in report["rows"])
    assert "Traceback" not in run(**settings).stdout


@pytest.mark.parametrize(
    ("machine", "exit_code", "words"),
    [
        ("rtx-4070-laptop", 0, "runs on cuda:0"),
        (TWO_CARDS, 0, "runs on cuda:1"),
        ("h200", 0, "runs on cuda:0"),
        ("h100-mig", 0, "runs on cuda:0"),
        ("t4", 0, "torch fp16, torch fp32"),
        ("v100", 0, "Volta, sm_70"),
        ("gb10", 0, "sm_121"),
        ("apple-m3", 0, "runs on mps"),
        ("wsl2", 0, "WSL2"),
        ("windows-wddm", 1, "wsl --install"),
        ("no-gpu", 0, "runs on cpu"),
        ("vanishing", 0, "NVIDIA L4"),
        ("cpu-build", 1, "https://download.pytorch.org/whl/cu"),
        ("old-driver", 1, "docs/gpu.md#driver-too-old"),
        ("new-card-old-build", 1, "https://download.pytorch.org/whl/cu"),
    ],
)
def test_a_simulated_machine(capsys, machine, exit_code, words):
    """The report and exit code of that machine."""
    assert exit_code == main(["--as", machine])

    output = capsys.readouterr().out
    assert words in output
    assert f"the simulated machine {machine}" in output


def test_settings_apply_to_a_simulated_machine(capsys, monkeypatch):
    monkeypatch.setenv("USE_GPU", "true")

    assert 2 == main(["--as", "no-gpu"])
    assert 2 == main(["--as", "cpu-build"])
    assert 0 == main(["--as", "t4"])
    monkeypatch.setenv("PRECISION", "bf16")
    assert 2 == main(["--as", "t4"])
    assert "PRECISION=bf16" in capsys.readouterr().out


def test_list_of_machines(capsys):
    assert 0 == main(["--as", "list"])

    lines = capsys.readouterr().out.splitlines()
    assert list(simulated.MACHINES) == [line.split()[0] for line in lines]
    assert all(len(line.split()) > 3 for line in lines)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["--as", "toaster"], "invalid choice: 'toaster'", id="unknown-machine"),
        pytest.param(["--gpu", "one"], "invalid int value", id="no-number"),
        pytest.param(["--choose"], "asks on a terminal", id="nobody-to-ask"),
        pytest.param(["--choose", "--json"], "asks on a terminal", id="a-question-in-the-middle-of-json"),
        pytest.param(["--choose", "--forget"], "not allowed with", id="both-at-once"),
        pytest.param(["--choose", "--as", "t4"], "about this machine", id="choose-elsewhere"),
        pytest.param(["--forget", "--as", "t4"], "about this machine", id="forget-elsewhere"),
    ],
)
def test_invalid_options(capsys, arguments, words):
    """Refused with a sentence and exit code 2; --choose never waits without a terminal."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    assert 2 == caught.value.code
    assert words in capsys.readouterr().err


def test_only_the_selected_card_runs_a_kernel(settings):
    """A context on every card would take hundreds of megabytes of each."""
    target = simulated_machine(TWO_CARDS, settings)
    observe(target, settings, DeviceRequest())

    assert ["cuda:1"] == target.torch.tried


@pytest.mark.parametrize(("full", "tried"), [(False, []), (True, ["cpu"])])
def test_a_cpu_runs_a_kernel_only_with_full(settings, full, tried):
    """--full imports torch where the service would not."""
    target = simulated_machine("no-gpu", settings)
    facts, _ = observe(target, settings, DeviceRequest(), full=full)

    assert tried == target.torch.tried
    assert full is bool(facts.torch.version)


def test_no_gpu_is_probed_with_use_gpu_false(settings):
    facts, observed = observe(simulated_machine("h200", settings), settings, DeviceRequest(use_gpu=False))

    assert ((), "cpu") == (facts.gpus, observed.placements[0].device)


def test_a_card_that_is_lost_during_the_check(settings):
    """A finding, not a crash."""
    target = simulated_machine("t4", settings)
    target.driver.lost = True
    diagnosis = diagnose(*observe(target, settings, DeviceRequest()))

    assert ["gives no readings: GPU is lost"] == [row.what for row in diagnosis.findings if row.status is Status.WARN]


def test_a_failed_device_is_not_used_again(settings, monkeypatch):
    """After a failed kernel its context may be dead."""
    target = simulated_machine("t4", settings)
    monkeypatch.setattr(type(target.torch), "try_kernel", lambda self, device: "CUDA error: unknown error")
    _, observed = observe(target, settings, DeviceRequest())

    assert ({"cuda:0": "CUDA error: unknown error"}, {}) == (observed.kernels, observed.attention)


def test_cards_are_sampled_before_the_kernel(settings):
    """Afterwards this process would be listed among those that hold the card's memory."""
    order: list[str] = []
    machine = simulated_machine("t4", settings)

    class Driver(type(machine.driver)):
        def sample(self, uuid: str):
            order.append("sample")
            return super().sample(uuid)

    class Torch(type(machine.torch)):
        def try_kernel(self, device: str) -> str:
            order.append("compute")
            return super().try_kernel(device)

    profile = simulated.MACHINES["t4"]
    observe(Target(machine.host, Driver(profile), Torch(profile), machine.attention), settings, DeviceRequest())

    assert ["sample", "compute"] == order


def test_a_choice_that_cannot_be_saved(tmp_path):
    """It is used for this report, and the output does not claim that it was saved."""
    blocked = tmp_path / "a file"
    blocked.write_text("")
    screen = io.StringIO()
    choice = choose_card(simulated.facts(TWO_CARDS), ChoiceFile(blocked / CHOICE_FILE), io.StringIO("0\n"), screen)

    assert choice is not None
    assert "is saved" not in screen.getvalue()


def test_choose_use_forget(capsys, monkeypatch, two_cards):
    """On a terminal the choice is asked for, used from then on, and forgotten again."""
    monkeypatch.setattr(sys, "stdin", Terminal("0\n"))
    screen = Terminal()
    with monkeypatch.context() as on_a_terminal:
        on_a_terminal.setattr(sys, "stdout", screen)
        assert 0 == main(["--choose"])
    assert "runs on cuda:0" in screen.getvalue()
    assert two_cards.is_file()

    assert 0 == main(["--json"])
    assert ["cuda:0"] == json.loads(capsys.readouterr().out)["devices"]

    assert 0 == main(["--forget"])
    output = capsys.readouterr().out
    assert "The saved choice is forgotten." in output
    assert "runs on cuda:1" in output
    assert not two_cards.exists()

    main(["--forget"])
    assert "There is no saved choice" in capsys.readouterr().out

    main(["--forget", "--json"])
    assert "good" == json.loads(capsys.readouterr().out)["verdict"]


def test_an_interrupted_question(monkeypatch, two_cards):
    """Ctrl-C ends it without a stack trace, and nothing is saved."""
    monkeypatch.setattr(sys, "stdin", Interrupted())
    monkeypatch.setattr(sys, "stdout", Terminal())

    assert 130 == main(["--choose"])
    assert not two_cards.exists()


def test_options_of_the_page(capsys: pytest.CaptureFixture[str]):
    """The page has exactly the options of the command."""
    with pytest.raises(SystemExit):
        check_gpu.main(["--help"])
    options = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    table = PAGE.partition("| option |")[2].partition("\n\n")[0]
    first_cells = re.findall(r"^\| (.*?) \|", table, re.MULTILINE)

    assert options - {"--help"} == set(re.findall(r"`(--[a-z]+)", " ".join(first_cells)))


def test_settings_of_the_page():
    """Every setting on the page exists."""
    named = set(re.findall(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)(?![A-Z0-9_]|\.md)", PAGE))

    assert named - FOREIGN_VARIABLES <= {name.upper() for name in Settings.model_fields}
    assert FOREIGN_VARIABLES <= named
