"""Phrases before the day by which an invoice is to be paid: "Pay before", "Abonar antes del", "Zahlbar bis zum"."""

from __future__ import annotations

from itertools import product

# By language: what is to be done, and by when; every one of the first stands before every one of the second.
_PHRASES: tuple[tuple[str, str], ...] = (
    (
        (
            "pay|payable|please pay|kindly pay|payment|payment due|payment requested|payment required|payment expected|"
            "to be paid|to pay|settle|please settle|to be settled|settlement|remit|please remit|please settle it|due"
        ),
        "by|before|bef|until|till|on or before|no later than|not later than|latest|latest by|at the latest by",
    ),
    (
        (
            "pagar|pago|a pagar|abonar|abono|a abonar|pagadera|pagadero|páguese|abónese|liquidar|ingresar|satisfacer|"
            "pago límite|se ruega pago"
        ),
        (
            "antes de|antes del|antes del día|hasta|hasta el|hasta el día|no más tarde del|a más tardar el|"
            "como máximo el|máximo"
        ),
    ),
    (
        "zahlbar|zu zahlen|bitte zahlen|zahlung|zahlung erbeten|zu begleichen|zu überweisen|fällig|zahlungseingang",
        "bis|bis zum|bis spätestens|spätestens|spätestens am|spätestens bis|spätestens zum|vor dem",
    ),
    (
        "payable|à payer|à régler|paiement|règlement|régler|payer|à acquitter",
        "avant|avant le|jusqu'au|au plus tard|au plus tard le|pour le",
    ),
    ("pagare|da pagare|pagamento|pagabile|saldare|da saldare", "entro|entro il|entro e non oltre il|prima del"),
    ("pagar|a pagar|pagamento|pagável|liquidar", "até|até ao|até a|até ao dia|antes de"),
    ("pagar|a pagar|pagament|abonar|pagador", "abans de|abans del|fins al|fins|com a màxim el"),
)
_ALONE = (
    "latest payment", "latest payment date", "last day to pay", "last date for payment", "final payment date",
    "pay bef", "due bef", "vcto", "f vcto", "fecha vcto", "vcmto", "vto pago", "lim pago", "f lim pago",
    "f límite pago", "fecha lím pago", "fecha tope de pago", "plazo hasta", "zahlb bis", "zahlungsfrist endet am",
    "spätester zahlungstermin", "dernier délai",
    "pagable fins al",
)  # fmt: skip
DEADLINES = (
    *(f"{what} {when}" for whats, whens in _PHRASES for what, when in product(whats.split("|"), whens.split("|"))),
    *_ALONE,
)
