"""The answer of ``POST /v1/similarity``."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from backend.api.responses.embeddings import TruncatedInputs, Usage
from backend.text.similarity import SimilarityResult


class ComparedAnswer(TypedDict):
    """One sentence beside the source."""

    index: Annotated[int, Field(description="Place of the sentence in the request.")]
    cosine: Annotated[float, Field(description="Of the two vectors; each model has a range of its own.")]
    score: Annotated[float, Field(ge=0, le=1, description="0: nothing in common, 1: the same meaning.")]


class SimilarityAnswer(TypedDict):
    """`POST /v1/similarity`."""

    object: Literal["list"]
    model: str
    results: Annotated[list[ComparedAnswer], Field(description="In the order of the sentences.")]
    usage: Usage
    truncated: NotRequired[TruncatedInputs]


def similarity_answer(compared: SimilarityResult) -> SimilarityAnswer:
    """The answer; the source counts as input 0 of those that were cut."""
    embedded = compared.embedded
    tokens = sum(embedded.tokens)
    pairs = zip(compared.cosines, compared.scores, strict=True)
    answer: SimilarityAnswer = {
        "object": "list",
        "model": embedded.model.name,
        "results": [{"index": index, "cosine": cosine, "score": score} for index, (cosine, score) in enumerate(pairs)],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    if truncated := [place for place, cut in enumerate(embedded.truncated) if cut]:
        answer["truncated"] = truncated
    return answer


SCHEMAS: tuple[type, ...] = (SimilarityAnswer,)
