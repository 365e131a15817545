"""Labels in the caller's words, and JSON Schemas, as what to look for: names, descriptions, kinds of values.

Pure: nothing here reads a text or knows a model. What a caller asks for is data; nothing in a document changes it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import orjson

from backend.errors import InvalidField, TooLarge
from backend.normal_forms import normalized

MAX_LABELS, MAX_CHARS, MAX_LEVELS = 200, 1000, 4
MAX_CHOICES = 1000  # of one enum
# Met on all ways through a schema, and required by one of its objects: 100 kB of references that fan out would be met
# for hours, a long list behind five hundred references for seconds.
_MAX_PROPERTIES = 1000
_MAX_STEPS = 32  # references and choices on the way to a property, one within the other
STRING, NUMBER, INTEGER, BOOLEAN = "string", "number", "integer", "boolean"
# Kinds of values beside these, and the entities of patterns that they are read as.
PATTERN_KINDS: Mapping[str, tuple[str, ...]] = {
    "date": ("DATE",), "money": ("MONEY",), "percent": ("PERCENT",), "email": ("EMAIL",), "url": ("URL",),
    "phone": ("PHONE",), "iban": ("IBAN", "CCC"), "tax_id": ("NIF", "NIE", "CIF", "VAT"), "postcode": ("POSTCODE",),
}  # fmt: skip
KINDS = (STRING, NUMBER, INTEGER, BOOLEAN, *PATTERN_KINDS)
_FORMATS = {
    "date": "date", "date-time": "date", "email": "email", "uri": "url", "url": "url", "phone": "phone",
    "iban": "iban",
}  # fmt: skip
_SAID = frozenset({
    "title", "default", "examples", "example", "required", "additionalProperties", "$schema", "$id", "$defs",
    "definitions", "$comment", "strict", "propertyOrdering",
})  # fmt: skip
_READ = frozenset({"type", "format", "description", "enum", "items", "properties", "$ref", "anyOf"})
_LISTS = ("list", "array")
Path: TypeAlias = tuple[str, ...]
_WORD_EDGE = re.compile(r"(?<=[a-zñáéíóúü0-9])(?=[A-ZÑÁÉÍÓÚÜ])|[_\-.]+")


@dataclass(frozen=True)
class OwnLabel:
    """One thing to look for."""

    path: tuple[str, ...]  # names of the objects that it is in, and its own
    prompt: str  # what the encoder reads
    kind: str = STRING  # of KINDS
    many: bool = False  # whether its answer is a list
    choices: tuple[str, ...] = ()  # the only values there may be
    required: tuple[bool, ...] = ()  # whether an object must have it, for each name of its path
    description: str = ""

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @cached_property
    def plain_choices(self) -> Mapping[str, str]:
        """Its choices by how their spelling is compared, once for all that may be one of them."""
        return {plain_of(choice): choice for choice in reversed(self.choices)}


def labels_json(value: Any, param: str = "schema") -> str:
    """What a request asks for as it is kept, once it is understood; empty for null. Raises: as `read_labels`."""
    if value is None:
        return ""
    read_labels(value, param)
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise InvalidField(
            f"{param}: a whole number in it takes more than 64 bits; leave it out", param=param
        ) from error


def read_labels(value: Any, param: str = "schema") -> tuple[OwnLabel, ...]:
    """What a request asks for: names, names with descriptions, or a JSON Schema of an object.

    Raises: InvalidField, TooLarge.
    """
    reader = _Reader(param)
    if isinstance(value, list):
        reader.require_few(len(value))
        for index, name in enumerate(value):
            if not isinstance(name, str):
                raise reader.wrong(f"{param}[{index}]", "a name", name)
            if name in value[:index]:
                raise InvalidField(f"{param}[{index}]: {name!r} is there twice; leave one out", param=param)
        value = dict.fromkeys(value)
    if not isinstance(value, dict):
        raise reader.wrong(param, "names, an object of names and descriptions, or a JSON Schema of an object", value)
    schema = _unwrapped(value)
    if schema is None:
        return reader.checked(reader.properties({"properties": value}, (), ()))
    definitions = {
        f"#/{where}/{name}": said
        for where in ("$defs", "definitions")
        if isinstance(schema.get(where), dict)
        for name, said in schema[where].items()
    }
    reader = _Reader(param, definitions)
    return reader.checked(reader.properties(schema, (), ()))


def read_types(value: Any, param: str = "labels") -> dict[str, str]:
    """Types of entities, names with their descriptions or an empty text, as `read_labels` reads them.

    Raises: as `read_labels`; InvalidField for what only a value can have.
    """
    types = {}
    for label in read_labels(value, param):
        if len(label.path) > 1 or label.kind != STRING or label.choices:
            told = f"{param} {label.name[:60]}: a type of entities has a description, no type, enum or properties"
            raise InvalidField(told, param=param)
        types[label.path[0]] = label.description
    return types


def types_json(value: Any, param: str) -> str:
    """Types of entities as they are kept; empty for null. Raises: as `read_types`."""
    return "" if value is None else orjson.dumps(read_types(value, param)).decode()


def _unwrapped(value: dict[str, Any]) -> dict[str, Any] | None:
    """The JSON Schema, out of what OpenAI's and Mistral's requests wrap around it; None for a plain object of names."""
    for key in ("json_schema", "schema"):
        inner = value.get(key)
        if isinstance(inner, dict) and ("properties" in inner or "schema" in inner):
            value = inner
    return value if isinstance(value.get("properties"), dict) else None


def words_of(name: str) -> str:
    """A name of a program as words: fechaEntrega, fecha_entrega -> fecha entrega."""
    words = " ".join(_WORD_EDGE.sub(" ", name).split())
    return words.lower() if words != name else name


def plain_of(text: str) -> str:
    """In small letters, without accents and with single blanks: how spellings are compared."""
    bare = "".join(one for one in normalized("NFD", text.casefold()) if not unicodedata.combining(one))
    return " ".join(bare.split())


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads one request's field. ``path`` is where a property stands, ``seen`` the references on the way there."""

    param: str
    definitions: Mapping[str, Any] = field(default_factory=dict)
    required: set[Path] = field(default_factory=set)  # what its object must have
    met: set[Path] = field(default_factory=set)  # properties so far, objects among them

    def checked(self, labels: Sequence[OwnLabel]) -> tuple[OwnLabel, ...]:
        if not labels:
            raise InvalidField(f"{self.param}: must name at least one thing to look for", param=self.param)
        self.require_few(len(labels))
        return tuple(labels)

    def require_few(self, count: int, most: int = MAX_LABELS) -> None:
        if count > most:
            advice = "Ask for them in several requests."
            raise TooLarge(self.param, count, most, "a fixed limit", advice=advice, param=self.param)

    def properties(self, node: Mapping[str, Any], path: Path, seen: Path) -> list[OwnLabel]:
        """The labels of an object's properties, those of objects in it included."""
        location = self.location(path)
        if not isinstance(node.get("properties"), dict):
            raise self.wrong(location, "an object with properties", node.get("properties"))
        if len(path) >= MAX_LEVELS:
            advice = "give its values names of their own further up"
            raise InvalidField(
                f"{location}: objects are nested at most {MAX_LEVELS} deep, this is level {len(path) + 1}; {advice}",
                param=self.param,
            )
        required = node.get("required")
        required = required if isinstance(required, list) else []
        self.require_few(len(required), _MAX_PROPERTIES)
        wanted = {name for name in required if isinstance(name, str)}
        found: list[OwnLabel] = []
        for name, raw in node["properties"].items():
            own = (*path, name)
            self.met.add(own)
            self.require_few(len(self.met), _MAX_PROPERTIES)
            if name in wanted:
                self.required.add(own)
            said, references = self.resolved(raw, own, seen)
            if said.get("type") == "object" or "properties" in said:
                found += self.properties(said, own, references)
            else:
                found.append(self.label(said, own, references))
        return found

    def resolved(self, raw: Any, path: Path, seen: Path) -> tuple[Mapping[str, Any], Path]:
        """What is said of a property, where references and "or null" lead."""
        if raw is None or isinstance(raw, str):
            return {"description": raw or ""}, seen
        location = self.location(path)
        if not isinstance(raw, dict):
            raise self.wrong(location, "a description, or an object with type and description", raw)
        if unread := sorted(set(raw) - _READ - _SAID):
            known = ", ".join(sorted(_READ))
            raise InvalidField(f"{location}: {unread[0]!r} is not understood here ({known} are)", param=self.param)
        if "$ref" in raw:
            target = raw["$ref"]
            if target in seen:
                raise InvalidField(f"{location}: {target!r} contains itself, so it has no end", param=self.param)
            if not isinstance(target, str) or target not in self.definitions:
                raise InvalidField(f"{location}: {target!r} is not in $defs of this schema", param=self.param)
            return self._joined(raw, "$ref", self.definitions[target], path, (*seen, target))
        if "anyOf" in raw:
            return self._joined(raw, "anyOf", self._one(raw["anyOf"], location, {"type": "null"}), path, (*seen, ""))
        if isinstance(raw.get("type"), list):
            return {**raw, "type": self._one(raw["type"], location, "null")}, seen
        return raw, seen

    def _joined(
        self, raw: Mapping[str, Any], key: str, other: Any, path: Path, seen: Path
    ) -> tuple[Mapping[str, Any], Path]:
        if len(seen) > _MAX_STEPS:
            raise InvalidField(
                f"{self.location(path)}: is behind more than {_MAX_STEPS} references and choices, one within the "
                "other; say what it is where it stands",
                param=self.param,
            )
        inner, references = self.resolved(other, path, seen)
        return {**inner, **{name: value for name, value in raw.items() if name != key}}, references

    def _one(self, choices: Any, location: str, null: Any) -> Any:
        """The only choice beside null."""
        others = [one for one in choices if one != null] if isinstance(choices, list) and len(choices) <= 2 else []
        if len(others) != 1:
            raise InvalidField(f"{location}: one type, or one and null, is understood, not several", param=self.param)
        return others[0]

    def label(self, said: Mapping[str, Any], path: Path, seen: Path) -> OwnLabel:
        location, value = self.location(path), said
        many = said.get("type") in _LISTS
        if many:
            value, _ = self.resolved(said.get("items"), path, seen)
            if value.get("type") in ("object", *_LISTS) or "properties" in value:
                raise InvalidField(
                    f"{location}: lists of objects are not read; `tables` has their rows", param=self.param
                )
        description = said.get("description") or value.get("description") or ""
        if not isinstance(description, str):
            raise self.wrong(f"{location}.description", "a text", description)
        for what, text in (("name", path[-1]), ("description", description)):
            if len(text) > MAX_CHARS:
                told = f"{what}: {text[:40]}… characters"
                raise TooLarge(told, len(text), MAX_CHARS, "a fixed limit", advice="Say it shorter.", param=self.param)
        if not path[-1].strip():
            raise InvalidField(f"{location}: a name must not be empty", param=self.param)
        prompt = " ".join(words_of(name) for name in path)
        description = " ".join(description.split())
        prompt = f"{prompt}: {description}" if description else prompt
        choices = value.get("enum") or ()
        if not isinstance(choices, list | tuple) or not all(isinstance(one, str) for one in choices):
            raise self.wrong(f"{location}.enum", "a list of texts", choices)
        if len(choices) > MAX_CHOICES:
            told, advice = f"{location}.enum", "Ask for a text, and look it up in the answer."
            raise TooLarge(told, len(choices), MAX_CHOICES, "a fixed limit", advice=advice, param=self.param)
        kind = self.kind(value, location)
        if choices and kind != STRING:
            raise InvalidField(f"{location}: a {kind} has no enum of texts; leave one of them out", param=self.param)
        required = tuple(path[:length] in self.required for length in range(1, len(path) + 1))
        return OwnLabel(path, prompt, kind, many, tuple(choices), required, description)

    def kind(self, said: Mapping[str, Any], location: str) -> str:
        kind, form = said.get("type") or STRING, said.get("format")
        if kind not in KINDS:
            known = ", ".join(KINDS)
            raise InvalidField(f"{location}: type {kind!r} is none of {known}, list, object", param=self.param)
        if form is None:
            return str(kind)
        if form not in _FORMATS:
            raise InvalidField(f"{location}: format {form!r} is none of {', '.join(_FORMATS)}", param=self.param)
        if kind not in (STRING, _FORMATS[form]):
            raise InvalidField(f"{location}: a {kind} has no format {form!r}; leave one of them out", param=self.param)
        return _FORMATS[form]

    def location(self, path: Path) -> str:
        return f"{self.param} {'.'.join(name[:60] for name in path)}".strip()

    def wrong(self, location: str, expected: str, got: Any) -> InvalidField:
        return InvalidField(f"{location}: must be {expected}, got {type(got).__name__}", param=self.param)
