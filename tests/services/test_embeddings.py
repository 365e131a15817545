"""Texts in, vectors out: the cache, equal texts, callers that leave, and errors that must leave nothing behind."""

from __future__ import annotations

import asyncio
import math
import threading
import time

import numpy as np
import pytest

from backend.batching.work_item import Priority
from backend.cache.store import NullCache
from backend.engines.embeddings import TASK, PoolingHead
from backend.engines.encoder_engine import EncoderEngine
from backend.errors import (
    DeadlineExceeded,
    InferenceFailed,
    InvalidField,
    Overloaded,
    TokenIdsOutOfRange,
    TooLarge,
    Unavailable,
    UnknownModel,
)
from backend.models.encoder_source import PinnedEncoder
from backend.models.spec import Pooling
from backend.models.vectors import normalized
from backend.services.embedding_options import EmbedOptions
from tests.services.house import (
    PROMPTS,
    FailingVectorEngine,
    GatedVectorEngine,
    House,
    VectorEngine,
    loaded_model,
    vector_of,
)
from tests.tiny_models import encoder_of, reference_of, tokenizer_of

TEXTS = ["la factura", "the total", "", "importe 12,50 €"]


def ids_of(text: str) -> tuple[int, ...]:
    return tuple(tokenizer_of("bundled").encode([text])[0].ids.tolist())


def expected(text: str) -> np.ndarray:
    """What the fake engines' service gives for a text: the bundled model normalises."""
    return normalized(vector_of(ids_of(text))[None])[0]


async def turns(count: int = 20) -> None:
    """Let every task that can go on go on; no time passes."""
    for _ in range(count):
        await asyncio.sleep(0)


# Answers


async def test_vectors_come_in_the_order_of_the_inputs(build):
    """Whatever the batches were."""
    house = build(VectorEngine(budget=16), lanes=2)

    found = await house.service.embed(TEXTS)

    np.testing.assert_allclose(found.vectors, np.stack([expected(text) for text in TEXTS]), rtol=1e-6)
    assert [len(ids_of(text)) for text in TEXTS] == found.tokens
    assert (0, [False] * 4) == (found.cache_hits, found.truncated)
    assert found.vectors.flags["C_CONTIGUOUS"]


async def test_the_bundled_model_end_to_end(build):
    """True lanes, true cache, true encoder: sentence-transformers' vectors, and again from the cache."""
    engine = EncoderEngine(TASK, PinnedEncoder(encoder_of("bundled", "onnx", "fp32")), PoolingHead(Pooling.MEAN), 512)
    house = build(engine, lanes=2, clock=time.monotonic)
    texts = [*TEXTS, "de la " * 300]
    reference = reference_of("bundled").encode(texts)

    first = await house.service.embed(texts)
    second = await house.service.embed(texts)

    assert (first.vectors * reference).sum(axis=1).min() >= 0.9999
    assert first.vectors.tobytes() == second.vectors.tobytes()
    assert [False] * 4 + [True] == first.truncated
    assert 256 == first.tokens[-1]
    assert (0, 5) == (first.cache_hits, second.cache_hits)


async def test_ids_and_texts_are_the_same_work(build):
    """The ids that the tokenizer makes of a text give that text's vector."""
    house = build(VectorEngine())

    by_ids = await house.service.embed([list(ids_of("la factura"))])
    by_text = await house.service.embed(["la factura"])

    np.testing.assert_array_equal(by_ids.vectors, by_text.vectors)


# Cache


async def test_a_hit_is_the_miss_bit_for_bit(build):
    """And the engine is not asked again; usage and truncation are as the first time."""
    house = build(VectorEngine())
    texts = [*TEXTS, "de la " * 300]

    miss = await house.service.embed(texts)
    hit = await house.service.embed(texts)

    assert miss.vectors.tobytes() == hit.vectors.tobytes()
    assert (miss.tokens, miss.truncated) == (hit.tokens, hit.truncated)
    assert (0, 5) == (miss.cache_hits, hit.cache_hits)
    assert len(house.computed) == 5


