"""Reasons: a sentence for people, and the same as codes with parameters."""

import re
from pathlib import Path
from string import Formatter

import pytest

import backend.api
from backend.reasons import SENTENCES, because, reasons_in

_LISTS = {
    "signs": ["title invoice", "id"], "steps": ["turn 90°"], "languages": ["spa", "eng"], "options": ["a", "b"],
    "numbers": ["7"],
}  # fmt: skip


def _params(sentence: str) -> dict[str, object]:
    """Parameters for a sentence that come back from it as they are."""
    params: dict[str, object] = {}
    for _, name, form, _ in Formatter().parse(sentence):
        if name:
            number = 7 if form == "d" else 0.5 if form else "x7"
            params[name] = _LISTS.get(name, 12.0 if form == ".0f" else number)
    return params


@pytest.mark.parametrize("code", SENTENCES)
def test_a_sentence_is_read_back(code: str) -> None:
    """Every code comes back from its sentence, with its parameters and their types, alone and among others."""
    params = _params(SENTENCES[code])
    expected, sentence = {"code": code, "params": params}, because(code, **params)

    assert [expected] == reasons_in(sentence)
    assert [{"code": "network", "params": {}}, expected] == list(
        reasons_in(f"{because('network')}; {because(code, **params)}")
    )


def test_the_page_has_spanish_for_every_reason_of_a_value() -> None:
    """With no parameter that the reason does not have."""
    page = (Path(backend.api.__path__[0]) / "page" / "reasons.js").read_text(encoding="utf-8")
    words = dict(re.findall(r'^  (\w+): "(.*)",$', page, re.MULTILINE))
    of_values = list(SENTENCES)[: list(SENTENCES).index("month_of_title") + 1]

    assert of_values == list(words)
    for code, said in words.items():
        assert set(re.findall(r"{(\w+)}", said)) <= set(_params(SENTENCES[code])), code


@pytest.mark.parametrize(
    ("why", "expected"),
    [
        pytest.param("", [], id="nothing"),
        pytest.param("something else", [("other", {"text": "something else"})], id="no-code-of-its-own"),
        pytest.param("x" * 5000, [("other", {"text": "x" * 5000})], id="a-long-text"),
        pytest.param(
            "behind the label “Fecha; vencimiento”; as in 3 confirmed invoices",
            [("label", {"position": "behind", "label": "Fecha; vencimiento"}), ("confirmed_invoices", {"count": 3})],
            id="a-label-with-the-mark-between-reasons",
        ),
        pytest.param(
            "read as bank statement: title bank statement, account; another one, F-1, begins on page 2 (`documents`)",
            [
                ("read_as", {"kind": "bank_statement", "signs": ["title bank statement", "account"]}),
                ("another_numbered_document", {"number": "F-1", "page": 2}),
            ],
            id="several-documents",
        ),
        pytest.param(
            "Tesseract found no word, but RapidOCR found 3 letters of 9",
            [("tesseract_found_none", {}), ("rapidocr_fewer", {"letters": 3, "of": 9})],
            id="two-engines",
        ),
    ],
)
def test_reasons_in(why: str, expected: list[tuple[str, dict[str, object]]]) -> None:
    assert expected == [(reason["code"], reason["params"]) for reason in reasons_in(why)]
