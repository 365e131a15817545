"""Shared by all tests: the device option, the data folder, and skipping where a program is absent."""

import gc
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before anything imports huggingface_hub: no test asks the hub

from backend.config import Settings
from backend.device.facts.amx import disable_faulty_amx
from backend.device.facts.host import cpu
from backend.device.memory.device_memory import trim_heap
from backend.telemetry import Telemetry
from tests.fakes import ManualClock

disable_faulty_amx(cpu()[1])  # as every command of the project does, before anything imports torch

pytest_plugins = ("tests.redis_server", "tests.search.postgres.server")

# No deadline: an example may take 0.2 s on a busy machine, and timing belongs in benchmarks.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

DATA_DIR = Path(__file__).resolve().parents[2] / "shared" / "data"
LONG_TESTS = frozenset(Path(__file__).with_name("long_tests.txt").read_text(encoding="utf-8").splitlines())
# marker -> program that `make test` installs
PROGRAMS = {
    "redis": "redis-server", "tesseract": "tesseract", "chromium": "chromium", "haproxy": "haproxy",
    "libreoffice": "soffice",
}  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--device cuda:0`` runs the same tests on a GPU."""
    parser.addoption("--device", default="cpu", help="where models run: cpu (default) or a CUDA device such as cuda:0")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse an unavailable device at once instead of ignoring the option."""
    device = config.getoption("--device")
    if device == "cpu":
        return
    import torch  # takes seconds to import, which tests on the CPU do not need

    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise pytest.UsageError(f"--device {device}: {error}") from error


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test whose program is absent is skipped on a developer's machine and fails under CI=true."""
    for marker, program in PROGRAMS.items():
        if item.get_closest_marker(marker) and shutil.which(program) is None:
            absent(f"{program} is not installed (tools/system_packages.sh installs it)")


@pytest.hookimpl(tryfirst=True)  # before -m leaves tests out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is listed as long counts as marked slow."""
    for item in items:
        if item.nodeid.partition("[")[0] in LONG_TESTS:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Take what was collected out of every later garbage collection: 15,000 tests made each of them take a second."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)  # once the fixtures of the file are gone
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After each file, blame it for what it left open, not a later one, and return its memory: two workers share it."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        trim_heap()


def absent(what: str) -> None:
    """Skip the running test, or fail it under CI=true, where nothing may be left out silently."""
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(what, pytrace=False)
    pytest.skip(what)


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the developer's environment and backend/.env out of every test."""
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(Settings.model_config, "env_file", None)


@pytest.fixture(scope="session")
def device(pytestconfig: pytest.Config) -> str:
    """The torch device string that ``--device`` asked for."""
    return str(pytestconfig.getoption("--device"))


@pytest.fixture
def clock() -> ManualClock:
    """Time that stands still."""
    return ManualClock()


@pytest.fixture
def telemetry() -> Telemetry:
    """A registry of the test's own."""
    return Telemetry()


@pytest.fixture(scope="session")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds the state folders of services in processes of their own."""
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of licensed data sets beside the repository; tests that need it are skipped where it is absent."""
    if not DATA_DIR.is_dir():
        pytest.skip(f"{DATA_DIR.name}: the shared data sets are not on this machine")
    return DATA_DIR


@pytest.fixture
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system of as many MiB as it is parametrized with; only root can make one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount, unmount = shutil.which("mount"), shutil.which("umount")
    if mount is None or unmount is None:
        pytest.skip("no mount here")
    size = f"size={request.param}m"
    made = subprocess.run([mount, "-t", "tmpfs", "-o", size, "tmpfs", folder], check=False, capture_output=True)
    if made.returncode:
        pytest.skip("mounting needs root")
    yield folder
    subprocess.run([unmount, folder], check=True)
