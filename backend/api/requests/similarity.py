"""The request to compare one text with others."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from backend.api.requests.embeddings import TRUNCATE
from backend.api.requests.fields import LIMIT_KEYWORD, Count, Sentence, WireRequest
from backend.models.tokenizer import Truncate
from backend.text.embeddings import EmbedOptions


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
            truncate=self.truncate or "end",
            prompt_name=self.prompt_name,
            normalize=True,
            dimensions=self.dimensions,
        )


REQUESTS: tuple[type[BaseModel], ...] = (CompareRequest,)
