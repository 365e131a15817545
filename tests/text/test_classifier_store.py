"""Taught classifiers: taught to one replica and known to all, whatever happens to the store or to a replica."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from backend.callers.callers import ANYBODY, Caller, read_key_ring
from backend.errors import Forbidden, InvalidField, NotFound, Unavailable, UnknownModel
from backend.replicas.records import SharedRecords
from backend.replicas.redis_records import RedisRecords
from backend.supervision import Supervisor
from backend.text import classifier_store, classifier_training, classifiers
from backend.text.classification import ClassificationService
from backend.text.classifier_store import KIND, ClassifierStore
from backend.text.classifiers import ClassifierRegistry
from backend.text.neutral_vectors import NeutralVectors
from backend.text.scoring import ScoringService
from tests.fakes import TEST_TIMEOUT_S
from tests.replicas.conftest import OpenRecords, never, open_records, start, store_address
from tests.text.classification_setup import random_head, write_bundled_head
from tests.text.service_stack import ServiceStack, VectorEngine

__all__ = ["open_records", "start", "store_address"]

EXAMPLES = {"bill": ["la factura", "factura de marzo", "the invoice"], "letter": ["estimada señora", "dear sir"]}
OTHER_EXAMPLES = {"yes": ["la factura"], "no": ["dear sir"]}
TEXTS = [text for texts in EXAMPLES.values() for text in texts]
EXPECTED = [label for label, texts in EXAMPLES.items() for _ in texts]
OTHER_ENCODER = {"sha256": "b" * 64}
KEYS = read_key_ring(("one=first-secret", "two=second-secret"), ("ops=admin-secret",))
ONE, TWO, ADMIN = KEYS.callers


@dataclass
class Replica:
    """A classification service over a registry of its own and the store of all."""

    service: ClassificationService
    sync: ClassifierStore
    stack: ServiceStack

    @property
    def names(self) -> list[str]:
        return self.sync.registry.names()

    async def look(self) -> None:
        """What the background task does every quarter of a second."""
        await self.sync._look()

    async def learnt(self) -> None:
        """Wait until what others have taught has been learnt for this replica's embedding model."""
        if self.service.retraining is not None:
            await asyncio.wait_for(asyncio.shield(self.service.retraining), TEST_TIMEOUT_S)

    async def predictions(self, name: str = "mail") -> list[str | None]:
        return [row.prediction for row in (await self.service.classify(TEXTS, model=name)).rows]


Start = Callable[..., Awaitable[Replica]]


@pytest.fixture
async def start_on(build, tmp_path) -> AsyncIterator[Callable[..., Awaitable[Replica]]]:
    """Starts a replica on a store; the same ``name`` again is its restart with the disk that it had."""
    started: list[Replica] = []

    async def start(records: SharedRecords, name: str, *, sleep=never, **spec: Any) -> Replica:
        (tmp_path / "bundled").mkdir(exist_ok=True)
        stack = build(VectorEngine(budget=4096), lanes=2, spec=spec)
        identity = stack.catalog.embedding().spec.identity
        registry = ClassifierRegistry(tmp_path / name, identity, tmp_path / "bundled")
        registry.start()
        sync = ClassifierStore(registry, records, Supervisor(stack.telemetry), sleep)
        neutral, scoring = NeutralVectors(stack.service), ScoringService(stack.inference)
        service = ClassificationService(stack.catalog, sync, stack.service, scoring, stack.telemetry, neutral=neutral)
        service.on_model_swap(stack.catalog.embedding())
        await sync.start()
        started.append(Replica(service, sync, stack))
        return started[-1]

    yield start
    for replica in started:
        await replica.service.close()


@pytest.fixture
async def on_redis() -> AsyncIterator[Callable[[str], RedisRecords]]:
    """Opens the store of a Redis by its URL."""
    opened: list[RedisRecords] = []

    def run(url: str) -> RedisRecords:
        opened.append(RedisRecords(url, "test"))
        return opened[-1]

    yield run
    for records in opened:
        await records.close()


