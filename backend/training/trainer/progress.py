"""Observers of a run: a progress bar on a terminal, train.jsonl with a line an event, and log lines.

They get StepEvents (training/records.py). Values they know: steps (of the whole run, in "start"), loss, learning_rate,
grad_norm, scale, micro_batch, tokens (of this step), memory_bytes; any other is written as it is.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm

from backend.telemetry import log_event
from backend.training.records import INTERVENTIONS, Observer, StepEvent

LOG_NAME = "train.jsonl"
_log = logging.getLogger(__name__)
_SHOWN = {"loss": "loss", "learning_rate": "lr", "micro_batch": "micro", "tokens_per_second": "tok/s"}


def observers_for(output: Path | None, *, stream: TextIO | None = None) -> list[Observer]:
    """Those of a run from the command line: the bar where ``stream`` is a terminal, else log lines; and train.jsonl.

    Args:
        output: folder of ``train.jsonl``; None writes none.
        stream: for people; standard error by default.
    """
    stream = sys.stderr if stream is None else stream
    display: Observer = ProgressBar(stream) if stream.isatty() else LogLines()
    return [display] if output is None else [display, JsonLines(output / LOG_NAME)]


class ProgressBar:
    """A tqdm bar on a terminal; evaluations and decisions stay above it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._bar: tqdm[Any] | None = None
        self._speed = TokenRate(time.monotonic)

    def on_event(self, event: StepEvent) -> None:
        """Update the bar; "start" opens it, at the step that a resumed run goes on from."""
        speed = self._speed.after_event(event)
        if event.kind == "start" and self._bar is None:
            total = event.values.get("steps")
            self._bar = tqdm(
                total=int(total) if total else None,
                initial=event.step,
                unit="step",
                file=self._stream,
                dynamic_ncols=True,
            )
        line = _sentence(event)
        if line and event.kind != "checkpoint":
            tqdm.write(line, file=self._stream)
        if self._bar is None:
            return
        if event.kind == "step":
            values = {**event.values, **speed}
            self._bar.set_description(f"epoch {event.epoch:.2f}", refresh=False)
            postfix = {short: _short(values[name]) for name, short in _SHOWN.items() if name in values}
            self._bar.set_postfix(postfix, refresh=False)
        self._bar.update(event.step - self._bar.n)  # backwards too, after a precision fallback

    def close(self) -> None:
        """Leave the last state on the terminal."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class LogLines:
    """Evaluations, checkpoints and decisions as log lines, for a run without a terminal."""

    def on_event(self, event: StepEvent) -> None:
        """Log everything but steps."""
        if event.kind == "step":
            return
        is_warning = event.kind in INTERVENTIONS and not event.values.get("recovered")
        level = logging.WARNING if is_warning else logging.INFO
        fields = {name: _plain(value) for name, value in event.values.items()}
        log_event(
            _log, level, "training", event=event.kind, step=event.step, epoch=event.epoch, note=event.message, **fields
        )

    def close(self) -> None:
        """Nothing to close."""


class JsonLines:
    """Every event as one line of JSON, appended: a resumed run goes on in the same file.

    A line has time (UTC, ISO 8601), seconds (since this process began to train), kind, step, epoch, the event's values
    and its message. Numbers that JSON lacks are the strings "nan", "inf" and "-inf".
    A file that cannot be written ends the log with one warning, never the run.
    """

    def __init__(
        self,
        file: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._file, self._clock, self._now = file, clock, now
        self._speed = TokenRate(clock)
        self._began: float | None = None
        self._stream: TextIO | None = None
        self._failed = False

    def on_event(self, event: StepEvent) -> None:
        """Write it and flush: a run that is killed loses no line."""
        if self._failed:
            return
        speed = self._speed.after_event(event)
        began = self._began = self._clock() if self._began is None else self._began
        record = {
            "time": self._now().isoformat(timespec="milliseconds"),
            "seconds": round(self._clock() - began, 3),
            "kind": event.kind,
            "step": event.step,
            "epoch": event.epoch,
            **event.values,
            **speed,
            **({"message": event.message} if event.message else {}),
        }
        self._write(json.dumps(_plain(record), ensure_ascii=False, allow_nan=False))

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            with suppress(OSError):  # a failure to write was logged by ``_give_up``
                self._stream.close()
            self._stream = None

    def _write(self, line: str) -> None:
        try:
            if self._stream is None:
                self._stream = self._open()
            self._stream.write(line + "\n")
            self._stream.flush()
        except OSError as error:
            self._give_up(error)

    def _open(self) -> TextIO:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        stream = self._file.open("a+", encoding="utf-8")
        if _is_torn(self._file):  # a line that a killed run did not finish must not swallow ours
            stream.write("\n")
        return stream

    def _give_up(self, error: OSError) -> None:
        self._failed = True
        self.close()
        log_event(
            _log, logging.WARNING, "the training log cannot be written any more", file=str(self._file), reason=error
        )


class TokenRate:
    """Tokens a second, from the tokens of a step and the time since the one before it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last: float | None = None

    def after_event(self, event: StepEvent) -> dict[str, float]:
        """``tokens_per_second`` for a step that has its tokens and not its rate; else nothing."""
        now, last = self._clock(), self._last
        self._last = now  # evaluations and checkpoints restart the clock
        tokens = event.values.get("tokens")
        if event.kind != "step" or tokens is None or "tokens_per_second" in event.values:
            return {}
        return {} if last is None or now <= last else {"tokens_per_second": round(tokens / (now - last), 1)}


def _sentence(event: StepEvent) -> str:
    """The line above the bar: a decision's message, or an evaluation's numbers."""
    prefix = f"[step {event.step}] "
    if event.kind == "evaluation":
        numbers = "  ".join(f"{name} {_short(value)}" for name, value in event.values.items())
        return prefix + "  ".join(part for part in (numbers, event.message) if part)
    return prefix + event.message if event.message else ""


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _plain(value: object) -> Any:
    """What strict JSON can hold."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    scalar = getattr(value, "item", None)  # numpy's and torch's single numbers
    return _plain(scalar()) if callable(scalar) and getattr(value, "ndim", 1) == 0 else str(value)


def _is_torn(file: Path) -> bool:
    with file.open("rb") as stream:
        size = stream.seek(0, 2)
        return size > 0 and stream.seek(size - 1) >= 0 and stream.read(1) != b"\n"
