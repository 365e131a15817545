"""The tree of errors: the docstring draws it right, and messages say what to do."""

import re
from collections.abc import Iterator

import pytest

from backend import errors
from backend.errors import (
    BadInput,
    BadSettings,
    FinanciaError,
    SetupError,
    TokenIdsOutOfRange,
    TooLarge,
    TrainingError,
    UnknownModel,
    param_of,
)

# RFC 9110, RFC 6585 (429, 431), RFC 4918 (507), and nginx's 499
STATUSES = {400, 401, 403, 404, 406, 408, 409, 413, 415, 421, 422, 429, 431, 499, 500, 503, 504, 507}


def descendants(root: type[FinanciaError]) -> Iterator[type[FinanciaError]]:
    """The classes below ``root`` that errors.py declares."""
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child
            yield from descendants(child)


CLASSES = [FinanciaError, *descendants(FinanciaError)]
IN_ANSWERS = [cls for cls in CLASSES if not issubclass(cls, SetupError | TrainingError)]


def drawn_tree() -> dict[str, tuple[str, str]]:
    """Class -> (parent, status) as the module's docstring draws it."""
    tree: dict[str, tuple[str, str]] = {}
    ancestors: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"^    ([ │├└─]*)([A-Z]\w+)(?:\s+(\d{3}|-)(?=\s|$))?", line):
            depth = len(match[1]) // 4
            ancestors[depth:] = [match[2]]
            tree[match[2]] = (ancestors[depth - 1] if depth else "", match[3] or "-")
    return tree


def test_the_drawing_is_the_tree():
    """Every class is in the drawing, under its parent, with its status."""
    tree = {
        cls.__name__: (
            cls.__base__.__name__ if cls is not FinanciaError else "",
            str(cls.status) if cls in IN_ANSWERS else "-",
        )
        for cls in CLASSES
    }

    assert tree == drawn_tree()


@pytest.mark.parametrize("cls", IN_ANSWERS)
def test_every_class_has_a_status_a_code_and_a_title(cls: type[FinanciaError]):
    """Clients branch on status and code."""
    assert cls.status in STATUSES
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", cls.code)
    assert cls.title


def test_codes_are_unambiguous():
    """Each code belongs to cls class."""
    codes = [cls.code for cls in IN_ANSWERS]

    assert sorted(set(codes)) == sorted(codes)


@pytest.mark.parametrize("cls", [cls for cls in IN_ANSWERS if issubclass(cls, BadInput)])
def test_bad_input_is_not_worth_a_retry(cls: type[FinanciaError]):
    """The same request would fail again."""
    assert not cls.retryable
    assert 400 <= cls.status < 500


def test_too_large_names_the_setting():
    """The message has the value, the limit and the setting that raises it."""
    error = TooLarge("pages", 300, 200, "LIMIT_PAGES", advice="Split the file.", param="file")

    assert str(error) == "pages: 300 is over the limit of 200 (LIMIT_PAGES). Split the file."
    assert ("file", 413) == (error.param, error.status)


def test_token_ids_of_another_tokenizer():
    """LangChain's default is the usual cause, so the message says how to change it."""
    error = TokenIdsOutOfRange(40_000, 30_522)

    assert "40000" in str(error)
    assert "0 to 30521" in str(error)
    assert "check_embedding_ctx_length=False" in str(error)


def test_unknown_model_lists_the_known():
    """The caller needs no second request to find a name."""
    error = UnknownModel("gpt-4", ["bundled", "sentence-transformers/all-MiniLM-L6-v2"])

    assert str(error) == (
        "model: 'gpt-4' is not loaded here; loaded are bundled, sentence-transformers/all-MiniLM-L6-v2"
    )
    assert error.param == "model"


def test_bad_settings_keep_every_fault():
    """One error for a whole environment."""
    error = BadSettings(["PORT='x': not a number", "LANES=0: too few"])

    assert str(error) == "settings: PORT='x': not a number; LANES=0: too few"
    assert len(error.faults) == 2


def test_a_message_does_not_send_megabytes_back():
    """A name of any length is quoted in part; the beginning and what to do stay."""
    error = UnknownModel("m" * 10**6, ["bundled"])
    long_param = BadInput("wrong", param="p" * 10**6)

    assert 2000 == len(str(error))
    assert str(error).startswith("model: 'mmm")
    assert str(error).endswith("mmm' is not loaded here; loaded are bundled")
    assert 200 == len(long_param.param or "")
    assert "x" * 2000 == str(BadInput("x" * 2000))


@pytest.mark.parametrize(
    ("place", "expected"),
    [("input", "input"), ("files[1].name", "files"), ("files[1].name: must be a text", "files"), ("must be set", None)],
)
def test_the_field_of_a_place(place: str, expected: str | None):
    """Of a place alone, and of a message that begins with one."""
    assert expected == param_of(place)
