"""Requests for vectors and tokens, in the shapes of OpenAI and text-embeddings-inference, and to load a model."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from backend.api.requests.fields import LIMIT_KEYWORD, Count, Inputs, Sentence, TextInputs, WireRequest
from backend.models.tokenizer import Truncate
from backend.services.embeddings import EmbedOptions

TRUNCATE = "Which end of a text beyond the model's length is cut; none answers 413 instead."


class EmbeddingsRequest(WireRequest):
    """OpenAI's request, with four fields more: ``truncate``, ``prompt_name``, ``normalize`` and the ids' meaning."""

    input: Inputs = Field(description="What to embed. Token ids must be this model's own.")
    model: str | None = Field(None, description="A name that GET /v1/models lists; unset: the one loaded.")
    encoding_format: Literal["float", "base64"] | None = Field(
        "float", description="base64: little-endian float32, a third of the bytes."
    )
    dimensions: Count | None = Field(None, description="Leading dimensions to keep, at most the model's width.")
    user: Any = Field(None, description="Accepted and ignored.")
    truncate: Truncate | None = Field("end", description=TRUNCATE)
    prompt_name: str | None = Field(None, description="One of the model's prompts, put before each text.")
    normalize: bool | None = Field(None, description="Scale vectors to length 1; unset: as the model was trained.")

    def options(self) -> EmbedOptions:
        """The options of the embedding service."""
        return EmbedOptions(
            truncate=self.truncate or "end",
            prompt_name=self.prompt_name,
            normalize=self.normalize,
            dimensions=self.dimensions,
        )


class TruncatingRequest(WireRequest):
    """The two fields by which text-embeddings-inference says how a long text is read."""

    truncate: bool | None = Field(None, description="false: 413 for a text beyond the model's length.")
    truncation_direction: Literal["left", "right", "Left", "Right"] | None = Field(
        "right", description="The side that is cut."
    )

    def truncation(self) -> Truncate:
        """The two fields as the service's one option."""
        if self.truncate is False:
            return "none"
        return "start" if self.truncation_direction in ("left", "Left") else "end"


class _PromptedRequest(TruncatingRequest):
    prompt_name: str | None = Field(None, description="One of the model's prompts, put before each text.")


class EmbedRequest(_PromptedRequest):
    """The request of text-embeddings-inference's ``/embed``."""

    inputs: Inputs = Field(description="What to embed. Token ids must be this model's own.")
    normalize: bool | None = Field(True, description="Scale vectors to length 1.")
    dimensions: Count | None = Field(None, description="Leading dimensions to keep, at most the model's width.")

    def options(self) -> EmbedOptions:
        """The options of the embedding service."""
        return EmbedOptions(
            truncate=self.truncation(),
            prompt_name=self.prompt_name,
            normalize=self.normalize is not False,
            dimensions=self.dimensions,
        )


class SimilarityInput(WireRequest):
    """One sentence and those it is compared with."""

    source_sentence: Sentence
    sentences: Annotated[
        list[Sentence], Field(min_length=1, fail_fast=True, json_schema_extra={LIMIT_KEYWORD: "LIMIT_INPUTS"})
    ]


class SimilarityParameters(_PromptedRequest):
    """How the sentences are read."""

    def options(self) -> EmbedOptions:
        """The options of the embedding service."""
        return EmbedOptions(truncate=self.truncation(), prompt_name=self.prompt_name, normalize=True)


class SimilarityRequest(WireRequest):
    """The request of text-embeddings-inference's ``/similarity``."""

    inputs: SimilarityInput
    parameters: SimilarityParameters | None = None


class TokenizeRequest(WireRequest):
    """The request of text-embeddings-inference's ``/tokenize``."""

    inputs: TextInputs = Field(description="What to cut into tokens.")
    add_special_tokens: bool = Field(True, description="Put the model's own marks around each text.")
    prompt_name: str | None = Field(None, description="One of the model's prompts, put before each text.")


class LoadModelRequest(BaseModel):
    """`POST /admin/models`."""

    task: Literal["embeddings", "ner", "classifier", "reranker"] = Field(
        "embeddings", description="Which of the served models to replace."
    )
    source: str = Field(min_length=1, max_length=1000, description="A folder on the server, a hub id, or bundled.")


REQUESTS: tuple[type[BaseModel], ...] = (
    EmbeddingsRequest,
    EmbedRequest,
    SimilarityRequest,
    TokenizeRequest,
    LoadModelRequest,
)
