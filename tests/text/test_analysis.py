"""Text analysis: vectors equal those of /v1/embeddings, offsets are right, long texts are read to the end."""

import asyncio
import gc
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from backend.errors import FinanciaError, InvalidField, Overloaded
from backend.lanes.inference import Urgency
from backend.lanes.work_queue import Priority
from backend.serving.engines.heads import ANALYSIS
from backend.text import analysis
from backend.text.analysis import FEATURES, Analysis, AnalysisService
from backend.text.entities import EntityService
from tests.serving.loaded_models import embedding_model, entity_model, scoring_model
from tests.text.classification_setup import ClassificationSetup, build_classification, random_head, write_bundled_head
from tests.text.service_stack import ServiceStack
from tests.tiny_models import TinyModels, spec_of
from tests.tiny_scorers import TinyScorers
from tests.tiny_taggers import TinyTaggers

SHORT = "Factura de Aceros del Norte, S.A., a Juan Pérez: 1.284,50 €, con vencimiento el 3 de marzo de 2024."
PAGE = (
    "La auditoría no detectó irregularidades significativas en los estados financieros de la sociedad. "
    "El informe anual describe los riesgos de mercado, de crédito y de liquidez. "
    "👍🏽 La parte arrendataria se obliga a devolver el inmueble en buen estado al término del contrato.\n\n"
    "The company leases its warehouses under agreements that expire over the next five years. "
    "Goodwill is tested for impairment once a year or when events require it.\u200b "
)
LONG = "".join(
    f"{PAGE} Página {number}: la auditoría interna de riesgos número {number} concluyó. " for number in range(8)
)


@dataclass
class Bench:
    """The service, and the parts below it."""

    service: AnalysisService
    setup: ClassificationSetup
    stack: ServiceStack

    @property
    def windows(self) -> int:
        """Windows that the encoder ran for an analysis."""
        engine: Any = self.stack.catalog.embedding().token_engine
        return int(engine.inputs)

    async def analyze(self, text: str, **options: Any) -> Analysis:
        return await self.service.analyze(text, **options)


Make = Callable[..., Bench]


@pytest.fixture
async def make_bench(build, tmp_path, taggers: TinyTaggers) -> Make:
    """``make_bench(source, others=[…], entities=…)``: a head for the classes, a token classifier for the entities."""

    def make(source: Any = "minilm", others: Any = None, entities: Any = None, **more: Any) -> Bench:
        named = [entity_model(taggers.folder("bert"))] if others is None else others
        stack = build(embedding_model(source), others=named, lanes=2, **more)
        spec = stack.catalog.embedding().spec
        if spec.width == 384 and not (tmp_path / "bundled" / "document-type").exists():
            write_bundled_head(tmp_path, "document-type", random_head(spec.sha256))
        setup = build_classification(stack, tmp_path)
        entity_service = entities or EntityService(stack.catalog, stack.inference, stack.telemetry)
        return Bench(
            AnalysisService(stack.catalog, stack.inference, setup.service, entity_service, stack.telemetry),
            setup,
            stack,
        )

    return make


def cosine(first: np.ndarray, second: np.ndarray) -> float:
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


# The vector


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", [SHORT, "", " \n", "\u200b", "a"], ids=["short", "empty", "blank", "invisible", "letter"]
)
async def test_the_vector_of_a_text_that_fits_is_that_of_embed(make_bench: Make, text):
    """Also the token count, also of texts without tokens."""
    bench = make_bench()

    result = await bench.analyze(text)

    embedded = await bench.stack.service.embed([text])
    assert result.vector is not None
    assert cosine(result.vector, embedded.vectors[0]) > 0.99999
    assert np.linalg.norm(result.vector) == pytest.approx(1.0, abs=1e-5)
    assert embedded.tokens[0] == result.tokens


@pytest.mark.slow
async def test_the_vector_of_a_long_text_is_untruncated(make_bench: Make):
    """It equals ``embed_untruncated``."""
    bench = make_bench()

    result = await bench.analyze(LONG)

    whole = await bench.stack.service.embed_untruncated([LONG])
    assert result.vector is not None
    assert cosine(result.vector, whole.vectors[0]) > 0.99999
    assert whole.tokens[0] == result.tokens > 2 * 256
    assert 2 < bench.windows


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("normalize", [True, False])
async def test_every_pooling_has_its_own_vector(tiny: TinyModels, make_bench: Make, pooling, normalize):
    """Short and long, normalised or not."""
    bench = make_bench(tiny.folder("bert", pooling, normalize=normalize))

    for text in ("la factura is due", PAGE):
        result = await bench.analyze(text, features=["vector"])
        whole = await bench.stack.service.embed_untruncated([text])
        np.testing.assert_allclose(result.vector, whole.vectors[0], atol=2e-5)  # type: ignore[arg-type]


