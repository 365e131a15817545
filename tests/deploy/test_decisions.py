"""deploy-gpu.sh and deploy-gpu.ps1 decide the same about every machine, and what they decide is right.

The bash script is run whole (--dry-run, every program a stub). Of the PowerShell one the decision is run, by
`powershell.py`; where PowerShell itself is installed, the whole script too.
"""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backend.device.facts import torch_builds
from backend.device.facts.compute_capability import _NAMES
from backend.device.facts.simulated import MACHINES
from backend.device.facts.torch_builds import install_line, kernels_run
from tests.deploy.machine import INFO, VERSION, Answer, Machine, Outcome, bash, play
from tests.deploy.powershell import Script

ROOT = Path(__file__).resolve().parents[2]
TABLE = (ROOT / "deploy" / "torch-builds.tsv").read_text(encoding="utf-8").splitlines()
INDEX = "https://download.pytorch.org/whl"
PWSH = shutil.which("pwsh")

ADA = "0, GPU-a, NVIDIA GeForce RTX 4070, 8.9"
HOPPER = "0, GPU-h, NVIDIA H100 80GB HBM3, 9.0"
VOLTA = "0, GPU-v, Tesla V100-SXM2-16GB, 7.0"
BLACKWELL = "1, GPU-b, NVIDIA GeForce RTX 5090, 12.0"
LINUX = Machine(cards=(HOPPER,))
WSL2 = Machine(
    kernel="5.15.167.4-microsoft-standard-WSL2",
    engine_name="Docker Desktop",
    runtimes=("io.containerd.runc.v2", "runc"),
    driver="573.09",
    cards=(ADA,),
)
MIXED = Machine(cards=(VOLTA, BLACKWELL))


@dataclass(frozen=True)
class Case:
    """A machine, what is asked of it, and what comes of it."""

    name: str
    machine: Machine
    build: str = ""  # "" is the CPU
    options: tuple[str, ...] = ()
    says: str = ""  # in the reason, the obstacle or the fix
    code: int = 0
    visible: str = ""


def one(driver: str, card: str, machine: str = "x86_64") -> Machine:
    """A Linux machine with one card of the capability."""
    return LINUX.but(driver=driver, machine=machine, cards=(f"0, GPU-0, A card, {card}",))


def with_environment(machine: Machine, **environment: str) -> Machine:
    return machine.but(environment=environment)


