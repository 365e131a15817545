"""Papers of the generator with their truth in the form of `fields_dev`, read without a file: words with their boxes.

Seeds are none that the network was taught on. That it was taught by the same generator flatters it all the same.
"""

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from backend.files.pages import Document
from backend.invoices.structure import fields_of
from benchmarks.corrections import Paper, paper_of
from benchmarks.fields_client import Reading
from benchmarks.fields_scores import FIELDS, read_answer
from tools.papers.paper import papers_of_supplier
from tools.papers.sheet import Sheet, scan

_SEED = 61_126_000
_TOLD = ("SubTotal", "TotalTax", "InvoiceTotal", "AmountDue", "InvoiceDate", "DueDate")  # computed where not printed


def made_papers(count: int, *, is_scan: bool) -> Iterator[tuple[dict[str, Any], Reading]]:
    """So many papers, each of its own supplier, and what is read of them."""
    for seed in range(_SEED + count * is_scan, _SEED + count * (1 + is_scan)):
        (made,) = papers_of_supplier(seed, 1, digital=True)
        paper = paper_of(made)
        truth = _truth(paper) | {"medium": "scan" if is_scan else "digital"}
        if is_scan:
            for page in made.pages:
                sheet = Sheet(page.width, page.height, page.words)
                scan(sheet, random.Random(seed))
                page.words = sheet.words
            document = paper_of(made).document
            paper = replace(
                paper, document=replace(document, pages=tuple(replace(page, source="ocr") for page in document.pages))
            )
        yield truth, _read(paper.document)


def _truth(paper: Paper) -> dict[str, Any]:
    named = [name for name in FIELDS if name in paper.accepted and (name not in _TOLD or name in paper.printed)]
    values = {name: list(paper.accepted[name]) for name in named}
    tables = [name for name in ("Items", "TaxDetails") if paper.tables[name]]
    return {
        "doc_type": "invoice", "source": "generated", "labelled": [*named, *tables], "valid": {}, "optional": {},
        "fields": {name: accepted[0] for name, accepted in values.items() if accepted}, "accept": values,
        "items": paper.tables["Items"], "tax_details": paper.tables["TaxDetails"],
    }  # fmt: skip


def _read(document: Document) -> Reading:
    began = time.perf_counter()
    found = fields_of(document, "invoice")
    fields_s = time.perf_counter() - began
    fields = {
        one.name: {"value": [{cell.name: cell.value for cell in row.fields} for row in one.rows] or one.value,
                   "score": one.score}
        for one in found.fields
    }  # fmt: skip
    answer = read_answer({"fields": fields, "valid": {"totals": found.validity.totals}})
    return Reading(answer, document.text, len(document.pages), fields_s)
