"""Reads the keys file again when it changes and on SIGHUP, while the service runs. One with a fault changes nothing."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from backend.callers.callers import Caller, KeyRing, LiveKeys
from backend.errors import BadSettings
from backend.supervision import Supervisor
from backend.telemetry import Telemetry, log_event

EVERY_S = 1.0  # a look at the file's times; Kubernetes takes up to a minute to mount a changed Secret
_SETTLED_NS = 2_000_000_000  # a file changed so lately may change once more, also within one tick of its times
_MOST_NAMES = 20  # of tenants that left, in the log
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Stamp:
    """How a file's next version is told from this one; of a link, the file that it leads to."""

    modified_ns: int = 0
    size_bytes: int = 0
    inode: int = 0


class KeyWatch:
    """Replaces the keys by those of a file. Used on the event loop only; the file is read on a thread.

    Args:
        read: the file's keys; raises BadSettings.
        now_s: Unix seconds.
    """

    def __init__(
        self,
        path: Path,
        keys: LiveKeys,
        read: Callable[[], KeyRing],
        telemetry: Telemetry,
        *,
        every_s: float = EVERY_S,
        now_s: Callable[[], float] = lambda: datetime.now(UTC).timestamp(),
    ) -> None:
        self._path, self._keys, self._read, self._every_s, self._now_s = path, keys, read, every_s, now_s
        self._reads = {outcome: telemetry.key_file_reads_total.labels(outcome) for outcome in ("loaded", "refused")}
        self._told_faults, self._loaded_at = telemetry.key_file_faults, telemetry.key_file_loaded_timestamp_seconds
        self._stamp: _Stamp | None = None  # of the version that was judged last; None: look again
        self._seen: _Stamp | None = None  # of the version that was looked at last
        self._faults: tuple[str, ...] = ()
        self._loaded_s = self._refused_s = now_s()
        self._reading = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._loaded_at.set(self._loaded_s)

    def start(self, supervisor: Supervisor) -> None:
        """Watch the file until `close`."""
        self._tasks.append(supervisor.keep("watch_keys", self._watch))
        reload = partial(self._reload_on_signal, supervisor)
        with suppress(ValueError, RuntimeError, NotImplementedError):  # not the main thread, or no Unix
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)

    async def close(self) -> None:
        self._stopping.set()
        with suppress(ValueError, RuntimeError, NotImplementedError):
            asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def look(self) -> None:
        """Read the file where it is not the version that was judged last.

        One that was changed just now is read once two looks found it alike: what is written of it so far may be a
        file without faults that lacks half of the tenants.
        """
        stamp = await asyncio.to_thread(self._look_up)
        is_being_written = stamp != self._seen and self._is_fresh(stamp)
        self._seen = stamp
        if not is_being_written and (self._stamp is None or stamp != self._stamp):
            await self.reload(stamp)

    async def reload(self, stamp: _Stamp | None = None) -> bool:
        """Read the file now; whether its keys hold from here on."""
        async with self._reading:
            try:
                ring = await asyncio.to_thread(self._read)
            except BadSettings as error:
                self._refuse(error.faults)
            else:
                self._take(ring)
            self._stamp = None if stamp is None or self._is_fresh(stamp) else stamp
            return not self._faults

    def degraded(self) -> tuple[str, ...]:
        """A sentence while the file has a fault; it names no tenant, as probes are open to everybody."""
        if not self._faults:
            return ()
        since, loaded = _time(self._refused_s), _time(self._loaded_s)
        return (f"the keys file has {len(self._faults)} fault(s) since {since}: keys of {loaded} hold; see the log",)

    def report(self) -> dict[str, Any]:
        """For GET /v1/system, which every caller may read: no names, no digests."""
        ring, now_s = self._keys.ring, self._now_s()
        expired = sum(one.expires_s is not None and one.expires_s <= now_s for one in ring.digests.values())
        return {
            "tenants": len(ring.callers),
            "keys": len(ring),
            "expired_keys": expired,
            "loaded_at": _time(self._loaded_s),
            "faults": len(self._faults),
        }

    async def _watch(self) -> None:
        while not self._stopping.is_set():
            await self.look()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._stopping.wait()

    def _reload_on_signal(self, supervisor: Supervisor) -> None:
        async def reload() -> None:
            log_event(_log, logging.INFO, "SIGHUP: the keys file was looked at", holds=await self.reload())

        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks.append(supervisor.run("watch_keys", reload))

    def _look_up(self) -> _Stamp:
        try:
            found = self._path.stat()
        except OSError:
            return _Stamp()
        return _Stamp(found.st_mtime_ns, found.st_size, found.st_ino)

    def _is_fresh(self, stamp: _Stamp) -> bool:
        return abs(self._now_s() * 1e9 - stamp.modified_ns) < _SETTLED_NS

    def _take(self, ring: KeyRing) -> None:
        was_faulty, self._faults = bool(self._faults), ()
        self._told_faults.set(0)
        if ring.digests == self._keys.ring.digests and not was_faulty:
            return
        self._loaded_s = self._now_s()
        self._loaded_at.set(self._loaded_s)
        self._reads["loaded"].inc()
        gone = _gone(self._keys.ring.callers, ring.callers)
        self._keys.replace(ring)
        level, left = (logging.WARNING, {"tenants_gone": gone}) if gone else (logging.INFO, {})
        log_event(_log, level, "keys file read", tenants=len(ring.callers), keys=len(ring), **left)

    def _refuse(self, faults: tuple[str, ...]) -> None:
        if faults == self._faults:  # told already
            return
        self._faults, self._refused_s = faults, self._now_s()
        self._told_faults.set(len(faults))
        self._reads["refused"].inc()
        log_event(
            _log,
            logging.ERROR,
            "the keys file has a fault, the keys read before hold",
            loaded_at=_time(self._loaded_s),
            faults="; ".join(faults),
        )


def _gone(before: Sequence[Caller], now: Sequence[Caller]) -> str:
    """The names of those that no longer stand in the file, as many as a line of the log takes; empty for none."""
    owners = {caller.owner for caller in now}
    names = [caller.name for caller in before if caller.owner not in owners]
    more = len(names) - _MOST_NAMES
    return ", ".join([*names[:_MOST_NAMES], *([f"and {more} more"] if more > 0 else [])])


def _time(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