async def test_hits_and_misses_in_one_request(build):
    """Only what is new is computed; the order stays the caller's."""
    house = build(VectorEngine())
    await house.service.embed(["la factura", ""])

    found = await house.service.embed(["new", "", "newer", "la factura"])

    assert 2 == found.cache_hits
    assert [ids_of("la factura"), ids_of(""), ids_of("new"), ids_of("newer")] == house.computed
    np.testing.assert_allclose(
        found.vectors, np.stack([expected(text) for text in ("new", "", "newer", "la factura")]), rtol=1e-6
    )


async def test_an_answer_cannot_change_what_is_kept(build):
    """A caller that works on its vectors in place spoils nobody's hit."""
    house = build(VectorEngine())
    first = await house.service.embed(["la factura"])
    kept = first.vectors.copy()
    first.vectors[:] = 0
    hit = await house.service.embed(["la factura"])
    hit.vectors[:] = 1

    assert kept.tobytes() == (await house.service.embed(["la factura"])).vectors.tobytes()


OPTIONS = [
    EmbedOptions(),
    EmbedOptions(dimensions=100),
    EmbedOptions(dimensions=101),
    EmbedOptions(normalize=False),
    EmbedOptions(normalize=False, dimensions=100),
    EmbedOptions(prompt_name="query"),
    EmbedOptions(prompt_name="passage"),
    EmbedOptions(truncate="start"),
    EmbedOptions(truncate="none"),
]


async def test_options_that_change_a_vector_never_share_an_entry(build):
    """Dimensions, normalisation, prompt and truncation: each computes anew, then hits itself only."""
    house = build(VectorEngine(), spec={"prompts": PROMPTS})

    first = [await house.service.embed(["la factura"], options) for options in OPTIONS]
    second = [await house.service.embed(["la factura"], options) for options in OPTIONS]

    assert [0] * len(OPTIONS) == [found.cache_hits for found in first]
    assert [1] * len(OPTIONS) == [found.cache_hits for found in second]
    assert [found.vectors.tobytes() for found in first] == [found.vectors.tobytes() for found in second]


async def test_options_that_only_say_the_default_share_an_entry(build):
    """The model's own way spelt out is the same way."""
    house = build(VectorEngine())
    await house.service.embed(["la factura"])

    for options in (EmbedOptions(normalize=True), EmbedOptions(dimensions=384)):
        assert 1 == (await house.service.embed(["la factura"], options)).cache_hits


async def test_a_text_and_its_ids_are_kept_apart(build):
    """The caller's list of numbers is not the text that spells it."""
    house = build(VectorEngine())
    await house.service.embed(["la factura"])

    assert 0 == (await house.service.embed([list(ids_of("la factura"))])).cache_hits


async def test_without_a_cache(build):
    """Every request computes, and answers the same."""
    house = build(VectorEngine(), cache=NullCache())

    first, second = [await house.service.embed(["la factura"]) for _ in range(2)]

    np.testing.assert_array_equal(first.vectors, second.vectors)
    assert 2 == len(house.computed)


# Options


async def test_dimensions_are_cut_before_normalising(build):
    """A shortened vector has length one."""
    found = await build(VectorEngine()).service.embed(["la factura"], EmbedOptions(dimensions=7))

    assert (1, 7) == found.vectors.shape
    assert np.linalg.norm(found.vectors) == pytest.approx(1.0)


async def test_a_prompt_goes_before_the_text(build):
    """The engine sees the prompt's tokens, and usage counts them."""
    house = build(VectorEngine(), spec={"prompts": PROMPTS})

    found = await house.service.embed(["la factura"], EmbedOptions(prompt_name="query"))

    assert [ids_of("query: la factura")] == house.computed
    assert [len(ids_of("query: la factura"))] == found.tokens


