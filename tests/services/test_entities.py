"""Entities over real lanes: transformers' own answers, places in the caller's text, and long texts in windows."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import FrozenInstanceError, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from backend.batching.batcher import Batcher
from backend.batching.policy import QueueLimits
from backend.batching.work_item import Priority
from backend.cache.keys import CacheNamespace
from backend.cache.memory_tier import MemoryCache
from backend.cache.store import NullCache, VectorCache
from backend.cache.tiered import TieredCache
from backend.documents.entities import MODEL, PATTERN
from backend.documents.entity_merge import merge
from backend.documents.patterns import PATTERN_TYPES, find_patterns
from backend.engines.encoder_engine import EncoderEngine
from backend.engines.ner import TASK, TokenLabelsHead
from backend.errors import DeadlineExceeded, InferenceFailed, InvalidField, NotFound, TooLarge, UnknownModel
from backend.models.encoder_source import PinnedEncoder
from backend.models.spec import TokenTypes
from backend.models.spelling import word_spellings
from backend.models.token_head import read_token_head
from backend.models.tokenizer import TextTokenizer
from backend.models.words import word_places
from backend.services.entities import EntityService, FoundIn, NoEntityModel
from backend.services.inference import Inference
from backend.telemetry import Telemetry
from tests.fakes import PATIENCE_S, EchoEngine, FailingEngine, GatedEngine, ManualClock
from tests.services.loaded import Watched
from tests.tiny_models import encoder_of, spec_of, tokenizer_of
from tests.tiny_taggers import FAMILIES, LABELS, TinyTaggers, reference_entities

# Words that each family's tiny tokenizer cuts as its kind does: whole, or a first piece and others.
SPACED = "the invoices total de la facturas zürich is due querying euros la de totals isdue invoice la"
BYTES = "invoice is in il importe inn id is importes ii isla is it ille il in importe"
PUNCTUATED = "Invoices, total: (de) la facturas; ¿zürich? is due. Euros «la» de total 1250!"
ODD = "👩‍👧 the e\u0301 invoice, 👍🏽 zu\u0308rich — Ñandú\u200b de\u00a0la 한국 [SEP] total\n\u202edue\u202c."


@dataclass(frozen=True)
class Served:
    """What a catalog would hold."""

    tokenizer: TextTokenizer
    engine: Any
    labels: tuple[str, ...] = LABELS
    name: str = "tiny/ner"
    names: tuple[str, ...] = ("tiny/ner", "ner")

    def namespace(self, *parameters: str) -> CacheNamespace:
        return CacheNamespace(self.name, *parameters)


@dataclass
class House:
    """The service, and what is below it."""

    served: Served | None
    batcher: Batcher
    telemetry: Telemetry
    service: EntityService | None = None
    inference: Inference | None = None

    def ner(self) -> Served | None:
        return self.served

    def metric(self, name: str) -> float:
        return self.telemetry.registry.get_sample_value(f"financia_{name}", {"task": "ner"}) or 0.0

    async def find(self, texts: Sequence[str], **asked: Any) -> Sequence[FoundIn]:
        assert self.service is not None
        return (await self.service.find(texts, **{"sources": ("model",), **asked})).rows


Build = Callable[..., House]


@pytest.fixture
async def build() -> AsyncIterator[Build]:
    """``build(served)``: the service on two lanes."""
    houses: list[House] = []

    def make(
        served: Served | None, *, queue_tokens: int = 200_000, clock: Any = None, cache: VectorCache | None = None
    ) -> House:
        telemetry = Telemetry()
        batcher = Batcher(2, QueueLimits(queue_tokens), telemetry, **({"clock": clock} if clock else {}))
        batcher.start(asyncio.get_running_loop())
        house = House(served, batcher, telemetry)
        house.inference = Inference(batcher, cache or NullCache(), telemetry)
        house.service = EntityService(house, house.inference, telemetry)
        houses.append(house)
        return house

    yield make
    for house in houses:
        if house.served is not None and hasattr(house.served.engine, "gate"):
            house.served.engine.gate.set()
        await house.batcher.drain(0.0)
        assert house.inference is not None
        house.inference.close()


def served(folder: Path, runtime: str = "onnx", labels: tuple[str, ...] = LABELS) -> Served:
    engine = EncoderEngine(
        TASK,
        PinnedEncoder(encoder_of(folder, runtime, "fp32")),
        TokenLabelsHead(read_token_head(spec_of(folder))),
        budget=512,
    )
    return Served(tokenizer_of(folder), engine, labels)


def plain(row: FoundIn) -> list[tuple[str, int, int, float]]:
    return [(one.type, one.start, one.end, pytest.approx(one.score, abs=1e-4)) for one in row.entities]


# Against transformers


@pytest.mark.parametrize("runtime", ["onnx", "openvino", "torch"])
@pytest.mark.parametrize("family", FAMILIES)
async def test_entities_are_those_of_transformers(taggers: TinyTaggers, build: Build, family, runtime):
    """Its pipeline with aggregation_strategy="first": types, places and scores, for every family."""
    folder = taggers.folder(family)
    texts = [BYTES, "is il"] if family == "roberta" else [SPACED, "la facturas"]
    if family in ("bert", "distilbert", "mpnet"):  # whose tokenizers know words: punctuation too
        texts.append(PUNCTUATED)

    rows = await build(served(folder, runtime)).find(texts)

    expected = [reference_entities(folder, text) for text in texts]
    assert len(expected[0]) > 1, "a text without entities would prove nothing"
    assert expected == [plain(row) for row in rows]


@pytest.mark.parametrize("labels", [("O", "LOC", "MISC", "ORG", "PER", "DATE", "MONEY")])
async def test_plain_types_are_those_of_transformers(taggers: TinyTaggers, build: Build, labels):
    """Labels without prefixes (IO)."""
    folder = taggers.folder("bert", labels)

    [row] = await build(served(folder, labels=labels)).find([PUNCTUATED])

    assert reference_entities(folder, PUNCTUATED) == plain(row)


# Places


@pytest.mark.parametrize("family", FAMILIES)
async def test_places_are_code_points_of_the_callers_text(taggers: TinyTaggers, build: Build, family):
    """Emoji, combining and invisible characters count as Python counts them; an entity begins and ends on a word."""
    house = build(served(taggers.folder(family)))

    [row, shifted] = await house.find([ODD, ODD + " la"])

    assert row.entities
    for found, text in ((row, ODD), (shifted, ODD + " la")):
        assert [text[one.start : one.end] for one in found.entities] == [one.text for one in found.entities]
        assert all(one.text == one.text.strip() != "" for one in found.entities)
        ends = [place for one in found.entities for place in (one.start, one.end)]
        assert sorted(ends) == ends


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_batch_equals_its_singles(taggers: TinyTaggers, build: Build, family):
    """Order is kept, equal texts are read once, and no text changes another's entities."""
    house = build(served(taggers.folder(family)))
    texts = [SPACED, "", ODD, BYTES, SPACED, PUNCTUATED * 30, "la"]

    together = await house.find(texts)
    alone = [(await house.find([text]))[0] for text in texts]

    assert [plain(row) for row in together] == [plain(row) for row in alone]
    assert [row.tokens for row in together] == [row.tokens for row in alone]
    assert together[0] is together[4]


