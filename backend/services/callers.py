"""The callers of the service: who each API key stands for, what a caller may change, and how much it may use.

A key is known by its SHA-256 digest only; a caller by its name in the metrics, and by its ``owner`` in what it leaves
behind (jobs, classifiers).
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from typing import Literal

from backend.errors import BadSettings

Role = Literal["open", "user", "admin"]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_GIVEN_NAME = re.compile(r"(key|admin)-\d+")
_PADDING = re.compile(r"=*")  # of a base64 key


@dataclass(frozen=True, slots=True)
class Quotas:
    """What one caller may use. None: no quota."""

    requests_per_minute: int | None = None  # QUOTA_REQUESTS_PER_MINUTE
    tokens_per_minute: int | None = None  # QUOTA_TOKENS_PER_MINUTE
    pages_per_minute: int | None = None  # QUOTA_PAGES_PER_MINUTE
    jobs: int | None = None  # queued or running at once; QUOTA_JOBS


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever sends a request."""

    name: str  # in metrics; from the settings, never from a key
    owner: str  # of the jobs and classifiers it makes: a digest that stays the same over restarts
    role: Role = "user"
    quotas: Quotas = field(default_factory=Quotas)

    @property
    def is_admin(self) -> bool:
        return self.role == "admin"

    def may_change(self, owner: str | None) -> bool:
        """Whether it may replace or delete what belongs to ``owner`` (None: to nobody known).

        Without any keys in the settings everybody may; with keys an admin, and each caller its own.
        """
        return self.role != "user" or owner == self.owner


def owner_digest(*texts: str) -> str:
    """A hash of strings that is the same in every process. Blake2b: an API key cannot be read back from it."""
    hashed = blake2b(digest_size=16)
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        hashed.update(len(encoded).to_bytes(8, "little") + encoded)
    return hashed.hexdigest()


ANYBODY = Caller("anybody", owner_digest(""), "open")  # every caller of a service without keys


class KeyRing:
    """The callers by the digests of their keys. False where there are no keys: then none is asked for."""

    def __init__(self, callers: Mapping[bytes, Caller]) -> None:
        self._callers = tuple(callers.items())

    def __bool__(self) -> bool:
        return bool(self._callers)

    @property
    def callers(self) -> tuple[Caller, ...]:
        """Every caller once; several keys may stand for the same one."""
        return tuple(dict.fromkeys(caller for _, caller in self._callers))

    def find(self, key: bytes) -> Caller | None:
        """The caller that ``key`` stands for. Compares in constant time, also after one has matched."""
        digest = _key_digest(key)
        found = None
        for known, caller in self._callers:
            if hmac.compare_digest(digest, known):
                found = caller
        return found


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
            callers[_key_digest(key.encode())] = Caller(name or f"{given}-{number}", owner, role, limits)  # type: ignore[arg-type]  # a literal
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
        if name and (not _NAME.fullmatch(name) or _GIVEN_NAME.fullmatch(name)):
            faults.append(
                f"{place}: what stands before its '=' cannot be a name; write name=key with a name of 1 to 64 of "
                "a-z, A-Z, 0-9, '.', '_' and '-' that is none of key-1, admin-1, …, which keys without a name get"
            )
        if name in other_names:
            faults.append(f"{place}: its name stands in API_KEYS too; a caller is an admin or is not: use two names")
        if key in keys:
            faults.append(f"{place}: its key is that of {keys[key]}; a key stands for one caller")
        keys.setdefault(key, place)
    return faults


def _key_digest(key: bytes) -> bytes:
    return sha256(key).digest()
