"""The tree of errors: the drawing in the docstring is the tree, and every message says what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from backend import errors
from backend.errors import (
    BadInput,
    BadSettings,
    DeadlineExceeded,
    FinanciaError,
    Overloaded,
    SetupError,
    TokenIdsOutOfRange,
    TooLarge,
    TrainingError,
    Unavailable,
    UnknownModel,
)

# RFC 9110, RFC 6585 (429), RFC 4918 (507), and 499 as nginx has it
STATUSES = {400, 401, 404, 406, 413, 415, 422, 429, 499, 500, 503, 504, 507}


def descendants(root: type[FinanciaError]) -> Iterator[type[FinanciaError]]:
    """The classes below ``root`` that errors.py declares."""
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child
            yield from descendants(child)


CLASSES = [FinanciaError, *descendants(FinanciaError)]
ON_THE_WIRE = [one for one in CLASSES if not issubclass(one, SetupError | TrainingError)]


def drawn_tree() -> dict[str, tuple[str, str]]:
    """Class -> (parent, status) as the module's docstring draws it."""
    tree: dict[str, tuple[str, str]] = {}
    ancestors: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"^    ([ │├└─]*)([A-Z]\w+)(?:\s+(\d{3}|-)(?=\s|$))?", line):
            depth = len(found[1]) // 4
            ancestors[depth:] = [found[2]]
            tree[found[2]] = (ancestors[depth - 1] if depth else "", found[3] or "-")
    return tree


def test_the_drawing_is_the_tree():
    """Every class stands in the drawing, under its parent, with its status."""
    tree = {
        one.__name__: (
            one.__base__.__name__ if one is not FinanciaError else "",
            str(one.status) if one in ON_THE_WIRE else "-",
        )
        for one in CLASSES
    }

    assert tree == drawn_tree()


@pytest.mark.parametrize("one", ON_THE_WIRE)
def test_every_class_has_a_status_a_code_and_a_title(one: type[FinanciaError]):
    """What clients branch on is there, in the form they expect."""
    assert one.status in STATUSES
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", one.code)
    assert one.title


def test_codes_are_unambiguous():
    """A code means one class, for clients branch on it."""
    codes = [one.code for one in ON_THE_WIRE]

    assert sorted(set(codes)) == sorted(codes)


@pytest.mark.parametrize("one", [one for one in ON_THE_WIRE if issubclass(one, BadInput)])
def test_bad_input_is_not_worth_a_retry(one: type[FinanciaError]):
    """The same request would fail again."""
    assert not one.retryable
    assert 400 <= one.status < 500


@pytest.mark.parametrize("one", [one for one in ON_THE_WIRE if one.retryable])
def test_what_may_be_retried(one: type[FinanciaError]):
    """Only load, absence and lateness pass by themselves."""
    assert one.status in {429, 503, 504}


def test_too_large_names_the_setting():
    """What, how much, how much is allowed, and what moves it."""
    error = TooLarge("pages", 300, 200, "LIMIT_PAGES", advice="Split the file.", param="file")

    assert str(error) == "pages: 300 is over the limit of 200 (LIMIT_PAGES). Split the file."
    assert ("file", 413) == (error.param, error.status)


def test_token_ids_of_another_tokenizer():
    """LangChain's default is the usual cause, so the message has its cure."""
    error = TokenIdsOutOfRange(40_000, 30_522)

    assert "40000" in str(error)
    assert "0 to 30521" in str(error)
    assert "check_embedding_ctx_length=False" in str(error)


def test_unknown_model_lists_what_there_is():
    """The caller need not ask a second route."""
    error = UnknownModel("gpt-4", ["bundled", "sentence-transformers/all-MiniLM-L6-v2"])

    assert str(error) == (
        "model: 'gpt-4' is not loaded here; loaded are bundled, sentence-transformers/all-MiniLM-L6-v2"
    )
    assert error.param == "model"


def test_overloaded_carries_its_wait():
    """The API sends it as Retry-After."""
    error = Overloaded(queued_tokens=12, limit_tokens=10, retry_after_s=2.5)

    assert error.retry_after_s == 2.5
    assert "LIMIT_QUEUE_TOKENS" in str(error)


def test_unavailable_and_late():
    """Both may be tried again; the late one says which setting it was."""
    assert Unavailable("draining", retry_after_s=3.0).retry_after_s == 3.0
    assert "0.5 s (LIMIT_REQUEST_S" in str(DeadlineExceeded(0.5))


def test_bad_settings_keep_every_fault():
    """One error for a whole environment."""
    error = BadSettings(["PORT='x': not a number", "LANES=0: too few"])

    assert str(error) == "settings: PORT='x': not a number; LANES=0: too few"
    assert len(error.faults) == 2