async def test_a_hundred_kilobytes(make_bench: Make, tiny: TinyModels, monkeypatch):
    """Windows run in chunks, and lanes return a row a span, not a row a token; its end changes the vector."""
    chunks, add = list[tuple[int, int]](), analysis._add

    def spied(sums: Any, parts: Any, rows: Any) -> None:
        chunks.append((sum(row.vector.size for row in rows), sum(len(part.window.ids) for part in parts)))
        add(sums, parts, rows)

    monkeypatch.setattr(analysis, "_add", spied)
    bench = make_bench(tiny.folder("bert"), others=[])
    text = "la factura de total is due. " * 3_600

    result = await bench.analyze(text, features=["vector", "key_sentences"])
    other = await bench.analyze(text[:-28] + "zürich.", features=["vector"])

    whole = await bench.stack.service.embed_untruncated([text])
    assert len(text) > 100_000
    assert 30 < len(chunks)
    assert all(size < tokens * len(whole.vectors[0]) for size, tokens in chunks)
    np.testing.assert_allclose(result.vector, whole.vectors[0], atol=2e-5)  # type: ignore[arg-type]
    assert not np.array_equal(result.vector, other.vector)  # type: ignore[arg-type]
    assert result.key_sentences


# Phrases and sentences


@pytest.mark.slow
@pytest.mark.parametrize("text", [PAGE, LONG], ids=["page", "long"])
async def test_key_sentences_and_phrases_have_right_offsets(make_bench: Make, text):
    """Offsets are code points of the caller's text; sentences in text order, each once; phrases best first."""
    result = await make_bench().analyze(text, top_sentences=4, top_phrases=6)

    assert 4 == len(result.key_sentences)
    assert [text[span.start : span.end] for span in result.key_sentences] == [
        span.text for span in result.key_sentences
    ]
    starts = [span.start for span in result.key_sentences]
    assert sorted(set(starts)) == starts
    assert 6 == len(result.key_phrases)
    for phrase in result.key_phrases:
        occurrences = {" ".join(text[start:end].split()).casefold() for start, end in phrase.places}
        assert phrase.text.casefold() in occurrences
    assert any(len(phrase.places) > 1 for phrase in result.key_phrases) == (text is LONG)
    assert [phrase for phrase in result.key_phrases if not 0.0 <= phrase.score <= 1.0] == []


async def test_a_sentence_vector_is_the_mean_of_its_tokens(make_bench: Make):
    """A sentence's vector in its text is nearest to that of the sentence alone."""
    bench = make_bench()
    structure = await bench.service._structure(PAGE, frozenset({"key_sentences"}), with_summary=False)
    sums, _ = await bench.service._encode(structure, analysis.Urgency())
    texts = [PAGE[start:stop] for start, stop in structure.sentences]

    alone = (await bench.stack.service.embed(texts)).vectors

    assert len(texts) >= 5
    assert (sums.span_vectors() @ alone.T).argmax(axis=1).tolist() == list(range(len(texts)))


async def test_a_text_without_sentences_has_no_summary(make_bench: Make):
    """Neither sentences nor phrases, and no error."""
    result = await make_bench().analyze("\n\n", features=["key_sentences", "key_phrases"])

    assert ((), ()) == (result.key_sentences, result.key_phrases)


# Features


@pytest.mark.parametrize("feature", FEATURES)
async def test_each_feature_alone_is_what_it_is_among_all(make_bench: Make, feature):
    """Requested alone, a feature has the same value, and the others are empty."""
    bench = make_bench()
    everything, alone = await bench.analyze(PAGE), await bench.analyze(PAGE, features=[feature])

    for name in FEATURES:
        value, expected = getattr(alone, name), getattr(everything, name)
        if name != feature:
            assert value is None or value == ()
        elif name == "vector":
            np.testing.assert_array_equal(value, expected)
        else:
            assert repr(value) == repr(expected)
            assert value


