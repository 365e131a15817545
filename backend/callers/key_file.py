"""The keys file: who may call the service, as TOML. Reads text only; `key_watch` reads the file again when it changes.

    [tenants.billing]
    role = "user"                                  # read, user or admin; unless a key has a lesser one
    quota = { tokens_per_minute = 200_000, jobs = 4 }

    [[tenants.billing.keys]]
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    expires = 2027-06-30                           # from 00:00 UTC of that day on it is refused

A file with a fault is refused as a whole, with every fault by its place; what stands in it as a key is never repeated.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from backend.callers.callers import NAME_RULE, Caller, KeyRing, Quotas, Role, is_name, owner_digest
from backend.errors import BadSettings

SUFFIX = ".toml"
MOST_BYTES = 16 * 2**20  # 10,000 tenants take 2 MiB
MOST_TENANTS = 10_000
QUOTAS = ("requests_per_minute", "tokens_per_minute", "pages_per_minute", "jobs", "stored_bytes")
_MOST = 2**53  # of a quota: whole numbers that every program reads alike
_MOST_FAULTS = 20  # that are told; the others are counted
_ROLES: Mapping[str, int] = {"read": 0, "user": 1, "admin": 2}  # by what they may
_TENANT_FIELDS = ("role", "quota", "keys", "expires", "note")
_KEY_FIELDS = ("sha256", "role", "expires", "note")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_HASHED = "as python -m backend.keys new or hash prints it"


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
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise BadSettings([f"API_KEYS: the keys file {path} cannot be read: {reason}"]) from error
    return parse_key_file(content, str(path), others, quotas)


def parse_key_file(content: bytes, name: str, others: KeyRing, quotas: Quotas) -> KeyRing:
    """The same of a file's bytes; ``name`` is what messages call it. Raises: BadSettings."""
    if len(content) > MOST_BYTES:
        raise BadSettings([f"{name}: over {MOST_BYTES} bytes; this is no keys file"])
    try:
        document = tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadSettings([f"{name}: byte {error.start} is no UTF-8; write TOML in UTF-8"]) from error
    except tomllib.TOMLDecodeError as error:
        raise BadSettings([f"{name}: no TOML: {_place_alone(str(error))}"]) from error
    reading = _Reading(quotas, {caller.name for caller in others.callers}, dict.fromkeys(others.digests, "ADMIN_KEYS"))
    reading.read(document)
    if reading.faults:
        more = len(reading.faults) - _MOST_FAULTS
        told = [f"{name}: {fault}" for fault in reading.faults[:_MOST_FAULTS]]
        raise BadSettings([*told, *([f"{name}: and {more} more faults"] if more > 0 else [])])
    return KeyRing({**reading.callers, **others.digests})


def _place_alone(message: str) -> str:
    """Line and column of the parser's message, and its words where they quote nothing of the file."""
    place = re.search(r"\(at (line \d+, column \d+|end of document)\)", message)
    words = message.partition("(at ")[0].strip()
    quotes = re.search(r"""['"]""", words)
    told = "" if quotes else f"{words}, "
    return f"{told}{place.group(1) if place else 'see its syntax'}; python -m backend.keys check FILE tries it"


