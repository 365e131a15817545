"""infinity's answers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from backend.api.responses.embeddings import EmbeddingsAnswer, Usage, usage
from backend.api.responses.operations import ModelCard, model_card
from backend.api.responses.texts import PredictionAnswer, tei_predictions
from backend.serving.catalog import LoadedModel
from backend.serving.engines.embeddings import TASK as EMBEDDINGS
from backend.serving.engines.ner import TASK as NER
from backend.serving.engines.scoring import CLASSIFIER, RERANKER
from backend.text.classification import ClassificationResult
from backend.text.reranking import RerankResult

_Id = Annotated[str, Field(description="The request's id, as in X-Request-Id.")]
_Created = Annotated[int, Field(description="Unix seconds.")]
# What each model can do without another's help: the vectors classify and rank, too.
_CAPABILITIES = {EMBEDDINGS: ["embed", "rerank", "classify"], CLASSIFIER: ["classify"], RERANKER: ["rerank"], NER: []}


class InfinityEmbeddings(EmbeddingsAnswer):
    """OpenAI's list of embeddings with infinity's two fields more."""

    id: _Id
    created: _Created


class InfinityRank(TypedDict):
    """One document and how much it says about the query."""

    relevance_score: Annotated[float, Field(description="0 to 1, unless raw_scores.")]
    index: Annotated[int, Field(description="Place of the document in the request.")]
    document: NotRequired[Annotated[str | None, Field(default=None, description="Absent if not wanted.")]]


class InfinityRanks(TypedDict):
    """`POST /rerank` with `documents`."""

    object: Literal["rerank"]
    results: Annotated[list[InfinityRank], Field(description="Best first.")]
    model: str
    usage: Usage
    id: _Id
    created: _Created


class InfinityClasses(TypedDict):
    """`POST /classify`."""

    object: Literal["classify"]
    data: Annotated[list[list[PredictionAnswer]], Field(description="Of each text every label, best first.")]
    model: str
    usage: Usage
    id: _Id
    created: _Created


class InfinityStats(TypedDict):
    """How loaded the service is."""

    queue_absolute: Annotated[int, Field(description="Work items that wait, of all models.")]
    results_pending: Annotated[int, Field(description="The same, and the batches that run.")]
    batch_size: Annotated[int, Field(description="Most inputs of one request, LIMIT_INPUTS.")]


class InfinityModelCard(ModelCard):
    """A loaded model in infinity's words beside OpenAI's."""

    stats: InfinityStats
    backend: Annotated[str, Field(description="torch, onnx or openvino.")]
    capabilities: list[str]


class InfinityModels(TypedDict):
    """`GET /models`."""

    object: Literal["list"]
    data: list[InfinityModelCard]


def _now_s() -> int:
    return int(time.time())  # noqa: TID251 - a date, as infinity's answers carry it


def infinity_fields(request_id: str) -> dict[str, Any]:
    """The two fields that each of infinity's answers has."""
    return {"id": request_id, "created": _now_s()}


def infinity_ranks(
    reranked: RerankResult, texts: Sequence[str] | None, request_id: str, *, raw_scores: bool
) -> InfinityRanks:
    """The ranked documents, best first, each with its text unless ``texts`` is None."""
    results: list[InfinityRank] = [
        {"relevance_score": ranked.raw_score if raw_scores else ranked.score, "index": ranked.index}
        for ranked in reranked.results
    ]
    if texts is not None:
        for result in results:
            result["document"] = texts[result["index"]]
    return {
        "object": "rerank",
        "results": results,
        "model": reranked.model,
        "usage": usage(reranked.tokens),
        "id": request_id,
        "created": _now_s(),
    }


def infinity_classes(classified: ClassificationResult, request_id: str) -> InfinityClasses:
    """The classes of each text, every label with its score, the best first."""
    return {
        "object": "classify",
        "data": [tei_predictions(row.predictions) for row in classified.rows],
        "model": classified.model,
        "usage": usage(classified.tokens),
        "id": request_id,
        "created": _now_s(),
    }


def infinity_model(model: LoadedModel, stats: InfinityStats) -> InfinityModelCard:
    """A model as infinity's clients read it; they refuse any other owner than infinity."""
    return {
        **model_card(model),
        "owned_by": "infinity",
        "stats": stats,
        "backend": model.runtime,
        "capabilities": _CAPABILITIES.get(model.task, []),
    }


SCHEMAS: tuple[type, ...] = (InfinityEmbeddings, InfinityRanks, InfinityClasses, InfinityModels)
