"""The example documents that ship are what the templates give, and hold every class in both languages."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import pytest

from backend.models.classifier_head import NONE
from tools.make_document_examples import OUTPUT, PER_CLASS, TEMPLATES, Writer, documents, templates


def test_the_file_is_what_the_templates_give():
    """Equal templates, equal file: nothing in it was changed by hand."""
    lines = OUTPUT.read_text(encoding="utf-8").splitlines()

    assert list(documents()) == [json.loads(line) for line in lines]


def test_every_class_has_documents_in_both_languages():
    """The same classes in Spanish and English, each with its share; no document twice."""
    rows = list(documents())
    counts = Counter((row["label"], row["lang"]) for row in rows)
    classes = {language: set(templates(TEMPLATES / f"{language}.txt")) for language in ("es", "en")}

    assert classes["es"] == classes["en"] == {row["label"] for row in rows} - {NONE}
    assert PER_CLASS <= min(count for (label, _), count in counts.items() if label != NONE)
    assert len(rows) == len({row["text"] for row in rows})


@pytest.mark.parametrize("language", ["es", "en"])
def test_no_template_leaves_a_mark_of_its_own(language):
    """Choices, values and line marks are all gone from what is written."""
    writer = Writer(language, Random(0))
    for bodies in templates(TEMPLATES / f"{language}.txt").values():
        for body in bodies:
            text = writer.document(body)

            assert not set("{}[]|~") & set(text), text
            assert not [line for line in text.splitlines() if line.startswith(("*", "? "))], text
