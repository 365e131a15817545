"""``POST /v1/analyze``: all there is to know of one text, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from backend.api.answers import json_answer, written
from backend.api.body import read_json
from backend.api.deps import services_of
from backend.api.routes.classify import CLASSES_EXAMPLE
from backend.api.routes.entities import ENTITY_EXAMPLES
from backend.api.routes.plain import post
from backend.api.schemas.checks import check_labels, check_limits
from backend.api.schemas.text_answers import AnalyzeAnswer
from backend.api.schemas.texts import FEATURES, AnalyzeRequest
from backend.api.service_call import ask_timed
from backend.api.text_answers import classes, entity, key_phrase, key_sentence, language, usage
from backend.services.analysis import Analysis


async def analyze(request: Request) -> Response:
    """Language, key phrases, key sentences, classes, entities and a vector of one text of any length.

    `features` picks among them; what is not asked for is absent from the answer, what could not be told is null.
    `start` and `end` count Unicode code points of the text as it was sent.
    """
    services = services_of(request)
    asked = await read_json(request, AnalyzeRequest, services.limits)
    check_limits([asked.input], services.limits, "input")
    check_labels(asked.labels, services.limits)
    analysis = await ask_timed(
        request,
        partial(
            services.analysis.analyze,
            asked.input,
            features=asked.features,
            top_phrases=asked.top_phrases,
            top_sentences=asked.top_sentences,
            labels=asked.labels,
            classifier=asked.classifier,
        ),
    )
    writers, features = _writers(asked.encoding_format or "float"), asked.features or FEATURES
    return json_answer(
        {
            "object": "analysis",
            **{feature: writers[feature](analysis) for feature in FEATURES if feature in features},
            "coverage": analysis.coverage,
            "model": analysis.model,
            "usage": usage(analysis.tokens),
        }
    )


def _writers(form: str) -> Mapping[str, Callable[[Analysis], Any]]:
    """How each feature is written; the vector in ``form``."""
    return {
        "language": lambda found: language(found.language),
        "key_phrases": lambda found: [key_phrase(one) for one in found.key_phrases],
        "key_sentences": lambda found: [key_sentence(one) for one in found.key_sentences],
        "classes": lambda found: found.classes and classes(found.classes),
        "entities": lambda found: [entity(one) for one in found.entities],
        "vector": lambda found: None if found.vector is None else written(found.vector, form),
    }


_TEXT = "Factura de Aceros del Norte, S.A., a Juan Pérez: 1.284,50 €."
ROUTES = (
    post(
        "/v1/analyze",
        analyze,
        tag="texts",
        request=AnalyzeRequest,
        examples={
            "everything": {"input": _TEXT},
            "what it is about": {"input": _TEXT, "features": ["language", "key_phrases"], "top_phrases": 2},
            "classes of your own": {"input": _TEXT, "features": ["classes"], "labels": ["factura", "contrato"]},
        },
        schema=AnalyzeAnswer,
        example={
            "object": "analysis",
            "language": {"code": "es", "score": 0.9998},
            "key_phrases": [{"text": "Aceros del Norte", "score": 0.8121, "places": [{"start": 11, "end": 27}]}],
            "key_sentences": [{"text": _TEXT, "start": 0, "end": len(_TEXT), "score": 1.0}],
            "classes": CLASSES_EXAMPLE,
            "entities": list(ENTITY_EXAMPLES),
            "coverage": 1.0,
            "vector": [0.0123, -0.0456, 0.0789],
            "model": "sentence-transformers/all-MiniLM-L6-v2",
            "usage": {"prompt_tokens": 26, "total_tokens": 26},
        },
    ),
)
