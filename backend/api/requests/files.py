"""The form fields beside a file that is kept."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from backend.errors import InvalidField
from backend.search.files import LEAST_EXPIRY_S, MOST_EXPIRY_S

Purpose = Literal["assistants", "batch", "fine-tune", "vision", "user_data", "evals"]
_ANCHOR, _SECONDS = "expires_after[anchor]", "expires_after[seconds]"


def _none_if_empty(value: Any) -> Any:
    return None if value == "" else value


class FileForm(BaseModel):
    """`POST /v1/files`."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    purpose: Annotated[Purpose, WithJsonSchema({"enum": list(get_args(Purpose))})] = Field(
        description="What OpenAI's clients say; every file may be added to vector stores."
    )
    anchor: Annotated[
        Literal["created_at"] | None, BeforeValidator(_none_if_empty), WithJsonSchema({"enum": ["", "created_at"]})
    ] = Field(None, alias=_ANCHOR, description="With seconds: from when they count.")
    seconds: Annotated[
        int | None,
        BeforeValidator(_none_if_empty),
        WithJsonSchema({"type": "integer", "minimum": LEAST_EXPIRY_S, "maximum": MOST_EXPIRY_S}),
    ] = Field(None, alias=_SECONDS, ge=LEAST_EXPIRY_S, le=MOST_EXPIRY_S, description="After which the file is deleted.")

    @model_validator(mode="after")
    def _is_whole(self) -> FileForm:
        if (self.anchor is None) != (self.seconds is None):
            raise InvalidField(f"{_SECONDS}: send it together with {_ANCHOR}=created_at", param="expires_after")
        return self


REQUESTS: tuple[type[BaseModel], ...] = (FileForm,)
