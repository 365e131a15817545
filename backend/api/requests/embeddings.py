"""Requests for vectors and tokens, in the shapes of OpenAI, Jina, infinity and text-embeddings-inference.

Also the request to load a model.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field

from backend.api.requests.fields import (
    LIMIT_KEYWORD,
    AnyTruncate,
    Count,
    InfinityModel,
    Inputs,
    InputsOrObjects,
    NotServed,
    Sentence,
    TextInputs,
    WireRequest,
)
from backend.api.requests.prompts import InputType, Prompts, Task
from backend.errors import InvalidField
from backend.models.tokenizer import Truncate
from backend.text.embeddings import EmbedOptions

EmbeddingType = Literal["float", "base64", "int8", "uint8", "binary", "ubinary"]  # of VECTOR_ENCODINGS
PROMPT_NAME = "One of the model's prompts, put before each text; GET /v1/models lists them."
TRUNCATE = "Which end of a text beyond the model's length is cut; none answers 413 instead."


class EmbeddingsRequest(WireRequest):
    """OpenAI's request, with fields of ours and of Jina's, NVIDIA's and Voyage's clients."""

    input: InputsOrObjects = Field(description="What to embed. Token ids must be this model's own.")
    model: str | None = Field(None, description="A name that GET /v1/models lists; unset: the one loaded.")
    encoding_format: Literal["float", "base64"] | None = Field(
        "float", description="base64: little-endian float32, a third of the bytes."
    )
    dimensions: Count | None = Field(
        None,
        validation_alias=AliasChoices("dimensions", "output_dimension"),
        description="Leading dimensions to keep, at most the model's width; Voyage's output_dimension.",
    )
    user: Any = Field(None, description="Accepted and ignored.")
    truncate: AnyTruncate = Field("end", description=f"{TRUNCATE} Jina's true is end, its false none.")
    prompt_name: str | None = Field(None, description=PROMPT_NAME)
    task: Task = Field(
        None, description="Jina's word for what the texts are for; chooses the prompt, where there is one."
    )
    input_type: InputType = Field(None, description="The same in the words of Cohere, NVIDIA and Voyage.")
    normalize: bool | None = Field(
        None,
        validation_alias=AliasChoices("normalize", "normalized"),
        description="Scale vectors to length 1; unset: as the model was trained. Jina's normalized.",
    )
    embedding_type: EmbeddingType | None = Field(
        None,
        validation_alias=AliasChoices("embedding_type", "encoding_type"),
        description="Jina's word for the numbers of a vector; goes before encoding_format.",
    )
    late_chunking: NotServed = Field(None, description="Not served: each text is embedded by itself.")
    return_multivector: NotServed = Field(None, description="Not served: a text has one vector.")

    def options(self) -> EmbedOptions:
        """The options of the embedding service.

        Raises: InvalidField where several fields ask for a prompt, or one does for token ids.
        """
        return EmbedOptions(
            truncate=self.truncate or "end",
            prompt_name=_prompt_name(self.prompt_name, self.input),
            prompts=self._prompts(),
            normalize=self.normalize,
            dimensions=self.dimensions,
        )

    @property
    def encoding(self) -> str:
        """How vectors are written; a name of VECTOR_ENCODINGS."""
        return self.embedding_type or self.encoding_format or "float"

    def _prompts(self) -> Prompts:
        if self.task is None and self.input_type is None:
            return ()
        name = "task" if self.task is not None else "input_type"
        if [self.prompt_name, self.task, self.input_type].count(None) < 2:
            raise InvalidField(
                f"{name}: send one of prompt_name, task and input_type; each chooses a prompt", param=name
            )
        require_texts_for_prompt(self.input, name)
        prompts: Prompts = self.task if self.task is not None else self.input_type
        return prompts


def _none_for_zero(value: Any) -> Any:
    """infinity's own client sends 0 for all dimensions."""
    return None if type(value) in (int, float) and value == 0 else value


class InfinityEmbeddingsRequest(EmbeddingsRequest):
    """The same as infinity's clients send it."""

    model: InfinityModel = Field(None, description="A name that GET /models lists; unset: the one loaded.")
    dimensions: Annotated[Count | None, BeforeValidator(_none_for_zero)] = Field(
        None,
        validation_alias=AliasChoices("dimensions", "output_dimension"),
        description="Leading dimensions to keep, at most the model's width; 0: all.",
        json_schema_extra={"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]},
    )
    modality: Literal["text"] | None = Field("text", description="Images and audio are not read.")


def require_texts_for_prompt(inputs: Any, name: str) -> None:
    """Raise InvalidField (422) for token ids: a prompt goes before texts. ``name`` is the field that asks for one."""
    if type(inputs[0]) is list:
        raise InvalidField(
            f"{name}: goes before texts; token ids are read as they are, put the prompt's own first", param=name
        )


def _prompt_name(name: str | None, inputs: Any) -> str | None:
    if name:
        require_texts_for_prompt(inputs, "prompt_name")
    return name


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
    prompt_name: str | None = Field(None, description=PROMPT_NAME)


class EmbedRequest(_PromptedRequest):
    """The request of text-embeddings-inference's ``/embed``."""

    inputs: Inputs = Field(description="What to embed. Token ids must be this model's own.")
    normalize: bool | None = Field(True, description="Scale vectors to length 1.")
    dimensions: Count | None = Field(None, description="Leading dimensions to keep, at most the model's width.")

    def options(self) -> EmbedOptions:
        """The options of the embedding service."""
        return EmbedOptions(
            truncate=self.truncation(),
            prompt_name=_prompt_name(self.prompt_name, self.inputs),
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
    prompt_name: str | None = Field(None, description=PROMPT_NAME)


class LoadModelRequest(BaseModel):
    """`POST /admin/models`."""

    task: Literal["embeddings", "ner", "classifier", "reranker", "summaries"] = Field(
        "embeddings", description="Which of the served models to replace."
    )
    source: str = Field(min_length=1, max_length=1000, description="A folder on the server, a hub id, or bundled.")
    replicas: Literal["this", "all"] = Field(
        "this",
        description="Which replicas serve it: this one until it ends, or all that share REDIS_URL or SEARCH_URL.",
    )


REQUESTS: tuple[type[BaseModel], ...] = (
    EmbeddingsRequest,
    InfinityEmbeddingsRequest,
    EmbedRequest,
    SimilarityRequest,
    TokenizeRequest,
    LoadModelRequest,
)
