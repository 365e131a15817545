"""Writes a set: every design several times as a PDF, half of them as a scan too, and the truth of each.

python -m benchmarks.fields_designs.generate FOLDER [--seed 1] [--each 3]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.fields_designs import (
    crowded,
    english,
    european,
    late,
    later,
    later_abroad,
    prose,
    receipts,
    spanish,
    spanish_persons,
    table_pages,
)
from benchmarks.fields_designs.invoice import Sheet
from benchmarks.fields_designs.printing import print_pdf
from benchmarks.fields_designs.scanning import scan

Design = Callable[[Random], Sheet]
INVOICES: Mapping[str, Design] = {
    "es_box_grid": spanish.box_grid,
    "es_hotel": spanish.hotel,
    "es_workshop": spanish.workshop,
    "es_telecom": spanish.telecom,
    "es_water": spanish.water,
    "es_works": spanish.works,
    "es_canaries": spanish.canaries,
    "es_credit_note": spanish.credit_note,
    "es_sentences": spanish_persons.sentences,
    "es_rent": spanish_persons.rent,
    "es_adviser": spanish_persons.adviser,
    "es_exempt": spanish_persons.exempt,
    "es_bar": receipts.bar,
    "es_shop": receipts.shop,
    "us_diner": receipts.diner,
    "uk_trades": english.trades,
    "uk_boxes": english.statement_boxes,
    "us_invoice": english.american,
    "ie_invoice": english.irish,
    "de_letter": european.german,
    "fr_facture": european.french,
    "ca_factura": european.catalan,
    "pt_fatura": european.portuguese,
    "es_wholesaler": crowded.wholesaler,
    "es_note": crowded.note,
    "us_utility": crowded.utility,
    "us_subscription": crowded.subscription,
    "es_fuel": crowded.fuel,
    "de_web_shop": crowded.web_shop,
    "it_fattura": crowded.italian,
    "my_receipt": crowded.asian_receipt,
    "es_side_bar": late.side_bar,
    "es_table_only": late.table_only,
    "uk_agency": late.agency,
    "es_clinic": late.clinic_receipt,
    "es_accounting": later.accounting_program,
    "es_cloud": later.cloud_program,
    "es_form": later.filled_form,
    "es_notary": later.notary,
    "es_garage": later.garage,
    "es_restaurant": later.restaurant,
    "es_community": later.community,
    "es_phone": later.phone_bill,
    "es_difference": later.by_difference,
    "es_course": later.course,
    "es_lawyer": later.lawyer,
    "uk_petrol": later_abroad.petrol_slip,
    "de_craftsman": later_abroad.craftsman_de,
    "en_marketplace": later_abroad.marketplace,
    "uk_plumber": later_abroad.word_plumber,
    "us_remittance": later_abroad.remittance,
    "fr_small": later_abroad.small_business_fr,
}
OTHERS: Mapping[str, Design] = {
    "x_lease": prose.lease,
    "x_agreement": prose.english_agreement,
    "x_letter": prose.reminder,
    "x_minutes": prose.minutes,
    "x_news": prose.news,
    "x_report": prose.report,
    "x_curriculum": prose.curriculum,
}
_PRINTERS = 2  # Chromium needs a core each


def generate(folder: Path, seed: int, each: int) -> int:
    """Write ``folder/files`` and ``folder/truth``; returns the number of documents. The same seed, the same set."""
    (folder / "files").mkdir(parents=True, exist_ok=True)
    (folder / "truth").mkdir(exist_ok=True)
    works = [(f"{name}_{index}", name, design) for name, design in INVOICES.items() for index in range(1, each + 1)]
    works += [(f"{name}_{index}", name, design) for name, design in OTHERS.items() for index in range(1, max(2, each))]
    works += [(name, name, design) for name, design in table_pages.TABLES.items()]

    def write(work: tuple[str, str, Design]) -> int:
        name, family, design = work
        return _write(folder, name, family, design(Random(f"{seed}/{name}")), Random(f"{seed}/scan/{name}"))

    with ThreadPoolExecutor(_PRINTERS) as pool:
        return sum(pool.map(write, works))


def _write(folder: Path, name: str, family: str, sheet: Sheet, random: Random) -> int:
    pdf = folder / "files" / f"{name}.pdf"
    print_pdf(sheet.html, pdf)
    _write_truth(folder, name, pdf, {**sheet.truth, "family": family})
    if random.random() >= 0.5 or sheet.truth["doc_type"] == "other":
        return 1
    picture = scan(pdf, folder / "files" / f"{name}.scan", random)
    _write_truth(folder, f"{name}.scan", picture, {**sheet.truth, "family": family, "medium": "scan"})
    return 2


def _write_truth(folder: Path, name: str, file: Path, truth: dict[str, Any]) -> None:
    content = {"file": str(file.relative_to(folder)), **truth}
    text = json.dumps(content, ensure_ascii=False, indent=1) + "\n"
    (folder / "truth" / f"{name}.json").write_text(text, encoding="utf-8")


def main() -> None:
    """Write the set named on the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fields_designs.generate", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=3, help="documents of a design (default: %(default)s)")
    flags = parser.parse_args()
    print(generate(flags.folder, flags.seed, flags.each))


if __name__ == "__main__":
    main()
