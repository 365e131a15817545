"""What REDIS_URL names is asked at the start whether it can keep data; else it is refused with what to change."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from backend.errors import BadSettings
from backend.lanes.cache.redis_client import refuse_unfit
from tests.redis_server import RedisSentinel

pytestmark = pytest.mark.redis

SENTINEL = r"is a Sentinel, which keeps no data\. Give the address of the master"
CREDENTIALS = (
    r"refuses its user and password \({words}\)\. Give those of the master .* a Sentinel's address does not lead"
)


@dataclass(frozen=True, slots=True)
class Guarded:
    """A master and the Sentinel that watches it."""

    master: str  # host:port
    sentinel: str


@pytest.fixture
def start_guarded(start_redis, unused_tcp_port_factory) -> Callable[[str], Guarded]:
    """Start both, the Sentinel with this password or without one; the master's is ``secret``."""

    def start(password: str) -> Guarded:
        master, sentinel = unused_tcp_port_factory(), unused_tcp_port_factory()
        start_redis("--port", str(master), "--bind", "127.0.0.1", "--requirepass", "secret")
        watched = (f"sentinel monitor papers 127.0.0.1 {master} 1", "sentinel auth-pass papers secret")
        own = (f"requirepass {password}",) if password else ()
        start_redis(f"port {sentinel}", *own, *watched, kind=RedisSentinel)
        return Guarded(f"127.0.0.1:{master}", f"127.0.0.1:{sentinel}")

    return start


@pytest.mark.parametrize(
    ("password", "url", "words"),
    [
        pytest.param("", "redis://{}", SENTINEL, id="open"),
        pytest.param("", "redis://{}/1", SENTINEL, id="with-a-database"),
        pytest.param("", "redis://{}?db=1", SENTINEL, id="with-a-database-as-an-option"),
        pytest.param("guard", "redis://:guard@{}/0", SENTINEL, id="with-its-password"),
        pytest.param("guard", "redis://default:guard@{}/1", SENTINEL, id="with-its-password-and-a-database"),
        pytest.param(
            "guard", "redis://{}/1", CREDENTIALS.format(words="Authentication required.*"), id="without-its-password"
        ),
        pytest.param(
            "guard", "redis://:secret@{}/1", CREDENTIALS.format(words="invalid .*"), id="with-the-master's-password"
        ),
        pytest.param(
            "", "redis://:secret@{}/1", CREDENTIALS.format(words="AUTH .*"), id="with-a-password-that-it-has-not"
        ),
        pytest.param("", "redis+sentinel://{}/papers", "not redis://host:port/database", id="by-a-scheme-of-its-own"),
        pytest.param("guard", "redis+sentinel://:guard@{}/1", "a Sentinel's address", id="by-a-scheme-and-a-password"),
    ],
)
async def test_a_sentinel_is_refused(start_guarded, password, url, words):
    """However it is addressed: a service that begins with it would go on without a cache, jobs and shared records."""
    guarded = start_guarded(password)

    with pytest.raises(BadSettings, match=words) as caught:
        await refuse_unfit(url.format(guarded.sentinel))

    assert "REDIS_URL" in str(caught.value)
    assert ":secret@" not in str(caught.value)
    assert ":guard@" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        pytest.param("redis://:guessed@{}/1", CREDENTIALS.format(words="invalid .*"), id="password"),
        pytest.param("redis://{}/1", CREDENTIALS.format(words="Authentication required.*"), id="no-password"),
        pytest.param("redis://:secret@{}/16", r"has no such database \(DB index is out of range\)", id="database"),
    ],
)
async def test_what_a_master_refuses(start_guarded, url, words):
    """With the start, not with each command of its life."""
    guarded = start_guarded("")

    with pytest.raises(BadSettings, match=words):
        await refuse_unfit(url.format(guarded.master))
    await refuse_unfit(f"redis://:secret@{guarded.master}/1")


async def test_one_that_is_away_or_hides_what_it_is_passes(start_redis, unused_tcp_port):
    """The cache is an aid, and jobs say themselves that they are away."""
    server = start_redis("--rename-command", "INFO", "")

    await refuse_unfit(server.url)
    await refuse_unfit(f"redis://127.0.0.1:{unused_tcp_port}/1")
