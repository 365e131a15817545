"""The embedding service: cache, equal texts, cancelled callers, and errors that leave no item in flight."""

import asyncio
import math
import time
from typing import Any

import numpy as np
import pytest

from backend.errors import (
    DeadlineExceeded,
    InferenceFailed,
    InvalidField,
    Overloaded,
    TokenIdsOutOfRange,
    TooLarge,
)
from backend.lanes.inference import Urgency
from backend.lanes.work_queue import Priority
from backend.models.encoder import normalized
from backend.models.tokenizer import TokenPiece
from backend.text import embeddings
from backend.text.embeddings import EmbedOptions
from tests.fakes import turns
from tests.serving.loaded_models import embedding_model
from tests.text.service_stack import (
    PROMPTS,
    FailingVectorEngine,
    GatedVectorEngine,
    VectorEngine,
    loaded_model,
    vector_of,
)
from tests.tiny_models import rewrite, spec_of, tokenizer_of

TEXTS = ["la factura", "the total", "", "importe 12,50 €"]


def ids_of(text: str) -> tuple[int, ...]:
    return tuple(tokenizer_of("minilm").encode([text])[0].ids.tolist())


def expected(text: str) -> np.ndarray:
    """The service's vector of a text with the fake engines: the bundled model normalises."""
    return normalized(vector_of(ids_of(text))[None])[0]


# Answers


async def test_ids_and_texts_are_the_same_work(build):
    """The ids that the tokenizer makes of a text give that text's vector."""
    stack = build(VectorEngine())

    by_ids = await stack.service.embed([list(ids_of("la factura"))])
    by_text = await stack.service.embed(["la factura"])

    np.testing.assert_array_equal(by_ids.vectors, by_text.vectors)
    assert 0 == by_text.cache_hits, "their keys differ"


# Cache


async def test_a_folder_whose_pooling_changed_gets_new_vectors(build, tiny, copy_of):
    """The weights are the same and the cache is shared: the old vectors are not served."""
    folder = copy_of(tiny.folder("bert", "mean"))
    before = build(embedding_model(folder))
    by_mean = (await before.service.embed(["la factura"])).vectors
    rewrite(folder / "1_Pooling" / "config.json", pooling_mode="cls")
    spec_of.cache_clear()

    after = build(embedding_model(folder), cache=before.cache)
    by_cls = await after.service.embed(["la factura"])

    assert 0 == by_cls.cache_hits
    alone = build(embedding_model(folder))
    np.testing.assert_array_equal(by_cls.vectors, (await alone.service.embed(["la factura"])).vectors)
    assert not np.allclose(by_mean, by_cls.vectors)


async def test_changing_a_result_does_not_change_the_cache(build):
    """Vectors are copies: a caller may modify them in place."""
    stack = build(VectorEngine())
    first = await stack.service.embed(["la factura"])
    kept = first.vectors.copy()
    first.vectors[:] = 0
    hit = await stack.service.embed(["la factura"])
    hit.vectors[:] = 1

    assert kept.tobytes() == (await stack.service.embed(["la factura"])).vectors.tobytes()


OPTIONS = [
    EmbedOptions(), EmbedOptions(dimensions=100), EmbedOptions(dimensions=101), EmbedOptions(normalize=False),
    EmbedOptions(normalize=False, dimensions=100), EmbedOptions(prompt_name="query"),
    EmbedOptions(prompt_name="passage"), EmbedOptions(truncate="start"), EmbedOptions(truncate="none"),
]  # fmt: skip


async def test_options_that_change_a_vector_change_the_key(build):
    """Dimensions, normalisation, prompt and truncation: each computes anew, then hits its own entry."""
    stack = build(VectorEngine(), spec={"prompts": PROMPTS})

    first = [await stack.service.embed(["la factura"], options) for options in OPTIONS]
    second = [await stack.service.embed(["la factura"], options) for options in OPTIONS]

    assert [0] * len(OPTIONS) == [embedded.cache_hits for embedded in first]
    assert [1] * len(OPTIONS) == [embedded.cache_hits for embedded in second]
    assert [embedded.vectors.tobytes() for embedded in first] == [embedded.vectors.tobytes() for embedded in second]


