"""What is measured runs in a process of its own, only while the service rests, and ends with the service."""

import asyncio
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from backend.models.encoder_benchmark import Quiet
from backend.models.resting_process import Measurement, RestingMeasurements, Work
from backend.supervision import Supervisor
from backend.telemetry import Telemetry


def write(file: Path, quiet: Quiet) -> None:
    """Waits for its turn, and leaves its process's number and priority, and whether it was disturbed."""
    quiet.wait()
    file.with_suffix(".began").touch()
    file.write_text(f"{os.getpid()} {os.nice(0)} {quiet.was_disturbed()}")


def die(_quiet: Quiet) -> None:
    """A kernel that the processor lacks."""
    os.abort()


def hang(file: Path, quiet: Quiet) -> None:
    """A measurement that takes long; its process's number is told."""
    write(file, quiet)
    time.sleep(600)


class Service:
    """The service around the measurements: how busy it is, and what it took over."""

    def __init__(self) -> None:
        self.is_idle, self.cpu_s, self.looks = True, 0.0, 0
        self.burns_cpu = False
        self.adopted: list[str] = []
        self.measurements = RestingMeasurements(
            lambda: self.is_idle, Supervisor(Telemetry()), cpu_s=self._cpu_s, sleep=self._sleep
        )

    def measure(self, name: str, work: Work) -> None:
        async def adopt() -> None:
            self.adopted.append(name)

        self.measurements.add(Measurement(name, work, adopt))

    def _cpu_s(self) -> float:
        self.cpu_s += 60.0 if self.burns_cpu else 0.0
        return self.cpu_s

    async def _sleep(self, _s: float) -> None:
        self.looks += 1
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - a process of its own does what is waited for
            await asyncio.sleep(0.01)


@pytest.fixture
async def service():
    service = Service()
    yield service
    await service.measurements.close()


async def test_one_after_the_other_at_the_lowest_priority(service, tmp_path):
    """In a process of its own, and what it found is adopted."""
    files = [tmp_path / "a", tmp_path / "b"]
    for file in files:
        service.measure(file.name, partial(write, file))
    assert ("a", "b") == service.measurements.names()
    await until(lambda: not service.measurements.names())
    (first, nice, disturbed), (second, *_) = (file.read_text().split() for file in files)

    assert ["a", "b"] == service.adopted
    assert str(os.getpid()) != first != second
    assert ("19", "False") == (nice, disturbed)


@pytest.mark.parametrize("busy", [{"is_idle": False}, {"burns_cpu": True}], ids=["work-on-a-lane", "work-elsewhere"])
async def test_nothing_is_measured_while_there_is_work(service, tmp_path, busy):
    """Neither begun, nor gone on with between two candidates."""
    for name, value in busy.items():
        setattr(service, name, value)
    service.measure("a", partial(write, tmp_path / "a"))
    await until(lambda: service.looks > 50)

    assert not (tmp_path / "a.began").exists()
    assert ("a",) == service.measurements.names()

    service.is_idle, service.burns_cpu = True, False
    await until(lambda: bool(service.adopted))


async def test_work_that_came_meanwhile_is_told(service, tmp_path, monkeypatch):
    """A speed that requests slowed down is measured again."""
    monkeypatch.setattr(service.measurements, "_cpu_s", lambda: 1e6 if (tmp_path / "a.began").exists() else 0.0)
    service.measure("a", partial(write, tmp_path / "a"))
    await until(lambda: bool(service.adopted))

    assert "True" == (tmp_path / "a").read_text().split()[-1]


async def test_what_dies_is_not_adopted_and_stops_nothing(service, tmp_path, caplog):
    """What serves goes on serving, and the next one is measured."""
    service.measure("dies", die)
    service.measure("a", partial(write, tmp_path / "a"))
    await until(lambda: not service.measurements.names())

    assert ["a"] == service.adopted
    assert "not measured" in caplog.text


async def test_a_stop_ends_what_is_measured(service, tmp_path):
    """And nothing is adopted after it."""
    service.measure("a", partial(hang, tmp_path / "a"))
    await until(lambda: (tmp_path / "a").exists() and bool((tmp_path / "a").read_text()))
    await service.measurements.close()

    assert [] == service.adopted
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "a").read_text().split()[0]), 0)


async def test_nothing_is_measured_where_that_is_off(tmp_path):
    """MEASURE_WHEN_IDLE: a container that is given little memory."""
    measurements = RestingMeasurements(lambda: True, Supervisor(Telemetry()), is_on=False)

    measurements.add(Measurement("encoder", partial(write, tmp_path / "ran"), adopt=never))

    assert () == measurements.names()
    await measurements.close()
    assert not (tmp_path / "ran").exists()


async def never() -> None:
    raise AssertionError("nothing was measured")


def test_a_measurement_ends_when_the_service_is_gone(tmp_path):
    """Nobody answers its question for a turn: a service that was killed leaves no process."""
    command = [sys.executable, "-m", "backend.models.resting_process", "0"]
    process = subprocess.run(
        command, check=False, input=pickle.dumps(partial(write, tmp_path / "a")), capture_output=True, timeout=60
    )

    assert 1 == process.returncode
    assert process.stdout in (b"", b"wait\n")  # the end of its input may be read before it asks
    assert [] == list(tmp_path.iterdir())


def test_a_measurement_ends_with_the_service_that_was_killed(tmp_path):
    """At once, whatever it computes: it holds the service's output open."""
    command = [sys.executable, "-m", "backend.models.resting_process", "0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(pickle.dumps(partial(hang, tmp_path / "a")))
        process.stdin.flush()
        for _ in range(2):  # its turn, and whether it was disturbed
            process.stdout.readline()
            process.stdin.write(b"yes\n")
            process.stdin.flush()
        while not (tmp_path / "a").exists():
            time.sleep(0.01)
        process.stdin.close()

        assert 1 == process.wait(30)
