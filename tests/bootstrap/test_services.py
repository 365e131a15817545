"""Building the services from settings; a start that fails says why and leaves nothing running."""

import asyncio
import gc
import json
import logging
import threading
import weakref
from dataclasses import replace
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from types import SimpleNamespace
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from backend.api import routes, upload
from backend.api.request_context import Handle
from backend.bootstrap import models
from backend.bootstrap.metering import metering_of
from backend.bootstrap.services import Services, _text_work, api_options
from backend.callers.callers import Quotas, read_key_ring
from backend.config import load_settings
from backend.device.facts import host
from backend.device.plan.placement import Placement
from backend.errors import (
    BadSettings,
    DeviceUnavailable,
    ModelUnavailable,
    SetupError,
    Unavailable,
)
from backend.supervision import Supervisor
from backend.telemetry import Telemetry
from tests.bootstrap.conftest import QUICK, measured
from tests.tiny_models import TinyModels, reference_of
from tests.tiny_taggers import TinyTaggers


def lanes() -> set[str]:
    """Names of the lanes' threads that are alive."""
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("lane-")}


@pytest.mark.slow
async def test_the_bundled_model_answers(start):
    """With default settings: sentence-transformers' vectors, within the tolerance of auto."""
    services = await start()
    texts = ["la factura de marzo", "the invoice is due", "zürich 👍"]

    result = await services.embeddings.embed(texts)

    assert (result.vectors * reference_of("bundled").encode(texts)).sum(axis=1).min() >= 0.985
    assert (await services.health.ready()).ready


@pytest.mark.slow
async def test_the_system_report_has_reasons(start, monkeypatch):
    """system() is ready for JSON: machine, placement, model, lanes, cache, limits; the container's are kept."""
    monkeypatch.setattr(host, "memory_limit_bytes", lambda *_: 5 * 2**30)
    services = await start(lanes=2, limit_inputs=7, **QUICK)
    result = json.loads(json.dumps(services.system()))

    assert {
        "version",
        "machine",
        "placements",
        "models",
        "pending_models",
        "lanes",
        "cache",
        "classifiers",
        "limits",
        "memory",
        "quotas",
        "ocr",
        "speech",
        "images",
        "jobs",
        "search",
        "shared_state",
        "summaries",
    } == set(result)
    assert 2 == result["placements"][0]["lanes"] == result["lanes"]["lanes_alive"]
    assert 7 == result["limits"]["inputs"]
    assert 4 * 2**30 == result["memory"]["limit_bytes"]
    assert result["placements"][0]["why"]
    assert result["models"][0]["choice"]["why"]
    assert result["models"][0]["choice"]["is_provisional"]
    in_health = json.loads(json.dumps(services.health.report()))["models"]
    names = [result["models"][0]["name"], *services.speech.names[:1]]  # without the extra there is no second
    assert names == [model["name"] for model in in_health]
    assert 1 == len({frozenset(model) for model in in_health})


@pytest.mark.slow
async def test_a_model_serves_before_it_is_measured_and_is_measured_once(start, tiny: TinyModels, tmp_path, rest):
    """In float32, as nobody has measured it; then as measured, which the next start begins with."""
    settings = {"state_dir": tmp_path, "embedding_model": str(tiny.folder("bert")), "ocr_engine": "tesseract"}
    first = await start(**settings)
    vectors = (await first.embeddings.embed(["la factura"])).vectors
    before = first.catalog.embedding().choice
    await measured(first)
    again = (await first.embeddings.embed(["el contrato", "la factura"])).vectors
    after = first.catalog.embedding().choice
    second = await start(**settings)

    assert ("fp32", True) == (before.dtype, before.is_provisional)
    assert not after.is_provisional
    assert len(after.measured) > 1
    assert (vectors * again[1]).sum() > 0.98
    assert [] == first.health.report()["measuring"] == second.health.report()["measuring"]
    assert "kept from an earlier start" in second.catalog.embedding().choice.why
    assert after.measured == second.catalog.embedding().choice.measured


