"""A model wished on one replica is taken by all: in turn, by those that start later, and never against the settings."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from backend.bootstrap.shared_state import SharedState
from backend.errors import InvalidField, ModelUnavailable, Unavailable
from backend.replicas import rollout
from backend.replicas.folder_records import FolderRecords
from backend.replicas.records import SharedRecords, Version, new_id
from backend.replicas.redis_records import RedisRecords
from backend.replicas.rollout import KIND, Loading, ModelRollout, NoRollout, RolloutFile, targets_at_start
from backend.serving.catalog import Catalog, LoadedModel
from backend.supervision import Supervisor
from backend.telemetry import Telemetry
from tests.fakes import TEST_TIMEOUT_S, ManualClock
from tests.replicas.conftest import OpenRecords, address_of, never
from tests.text.service_stack import VectorEngine, loaded_model

TASK = "embeddings"


@pytest.fixture(params=["redis", "postgres"])
def store_address(request: pytest.FixtureRequest) -> tuple[str, str]:
    return address_of(request)


def model_from(source: str, **changes: Any) -> LoadedModel:
    """The same weights for the same source."""
    return loaded_model(
        VectorEngine(), source=source, name=source, sha256=source.encode().hex().ljust(64, "0"), **changes
    )


@dataclass
class FakeSwapper:
    """Swaps at once, or fails, or waits for ``gate``."""

    catalog: Catalog
    error: Exception | None = None
    gate: asyncio.Event | None = None
    changes: dict[str, Any] = field(default_factory=dict)
    loaded: list[str] = field(default_factory=list)

    async def load(
        self, source: str, task: str, *, check: Callable[[LoadedModel], None] = lambda _model: None
    ) -> LoadedModel:
        self.loaded.append(source)
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        model = model_from(source, **self.changes)
        try:
            check(model)
        except ModelUnavailable as error:
            raise InvalidField(str(error)) from error
        self.catalog.replace(model)
        return model


@dataclass
class Replica:
    rollout: ModelRollout
    swapper: FakeSwapper
    clock: ManualClock

    @property
    def source(self) -> str:
        return self.rollout.catalog.embedding().spec.source

    async def step(self) -> None:
        """What the background task does every second, and the load that this begins."""
        await self.rollout._look()
        await self.rollout._act()

    async def settle(self) -> None:
        await self.step()
        if self.rollout._loading is not None:
            await asyncio.wait_for(asyncio.shield(self.rollout._loading), TEST_TIMEOUT_S)

    def target(self) -> dict[str, Any]:
        [said] = self.rollout._own_report()["wishes"]
        return said


Start = Callable[..., Awaitable[Replica]]


@pytest.fixture
async def start_on(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[Replica]]]:
    """Starts a replica as the composition root does: with the wished model, where it can be loaded."""
    started: list[Replica] = []

    async def run(records: SharedRecords, name: str, *, set_source: str = "set", **fields: Any) -> Replica:
        file = RolloutFile(tmp_path / name)
        target = (await targets_at_start(records, file)).get(TASK)
        takes = target is not None and target.applies_to(set_source)
        catalog = Catalog(model_from(target.source if takes and target is not None else set_source))
        clock, telemetry, swapper = ManualClock(), Telemetry(), FakeSwapper(catalog, **fields)
        follower = ModelRollout(
            records, catalog, swapper, {TASK: set_source}, file, telemetry, Supervisor(telemetry), clock, never
        )
        await follower.start()
        started.append(Replica(follower, swapper, clock))
        return started[-1]

    yield run
    for replica in started:
        if replica.swapper.gate is not None:
            replica.swapper.gate.set()
        await replica.rollout.close()


async def test_all_replicas_take_it(start: Start):
    """The one that is asked, those that run, and one that starts later, which loads nothing else first."""
    one, two = await start("one"), await start("two")
    model = await one.rollout.roll_out("new", TASK)
    before = two.source
    await two.settle()
    three = await start("three")
    await three.step()
    [wished] = three.rollout.report()["shared_state"]["wished_models"]
    for replica in (one, two):
        await replica.settle()

    assert ("new", "set") == (model.spec.source, before)
    assert ["new"] * 3 == [replica.source for replica in (one, two, three)]
    assert [["new"], ["new"], []] == [replica.swapper.loaded for replica in (one, two, three)], "nothing twice"
    assert ("new", model.spec.fingerprint) == (wished["source"], wished["fingerprint"])
    assert ["serving"] * 3 == [each["wishes"][0]["status"] for each in one.rollout.report()["shared_state"]["replicas"]]


async def test_one_after_the_other(start: Start):
    """While one of a few replicas loads, the next waits; when it is done, the next begins."""
    one, two, three = await start("one"), await start("two", gate=asyncio.Event()), await start("three")
    await one.rollout.roll_out("new", TASK)
    await two.step()
    await three.step()
    during = (two.target()["status"], three.target()["status"], [*three.swapper.loaded])
    two.swapper.gate.set()
    await two.settle()
    await three.settle()

    assert ("loading", "waiting", []) == during
    assert ("new", "new") == (two.source, three.source)


async def test_a_failure_is_told_by_all_and_tried_again(start: Start):
    """The old model serves on; the pause grows; each replica's report has the reason."""
    one, two = await start("one"), await start("two", error=InvalidField("source: /models/new has no config.json"))
    await one.rollout.roll_out("new", TASK)
    await two.settle()
    await two.settle()
    await one.rollout._look()
    replicas = one.rollout.report()["shared_state"]["replicas"]
    told = [each["wishes"][0] for each in replicas if each["replica"] == two.rollout.replica]
    sentences = two.rollout.degraded()
    two.swapper.error = None
    two.clock.advance(15.0)
    await two.settle()

    assert [("failed", "source: /models/new has no config.json", 1)] == [
        (each["status"], each["reason"], each["tries"]) for each in told
    ]
    assert "the model wished for embeddings (new) is not served here: source: /models/new" in sentences[0]
    assert ("new", 2, ()) == (two.source, len(two.swapper.loaded), two.rollout.degraded())