CASES = [
    Case("the-reference-laptop", WSL2, "cu126", says="the newest that driver 573.09 knows"),
    Case("hopper", one("580.95.05", "9.0"), "cu130"),
    Case("a-newer-driver", one("595.45.04", "9.0"), "cu132"),
    Case("an-older-driver", one("535.247.01", "9.0"), "cu126", says="the oldest that driver 535.247.01 starts"),
    Case("maxwell", one("550.90.07", "5.2"), "cu126"),
    Case("volta-is-not-in-cuda-13", one("580.95.05", "7.0"), "cu126", says="kernels missing in cu130, cu129"),
    Case("blackwell-under-12.8", one("570.172.08", "12.0"), "cu129", says="the oldest that driver 570.172.08 starts"),
    Case("blackwell-under-13.0", one("580.95.05", "12.0"), "cu130"),
    Case("blackwell-data-centre", one("575.57.08", "10.0"), "cu129", says="the newest"),
    Case("grace-hopper", one("580.95.05", "9.0", "aarch64"), "cu130"),
    Case("the-other-name-of-a-machine", one("580.95.05", "12.1", "arm64"), "cu130"),
    Case("thor-needs-cuda-13", one("570.1", "11.0", "aarch64"), says="compute capability 11.0 needs driver 580"),
    Case("orin-has-builds-of-its-own", one("540.4.0", "8.7", "aarch64"), says="no published torch build for aarch64"),
    Case("a-machine-without-builds", one("580.95", "9.0", "ppc64le"), says="no published torch build for ppc64le"),
    Case("driver-before-cuda-12", one("520.61.05", "8.0"), says="no torch build starts before driver 525"),
    Case("driver-that-tells-no-capability", one("470.256.02", "8.0").but(smi="old"), says="Update the NVIDIA driver"),
    Case("kepler", one("525.60.13", "3.7"), says="has kernels for compute capability 3.7"),
    Case("a-card-of-the-future", one("700.1", "14.0"), says="set TORCH_INDEX_URL to its index"),
    Case("no-number-for-capability", one("580.95", "[N/A]"), says="compute capability [N/A]"),
    Case("two-alike", LINUX.but(cards=(HOPPER, "1, GPU-i, NVIDIA H100, 9.0")), "cu130", says="capability 9.0\n"),
    Case("two-generations", MIXED.but(cards=(ADA, BLACKWELL)), "cu130", says="capability 8.9, 12.0\n"),
    Case(
        "no-build-for-both", MIXED, "cu130", says="no kernels for GPU 0 (Tesla V100-SXM2-16GB, compute capability 7.0)"
    ),
    Case("the-old-one-by-number", MIXED, "cu126", ("--gpu", "0"), visible="GPU-v"),
    Case("the-new-one-by-number", MIXED, "cu130", ("--gpu", "1"), visible="GPU-b"),
    Case(
        "most-of-them", MIXED.but(cards=(VOLTA, BLACKWELL, "2, GPU-w, Tesla V100, 7.0")), "cu126", says="GPU 1 (NVIDIA"
    ),
    Case("a-number-that-is-not-there", MIXED, options=("--gpu", "5"), says="The driver lists: 0, 1", code=4),
    Case("no-card-at-all", LINUX.but(cards=()), says="there is no GPU"),
    Case("cpu-as-asked", WSL2, options=("--cpu",), says="CPU, as asked for"),
    Case("cpu-by-setting", with_environment(LINUX, USE_GPU="false"), says="CPU, as asked for"),
    Case("cpu-needs-no-driver", LINUX.but(smi="absent"), options=("--cpu",), says="CPU, as asked for"),
    Case("no-driver", LINUX.but(smi="absent"), says="sudo ubuntu-drivers install"),
    Case("no-driver-under-wsl", WSL2.but(smi="absent"), says="install its driver in Windows, never inside WSL"),
    Case(
        "gpu-demanded-without-driver",
        with_environment(LINUX.but(smi="absent"), USE_GPU="true"),
        says="nvidia-smi",
        code=4,
    ),
    Case(
        "driver-updated-under-way",
        LINUX.but(smi="failed", driver="Failed to initialize NVML: Driver/library version mismatch"),
        says="restart the machine",
    ),
    Case("driver-without-cards", LINUX.but(smi="failed", driver="No devices were found"), says="No devices were found"),
    Case("no-toolkit", LINUX.but(runtimes=("runc",)), says="nvidia-ctk runtime configure"),
    Case(
        "no-toolkit-in-wsl",
        WSL2.but(engine_name="Ubuntu 24.04", runtimes=("runc",)),
        says="nvidia-ctk runtime configure",
    ),
    Case("toolkit-in-wsl", WSL2.but(engine_name="Ubuntu 24.04", runtimes=("nvidia", "runc")), "cu126"),
    Case("gpu-demanded-without-toolkit", LINUX.but(runtimes=("runc",)), options=("--gpu", "0"), says="Toolkit", code=4),
    Case(
        "desktop-on-linux", LINUX.but(engine_name="Docker Desktop", engine_kernel="6.10-linuxkit"), says="WSL 2 engine"
    ),
    Case("a-mac", Machine(system="Darwin", kernel="24.1.0", machine="arm64", smi="absent"), says="make serve"),
    Case("wsl-1", LINUX.but(kernel="4.4.0-19041-Microsoft", engine_name="Docker Desktop"), says="wsl --set-version"),
    Case(
        "an-index-by-hand",
        with_environment(one("580.95", "14.0"), TORCH_INDEX_URL="https://mirror.example/cu140"),
        "cu140",
        says="as TORCH_INDEX_URL says",
    ),
    Case("an-index-by-hand-without-gpu", with_environment(LINUX.but(smi="absent"), TORCH_INDEX_URL="https://m/cpu")),
]

ON_LINUX = [case for case in CASES if case.machine.system == "Linux"]  # PowerShell knows itself where it runs


@pytest.fixture(scope="module")
def script() -> Script:
    return Script((ROOT / "deploy-gpu.ps1").read_text(encoding="utf-8"))


def decided(script: Script, case: Case) -> dict[str, Any]:
    """What deploy-gpu.ps1 decides."""
    asked = case.machine.environment
    wish = {"true": "demand", "false": "cpu"}.get(asked.get("USE_GPU", ""), "auto")
    gpu = case.options[1] if case.options[:1] == ("--gpu",) else ""
    wish = "cpu" if "--cpu" in case.options else "demand" if gpu else wish
    cards = script.call("Get-Cards", case.machine.lines()) if case.machine.lines() else []
    facts = {**case.machine.facts(), "cards": cards if isinstance(cards, list) else [cards]}
    wishes = {"wish": wish, "gpu": gpu, "index_wish": asked.get("TORCH_INDEX_URL", "")}
    return {"wish": wish, **script.call("Get-Decision", wishes, facts, TABLE)}


