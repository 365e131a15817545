"""Entities over real lanes: equal to transformers', offsets in the caller's text, long texts in windows."""

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

from backend.errors import InvalidField, NotFound, TooLarge, UnknownModel
from backend.lanes.batcher import Batcher
from backend.lanes.cache.store import CacheNamespace, MemoryTier, NullCache, TieredCache, VectorCache
from backend.lanes.engine import EncoderEngine, PinnedEncoder
from backend.lanes.inference import Inference
from backend.lanes.work_queue import QueueLimits
from backend.models.spec import TokenTypes
from backend.models.token_head import read_token_head
from backend.models.tokenizer import TextTokenizer, TokenArrays
from backend.models.words import word_places, word_spellings
from backend.serving.engines.heads import NER, TokenLabelsHead
from backend.telemetry import Telemetry
from backend.text.entities import EntityService, NoEntityModel, TextEntities
from backend.text.entity_merge import MODEL, PATTERN, merge
from backend.text.patterns import PATTERN_TYPES, find_patterns
from tests.fakes import EchoEngine
from tests.serving.loaded_models import RecordingEngine
from tests.tiny_models import encoder_of, spec_of, tokenizer_of
from tests.tiny_taggers import FAMILIES, LABELS, TinyTaggers, reference_entities

# Words that each family's tiny tokenizer splits as its kind does: into one token, or several.
SPACED = "the invoices total de la facturas zürich is due querying euros la de totals isdue invoice la"
BYTES = "invoice is in il importe inn id is importes ii isla is it ille il in importe"
PUNCTUATED = "Invoices, total: (de) la facturas; ¿zürich? is due. Euros «la» de total 1250!"
ODD = "👩‍👧 the e\u0301 invoice, 👍🏽 zu\u0308rich — Ñandú\u200b de\u00a0la 한국 [SEP] total\n\u202edue\u202c."


@dataclass(frozen=True)
class FakeModel:
    """A loaded token classifier."""

    tokenizer: TextTokenizer
    engine: Any
    labels: tuple[str, ...] = LABELS
    name: str = "tiny/ner"
    names: tuple[str, ...] = ("tiny/ner", "ner")

    def namespace(self, *parameters: str) -> CacheNamespace:
        return CacheNamespace(self.name, *parameters)


@dataclass
class EntityStack:
    """The service, and the parts below it, as a catalog."""

    model: FakeModel | None
    batcher: Batcher
    telemetry: Telemetry
    service: EntityService | None = None
    inference: Inference | None = None

    def of(self, _task: str) -> FakeModel | None:
        return self.model

    def unknown(self, name: str, known: Sequence[str]) -> UnknownModel:
        return UnknownModel(name, known)

    def metric(self, name: str) -> float:
        return self.telemetry.registry.get_sample_value(f"financia_{name}", {"task": "ner"}) or 0.0

    async def find(self, texts: Sequence[str], **options: Any) -> Sequence[TextEntities]:
        return (await self.service.find(texts, **{"sources": ("model",), **options})).rows


Build = Callable[..., EntityStack]


@pytest.fixture
async def build() -> AsyncIterator[Build]:
    """``build(model)``: the service on two lanes."""
    stacks: list[EntityStack] = []

    def make(
        model: FakeModel | None, *, queue_tokens: int = 200_000, clock: Any = None, cache: VectorCache | None = None
    ) -> EntityStack:
        telemetry = Telemetry()
        batcher = Batcher(2, QueueLimits(queue_tokens), telemetry, **({"clock": clock} if clock else {}))
        batcher.start(asyncio.get_running_loop())
        stack = EntityStack(model, batcher, telemetry)
        stack.inference = Inference(batcher, cache or NullCache(), telemetry)
        stack.service = EntityService(stack, stack.inference, telemetry)
        stacks.append(stack)
        return stack

    yield make
    for stack in stacks:
        if stack.model is not None and hasattr(stack.model.engine, "gate"):
            stack.model.engine.gate.set()
        await stack.batcher.drain(0.0)
        stack.inference.close()


