"""The examples that ship hold every class in both languages."""

import json
from collections import Counter

from backend.models.classifier_head import NONE
from tools.train_bundled_heads import EXAMPLES


def test_every_class_has_documents_in_both_languages():
    """The same twenty classes in Spanish and English, fourteen documents each; none twice, no template's mark left."""
    lines = (EXAMPLES / "document-type.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    counts = Counter((row["label"], row["lang"]) for row in rows if row["label"] != NONE)
    classes = {language: {label for label, lang in counts if lang == language} for language in ("es", "en")}

    assert classes["es"] == classes["en"]
    assert 20 == len(classes["es"])
    assert min(counts.values()) >= 14
    assert len(rows) == len({row["text"] for row in rows})
    assert [] == [row["text"] for row in rows if set("{}[]~") & set(row["text"])]
