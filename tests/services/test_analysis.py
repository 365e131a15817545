"""All there is to know of a text in one pass: against /v1/embeddings' vectors, in its own places, and to the end."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from backend.batching.work_item import Priority
from backend.engines.analysis import TASK
from backend.errors import FinanciaError, InferenceFailed, InvalidField, Overloaded
from backend.services import analysis
from backend.services.analysis import FEATURES, Analysis, AnalysisService
from backend.services.entities import EntityService
from tests.services.desk import Desk, desk_of, head_of, keep_head
from tests.services.house import House
from tests.services.loaded import embedding_model, entity_model, scoring_model
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
    """The service, and what is below it."""

    service: AnalysisService
    desk: Desk
    house: House

    @property
    def read(self) -> int:
        """Windows that the encoder read for an analysis."""
        engine: Any = self.house.catalog.embedding().token_engine
        return int(engine.jobs)

    async def analyze(self, text: str, **asked: Any) -> Analysis:
        return await self.service.analyze(text, **asked)


Make = Callable[..., Bench]


@pytest.fixture
async def bench(build, tmp_path, taggers: TinyTaggers) -> Make:
    """``bench(source, others=[…], entities=…)``: a head for the classes, a token classifier for the entities."""

    def make(source: Any = "bundled", others: Any = None, entities: Any = None, **more: Any) -> Bench:
        named = [entity_model(taggers.folder("bert"))] if others is None else others
        house = build(embedding_model(source), others=named, lanes=2, **more)
        spec = house.catalog.embedding().spec
        if spec.width == 384 and not (tmp_path / "bundled" / "document-type").exists():
            keep_head(tmp_path, "document-type", head_of(spec.sha256))
        desk = desk_of(house, tmp_path)
        found = entities or EntityService(house.catalog, house.inference, house.telemetry)
        return Bench(AnalysisService(house.catalog, house.inference, desk.service, found, house.telemetry), desk, house)

    return make


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


# The vector


@pytest.mark.parametrize(
    "text", [SHORT, "", " \n", "\u200b", "a"], ids=["short", "empty", "blank", "invisible", "letter"]
)
async def test_the_vector_of_a_text_that_fits_is_that_of_embed(bench: Make, text):
    """Its tokens too, where it has none of its own as well."""
    one = bench()

    found = await one.analyze(text)

    embedded = await one.house.service.embed([text])
    assert found.vector is not None
    assert cosine(found.vector, embedded.vectors[0]) > 0.99999
    assert np.linalg.norm(found.vector) == pytest.approx(1.0, abs=1e-5)
    assert embedded.tokens[0] == found.tokens


async def test_the_vector_of_a_long_text_is_that_of_the_whole(bench: Make):
    """As a classifier's is."""
    one = bench()

    found = await one.analyze(LONG)

    whole = await one.house.service.embed_whole([LONG])
    assert found.vector is not None
    assert cosine(found.vector, whole.vectors[0]) > 0.99999
    assert whole.tokens[0] == found.tokens > 2 * 256
    assert 2 < one.read


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("normalize", [True, False])
async def test_every_pooling_has_its_own_vector(tiny: TinyModels, bench: Make, pooling, normalize):
    """Short and long, normalised or not."""
    one = bench(tiny.folder("bert", pooling, normalize=normalize))

    for text in ("la factura is due", PAGE):
        found = await one.analyze(text, features=["vector"])
        whole = await one.house.service.embed_whole([text])
        np.testing.assert_allclose(found.vector, whole.vectors[0], atol=2e-5)  # type: ignore[arg-type]


async def test_a_hundred_kilobytes(bench: Make, tiny: TinyModels, monkeypatch):
    """Some windows at a time, added up off the loop; the end of the text counts."""
    threads, add = list[bool](), analysis._add

    def spied(*arguments: Any) -> None:
        threads.append(threading.current_thread() is threading.main_thread())
        add(*arguments)

    monkeypatch.setattr(analysis, "_add", spied)
    one = bench(tiny.folder("bert"), others=[])
    text = "la factura de total is due. " * 3_600

    found = await one.analyze(text, features=["vector", "key_sentences"])
    other = await one.analyze(text[:-28] + "zürich.", features=["vector"])

    whole = await one.house.service.embed_whole([text])
    assert len(text) > 100_000
    assert 30 < len(threads)
    assert not threads[0]
    np.testing.assert_allclose(found.vector, whole.vectors[0], atol=2e-5)  # type: ignore[arg-type]
    assert not np.array_equal(found.vector, other.vector)  # type: ignore[arg-type]
    assert found.key_sentences


# Phrases and sentences