def tagger(folder: Path, runtime: str = "onnx", labels: tuple[str, ...] = LABELS) -> FakeModel:
    engine = EncoderEngine(
        NER,
        PinnedEncoder(encoder_of(folder, runtime, "fp32")),
        TokenLabelsHead(read_token_head(spec_of(folder))),
        budget=512,
    )
    return FakeModel(tokenizer_of(folder), engine, labels)


def plain(row: TextEntities) -> list[tuple[str, int, int, float]]:
    return [(entity.type, entity.start, entity.end, pytest.approx(entity.score, abs=1e-4)) for entity in row.entities]


# Against transformers


def named(folder: Path, text: str) -> list[tuple[str, int, int, float]]:
    """What transformers' pipeline finds, without marks alone, which are no name."""
    found = reference_entities(folder, text)
    return [entity for entity in found if any(character.isalnum() for character in text[entity[1] : entity[2]])]


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["onnx", "openvino", "torch"])
@pytest.mark.parametrize("family", FAMILIES)
async def test_entities_are_those_of_transformers(taggers: TinyTaggers, build: Build, family, runtime):
    """Types, offsets and scores equal those of its pipeline with aggregation_strategy="first", for every family."""
    folder = taggers.folder(family)
    texts = [BYTES, "is il"] if family == "roberta" else [SPACED, "la facturas"]
    if family in ("bert", "distilbert", "mpnet"):  # whose tokenizers know words: punctuation too
        texts.append(PUNCTUATED)

    rows = await build(tagger(folder, runtime)).find(texts)

    expected = [named(folder, text) for text in texts]
    assert len(expected[0]) > 1, "a text without entities would prove nothing"
    assert expected == [plain(row) for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("labels", [("O", "LOC", "MISC", "ORG", "PER", "DATE", "MONEY")])
async def test_plain_types_are_those_of_transformers(taggers: TinyTaggers, build: Build, labels):
    """Labels without prefixes (the IO scheme)."""
    folder = taggers.folder("bert", labels)

    [row] = await build(tagger(folder, labels=labels)).find([PUNCTUATED])

    assert named(folder, PUNCTUATED) == plain(row)


# Offsets


@pytest.mark.parametrize("family", FAMILIES)
async def test_offsets_are_code_points_of_the_callers_text(taggers: TinyTaggers, build: Build, family):
    """Emoji, combining and invisible characters count as in Python; entities begin and end at words."""
    stack = build(tagger(taggers.folder(family)))

    [row, shifted] = await stack.find([ODD, ODD + " la"])

    assert row.entities
    for found, text in ((row, ODD), (shifted, ODD + " la")):
        assert [text[entity.start : entity.end] for entity in found.entities] == [
            entity.text for entity in found.entities
        ]
        assert all(entity.text == entity.text.strip() != "" for entity in found.entities)
        ends = [end for entity in found.entities for end in (entity.start, entity.end)]
        assert sorted(ends) == ends


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_batch_equals_its_singles(taggers: TinyTaggers, build: Build, family):
    """Order is kept, equal texts run once, and no text changes another's entities."""
    stack = build(tagger(taggers.folder(family)))
    texts = [SPACED, "", ODD, BYTES, SPACED, PUNCTUATED * 30, "la"]

    together = await stack.find(texts)
    alone = [(await stack.find([text]))[0] for text in texts]

    assert [plain(row) for row in together] == [plain(row) for row in alone]
    assert [row.tokens for row in together] == [row.tokens for row in alone]
    assert together[0] is together[4]


@pytest.mark.parametrize("text", ["", " \n\t ", "\u200b"])
async def test_a_blank_text_has_no_entities(taggers: TinyTaggers, build: Build, text):
    """A blank text among others is no error."""
    [row, other] = await build(tagger(taggers.folder("distilbert"))).find([text, SPACED])

    assert () == row.entities
    assert other.entities


# Long texts


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
async def test_windows_change_nothing_for_a_model_without_context(taggers: TinyTaggers, build: Build, family):
    """A model that labels each token by itself gives the same entities with and without windows."""
    text = PUNCTUATED[:60]
    narrow, wide = (build(tagger(taggers.folder(family, blind=True, max_tokens=max_tokens))) for max_tokens in (12, 64))

    [windowed], [whole] = await narrow.find([text]), await wide.find([text])

    assert whole.entities
    assert plain(whole) == plain(windowed)
    assert windowed.tokens > whole.tokens


class NeighbourEngine(EchoEngine):
    """Labels a token by itself and three neighbours on either side, special tokens included."""

    reach = 3

    def finish(self, output: Any) -> Sequence[Any]:
        return [np.stack([self._row(ids, place) for place in range(len(ids))]) for ids in super().finish(output)]

    def _row(self, ids: np.ndarray, place: int) -> np.ndarray:
        around = ids[max(0, place - self.reach) : place + self.reach + 1]
        scores = np.random.default_rng([int(number) for number in around]).random(len(LABELS)) ** 4
        return (scores / scores.sum()).astype(np.float32)


@pytest.mark.parametrize("words", [40, 300, 2_000])
async def test_windows_give_each_token_enough_context(build: Build, words):
    """Each token counts in a window that holds its neighbours: no entity is cut, doubled or lost."""
    bundled = spec_of("minilm").folder / "tokenizer.json"
    text = " ".join(f"{word}, el señor O'Brien {word} de Zürich 👍." for word in range(words // 8))
    narrow, wide = (
        build(FakeModel(TextTokenizer(bundled, max_tokens=size, vocabulary_size=30522), NeighbourEngine(budget=4096)))
        for size in (32, 100_000)
    )

    [windowed], [whole] = await narrow.find([text]), await wide.find([text])

    assert len(narrow.model.engine.batches) > 0
    assert max(len(ids) for batch in narrow.model.engine.batches for ids in batch) <= 32
    assert len(whole.entities) > words // 4
    assert whole.entities == windowed.entities
    assert whole.coverage == windowed.coverage


class PieceEngine(EchoEngine):
    """Labels a token by its spelling: B-PER for those of ``people``, O for all others."""

    people = ("o", "jean", "s")

    def finish(self, output: Any) -> Sequence[Any]:
        vocabulary = Tokenizer.from_file(str(spec_of("minilm").folder / "tokenizer.json"))
        rows = np.eye(len(LABELS), dtype=np.float32)
        person, outside = rows[LABELS.index("B-PER")], rows[0]
        return [
            np.stack([person if vocabulary.id_to_token(int(token)) in self.people else outside for token in ids])
            for ids in super().finish(output)
        ]


async def test_the_first_token_of_a_word_labels_it(build: Build):
    """Also where the tokenizer splits at an apostrophe or hyphen; punctuation stays outside."""
    text = "Sr. O'Brien, (Jean-Claude) y S.L.: hermanos-o 'o'"

    [row] = await build(FakeModel(tokenizer_of("minilm"), PieceEngine(budget=512))).find([text])

    assert ["O'Brien", "Jean-Claude", "S.L.", "o"] == [entity.text for entity in row.entities]
    assert [text.index(entity.text) for entity in row.entities[:3]] == [entity.start for entity in row.entities[:3]]
    assert {1.0} == {entity.score for entity in row.entities}


class WordEngine(EchoEngine):
    """Labels a token by its text: those of ``labelled``, all others O."""

    def __init__(self, labelled: dict[str, str]) -> None:
        super().__init__(budget=512)
        self.labelled = labelled

    def finish(self, output: Any) -> Sequence[Any]:
        vocabulary = Tokenizer.from_file(str(spec_of("minilm").folder / "tokenizer.json"))
        rows = np.eye(len(LABELS), dtype=np.float32)

        def label(token: int) -> str:
            return self.labelled.get(vocabulary.id_to_token(token), "O")

        return [np.stack([rows[LABELS.index(label(int(token)))] for token in ids]) for ids in super().finish(output)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("de Santos Rivera, S.L. en Madrid", ["ORG Santos Rivera, S.L.", "LOC Madrid"], id="after-a-comma"),
        pytest.param("Santos Rivera Ltd, Madrid", ["ORG Santos Rivera Ltd", "LOC Madrid"], id="without-a-comma"),
        pytest.param("Santos, Rivera S.A. y", ["ORG Santos", "ORG Rivera S.A."], id="a-neighbour-keeps-its-own"),
        pytest.param("Santos Rivera, Madrid", ["ORG Santos Rivera", "LOC Madrid"], id="none-follows"),
        pytest.param("Madrid, S.L.", ["LOC Madrid"], id="of-organisations-alone"),
        pytest.param("Santos Rivera,", ["ORG Santos Rivera"], id="at-the-end"),
    ],
)
async def test_a_legal_form_belongs_to_its_company(build: Build, text, expected):
    """Also behind a comma, where taggers leave it out."""
    engine = WordEngine({"santos": "B-ORG", "rivera": "I-ORG", "madrid": "B-LOC"})

    [row] = await build(FakeModel(tokenizer_of("minilm"), engine)).find([text])

    assert expected == [f"{entity.type} {entity.text}" for entity in row.entities]
    assert all(text[entity.start : entity.end] == entity.text for entity in row.entities)


async def test_a_legal_form_tagged_by_itself_joins_its_company(build: Build):
    """It is no organisation of its own; the two become one."""
    engine = WordEngine({"santos": "B-ORG", "ltd": "B-ORG", "madrid": "B-ORG"})

    [row] = await build(FakeModel(tokenizer_of("minilm"), engine)).find(["Santos, Ltd y Madrid"])

    assert ["Santos, Ltd", "Madrid"] == [entity.text for entity in row.entities]


UNIGRAM = "«Acme (UK)», dijo Ana-Belén O'Brien; S.L., ¿y 12/03/2024?  EL SEÑOR\tPANIAGUA: 1.234,56 €."


class FirstTokenEngine(EchoEngine):
    """Labels every token B-PER: each word with a token of its own is an entity."""

    def finish(self, output: Any) -> Sequence[Any]:
        row = np.eye(len(LABELS), dtype=np.float32)[LABELS.index("B-PER")]
        return [np.tile(row, (len(ids), 1)) for ids in super().finish(output)]


async def test_words_of_a_unigram_tokenizer(build: Build):
    """Its tokens begin with the blank before a word, and some hold two marks; entities begin and end at words."""
    stack = build(FakeModel(tokenizer_of("bundled-full"), FirstTokenEngine(budget=512)))

    [row] = await stack.find([UNIGRAM])

    words = [UNIGRAM[start:end] for start, end in word_places(UNIGRAM).tolist()]
    assert [word for word in words if word[0].isalnum()] == [entity.text for entity in row.entities]
    assert [UNIGRAM[entity.start : entity.end] for entity in row.entities] == [entity.text for entity in row.entities]
    assert 1.0 == row.coverage


async def test_windows_of_a_unigram_tokenizer(build: Build):
    """Each word is an entity once, whichever window owns it."""
    text = " ".join([UNIGRAM] * 40)
    stack = build(FakeModel(tokenizer_of("bundled-full"), FirstTokenEngine(budget=4096)))

    [once], [many] = await stack.find([UNIGRAM]), await stack.find([text])

    assert many.tokens > 1024
    assert 40 * len(once.entities) == len(many.entities)


async def test_the_tail_of_a_long_text_is_read(taggers: TinyTaggers, build: Build):
    """Nothing is truncated silently."""
    text = "la " * 4_000 + SPACED
    [row] = await build(tagger(taggers.folder("bert"))).find([text])

    assert max(entity.end for entity in row.entities) > 12_000
    assert 1.0 == row.coverage
    assert row.tokens > 4_000


async def test_coverage_excludes_unknown_tokens(taggers: TinyTaggers, build: Build):
    """Ideographs are unknown tokens to a Latin vocabulary."""
    [row] = await build(tagger(taggers.folder("bert"))).find(["la 的 de"])

    assert row.coverage == pytest.approx(4 / 5)


# Options of a request


async def test_types_and_scores_filter(taggers: TinyTaggers, build: Build):
    """Only requested types, only high scores; tokens stay the same."""
    stack = build(tagger(taggers.folder("bert")))
    [everything] = await stack.find([PUNCTUATED])
    least = sorted(entity.score for entity in everything.entities)[1]

    [people] = await stack.find([PUNCTUATED], types=["PER"])
    [sure] = await stack.find([PUNCTUATED], min_score=least)
    [none] = await stack.find([PUNCTUATED], min_score=1.0, types={"LOC", "ORG", "PER"})

    assert [entity for entity in everything.entities if entity.type == "PER"] == list(people.entities)
    assert [entity for entity in everything.entities if entity.score >= least] == list(sure.entities)
    assert len(sure.entities) == len(everything.entities) - 1
    assert ((), everything.tokens) == (none.entities, none.tokens)


async def test_a_type_the_model_does_not_know_is_refused(taggers: TinyTaggers, build: Build):
    """A misspelt type is an error, not an empty answer."""
    known = r"types: 'PERSON' is not one of the entity types here \(BIC, .*LOC, .*ORG, PER"
    with pytest.raises(InvalidField, match=known):
        await build(tagger(taggers.folder("bert"))).find(["la"], types=["PER", "PERSON"])


async def test_a_model_can_be_named(taggers: TinyTaggers, build: Build):
    """Any of its names or none; another is an error that lists them."""
    stack = build(tagger(taggers.folder("bert")))

    assert await stack.find(["la"], model="ner") == await stack.find(["la"])
    with pytest.raises(UnknownModel, match="'other' is not loaded here; loaded are tiny/ner, ner"):
        await stack.find(["la"], model="other")


@pytest.mark.parametrize("name", [None, "ner"])
async def test_without_a_model_the_error_names_the_setting(build: Build, name):
    """The error is a 404."""
    with pytest.raises(NoEntityModel, match="set NER_MODEL to a folder or a hub id") as caught:
        await build(None).find(["la"], model=name)

    assert (404, "model_not_found", "model") == (caught.value.status, caught.value.code, caught.value.param)
    assert isinstance(caught.value, NotFound)


async def test_the_result_has_model_tokens_and_timing(taggers: TinyTaggers, build: Build):
    """The metrics count the inputs and tokens."""
    stack = build(tagger(taggers.folder("bert")))

    result = await stack.service.find(["la factura", "de", "la factura"])

    assert "tiny/ner" == result.model
    assert [4 + 0, 3, 4 + 0] == [row.tokens for row in result.rows]
    assert result.tokens == 11
    assert (3.0, 11.0) == (stack.metric("inputs_total"), stack.metric("tokens_total"))
    assert result.timing.inference_s > 0.0
    with pytest.raises(FrozenInstanceError):
        result.model = "another"  # type: ignore[misc]


# Model and patterns


INVOICE = (
    "Factura n.º 2024-017 de Aceros del Norte S.A., CIF A58818501, a Juan Pérez: 1.284,50 € el 3 de marzo de 2024, "
    "IBAN ES9121000418450200051332, ana@example.com. the la de zürich total. 12/13/2024"
)
BOTH = (MODEL, PATTERN)


def vector_cache() -> VectorCache:
    return TieredCache(MemoryTier(2**24), None, Telemetry())


async def test_both_sources_are_merged_into_one_list(taggers: TinyTaggers, build: Build):
    """As by documents.merge: in order, without overlaps; candidates that lost have a reason."""
    stack = build(tagger(taggers.folder("bert")), cache=vector_cache())  # the same scores each time
    [by_model] = await stack.find([INVOICE])

    [row] = await stack.find([INVOICE], sources=BOTH)

    merged = merge([*by_model.entities, *find_patterns(INVOICE)])
    assert (tuple(merged.kept), tuple(merged.lost)) == (row.entities, row.lost)
    assert {MODEL, PATTERN} == {entity.source for entity in row.entities}
    assert all(first.end <= second.start for first, second in pairwise(row.entities))
    assert row.lost
    assert all(lost.why and lost.to in row.entities for lost in row.lost)
    assert () == by_model.lost


async def test_sources_select_model_or_patterns(taggers: TinyTaggers, build: Build):
    """Patterns alone do not run the model; unset means both."""
    stack = build(tagger(taggers.folder("bert")), cache=vector_cache())  # the same scores each time

    patterns = await stack.service.find([INVOICE], sources=[PATTERN])
    model = await stack.service.find([INVOICE], sources=[MODEL])
    both, unset = await stack.service.find([INVOICE], sources=BOTH), await stack.service.find([INVOICE])

    assert tuple(find_patterns(INVOICE)) == patterns.rows[0].entities
    assert ("patterns", 0, 1.0) == (patterns.model, patterns.tokens, patterns.rows[0].coverage)
    assert {MODEL} == {entity.source for entity in model.rows[0].entities}
    assert both.rows == unset.rows
    assert (model.tokens, "tiny/ner") == (both.tokens, both.model)


@pytest.mark.parametrize("sources", [None, (PATTERN,)])
async def test_patterns_need_no_model(build: Build, sources):
    """Without a model, only the patterns' types are known."""
    stack = build(None)

    [row] = await stack.find([INVOICE], sources=sources)

    assert {"CIF", "MONEY", "DATE", "IBAN", "EMAIL"} <= {entity.type for entity in row.entities}
    with pytest.raises(InvalidField, match="'PER' is not one of the entity types here"):
        await stack.find([INVOICE], sources=sources, types=["PER"])


@pytest.mark.parametrize("sources", [(MODEL,), BOTH])
async def test_a_requested_model_must_be_loaded(build: Build, sources):
    """Requesting the model where none is loaded is an error."""
    with pytest.raises(NoEntityModel, match="or ask for sources: \\['pattern'\\]"):
        await build(None).find([INVOICE], sources=sources)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sources", "types"),
    [
        *[((PATTERN,), types) for types in (["MONEY"], ["DATE", "CIF"], [], PATTERN_TYPES)],
        *[(sources, ["PER", "ORG"]) for sources in ((MODEL,), BOTH)],
        *[(BOTH, types) for types in (["MONEY"], ["LOC", "DATE", "CIF"], [], PATTERN_TYPES)],
    ],
)
async def test_fewer_types_never_show_more(taggers: TinyTaggers, build: Build, sources, types):
    """A filter by type never shows an entity that lost to another type."""
    stack = build(tagger(taggers.folder("bert")), cache=vector_cache())  # the same scores each time
    [everything] = await stack.find([INVOICE], sources=sources)

    [some] = await stack.find([INVOICE], sources=sources, types=types)

    assert tuple(entity for entity in everything.entities if entity.type in types) == some.entities
    assert set(some.lost) <= set(everything.lost)


@pytest.mark.parametrize("least", [0.0, 0.3, 0.6, 0.95, 1.0])
async def test_low_scores_compete_with_no_other(taggers: TinyTaggers, build: Build, least):
    """``min_score`` applies before overlaps are resolved."""
    stack = build(tagger(taggers.folder("bert")), cache=vector_cache())  # the same scores each time
    [by_model] = await stack.find([INVOICE])

    [row] = await stack.find([INVOICE], sources=BOTH, min_score=least)

    sure = [entity for entity in (*by_model.entities, *find_patterns(INVOICE)) if entity.score >= least]
    assert merge(sure).kept == list(row.entities)
    assert all(entity.score >= least for entity in row.entities)


@pytest.mark.parametrize(("characters", "inline"), [(100, True), (3_000, False)])
async def test_patterns_are_searched_off_the_loop(build: Build, monkeypatch, characters, inline):
    """Long texts are searched on a thread, short ones inline."""
    threads = list[bool]()

    def spied(text: str, **options: Any) -> list[Any]:
        threads.append(threading.current_thread() is threading.main_thread())
        return find_patterns(text, **options)

    monkeypatch.setattr("backend.text.entities.find_patterns", spied)
    await build(None).find(["1.284,50 € " * (characters // 11)], sources=None)

    assert [inline] == threads


# Cache


async def test_hits_reach_no_lane(taggers: TinyTaggers, build: Build):
    """Hits equal misses, windows of long texts too; only a new text among them runs."""
    engine = RecordingEngine(tagger(taggers.folder("bert")).engine)
    model = replace(tagger(taggers.folder("bert")), engine=engine)
    stack = build(model, cache=vector_cache())
    texts = [INVOICE, "la " * 400, "", SPACED]

    miss = await stack.find(texts, sources=BOTH)
    ran = engine.inputs
    hit = await stack.find(texts, sources=BOTH)
    assert ran == engine.inputs
    assert ran > 4
    mixed = await stack.find(["la factura nueva", *texts], sources=BOTH, types=["PER"], min_score=0.5)

    assert miss == hit
    assert ran + 1 == engine.inputs
    assert [row.tokens for row in miss] == [row.tokens for row in mixed[1:]]


# Models with the spelling of words as token types


class SpelledEngine(EchoEngine):
    """Labels a token by its type alone: B-PER where the word was written with a capital."""

    def finish(self, output: Any) -> Sequence[Any]:
        rows = np.eye(len(LABELS), dtype=np.float32)
        plain = word_spellings("de", word_places("de"))[0]
        return [
            np.stack([rows[LABELS.index("B-PER") if kind not in (0, plain) else 0] for kind in types])
            for _, types in super().finish(output)
        ]


async def test_the_spelling_changes_input_and_cache_key(build: Build):
    """For "Factura" and "factura" an uncased vocabulary has equal ids; token types and cache keys differ."""
    bundled = spec_of("minilm")
    tokenizer = TextTokenizer(
        bundled.folder / "tokenizer.json",
        max_tokens=32,
        vocabulary_size=bundled.shape.vocabulary_size,
        token_types=TokenTypes.SPELLING,
    )
    engine = SpelledEngine(budget=512)
    stack = build(FakeModel(tokenizer, engine), cache=vector_cache())

    rows = await stack.find(["la factura de marta", "la factura de Marta", "la factura " * 40 + "de Marta"])

    assert [[], ["Marta"], ["Marta"]] == [[entity.text for entity in row.entities] for row in rows]
    payloads = [payload for batch in engine.batches for payload in batch]
    assert {(2, True)} == {(payload.ndim, len(payload) == 2) for payload in payloads}
    np.testing.assert_array_equal(payloads[0][0], payloads[1][0])


async def test_more_tokens_than_the_queue_admits_are_refused_while_they_are_read(
    taggers: TinyTaggers, build: Build, monkeypatch
):
    """Not after all of them have been read; the limit and its setting are named."""
    read: list[int] = []

    def counted(tokenizer: TextTokenizer, text: str, start: int, stop: int, *more: Any) -> TokenArrays:
        read.append(stop - start)
        return read_slice(tokenizer, text, start, stop, *more)

    read_slice = TextTokenizer.read
    monkeypatch.setattr(TextTokenizer, "read", counted)
    stack, text = build(tagger(taggers.folder("bert")), queue_tokens=5_000), "la factura de marzo, " * 20_000
    with pytest.raises(TooLarge, match=r"tokens of the request: \d+ is over the limit of 5000 \(LIMIT_QUEUE_TOKENS"):
        await stack.find([text])

    assert 1 == len(read)
    assert sum(read) < len(text) / 5