async def test_the_models_default_prompt(build):
    """It is used where the request names none."""
    house = build(VectorEngine(), spec={"prompts": PROMPTS, "default_prompt": "passage"})
    await house.service.embed(["la factura"])

    assert [ids_of("passage: la factura")] == house.computed


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        pytest.param(EmbedOptions(dimensions=0), InvalidField, "not between 1 and 384", id="no-dimension"),
        pytest.param(EmbedOptions(dimensions=385), InvalidField, "not between 1 and 384", id="too-many-dimensions"),
        pytest.param(EmbedOptions(prompt_name="nobody"), InvalidField, "(passage, query)", id="unknown-prompt"),
        pytest.param(EmbedOptions(truncate="none"), TooLarge, "input[1] tokens", id="too-long"),
    ],
)
async def test_a_request_that_cannot_be_served(build, options, error, words):
    """The caller's own fault, told before anything is queued; nothing is left behind."""
    house = build(VectorEngine(), spec={"prompts": PROMPTS})

    with pytest.raises(error) as caught:
        await house.service.embed(["short", "la " * 300], options)

    assert words in str(caught.value)
    assert (0, []) == (house.flights, house.computed)


async def test_a_too_long_text_is_named_by_its_place_in_the_request(build):
    """Not by its place among the texts that the cache did not know."""
    house = build(VectorEngine())
    await house.service.embed(["la factura"], EmbedOptions(truncate="none"))

    with pytest.raises(TooLarge, match=r"input\[2\] tokens"):
        await house.service.embed(["la factura", "la factura", "la " * 300], EmbedOptions(truncate="none"))


async def test_an_unknown_model(build):
    """The names there are stand in the error."""
    with pytest.raises(UnknownModel, match="an-alias"):
        await build(VectorEngine()).service.embed(["a"], model="gpt-4")


@pytest.mark.parametrize(
    "name", [None, "bundled", "all-MiniLM-L6-v2", "an-alias", "sentence-transformers/all-MiniLM-L6-v2"]
)
async def test_every_name_is_the_same_model(build, name):
    """And shares its cache."""
    house = build(VectorEngine())
    await house.service.embed(["la factura"])

    assert 1 == (await house.service.embed(["la factura"], model=name)).cache_hits


async def test_ids_of_another_tokenizer(build):
    """Refused before the cache is asked."""
    house = build(VectorEngine())

    with pytest.raises(TokenIdsOutOfRange, match="99999"):
        await house.service.embed([[5, 99_999]])

    assert 0 == house.flights


# Equal texts


async def test_equal_texts_in_one_request_are_computed_once(build):
    """Each place gets the vector, usage counts every place."""
    house = build(VectorEngine())

    found = await house.service.embed(["la factura", "the total", "la factura", "la factura"])

    assert sorted([ids_of("la factura"), ids_of("the total")]) == sorted(house.computed)
    assert found.vectors[0].tobytes() == found.vectors[2].tobytes() == found.vectors[3].tobytes()
    assert [len(ids_of("la factura"))] * 2 == found.tokens[2:]
    assert 0 == found.cache_hits


async def test_equal_texts_in_two_requests_under_way_are_computed_once(build):
    """The second request takes a seat on the first one's job."""
    house = build(GatedVectorEngine())
    first = asyncio.create_task(house.service.embed(["la factura", "the total"]))
    await house.entered()
    second = asyncio.create_task(house.service.embed(["the total", "new"]))
    await turns()
    house.engine.gate.set()
    one, two = await asyncio.gather(first, second)

    assert one.vectors[1].tobytes() == two.vectors[0].tobytes()
    assert sorted([ids_of("la factura"), ids_of("the total"), ids_of("new")]) == sorted(house.computed)
    assert (1.0, 0) == (house.metric("jobs_coalesced_total"), house.flights)


async def test_many_requests_for_one_text(build):
    """A hundred callers, one job, a hundred answers."""
    house = build(GatedVectorEngine())
    callers = [asyncio.create_task(house.service.embed(["la factura"])) for _ in range(100)]
    await house.entered()
    house.engine.gate.set()
    answers = await asyncio.gather(*callers)

    assert [ids_of("la factura")] == house.computed
    assert 1 == len({answer.vectors.tobytes() for answer in answers})
    assert 0 == house.flights


# Callers that leave


@pytest.mark.parametrize("leaver", [0, 1], ids=["who-came-first", "who-came-second"])
async def test_one_caller_leaving_does_not_disturb_the_other(build, leaver):
    """The job lives as long as somebody waits for it."""
    house = build(GatedVectorEngine())
    callers = [asyncio.create_task(house.service.embed(["la factura"])) for _ in range(2)]
    await house.entered()
    await turns()
    callers[leaver].cancel()
    await turns()
    house.engine.gate.set()
    answer = await callers[1 - leaver]

    np.testing.assert_allclose(answer.vectors[0], expected("la factura"), rtol=1e-6)
    assert callers[leaver].cancelled()
    assert ([ids_of("la factura")], 0) == (house.computed, house.flights)


