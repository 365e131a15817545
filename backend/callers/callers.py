"""The callers of the service: who each API key stands for, what a caller may change, and how much it may use.

A key is known by its SHA-256 digest only; a caller by its name in the metrics, and by its ``owner`` in what it leaves
behind (jobs, classifiers). Several keys may stand for one caller, each with a role and an expiry of its own.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from typing import Literal, Protocol

from backend.errors import BadSettings, QuotaExceeded

Role = Literal["open", "read", "user", "admin"]
Rated = Literal["requests", "tokens", "pages"]  # what a quota a minute counts
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_GIVEN_NAME = re.compile(r"(key|admin)-\d+")
NAME_RULE = (
    "a name of 1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-' that is none of key-1, admin-1, …, which keys without a name "
    "get"
)
_PADDING = re.compile(r"=*")  # of a base64 key


@dataclass(frozen=True, slots=True)
class Quotas:
    """What one caller may use. None: no quota."""

    requests_per_minute: int | None = None  # QUOTA_REQUESTS_PER_MINUTE
    tokens_per_minute: int | None = None  # QUOTA_TOKENS_PER_MINUTE
    pages_per_minute: int | None = None  # QUOTA_PAGES_PER_MINUTE
    jobs: int | None = None  # queued or running at once; QUOTA_JOBS
    stored_bytes: int | None = None  # of files and vector stores; of a keys file, else LIMIT_STORED_BYTES holds
    in_file: tuple[str, ...] = ()  # fields that a keys file has set for this caller

    def setting(self, name: str) -> str:
        """Where the operator sets a quota, for messages; ``name`` is a field."""
        return f"{name} in the keys file" if name in self.in_file else f"QUOTA_{name.upper()}"


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever sends a request."""

    name: str  # in metrics; from the settings, never from a key
    owner: str  # of the jobs and classifiers it makes: a digest that stays the same over restarts
    role: Role = "user"
    quotas: Quotas = field(default_factory=Quotas)
    expires_s: float | None = None  # Unix; from then on the key that it came with is refused

    @property
    def is_admin(self) -> bool:
        return self.role == "admin"

    @property
    def may_write(self) -> bool:
        """Whether it may leave something behind, or delete it."""
        return self.role != "read"

    def may_change(self, owner: str | None) -> bool:
        """Whether it may replace or delete what belongs to ``owner`` (None: to nobody known).

        Without any keys in the settings everybody may; with keys an admin, and each caller its own, unless its key
        may only read.
        """
        return self.role in ("open", "admin") or (self.may_write and owner == self.owner)


def owner_digest(*texts: str) -> str:
    """A hash of strings that is the same in every process. Blake2b: an API key cannot be read back from it."""
    hashed = blake2b(digest_size=16)
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        hashed.update(len(encoded).to_bytes(8, "little") + encoded)
    return hashed.hexdigest()


ANYBODY = Caller("anybody", owner_digest(""), "open")  # every caller of a service without keys


def sharer(owner: str) -> str:
    """Who has shares beside other owners; unset for callers of a service without keys, who are all one."""
    return "" if owner == ANYBODY.owner else owner


class Meter(Protocol):
    """What a caller has used."""

    def admit(self) -> None:
        """Charge one request. Raises: QuotaExceeded, and then charges nothing."""

    def require(self, *kinds: Rated) -> None:
        """Refuse a caller that has used up one of these. Raises: QuotaExceeded."""

    def charge(self, kind: Rated, units: int) -> None:
        """Count what was used. ``kind``: tokens or pages."""

    def refuse(self, error: QuotaExceeded) -> QuotaExceeded:
        """Count a refusal, once, and return it to be raised."""

    def count(self, status: int) -> None:
        """Count an answered request."""

    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """The RateLimit headers of an answer; none without quotas."""


class _NoMeter:
    """The meter of callers that are not metered: those of a service without keys."""

    def admit(self) -> None: ...

    def require(self, *kinds: Rated) -> None: ...

    def charge(self, kind: Rated, units: int) -> None: ...

    def refuse(self, error: QuotaExceeded) -> QuotaExceeded:
        return error

    def count(self, status: int) -> None: ...

    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        return ()


NO_METER: Meter = _NoMeter()


class KeyRing:
    """The callers by the SHA-256 digests of their keys. False where there are no keys: then none is asked for."""

    def __init__(self, callers: Mapping[bytes, Caller]) -> None:
        self._secret = secrets.token_bytes(32)
        self._callers = {self._blinded(digest): (digest, caller) for digest, caller in callers.items()}

    def __bool__(self) -> bool:
        return bool(self._callers)

    def __len__(self) -> int:
        return len(self._callers)

    @property
    def callers(self) -> tuple[Caller, ...]:
        """Every caller once; several keys may stand for the same one."""
        callers: dict[str, Caller] = {}
        for _, caller in self._callers.values():
            callers.setdefault(caller.owner, caller)
        return tuple(callers.values())

    @property
    def digests(self) -> dict[bytes, Caller]:
        """What it was made from."""
        return dict(self._callers.values())

    def find(self, key: bytes) -> Caller | None:
        """The caller that ``key`` stands for, in a time that tells nothing of the keys that there are.

        The place in the table depends on a secret of this process, so that how long a look-up takes cannot lead to a
        digest byte by byte; a comparison in constant time decides. A walk over all keys would take 0.2 us for each.
        """
        digest = key_digest(key)
        known, caller = self._callers.get(self._blinded(digest), (b"", None))
        return caller if hmac.compare_digest(digest, known) else None

    def _blinded(self, digest: bytes) -> bytes:
        return blake2b(digest, key=self._secret, digest_size=16).digest()


