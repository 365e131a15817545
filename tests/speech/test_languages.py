"""Languages as callers write them."""

import pytest

from backend.speech.languages import LANGUAGES, language_code, language_name


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("es", "es"), (" ES ", "es"), ("es-MX", "es"), ("es_ES", "es"), ("spa", "es"), ("Spanish", "es"),
        ("español", "es"), ("ger", "de"), ("jv", "jw"), ("yue", "yue"), ("xx", None), ("", None), ("klingon", None),
    ],
)  # fmt: skip
def test_language_code(written: str, code: str | None) -> None:
    """Codes of two and three letters, with a region, and names; what the model does not know has none."""
    assert code == language_code(written)


def test_names() -> None:
    """A hundred languages, each found by its code and its name; none is written as OpenAI writes one."""
    assert 100 == len(LANGUAGES)
    assert all(code == language_code(code) == language_code(name) for code, name in LANGUAGES.items())
    assert ("spanish", "unknown") == (language_name("es"), language_name(None))