@pytest.mark.slow
async def test_the_models_of_the_profile_come_after_the_first_answers(start, rest):
    """The tagger is loaded once vectors are served, or by the first request that needs it."""
    services = await start(ner_model=None)
    tagger = services.catalog.of("ner")
    assert not tagger.is_loaded
    await services.embeddings.embed(["la factura"])
    result = await services.entities.find(["Juan Pérez vive en Madrid"])

    assert tagger is services.catalog.of("ner")
    assert tagger.is_loaded
    assert result.rows[0].entities


@pytest.mark.slow
async def test_a_folder_as_the_model(start, tiny: TinyModels):
    """EMBEDDING_MODEL names a folder; aliases work too."""
    folder = tiny.folder("xlm-roberta")
    services = await start(embedding_model=str(folder), model_aliases="text-embedding-3-small, other", **QUICK)

    result = await services.embeddings.embed(["la factura"], model="text-embedding-3-small")

    assert (result.vectors * reference_of(folder).encode(["la factura"])).sum() >= 0.9999
    assert (folder.name, str(folder), "text-embedding-3-small", "other") == services.catalog.embedding().names


@pytest.mark.slow
async def test_settings_reach_their_parts(start, tiny: TinyModels):
    """Limits, cache and budgets are as they were set."""
    services = await start(
        embedding_model=str(tiny.folder("bert")),
        batch_tokens=128,
        cache_enabled=False,
        limit_queue_tokens=20,
        limit_request_s=3.0,
        limit_text_chars=9,
    )

    assert 128 == services.catalog.embedding().engine.budget
    assert not services.cache.status().enabled
    assert (3.0, 9) == (services.limits.request_s, services.limits.text_chars)
    with pytest.raises(Exception, match="LIMIT_QUEUE_TOKENS"):
        await services.embeddings.embed(["la factura " * 60, "el recibo " * 60])


@pytest.mark.slow
async def test_routes_get_the_services_that_they_name(start):
    """Each handle's name is a service of the type that the route takes it for."""
    services = await start(**QUICK)
    modules = [import_module(f"{routes.__name__}.{found.name}") for found in iter_modules(routes.__path__)]
    handles = [
        (handle.name, get_args(hint)[0])
        for module in (upload, *modules)
        for name, hint in get_type_hints(module).items()
        if isinstance(handle := getattr(module, name), Handle)
    ]

    assert len(handles) > 30
    for name, kind in handles:
        assert isinstance(getattr(services, name), get_origin(kind) if name == "system" else kind), name


def test_the_api_gets_its_options():
    """Keys, quotas, origins and the scope of caches are as they were set."""
    settings = load_settings(
        api_keys="one, two",
        admin_keys="ops=three",
        cors_origins="https://a.example",
        cache_scope="key",
        quota_requests_per_minute=1,
        quota_tokens_per_minute=2,
        quota_pages_per_minute=3,
        quota_jobs=4,
    )
    keys = metering_of(settings, Telemetry()).keys
    result = api_options(settings, keys)

    assert keys is result.keys
    assert ["key-1", "key-2", "ops"] == [caller.name for caller in keys.ring.callers]
    assert [Quotas(1, 2, 3, 4)] * 2 + [Quotas()] == [caller.quotas for caller in keys.ring.callers]
    assert (("https://a.example",), "key") == (result.cors_origins, result.cache_scope)


@pytest.mark.slow
async def test_callers_are_metered(start, tiny: TinyModels, redis_server):
    """Jobs that a restart left are charged before the first request; replicas share what was used through Redis."""
    models = {"embedding_model": str(tiny.folder("bert")), "speech_model": "none", "ocr_engine": "tesseract", **QUICK}
    services = await start(api_keys="team=one", quota_requests_per_minute=600, redis_url=redis_server.url, **models)
    owner = read_key_ring(("team=one",)).callers[0].owner
    for _ in range(600):
        services.meters.of(owner).admit()
    await services.close()

    assert redis_server.client.hget(f"financia:usage:{owner}", "requests")
    assert {"requests_per_minute": 600, "shared_by_replicas": True}.items() <= services.system()["quotas"].items()


