"""Records of an invoice that comes as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

EInvoiceFormat = str  # "Factur-X/ZUGFeRD (CII)", "UBL", "Facturae 3.2.1", "VERI*FACTU", "TicketBAI"


@dataclass(frozen=True, slots=True)
class EInvoice:
    """What an electronic invoice says. Values are as in `fields.records.Field`: ISO dates, decimals, compact ids."""

    format: EInvoiceFormat
    values: dict[str, str] = field(default_factory=dict)  # by the field's name
    items: tuple[dict[str, str], ...] = ()
    taxes: tuple[dict[str, str], ...] = ()  # Type, Rate, Base, Amount
    others: int = 0  # further invoices in the same file, which are not read
    page: int | None = None  # number of the page with the QR code; None for XML
    box: tuple[float, float, float, float] | None = None  # of the code: left, top, right, bottom in page units

    @classmethod
    def of(cls, fields: Mapping[str, Any] | None) -> EInvoice | None:
        """The invoice from its fields as JSON has them; None for None. Raises: KeyError, TypeError for others."""
        if fields is None:
            return None
        rows = {name: tuple(map(_texts, fields[name])) for name in ("items", "taxes")}
        box = fields["box"]
        return cls(
            str(fields["format"]),
            _texts(fields["values"]),
            **rows,
            others=int(fields["others"]),
            page=fields["page"],
            box=None if box is None else (box[0], box[1], box[2], box[3]),
        )


def _texts(fields: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in fields.items()}
