"""A process that is run alone leaves none behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems hand orphans to their first process")

# A grandchild in a session of its own, as HAProxy of Ray; its number is told, then the work goes on as `{end}` says.
PROGRAM = """
import os, signal, subprocess, sys
from backend.processes.left_processes import run_alone

def work():
    def interrupted(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, interrupted)
    code = "import subprocess, sys; print(subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=2).pid)"
    left = int(subprocess.run([sys.executable, "-c", code], stdout=-1).stdout)
    try:
        print(left, os.getpid(), flush=True)
        sys.stdin.readline()
        {end}
    except KeyboardInterrupt:
        return 7
    return 5

sys.exit(run_alone(work))
"""


def started(end: str) -> tuple[subprocess.Popen[str], psutil.Process, psutil.Process]:
    """The parent, the process that was left, and the child, which goes on to its end."""
    parent = subprocess.Popen([sys.executable, "-c", PROGRAM.format(end=end)], cwd=ROOT, stdin=-1, stdout=-1, text=True)
    assert parent.stdin is not None
    assert parent.stdout is not None
    with parent.stdout as lines, parent.stdin as go:
        left, child = (psutil.Process(int(word)) for word in lines.readline().split())
        go.write("\n")
    return parent, left, child


@pytest.fixture
def ended() -> Iterator[list[psutil.Process]]:
    """Processes that end with the test."""
    processes: list[psutil.Process] = []
    yield processes
    for process in processes:
        if process.is_running():
            process.kill()


@pytest.mark.parametrize(
    ("end", "code"),
    [
        pytest.param("pass", 5, id="by-itself"),
        pytest.param("os._exit(1)", 1, id="on-the-spot"),
        pytest.param("os.kill(os.getpid(), signal.SIGKILL)", -9, id="killed"),
    ],
)
def test_what_is_left_ends_with_the_child(ended, end, code):
    parent, left, child = started(end)
    ended += [left, child]

    assert code % 256 == parent.wait(60)
    assert not left.is_running()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_child_once(ended, number):
    """Also Ctrl-C, which a terminal sends to a whole group: the child is in another."""
    parent, left, child = started("signal.pause()")
    ended += [left, child]
    assert os.getpgid(child.pid) != os.getpgid(parent.pid)
    parent.send_signal(number)

    assert 7 == parent.wait(60)
    assert not left.is_running()


def test_a_killed_parent_ends_the_child(ended):
    """Nobody could stop the child any more."""
    parent, left, child = started("signal.pause()")
    ended += [left, child]
    parent.kill()
    parent.wait(60)
    until_s = time.monotonic() + 60
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE and time.monotonic() < until_s:
        time.sleep(0.05)

    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
