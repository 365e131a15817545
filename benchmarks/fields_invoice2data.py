"""Runs invoice2data with the templates that it ships; started by fields_peers.py with the Python of its environment.

    .venv-invoice2data/bin/python benchmarks/fields_invoice2data.py < paths.json    # seconds and record, a line a file

Imports nothing of this project: the environment has none of its requirements.
"""

import json
import sys
import time

import invoice2data  # type: ignore[import-not-found]
from invoice2data.extract.loader import read_templates  # type: ignore[import-not-found]

READERS = {"pdf": ("pdftotext", "tesseract"), "picture": ("tesseract",)}  # the second where a PDF has no text


def main() -> None:
    """A line of JSON for each path from stdin."""
    templates = read_templates()
    for path in json.load(sys.stdin):
        started_s = time.perf_counter()
        record = _record(path, templates)
        line = {"seconds": time.perf_counter() - started_s, "record": record}
        print(json.dumps(line, default=str), flush=True)


def _record(path: str, templates: object) -> object:
    kind = "pdf" if path.endswith(".pdf") else "picture"
    for reader in READERS[kind]:
        try:
            record = invoice2data.extract_data(path, templates=templates, input_module=reader)
        except Exception as error:  # noqa: BLE001 (its readers raise what their programs give; the file counts as unread)
            print(f"{path}: {error}", file=sys.stderr)
            continue
        if record:
            return record
    return None


if __name__ == "__main__":
    main()