@pytest.mark.parametrize("features", [["language"], ["entities"], ["language", "entities"]])
async def test_features_without_vectors_run_no_encoder(make_bench: Make, features):
    """The encoder does not run; tokens are those of the entity model."""
    bench = make_bench()

    result = await bench.analyze(PAGE, features=features)

    assert (0, []) == (bench.windows, bench.stack.engine.batches)
    assert ("entities" in features) == (result.tokens > 0)


async def test_equal_texts_in_flight_keep_their_own_spans(make_bench: Make):
    """One asks for sentences, the other for phrases: the same ids, other sums."""
    bench = make_bench()
    sentences, phrases = await asyncio.gather(
        bench.analyze(PAGE, features=["key_sentences"]), bench.analyze(PAGE, features=["key_phrases"])
    )

    assert sentences.key_sentences == (await bench.analyze(PAGE, features=["key_sentences"])).key_sentences
    alone = (await bench.analyze(PAGE, features=["key_phrases"])).key_phrases
    assert alone
    assert phrases.key_phrases
    assert [(one.text, one.score, one.places.tolist()) for one in alone] == [
        (one.text, one.score, one.places.tolist()) for one in phrases.key_phrases
    ]


async def test_one_pass_serves_everything(make_bench: Make):
    """Vector, phrases, sentences and classes from the same windows."""
    bench = make_bench()

    result = await bench.analyze(PAGE, features=["vector", "key_phrases", "key_sentences", "classes", "language"])

    assert (1, []) == (bench.windows, bench.stack.engine.batches)
    assert (await bench.setup.service.classify([PAGE])).rows[0].prediction == result.classes.prediction


async def test_classes_of_labels_or_of_another_model(scorers: TinyScorers, make_bench: Make):
    """The classes equal those of ``classify``, and what is read for them beside the text's vector is told."""
    bench = make_bench(others=[scoring_model(scorers.folder("bert"), "classifier")])
    classify = bench.setup.service.classify
    of_vector = (await bench.analyze(SHORT, features=["vector"])).tokens

    for options, classify_options in (
        ({"labels": ["factura", "viaje"]}, {"labels": ["factura", "viaje"]}),
        ({}, {}),
        *[({"classifier": name}, {"model": name}) for name in ("document-type", "classifier")],
    ):
        result = await bench.analyze(SHORT, features=["classes"], **options)
        classified = await classify([SHORT], **classify_options)
        [expected] = classified.rows
        from_vector = options == {"classifier": "document-type"}
        assert (0 if from_vector else classified.tokens) == result.tokens - of_vector
        assert expected.prediction == result.classes.prediction
        assert [label.score for label in expected.predictions] == pytest.approx(
            [label.score for label in result.classes.predictions], abs=1e-5
        )


async def test_classes_are_left_out_without_a_classifier(tiny: TinyModels, make_bench: Make):
    """Requested explicitly, the error says how to get them."""
    bench = make_bench(tiny.folder("bert"))

    result = await bench.analyze(SHORT)

    assert (None, True) == (result.classes, result.vector is not None)
    with pytest.raises(InvalidField, match="give labels to choose from"):
        await bench.analyze(SHORT, features=["classes"])


async def test_entities_are_those_of_the_entity_service(make_bench: Make):
    """Entities of model and patterns, and the coverage."""
    bench = make_bench()

    result = await bench.analyze(SHORT, features=["entities"])

    [expected] = (
        await EntityService(bench.stack.catalog, bench.stack.inference, bench.stack.telemetry).find([SHORT])
    ).rows
    assert (expected.entities, expected.coverage) == (result.entities, result.coverage)
    assert {"MONEY", "DATE"} <= {entity.type for entity in result.entities}


async def test_it_is_counted_once(make_bench: Make):
    """One input of analysis and one of entities; windows and vectors are not counted as inputs."""
    bench = make_bench()

    result = await bench.analyze(LONG)

    counts = {
        task: bench.stack.metric("inputs_total", task=task) for task in (ANALYSIS, "ner", "embeddings", "classifier")
    }
    assert {ANALYSIS: 1.0, "ner": 1.0, "embeddings": 0.0, "classifier": 0.0} == counts
    assert float(result.tokens) == bench.stack.metric("tokens_total", task=ANALYSIS)


async def test_urgency_reaches_every_part(make_bench: Make, clock):
    """Windows of the analysis and of the entities, and texts that are classified."""
    bench = make_bench()
    submitted = bench.stack.spy_on_submissions()
    await bench.analyze(PAGE, labels=["factura", "viaje"], urgency=Urgency(Priority.BULK, clock() + 9))

    assert {(Priority.BULK, clock() + 9)} == set(submitted)
    assert len(submitted) >= 3


