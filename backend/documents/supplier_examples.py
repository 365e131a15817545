"""Finds the confirmed documents of a caller's suppliers that a document being read may be like."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from backend.errors import FinanciaError
from backend.files.pages import Document
from backend.files.visual_rows import rows_of
from backend.invoices.taught.apply import keys_on
from backend.invoices.taught.examples import ANY, SupplierExample, example_from
from backend.lanes.text_work import TextWork
from backend.telemetry import log_event

_MOST = 20  # examples of all suppliers that a document names
_log = logging.getLogger(__name__)


class KeptLesson(Protocol):
    """A kept `SupplierExample`."""

    @property
    def lesson(self) -> Mapping[str, Any]: ...


# The lessons of an owner by any of some keys, the newest first, no more than a number.
LessonsOf = Callable[[str, Sequence[str], int], Awaitable[Sequence[KeptLesson]]]


class SupplierExamples:
    """Used on the event loop only. Knows nothing until `lessons_of` is set."""

    def __init__(self, text_work: TextWork) -> None:
        self._text_work = text_work
        self.lessons_of: LessonsOf | None = None

    async def of(self, owner: str, document: Document) -> tuple[SupplierExample, ...]:
        """The examples of a document's suppliers, the latest first; none where the storage is away."""
        if self.lessons_of is None:
            return ()
        try:
            if not await self.lessons_of(owner, [ANY], 1):
                return ()
            keys = await self._text_work.run_long(partial(_keys, document), document.characters)
            return tuple(example_from(kept.lesson) for kept in await self.lessons_of(owner, keys, _MOST))
        except FinanciaError as error:  # the document is read without them
            log_event(_log, logging.WARNING, "confirmed documents could not be looked up", fault=type(error).__name__)
            return ()


def _keys(document: Document) -> list[str]:
    return keys_on(rows_of(document))
