"""Metering as the service builds it: replicas that share a Redis count together."""

from pathlib import Path

from backend.bootstrap.metering import metering_of
from backend.config import load_settings
from backend.supervision import Supervisor
from backend.telemetry import Telemetry


async def test_usage_and_quotas_of_two_replicas(redis_server, tmp_path: Path):
    """What either admitted is in the usage that the other tells, and in the quota that both obey."""
    settings = load_settings(
        api_keys="team=one",
        quota_requests_per_minute=600,
        redis_url=redis_server.url,
        cache_prefix="metering",
        state_dir=tmp_path,
    )
    replicas = [metering_of(settings, Telemetry()) for _ in range(2)]
    [caller] = replicas[0].keys.ring.callers
    for metering in replicas:
        metering.start(Supervisor(Telemetry()))
        for _ in range(300):
            metering.meters.of(caller.owner).admit()
    await replicas[0].close()
    [own] = await replicas[1].usage().of(caller)
    await replicas[1].close()

    assert 600 == own.usage.day.requests
    assert redis_server.client.hget(f"metering:usage:{caller.owner}", "requests")
    assert not (tmp_path / "usage.db").exists()
