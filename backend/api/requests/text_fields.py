"""The request to read the fields of a text; files come as uploads."""

from __future__ import annotations

from pydantic import BaseModel, Field

from backend.api.requests.fields import TextItem, WireRequest


class FieldsRequest(WireRequest):
    """`POST /v1/fields` with a text."""

    input: TextItem = Field(
        description="The text of an invoice, a receipt or a statement, its lines and columns as they are set on paper."
    )


REQUESTS: tuple[type[BaseModel], ...] = (FieldsRequest,)
