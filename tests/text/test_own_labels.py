"""What a caller asks for in its own words: names, descriptions, JSON Schemas; and what is refused, with reasons."""

from typing import Any

import pytest

from backend.errors import BadInput, InvalidField, TooLarge
from backend.text.own_labels import MAX_CHARS, MAX_CHOICES, MAX_LABELS, labels_json, read_labels

ADDRESS = {"type": "object", "properties": {"calle": {"type": "string"}, "CP": {"type": "string"}}}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(["placa"], [("placa", "placa", "string", False)], id="names"),
        pytest.param({"placa": "del coche"}, [("placa", "placa: del coche", "string", False)], id="described"),
        pytest.param({"km": {"type": "number"}}, [("km", "km", "number", False)], id="typed"),
        pytest.param({"averías": {"type": "list"}}, [("averías", "averías", "string", True)], id="list"),
        pytest.param(
            {"type": "object", "properties": {"fechaEntrega": {"type": "string", "format": "date"}}},
            [("fechaEntrega", "fecha entrega", "date", False)],
            id="schema",
        ),
        pytest.param(
            {"json_schema": {"name": "n", "schema": {"properties": {"a": {"type": ["integer", "null"]}}}}},
            [("a", "a", "integer", False)],
            id="schema-as-openai-wraps-it",
        ),
        pytest.param(
            {"properties": {"dirección": {"$ref": "#/$defs/A"}}, "$defs": {"A": ADDRESS}},
            [
                ("dirección.calle", "dirección calle", "string", False),
                ("dirección.CP", "dirección CP", "string", False),
            ],
            id="nested-by-reference",
        ),
        pytest.param(
            {"properties": {"a": {"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "null"}]}}},
            [("a", "a", "number", True)],
            id="list-or-null",
        ),
    ],
)
def test_what_is_asked_for(asked: Any, expected: list[tuple[str, str, str, bool]]) -> None:
    """Each label has its path, what an encoder reads of it, its kind, and whether it is a list."""
    labels = read_labels(asked)

    assert expected == [(".".join(label.path), label.prompt, label.kind, label.many) for label in labels]


def test_as_many_and_as_long_as_may_be() -> None:
    """200 names with descriptions of 1,000 characters are taken whole."""
    labels = read_labels({f"name {number}": "x" * MAX_CHARS for number in range(MAX_LABELS)})

    assert MAX_LABELS == len(labels)
    assert all(MAX_CHARS <= len(label.prompt) for label in labels)


def nested(levels: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        inner = {"type": "object", "properties": {"a": inner}}
    return inner


def laughs(properties: int) -> dict[str, Any]:
    """Three objects, each of so many properties that all are the next object."""
    defs = {
        name: {"properties": {f"p{number}": {"$ref": f"#/$defs/{inner}"} for number in range(properties)}}
        for name, inner in ("AB", "BC")
    }
    leaves = {"properties": {f"p{number}": {"type": "string"} for number in range(properties)}}
    return {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": defs | {"C": leaves}}


def required(name: str, times: int) -> dict[str, Any]:
    """Many objects that are the same, which says so often that it must have a property."""
    one = {"properties": {name: {"type": "string"}}, "required": [name] * times}
    return {"properties": {f"p{number}": {"$ref": "#/$defs/A"} for number in range(100)}, "$defs": {"A": one}}


CHAIN = {
    "properties": {"a": {"$ref": "#/$defs/0"}},
    "$defs": {str(number): {"$ref": f"#/$defs/{number + 1}"} for number in range(1000)},
}
LOOP = {"properties": {"a": {"$ref": "#/$defs/N"}}, "$defs": {"N": {"properties": {"n": {"$ref": "#/$defs/N"}}}}}


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        pytest.param([], InvalidField, "at least one", id="nothing"),
        pytest.param(7, InvalidField, "got int", id="a-number"),
        pytest.param(["a", 7], InvalidField, r"schema\[1\]", id="a-name-that-is-a-number"),
        pytest.param(["a", "a"], InvalidField, "twice", id="twice"),
        pytest.param({" ": ""}, InvalidField, "empty", id="a-blank-name"),
        pytest.param({"a": 7}, InvalidField, "got int", id="a-description-that-is-a-number"),
        pytest.param({"a": {"type": "geo"}}, InvalidField, "'geo' is none of string", id="a-type-nobody-knows"),
        pytest.param({"a": {"type": "number", "format": "date"}}, InvalidField, "leave one", id="contradiction"),
        pytest.param({"a": {"type": "number", "enum": ["x"]}}, InvalidField, "leave one", id="choices-of-a-number"),
        pytest.param({"a": {"pattern": "^x"}}, InvalidField, "'pattern' is not", id="what-would-not-be-checked"),
        pytest.param({"a": {"type": "list", "items": ADDRESS}}, InvalidField, "lists of objects", id="rows"),
        pytest.param(nested(5), InvalidField, "at most 4 deep", id="five-deep"),
        pytest.param(LOOP, InvalidField, "contains itself", id="recursion"),
        pytest.param({"properties": {"a": {"$ref": "#/$defs/B"}}}, InvalidField, "not in", id="a-dead-reference"),
        pytest.param({"a": {"anyOf": [{"type": "string"}, {"type": "number"}]}}, InvalidField, "one type", id="or"),
        pytest.param([str(name) for name in range(MAX_LABELS + 1)], TooLarge, "201 is over", id="too-many"),
        pytest.param(["a"] * 300, TooLarge, "300 is over", id="too-many-before-they-are-looked-at"),
        pytest.param(laughs(30), TooLarge, "1001 is over", id="references-that-fan-out"),
        pytest.param(required("n", 1001), TooLarge, "1001 is over", id="a-long-list-behind-many-references"),
        pytest.param(
            {"a": {"anyOf": [{"type": "string"}, *[{"type": "null"}] * 1000]}},
            InvalidField,
            "one type",
            id="many-nulls",
        ),
        pytest.param(CHAIN, InvalidField, "more than 32", id="a-chain-of-references"),
        pytest.param({"properties": {"a": {"$ref": []}}}, InvalidField, "not in", id="a-reference-that-is-a-list"),
        pytest.param({"a": {"enum": ["x"] * (MAX_CHOICES + 1)}}, TooLarge, "1001 is over", id="too-many-choices"),
        pytest.param({"a": "x" * (MAX_CHARS + 1)}, TooLarge, "1001 is over", id="too-long"),
    ],
)
def test_what_is_refused(asked: Any, error: type[BadInput], words: str) -> None:
    """The message says where, what, and the limit."""
    with pytest.raises(error, match=words) as caught:
        read_labels(asked)

    assert "schema" == caught.value.param


def test_a_number_that_cannot_be_kept_is_refused() -> None:
    """JSON has whole numbers of any length; what keeps a schema takes 64 bits."""
    with pytest.raises(InvalidField, match="64 bits"):
        labels_json({"properties": {"km": {"type": "integer"}}, "$defs": {"unused": 2**70}})