async def test_a_job_that_nobody_waits_for_never_reaches_the_device(build):
    """Both callers of a waiting job leave: it is dropped, and a later caller gets a job of its own."""
    house = build(GatedVectorEngine())
    busy = asyncio.create_task(house.service.embed(["something else"]))
    await house.entered()
    callers = [asyncio.create_task(house.service.embed(["la factura"])) for _ in range(2)]
    await turns()
    for caller in callers:
        caller.cancel()
    await asyncio.gather(*callers, return_exceptions=True)

    assert 1 == house.flights  # the busy one's
    house.engine.gate.set()
    await busy
    assert [ids_of("something else")] == house.computed
    answer = await house.service.embed(["la factura"])
    np.testing.assert_allclose(answer.vectors[0], expected("la factura"), rtol=1e-6)
    assert 0 == house.flights


async def test_one_who_comes_after_all_have_left_gets_a_new_job(build):
    """No seat on a job that has been given up, even while it still waits."""
    house = build(GatedVectorEngine())
    busy = asyncio.create_task(house.service.embed(["something else"]))
    await house.entered()
    gone = asyncio.create_task(house.service.embed(["la factura"]))
    await turns()
    gone.cancel()
    await turns()
    late = asyncio.create_task(house.service.embed(["la factura"]))
    await turns()
    house.engine.gate.set()
    await busy

    np.testing.assert_allclose((await late).vectors[0], expected("la factura"), rtol=1e-6)
    assert 0 == house.flights


async def test_the_patient_one_does_not_inherit_the_hasty_ones_deadline(build, clock):
    """A shared job is late for the caller whose time is up, not for the one who has time."""
    house = build(GatedVectorEngine())
    busy = asyncio.create_task(house.service.embed(["something else"]))
    await house.entered()
    hasty = asyncio.create_task(house.service.embed(["la factura"], deadline_s=clock() + 1.0))
    await turns()
    patient = asyncio.create_task(house.service.embed(["la factura"]))
    await turns()
    clock.advance(2.0)
    house.batcher.expire()
    await turns()
    house.engine.gate.set()
    await busy
    found = await asyncio.gather(hasty, patient, return_exceptions=True)

    assert isinstance(found[0], DeadlineExceeded)
    assert not isinstance(found[1], BaseException), found[1]
    assert 0 == house.flights


async def test_an_interactive_caller_on_a_bulk_job_does_not_wait_behind_bulk_work(build):
    """Joining a waiting bulk job makes it as urgent as its most urgent caller."""
    house = build(GatedVectorEngine(budget=8))
    busy = asyncio.create_task(house.service.embed(["something else"]))
    await house.entered()
    bulk = asyncio.create_task(house.service.embed(["one two three", "shared text here"], priority=Priority.BULK))
    await turns()
    urgent = asyncio.create_task(house.service.embed(["shared text here"], priority=Priority.INTERACTIVE))
    await turns()
    house.engine.gate.set()
    await asyncio.gather(busy, bulk, urgent)

    assert [ids_of("shared text here"), ids_of("one two three")] == house.computed[1:]


# Errors


async def test_a_failing_text_fails_its_own_request_only(build):
    """Strangers in the same batch get their answers; nothing stays in flight; the failure is not cached."""
    poison = ids_of("poison")[1]
    house = build(FailingVectorEngine(poison=poison))
    good, bad = await asyncio.gather(
        house.service.embed(["la factura", "the total"]), house.service.embed(["poison"]), return_exceptions=True
    )

    assert isinstance(bad, InferenceFailed)
    np.testing.assert_allclose(good.vectors[0], expected("la factura"), rtol=1e-6)
    assert 0 == house.flights
    house.engine.poison = -1
    assert 0 == (await house.service.embed(["poison"])).cache_hits


