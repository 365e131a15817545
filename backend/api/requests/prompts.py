"""The words by which clients of other services say what a text is for, and the prompts that fit each.

Each word stands for names of prompts, best first: the first that the model has is used, and a model without any of them
reads the text as it does without a word. A prompt of the very name that the client says goes before others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import PlainValidator, ValidationInfo, WithJsonSchema

from backend.errors import InvalidField

Prompts = tuple[str, ...]  # names, best first

_QUERY: Prompts = ("query", "search_query", "retrieval.query")
_PASSAGE: Prompts = ("passage", "document", "search_document", "retrieval.passage")
_CLASSES: Prompts = ("classification", *_QUERY)
_CLUSTERS: Prompts = ("clustering", "separation", *_QUERY)
_CODE = ("code", "nl2code", "code2code", "code2nl", "code2completion", "qa")

INPUT_TYPES: Mapping[str, Prompts] = {  # Cohere's, NVIDIA's and Voyage's
    "search_query": _QUERY,
    "search_document": _PASSAGE,
    "query": _QUERY,
    "passage": _PASSAGE,
    "document": _PASSAGE,
    "classification": _CLASSES,
    "clustering": _CLUSTERS,
}
# Jina's. Those of one side only are plain, because both sides must then be read alike: measured, no prompt on either
# side finds more than the prompt of queries on both (docs/text.md).
TASKS: Mapping[str, Prompts] = {
    "retrieval.query": ("retrieval.query", *_QUERY),
    "retrieval.passage": ("retrieval.passage", *_PASSAGE),
    "retrieval": (),
    "text-matching": ("text-matching",),
    "classification": _CLASSES,
    "clustering": _CLUSTERS,
    "separation": ("separation", *_CLUSTERS),
    **{f"{kind}.query": (f"{kind}.query", *_QUERY) for kind in _CODE},
    **{f"{kind}.passage": (f"{kind}.passage", *_PASSAGE) for kind in _CODE},
    **dict.fromkeys(_CODE, ()),
}


def _word_of(words: Mapping[str, Prompts], value: Any, info: ValidationInfo) -> Prompts | None:
    name = info.field_name or "input_type"
    if value is None:
        return None
    if value == "image":
        raise InvalidField(f"{name}: images are not read, only texts", param=name)
    prompts = words.get(value) if type(value) is str else None
    if prompts is None:
        raise InvalidField(f"{name}: must be one of {', '.join(words)}; got {value!r:.60}", param=name)
    return prompts


def _check_input_type(value: Any, info: ValidationInfo) -> Prompts | None:
    return _word_of(INPUT_TYPES, value, info)


def _check_task(value: Any, info: ValidationInfo) -> Prompts | None:
    return _word_of(TASKS, value, info)


InputType = Annotated[Any, PlainValidator(_check_input_type), WithJsonSchema({"enum": [*INPUT_TYPES, None]})]
Task = Annotated[Any, PlainValidator(_check_task), WithJsonSchema({"enum": [*TASKS, None]})]