@pytest.mark.parametrize("text", ["", " \n\t ", "\u200b"])
async def test_nothing_in_a_text_is_no_entity(taggers: TinyTaggers, build: Build, text):
    """An empty page among others is no fault."""
    [row, other] = await build(served(taggers.folder("distilbert"))).find([text, SPACED])

    assert () == row.entities
    assert other.entities


# Long texts


@pytest.mark.parametrize("family", FAMILIES)
async def test_windows_change_nothing_where_neighbours_and_places_do_not_count(
    taggers: TinyTaggers, build: Build, family
):
    """A model that labels each token by itself gives a text in windows the entities of the text in one piece."""
    text = PUNCTUATED[:60]
    narrow, wide = (build(served(taggers.folder(family, blind=True, max_tokens=max_tokens))) for max_tokens in (12, 64))

    [windowed], [whole] = await narrow.find([text]), await wide.find([text])

    assert whole.entities
    assert plain(whole) == plain(windowed)
    assert windowed.tokens > whole.tokens


class NeighbourEngine(EchoEngine):
    """Labels a token by itself and three neighbours on either side; special tokens are neighbours too."""

    reach = 3

    def finish(self, output: Any) -> Sequence[Any]:
        """(tokens, labels) a payload."""
        return [np.stack([self._row(ids, place) for place in range(len(ids))]) for ids in super().finish(output)]

    def _row(self, ids: np.ndarray, place: int) -> np.ndarray:
        around = ids[max(0, place - self.reach) : place + self.reach + 1]
        scores = np.random.default_rng([int(number) for number in around]).random(len(LABELS)) ** 4
        return (scores / scores.sum()).astype(np.float32)


