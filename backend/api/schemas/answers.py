"""The answers on the wire, for OpenAPI only: answers are written by hand and never pass through here."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field


class EmbeddingItem(BaseModel):
    """One vector."""

    object: Literal["embedding"]
    index: int = Field(description="Place of its input in the request.")
    embedding: list[float] | str = Field(description="Numbers, or base64 of little-endian float32.")


class Usage(BaseModel):
    """Tokens read, special tokens included, after cutting."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(BaseModel):
    """OpenAI's list of embeddings."""

    object: Literal["list"]
    data: list[EmbeddingItem]
    model: str
    usage: Usage
    truncated: list[int] | None = Field(None, description="Indices of inputs that were cut; absent when none was.")


class TokenAnswer(BaseModel):
    """One token of a text."""

    id: int
    text: str
    special: bool
    start: int | None = Field(description="First code point in the caller's text; null for special tokens.")
    stop: int | None


class Info(BaseModel):
    """text-embeddings-inference's description of a server."""

    model_id: str
    model_sha: str | None
    model_dtype: str
    model_type: dict[str, Any]
    max_input_length: int
    max_batch_tokens: int
    max_client_batch_size: int
    payload_limit: int
    auto_truncate: bool
    version: str


class ModelCard(BaseModel):
    """One loaded model: OpenAI's four fields and what runs it."""

    id: str
    object: Literal["model"]
    created: int = Field(description="Unix seconds at which it was loaded.")
    owned_by: str
    names: list[str] = Field(description="Every name a request may give it.")
    task: str
    source: str
    revision: str
    device: str
    dtype: str
    runtime: str
    max_tokens: int = Field(description="Longest text, special tokens included.")
    width: int = Field(description="Numbers in a vector.")
    pooling: str
    normalize: bool
    prompts: list[str] = Field(description="Names that `prompt_name` may take.")
    labels: list[str] = Field(description="Of a classifier, in the order of its probabilities; empty for others.")


class ModelList(BaseModel):
    """OpenAI's list of models."""

    object: Literal["list"]
    data: list[ModelCard]


class Live(BaseModel):
    """The process answers."""

    status: Literal["alive"]


class Ready(BaseModel):
    """Requests are answered; when not, a problem with ``reasons`` is sent instead."""

    status: Literal["ready"]
    reasons: list[str]


ANSWERS: tuple[type[BaseModel], ...] = (EmbeddingsAnswer, TokenAnswer, Info, ModelCard, ModelList, Live, Ready)
