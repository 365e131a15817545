"""``POST /v1/similarity``: cosines of one text with others, and calibrated scores."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal, NotRequired

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.api.json_io import json_response, read_json
from backend.api.request_context import Handle, call_service, context_of, limits_of
from backend.api.request_fields import LIMIT_KEYWORD, Count, Sentence, WireRequest, check_chars, check_count
from backend.api.routes.embeddings import TRUNCATE, TruncatedInputs, Usage
from backend.api.routing import post
from backend.models.tokenizer import Truncate
from backend.text.embeddings import EmbedOptions
from backend.text.similarity import SimilarityResult, SimilarityService

_similarity_of: Handle[SimilarityService] = Handle("similarity")


class CompareRequest(WireRequest):
    """The request of ``POST /v1/similarity``."""

    source: Sentence = Field(description="What the sentences are compared with.")
    sentences: Annotated[
        list[Sentence], Field(min_length=1, fail_fast=True, json_schema_extra={LIMIT_KEYWORD: "LIMIT_INPUTS"})
    ] = Field(description="The texts to compare, at most LIMIT_INPUTS.")
    model: str | None = Field(None, description="A name that GET /v1/models lists; unset: the one loaded.")
    dimensions: Count | None = Field(None, description="Leading dimensions to compare, at most the model's width.")
    truncate: Truncate | None = Field("end", description=TRUNCATE)
    prompt_name: str | None = Field(None, description="One of the model's prompts, put before each text.")

    def options(self) -> EmbedOptions:
        """The options of the embedding service."""
        return EmbedOptions(
            truncate=self.truncate or "end", prompt_name=self.prompt_name, normalize=True, dimensions=self.dimensions
        )


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


async def compare(request: Request) -> Response:
    """Cosine and calibrated score of each sentence with the source, in the order of the sentences.

    `score` estimates how alike people would find the two texts, whatever the model's range of cosines. `truncated`
    counts the source as input 0 and the first sentence as input 1.
    """
    body = await read_json(request, CompareRequest)
    check_count(body.sentences, limits_of(request), "sentences")
    characters = check_chars([body.source, *body.sentences], limits_of(request), "sentences")
    call = partial(_similarity_of(request).compare, body.source, body.sentences, body.options(), model=body.model)
    compared = await call_service(request, call, characters=characters)
    context = context_of(request)
    context.timing = compared.embedded.timing
    context.meter.charge("tokens", sum(compared.embedded.tokens))
    return json_response(similarity_answer(compared))


ROUTES = (
    post(
        "/v1/similarity",
        compare,
        tag="texts",
        request=CompareRequest,
        examples={
            "sentences": {
                "source": "La factura vence el 31 de marzo.",
                "sentences": ["Payment is due on 31 March.", "Nuestra oficina abre a las nueve."],
            }
        },
        schema=SimilarityAnswer,
        example={
            "object": "list",
            "model": "intfloat/multilingual-e5-small",
            "results": [
                {"index": 0, "cosine": 0.9312, "score": 0.5817},
                {"index": 1, "cosine": 0.8329, "score": 0.161},
            ],
            "usage": {"prompt_tokens": 34, "total_tokens": 34},
        },
    ),
)
