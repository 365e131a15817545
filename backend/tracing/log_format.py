"""How log lines are written: as text, or as JSON; both with the ids of the request that they belong to."""

from __future__ import annotations

import json
import logging
from contextvars import ContextVar
from datetime import UTC, datetime

from backend.tracing.spans import current

request_id: ContextVar[str] = ContextVar("financia_request_id", default="")  # as in X-Request-Id; set by the API
_TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """The fields of a line: those it was logged with, and the request and span that the logging task works for."""
    fields: dict[str, object] = dict(getattr(record, "fields", {}))
    if number := request_id.get():
        fields.setdefault("request_id", number)
    span = current()
    if span is not None:
        fields["trace_id"] = f"{span.context.trace_id:032x}"
        fields["span_id"] = f"{span.context.span_id:016x}"
    return fields


class TextFormatter(logging.Formatter):
    """``time level logger message key=value …``: a fixed sentence, then its fields."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        return " ".join([line, *(f"{key}={value}" for key, value in fields_of(record).items())])


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (RFC 3339, UTC), level, logger, message, the line's fields, and an error's trace."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in fields_of(record).items():
            line[f"field_{name}" if name in line else name] = value
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)
