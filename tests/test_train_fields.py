"""Papers made for the network that reads fields, and the network that learns from them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from backend.models.fields_network import FILE, LABELS, bundled_network
from tools.papers.paper import KINDS, make_paper
from tools.train_fields import FieldsNetwork, Papers, own_pages, shaken, word_table


def test_papers_are_labelled() -> None:
    """Every label has words on some of a hundred papers, every kind but the rarest is there, and boxes are on paper."""
    rng = random.Random(5)
    pages = [page for _ in range(100) for page in make_paper(rng)]

    labels = {word.label for page in pages for word in page.words}
    assert set(LABELS) - {"RectifiedInvoiceId", "EquivalenceSurcharge"} <= labels <= set(LABELS)
    assert {page.kind for page in pages} <= set(KINDS)
    assert all(word.box[0] < word.box[2] and word.box[1] < word.box[3] for page in pages for word in page.words)


def test_the_trained_network_is_the_one_that_is_served(tmp_path: Path) -> None:
    """The bundled weights fit the trainer's network, and give a page of one's own what the service reads."""
    lines = [[("Factura", ""), ("N-77", "InvoiceId")], [("Total", ""), ("1.210,00", "InvoiceTotal")], [("Gracias", "")]]
    words = [
        {"text": text, "box": [60.0 * column, 20.0 * row, 60.0 * column + 50, 20.0 * row + 10], "label": label}
        for row, line in enumerate(lines)
        for column, (text, label) in enumerate(line)
    ]
    (tmp_path / "mine.json").write_text(json.dumps([{"kind": "invoice", "words": words}]), "utf-8")
    served = bundled_network()
    assert served is not None
    network = FieldsNetwork().eval()
    network.load_state_dict({name: value.float() for name, value in load_file(FILE).items()})
    papers = Papers(1, 20, own_pages(tmp_path), 1.0)

    batch = {name: value[:1] for name, value in next(iter(papers)).items()}
    batch |= {name: torch.ones_like(batch["facts"][..., :1]) for name in ("spoken", "spelt")}
    with torch.no_grad():
        labels, _, _ = network(batch, word_table())
    reading = served.read([word["text"] for word in words], np.array([word["box"] for word in words]))

    assert [LABELS[index] for index in batch["labels"][0].tolist()] == [word["label"] for word in words]
    np.testing.assert_allclose(labels[0].softmax(-1).numpy(), reading.labels, atol=1e-3)
    assert shaken(batch, "cpu")["facts"].shape == batch["facts"].shape
