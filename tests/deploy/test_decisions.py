"""What deploy_gpu.py decides about a machine: the torch build, the card, the reason, or what to do about it."""

import itertools
import re
from dataclasses import dataclass

import pytest

from backend.device.facts.compute_capability import NAMES
from backend.device.facts.simulated import MACHINES
from backend.device.facts.torch_builds import install_line
from backend.device.facts.torch_wheels import WHEELS, cuda_of_driver, cuda_version
from tests.deploy.machine import INFO, VERSION, Answer, Machine, Outcome, deploy, deploy_gpu

INDEX = "https://download.pytorch.org/whl"

ADA = "0, GPU-a, NVIDIA GeForce RTX 4070, 8.9"
HOPPER = "0, GPU-h, NVIDIA H100 80GB HBM3, 9.0"
VOLTA = "0, GPU-v, Tesla V100-SXM2-16GB, 7.0"
BLACKWELL = "1, GPU-b, NVIDIA GeForce RTX 5090, 12.0"
LINUX = Machine(cards=(HOPPER,))
WSL2 = Machine(
    kernel="5.15.167.4-microsoft-standard-WSL2", engine_name="Docker Desktop",
    runtimes=("io.containerd.runc.v2", "runc"), driver="573.09", cards=(ADA,),
)  # fmt: skip
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
    Case(
        "cdi-alone", LINUX.but(runtimes=("runc",), docker="29.2.1", cdi="nvidia.com/gpu=0 nvidia.com/gpu=all"), "cu130"
    ),
    Case(
        "cdi-alone-and-docker-too-old",
        LINUX.but(runtimes=("runc",), docker="28.5.1", cdi="nvidia.com/gpu=all"),
        says="Update Docker to 29.2 or newer. Or: Install nvidia-container-toolkit",
    ),
    Case(
        "cdi-of-others", LINUX.but(runtimes=("runc",), docker="29.2.1", cdi="amd.com/gpu=0"), says="nvidia-ctk runtime"
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
def test_decision(case: Case):
    """The right build for card and driver, or the CPU with the reason; nothing is changed by a dry run."""
    outcome = deploy(case.machine, "--dry-run", *case.options)

    assert_outcome(outcome, case)
    assert not [call for call in outcome.calls if re.search(r" (build|up|down|run|rm)\b", call)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_powershell_options(case: Case):
    """PowerShell's spelling decides the same and is told in that spelling."""
    options = [re.sub(r"^--(\w)", lambda match: "-" + match[1].upper(), option) for option in case.options]
    outcome = deploy(case.machine, "--powershell", "-DryRun", *options)

    assert case.code == outcome.code, outcome.err
    assert not re.search(r"--(cpu|gpu|port|logs|wait)\b|deploy-gpu\.sh", outcome.out + outcome.err)
    assert deploy(case.machine, "--dry-run", *case.options).given == outcome.given


WINDOWS = WSL2.but(system="Windows", kernel="10.0.26100", engine_kernel="5.15.167.4-microsoft-standard-WSL2")


@pytest.mark.parametrize(
    ("machine", "mode", "index", "says"),
    [
        pytest.param(WINDOWS, "gpu", "cu126", "", id="docker-desktop"),
        pytest.param(WINDOWS.but(driver="591.86"), "gpu", "cu130", "", id="a-newer-driver"),
        pytest.param(
            WINDOWS.but(engine_kernel="6.10.14-linuxkit"), "cpu", "cpu", "Use the WSL 2 based engine",
            id="hyper-v-engine",
        ),
        pytest.param(WINDOWS.but(smi="absent"), "cpu", "cpu", "install its driver in Windows", id="no-driver"),
    ],
)  # fmt: skip
def test_windows(machine: Machine, mode: str, index: str, says: str):
    """What only a shell of Windows itself can meet."""
    outcome = deploy(machine, "--powershell", "-DryRun")

    assert ("true" if mode == "gpu" else "false") == outcome.given["USE_GPU"]
    assert f"{INDEX}/{index}" == outcome.given["TORCH_INDEX_URL"]
    assert says in outcome.err


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
    for driver, (major, minor), machine in itertools.product(DRIVERS, sorted(NAMES), ("x86_64", "aarch64"))
]


def advised(driver: str, capability: str, machine: str) -> str:
    """The index that the service's own check-up names; "" where it names none."""
    major, _, minor = capability.partition(".")
    line = install_line((int(major), int(minor)), DRIVERS[driver], machine, "2.13.0")
    return line.rpartition(" ")[2] if line.startswith("pip install") else ""


def chosen(driver: str, capability: str, machine: str) -> str:
    """The index that is chosen for one card; "" for the CPU."""
    facts = deploy_gpu.Facts("linux", machine, engine="Ubuntu", runtimes=("nvidia",), smi="listed", driver=driver)
    facts.cards.append(deploy_gpu.Card("0", "GPU-0", "A card", capability))
    decision = deploy_gpu.decide(deploy_gpu.Request(), facts)
    return decision.index if decision.mode == "gpu" else ""


def test_the_deployment_chooses_as_the_check_advises():
    """Every driver branch with every card there is: the build is the one that `backend.check_gpu` names."""
    expected = {combination: advised(*combination) for combination in COMBINATIONS}

    assert expected == {combination: chosen(*combination) for combination in COMBINATIONS}


def test_driver_branches():
    """The CUDA version of a branch is the newest of the published builds that the driver knows."""
    drivers = {**DRIVERS, **{machine.driver.version: machine.driver.cuda for machine in MACHINES.values()}}
    for version, cuda in drivers.items():
        if cuda >= (12, 0):
            known = [build for build in WHEELS if cuda_version(build) <= cuda]
            branch = cuda_of_driver(int(version.partition(".")[0]))

            assert known == [build for build in WHEELS if cuda_version(build) <= branch], version


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
            "Docker's own plugin",
            id="compose-too-old",
        ),
    ],
)
def test_what_stops_the_script(machine: Machine, says: str, fix: str):
    """Docker and its parts, each with what to do, and exit code 3."""
    outcome = deploy(machine, "--dry-run")

    assert 3 == outcome.code
    assert says in outcome.err
    assert fix in outcome.err
    assert outcome.err.startswith("==> ERROR: ")


