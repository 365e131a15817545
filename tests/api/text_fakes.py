"""Services for texts without a model, whose answers are easy to predict."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from backend.callers.callers import Caller
from backend.errors import InvalidField, NotFound, UnknownModel
from backend.lanes.inference import Timing
from backend.summaries.records import Source, Summary, SummaryOptions, SummaryResult, WrittenSentence
from backend.text.analysis import Analysis, KeySentence
from backend.text.answers import Absence, Answer, AnswerResult
from backend.text.classification import ClassificationResult, ClassifiedText, ClassifierInfo, Prediction
from backend.text.classifier_files import Example
from backend.text.entities import EntityResult, TextEntities
from backend.text.entity_merge import Entity, Lost
from backend.text.key_phrases import KeyPhrase
from backend.text.language import Language
from backend.text.reranking import RankedDocument, RerankResult

TIMING = Timing(0.0, 0.0002, 0.001, 0.0045)
ABSTAINS_BELOW = 0.4


@dataclass
class FakeService:
    """Records its calls; raises ``error`` where one is set; waits for ``gate`` where one is set."""

    error: Exception | None = None
    gate: asyncio.Event | None = None
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: int = 0
    calls: list[tuple[Any, ...]] = field(default_factory=list)

    async def enter(self, *call: Any) -> None:
        """Record a call; then raise, wait, or return at once."""
        self.calls.append(call)
        if self.error is not None:
            raise self.error
        if self.gate is None:
            return
        self.entered.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


class FakeEntities(FakeService):
    """Finds "Juan" in a text; "Ju" gave way to it."""

    async def find(self, texts: Sequence[str], **options: Any) -> EntityResult:
        await self.enter(list(texts), options)
        return EntityResult(tuple(_found_in(text) for text in texts), "tiny/ner", TIMING)


def _found_in(text: str) -> TextEntities:
    start = text.find("Juan")
    if start < 0:
        return TextEntities((), 0.5, len(text) + 2, ())
    winner = Entity("PER", "Juan", start, start + 4, 0.25, "model")
    loser = Entity("CODE", "Ju", start, start + 2, 0.75, "pattern", value="JU", valid=False)
    return TextEntities((winner,), 0.5, len(text) + 2, (Lost(loser, winner, "names are longer"),))


class FakeAnswers(FakeService):
    """The first word of the text answers every question; "x" answers nothing."""

    def require(self, name: str | None, task: str = "answer") -> None:
        if name not in (None, "tiny/answer"):
            raise UnknownModel(name, ("tiny/answer",))

    async def answer(self, questions: Sequence[str], text: str, **options: Any) -> AnswerResult:
        await self.enter([*questions, text], options)
        end = len(text.split(maxsplit=1)[0]) if text.strip() else 0
        reason: Absence | None = None if end and not text.startswith("x") else "not_there" if end else "empty_text"
        found = Answer(0, 0 if reason else end, 0.75, reason)
        return AnswerResult((found,) * len(questions), "tiny/answer", TIMING, len(text) + 2)

    async def label(self, labels: Mapping[str, str], texts: Sequence[str], **options: Any) -> EntityResult:
        """The first label names "Juan"."""
        await self.enter([labels, *texts], options)
        first = next(iter(labels))
        rows = (_found_in(text) for text in texts)
        named = [replace(row, entities=tuple(replace(one, type=first) for one in row.entities)) for row in rows]
        return EntityResult(tuple(named), "tiny/answer", TIMING)


class FakeClassification(FakeService):
    """Scores fall from label to label: the first has 1/2, the second 1/3. A text that says so makes it abstain."""

    def __init__(self) -> None:
        super().__init__()
        self.callers: list[Caller] = []  # of each training and deletion
        self.infos = {
            "document-type": _info("document-type", "bundled", ("invoice", "receipt", "contract"), None),
            "bundled": _info("bundled", "learnt", ("a", "b"), 7),  # the name that tests/api/test_app.py asks for
        }

    async def classify(
        self, texts: Sequence[str], *, labels: Sequence[str] | None = None, **options: Any
    ) -> ClassificationResult:
        await self.enter(list(texts), {"labels": labels, **options})
        model = options.get("model")
        if model not in (None, *self.infos):
            raise UnknownModel(model, tuple(self.infos))
        names = labels or self.infos["document-type"].labels
        rows = tuple(_classified(text, names[: options.get("top_k")]) for text in texts)
        return ClassificationResult(rows, model or "document-type", bool(options["multi_label"]), TIMING)

    async def classify_by_examples(
        self, texts: Sequence[str], examples: Sequence[Example], **options: Any
    ) -> ClassificationResult:
        await self.enter(list(texts), list(examples), options)
        names = list(dict.fromkeys(label for example in examples for label in example.labels))
        return ClassificationResult(tuple(_classified(text, names) for text in texts), "examples", False, TIMING, 3)

    async def predict(self, inputs: Sequence[str | tuple[str, str]], **options: Any) -> ClassificationResult:
        await self.enter(list(inputs), options)
        rows = tuple(_classified("".join(row), ("invoice", "receipt")) for row in inputs)
        return ClassificationResult(rows, "document-type", multi_label=False, timing=TIMING)

    async def train_classifier(
        self, name: str, examples: Mapping[str, Sequence[str]], **options: Any
    ) -> ClassifierInfo:
        self.callers.append(options.pop("caller"))
        await self.enter((name, dict(examples)), options)
        if name != name.lower():
            raise InvalidField(f"name: must be lower case, got '{name}'", param="name")
        self.infos[name] = _info(name, "learnt", tuple(examples), sum(map(len, examples.values())))
        return self.infos[name]

    def classifiers(self) -> list[ClassifierInfo]:
        return list(self.infos.values())

    async def delete_classifier(self, name: str, caller: Caller) -> None:
        self.callers.append(caller)
        if name not in self.infos:
            raise NotFound(f"name: there is no classifier '{name}'", param="name")
        if self.infos[name].kind == "bundled":
            raise InvalidField(f"name: '{name}' is bundled", param="name")
        del self.infos[name]


def _classified(text: str, labels: Sequence[str]) -> ClassifiedText:
    predictions = tuple(Prediction(label, 1 / (2 + index)) for index, label in enumerate(labels))
    best = None if text == "abstain" else predictions[0].label
    return ClassifiedText(predictions, best, predictions[0].score, len(text) + 2, text.startswith("long"))


def _info(name: str, kind: Any, labels: tuple[str, ...], examples: int | None) -> ClassifierInfo:
    learnt = kind == "learnt"
    return ClassifierInfo(
        name,
        kind,
        labels,
        multi_label=False,
        examples=examples,
        threshold=ABSTAINS_BELOW,
        accuracy=None if learnt else 0.95,
        created_s=1767225600.5 if learnt else None,
        tokens=(examples or 0) * 10 if learnt else 0,
    )


class FakeReranking(FakeService):
    """The longer a document, the better; its raw score is its length."""

    async def rerank(self, query: str, documents: Sequence[str], **options: Any) -> RerankResult:
        await self.enter((query, list(documents)), options)
        if options.get("model") not in (None, "bundled", "tiny/reranker"):
            raise UnknownModel(options["model"], ("tiny/reranker",))
        order = sorted(range(len(documents)), key=lambda index: -len(documents[index]))
        longest = len(documents[order[0]])
        ranked = [
            RankedDocument(index, len(documents[index]) / longest, float(len(documents[index]))) for index in order
        ]
        cut = tuple(index for index, text in enumerate(documents) if text.startswith("long"))
        tokens = sum(len(query) + len(text) for text in documents)
        return RerankResult(tuple(ranked[: options.get("top_n")]), "tiny/reranker", TIMING, tokens, cut)


class FakeAnalysis(FakeService):
    """Finds every feature in every text but "…", where it finds none."""

    async def analyze(self, text: str, **options: Any) -> Analysis:
        await self.enter(text, options)
        unknown = text == "…"
        return Analysis(
            language=None if unknown else Language("es", 0.75),
            key_phrases=() if unknown else (KeyPhrase(text[:4], 0.5, np.array([[0, 4], [6, 10]])),),
            key_sentences=() if unknown else (KeySentence(text, 0, len(text), 1.0),),
            classes=None if unknown else _classified(text, options["labels"] or ("invoice", "receipt")),
            entities=_found_in(text).entities,
            coverage=None if options["features"] == ["vector"] else 0.5,
            vector=np.array([0.5, -0.25, 1.0], np.float32),
            model="tiny/encoder",
            tokens=len(text) + 2,
            timing=TIMING,
        )


class FakeSummaries(FakeService):
    """An extract is the whole text as one sentence; what is written quotes it. ``empty`` says why there is none."""

    empty = ""

    async def summarize(self, text: str, options: SummaryOptions, **call: Any) -> SummaryResult:
        await self.enter(text, options, call)
        sentence, language = KeySentence(text, 0, len(text), 0.87654), Language("es", 0.75)
        summary = Summary("extractive", "tiny/encoder", text, language, (sentence,))
        if self.empty:
            summary = replace(summary, text="", sentences=(), warnings=(self.empty,))
        if options.method != "extractive":
            written = WrittenSentence("Texto.", (Source(text, 0, len(text), 0.5),), unsupported=True, why="why not")
            summary = Summary("model", "tiny/t5", "Texto.", language, written=(written,), coverage=0.5, tokens=3)
        return SummaryResult(summary, len(text) + 2 + summary.tokens, TIMING)
