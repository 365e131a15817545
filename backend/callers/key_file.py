"""The keys file: who may call the service, as TOML. Read again when it changes.

    [tenants.billing]
    role = "user"                                  # read, user or admin; unless a key has a lesser one
    quota = { tokens_per_minute = 200_000, jobs = 4 }

    [[tenants.billing.keys]]
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    expires = 2027-06-30                           # from 00:00 UTC of that day on it is refused

A file with a fault is refused as a whole, with every fault by its place; what stands in it as a key is never repeated.
"""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any

from backend.callers.callers import NAME_RULE, Caller, KeyRing, LiveKeys, Quotas, Role, is_name, owner_digest
from backend.errors import BadSettings
from backend.supervision import Supervisor
from backend.telemetry import Telemetry, log_event

SUFFIX = ".toml"
MAX_BYTES = 16 * 2**20  # 10,000 tenants take 2 MiB
MAX_TENANTS = 10_000
QUOTAS = ("requests_per_minute", "tokens_per_minute", "pages_per_minute", "jobs", "stored_bytes")
_MOST = 2**53  # of a quota: whole numbers that every program reads alike
_MAX_FAULTS = 20  # that are told; the others are counted
_ROLES: Mapping[str, int] = {"read": 0, "user": 1, "admin": 2}  # by what they may
_TENANT_FIELDS = ("role", "quota", "keys", "expires", "note")
_KEY_FIELDS = ("sha256", "role", "expires", "note")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_HASHED = "as python -m backend.keys new or hash prints it"
EVERY_S = 1.0  # a look at the file's times; Kubernetes takes up to a minute to mount a changed Secret
_SETTLED_NS = 2_000_000_000  # a file changed so lately may change once more, also within one tick of its times
_MAX_NAMES = 20  # of tenants that left, in the log
_log = logging.getLogger(__name__)


def is_key_file(entry: str) -> bool:
    """Whether an entry of API_KEYS is the path of a keys file."""
    return entry.endswith(SUFFIX) and "=" not in entry


def read_key_file(path: Path, others: KeyRing, quotas: Quotas) -> KeyRing:
    """The callers of a keys file, and those of ``others``, which are of ADMIN_KEYS.

    Args:
        quotas: QUOTA_…, of each tenant that is no admin and sets none of its own.

    Raises: BadSettings with every fault.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise BadSettings([f"API_KEYS: the keys file {path} cannot be read: {reason}"]) from error
    return parse_key_file(content, str(path), others, quotas)


def parse_key_file(content: bytes, name: str, others: KeyRing, quotas: Quotas) -> KeyRing:
    """The same of a file's bytes; ``name`` is what messages call it. Raises: BadSettings."""
    if len(content) > MAX_BYTES:
        raise BadSettings([f"{name}: over {MAX_BYTES} bytes; this is no keys file"])
    try:
        document = tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadSettings([f"{name}: byte {error.start} is no UTF-8; write TOML in UTF-8"]) from error
    except tomllib.TOMLDecodeError as error:
        raise BadSettings([f"{name}: no TOML: {_location_alone(str(error))}"]) from error
    reading = _Reading(quotas, {caller.name for caller in others.callers}, dict.fromkeys(others.digests, "ADMIN_KEYS"))
    reading.read(document)
    if reading.faults:
        more = len(reading.faults) - _MAX_FAULTS
        told = [f"{name}: {fault}" for fault in reading.faults[:_MAX_FAULTS]]
        raise BadSettings([*told, *([f"{name}: and {more} more faults"] if more > 0 else [])])
    return KeyRing({**reading.callers, **others.digests})


def _location_alone(message: str) -> str:
    """Line and column of the parser's message, and its words where they quote nothing of the file."""
    location = re.search(r"\(at (line \d+, column \d+|end of document)\)", message)
    words = message.partition("(at ")[0].strip()
    quotes = re.search(r"""['"]""", words)
    told = "" if quotes else f"{words}, "
    return f"{told}{location.group(1) if location else 'see its syntax'}; python -m backend.keys check FILE tries it"