@pytest.mark.parametrize("words", [40, 300, 2_000])
async def test_windows_equal_the_whole_text_wherever_the_context_is_as_deep(build: Build, words):
    """Each token is answered for by a window that holds its neighbours: no entity is cut, doubled or lost."""
    bundled = spec_of("bundled").folder / "tokenizer.json"
    text = " ".join(f"{word}, el señor O'Brien {word} de Zürich 👍." for word in range(words // 8))
    narrow, wide = (
        build(Served(TextTokenizer(bundled, max_tokens=size, vocabulary_size=30522), NeighbourEngine(budget=4096)))
        for size in (32, 100_000)
    )

    [windowed], [whole] = await narrow.find([text]), await wide.find([text])

    assert len(narrow.served.engine.batches) > 0
    assert max(len(ids) for batch in narrow.served.engine.batches for ids in batch) <= 32
    assert len(whole.entities) > words // 4
    assert whole.entities == windowed.entities
    assert whole.coverage == windowed.coverage


class PieceEngine(EchoEngine):
    """Labels a piece by its spelling: B-PER for those of ``people``, O for all others."""

    people = ("o", "jean", "s")

    def finish(self, output: Any) -> Sequence[Any]:
        """(tokens, labels) a payload."""
        vocabulary = Tokenizer.from_file(str(spec_of("bundled").folder / "tokenizer.json"))
        rows = np.eye(len(LABELS), dtype=np.float32)
        person, outside = rows[LABELS.index("B-PER")], rows[0]
        return [
            np.stack([person if vocabulary.id_to_token(int(one)) in self.people else outside for one in ids])
            for ids in super().finish(output)
        ]


async def test_a_words_first_piece_decides_for_all_of_it(build: Build):
    """Also where the tokenizer cuts at a joiner that annotated data does not cut at; punctuation stays outside."""
    text = "Sr. O'Brien, (Jean-Claude) y S.L.: hermanos-o 'o'"

    [row] = await build(Served(tokenizer_of("bundled"), PieceEngine(budget=512))).find([text])

    assert ["O'Brien", "Jean-Claude", "S.L.", "o"] == [one.text for one in row.entities]
    assert [text.index(one.text) for one in row.entities[:3]] == [one.start for one in row.entities[:3]]
    assert {1.0} == {one.score for one in row.entities}


async def test_the_tail_of_a_long_text_is_read(taggers: TinyTaggers, build: Build):
    """Nothing is cut silently, and all of it counts."""
    text = "la " * 4_000 + SPACED
    [row] = await build(served(taggers.folder("bert"))).find([text])

    assert max(one.end for one in row.entities) > 12_000
    assert 1.0 == row.coverage
    assert row.tokens > 4_000


async def test_coverage_tells_what_the_vocabulary_lacks(taggers: TinyTaggers, build: Build):
    """Ideographs are unknown tokens to a Latin vocabulary."""
    [row] = await build(served(taggers.folder("bert"))).find(["la 的 de"])

    assert row.coverage == pytest.approx(4 / 5)


# What a request may ask


async def test_types_and_scores_filter(taggers: TinyTaggers, build: Build):
    """Only wanted kinds, only sure ones; the rest of the answer stays."""
    house = build(served(taggers.folder("bert")))
    [everything] = await house.find([PUNCTUATED])
    least = sorted(one.score for one in everything.entities)[1]

    [people] = await house.find([PUNCTUATED], types=["PER"])
    [sure] = await house.find([PUNCTUATED], min_score=least)
    [none] = await house.find([PUNCTUATED], min_score=1.0, types={"LOC", "ORG", "PER"})

    assert [one for one in everything.entities if one.type == "PER"] == list(people.entities)
    assert [one for one in everything.entities if one.score >= least] == list(sure.entities)
    assert len(sure.entities) == len(everything.entities) - 1
    assert ((), everything.tokens) == (none.entities, none.tokens)


async def test_a_type_the_model_does_not_know_is_refused(taggers: TinyTaggers, build: Build):
    """A misspelt wish never becomes an empty answer."""
    known = r"types: 'PERSON' is not one of the entity types here \(BIC, .*LOC, .*ORG, PER"
    with pytest.raises(InvalidField, match=known):
        await build(served(taggers.folder("bert"))).find(["la"], types=["PER", "PERSON"])


async def test_a_model_is_asked_for_by_its_names(taggers: TinyTaggers, build: Build):
    """Any of them or none; another is an error that lists them."""
    house = build(served(taggers.folder("bert")))

    assert await house.find(["la"], model="ner") == await house.find(["la"])
    with pytest.raises(UnknownModel, match="'other' is not loaded here; loaded are tiny/ner, ner"):
        await house.find(["la"], model="other")


@pytest.mark.parametrize("name", [None, "ner"])
async def test_without_a_model_the_way_to_one_is_told(build: Build, name):
    """A 404 that names the setting."""
    with pytest.raises(NoEntityModel, match="set NER_MODEL to a folder or a hub id") as caught:
        await build(None).find(["la"], model=name)

    assert (404, "model_not_found", "model") == (caught.value.status, caught.value.code, caught.value.param)
    assert isinstance(caught.value, NotFound)


async def test_the_answer_tells_model_tokens_and_time(taggers: TinyTaggers, build: Build):
    """And the metrics count what was read."""
    house = build(served(taggers.folder("bert")))
    assert house.service is not None

    found = await house.service.find(["la factura", "de", "la factura"])

    assert "tiny/ner" == found.model
    assert [4 + 0, 3, 4 + 0] == [row.tokens for row in found.rows]
    assert found.tokens == 11
    assert (3.0, 11.0) == (house.metric("inputs_total"), house.metric("tokens_total"))
    assert found.timing.inference_s > 0.0
    with pytest.raises(FrozenInstanceError):
        found.model = "another"  # type: ignore[misc]


# Faults


def failing(engine: EchoEngine) -> Served:
    return Served(tokenizer_of("bundled"), engine)


async def test_a_failing_window_fails_its_request(build: Build):
    """With the engine's own error, and no job is left behind."""
    house = build(failing(FailingEngine(error=RuntimeError("broken on purpose"))))

    with pytest.raises(InferenceFailed):
        await house.find(["la", "de la " * 400])
    await asyncio.wait_for(house.batcher._wait_ended(), PATIENCE_S)  # what was on a lane ends there

    assert not house.batcher._open


async def test_a_request_over_the_queues_limit_is_refused_whole(build: Build):
    """Before any of its windows reaches a lane."""
    house = build(failing(EchoEngine()), queue_tokens=100)

    with pytest.raises(TooLarge, match="LIMIT_QUEUE_TOKENS"):
        await house.find(["de la " * 400])

    assert [] == house.served.engine.batches


async def test_a_deadline_ends_the_wait(build: Build):
    """Also behind a lane that hangs."""
    clock = ManualClock()
    house = build(failing(GatedEngine()), clock=clock)
    task = asyncio.create_task(house.find(["la"], deadline_s=clock() + 5, priority=Priority.BULK))
    await asyncio.to_thread(house.served.engine.entered.wait, 10.0)

    clock.advance(6)
    house.batcher.expire()

    with pytest.raises(DeadlineExceeded):
        await task


async def test_a_caller_that_leaves_gives_its_jobs_up(build: Build):
    """What still waits never reaches the device."""
    house = build(failing(GatedEngine(budget=8)))
    task = asyncio.create_task(house.find(["la", "de la " * 400]))
    await asyncio.to_thread(house.served.engine.entered.wait, 10.0)
    jobs = list(house.batcher._open)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert not any(job.waiters for job in jobs)


# Model and patterns


INVOICE = (
    "Factura n.º 2024-017 de Aceros del Norte S.A., CIF A58818501, a Juan Pérez: 1.284,50 € el 3 de marzo de 2024, "
    "IBAN ES9121000418450200051332, ana@example.com. the la de zürich total. 12/13/2024"
)
BOTH = (MODEL, PATTERN)


def kept() -> VectorCache:
    return TieredCache(MemoryCache(2**24), None, Telemetry())


async def test_both_sources_are_merged_into_one_list(taggers: TinyTaggers, build: Build):
    """As documents.merge has it: in order, without overlaps, and what gave way is told with its reason."""
    house = build(served(taggers.folder("bert")), cache=kept())  # the same scores each time
    [by_model] = await house.find([INVOICE])

    [row] = await house.find([INVOICE], sources=BOTH)

    merged = merge([*by_model.entities, *find_patterns(INVOICE)])
    assert (tuple(merged.kept), tuple(merged.lost)) == (row.entities, row.lost)
    assert {MODEL, PATTERN} == {one.source for one in row.entities}
    assert all(one.end <= other.start for one, other in pairwise(row.entities))
    assert row.lost
    assert all(one.why and one.to in row.entities for one in row.lost)
    assert () == by_model.lost


async def test_sources_pick_who_is_asked(taggers: TinyTaggers, build: Build):
    """Patterns alone leave the model and its tokens out; unset means both."""
    house = build(served(taggers.folder("bert")), cache=kept())  # the same scores each time
    assert house.service is not None

    patterns = await house.service.find([INVOICE], sources=[PATTERN])
    model = await house.service.find([INVOICE], sources=[MODEL])
    both, unset = await house.service.find([INVOICE], sources=BOTH), await house.service.find([INVOICE])

    assert tuple(find_patterns(INVOICE)) == patterns.rows[0].entities
    assert ("patterns", 0, 1.0) == (patterns.model, patterns.tokens, patterns.rows[0].coverage)
    assert {MODEL} == {one.source for one in model.rows[0].entities}
    assert both.rows == unset.rows
    assert (model.tokens, "tiny/ner") == (both.tokens, both.model)


@pytest.mark.parametrize("sources", [None, (PATTERN,)])
async def test_patterns_need_no_model(build: Build, sources):
    """Where none is loaded they answer alone; names of types are then theirs."""
    house = build(None)

    [row] = await house.find([INVOICE], sources=sources)

    assert {"CIF", "MONEY", "DATE", "IBAN", "EMAIL"} <= {one.type for one in row.entities}
    with pytest.raises(InvalidField, match="'PER' is not one of the entity types here"):
        await house.find([INVOICE], sources=sources, types=["PER"])


@pytest.mark.parametrize("sources", [(MODEL,), BOTH])
async def test_a_model_that_is_asked_for_must_be_there(build: Build, sources):
    """An explicit wish is never ignored."""
    with pytest.raises(NoEntityModel, match="or ask for sources: \\['pattern'\\]"):
        await build(None).find([INVOICE], sources=sources)


@pytest.mark.parametrize(
    ("sources", "types"),
    [
        *[((PATTERN,), types) for types in (["MONEY"], ["DATE", "CIF"], [], PATTERN_TYPES)],
        *[(sources, ["PER", "ORG"]) for sources in ((MODEL,), BOTH)],
        *[(BOTH, types) for types in (["MONEY"], ["LOC", "DATE", "CIF"], [], PATTERN_TYPES)],
    ],
)
async def test_fewer_types_never_show_more(taggers: TinyTaggers, build: Build, sources, types):
    """Asking for some is asking for all and looking at some: what lost to another stays lost."""
    house = build(served(taggers.folder("bert")), cache=kept())  # the same scores each time
    [everything] = await house.find([INVOICE], sources=sources)

    [some] = await house.find([INVOICE], sources=sources, types=types)

    assert tuple(one for one in everything.entities if one.type in types) == some.entities
    assert set(some.lost) <= set(everything.lost)


@pytest.mark.parametrize("least", [0.0, 0.3, 0.6, 0.95, 1.0])
async def test_a_score_that_is_too_low_takes_nobodys_place(taggers: TinyTaggers, build: Build, least):
    """As if it had not been found."""
    house = build(served(taggers.folder("bert")), cache=kept())  # the same scores each time
    [by_model] = await house.find([INVOICE])

    [row] = await house.find([INVOICE], sources=BOTH, min_score=least)

    sure = [one for one in (*by_model.entities, *find_patterns(INVOICE)) if one.score >= least]
    assert merge(sure).kept == list(row.entities)
    assert all(one.score >= least for one in row.entities)


@pytest.mark.parametrize(("characters", "inline"), [(100, True), (3_000, False)])
async def test_patterns_are_searched_off_the_loop(build: Build, monkeypatch, characters, inline):
    """A page takes them some milliseconds."""
    threads = list[bool]()

    def spied(text: str) -> list[Any]:
        threads.append(threading.current_thread() is threading.main_thread())
        return find_patterns(text)

    monkeypatch.setattr("backend.services.entities.find_patterns", spied)
    await build(None).find(["1.284,50 € " * (characters // 11)], sources=None)

    assert [inline] == threads


# Cache


async def test_a_second_look_reaches_no_lane(taggers: TinyTaggers, build: Build):
    """Hits equal misses, long texts' windows too; a new text among them is all that runs."""
    engine = Watched(served(taggers.folder("bert")).engine)
    model = replace(served(taggers.folder("bert")), engine=engine)
    house = build(model, cache=kept())
    texts = [INVOICE, "la " * 400, "", SPACED]

    miss = await house.find(texts, sources=BOTH)
    ran = engine.jobs
    hit = await house.find(texts, sources=BOTH)
    assert ran == engine.jobs
    assert ran > 4
    mixed = await house.find(["la factura nueva", *texts], sources=BOTH, types=["PER"], min_score=0.5)

    assert miss == hit
    assert ran + 1 == engine.jobs
    assert [row.tokens for row in miss] == [row.tokens for row in mixed[1:]]


async def test_windows_shared_by_texts_run_once(taggers: TinyTaggers, build: Build):
    """Without a cache too: two copies of a page that differ in its last words have most windows in common."""
    engine = Watched(served(taggers.folder("bert", blind=True)).engine)
    house = build(replace(served(taggers.folder("bert")), engine=engine))

    rows = await house.find(["la " * 600, "la " * 600 + " "])

    assert rows[0].entities == rows[1].entities
    assert engine.jobs < sum(row.tokens for row in rows) / 64 / 2 + 1


# Models that look at how a word is written


class SpelledEngine(EchoEngine):
    """Labels a token by its type alone: B-PER where the word was written with a capital."""

    def finish(self, output: Any) -> Sequence[Any]:
        """(tokens, labels) a payload of ids over types."""
        rows = np.eye(len(LABELS), dtype=np.float32)
        plain = word_spellings("de", word_places("de"))[0]
        return [
            np.stack([rows[LABELS.index("B-PER") if kind not in (0, plain) else 0] for kind in types])
            for _, types in super().finish(output)
        ]


async def test_the_spelling_of_words_reaches_the_model_and_the_key(build: Build):
    """Ids of an uncased vocabulary are equal for "Factura" and "factura"; what the model and the cache see is not."""
    bundled = spec_of("bundled")
    tokenizer = TextTokenizer(
        bundled.folder / "tokenizer.json",
        max_tokens=32,
        vocabulary_size=bundled.shape.vocabulary_size,
        token_types=TokenTypes.SPELLING,
    )
    engine = SpelledEngine(budget=512)
    house = build(Served(tokenizer, engine), cache=kept())

    rows = await house.find(["la factura de marta", "la factura de Marta", "la factura " * 40 + "de Marta"])

    assert [[], ["Marta"], ["Marta"]] == [[one.text for one in row.entities] for row in rows]
    payloads = [payload for batch in engine.batches for payload in batch]
    assert {(2, True)} == {(payload.ndim, len(payload) == 2) for payload in payloads}
    np.testing.assert_array_equal(payloads[0][0], payloads[1][0])