async def test_taught_to_one_and_known_to_all(start: Start):
    """The others answer with the same scores after one look, and one that starts later at once."""
    one, two = await start("one"), await start("two")
    info = await one.service.train_classifier("mail", EXAMPLES)
    await two.look()
    three = await start("three")
    answers = [(await replica.service.classify(TEXTS, model="mail")).rows for replica in (one, two, three)]

    assert EXPECTED == await two.predictions()
    assert answers[0] == answers[1] == answers[2]
    assert [[info]] * 3 == [replica.service.classifiers() for replica in (one, two, three)]


async def test_a_request_for_an_unknown_one_asks_the_store(start: Start):
    """A caller whose next request reaches another replica is answered at once, not after the next look."""
    one, two = await start("one"), await start("two")
    await one.service.train_classifier("mail", EXAMPLES)

    assert EXPECTED == await two.predictions()
    with pytest.raises(UnknownModel, match="mails"):
        await two.predictions("mails")


async def test_a_change_is_noticed_in_the_background(start: Start):
    """The task looks again and again; it needs no request."""
    looks: asyncio.Queue[float] = asyncio.Queue()
    go: asyncio.Queue[None] = asyncio.Queue()

    async def step(seconds: float) -> None:
        looks.put_nowait(seconds)
        await go.get()

    one, two = await start("one"), await start("two", sleep=step)
    async with asyncio.timeout(TEST_TIMEOUT_S):
        pauses = [await looks.get()]
        await one.service.train_classifier("mail", EXAMPLES)
        go.put_nowait(None)
        pauses.append(await looks.get())

    assert ["mail"] == two.names
    assert [0.25, 0.25] == pauses


async def test_replaced_and_deleted_elsewhere(start: Start):
    """A replica follows; what was deleted is unknown to all, also after a restart."""
    one, two = await start("one"), await start("two")
    await one.service.train_classifier("mail", EXAMPLES)
    await two.look()
    await two.service.train_classifier("mail", OTHER_EXAMPLES)
    await one.look()
    labels = one.sync.registry.find("mail").head.labels
    await one.service.delete_classifier("mail")
    two_again = await start("two")

    assert ("yes", "no") == labels
    await two.look()
    with pytest.raises(UnknownModel):
        await two.predictions()
    assert [] == two_again.names
    with pytest.raises(NotFound):
        await two.service.delete_classifier("mail")


async def test_two_replicas_teach_one_name_at_once(start: Start):
    """It belongs to one of the two callers, everywhere; the other is refused although its replica knew of nothing."""
    one, two = await start("one"), await start("two")
    results = await asyncio.gather(
        one.service.train_classifier("mail", EXAMPLES, caller=ONE),
        two.service.train_classifier("mail", OTHER_EXAMPLES, caller=TWO),
        return_exceptions=True,
    )
    for replica in (one, two):
        await replica.look()
    owner = one.sync.registry.owner("mail")

    assert 1 == sum(isinstance(result, Forbidden) for result in results)
    assert owner == two.sync.registry.owner("mail") == (TWO if isinstance(results[0], Forbidden) else ONE).owner
    assert one.sync.registry.find("mail").head.version == two.sync.registry.find("mail").head.version


async def test_one_caller_teaches_two_replicas_at_once(start: Start):
    """Both are done, one after the other, and all replicas end with the later one."""
    one, two = await start("one"), await start("two")
    await asyncio.gather(
        *(
            replica.service.train_classifier("mail", examples, caller=ONE)
            for replica, examples in ((one, EXAMPLES), (two, OTHER_EXAMPLES))
        )
    )
    for replica in (one, two):
        await replica.look()
    versions = [replica.sync.version("mail") for replica in (one, two)]

    assert (versions[0], 2) == (versions[1], versions[1].number)
    assert one.sync.registry.find("mail").head.labels == two.sync.registry.find("mail").head.labels