class LiveKeys:
    """The key ring that holds now; a keys file that changed replaces it while the service runs. Event loop only."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring, self._quotas = ring, _quotas_by_owner(ring)
        self._listeners: list[Callable[[KeyRing], None]] = []
        self._first: list[Callable[[KeyRing], None]] = []

    @property
    def ring(self) -> KeyRing:
        return self._ring

    def replace(self, ring: KeyRing) -> None:
        """Have the next request be judged by this ring. All who listen are told, also where one of them raises."""
        self._ring, self._quotas = ring, _quotas_by_owner(ring)
        with ExitStack() as told:
            for listener in reversed((*self._first, *self._listeners)):
                told.callback(listener, ring)

    def on_replace(self, listener: Callable[[KeyRing], None]) -> None:
        self._listeners.append(listener)

    def before_replace(self, listener: Callable[[KeyRing], None]) -> None:
        """The same, before those of `on_replace` are told."""
        self._first.append(listener)

    def quotas_of(self, owner: str) -> Quotas:
        """Those of a caller, by ``Caller.owner``; none for an owner whose key was withdrawn."""
        return self._quotas.get(owner, _NO_QUOTAS)


_NO_QUOTAS = Quotas()


def _quotas_by_owner(ring: KeyRing) -> dict[str, Quotas]:
    return {caller.owner: caller.quotas for caller in ring.callers}


def read_key_ring(api_keys: Sequence[str], admin_keys: Sequence[str] = (), quotas: Quotas | None = None) -> KeyRing:
    """The key ring of API_KEYS and ADMIN_KEYS; ``quotas`` are those of each caller of API_KEYS.

    A named caller owns things by its name, so that its key can be exchanged. One without a name owns them by its key:
    its place in the list may change.

    Raises: BadSettings, naming entries by their number.
    """
    faults = [*key_faults("API_KEYS", api_keys), *key_faults("ADMIN_KEYS", admin_keys, api_keys)]
    if faults:
        raise BadSettings(faults)
    callers = {}
    for role, given, entries, limits in (
        ("user", "key", api_keys, quotas or Quotas()),
        ("admin", "admin", admin_keys, Quotas()),
    ):
        for number, entry in enumerate(entries, 1):
            name, key = split_entry(entry)
            owner = owner_digest("name", name) if name else owner_digest(key)
            callers[key_digest(key.encode())] = Caller(name or f"{given}-{number}", owner, role, limits)  # type: ignore[arg-type]  # a literal
    return KeyRing(callers)


def split_entry(entry: str) -> tuple[str, str]:
    """Name and key of ``name=key``; the name is empty where the entry is a key alone.

    A key may hold ``=`` anywhere if it has a name. Without one it may only end in them, as base64 does.
    """
    name, _, key = entry.partition("=")
    return ("", entry) if _PADDING.fullmatch(key) else (name, key)


def key_faults(setting: str, entries: Sequence[str], others: Sequence[str] = ()) -> list[str]:
    """What is wrong with the entries of a list of keys, each named by its number: a key is never repeated.

    Args:
        others: the entries of API_KEYS, where ``setting`` is ADMIN_KEYS.
    """
    faults, keys = [], {split_entry(entry)[1]: f"entry {number} of API_KEYS" for number, entry in enumerate(others, 1)}
    other_names = {split_entry(entry)[0] for entry in others} - {""}
    for number, entry in enumerate(entries, 1):
        name, key = split_entry(entry)
        place = f"entry {number} of {setting}"
        if name and not is_name(name):
            faults.append(f"{place}: what stands before its '=' cannot be a name; write name=key with {NAME_RULE}")
        if name in other_names:
            faults.append(f"{place}: its name stands in API_KEYS too; a caller is an admin or is not: use two names")
        if key in keys:
            faults.append(f"{place}: its key is that of {keys[key]}; a key stands for one caller")
        keys.setdefault(key, place)
    return faults


def is_name(text: str) -> bool:
    """Whether a caller may be called so; ``NAME_RULE`` says what a name is."""
    return bool(_NAME.fullmatch(text)) and not _GIVEN_NAME.fullmatch(text)


def key_digest(key: bytes) -> bytes:
    """How a key is known here.

    SHA-256 and no password hash: a key has 256 random bits, which nobody guesses however fast the hash is, and every
    request pays for it (bcrypt: 0.1 s of a core, which would let anybody stop the service by sending wrong keys).
    """
    return sha256(key).digest()
