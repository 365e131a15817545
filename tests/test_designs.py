"""The designs that papers for the network are drawn in."""

import random

import pytest

from backend.models.fields_network import KINDS
from tools.papers.designs import FOLDER, drawn, papers_of

DESIGNS = sorted(FOLDER.glob("*.html"))


def test_designs_draw_their_values() -> None:
    """Each tells its kind and marks fields, but those of kinds that have none."""
    for file in DESIGNS:
        kind, page = drawn(file.read_text("utf-8"), random.Random(file.stem))

        assert kind in KINDS
        assert ('<v f="' in page) == (kind in KINDS[:5]), file.name


@pytest.mark.chromium
def test_words_are_where_chromium_puts_them() -> None:
    """Values have their label, the first word of each begins it, and boxes lie on a page."""
    first = papers_of(DESIGNS[0].read_text("utf-8"), "test", 3)

    for paper in first:
        names = [word for word in paper["words"] if word["label"] == "VendorName"]
        assert names
        assert names[0]["begins"]
        assert all(w["box"][0] < w["box"][2] and w["box"][1] < w["box"][3] for w in paper["words"])
    assert len({" ".join(w["text"] for w in paper["words"] if w["label"] == "InvoiceId") for paper in first}) > 1
