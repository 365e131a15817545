"""Builds who may call and how much: keys of the settings or of a file, meters, and what is kept of their use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from backend.callers.callers import KeyRing, LiveKeys, Quotas, read_key_ring
from backend.callers.key_file import KeyWatch, read_key_file
from backend.callers.quotas import Meters, QuotaSync, RedisQuotas
from backend.callers.usage import RedisUsageStore, UsageDatabase, UsageKeeper, UsageLedger, UsageService, UsageStore
from backend.config import Settings
from backend.lanes.cache.redis_client import RedisOptions
from backend.supervision import Supervisor
from backend.telemetry import Telemetry

USAGE_FILE = "usage.db"  # in STATE_DIR


@dataclass(frozen=True, slots=True)
class Metering:
    """What callers use, and what they may."""

    keys: LiveKeys
    meters: Meters
    quotas: Quotas  # QUOTA_…
    sync: QuotaSync | None  # None: quotas are counted by this process alone
    ledger: UsageLedger
    watch: KeyWatch | None = None  # of the keys file
    keeper: UsageKeeper | None = None  # None: another process keeps what this one counts, or there are no keys

    def report(self) -> dict[str, Any]:
        """For GET /v1/system."""
        quotas = {name: value for name, value in asdict(self.quotas).items() if name != "in_file"}
        file = {} if self.watch is None else {"keys_file": self.watch.report()}
        return {**quotas, "shared_by_replicas": self.sync is not None, **file}

    def degraded(self) -> tuple[str, ...]:
        watched = () if self.watch is None else self.watch.degraded()
        return (*watched, *(() if self.keeper is None else self.keeper.degraded()))

    def usage(self) -> UsageService:
        """What GET /v1/usage asks."""
        return UsageService(self.keys, self.meters, self.keeper)

    def start(self, supervisor: Supervisor) -> None:
        for part in self._parts():
            part.start(supervisor)

    async def close(self) -> None:
        for part in self._parts():
            await part.close()

    def _parts(self) -> list[KeyWatch | QuotaSync | UsageKeeper]:
        return [part for part in (self.watch, self.sync, self.keeper) if part is not None]


def key_ring(settings: Settings) -> KeyRing:
    """The keys of the settings, and of the file that API_KEYS names. Raises: BadSettings with every fault."""
    return key_reader(settings)()


def key_reader(settings: Settings) -> Callable[[], KeyRing]:
    """Reads the keys; of a file, what is in it now."""
    quotas = quotas_of(settings)
    if settings.key_file is None:
        return partial(read_key_ring, settings.api_keys, settings.admin_keys, quotas)
    admins = read_key_ring((), settings.admin_keys)
    return partial(read_key_file, settings.key_file, admins, quotas)


def metering_of(settings: Settings, telemetry: Telemetry) -> Metering:
    """Keys and meters of a service process; its own quotas and usage are those of all replicas where there is a Redis.

    Raises: BadSettings.
    """
    keys = LiveKeys(key_ring(settings))
    watch = None
    if settings.key_file is not None:
        watch = KeyWatch(settings.key_file, keys, key_reader(settings), telemetry)
    ledger = UsageLedger()
    keeper = UsageKeeper(ledger, _usage_store(settings)) if keys.ring else None
    return _metering(settings, telemetry, keys, ledger, watch=watch, keeper=keeper)


def worker_metering(settings: Settings, telemetry: Telemetry, ring: KeyRing) -> Metering:
    """The same of an HTTP worker, which is told the keys, and tells what it counts, by the service process."""
    return _metering(settings, telemetry, LiveKeys(ring), UsageLedger(), watch=None, keeper=None)


def quotas_of(settings: Settings) -> Quotas:
    return Quotas(
        requests_per_minute=settings.quota_requests_per_minute,
        tokens_per_minute=settings.quota_tokens_per_minute,
        pages_per_minute=settings.quota_pages_per_minute,
        jobs=settings.quota_jobs,
    )


def _metering(
    settings: Settings,
    telemetry: Telemetry,
    keys: LiveKeys,
    ledger: UsageLedger,
    *,
    watch: KeyWatch | None,
    keeper: UsageKeeper | None,
) -> Metering:
    meters, quotas = Meters(telemetry, count=ledger.add if keys.ring else None), quotas_of(settings)
    meters.open(keys.ring.callers)
    keys.on_replace(lambda ring: meters.replace(ring.callers))
    rates = (quotas.requests_per_minute, quotas.tokens_per_minute, quotas.pages_per_minute)
    has_rates = any(rates) or settings.key_file is not None
    sync = None
    if settings.redis_url is not None and has_rates:
        sync = QuotaSync(meters, RedisQuotas(RedisOptions(settings.redis_url, prefix=settings.cache_prefix)))
    return Metering(keys, meters, quotas, sync, ledger, watch, keeper)


def _usage_store(settings: Settings) -> UsageStore:
    if settings.redis_url is not None:
        return RedisUsageStore(RedisOptions(settings.redis_url, prefix=settings.cache_prefix))
    return UsageDatabase(settings.state_dir / USAGE_FILE)