@dataclass(slots=True)
class _Reading:
    """One file being read: what was found, and what is wrong with it."""

    quotas: Quotas  # of tenants without their own
    taken_names: set[str]  # by ADMIN_KEYS
    places: dict[bytes, str]  # of keys, by digest
    callers: dict[bytes, Caller] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def read(self, document: Mapping[str, Any]) -> None:
        self._refuse_unknown("", document, ("tenants",))
        tenants = document.get("tenants", {})
        if not isinstance(tenants, dict):
            self.faults.append("tenants: must be tables, as [tenants.NAME]")
            return
        if len(tenants) > MOST_TENANTS:
            self.faults.append(f"tenants: {len(tenants)} are over the limit of {MOST_TENANTS} (fixed)")
            return
        for name, tenant in tenants.items():
            self._read_tenant(name, tenant)
        if not self.callers and not self.faults:
            self.faults.append("no key at all: with this file nobody could ask; add a tenant (python -m backend.keys)")

    def _read_tenant(self, name: str, tenant: Any) -> None:
        place = f"tenants.{name[:64]}"
        if not is_name(name):
            self.faults.append(f"{place}: no name of a tenant; write {NAME_RULE}")
        if name in self.taken_names:
            self.faults.append(f"{place}: its name stands in ADMIN_KEYS too; a caller is named in one place")
        if not isinstance(tenant, dict):
            self.faults.append(f"{place}: must be a table")
            return
        self._refuse_unknown(f"{place}.", tenant, _TENANT_FIELDS)
        role = self._role(place, tenant, "user")
        caller = Caller(name, owner_digest("name", name), role, self._quotas(place, tenant, role))
        expires_s = self._expiry(place, tenant)
        keys = tenant.get("keys")
        if not isinstance(keys, list):
            self.faults.append(f"{place}.keys: absent, or no list; write [[{place}.keys]] (keys = [] shuts it out)")
            return
        for number, key in enumerate(keys, 1):
            self._read_key(f"{place}.keys[{number}]", key, caller, expires_s)

    def _read_key(self, place: str, key: Any, tenant: Caller, expires_s: float | None) -> None:
        if not isinstance(key, dict):
            self.faults.append(f"{place}: must be a table with sha256, {_HASHED}")
            return
        self._refuse_unknown(f"{place}.", key, _KEY_FIELDS)
        role = self._role(place, key, tenant.role)
        if _ROLES[role] > _ROLES[tenant.role]:
            self.faults.append(f"{place}.role: '{role}' may more than its tenant, whose role is '{tenant.role}'")
        own_s = self._expiry(place, key)
        ends_s = [one for one in (own_s, expires_s) if one is not None]
        sha256 = key.get("sha256")
        if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
            self.faults.append(f"{place}.sha256: must be 64 hexadecimal digits, a-f in lower case, {_HASHED}")
            return
        digest = bytes.fromhex(sha256)
        if digest in self.places:
            self.faults.append(f"{place}: its key is that of {self.places[digest]}; a key stands for one caller")
        self.places.setdefault(digest, place)
        self.callers[digest] = replace(tenant, role=role, expires_s=min(ends_s, default=None))

    def _role(self, place: str, table: Mapping[str, Any], default: Role) -> Role:
        role = table.get("role", default)
        if not isinstance(role, str) or role not in _ROLES:
            self.faults.append(f"{place}.role: must be one of {', '.join(_ROLES)}")
            return default
        return role  # type: ignore[return-value]  # one of them

    def _expiry(self, place: str, table: Mapping[str, Any]) -> float | None:
        """A date means its first second in UTC; a time needs its offset, as the machines' zones may differ."""
        expires = table.get("expires")
        if isinstance(expires, datetime):
            if expires.tzinfo is None:
                self.faults.append(f"{place}.expires: a time without offset; write it in UTC, as 2027-06-30T18:00:00Z")
                return None
            return expires.timestamp()
        if isinstance(expires, date):
            return datetime(expires.year, expires.month, expires.day, tzinfo=UTC).timestamp()
        if expires is not None:
            self.faults.append(f"{place}.expires: must be a date without quotes, as 2027-06-30 or 2027-06-30T18:00:00Z")
        return None

    def _quotas(self, place: str, tenant: Mapping[str, Any], role: Role) -> Quotas:
        own = tenant.get("quota", {})
        if not isinstance(own, dict):
            self.faults.append(f"{place}.quota: must be a table")
            return Quotas()
        self._refuse_unknown(f"{place}.quota.", own, QUOTAS)
        for name, value in own.items():
            if name in QUOTAS and (type(value) is not int or not 1 <= value <= _MOST):
                self.faults.append(
                    f"{place}.quota.{name}: must be a whole number from 1 to {_MOST}; no quota: leave it out"
                )
        own = {name: value for name, value in own.items() if name in QUOTAS and type(value) is int}
        return replace(Quotas() if role == "admin" else self.quotas, **own, in_file=tuple(own))

    def _refuse_unknown(self, place: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
        """A misspelt quota would be none."""
        self.faults += [
            f"{place}{name[:64]}: no such field; there are {', '.join(known)}" for name in table if name not in known
        ]