@pytest.mark.slow
async def test_series_exist_before_the_first_request(start):
    """Dashboards show zeros, not gaps; the device's memory is read at each scrape."""
    text = (await start(**QUICK)).telemetry.render().decode()

    assert 'financia_inputs_total{task="embeddings"} 0.0' in text
    assert 'financia_batch_duration_seconds_count{engine="embeddings"} 0.0' in text
    [used] = [line for line in text.splitlines() if line.startswith("financia_device_memory_used_bytes{")]
    assert float(used.rsplit(" ", 1)[1]) > 2**20
    assert "financia_model_info{" in text


@pytest.mark.slow
async def test_closing_finishes_accepted_requests(start):
    """A running request is answered, a later one is refused, and no lane is left."""
    services = await start(**QUICK)
    before = lanes()
    running = asyncio.create_task(services.embeddings.embed([f"factura {number}" for number in range(200)]))
    await asyncio.sleep(0)  # it has been submitted: the look-up in an empty cache does not wait
    assert services.batcher.status().queued_jobs + services.batcher.status().busy
    await services.close()

    assert (200, 384) == (await running).vectors.shape
    with pytest.raises(Unavailable):
        await services.embeddings.embed(["too late"])
    assert before
    assert not services.batcher.status().lanes_alive


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        pytest.param({"device": "cuda:7"}, DeviceUnavailable, "DEVICE=cuda:7, but", id="no-such-card"),
        pytest.param({"embedding_model": "/no/such/folder"}, ModelUnavailable, "/no/such/folder", id="no-such-folder"),
        pytest.param({"speech_model": "/no/such/folder"}, ModelUnavailable, "SPEECH_MODEL", id="no-such-speech-model"),
        pytest.param(
            {"precision": "int8", "runtime": "torch"}, ModelUnavailable, "PRECISION=int8 RUNTIME=torch", id="no-int8"
        ),
        pytest.param({"redis_url": "http://redis", **QUICK}, BadSettings, "REDIS_URL", id="no-redis-address"),
    ],
)
async def test_a_start_that_fails(start, settings, error, words):
    """The reason is a SetupError that names the setting; no lane is left running."""
    before = lanes()

    with pytest.raises(error) as caught:
        await start(**settings)

    assert isinstance(caught.value, SetupError)
    assert words in str(caught.value)
    assert before == lanes()


