"""What is compared: invoice2data with its shipped templates, and plain regular expressions on the text of the page."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import PIPE
from typing import Any

from benchmarks.fields_scores import Answer
from benchmarks.machine import ROOT

VENV = ROOT / ".venv-invoice2data"  # its requirements are not ours; it calls the programs pdftotext and tesseract
INVOICE2DATA_VERSION = "1.0.1"
CACHE = ROOT / "build" / "fields_invoice2data" / INVOICE2DATA_VERSION  # it is deterministic
_SCRIPT = Path(__file__).with_name("fields_invoice2data.py")
_FIELDS = {  # our name -> its names, best first
    "VendorName": ("partner_name", "issuer"),
    "VendorTaxId": ("vat", "partner_vat"),
    "InvoiceId": ("invoice_number",),
    "InvoiceDate": ("date",),
    "DueDate": ("date_due",),
    "SubTotal": ("amount_untaxed",),
    "TotalTax": ("amount_tax",),
    "InvoiceTotal": ("amount",),
    "CurrencyCode": ("currency",),
    "IBAN": ("iban",),
}
_COLUMNS = {"Description": "name", "Quantity": "qty", "UnitPrice": "price_unit", "Amount": "price_subtotal"}
_DATES = frozenset({"InvoiceDate", "DueDate"})

_AMOUNT = r"(-?\d[\d.,\u00a0\u202f ]*[.,]\d{2})(?!\d)"
_GAP = r"[^\d\n]{0,40}?"
_DAY = r"(\d{1,2})[/.-](\d{1,2})[/.-](\d{2,4})"
_PATTERNS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "VendorTaxId": r"\b(?:[CN]\.?I\.?F\.?|VAT|USt)\W[^\d\n]{0,12}?((?:[A-Z]{2})?-?[A-Z]?\d{7,11}[A-Z]?)\b",
        "InvoiceId": r"(?:factura|invoice|rechnung|facture|fatura)\w*\W+(?:n\w{0,6}\W{1,3}|#\s*)([A-Z0-9][\w/.-]*\d)",
        "InvoiceDate": rf"(?:fecha|date|datum|data)\b[^\d\n]{{0,25}}?{_DAY}",
        "DueDate": rf"(?:vencimiento|vto|due|fällig|échéance|venciment)\w*[^\d\n]{{0,25}}?{_DAY}",
        "SubTotal": rf"(?:base imponible|subtotal|sub-total|total ht|netto\w*){_GAP}{_AMOUNT}",
        "TotalTax": rf"(?:cuota|iva|vat|tax|tva|mwst)\b[^\n]{{0,20}}?{_AMOUNT}",
        "InvoiceTotal": rf"(?<!sub)(?<!sub-)total\b{_GAP}{_AMOUNT}",
        "IBAN": r"\b([A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?)\b",
    }.items()
}
_CURRENCIES = {"€": "EUR", "£": "GBP", "$": "USD"}


def install_invoice2data(venv: Path = VENV) -> None:
    """Create its environment unless it exists. Raises: subprocess.CalledProcessError."""
    if (venv / "bin" / "invoice2data").exists():
        return
    requirement = f"invoice2data=={INVOICE2DATA_VERSION}"
    print(f"creating {venv} for {requirement}", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
    subprocess.run([str(venv / "bin" / "pip"), "install", "--quiet", requirement], check=True)


def by_invoice2data(files: Sequence[Path], venv: Path = VENV, cache: Path = CACHE) -> tuple[float, list[Answer]]:
    """Seconds for all files, as they were when each was read, and its answers; files read before come from the cache.

    Raises: RuntimeError with its stderr, OSError.
    """
    kept = {file: cache / f"{hashlib.sha256(file.read_bytes()).hexdigest()}.json" for file in files}
    missing = [file for file, place in kept.items() if not place.exists()]
    if missing:
        cache.mkdir(parents=True, exist_ok=True)
        _read_anew(missing, kept, venv)
    lines = [json.loads(kept[file].read_text(encoding="utf-8")) for file in files]
    return sum(line["seconds"] for line in lines), [translated(line["record"] or {}) for line in lines]


def _read_anew(files: Sequence[Path], kept: Mapping[Path, Path], venv: Path) -> None:
    """Keep each answer as it comes: OCR takes many seconds a page."""
    command = [str(venv / "bin" / "python"), str(_SCRIPT)]
    env = {**os.environ, "OMP_THREAD_LIMIT": "1"}  # Tesseract's threads hinder each other
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=errors, env=env, text=True) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        json.dump([str(file.resolve()) for file in files], process.stdin)
        process.stdin.close()
        for file, line in zip(files, process.stdout, strict=False):
            kept[file].write_text(line, encoding="utf-8")
        if process.wait():
            errors.seek(0)
            raise RuntimeError(f"invoice2data ended with status {process.returncode}: {errors.read()[-500:]}")


def translated(record: Mapping[str, Any]) -> Answer:
    """Its record under our names."""
    fields: dict[str, Any] = {}
    for ours, theirs in _FIELDS.items():
        value = next((record[name] for name in theirs if record.get(name) not in (None, "")), None)
        if value is not None:
            fields[ours] = str(value)[:10] if ours in _DATES else str(value)
    items = [
        {ours: str(line[name]) for ours, name in _COLUMNS.items() if line.get(name) not in (None, "")}
        for line in record.get("lines") or ()
        if isinstance(line, Mapping) and "price_subtotal" in line
    ]
    return Answer({**fields, **({"Items": items} if items else {})})


def by_regexes(text: str) -> Answer:
    """The first match of each pattern; days first, the mark before the last two digits is the decimal one."""
    fields = {}
    for name, pattern in _PATTERNS.items():
        match = pattern.search(text)
        if match is None:
            continue
        if name in _DATES:
            day, month, year = match.groups()
            fields[name] = f"{2000 + int(year) % 100}-{month:0>2}-{day:0>2}"
        elif name in ("SubTotal", "TotalTax", "InvoiceTotal"):
            digits = re.sub(r"[^\d-]", "", match[1])
            fields[name] = f"{digits[:-2]}.{digits[-2:]}"
        else:
            fields[name] = match[1].replace(" ", "")
    sign = next((sign for sign in _CURRENCIES if sign in text), None)
    return Answer({**fields, **({"CurrencyCode": _CURRENCIES[sign]} if sign else {})})