@dataclass(slots=True)
class _Reading:
    """One file being read: what was found, and what is wrong with it."""

    quotas: Quotas  # of tenants without their own
    taken_names: set[str]  # by ADMIN_KEYS
    locations: dict[bytes, str]  # of keys, by digest
    callers: dict[bytes, Caller] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def read(self, document: Mapping[str, Any]) -> None:
        self._refuse_unknown("", document, ("tenants",))
        tenants = document.get("tenants", {})
        if not isinstance(tenants, dict):
            self.faults.append("tenants: must be tables, as [tenants.NAME]")
            return
        if len(tenants) > MAX_TENANTS:
            self.faults.append(f"tenants: {len(tenants)} are over the limit of {MAX_TENANTS} (fixed)")
            return
        for name, tenant in tenants.items():
            self._read_tenant(name, tenant)
        if not self.callers and not self.faults:
            self.faults.append("no key at all: with this file nobody could ask; add a tenant (python -m backend.keys)")

    def _read_tenant(self, name: str, tenant: Any) -> None:
        location = f"tenants.{name[:64]}"
        if not is_name(name):
            self.faults.append(f"{location}: no name of a tenant; write {NAME_RULE}")
        if name in self.taken_names:
            self.faults.append(f"{location}: its name stands in ADMIN_KEYS too; a caller is named in one place")
        if not isinstance(tenant, dict):
            self.faults.append(f"{location}: must be a table")
            return
        self._refuse_unknown(f"{location}.", tenant, _TENANT_FIELDS)
        role = self._role(location, tenant, "user")
        caller = Caller(name, owner_digest("name", name), role, self._quotas(location, tenant, role))
        expires_s = self._expiry(location, tenant)
        keys = tenant.get("keys")
        if not isinstance(keys, list):
            self.faults.append(
                f"{location}.keys: absent, or no list; write [[{location}.keys]] (keys = [] shuts it out)"
            )
            return
        for number, key in enumerate(keys, 1):
            self._read_key(f"{location}.keys[{number}]", key, caller, expires_s)

    def _read_key(self, location: str, key: Any, tenant: Caller, expires_s: float | None) -> None:
        if not isinstance(key, dict):
            self.faults.append(f"{location}: must be a table with sha256, {_HASHED}")
            return
        self._refuse_unknown(f"{location}.", key, _KEY_FIELDS)
        role = self._role(location, key, tenant.role)
        if _ROLES[role] > _ROLES[tenant.role]:
            self.faults.append(f"{location}.role: '{role}' may more than its tenant, whose role is '{tenant.role}'")
        own_s = self._expiry(location, key)
        ends_s = [one for one in (own_s, expires_s) if one is not None]
        sha256 = key.get("sha256")
        if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
            self.faults.append(f"{location}.sha256: must be 64 hexadecimal digits, a-f in lower case, {_HASHED}")
            return
        digest = bytes.fromhex(sha256)
        if digest in self.locations:
            self.faults.append(f"{location}: its key is that of {self.locations[digest]}; a key stands for one caller")
        self.locations.setdefault(digest, location)
        self.callers[digest] = replace(tenant, role=role, expires_s=min(ends_s, default=None))

    def _role(self, location: str, table: Mapping[str, Any], default: Role) -> Role:
        role = table.get("role", default)
        if not isinstance(role, str) or role not in _ROLES:
            self.faults.append(f"{location}.role: must be one of {', '.join(_ROLES)}")
            return default
        return role  # type: ignore[return-value]  # one of them

    def _expiry(self, location: str, table: Mapping[str, Any]) -> float | None:
        """A date means its first second in UTC; a time needs its offset, as the machines' zones may differ."""
        expires = table.get("expires")
        if isinstance(expires, datetime):
            if expires.tzinfo is None:
                self.faults.append(
                    f"{location}.expires: a time without offset; write it in UTC, as 2027-06-30T18:00:00Z"
                )
                return None
            return expires.timestamp()
        if isinstance(expires, date):
            return datetime(expires.year, expires.month, expires.day, tzinfo=UTC).timestamp()
        if expires is not None:
            self.faults.append(
                f"{location}.expires: must be a date without quotes, as 2027-06-30 or 2027-06-30T18:00:00Z"
            )
        return None

    def _quotas(self, location: str, tenant: Mapping[str, Any], role: Role) -> Quotas:
        own = tenant.get("quota", {})
        if not isinstance(own, dict):
            self.faults.append(f"{location}.quota: must be a table")
            return Quotas()
        self._refuse_unknown(f"{location}.quota.", own, QUOTAS)
        for name, value in own.items():
            if name in QUOTAS and (type(value) is not int or not 1 <= value <= _MOST):
                self.faults.append(
                    f"{location}.quota.{name}: must be a whole number from 1 to {_MOST}; no quota: leave it out"
                )
        own = {name: value for name, value in own.items() if name in QUOTAS and type(value) is int}
        return replace(Quotas() if role == "admin" else self.quotas, **own, in_file=tuple(own))

    def _refuse_unknown(self, location: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
        """A misspelt quota would be none."""
        self.faults += [
            f"{location}{name[:64]}: no such field; there are {', '.join(known)}" for name in table if name not in known
        ]


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
    more = len(names) - _MAX_NAMES
    return ", ".join([*names[:_MAX_NAMES], *([f"and {more} more"] if more > 0 else [])])


def _time(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