async def test_what_cannot_be_loaded_where_it_is_wished_is_not_wished(start: Start):
    one = await start("one", error=InvalidField("source: no such folder"))
    with pytest.raises(InvalidField, match="no such folder"):
        await one.rollout.roll_out("new", TASK)

    assert [] == one.rollout.report()["shared_state"]["wished_models"]
    assert "set" == one.source


async def test_other_files_under_the_same_name(start: Start):
    """A folder that has another model on another machine is refused there: two models would answer to one name."""
    one, two = await start("one"), await start("two", changes={"max_tokens": 64})
    await one.rollout.roll_out("new", TASK)
    await two.settle()

    assert ("set", "failed") == (two.source, two.target()["status"])
    assert "new is another model here" in two.target()["reason"]


async def test_another_release_is_known_by_the_weights(start: Start, monkeypatch: pytest.MonkeyPatch):
    """Its fingerprints are others of the same files."""
    monkeypatch.setattr(rollout, "OUTPUT_VERSION", 99)
    one = await start("one", changes={"max_tokens": 64})
    await one.rollout.roll_out("new", TASK)
    monkeypatch.setattr(rollout, "OUTPUT_VERSION", 1)
    two = await start("two")

    assert ("new", "serving") == (two.source, two.target()["status"])


async def test_settings_that_were_changed_since(start: Start):
    """A replica that is started with another model in its settings follows them, and says so."""
    one, two = await start("one"), await start("two", set_source="newest")
    await one.rollout.roll_out("new", TASK)
    await two.settle()

    assert ("newest", "set_otherwise", []) == (two.source, two.target()["status"], two.swapper.loaded)


async def test_replaced_on_one_replica_alone(start: Start):
    """A later POST to one replica stands there, until the next wish."""
    one, two = await start("one"), await start("two")
    await one.rollout.roll_out("new", TASK)
    await two.settle()
    await two.swapper.load("mine", TASK)
    await two.settle()
    status = two.target()["status"]
    await one.rollout.roll_out("newer", TASK)
    await two.settle()

    assert ("replaced_here", "newer") == (status, two.source)


async def test_two_wishes_at_once(start: Start):
    """The later one stands on all."""
    one, two = await start("one"), await start("two")
    await asyncio.gather(one.rollout.roll_out("a", TASK), two.rollout.roll_out("b", TASK))
    for replica in (one, two, one, two):
        await replica.settle()

    assert one.source == two.source
    assert one.target()["source"] == one.source