@pytest.mark.parametrize("text", [PAGE, LONG], ids=["page", "long"])
async def test_key_sentences_and_phrases_stand_where_they_say(bench: Make, text):
    """In code points of the caller's text, each sentence once, in its order; phrases best first."""
    found = await bench().analyze(text, top_sentences=4, top_phrases=6)

    assert 4 == len(found.key_sentences)
    assert [text[one.start : one.end] for one in found.key_sentences] == [one.text for one in found.key_sentences]
    starts = [one.start for one in found.key_sentences]
    assert sorted(set(starts)) == starts
    assert 6 == len(found.key_phrases)
    for phrase in found.key_phrases:
        said = {" ".join(text[start:end].split()).casefold() for start, end in phrase.places}
        assert phrase.text.casefold() in said
    assert any(len(one.places) > 1 for one in found.key_phrases) == (text is LONG)
    assert [one for one in found.key_phrases if not 0.0 <= one.score <= 1.0] == []


async def test_sentences_are_weighed_by_their_own_tokens(bench: Make):
    """A sentence's vector is the mean of its tokens' in the text: near what it is alone, and nearest to itself."""
    one = bench()
    outline = analysis._outline(PAGE, one.house.catalog.embedding(), frozenset({"key_sentences"}))
    sums, _ = await one.service._read(outline, analysis.Urgency())
    texts = [PAGE[start:stop] for start, stop in outline.sentences]

    alone = (await one.house.service.embed(texts)).vectors

    assert len(texts) >= 5
    assert (sums.span_vectors() @ alone.T).argmax(axis=1).tolist() == list(range(len(texts)))


async def test_a_text_without_sentences_has_no_summary(bench: Make):
    """Nor phrases; nothing fails."""
    found = await bench().analyze("\n\n", features=["key_sentences", "key_phrases"])

    assert ((), ()) == (found.key_sentences, found.key_phrases)


# What is asked for


@pytest.mark.parametrize("feature", FEATURES)
async def test_each_feature_alone_is_what_it_is_among_all(bench: Make, feature):
    """The rest stays out."""
    one = bench()
    everything, alone = await one.analyze(PAGE), await one.analyze(PAGE, features=[feature])

    for name in FEATURES:
        mine, theirs = getattr(alone, name), getattr(everything, name)
        if name != feature:
            assert mine is None or mine == ()
        elif name == "vector":
            np.testing.assert_array_equal(mine, theirs)
        else:
            assert repr(mine) == repr(theirs)
            assert mine


@pytest.mark.parametrize("features", [["language"], ["entities"], ["language", "entities"]])
async def test_what_needs_no_vector_reads_none(bench: Make, features):
    """The encoder rests; the tokens told are those that were read."""
    one = bench()

    found = await one.analyze(PAGE, features=features)

    assert (0, []) == (one.read, one.house.engine.batches)
    assert ("entities" in features) == (found.tokens > 0)


async def test_one_pass_serves_everything(bench: Make):
    """Vector, phrases, sentences and classes from the same windows."""
    one = bench()

    found = await one.analyze(PAGE, features=["vector", "key_phrases", "key_sentences", "classes", "language"])

    assert (1, []) == (one.read, one.house.engine.batches)
    assert found.classes is not None
    assert (await one.desk.service.classify([PAGE])).rows[0].prediction == found.classes.prediction


async def test_classes_of_labels_or_of_another_model(scorers: TinyScorers, bench: Make):
    """As classify gives them; a classifier by name as well."""
    one = bench(others=[scoring_model(scorers.folder("bert"), "classifier")])
    classify = one.desk.service.classify

    for asked, named in (
        ({"labels": ["factura", "viaje"]}, {"labels": ["factura", "viaje"]}),
        ({}, {}),
        *[({"classifier": name}, {"model": name}) for name in ("document-type", "classifier")],
    ):
        found = await one.analyze(SHORT, features=["classes"], **asked)
        [expected] = (await classify([SHORT], **named)).rows
        assert found.classes is not None
        assert expected.prediction == found.classes.prediction
        assert [one.score for one in expected.predictions] == pytest.approx(
            [one.score for one in found.classes.predictions], abs=1e-5
        )


async def test_classes_are_left_out_where_nothing_can_tell_them(tiny: TinyModels, bench: Make):
    """Unless they were asked for by name: then the way to them is told."""
    one = bench(tiny.folder("bert"))

    found = await one.analyze(SHORT)

    assert (None, True) == (found.classes, found.vector is not None)
    with pytest.raises(InvalidField, match="give labels to choose from"):
        await one.analyze(SHORT, features=["classes"])


async def test_entities_are_those_of_the_entity_service(bench: Make):
    """Model and patterns, with its coverage."""
    one = bench()

    found = await one.analyze(SHORT, features=["entities"])

    [expected] = (await EntityService(one.house.catalog, one.house.inference, one.house.telemetry).find([SHORT])).rows
    assert (expected.entities, expected.coverage) == (found.entities, found.coverage)
    assert {"MONEY", "DATE"} <= {entity.type for entity in found.entities}