async def test_a_sentinel_is_refused_at_once(start, caplog):
    """With what to give instead, before anything was asked of it that it cannot answer."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while commands := await reader.read(2**16):
            for command in commands.split(b"*")[1:]:
                is_known = b"\r\nINFO\r\n" in command
                writer.write(b"$19\r\nredis_mode:sentinel\r\n" if is_known else b"-ERR unknown command\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as sentinel:
        with pytest.raises(BadSettings, match=r"is a Sentinel.*address of the master"):
            await start(redis_url="redis://127.0.0.1:{1}".format(*sentinel.sockets[0].getsockname()), **QUICK)

    assert [] == [record.message for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_start_is_told_in_ten_lines(start, tiny: TinyModels, caplog):
    """One a device and a model, with all reasons; none of them is a warning."""
    caplog.set_level(logging.INFO)
    services = await start(embedding_model=str(tiny.folder("bert")))

    assert 1 == caplog.messages.count("device chosen")
    assert len(services.catalog.models()) == caplog.messages.count("model loaded")
    assert len(caplog.messages) <= 10
    assert {"INFO"} == {record.levelname for record in caplog.records}


@pytest.mark.slow
async def test_a_state_folder_that_cannot_be_written(start, tiny: TinyModels, tmp_path, caplog):
    """The service starts and computes; the next start measures again, and files and vector stores are not kept."""
    (tmp_path / "file").write_text("")
    services = await start(state_dir=tmp_path / "file" / "state", embedding_model=str(tiny.folder("bert")))

    assert (await services.embeddings.embed(["a"])).vectors.shape == (1, 32)
    assert any("STATE_DIR" in sentence for sentence in services.health.degraded())


@pytest.mark.slow
@pytest.mark.redis
async def test_a_redis_is_shared_by_two_services(start, redis_server):
    """The second service hits what the first computed, bit for bit."""
    first = await start(redis_url=redis_server.url, **QUICK)
    computed = await first.embeddings.embed(["la factura"])
    await first.close()
    second = await start(redis_url=redis_server.url, **QUICK)
    result = await second.embeddings.embed(["la factura"])

    assert (0, 1) == (computed.cache_hits, result.cache_hits)
    assert computed.vectors.tobytes() == result.vectors.tobytes()


@pytest.mark.slow
@pytest.mark.redis
async def test_processors_of_two_kinds_share_no_int8_on_one_redis(start, redis_server, monkeypatch):
    """OpenVINO's int8 differs between them by more than the promise; two of a kind share, bit for bit."""
    probe, hits = models.probe, []
    for flags in (("avx2", "avx512_vnni", "amx_bf16"), ("avx2", "avx512_vnni"), ("avx2", "avx512_vnni")):
        monkeypatch.setattr(models, "probe", lambda flags=flags, **how: replace(probe(**how), cpu_flags=flags))
        services = await start(redis_url=redis_server.url, runtime="openvino", precision="int8")
        hits.append((await services.embeddings.embed(["la factura"])).cache_hits)
        await services.close()  # what was computed is in Redis then

    assert [0, 0, 1] == hits


@pytest.mark.slow
async def test_an_unreachable_redis_does_not_stop_the_start(start):
    """Requests are served without it; the status shows it."""
    services = await start(redis_url="redis://127.0.0.1:1/0", **QUICK)

    assert (await services.embeddings.embed(["la factura"])).vectors.shape == (1, 384)
    assert services.cache.status().redis.state != "closed"


@pytest.mark.slow
async def test_an_idle_model_is_unloaded_and_loaded_again(start):
    """MODEL_KEEP_ALIVE_S: the vector stays the same, the service ready, and the load is counted."""
    services = await start(model_keep_alive_s=0.2, cache_enabled=False, **QUICK)
    before = await services.embeddings.embed(["la factura"])
    [resident] = services.catalog.embedding().residents
    async with asyncio.timeout(20):
        while resident.is_loaded:  # noqa: ASYNC110 - the timer under test is the only event
            await asyncio.sleep(0.05)
    assert (await services.health.ready()).ready
    assert not resident.is_loaded
    name = {"model": services.catalog.embedding().name}
    loads = services.telemetry.registry.get_sample_value("financia_model_loads_total", name)
    after = await services.embeddings.embed(["la factura"])

    assert (before.vectors == after.vectors).all()
    assert loads + 1 == services.telemetry.registry.get_sample_value("financia_model_loads_total", name)


@pytest.mark.parametrize(("device", "cores", "threads"), [("cpu", 16, 2), ("cuda:0", 16, 14), ("cuda:0", 2, 2)])
def test_a_card_is_fed_by_the_cores(device, cores, threads):
    """A core tokenises a twentieth of what a card computes; on a CPU the cores are the model's."""
    telemetry = Telemetry()
    context = SimpleNamespace(placements=[Placement(device, 1, 1, 1, ())], facts=SimpleNamespace(cores=cores))
    text_work = _text_work(load_settings(), context, telemetry, Supervisor(telemetry))
    text_work.close()

    assert threads == text_work.threads


@pytest.mark.slow
async def test_several_devices_serve_one_queue(start, monkeypatch):
    """One replica and one lane a placement; every result is right."""
    place_all = models.place_all

    def twice(facts, wishes, saved=None):
        [only] = place_all(facts, wishes, saved)
        return (replace(only, lanes=1), replace(only, lanes=1))

    monkeypatch.setattr(models, "place_all", twice)
    services = await start(cache_enabled=False, **QUICK)
    texts = [f"factura {number}" for number in range(64)]
    result = await services.embeddings.embed(texts)

    assert 2 == services.batcher.status().lanes_alive
    assert 2 == len(services.catalog.embedding().residents)
    assert (result.vectors * reference_of("bundled").encode(texts)).sum(axis=1).min() >= 0.9999