# Options


@pytest.mark.parametrize(
    ("options", "default", "expected"),
    [
        pytest.param(EmbedOptions(), "passage", "passage: la factura", id="the-models-default"),
        pytest.param(EmbedOptions(prompts=("query",)), None, "query: la factura", id="the-first"),
        pytest.param(EmbedOptions(prompts=("document", "passage")), None, "passage: la factura", id="the-one-it-has"),
        pytest.param(EmbedOptions(prompts=("document",)), None, "la factura", id="none-of-them"),
        pytest.param(EmbedOptions(prompts=("document",)), "passage", "passage: la factura", id="else-the-default"),
        pytest.param(EmbedOptions(prompts=("query",)), "passage", "query: la factura", id="before-the-default"),
        pytest.param(
            EmbedOptions(prompt_name="passage", prompts=("query",)), None, "passage: la factura", id="by-name"
        ),
    ],
)
async def test_prompts_by_preference(build, options, default, expected):
    """The first that the model has; a model without any of them reads the text as it always does."""
    stack = build(VectorEngine(), spec={"prompts": PROMPTS, "default_prompt": default})
    result = await stack.service.embed(["la factura"], options)

    assert [ids_of(expected)] == stack.computed
    assert [len(ids_of(expected))] == result.tokens


async def test_a_preferred_prompt_shares_the_key_of_the_named(build):
    """What is computed is the same."""
    stack = build(VectorEngine(), spec={"prompts": PROMPTS})
    await stack.service.embed(["la factura"], EmbedOptions(prompt_name="query"))

    again = await stack.service.embed(["la factura"], EmbedOptions(prompts=("search_query", "query")))

    assert 1 == again.cache_hits


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
    """Refused before anything is queued."""
    stack = build(VectorEngine(), spec={"prompts": PROMPTS})

    with pytest.raises(error) as caught:
        await stack.service.embed(["short", "la " * 300], options)

    assert words in str(caught.value)
    assert (0, []) == (stack.in_flight, stack.computed)


async def test_a_too_long_text_is_named_by_its_position(build):
    """The position counts cached texts too."""
    stack = build(VectorEngine())
    await stack.service.embed(["la factura"], EmbedOptions(truncate="none"))

    with pytest.raises(TooLarge, match=r"input\[2\] tokens"):
        await stack.service.embed(["la factura", "la factura", "la " * 300], EmbedOptions(truncate="none"))


@pytest.mark.parametrize(
    "name", [None, "bundled", "minilm", "all-MiniLM-L6-v2", "an-alias", "sentence-transformers/all-MiniLM-L6-v2"]
)
async def test_every_name_is_the_same_model(build, name):
    """Every name shares the cache."""
    stack = build(VectorEngine())
    await stack.service.embed(["la factura"])

    assert 1 == (await stack.service.embed(["la factura"], model=name)).cache_hits


async def test_ids_of_another_tokenizer(build):
    """Refused before the look-up in the cache."""
    stack = build(VectorEngine())

    with pytest.raises(TokenIdsOutOfRange, match="99999"):
        await stack.service.embed([[5, 99_999]])

    assert 0 == stack.in_flight


# Cancelled callers


@pytest.mark.parametrize("leaver", [0, 1], ids=["the-first", "the-second"])
async def test_one_caller_leaving_does_not_disturb_the_other(build, leaver):
    """The item lives as long as a caller waits for it."""
    stack = build(GatedVectorEngine())
    callers = [asyncio.create_task(stack.service.embed(["la factura"])) for _ in range(2)]
    await stack.entered()
    await turns()
    callers[leaver].cancel()
    await turns()
    stack.engine.gate.set()
    answer = await callers[1 - leaver]

    np.testing.assert_allclose(answer.vectors[0], expected("la factura"), rtol=1e-6)
    assert callers[leaver].cancelled()
    assert ([ids_of("la factura")], 0) == (stack.computed, stack.in_flight)


