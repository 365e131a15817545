"""Writing what was found in texts: records of the services as plain values for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from backend.documents.entities import Entity
from backend.documents.entity_merge import Lost
from backend.documents.key_phrases import KeyPhrase
from backend.documents.language import Language
from backend.services.analysis import KeySentence
from backend.services.classification import ClassifiedText, Prediction


def usage(tokens: int) -> dict[str, int]:
    """OpenAI's count of the tokens read."""
    return {"prompt_tokens": tokens, "total_tokens": tokens}


def truncated(indices: Sequence[int]) -> dict[str, list[int]]:
    """The inputs that were cut at the model's length; nothing where none was."""
    return {"truncated": list(indices)} if indices else {}


def entity(found: Entity) -> dict[str, Any]:
    """An entity; ``start`` and ``end`` count code points of the caller's text."""
    return {
        "type": found.type,
        "text": found.text,
        "start": found.start,
        "end": found.end,
        "score": found.score,
        "source": found.source,
        "value": found.value,
        "valid": found.valid,
    }


def lost(loser: Lost) -> dict[str, Any]:
    """An entity that gave way, to which, and why."""
    return {"entity": entity(loser.entity), "to": entity(loser.to), "why": loser.why}


def classes(row: ClassifiedText) -> dict[str, Any]:
    """The classes of a text; ``prediction`` is null where the classifier abstains."""
    return {"prediction": row.prediction, "score": row.score, "predictions": predictions(row.predictions)}


def language(found: Language | None) -> dict[str, Any] | None:
    """A language; null where nothing could tell."""
    return None if found is None else {"code": found.code, "score": found.score}


def key_phrase(one: KeyPhrase) -> dict[str, Any]:
    """A phrase with every place where it stands."""
    places = [{"start": int(start), "end": int(end)} for start, end in one.places]
    return {"text": one.text, "score": one.score, "places": places}


def key_sentence(one: KeySentence) -> dict[str, Any]:
    """A sentence and its place."""
    return {"text": one.text, "start": one.start, "end": one.end, "score": one.score}


def predictions(rows: Sequence[Prediction]) -> list[dict[str, Any]]:
    """Classes with their scores, in their order."""
    return [{"label": row.label, "score": row.score} for row in rows]