@pytest.mark.parametrize("caller", [ONE, ADMIN], ids=["its-own", "an-admin"])
async def test_owners_are_shared(start: Start, caller: Caller):
    """Another key may use it on every replica and change it on none; an admin's change leaves the owner."""
    one, two = await start("one"), await start("two")
    await one.service.train_classifier("mail", EXAMPLES, caller=ONE)
    with pytest.raises(Forbidden):
        await two.service.train_classifier("mail", OTHER_EXAMPLES, caller=TWO)
    with pytest.raises(Forbidden):
        await two.service.delete_classifier("mail", TWO)
    await two.service.train_classifier("mail", OTHER_EXAMPLES, caller=caller)
    await one.look()

    assert ONE.owner == one.sync.registry.owner("mail") == two.sync.registry.owner("mail")
    await one.service.delete_classifier("mail", caller)


async def test_the_limit_is_that_of_all(start: Start, monkeypatch: pytest.MonkeyPatch):
    """One replica's classifier fills the last place of all."""
    monkeypatch.setattr(classifiers, "CLASSIFIERS_MAX", 1)
    one, two = await start("one"), await start("two")
    await one.service.train_classifier("mail", EXAMPLES)

    with pytest.raises(InvalidField, match="1 classifiers are kept"):
        await two.service.train_classifier("more", EXAMPLES)


async def test_another_embedding_model_learns_from_the_examples(start: Start, monkeypatch: pytest.MonkeyPatch):
    """Two releases serve it side by side, each with its own head; the next replica of the new one need not learn."""
    old = await start("old")
    await old.service.train_classifier("mail", EXAMPLES)
    before = (await old.service.classify(TEXTS, model="mail")).rows
    new = await start("new", **OTHER_ENCODER)
    await new.learnt()
    monkeypatch.delattr(classifier_training, "fit_head_beside")  # nobody learns from here on
    newer = await start("newer", **OTHER_ENCODER)
    await old.look()

    assert EXPECTED == await new.predictions() == await newer.predictions()
    assert before == (await old.service.classify(TEXTS, model="mail")).rows
    assert len({replica.sync.registry.find("mail").head.trained_on for replica in (old, new, newer)}) == 2
    assert new.sync.report()["versions"] == old.sync.report()["versions"], "learning again is no new version"


async def test_waiting_for_its_head(start: Start, monkeypatch: pytest.MonkeyPatch):
    """Until it has been learnt it is listed as pending with its labels, and a request is asked to come again."""
    entered, gate = asyncio.Event(), asyncio.Event()

    async def held(*_arguments: Any, **_options: Any) -> Any:
        entered.set()
        await gate.wait()

    old = await start("old")
    await old.service.train_classifier("mail", EXAMPLES)
    monkeypatch.setattr(classifier_training.ClassifierTrainer, "_fit", held)
    new = await start("new", **OTHER_ENCODER)
    await asyncio.wait_for(entered.wait(), TEST_TIMEOUT_S)
    [info] = new.service.classifiers()

    assert ("mail", "learnt", "pending", ("bill", "letter")) == (info.name, info.kind, info.status, info.labels)
    with pytest.raises(Unavailable, match="being learnt again"):
        await new.predictions()


async def test_a_later_release_wrote_it(start: Start, open_records: OpenRecords, monkeypatch: pytest.MonkeyPatch):
    """A replica that cannot read it says so, and neither replaces nor deletes it; it is not absent."""
    monkeypatch.setattr(classifier_store, "FORMAT", 2)
    late = await start("late")
    await late.service.train_classifier("mail", EXAMPLES)
    monkeypatch.setattr(classifier_store, "FORMAT", 1)
    early = await start("early")
    for act in (
        early.predictions(),
        early.service.train_classifier("mail", OTHER_EXAMPLES),
        early.service.delete_classifier("mail"),
    ):
        with pytest.raises(Unavailable, match=r"a later release wrote it \(format 2; this one reads 1\)"):
            await act
    entries = (await (await open_records()).index(KIND)).entries

    assert late.sync.version("mail") == entries["mail"].version
    assert ["mail: a later release wrote it (format 2; this one reads 1)"] == early.sync.registry.faults
    assert EXPECTED == await late.predictions()