async def test_an_item_without_callers_never_reaches_the_device(build):
    """Both callers of a queued item leave: it is dropped, and a later caller gets a new one."""
    stack = build(GatedVectorEngine())
    busy = asyncio.create_task(stack.service.embed(["something else"]))
    await stack.entered()
    callers = [asyncio.create_task(stack.service.embed(["la factura"])) for _ in range(2)]
    await turns()
    for caller in callers:
        caller.cancel()
    await asyncio.gather(*callers, return_exceptions=True)

    assert 1 == stack.in_flight  # that of ``busy``
    stack.engine.gate.set()
    await busy
    assert [ids_of("something else")] == stack.computed
    answer = await stack.service.embed(["la factura"])
    np.testing.assert_allclose(answer.vectors[0], expected("la factura"), rtol=1e-6)
    assert 0 == stack.in_flight


async def test_a_caller_after_all_have_left_gets_a_new_item(build):
    """An abandoned item cannot be joined, even while it is still queued."""
    stack = build(GatedVectorEngine())
    busy = asyncio.create_task(stack.service.embed(["something else"]))
    await stack.entered()
    gone = asyncio.create_task(stack.service.embed(["la factura"]))
    await turns()
    gone.cancel()
    await turns()
    late = asyncio.create_task(stack.service.embed(["la factura"]))
    await turns()
    stack.engine.gate.set()
    await busy

    np.testing.assert_allclose((await late).vectors[0], expected("la factura"), rtol=1e-6)
    assert 0 == stack.in_flight


async def test_a_shared_item_does_not_share_its_deadline(build, clock):
    """A shared item is late only for the caller whose deadline has passed."""
    stack = build(GatedVectorEngine())
    busy = asyncio.create_task(stack.service.embed(["something else"]))
    await stack.entered()
    hasty = asyncio.create_task(stack.service.embed(["la factura"], urgency=Urgency(deadline_s=clock() + 1.0)))
    await turns()
    patient = asyncio.create_task(stack.service.embed(["la factura"]))
    await turns()
    clock.advance(2.0)
    stack.batcher.expire()
    await turns()
    stack.engine.gate.set()
    await busy
    outcomes = await asyncio.gather(hasty, patient, return_exceptions=True)

    assert isinstance(outcomes[0], DeadlineExceeded)
    assert not isinstance(outcomes[1], BaseException), outcomes[1]
    assert 0 == stack.in_flight


async def test_an_interactive_caller_promotes_a_bulk_item(build):
    """Joining a queued bulk item raises it to the caller's priority."""
    stack = build(GatedVectorEngine(budget=8))
    busy = asyncio.create_task(stack.service.embed(["something else"]))
    await stack.entered()
    bulk = asyncio.create_task(
        stack.service.embed(["one two three", "shared text here"], urgency=Urgency(Priority.BULK))
    )
    await turns()
    urgent = asyncio.create_task(stack.service.embed(["shared text here"], urgency=Urgency()))
    await turns()
    stack.engine.gate.set()
    await asyncio.gather(busy, bulk, urgent)

    assert [ids_of("shared text here"), ids_of("one two three")] == stack.computed[1:]


# Errors


async def test_a_failing_text_fails_its_own_request_only(build):
    """Other requests of the batch succeed; nothing stays in flight; the failure is not cached."""
    poison = ids_of("poison")[1]
    stack = build(FailingVectorEngine(poison=poison))
    good, bad = await asyncio.gather(
        stack.service.embed(["la factura", "the total"]), stack.service.embed(["poison"]), return_exceptions=True
    )

    assert isinstance(bad, InferenceFailed)
    np.testing.assert_allclose(good.vectors[0], expected("la factura"), rtol=1e-6)
    assert 0 == stack.in_flight
    stack.engine.poison = -1
    assert 0 == (await stack.service.embed(["poison"])).cache_hits


