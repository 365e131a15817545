"""Requests to rank texts by relevance to a query: Cohere's, Jina's, text-embeddings-inference's and infinity's."""

from __future__ import annotations

from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationInfo, WithJsonSchema, model_validator

from backend.api.requests.embeddings import TRUNCATE, TruncatingRequest
from backend.api.requests.fields import TEXT, Count, FilledTexts, InfinityModel, Sentence, WireRequest, many, only
from backend.api.requests.validation import require_no_empty_items, require_not_empty, wrong_type
from backend.errors import InvalidField
from backend.models.tokenizer import Truncate

Document = str | dict[str, Any]
# Objects have the field text, unless rank_fields names others.
_OTHER_FIELDS: dict[str, Any] = {"properties": {"rank_fields": {"type": "array"}}, "required": ["rank_fields"]}
_TEXT_FIELD: dict[str, Any] = {
    "properties": {
        "documents": {"items": {"anyOf": [{"type": "string"}, {"properties": {"text": TEXT}, "required": ["text"]}]}}
    }
}


def _check_documents(value: Any, info: ValidationInfo) -> list[Document]:
    name = info.field_name or "documents"
    if type(value) is not list:
        raise wrong_type(name, value, "a list of texts or of objects with the field text")
    require_not_empty(value, name)
    for index, document in enumerate(value):
        if type(document) not in (str, dict):
            raise wrong_type(f"{name}[{index}]", document, "a text or an object with the field text")
    return value


class RerankRequest(WireRequest):
    """The request of Cohere's and Jina's clients."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [_OTHER_FIELDS, _TEXT_FIELD]})

    query: Sentence = Field(description="What the documents are to say something about.")
    documents: Annotated[
        Any,
        PlainValidator(_check_documents),
        WithJsonSchema(many({"oneOf": [TEXT, {"type": "object"}]})),
    ] = Field(description="Texts, or objects with the field text, at most LIMIT_INPUTS.")
    model: str | None = Field(None, description="A name that GET /v1/models lists; unset: the one loaded.")
    top_n: Count | None = Field(None, description="How many results to answer with, best first; unset: all.")
    return_documents: bool | None = Field(
        None, description="Whether results carry their documents; unset: true as Jina's, on /v2 false as Cohere's."
    )
    rank_fields: Annotated[list[str], Field(min_length=1)] | None = Field(
        None, description="Fields of the documents that are read, in this order, where they are objects; unset: text."
    )
    truncate: Truncate | None = Field("end", description=TRUNCATE)
    max_tokens_per_doc: Any = Field(None, description="Accepted and ignored: documents are read to the model's length.")

    def texts(self) -> list[str]:
        """The text to rank of each document, in their order.

        Raises: BadInput for an empty one, InvalidField for one without any of the fields.
        """
        texts = [self._text(document, f"documents[{index}]") for index, document in enumerate(self.documents)]
        require_no_empty_items(texts, "documents")
        return texts

    def _text(self, document: Document, place: str) -> str:
        if isinstance(document, str):
            return document
        fields = self.rank_fields or ["text"]
        values = {field: document[field] for field in fields if field in document}
        if not values:
            where = "the fields of rank_fields" if self.rank_fields else "a text, or an object with the field text"
            raise InvalidField(f"{place}: must have {where}", param="documents")
        for field, value in values.items():
            if type(value) is not str:
                raise wrong_type(f"{place}.{field}", value, "a text")
        return "\n".join(values.values())


class RankTextsRequest(TruncatingRequest):
    """The requests of text-embeddings-inference's ``/rerank`` and of infinity's, told by what they call the texts."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [only("texts", "documents"), only("documents", "texts")]})

    query: Sentence = Field(description="What the texts are to say something about.")
    texts: FilledTexts | None = Field(None, description="What is ranked, of text-embeddings-inference's clients.")
    documents: FilledTexts | None = Field(None, description="What is ranked, of infinity's clients.")
    raw_scores: bool | None = Field(False, description="The model's own scores instead of 0 to 1.")
    return_text: bool | None = Field(False, description="Whether results carry their texts, beside texts.")
    return_documents: bool | None = Field(False, description="Whether results carry their texts, beside documents.")
    top_n: Count | None = Field(None, description="How many results to answer with; beside documents.")
    model: InfinityModel = Field(None, description="A name that GET /models lists; beside documents.")

    @model_validator(mode="after")
    def _one_kind(self) -> RankTextsRequest:
        if (self.texts is None) == (self.documents is None):
            raise InvalidField(
                "texts: send either texts (text-embeddings-inference) or documents (infinity)", param="texts"
            )
        return self

    def contents(self) -> list[str]:
        """What is ranked."""
        return cast("list[str]", self.texts if self.documents is None else self.documents)


REQUESTS: tuple[type[BaseModel], ...] = (RerankRequest, RankTextsRequest)
