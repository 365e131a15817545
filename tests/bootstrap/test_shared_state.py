"""Where what is taught is kept: what lies in another place from before is taken over, and a Redis may forget."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backend.bootstrap.shared_state import SharedState, open_shared_state
from backend.callers.callers import ANYBODY
from backend.config import load_settings
from backend.documents.extractors import Extractor, ExtractorStore
from backend.models.classifier_head import ClassifierHead, write_head
from backend.models.fingerprint import EncoderIdentity
from backend.supervision import Supervisor
from backend.telemetry import Telemetry
from backend.text.classifier_files import Example
from backend.text.classifier_store import ClassifierStore
from backend.text.classifiers import ClassifierRegistry
from tests.redis_server import RedisServer

EXTRACTOR = Extractor("notes", "key:one", '["plate"]', "[]", 3, 1767225600.5)
EXAMPLES = [Example("una factura", ("bill",)), Example("\ud83d alone, \u202eright to left", ("letter",))]
HEAD = ClassifierHead(("bill", "letter"), False, np.eye(2, 4, dtype=np.float32), np.zeros(2, np.float32), "x", "a" * 64)
Open = Callable[..., Awaitable[SharedState]]


@pytest.fixture
async def open_state(tmp_path: Path) -> AsyncIterator[Open]:
    """What a process opens at its start."""
    async with AsyncExitStack() as stack:

        async def open_one(**settings: Any) -> SharedState:
            return await open_shared_state(load_settings(state_dir=tmp_path, **settings), stack)

        yield open_one


async def classifiers(state: SharedState) -> ClassifierStore:
    registry = ClassifierRegistry(Path("none"), EncoderIdentity("a" * 64, ""), Path("none"))
    store = ClassifierStore(registry, state.taught, Supervisor(Telemetry()))
    await store.refresh()
    return store


async def names(state: SharedState) -> list[list[str]]:
    """Of classifiers, usable or to be learnt from their examples, and of extractors."""
    registry = (await classifiers(state)).registry
    return [registry.names() or registry.waiting(), [one.name for one in await ExtractorStore(state.taught).all()]]


async def teach(state: SharedState) -> None:
    await (await classifiers(state)).save("mail", HEAD, EXAMPLES, ANYBODY)
    await ExtractorStore(state.taught).save(EXTRACTOR, ANYBODY)


async def test_what_an_earlier_release_was_taught(open_state: Open, tmp_path: Path) -> None:
    """Head, examples and owner; a broken head is learnt again, what nobody can read stays where it is."""
    rows = [json.dumps({"text": example.text, "labels": list(example.labels)}) for example in EXAMPLES]
    for name in ("mail", "broken", "none", "No Name"):
        (tmp_path / "classifiers" / name).mkdir(parents=True)
        (tmp_path / "classifiers" / name / "examples.jsonl").write_text("\n".join(rows) if name != "none" else "{")
    write_head(tmp_path / "classifiers" / "mail", HEAD)
    (tmp_path / "classifiers" / "mail" / "owner").write_text("key:one")
    (tmp_path / "extractors").mkdir()
    (tmp_path / "extractors" / "notes.json").write_text(json.dumps(EXTRACTOR.fields()))
    (tmp_path / "extractors" / "broken.json").write_text("{")

    for _ in range(2):
        state = await open_state()
        store = await classifiers(state)

        assert (["mail"], ["broken"]) == (store.registry.names(), store.registry.waiting())
        assert ("key:one", None) == (store.registry.owner("mail"), store.registry.owner("broken"))
        assert HEAD.version == store.registry.find("mail").head.version
        assert EXAMPLES == await store.examples("mail") == await store.examples("broken")
        assert [EXTRACTOR] == await ExtractorStore(state.taught).all()
    assert (tmp_path / "classifiers.taken-over" / "none" / "examples.jsonl").exists()


async def test_a_redis_that_forgets_costs_nothing(open_state: Open, redis_server: RedisServer) -> None:
    """With TAUGHT_IN=state: what Redis had is taken over, stays when it restarts, and stays away when deleted."""
    shared = await open_state(redis_url=redis_server.url)
    await teach(shared)
    await shared.taught.write("classifiers", "No Name", "a" * 16, expected=None, header=b"", parts={"examples": b"x"})
    redis: dict[str, Any] = {"redis_url": redis_server.url, "taught_in": "state"}
    state = await open_state(**redis)
    await ExtractorStore(state.taught).delete("notes", ANYBODY)

    assert [["mail"], []] == await names(await open_state(**redis))
    redis_server.kill()
    redis_server.start()
    assert [["mail"], []] == await names(await open_state(**redis))


async def test_shared_once(open_state: Open, redis_server: RedisServer) -> None:
    """What a process was taught alone is shared at its first start with a store; what that loses is not given back."""
    await teach(await open_state())

    assert [["mail"], ["notes"]] == await names(await open_state(redis_url=redis_server.url))
    redis_server.client.flushall()
    assert [[], []] == await names(await open_state(redis_url=redis_server.url))
    assert [[], []] == await names(await open_state())


async def test_a_redis_that_is_away(open_state: Open, redis_server: RedisServer) -> None:
    """It stops no start; what lies there is taken over at the next one."""
    await teach(await open_state(redis_url=redis_server.url))
    await names(await open_state(redis_url="redis://127.0.0.1:1/0", taught_in="state"))

    state = await open_state(redis_url=redis_server.url, taught_in="state")
    assert [["mail"], ["notes"]] == await names(state)