async def test_overloaded_leaves_nothing_in_flight(build):
    """All inputs are admitted or none: a refused request leaves the items that it had joined."""
    stack = build(GatedVectorEngine(), queue_tokens=10)
    busy = asyncio.create_task(stack.service.embed(["one"]))
    await stack.entered()
    waiting = asyncio.create_task(stack.service.embed(["la factura"]))
    await turns()
    with pytest.raises(Overloaded):
        await stack.service.embed(["la factura", "another text of some length"])

    assert 2 == stack.in_flight
    waiting.cancel()
    await turns()
    assert 1 == stack.in_flight  # the item that the refused request had joined has no other waiter
    stack.engine.gate.set()
    await busy
    assert ([ids_of("one")], 0) == (stack.computed, stack.in_flight)


async def test_any_mix_of_outcomes_leaves_nothing(build):
    """Two hundred requests for thirty texts that succeed, fail or are cancelled: no item and no token is left."""
    random = np.random.default_rng(2)
    stack = build(FailingVectorEngine(poison=ids_of("poison")[1]), lanes=2)
    words = [f"text {number}" for number in range(29)] + ["poison"]
    callers = []
    for turn in range(200):
        inputs = [words[index] for index in random.integers(0, 30, 3)]
        callers.append(asyncio.create_task(stack.service.embed(inputs)))
        if turn % 3 == 0:
            await turns(2)
            callers[random.integers(0, len(callers))].cancel()
    outcomes = await asyncio.gather(*callers, return_exceptions=True)
    await turns()

    kinds = {type(outcome).__name__ for outcome in outcomes}
    assert {"EmbeddingResult", "InferenceFailed", "CancelledError"} == kinds
    status = stack.batcher.status()
    assert (0, 0, 0) == (stack.in_flight, status.queued_jobs, status.queued_tokens)


# Metrics and timing


async def test_counts(build):
    """Inputs, tokens and truncations are counted for hits and misses alike, repeats included."""
    stack = build(VectorEngine())
    texts = ["la factura", "la factura", "de la " * 300]
    for _ in range(2):
        await stack.service.embed(texts)

    tokens = 2 * (2 * len(ids_of("la factura")) + 256)
    assert (6, tokens, 2) == (
        stack.metric("inputs_total", task="embeddings"),
        stack.metric("tokens_total", task="embeddings"),
        stack.metric("truncated_total"),
    )
    computed = len(ids_of("la factura")) + 256
    assert float(computed) == stack.metric("engine_tokens_total", engine="echo")


async def test_timing(build, clock):
    """Each stage has its seconds; a hit has only the cache's."""
    stack = build(VectorEngine())

    miss = (await stack.service.embed(TEXTS)).timing
    hit = (await stack.service.embed(TEXTS)).timing

    assert miss.tokenize_s > 0
    assert (0.0, 0.0) == (miss.queue_s, miss.inference_s)  # the clock of the lanes stands still
    assert (0.0, 0.0, 0.0) == (hit.tokenize_s, hit.queue_s, hit.inference_s)
    assert all(math.isfinite(stage) and stage >= 0 for stage in (miss.cache_s, hit.cache_s))


# Similarity and tokens


async def test_similarity_is_the_cosine(build):
    """In the order of the sentences, whatever normalisation is requested."""
    stack = build(VectorEngine())

    scores, embedded = await stack.service.similarity(
        "la factura", ["the total", "la factura"], EmbedOptions(normalize=False)
    )

    assert scores == pytest.approx([float(expected("la factura") @ expected("the total")), 1.0], abs=1e-5)
    assert 3 == len(embedded.tokens)


async def test_token_vectors_are_the_encoders_own(build, tiny):
    """Every token has its state in the order of the text, special tokens too; their mean is the text's vector."""
    model = embedding_model(tiny.folder("bert", "mean"))
    stack, texts = build(model, clock=time.monotonic), ["la factura de marzo", "the total", "the total"]

    result = await stack.service.token_vectors(texts, EmbedOptions())

    embedded = await stack.service.embed(texts, EmbedOptions(normalize=False))
    assert embedded.tokens == list(result.tokens) == [len(rows) for rows in result.rows]
    means = [rows.mean(axis=0) for rows in result.rows]
    np.testing.assert_allclose(means, embedded.vectors, rtol=1e-4, atol=1e-5)
    assert len(np.unique(result.rows[0], axis=0)) == len(result.rows[0])
    assert [False] * 3 == list(result.truncated)