async def test_a_process_that_ends_while_it_loads(start: Start, tmp_path: Path):
    """The third life does not try again, or it would end too."""
    one = await start("one")
    await one.rollout.roll_out("new", TASK)
    version = one.rollout._targets[TASK].version
    for _ in range(2):
        died(RolloutFile(tmp_path / "two").begin(TASK, version))
    two = await start("two")
    two.rollout.catalog.replace(model_from("set"))
    await two.settle()
    await two.settle()

    assert ("set", [], "failed") == (two.source, two.swapper.loaded, two.target()["status"])
    assert "the process has ended 2 times while it loaded it" in two.target()["reason"]


def died(loading: Loading) -> None:
    """What the end of a process does to its locks."""
    loading.stream.close()


async def test_processes_that_still_load_have_not_ended(tmp_path: Path):
    """Replicas that share a folder start together; one that comes back keeps none from trying."""
    version, other = Version(1, new_id()), Version(2, new_id())
    file = RolloutFile(tmp_path)
    running = [file.begin(TASK, version) for _ in range(3)]
    while_they_run = file.crashes(TASK, version)
    died(running[0])
    died(running[1])
    after = file.crashes(TASK, version), file.crashes(TASK, other)
    running[2].end()
    served = file.crashes(TASK, version)
    file.begin(TASK, version).end()

    assert (0, (2, 0), 2) == (while_they_run, after, served)
    assert 0 == file.crashes(TASK, version), "it came back, so it does not end a process here"


async def test_a_start_that_fails_is_no_crash_of_a_wished_model(
    start: Start, open_records: OpenRecords, tmp_path: Path
):
    """Whatever else ends the start: the wished model is tried again."""
    await (await start("one")).rollout.roll_out("new", TASK)
    file = RolloutFile(tmp_path / "two")
    targets = await targets_at_start(await open_records(), file)

    def fails() -> Catalog:
        raise ModelUnavailable("NER_MODEL: not there")

    for _ in range(3):
        with pytest.raises(ModelUnavailable):
            await SharedState(None, FolderRecords(tmp_path), file, targets).loaded(fails)

    assert 0 == file.crashes(TASK, targets[TASK].version)


async def test_a_store_that_is_empty_at_the_start(start_on, redis_server):
    """The wish that was seen last holds: the store lost it, and gets it back."""
    opened = [RedisRecords(redis_server.url, "test") for _ in range(2)]
    one = await start_on(opened[0], "one")
    await one.rollout.roll_out("new", TASK)
    await one.rollout.close()
    redis_server.client.flushall()
    again = await start_on(opened[1], "one")

    assert ("new", []) == (again.source, again.swapper.loaded)


async def test_a_load_that_another_wish_has_overtaken(start: Start):
    """It does not replace the newer one; the newer one is loaded next."""
    one, two = await start("one"), await start("two", gate=asyncio.Event())
    await one.rollout.roll_out("a", TASK)
    await two.step()
    await one.rollout.roll_out("b", TASK)
    await two.step()
    two.swapper.gate.set()
    for _ in range(3):
        await two.settle()

    assert ("b", ["a", "b"]) == (two.source, two.swapper.loaded)


async def test_without_the_store(start_on, redis_server):
    """A start takes the wish that was seen last; a wish is refused before anything is loaded; then all goes on."""
    opened = [RedisRecords(redis_server.url, "test") for _ in range(3)]
    one = await start_on(opened[0], "one")
    await one.rollout.roll_out("new", TASK)
    redis_server.kill()
    again, two = await start_on(opened[1], "one"), await start_on(opened[2], "two")
    with pytest.raises(Unavailable):
        await two.rollout.roll_out("newer", TASK)
    sources, loaded = (again.source, two.source), list(two.swapper.loaded)
    redis_server.start()  # empty
    await one.rollout._look()
    await two.settle()

    assert (("new", "set"), []) == (sources, loaded)
    assert "new" == two.source


async def test_a_wish_of_a_later_release(start: Start, open_records: OpenRecords):
    """It is left to replicas that can read it."""
    header = orjson.dumps(
        {"format": 99, "source": "x", "instead_of": "set", "sha256": "", "fingerprint": "", "output_version": 1}
    )
    await (await open_records()).write(KIND, TASK, new_id(), expected=None, header=header, parts={})
    one = await start("one")
    await one.settle()

    assert ("set", []) == (one.source, one.rollout._own_report()["wishes"])


async def test_alone():
    """Without a store there is nobody to reach, and the answer says what to set."""
    with pytest.raises(InvalidField, match="REDIS_URL or SEARCH_URL"):
        await NoRollout().roll_out("new", TASK)
