"""Papers made for the network that reads fields, and the network that learns from them."""

import json
import random
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from backend.models.fields_network import FILE, LABELS, bundled_network
from tools.confirmed_papers import papers_of
from tools.papers.paper import KINDS, make_paper, papers_of_supplier
from tools.train_fields import FieldsNetwork, Papers, own_pages, shaken, word_table


def test_papers_are_labelled() -> None:
    """Every label has words on some of a hundred papers, every kind but the rarest is there, and boxes are on paper."""
    rng = random.Random(5)
    pages = [page for _ in range(100) for page in make_paper(rng)]

    labels = {word.label for page in pages for word in page.words}
    assert set(LABELS) - {"RectifiedInvoiceId", "EquivalenceSurcharge"} <= labels <= set(LABELS)
    assert {page.kind for page in pages} <= set(KINDS)
    assert all(word.box[0] < word.box[2] and word.box[1] < word.box[3] for page in pages for word in page.words)


def test_confirmed_documents_become_papers(tmp_path: Path) -> None:
    """Words in the boxes of a confirmed value have its label; one place has one label, and other words none."""
    texts = [("Total", 0), ("1.210,00", 60), ("Tornillo", 130), ("M8", 190)]
    words = [{"text": text, "box": [left, 10, left + 50, 20]} for text, left in texts]
    fields = {
        "InvoiceTotal": {"value": "1210.00", "page": 2, "boxes": [[60, 10, 110, 20]]},
        "AmountDue": {"value": "1210.00", "page": 2, "boxes": [[60, 10, 110, 20]]},
        "Items": {"value": [{"Description": {"value": "Tornillo M8", "page": 2, "boxes": [[130, 10, 240, 20]]}}]},
    }
    pages = [{"number": 1, "words": words}, {"number": 2, "words": words}]
    papers = papers_of({"pages": pages, "documents": [{"kind": "credit_note", "pages": [2], "fields": fields}]})
    (tmp_path / "one.json").write_text(json.dumps(papers), "utf-8")

    [page] = own_pages(tmp_path)

    assert ("credit", True) == (page.kind, page.begins)
    labels = [(word.label, word.begins) for word in page.words]
    item = "ItemDescription"
    assert [("", False), ("InvoiceTotal", True), (item, True), (item, False)] == labels


def test_a_design_is_kept() -> None:
    """Papers of a supplier have its name and the same labels, and other data; those of another look otherwise."""
    papers = [paper.pages[0] for paper in papers_of_supplier(3, 3, digital=True)]

    names = [[word.text for word in paper.words if word.label == "VendorName"] for paper in papers]
    numbers = {word.text for paper in papers for word in paper.words if word.label == "InvoiceId"}
    unlabelled = [{word.text for word in paper.words if not word.label} for paper in papers]
    assert names[0] == names[1] == names[2]
    assert len(numbers) > 1
    shared = set.intersection(*unlabelled)
    assert len(shared) > 0.5 * max(map(len, unlabelled))


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