async def test_token_vectors_stop_at_their_limit(build, tiny, monkeypatch):
    """What would be an answer of gigabytes is refused, also where equal inputs are read once."""
    monkeypatch.setattr(embeddings, "MAX_TOKEN_VECTORS", 40)
    stack = build(embedding_model(tiny.folder("bert", "mean")), clock=time.monotonic)

    for texts in (["de la " * 30], ["la factura"] * 20):
        with pytest.raises(TooLarge, match="limit of 40"):
            await stack.service.token_vectors(texts, EmbedOptions())
    assert 0 == stack.in_flight


async def test_tokenize_is_the_tokenizers_own(build):
    """With and without special tokens and a prompt."""
    stack = build(VectorEngine(), spec={"prompts": PROMPTS})

    async def tokens_of(**options: Any) -> list[TokenPiece]:
        [text] = await stack.service.tokenize(["la factura"], **options)
        return [piece for pieces in text.pieces(2) for piece in pieces]

    pieces = await tokens_of()
    bare = await tokens_of(add_special_tokens=False)
    prompted = await tokens_of(prompt_name="query")

    assert list(ids_of("la factura")) == [piece.id for piece in pieces]
    assert pieces[1:-1] == bare
    assert list(ids_of("query: la factura")) == [piece.id for piece in prompted]
    assert [(None, None)] * 3 == [(piece.start, piece.stop) for piece in prompted[:3]]
    assert [(piece.text, piece.start, piece.stop) for piece in bare] == [
        (piece.text, piece.start, piece.stop) for piece in prompted[3:-1]
    ]


async def test_a_default_prompt_does_not_shift_offsets(build):
    """The caller did not even name it."""
    stack = build(VectorEngine(), spec={"prompts": PROMPTS, "default_prompt": "query"})

    [found] = await stack.service.tokenize(["la factura"], add_special_tokens=False)
    pieces = [piece for part in found.pieces(2) for piece in part]

    assert ("la", 0, 2) == (pieces[2].text, pieces[2].start, pieces[2].stop)


async def test_many_different_options_do_not_pile_up(build):
    """The number of pipelines kept is bounded."""
    stack = build(VectorEngine())
    for dimensions in range(1, 385):
        for normalize in (True, False):
            await stack.service.embed(["a"], EmbedOptions(dimensions=dimensions, normalize=normalize))

    assert len(stack.service._pipelines) <= 512


# Untruncated texts

LONG = "la factura de marzo, número 12; " * 120  # some 1,200 tokens: more than four windows
LONGER = "the total is due. " * 5_000  # 25,000 tokens: more windows than one chunk


def expected_of_windows(text: str) -> np.ndarray:
    """The normalised mean of the windows' vectors, weighted by the tokens that each window owns."""
    windows = tokenizer_of("minilm").windows(text, 0).windows
    weights = [window.own_stop - window.own_start for window in windows]
    mean = np.average([vector_of(window.ids) for window in windows], axis=0, weights=weights)
    return mean / np.linalg.norm(mean)


async def test_a_text_that_fits_has_the_vector_of_embed(build):
    """Bit for bit, and from the same cache entry."""
    stack = build(VectorEngine())
    plain = await stack.service.embed(TEXTS)
    stack.engine.batches.clear()

    untruncated = await stack.service.embed_untruncated(TEXTS)

    assert plain.vectors.tobytes() == untruncated.vectors.tobytes()
    assert tuple(plain.tokens) == untruncated.tokens
    assert [] == stack.engine.batches