def test_the_program_is_used_where_there_is_no_plugin():
    """docker-compose, as some distributions ship Compose 2."""
    answers = {"docker compose version --short": Answer(code=1), "docker-compose version --short": Answer("v2.24.0\n")}
    outcome = deploy(LINUX.but(answers=answers), "--dry-run")

    assert 0 == outcome.code, outcome.err
    assert "docker-compose -f docker-compose.gpu.yml up --detach" in outcome.commands


@pytest.mark.parametrize("version", ["1.29.2", "2.23.3-desktop.2"])
def test_an_old_compose_is_refused(version: str):
    """It would fail at an env_file that need not be there, in its own words."""
    outcome = deploy(LINUX.but(answers={"docker compose version --short": Answer(f"{version}\n")}), "--dry-run")

    assert 3 == outcome.code
    assert f"Docker Compose {version} is too old: the Compose files need 2.24 or newer" in outcome.err
    assert "Install Docker's own plugin" in outcome.err


@pytest.mark.parametrize("version", ["2.24.0", "v2.40.3+ds1", "5.0.1", "dev"])
def test_a_newer_compose_is_taken(version: str):
    outcome = deploy(LINUX.but(answers={"docker compose version --short": Answer(f"{version}\n")}), "--dry-run")

    assert 0 == outcome.code, outcome.err


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
def test_wrong_options(options: tuple[str, ...], says: str):
    """Exit code 2 before anything is looked at."""
    outcome = deploy(LINUX, *options)

    assert 2 == outcome.code
    assert says in outcome.err
    assert () == outcome.calls


def test_a_card_hidden_by_the_environment_is_mentioned():
    """CUDA_VISIBLE_DEVICES reaches the Compose file as it is; --gpu goes before it."""
    machine = with_environment(MIXED, CUDA_VISIBLE_DEVICES="1")
    left = deploy(machine, "--dry-run")
    numbered = deploy(machine, "--dry-run", "--gpu", "0")

    assert "CUDA_VISIBLE_DEVICES=1, as the environment or backend/.env says" in left.out
    assert "CUDA_VISIBLE_DEVICES" not in left.given
    assert "GPU-v" == numbered.given["CUDA_VISIBLE_DEVICES"]
    assert "as the environment or" not in numbered.out
