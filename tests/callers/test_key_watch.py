"""The watch of the keys file: what changes, what stays, and what is said of it."""

import logging
import os
from pathlib import Path

import pytest

from backend.callers.callers import KeyRing, LiveKeys, Quotas, key_digest
from backend.callers.key_file import KeyWatch, read_key_file
from backend.errors import BadSettings
from backend.telemetry import Telemetry

NOW_S = 1_800_000_000.0


class Watched:
    """A keys file with one tenant a key, and its watch; nothing looks by itself."""

    def __init__(self, path: Path) -> None:
        self.path, self.telemetry, self.reads, self.now_s = path, Telemetry(), 0, NOW_S
        self.write("one")
        self.keys = LiveKeys(self.read())
        self.watch = KeyWatch(path, self.keys, self.read, self.telemetry, now_s=lambda: self.now_s)

    def read(self) -> KeyRing:
        self.reads += 1
        return read_key_file(self.path, KeyRing({}), Quotas())

    def write(self, *keys: str, at_s: float = NOW_S - 1000) -> None:
        tenants = [f'[tenants.{key}]\nkeys = [{{ sha256 = "{key_digest(key.encode()).hex()}" }}]\n' for key in keys]
        self.path.write_text("".join(tenants))
        os.utime(self.path, (at_s, at_s))

    def opens(self, key: str) -> bool:
        return self.keys.ring.find(key.encode()) is not None

    def value(self, metric: str, **labels: str) -> float | None:
        return self.telemetry.registry.get_sample_value(f"financia_{metric}", labels)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "keys.toml")


async def test_a_changed_file(watched: Watched):
    """Its keys hold from the next look on; whoever listens is told before the first request can come."""
    told: list[int] = []
    watched.keys.on_replace(lambda ring: told.append(len(ring)))
    watched.write("one", "two", at_s=NOW_S - 500)
    await watched.watch.look()

    assert [True, True] == [watched.opens(key) for key in ("one", "two")]
    assert [2] == told
    assert {"tenants": 2, "keys": 2, "faults": 0}.items() <= watched.watch.report().items()


async def test_a_file_that_stayed_is_not_read_again(watched: Watched):
    """Once its version is known; before that it is, and changes nothing."""
    for _ in range(5):
        await watched.watch.look()

    assert 2 == watched.reads
    assert 0 == watched.value("key_file_reads_total", outcome="loaded")


async def test_a_file_changed_just_now_is_looked_at_again(watched: Watched):
    """Two versions within a tick of its times look alike; until it has settled each look reads."""
    watched.write("two", at_s=NOW_S)
    await watched.watch.look()
    await watched.watch.look()
    watched.write("tri", at_s=NOW_S)  # the same size and time
    await watched.watch.look()

    assert [False, False, True] == [watched.opens(key) for key in ("one", "two", "tri")]


async def test_a_file_that_is_being_written(watched: Watched):
    """Half of it may be a file without faults: it is not read before two looks found it alike."""
    watched.write("one", "two", "tri", at_s=NOW_S - 500)
    await watched.watch.look()
    opened = []
    for keys in ((), ("one",), ("one", "two"), ("one", "two", "tri"), ("one", "two", "tri")):
        watched.write(*keys, at_s=NOW_S)
        await watched.watch.look()
        opened.append([watched.opens(key) for key in ("one", "two", "tri")])

    assert [[True] * 3] * 5 == opened
    assert 0 == watched.value("key_file_faults")


async def test_tenants_that_leave_the_file(watched: Watched, caplog: pytest.LogCaptureFixture):
    """Are named in a warning: from then on they are refused."""
    watched.write("one", *[f"t{number}" for number in range(22)], at_s=NOW_S - 500)
    with caplog.at_level(logging.INFO):
        await watched.watch.look()
        watched.write("one", at_s=NOW_S - 400)
        await watched.watch.look()
    came, left = caplog.records

    assert (logging.INFO, logging.WARNING) == (came.levelno, left.levelno)
    assert ", ".join([*(f"t{number}" for number in range(20)), "and 2 more"]) == left.fields["tenants_gone"]  # type: ignore[attr-defined]


async def test_a_listener_that_raises(watched: Watched):
    """The new keys hold all the same, and the others are told."""
    told: list[int] = []

    def broken(_ring: KeyRing) -> None:
        raise RuntimeError("broken")

    watched.keys.before_replace(broken)
    watched.keys.on_replace(lambda ring: told.append(len(ring)))
    watched.write("two", at_s=NOW_S - 500)
    with pytest.raises(RuntimeError, match="broken"):
        await watched.watch.look()

    assert ([1], True) == (told, watched.opens("two"))


@pytest.mark.parametrize("content", ["[tenants.one", "", None])
async def test_a_fault_changes_nothing(watched: Watched, content: str | None, caplog: pytest.LogCaptureFixture):
    """It is told once, and until it is mended."""
    if content is None:
        watched.path.unlink()
    else:
        watched.path.write_text(content)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert not await watched.watch.reload()

    assert watched.opens("one")
    assert 1 == len(caplog.records)
    assert 1 == watched.value("key_file_faults")
    assert 1 == watched.value("key_file_reads_total", outcome="refused")
    [sentence] = watched.watch.degraded()
    assert "1 fault(s) since 2027-01-15T08:00:00Z" in sentence
    watched.write("one")
    assert await watched.watch.reload()
    assert ((), 0) == (watched.watch.degraded(), watched.value("key_file_faults"))


async def test_expired_keys_are_counted(watched: Watched):
    """So that an operator sees what can go."""
    watched.path.write_text(watched.path.read_text() + "expires = 2020-01-01\n")
    await watched.watch.reload()

    assert 1 == watched.watch.report()["expired_keys"]


def test_a_start_with_a_fault(tmp_path: Path):
    """There is nothing to keep: it fails, and says why."""
    with pytest.raises(BadSettings, match=r"keys file .* cannot be read: no such file"):
        read_key_file(tmp_path / "absent.toml", KeyRing({}), Quotas())