@pytest.mark.parametrize("text", [LONG, LONGER, "de " * 300], ids=["windows", "many-windows", "short-in-characters"])
async def test_a_long_text_is_the_mean_of_its_windows(build, text):
    """A text that turns out too long when it is embedded is cut into windows then."""
    stack = build(VectorEngine(budget=4096))

    untruncated = await stack.service.embed_untruncated([text])

    windows = tokenizer_of("minilm").windows(text, 0)
    np.testing.assert_allclose(untruncated.vectors[0], expected_of_windows(text), atol=1e-6)
    assert (windows.tokens,) == untruncated.tokens
    assert len(windows.windows) > (64 if text is LONGER else 1)


async def test_untruncated_texts_keep_their_order_and_equal_ones_run_once(build):
    """Long, short, empty, repeated: each has the vector that it has alone. Whoever asks counts them."""
    stack = build(VectorEngine(budget=4096))
    texts = [LONG, "la factura", "", LONG, "de " * 300, "la factura", LONG + "x"]

    together = await stack.service.embed_untruncated(texts)
    ran = len(stack.computed)
    alone = [(await stack.service.embed_untruncated([text])) for text in texts]

    np.testing.assert_array_equal(together.vectors, np.concatenate([single.vectors for single in alone]))
    assert together.tokens == tuple(single.tokens[0] for single in alone)
    assert ran == len(stack.computed)  # everything was in the cache
    assert (0.0, 0.0) == (stack.metric("inputs_total", task="embeddings"), stack.metric("truncated_total"))


async def test_windows_of_many_texts_run_together(build):
    """Thirty texts of two windows are batched, not run one after the other."""
    stack = build(GatedVectorEngine(budget=100_000))
    task = asyncio.create_task(stack.service.embed_untruncated([f"{number} " + "de " * 600 for number in range(30)]))
    await stack.entered()
    stack.engine.gate.set()

    await task

    assert len(stack.engine.batches) <= 4


async def test_one_model_embeds_a_whole_request(build):
    """A swap meanwhile affects the next request: vectors of two models never mix."""
    stack = build(GatedVectorEngine(budget=300))
    old = stack.catalog.embedding()
    task = asyncio.create_task(stack.service.embed_untruncated(["la factura", LONG, "de " * 300]))
    await stack.entered()
    stack.catalog.replace(loaded_model(VectorEngine(), sha256="another"))
    stack.engine.gate.set()

    untruncated = await task

    assert untruncated.model is old
    np.testing.assert_allclose(untruncated.vectors[1], expected_of_windows(LONG), atol=1e-6)
    assert (await stack.service.embed_untruncated(["la"])).model is not old


async def test_tokenize_stops_at_its_limit(build):
    """Of one long text and of many short ones, before the rest is read."""
    stack = build(VectorEngine())
    for texts in (["a " * 200_000], ["la factura de marzo"] * 2_048):
        with pytest.raises(TooLarge, match=r"tokens of the answer: \d+ is over the limit of 5000 \(LIMIT_TOKENIZE_"):
            await stack.service.tokenize(texts, max_tokens=5_000)


async def test_tokenize_reads_long_texts_and_short_ones_alike(build):
    """Read in slices, in company or alone: the tokens of each text are the tokenizer's own."""
    stack = build(VectorEngine())
    texts = ["la factura", "", "de [MASK] marzo. " * 10_000, "dos", *["tres cuatro"] * 900]

    found = await stack.service.tokenize(texts)

    tokenizer = tokenizer_of("minilm")
    assert tokenizer.pieces(texts) == [[piece for part in text.pieces(500) for piece in part] for text in found]


async def test_a_text_longer_than_the_model_has_its_prompt_once(build):
    """The windows are those of prompt and text; a short text's vector is ``embed``'s."""
    stack = build(VectorEngine(budget=4096), spec={"prompts": PROMPTS})
    long = "de " * 700

    prompted = await stack.service.embed_untruncated(["la", long], prompts=("query",))

    written_out = await stack.service.embed_untruncated(["query: la", "query: " + long])
    embedded = await stack.service.embed(["la"], EmbedOptions(prompt_name="query"))
    np.testing.assert_array_equal(written_out.vectors, prompted.vectors)
    np.testing.assert_array_equal(embedded.vectors[0], prompted.vectors[0])