async def test_it_is_counted_once(bench: Make):
    """As an analysis, and its entities as entities; windows and vectors are nobody's inputs."""
    one = bench()

    found = await one.analyze(LONG)

    counts = {task: one.house.metric("inputs_total", task=task) for task in (TASK, "ner", "embeddings", "classifier")}
    assert {TASK: 1.0, "ner": 1.0, "embeddings": 0.0, "classifier": 0.0} == counts
    assert float(found.tokens) == one.house.metric("tokens_total", task=TASK)


async def test_urgency_reaches_every_part(bench: Make, clock):
    """Windows of the analysis and of the entities, and whatever classifies."""
    one = bench()
    submitted = list[tuple[Priority, float]]()
    submit = one.house.batcher.submit

    def spied(*arguments: Any, **options: Any) -> Any:
        submitted.append((options["priority"], options["deadline_s"]))
        return submit(*arguments, **options)

    one.house.batcher.submit = spied  # type: ignore[method-assign]
    await one.analyze(PAGE, labels=["factura", "viaje"], priority=Priority.BULK, deadline_s=clock() + 9)

    assert {(Priority.BULK, clock() + 9)} == set(submitted)
    assert len(submitted) >= 3


# Models that come and go


async def test_a_head_is_never_asked_about_another_models_vectors(bench: Make):
    """One that came while the text was read classifies it anew, by its own vectors and its own heads."""
    one = bench(others=[])
    old = one.house.catalog.embedding()
    new = replace(embedding_model("bundled"), spec=replace(spec_of("bundled"), sha256="b" * 64))
    read = one.service._read

    async def swapped(*arguments: Any) -> Any:
        result = await read(*arguments)
        one.house.catalog.replace(new)
        one.desk.classifiers.save("mail", head_of("b" * 64), [])
        one.desk.service.follow(new)
        return result

    one.service._read = swapped  # type: ignore[method-assign]
    found = await one.analyze(SHORT, features=["classes", "vector"], classifier="mail")

    assert found.classes is not None
    assert (0, 1) == (old.engine.jobs, new.engine.jobs)  # type: ignore[attr-defined]


# Faults


class Entities:
    """An entity service that ends as a test wants; ``state`` tells how it ended."""

    def __init__(self, error: FinanciaError | None = None) -> None:
        self.error, self.state, self.started = error, "not asked", asyncio.Event()

    async def find(self, texts: Any, **asked: Any) -> Any:
        self.started.set()
        self.state = "running"
        try:
            if self.error is not None:
                raise self.error
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.state = "cancelled"
            raise


def unseen_errors() -> list[str]:
    """What the loop hears of errors that nobody looked at."""
    heard = list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(str(context["message"])))
    return heard


def others() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[return-value,arg-type]


async def test_when_the_vectors_fail_the_entities_are_given_up(bench: Make, monkeypatch):
    """And nothing is left running."""
    entities, before = Entities(), others()
    one = bench(entities=entities)

    def broken(*arguments: Any, **options: Any) -> None:
        raise Overloaded(10, 5, 1.0)

    monkeypatch.setattr(one.house.batcher, "submit", broken)
    with pytest.raises(Overloaded):
        await one.analyze(PAGE)

    assert ("cancelled", set()) == (entities.state, others() - before)


async def test_when_both_fail_one_error_is_told_and_none_is_lost(bench: Make, monkeypatch):
    """A full queue refuses both: the loop must not hear of an error that nobody looked at."""
    heard = unseen_errors()
    one = bench(entities=Entities(Overloaded(10, 5, 1.0)))

    def broken(*arguments: Any, **options: Any) -> None:
        raise Overloaded(10, 5, 1.0)

    monkeypatch.setattr(one.house.batcher, "submit", broken)
    with pytest.raises(Overloaded):
        await one.analyze(PAGE)
    gc.collect()
    await asyncio.sleep(0)

    assert [] == heard


async def test_when_the_entities_fail_so_does_the_analysis(bench: Make):
    """With their error."""
    before = others()

    with pytest.raises(InferenceFailed, match="broken on purpose"):
        await bench(entities=Entities(InferenceFailed("broken on purpose"))).analyze(PAGE)

    assert set() == others() - before


async def test_a_caller_that_leaves_takes_everything_along(bench: Make):
    """Entities and windows."""
    entities, before = Entities(), others()
    one = bench(entities=entities)
    task = asyncio.create_task(one.analyze(PAGE, features=["entities"]))
    await entities.started.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert ("cancelled", set(), 0) == (entities.state, others() - before, one.house.flights)


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
async def test_any_text_is_analysed(bench: Make, text):
    """Places stay right and numbers finite."""
    found = await bench().analyze(text)

    assert found.vector is not None
    assert np.isfinite(found.vector).all()
    assert [text[one.start : one.end] for one in found.key_sentences] == [one.text for one in found.key_sentences]
    assert [text[one.start : one.end] for one in found.entities] == [one.text for one in found.entities]