async def test_a_failing_text_among_others_of_one_request(build):
    """The request fails as a whole with that text's error; the others' jobs are given back."""
    house = build(FailingVectorEngine(poison=ids_of("poison")[1]))

    with pytest.raises(InferenceFailed):
        await house.service.embed(["la factura", "poison", "the total"])
    await turns()

    assert 0 == house.flights


async def test_all_callers_of_a_failing_job_are_told(build):
    """Each gets the error, once, and none hangs."""
    house = build(FailingVectorEngine())

    found = await asyncio.gather(*(house.service.embed(["la factura"]) for _ in range(5)), return_exceptions=True)

    assert [InferenceFailed] * 5 == [type(each) for each in found]
    assert 0 == house.flights


async def test_overloaded_takes_no_seat(build):
    """All inputs or none: a request that is refused leaves nothing, and its seats on others' jobs are given back."""
    house = build(GatedVectorEngine(), queue_tokens=10)
    busy = asyncio.create_task(house.service.embed(["one"]))
    await house.entered()
    waiting = asyncio.create_task(house.service.embed(["la factura"]))
    await turns()
    with pytest.raises(Overloaded):
        await house.service.embed(["la factura", "another text of some length"])

    assert 2 == house.flights
    waiting.cancel()
    await turns()
    assert 1 == house.flights  # nobody else holds the job that was joined in vain
    house.engine.gate.set()
    await busy
    assert ([ids_of("one")], 0) == (house.computed, house.flights)


async def test_a_deadline_leaves_no_flight(build, clock):
    """Late work is refused, never run, and its seat is free."""
    house = build(GatedVectorEngine())
    busy = asyncio.create_task(house.service.embed(["one"]))
    await house.entered()
    late = asyncio.create_task(house.service.embed(["la factura"], deadline_s=clock() + 1.0))
    await turns()
    clock.advance(2.0)
    house.batcher.expire()

    with pytest.raises(DeadlineExceeded):
        await late
    house.engine.gate.set()
    await busy
    assert ([ids_of("one")], 0) == (house.computed, house.flights)


async def test_a_stopped_service_says_so(build):
    """Nothing hangs and nothing stays."""
    house = build(VectorEngine())
    await house.batcher.drain(0.0)

    with pytest.raises(Unavailable):
        await house.service.embed(["la factura"])
    assert 0 == house.flights


async def test_any_mix_of_ends_leaves_nothing(build):
    """Two hundred requests for thirty texts that succeed, fail and are left: no flight, no job, no token stays."""
    random = np.random.default_rng(2)
    house = build(FailingVectorEngine(poison=ids_of("poison")[1]), lanes=2)
    words = [f"text {number}" for number in range(29)] + ["poison"]
    callers = []
    for turn in range(200):
        inputs = [words[index] for index in random.integers(0, 30, 3)]
        callers.append(asyncio.create_task(house.service.embed(inputs)))
        if turn % 3 == 0:
            await turns(2)
            callers[random.integers(0, len(callers))].cancel()
    found = await asyncio.gather(*callers, return_exceptions=True)
    await turns()

    ends = {type(each).__name__ for each in found}
    assert {"Embedded", "InferenceFailed", "CancelledError"} == ends
    status = house.batcher.status()
    assert (0, 0, 0) == (house.flights, status.queued_jobs, status.queued_tokens)


# Where the work happens


async def test_a_large_request_is_tokenised_off_the_loop(build, monkeypatch):
    """The loop answers others meanwhile."""
    threads = spy_on_encode(monkeypatch)
    await build(VectorEngine()).service.embed(
        ["la factura de marzo " * 40] * 3 + [f"la factura {n} " * 40 for n in range(9)]
    )

    assert [thread for thread in threads if thread.startswith("tokenize")] == threads
    assert threads


async def test_a_small_request_is_tokenised_at_once(build, monkeypatch):
    """A hop to another thread costs more than the sentence."""
    threads = spy_on_encode(monkeypatch)
    await build(VectorEngine()).service.embed(["la factura"])

    assert [threading.main_thread().name] == threads


async def test_one_large_text_counts_as_large(build, monkeypatch):
    """Characters decide, not the number of texts."""
    threads = spy_on_encode(monkeypatch)
    await build(VectorEngine()).service.embed(["a" * 100_000])

    assert threads[0].startswith("tokenize")