@pytest.mark.slow
async def test_a_model_is_swapped_under_load(start, tiny: TinyModels):
    """Requests are answered by the old or the new model during the swap, and by the new one after it."""
    services = await start(cache_enabled=False, **QUICK)
    folder = tiny.folder("bert")
    widths: list[int] = []
    swapped = asyncio.Event()

    async def keep_embedding() -> None:
        while not swapped.is_set():
            result = await services.embeddings.embed(["la factura", "the invoice is due"])
            widths.append(result.vectors.shape[1])

    clients = [asyncio.create_task(keep_embedding()) for _ in range(4)]
    old = weakref.ref(services.catalog.embedding().residents[0])
    model = await services.loader.load(str(folder), "embeddings")
    swapped.set()
    await asyncio.gather(*clients)
    after = await services.embeddings.embed(["la factura"])
    for _ in range(100):  # a lane may still hold its last batch for a moment
        gc.collect()
        if old() is None:
            break
        await asyncio.sleep(0.02)

    assert str(folder) == model.spec.source
    assert {384, 32} >= set(widths)
    assert 384 == widths[0]
    assert (after.vectors * reference_of(folder).encode(["la factura"])).sum() >= 0.9999
    assert (await services.health.ready()).ready
    assert old() is None, "the old model stays in memory"


@pytest.mark.slow
async def test_a_token_classifier_beside_the_embeddings(start, taggers: TinyTaggers):
    """NER_MODEL names a folder: entities have offsets in the caller's text; both models are listed."""
    folder = taggers.folder("bert")
    services = await start(ner_model=str(folder), **QUICK)
    text = "la factura de the invoice " * 40
    result = await services.entities.find([text, ""])

    assert ["embeddings", "ner"] == [model.task for model in services.catalog.models()]
    assert result.rows[0].entities
    assert all(text[entity.start : entity.end] == entity.text for entity in result.rows[0].entities)
    assert 384 == (await services.embeddings.embed(["la factura"])).vectors.shape[1]
    assert services.catalog.of("ner") is services.catalog.find(str(folder))


async def test_jobs_are_handed_over_before_the_lanes_refuse():
    """A job or a file that submits to lanes that refuse would fail instead of going back into its queue."""
    steps: list[str] = []

    class Part:
        def __init__(self, name: str) -> None:
            self.name = name

        async def _step(self, *_arguments: Any) -> None:
            steps.append(f"{self.name} begins")
            await asyncio.sleep(0)
            steps.append(f"{self.name} done")

        drain = close = _step

        def stop(self) -> None: ...

    closed = Part("other")
    silent = SimpleNamespace(stop=lambda: None, close=lambda: None)
    learning = SimpleNamespace(stop_learning=lambda: None, close=closed.close)
    runtime = SimpleNamespace(close=Part("documents").close)
    parts = SimpleNamespace(
        unloader=silent, memory=silent, model_retry=silent, classification=learning, jobs=Part("jobs"),
        document_runtime=runtime, search_runtime=Part("search"), summary_runtime=Part("summaries"),
        batcher=Part("lanes"), drain_s=1.0, metering=closed, monitor=silent, driver=silent, inference=silent,
        late_start=SimpleNamespace(close=partial(asyncio.sleep, 0)), cache=closed, rollout=closed,
        telemetry=SimpleNamespace(tracer=closed),
    )  # fmt: skip
    parts.hand_over = partial(Services.hand_over, parts)
    await Services.close(parts)  # type: ignore[arg-type]

    assert {"jobs begins", "jobs done", "search begins", "search done"} == set(steps[:4])
    assert {"lanes begins", "documents begins", "summaries begins"} == set(steps[4:7])
