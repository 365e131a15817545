"""Writes confirmed documents as papers that `tools.train_fields` learns from.

    python -m tools.confirmed_papers --out FOLDER [--url http://127.0.0.1:8000] [--key SECRET]
    make train ARGS="fields --data FOLDER --out OUT --minutes 60"

One file a document, named by its id: delete it with its document. Pages without words are left out.
"""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import orjson

from backend.models.fields_network import LABELS

_KINDS = {"invoice": "invoice", "credit_note": "credit", "receipt": "simplified"}
_ITEMS = {
    "Description": "ItemDescription", "Quantity": "ItemQuantity", "UnitPrice": "ItemPrice", "Amount": "ItemAmount",
    "ProductCode": "ItemCode", "Unit": "ItemUnit", "Discount": "ItemDiscount", "TaxRate": "ItemTaxRate",
}  # fmt: skip

_TAXES = {"Rate": "TaxRate", "Base": "TaxBase", "Amount": "TaxAmount"}


def papers_of(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The pages of a confirmed document with the label of each word, as `train_fields.own_pages` takes them."""
    papers = []
    for document in answer["documents"]:
        places = list(_places(document["fields"]))
        for page in answer["pages"]:
            if page["number"] in document["pages"] and page.get("words") and document["kind"] in _KINDS:
                opens = page["number"] == document["pages"][0]
                words = _labelled(page, places)
                papers.append({"kind": _KINDS[document["kind"]], "opens": opens, "words": words})
    return papers


def _places(fields: Mapping[str, Any]) -> Iterator[tuple[int, list[float], str, int]]:
    """Page, box and label of each printed line of a value, and which value it is."""
    cells = [(name, field) for name, field in fields.items() if name in LABELS]
    for table, labels in (("Items", _ITEMS), ("TaxDetails", _TAXES)):
        rows = fields[table]["value"] if table in fields else []
        cells += [(labels[name], cell) for row in rows for name, cell in row.items() if name in labels]
    for value, (label, field) in enumerate(cells):
        for box in field["boxes"]:
            yield field["page"], box, label, value


def _labelled(page: Mapping[str, Any], places: list[tuple[int, list[float], str, int]]) -> list[dict[str, Any]]:
    words: list[dict[str, Any]] = []
    begun: set[int] = set()
    own = [place for place in places if place[0] == page["number"]]
    for word in page["words"]:
        left, top, right, bottom = word["box"]
        x, y = (left + right) / 2, (top + bottom) / 2
        found = next((p for p in own if p[1][0] <= x <= p[1][2] and p[1][1] <= y <= p[1][3]), None)
        labelled = {"text": word["text"], "box": word["box"]}
        if found is not None:
            labelled |= {"label": found[2], "begins": found[3] not in begun}
            labelled["row"] = found[2].startswith("Item") and labelled["begins"]
            begun.add(found[3])
        words.append(labelled)
    return words


def write_all(client: httpx.Client, out: Path) -> int:
    """Write every confirmed document of the key; how many there are."""
    out.mkdir(parents=True, exist_ok=True)
    query: dict[str, Any] = {"state": "confirmed", "limit": 500}
    count, more = 0, True
    while more:
        listed = client.get("/v1/documents", params=query).raise_for_status().json()
        for document in listed["data"]:
            answer = client.get(f"/v1/documents/{document['id']}").raise_for_status().json()
            if papers := papers_of(answer):
                (out / f"{document['id']}.json").write_bytes(orjson.dumps(papers))
                count += 1
        query["after"], more = listed["last_id"], listed["has_more"]
    return count


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--key", help="an API key; its own documents are written")
    a = parser.parse_args()
    headers = {"Authorization": f"Bearer {a.key}"} if a.key else {}
    with httpx.Client(base_url=a.url, headers=headers, timeout=60.0) as client:
        print(f"{write_all(client, a.out)} documents: {a.out}")


if __name__ == "__main__":
    main()