async def test_many_ids_are_not_wrapped_on_the_loop_for_long(build):
    """Ids need no tokenizer: whatever their number they are answered."""
    found = await build(VectorEngine(budget=512)).service.embed([[1000 + number] for number in range(500)])

    assert (500, 384) == found.vectors.shape


def spy_on_encode(monkeypatch) -> list[str]:
    """The names of the threads that the tokenizer runs on."""
    tokenizer, threads = tokenizer_of("bundled"), list[str]()
    encode = type(tokenizer).encode

    def spied(self, *arguments, **options):
        threads.append(threading.current_thread().name)
        return encode(self, *arguments, **options)

    monkeypatch.setattr(type(tokenizer), "encode", spied)
    return threads


# Numbers


async def test_counts(build):
    """Inputs, tokens and cuts are counted for hits and misses alike, every place of the request."""
    house = build(VectorEngine())
    texts = ["la factura", "la factura", "de la " * 300]
    for _ in range(2):
        await house.service.embed(texts)

    tokens = 2 * (2 * len(ids_of("la factura")) + 256)
    assert (6, tokens, 2) == (
        house.metric("inputs_total", task="embeddings"),
        house.metric("tokens_total", task="embeddings"),
        house.metric("truncated_total"),
    )


async def test_timing(build, clock):
    """Each stage has its seconds; a hit has only the cache's."""
    house = build(VectorEngine())

    miss = (await house.service.embed(TEXTS)).timing
    hit = (await house.service.embed(TEXTS)).timing

    assert miss.tokenize_s > 0
    assert (0.0, 0.0) == (miss.queue_s, miss.inference_s)  # the clock of the lanes stands still
    assert (0.0, 0.0, 0.0) == (hit.tokenize_s, hit.queue_s, hit.inference_s)
    assert all(math.isfinite(stage) and stage >= 0 for stage in (miss.cache_s, hit.cache_s))


# Similarity and tokens


async def test_similarity_is_the_cosine(build):
    """In the order of the sentences, whatever normalisation the request asked for."""
    house = build(VectorEngine())

    scores, embedded = await house.service.similarity(
        "la factura", ["the total", "la factura"], EmbedOptions(normalize=False)
    )

    assert scores == pytest.approx([float(expected("la factura") @ expected("the total")), 1.0], abs=1e-5)
    assert 3 == len(embedded.tokens)


async def test_tokenize_is_the_tokenizers_own(build):
    """Through the service's threads, with and without special tokens and a prompt."""
    house = build(VectorEngine(), spec={"prompts": PROMPTS})

    [pieces] = await house.service.tokenize(["la factura"])
    [bare] = await house.service.tokenize(["la factura"], add_special_tokens=False)
    [prompted] = await house.service.tokenize(["la factura"], prompt_name="query")

    assert list(ids_of("la factura")) == [piece.id for piece in pieces]
    assert pieces[1:-1] == bare
    assert list(ids_of("query: la factura")) == [piece.id for piece in prompted]


async def test_many_different_options_do_not_pile_up(build):
    """What is remembered of options is bounded."""
    house = build(VectorEngine())
    for dimensions in range(1, 385):
        for normalize in (True, False):
            await house.service.embed(["a"], EmbedOptions(dimensions=dimensions, normalize=normalize))

    assert len(house.service._recipes) <= 512


async def test_closing_twice(build):
    """Letting go again does no harm."""
    house: House = build(VectorEngine())
    house.inference.close()
    house.inference.close()


# Whole texts

LONG = "la factura de marzo, número 12; " * 120  # some 1,200 tokens: more than four windows
LONGER = "the total is due. " * 5_000  # 25,000 tokens: more windows than go at once


def by_hand(text: str) -> np.ndarray:
    """The mean of the windows' vectors as the fake engine gives them, by the tokens each answers for, at length one."""
    windows = tokenizer_of("bundled").windows(text, 0).windows
    weights = [window.own_stop - window.own_start for window in windows]
    mean = np.average([vector_of(window.ids) for window in windows], axis=0, weights=weights)
    return mean / np.linalg.norm(mean)