async def test_bytes_that_are_none_of_ours(start: Start, open_records: OpenRecords):
    """They cost their own classifier alone."""
    records = await open_records()
    header = orjson.dumps({"format": 1, "owner": None})
    await records.write(KIND, "broken", "a" * 16, expected=None, header=header, parts={"examples": b"no zlib"})
    await records.write(KIND, "not-ours", "b" * 16, expected=None, header=b"no json", parts={})
    one = await start("one")
    await one.service.train_classifier("mail", EXAMPLES)

    assert ["mail"] == one.names
    with pytest.raises(Unavailable, match="are no examples of a classifier"):
        await one.predictions("broken")


async def test_faults_do_not_grow(start: Start, tmp_path):
    """A name that is bundled here and taught elsewhere is told once, and its examples are not read each time."""
    one = await start("one")
    await one.service.train_classifier("mail", EXAMPLES)
    write_bundled_head(tmp_path, "mail", random_head("a" * 64))
    two = await start("two")
    for number in range(3):
        await one.service.train_classifier(f"other-{number}", OTHER_EXAMPLES)
        await one.service.train_classifier("mail", OTHER_EXAMPLES)
        await two.look()

    assert 1 == len(two.sync.registry.faults)


async def test_what_is_taught_meanwhile_is_learnt_before_what_waits(start: Start, monkeypatch):
    """A classifier that cannot be learnt yet keeps none of the others pending."""
    one, two = await start("one"), await start("two", **OTHER_ENCODER)
    await one.service.train_classifier("first", EXAMPLES)
    trainer, waits = two.service._trainer, asyncio.Event()
    retrain = trainer._retrain

    async def first_waits(name: str) -> float | None:
        if name == "first":
            waits.set()
            return 0.0
        return await retrain(name)

    monkeypatch.setattr(trainer, "_retrain", first_waits)
    await two.look()
    await waits.wait()
    await one.service.train_classifier("second", EXAMPLES)
    await two.look()
    async with asyncio.timeout(120):
        while "second" not in two.names:
            await two.look()

    assert EXPECTED == await two.predictions("second")


def evict(redis_server: Any, name: str) -> None:
    """What a Redis with the policy ``allkeys-lru`` does."""
    assert redis_server.client.delete(*redis_server.client.scan_iter(f"test:shared:classifiers:{name}:*"))


