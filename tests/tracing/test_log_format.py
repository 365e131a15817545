"""Log lines as text and as JSON, with the ids of what they belong to."""

import json
import logging
import sys
from datetime import datetime

import pytest

from backend.telemetry import configure_logging, log_event
from backend.tracing.spans import Active, JsonFormatter, TextFormatter, request_id
from tests.traced import KeptSpans


def line_of(formatter: logging.Formatter, text: str = "lane started", /, **fields: object) -> str:
    record = logging.LogRecord("backend.test", logging.INFO, "file.py", 1, text, (), None)
    record.fields = fields
    return formatter.format(record)


def test_json_lines():
    """Time with its zone, level, logger and message, then the fields with their types."""
    line = json.loads(line_of(JsonFormatter(), lane=0, device="cpu", why=None, path={"a"}))

    assert ["time", "level", "logger", "message", "lane", "device", "why", "path"] == list(line)
    assert datetime.fromisoformat(line["time"]).utcoffset() is not None
    assert ("INFO", "backend.test", "lane started") == (line["level"], line["logger"], line["message"])
    assert (0, "cpu", None, "{'a'}") == (line["lane"], line["device"], line["why"], line["path"])


def test_a_line_stays_one_line():
    """Whatever is in it; and no field takes the place of what every line has."""
    text = line_of(JsonFormatter(), "two\nlines", level="deep", message="own")
    line = json.loads(text)

    assert "\n" not in text
    assert ("two\nlines", "INFO", "deep", "own") == (
        line["message"], line["level"], line["field_level"], line["field_message"],
    )  # fmt: skip


def test_errors_bring_their_trace():
    try:
        raise ValueError("no")
    except ValueError:
        record = logging.LogRecord("backend", logging.ERROR, "file.py", 1, "failed", (), sys.exc_info())

    assert json.loads(JsonFormatter().format(record))["exception"].endswith("ValueError: no")


def test_ids_of_the_request_and_its_span():
    """In both formats; a span that is not sampled has its ids too, for callers know them."""
    kept, token = KeptSpans(), request_id.set("req-1")
    try:
        with Active(kept.tracer.start("root", "server")) as root:
            line, text = json.loads(line_of(JsonFormatter())), line_of(TextFormatter(), lane=0)
    finally:
        request_id.reset(token)
    trace_id, span_id = f"{root.span.context.trace_id:032x}", f"{root.span.context.span_id:016x}"

    assert ("req-1", trace_id, span_id) == (line["request_id"], line["trace_id"], line["span_id"])
    assert text.endswith(f"lane started lane=0 request_id=req-1 trace_id={trace_id} span_id={span_id}")
    assert "request_id" not in line_of(JsonFormatter())


def test_log_format_json(capsys: pytest.CaptureFixture[str]):
    """LOG_FORMAT=json is for all lines, those of libraries too."""
    configure_logging("INFO", "json")
    log_event(logging.getLogger("backend"), logging.INFO, "draining", seconds=1.5)
    logging.getLogger("uvicorn.error").warning("%s requests", 2)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]

    assert [("draining", 1.5), ("2 requests", None)] == [(line["message"], line.get("seconds")) for line in lines]