async def test_a_text_that_fits_has_the_vector_of_embed(build):
    """Bit for bit, and from its cache."""
    house = build(VectorEngine())
    plain = await house.service.embed(TEXTS)
    house.engine.batches.clear()

    whole = await house.service.embed_whole(TEXTS)

    assert plain.vectors.tobytes() == whole.vectors.tobytes()
    assert tuple(plain.tokens) == whole.tokens
    assert [] == house.engine.batches


@pytest.mark.parametrize("text", [LONG, LONGER, "de " * 300], ids=["windows", "many-windows", "short-in-characters"])
async def test_a_long_text_is_the_mean_of_its_windows(build, text):
    """Weighted, and of all of them; a text that turns out too long after it was tried is cut then."""
    house = build(VectorEngine(budget=4096))

    whole = await house.service.embed_whole([text])

    windows = tokenizer_of("bundled").windows(text, 0)
    np.testing.assert_allclose(whole.vectors[0], by_hand(text), atol=1e-6)
    assert (windows.tokens,) == whole.tokens
    assert len(windows.windows) > (64 if text is LONGER else 1)


async def test_whole_texts_keep_their_order_and_equal_ones_are_read_once(build):
    """Long, short, empty, repeated: each has what it has alone."""
    house = build(VectorEngine(budget=4096))
    texts = [LONG, "la factura", "", LONG, "de " * 300, "la factura", LONG + "x"]

    together = await house.service.embed_whole(texts)
    ran = len(house.computed)
    alone = [(await house.service.embed_whole([text])) for text in texts]

    np.testing.assert_array_equal(together.vectors, np.concatenate([one.vectors for one in alone]))
    assert together.tokens == tuple(one.tokens[0] for one in alone)
    assert ran == len(house.computed)  # everything was in the cache


async def test_windows_of_many_texts_run_together(build):
    """Thirty texts of two windows are not thirty requests one after the other."""
    house = build(GatedVectorEngine(budget=100_000))
    task = asyncio.create_task(house.service.embed_whole([f"{number} " + "de " * 600 for number in range(30)]))
    await house.entered()
    house.engine.gate.set()

    await task

    assert len(house.engine.batches) <= 4


async def test_very_many_texts_are_run_in_parts(build, monkeypatch):
    """More than a request may have, as a classifier's examples are: in order."""
    monkeypatch.setattr("backend.services.inference._PART", 3)
    house = build(VectorEngine())
    texts = [f"la factura {number}" for number in range(10)]

    whole = await house.service.embed_whole(texts)

    np.testing.assert_allclose(whole.vectors, np.stack([expected(text) for text in texts]), rtol=1e-6)


async def test_one_model_reads_a_whole_request(build):
    """Another that takes its place meanwhile is for the next one: their vectors never meet."""
    house = build(GatedVectorEngine(budget=300))
    old = house.catalog.embedding()
    task = asyncio.create_task(house.service.embed_whole(["la factura", LONG, "de " * 300]))
    await house.entered()
    house.catalog.replace(loaded_model(VectorEngine(), sha256="another"))
    house.engine.gate.set()

    whole = await task

    assert whole.model is old
    np.testing.assert_allclose(whole.vectors[1], by_hand(LONG), atol=1e-6)
    assert (await house.service.embed_whole(["la"])).model is not old


async def test_usage_of_whole_texts_is_their_callers_to_count(build):
    """Windows are nobody's inputs."""
    house = build(VectorEngine(budget=4096))

    await house.service.embed_whole([LONG, "la"])

    assert (0.0, 0.0) == (house.metric("inputs_total", task="embeddings"), house.metric("truncated_total"))


async def test_whole_texts_have_their_callers_urgency(build, clock):
    """Priority and deadline reach every job, windows' too."""
    house = build(GatedVectorEngine(budget=300))
    submitted = list[tuple[Priority, float]]()
    submit = house.batcher.submit

    def spied(*arguments, **options):
        submitted.append((options["priority"], options["deadline_s"]))
        return submit(*arguments, **options)

    house.batcher.submit = spied  # type: ignore[method-assign]
    house.engine.gate.set()
    await house.service.embed_whole([LONG, "la"], priority=Priority.BULK, deadline_s=clock() + 9)

    assert [(Priority.BULK, clock() + 9)] * 2 == submitted