def expected_index(case: Case) -> str:
    own = case.machine.environment.get("TORCH_INDEX_URL")
    return own or f"{INDEX}/{case.build or 'cpu'}"


def assert_outcome(outcome: Outcome, case: Case) -> None:
    """What was said and what would be run are what the case expects."""
    file = "docker-compose.gpu.yml" if case.build else "docker-compose.yml"
    given = {"TORCH_INDEX_URL": expected_index(case), "USE_GPU": "true" if case.build else "false"}
    given |= {"CUDA_VISIBLE_DEVICES": case.visible} if case.visible else {}

    assert case.code == outcome.code, outcome.err
    assert case.says in outcome.out + outcome.err
    if case.code == 0:
        assert given == outcome.given
        assert [f"docker compose -f {file} build", f"docker compose -f {file} up --detach"] == outcome.commands
    else:
        assert [] == outcome.commands


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_bash_script_decides(case: Case, tmp_path: Path):
    """The right build for card and driver, or the CPU with the reason; nothing is changed by a dry run."""
    outcome = bash(case.machine, tmp_path, "--dry-run", *case.options)

    assert_outcome(outcome, case)
    assert not [call for call in outcome.calls if re.search(r" (build|up|down|run|rm)\b", call)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_powershell_script_decides_the_same(case: Case, script: Script, tmp_path: Path):
    """Mode, index, card, reason, obstacle and fix are those of the bash script, word for word."""
    decision = decided(script, case)
    outcome = bash(case.machine, tmp_path, "--dry-run", *case.options)
    loud = "ERROR: the GPU cannot be used" if decision["wish"] == "demand" else "WARNING: serving from the CPU"

    assert (case.code == 4) == bool(decision["obstacle"] and decision["wish"] == "demand")
    if decision["obstacle"]:
        assert outcome.err == f"==> {loud}: {decision['obstacle']}\n    {decision['fix']}\n"
    else:
        assert f"==> {decision['why']}\n" in outcome.out
    if case.code == 0:
        assert ("gpu" if case.build else "cpu") == decision["mode"]
        assert (outcome.given["TORCH_INDEX_URL"], case.visible) == (decision["index"], decision["visible"])
        left_out = f"this build has no kernels for {decision['left_out']}\n"
        assert bool(decision["left_out"]) == (left_out in outcome.err)


@pytest.mark.skipif(
    PWSH is None, reason="pwsh is in no registry that CI has; without it its decisions are run by powershell.py"
)
@pytest.mark.parametrize("case", ON_LINUX if PWSH else ON_LINUX[:1], ids=lambda case: case.name)
def test_powershell_itself_says_what_bash_says(case: Case, tmp_path: Path):
    """Where PowerShell is installed (GitHub's runners), both scripts are run whole and say the same."""
    (tmp_path / "bash").mkdir()
    expected = bash(case.machine, tmp_path / "bash", "--dry-run", *case.options)
    options = [re.sub(r"^--(\w)", lambda match: "-" + match[1].upper(), option) for option in case.options]
    outcome = play(
        case.machine, tmp_path, PWSH or "", "-NoProfile", "-File", str(ROOT / "deploy-gpu.ps1"), "-DryRun", *options
    )

    assert_outcome(outcome, case)
    assert expected.out == outcome.out
    assert expected.err == re.sub(r"\x1b\[[0-9;]*m", "", outcome.err)


WINDOWS = WSL2.but(system="Windows", kernel="10.0.26100", engine_kernel="5.15.167.4-microsoft-standard-WSL2")


@pytest.mark.parametrize(
    ("machine", "mode", "index", "says"),
    [
        pytest.param(WINDOWS, "gpu", "cu126", "", id="docker-desktop"),
        pytest.param(WINDOWS.but(driver="591.86"), "gpu", "cu130", "", id="a-newer-driver"),
        pytest.param(
            WINDOWS.but(engine_kernel="6.10.14-linuxkit"),
            "cpu",
            "cpu",
            "Use the WSL 2 based engine",
            id="hyper-v-engine",
        ),
        pytest.param(WINDOWS.but(smi="absent"), "cpu", "cpu", "install its driver in Windows", id="no-driver"),
    ],
)
def test_powershell_on_windows(machine: Machine, mode: str, index: str, says: str, script: Script):
    """What only deploy-gpu.ps1 can meet: a shell of Windows itself."""
    decision = decided(script, Case("", machine))

    assert (mode, f"{INDEX}/{index}") == (decision["mode"], decision["index"])
    assert says in decision["fix"]


DRIVERS = {  # the newest CUDA of each driver branch: CUDA toolkit release notes
    "450.80.02": (11, 0),
    "470.256.02": (11, 4),
    "525.60.13": (12, 0),
    "535.247.01": (12, 2),
    "550.90.07": (12, 4),
    "560.35.05": (12, 6),
    "570.172.08": (12, 8),
    "575.57.08": (12, 9),
    "580.95.05": (13, 0),
    "590.48.01": (13, 1),
    "595.45.04": (13, 2),
}
COMBINATIONS = [
    (driver, f"{major}.{minor}", machine)
    for driver, (major, minor), machine in itertools.product(DRIVERS, sorted(_NAMES), ("x86_64", "aarch64"))
]


def advised(driver: str, capability: str, machine: str) -> str:
    """The index that the service's own check-up names; "" where it names none."""
    major, _, minor = capability.partition(".")
    line = install_line((int(major), int(minor)), DRIVERS[driver], machine, "2.13.0")
    return line.rpartition(" ")[2] if line.startswith("pip install") else ""


def test_the_powershell_script_chooses_as_the_check_up_advises(script: Script):
    """Every driver branch with every card there is: the build is the one of `backend.check_gpu`."""
    expected = {one: advised(*one) for one in COMBINATIONS}
    chosen = {}
    for driver, capability, machine in COMBINATIONS:
        case = Case("", one(driver, capability, machine))
        decision = decided(script, case)
        chosen[driver, capability, machine] = decision["index"] if decision["mode"] == "gpu" else ""

    assert expected == chosen


def test_the_bash_script_chooses_as_the_check_up_advises():
    """The same in bash, all in one shell."""
    loop = """
        source ./deploy-gpu.sh
        wish=auto gpu='' index_wish='' system=linux smi=listed engine_name=Ubuntu kernel=6.8 runtimes='nvidia runc'
        while read -r driver capability machine; do
            cards="0|GPU-0|A card|$capability"
            decide
            if [ $mode = gpu ]; then echo "$index"; else echo; fi
        done
    """
    asked = "".join(f"{' '.join(one)}\n" for one in COMBINATIONS)
    done = subprocess.run(
        ["bash", "-c", loop], check=False, cwd=ROOT, input=asked, capture_output=True, text=True, timeout=100
    )

    assert done.returncode == 0, done.stderr
    assert [advised(*one) for one in COMBINATIONS] == done.stdout.split("\n")[:-1]


def test_the_table_is_the_services():
    """deploy/torch-builds.tsv says what backend/device/facts/torch_builds.py says, and lists nothing twice."""
    expected = []
    for cuda, machines in torch_builds.BUILDS.items():
        oldest = torch_builds._OLDEST_DRIVER[int(cuda.partition(".")[0])]
        for machine, codes in machines.items():
            archs = [f"sm_{code}" for code in codes]
            runs = [f"{major}.{minor}" for major, minor in sorted(_NAMES) if kernels_run((major, minor), archs)]
            expected.append([f"cu{cuda.replace('.', '')}", machine, oldest, ",".join(runs)])
    rows = [line.split("\t") for line in TABLE if not line.startswith("#")]

    assert expected == [[build, machine, oldest, runs] for build, machine, oldest, _, runs in rows]
    for build, _, _, own, _ in rows:
        major, minor = int(build[2:-1]), int(build[-1])
        known = {driver: cuda for driver, cuda in DRIVERS.items() if cuda >= (major, minor)}
        known |= {one.driver.version: one.driver.cuda for one in MACHINES.values() if one.driver.cuda >= (major, minor)}
        unknown = [one.driver.version for one in MACHINES.values() if (0, 0) < one.driver.cuda < (major, minor)]
        assert min(int(driver.partition(".")[0]) for driver in known) >= int(own)
        assert all(int(driver.partition(".")[0]) < int(own) for driver in unknown)


def test_reading_cards(script: Script):
    """Names may hold spaces; what nvidia-smi puts after a comma is trimmed."""
    cards = script.call("Get-Cards", [ADA, BLACKWELL])

    assert {"index": "0", "uuid": "GPU-a", "name": "NVIDIA GeForce RTX 4070", "capability": "8.9"} == cards[0]
    assert "12.0" == cards[1]["capability"]


@pytest.mark.parametrize(
    ("machine", "says", "fix"),
    [
        pytest.param(LINUX.but(without=("docker",)), "Docker is not installed", "engine/install", id="no-docker"),
        pytest.param(WSL2.but(without=("docker",)), "Docker is not installed", "Docker Desktop", id="no-docker-in-wsl"),
        pytest.param(
            LINUX.but(answers={VERSION: Answer(err="Cannot connect to the Docker daemon\nmore\n", code=1)}),
            "cannot be reached: Cannot connect to the Docker daemon\n",
            "sudo systemctl start docker",
            id="no-daemon",
        ),
        pytest.param(
            WSL2.but(answers={VERSION: Answer(err="Cannot connect to the Docker daemon\n", code=1)}),
            "cannot be reached",
            "WSL integration",
            id="no-daemon-in-wsl",
        ),
        pytest.param(
            LINUX.but(system="Darwin", answers={VERSION: Answer(err="Cannot connect\n", code=1)}),
            "cannot be reached",
            "Start Docker Desktop",
            id="no-daemon-on-a-mac",
        ),
        pytest.param(
            LINUX.but(answers={VERSION: Answer(err="permission denied while trying to connect\n", code=1)}),
            "you may not use it",
            "usermod -aG docker",
            id="no-permission",
        ),
        pytest.param(LINUX.but(engine="windows"), "Windows containers", "Switch to Linux containers", id="windows"),
        pytest.param(
            LINUX.but(answers={INFO: Answer(err="can't evaluate field OSType\n", code=125)}),
            "docker info fails: can't evaluate field OSType",
            "a stand-in",
            id="not-docker",
        ),
        pytest.param(
            LINUX.but(answers={"docker compose version --short": Answer(err="unknown command\n", code=1)}),
            "Compose is not installed",
            "docker-compose-plugin",
            id="no-compose",
        ),
        pytest.param(
            LINUX.but(
                answers={
                    "docker compose version --short": Answer(code=1),
                    "docker-compose version --short": Answer("1.25.0\n"),
                }
            ),
            "Compose 1.25.0 is too old",
            "docker-compose-plugin",
            id="compose-too-old",
        ),
        pytest.param(LINUX.but(without=("curl",)), "curl is not installed", "apt install curl", id="no-curl"),
        pytest.param(LINUX.but(system="MINGW64_NT-10.0"), "shell of Windows", "deploy-gpu.ps1", id="git-bash"),
    ],
)
def test_what_stops_the_script(machine: Machine, says: str, fix: str, tmp_path: Path):
    """Docker and its parts, each with what to do, and exit code 3."""
    outcome = bash(machine, tmp_path, "--dry-run")

    assert 3 == outcome.code
    assert says in outcome.err
    assert fix in outcome.err
    assert outcome.err.startswith("==> ERROR: ")


def test_compose_v1_is_used_where_there_is_no_plugin(tmp_path: Path):
    """With its own command, a warning, and BuildKit turned on, which it does not do by itself."""
    answers = {"docker compose version --short": Answer(code=1), "docker-compose version --short": Answer("1.29.2\n")}
    outcome = bash(LINUX.but(answers=answers), tmp_path, "--dry-run")

    assert 0 == outcome.code
    assert "docker-compose -f docker-compose.gpu.yml up --detach" in outcome.commands
    assert "no longer maintained" in outcome.err
    assert "1" == outcome.given["DOCKER_BUILDKIT"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        pytest.param(("--nonsense",), "unknown option --nonsense", id="unknown"),
        pytest.param(("--gpu",), "--gpu needs a whole number, got ''", id="no-number"),
        pytest.param(("--gpu", "GPU-1"), "--gpu needs a whole number, got 'GPU-1'", id="not-a-number"),
        pytest.param(("--port", "http"), "--port needs a whole number", id="not-a-port"),
        pytest.param(("--gpu", "0", "--cpu"), "--gpu 0 contradicts --cpu", id="both"),
    ],
)
def test_wrong_options(options: tuple[str, ...], says: str, tmp_path: Path):
    """Exit code 2 before anything is looked at."""
    outcome = bash(LINUX, tmp_path, *options)

    assert 2 == outcome.code
    assert says in outcome.err
    assert () == outcome.calls


def test_a_card_hidden_by_the_environment_is_mentioned(tmp_path: Path):
    """CUDA_VISIBLE_DEVICES reaches the Compose file as it is; --gpu goes before it."""
    machine = with_environment(MIXED, CUDA_VISIBLE_DEVICES="1")
    (tmp_path / "numbered").mkdir()
    left = bash(machine, tmp_path, "--dry-run")
    numbered = bash(machine, tmp_path / "numbered", "--dry-run", "--gpu", "0")

    assert "CUDA_VISIBLE_DEVICES=1, as the environment says" in left.out
    assert "CUDA_VISIBLE_DEVICES" not in left.given
    assert "GPU-v" == numbered.given["CUDA_VISIBLE_DEVICES"]
    assert "as the environment says" not in numbered.out