class TestRedisFaults:
    """What Redis, which may forget everything, costs."""

    @pytest.fixture
    def start(self, start_on, on_redis, redis_server) -> Start:
        async def run(name: str, **options: Any) -> Replica:
            return await start_on(on_redis(redis_server.url), name, **options)

        return run

    async def test_a_redis_that_was_emptied(self, start: Start, redis_server):
        """What it has lost is lost on all replicas alike, and may be taught again."""
        one, two = await start("one"), await start("two")
        await one.service.train_classifier("mail", EXAMPLES, caller=ONE)
        await two.look()
        redis_server.client.flushall()
        for replica in (two, one):
            await replica.look()
        three = await start("three")

        assert [] == one.names == two.names == three.names
        await two.service.train_classifier("mail", EXAMPLES, caller=TWO)
        assert EXPECTED == await one.predictions()

    async def test_away_at_the_start(self, start: Start, redis_server):
        """What was read before answers; nothing can be taught, and unknown names are unavailable, not absent."""
        again = await start("one")
        await again.service.train_classifier("mail", EXAMPLES)
        redis_server.kill()
        with pytest.raises(Unavailable):
            await again.look()
        empty = await start("two")

        assert EXPECTED == await again.predictions()
        for act in (
            empty.predictions(),
            again.service.train_classifier("more", EXAMPLES),
            again.service.delete_classifier("mail"),
        ):
            with pytest.raises(Unavailable, match="cannot tell what was taught"):
                await act
        assert "answered from this replica's memory" in again.sync.degraded()[0]
        with pytest.raises(UnknownModel):
            await empty.predictions("no name of a classifier")

        redis_server.start()  # empty
        for replica in (again, empty):
            await replica.look()
        await empty.service.train_classifier("mail", EXAMPLES)

        assert EXPECTED == await again.predictions()
        assert () == again.sync.degraded()

    async def test_lost_in_flight(self, start_on, on_redis, start: Start, redis_proxy):
        """A PUT whose answer was lost is done once and told; one that cannot be done changes nothing."""
        one = await start_on(on_redis(redis_proxy.url), "one")
        two = await start("two")
        await one.service.train_classifier("mail", EXAMPLES)
        redis_proxy.open.clear()
        asked = redis_proxy.asked
        task = asyncio.create_task(one.sync.save("mail", one.sync.registry.find("mail").head, [], ANYBODY))
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await redis_proxy.asked_more_than(asked + 1000)
            redis_proxy.cut()
            redis_proxy.open.set()
            await task
        await two.look()

        assert 2 == one.sync.report()["versions"]["mail"]
        assert one.sync.report()["versions"] == two.sync.report()["versions"]

    async def test_set_back_by_a_failover(self, start: Start, redis_server):
        """Redis replicates after it answers: a write that a new master does not have is lost, for all alike."""
        one, two = await start("one"), await start("two")
        await one.service.train_classifier("mail", EXAMPLES)
        dump = {key: redis_server.client.dump(key) for key in redis_server.client.scan_iter()}
        await one.service.train_classifier("mail", OTHER_EXAMPLES)
        await one.service.train_classifier("later", EXAMPLES)
        redis_server.client.flushall()
        for key, value in dump.items():
            redis_server.client.restore(key, 0, value)
        for replica in (two, one):
            await replica.look()

        assert ["mail"] == one.names == two.names
        assert EXPECTED == await one.predictions() == await two.predictions()

    async def test_values_that_nobody_has(self, start: Start, redis_server):
        """The name stays its owner's, who may teach it again; nobody else takes it."""
        one = await start("one")
        await one.service.train_classifier("mail", EXAMPLES, caller=ONE)
        await one.service.close()
        evict(redis_server, "mail")
        two = await start("two")
        await two.look()
        with pytest.raises(Unavailable):
            two.sync.registry.find("mail")
        with pytest.raises(Forbidden):
            await two.service.train_classifier("mail", EXAMPLES, caller=TWO)
        told = two.sync.degraded()
        await two.service.train_classifier("mail", EXAMPLES, caller=ONE)
        await two.look()

        assert "the store has lost its examples" in " ".join(told)
        assert EXPECTED == await two.predictions()
        assert () == two.sync.degraded()

    async def test_older_copies_answer_on_while_newer_values_are_lost(self, start: Start, redis_server):
        """And what is taught then is not refused for ever."""
        one, two = await start("one"), await start("two")
        await one.service.train_classifier("mail", EXAMPLES)
        await two.look()
        await one.service.train_classifier("mail", OTHER_EXAMPLES)
        await one.service.close()
        evict(redis_server, "mail")
        await two.look()
        await two.look()
        answered = await two.predictions()
        await two.service.train_classifier("mail", OTHER_EXAMPLES)

        assert EXPECTED == answered
        assert ("yes", "no") == two.sync.registry.find("mail").head.labels

    async def test_requests_at_the_end(self, start: Start, redis_server, monkeypatch):
        """One that waits for the store while the replica stops gets 503, which says to try another."""
        one = await start("one")
        hangs = asyncio.Event()

        async def hanging(_kind: str) -> str:
            hangs.set()
            await asyncio.Event().wait()
            return ""

        monkeypatch.setattr(one.sync.records, "mark", hanging)
        request = asyncio.create_task(one.sync.refresh())
        await hangs.wait()
        await one.sync.close()

        with pytest.raises(Unavailable, match="this replica stops"):
            await request