# Model swaps


async def test_a_head_never_gets_vectors_of_another_model(make_bench: Make):
    """After a swap during the analysis, the new model's vectors and heads classify the text anew."""
    bench = make_bench(others=[])
    old = bench.stack.catalog.embedding()
    new = replace(embedding_model("minilm"), spec=replace(spec_of("minilm"), sha256="b" * 64))
    encode = bench.service._encode

    async def swapped(*arguments: Any) -> Any:
        result = await encode(*arguments)
        bench.stack.catalog.replace(new)
        bench.setup.registry.use_taught("mail", None, random_head("b" * 64))
        bench.setup.service.on_model_swap(new)
        return result

    bench.service._encode = swapped  # type: ignore[method-assign]
    result = await bench.analyze(SHORT, features=["classes", "vector"], classifier="mail")

    assert result.classes is not None
    assert (0, 1) == (old.engine.inputs, new.engine.inputs)  # type: ignore[attr-defined]


# Faults


class FakeEntities:
    """An entity service that fails or hangs; ``state`` says how it ended."""

    def __init__(self, error: FinanciaError | None = None) -> None:
        self.error, self.state, self.started = error, "not started", asyncio.Event()

    async def find(self, texts: Any, **options: Any) -> Any:
        self.started.set()
        self.state = "running"
        try:
            if self.error is not None:
                raise self.error
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.state = "cancelled"
            raise


def unretrieved_errors() -> list[str]:
    """Messages of the loop about errors that were never retrieved."""
    messages = list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: messages.append(str(context["message"])))
    return messages


def others() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[return-value,arg-type]


async def test_when_the_vectors_fail_the_entities_are_cancelled(make_bench: Make, monkeypatch):
    """Nothing is left running."""
    entities, before = FakeEntities(), others()
    bench = make_bench(entities=entities)
    monkeypatch.setattr(bench.stack.batcher, "submit", Mock(side_effect=Overloaded(10, 5, 1.0)))
    with pytest.raises(Overloaded):
        await bench.analyze(PAGE)

    assert ("cancelled", set()) == (entities.state, others() - before)


@pytest.mark.slow
async def test_when_both_fail_one_error_is_raised_and_the_other_retrieved(make_bench: Make, monkeypatch):
    """A full queue refuses both: the loop must not log an unretrieved error."""
    messages = unretrieved_errors()
    bench = make_bench(entities=FakeEntities(Overloaded(10, 5, 1.0)))
    monkeypatch.setattr(bench.stack.batcher, "submit", Mock(side_effect=Overloaded(10, 5, 1.0)))
    with pytest.raises(Overloaded):
        await bench.analyze(PAGE)
    gc.collect()
    await asyncio.sleep(0)

    assert [] == messages


async def test_a_cancelled_analysis_cancels_everything(make_bench: Make):
    """Entities and windows are cancelled."""
    entities, before = FakeEntities(), others()
    bench = make_bench(entities=entities)
    task = asyncio.create_task(bench.analyze(PAGE, features=["entities"]))
    await entities.started.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert ("cancelled", set(), 0) == (entities.state, others() - before, bench.stack.in_flight)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("\ud83d sola, \ud800 y \udfff la factura vence en marzo.", id="lone-surrogates"),
        pytest.param("\u202eאבג\u202c العربية 12,50 € \u0301\u0301 la factura", id="right-to-left"),
        pytest.param("<html><p>La factura&nbsp;vence</p></html>" * 20, id="html"),
        pytest.param("l4 f4ctur4 d3 m4rz0 ~~ §§ 1.2B4,5O €" * 30, id="noise"),
        pytest.param("a" * 20_000, id="one-word"),
        pytest.param("." * 5_000, id="stops"),
        pytest.param("👩‍👧" * 500, id="emoji"),
    ],
)
async def test_any_text_is_analysed(make_bench: Make, text):
    """Offsets are right and the vector is finite."""
    result = await make_bench().analyze(text)

    assert result.vector is not None
    assert np.isfinite(result.vector).all()
    assert [text[span.start : span.end] for span in result.key_sentences] == [
        span.text for span in result.key_sentences
    ]
    assert [text[span.start : span.end] for span in result.entities] == [span.text for span in result.entities]
