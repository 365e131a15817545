"""Requests for summaries: of a text as JSON, or of a file with form fields."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema, model_validator

from backend.api.requests.fields import WHOLE, TextItem, WireRequest
from backend.errors import InvalidField
from backend.summaries.records import RequestedMethod, SummaryOptions

MOST_SENTENCES = 100
LEAST_TOKENS, MOST_TOKENS = 8, 2048
MOST_BEAMS = 8


def _none_if_empty(value: Any) -> Any:
    """An empty field, as browsers' forms send them, counts as absent."""
    return None if value == "" else value


def _whole_or_empty(least: int, most: int) -> WithJsonSchema:
    whole = {"type": "integer", "minimum": least, "maximum": most}
    return WithJsonSchema({"anyOf": [whole, {"const": ""}]})


SentencesOrEmpty = Annotated[
    Annotated[int, Field(ge=1, le=MOST_SENTENCES)] | None,
    BeforeValidator(_none_if_empty),
    _whole_or_empty(1, MOST_SENTENCES),
]
MaxTokensOrEmpty = Annotated[
    Annotated[int, Field(ge=LEAST_TOKENS, le=MOST_TOKENS)] | None,
    BeforeValidator(_none_if_empty),
    _whole_or_empty(LEAST_TOKENS, MOST_TOKENS),
]
_METHOD = (
    "extractive: the text's own sentences. abstractive: written by SUMMARY_MODEL, where that is not set by SUMMARY_URL;"
    " model and api name one of them."
)
_SENTENCES = "Most sentences; unset: 3 of an extract without max_tokens, else any number."
_MAX_TOKENS = "Most tokens: of the embedding model in an extract, of the model that writes it else (unset: 128)."
_MIN_TOKENS = "Fewest tokens that SUMMARY_MODEL writes."
_BEAMS = "Beams of SUMMARY_MODEL; 1: greedy, 4: slower and often better."


class SummarizeRequest(WireRequest):
    """`POST /v1/summarize` with a text."""

    input: TextItem = Field(description="One text up to LIMIT_TEXT_CHARS, as it is or as {text}.")
    method: RequestedMethod | None = Field("extractive", description=_METHOD)
    sentences: Annotated[int, Field(ge=1, le=MOST_SENTENCES), WHOLE] | None = Field(None, description=_SENTENCES)
    max_tokens: Annotated[int, Field(ge=LEAST_TOKENS, le=MOST_TOKENS), WHOLE] | None = Field(
        None, description=_MAX_TOKENS
    )
    min_tokens: Annotated[int, Field(ge=0, le=MOST_TOKENS), WHOLE] = Field(0, description=_MIN_TOKENS)
    beams: Annotated[int, Field(ge=1, le=MOST_BEAMS), WHOLE] = Field(1, description=_BEAMS)

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> SummarizeRequest:
        if not self.input.strip():
            raise InvalidField("input: it has blanks alone; send a text to summarise", param="input")
        require_min_below_max(self.min_tokens, self.max_tokens)
        return self

    def options(self) -> SummaryOptions:
        """The options of the summary service."""
        return SummaryOptions(self.method or "extractive", self.sentences, self.max_tokens, self.min_tokens, self.beams)


def require_min_below_max(least: int, most: int | None, prefix: str = "") -> None:
    """Raise InvalidField (422) where fewer tokens are allowed than wanted.

    Args:
        prefix: of the two fields' names.
    """
    if most is not None and least > most:
        raise InvalidField(
            f"{prefix}min_tokens: {least} is more than {prefix}{'max_tokens' if not prefix else 'tokens'}, {most}",
            param=f"{prefix}min_tokens",
        )


REQUESTS: tuple[type[BaseModel], ...] = (SummarizeRequest,)
