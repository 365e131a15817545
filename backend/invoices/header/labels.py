"""Labels of the dates, times and terms at the head of invoices and receipts.

Spanish, English, Catalan, French, German, Italian and Portuguese. Numbers have none here: the network reads them.
"""

from __future__ import annotations

from itertools import product

from backend.invoices.label_match import Vocabulary

# By language: what is to be done, and by when; every one of the first stands before every one of the second.
_DEADLINE_PHRASES: tuple[tuple[str, str], ...] = (
    (
        (
            "pay|payable|please pay|kindly pay|payment|payment due|payment requested|payment required|payment expected|"
            "to be paid|to pay|settle|please settle|to be settled|settlement|remit|please remit|please settle it|due"
        ),
        "by|before|bef|until|till|on or before|no later than|not later than|latest|at the latest by",
    ),
    (
        (
            "pagar|pago|a pagar|abonar|abono|a abonar|pagadera|pagadero|páguese|abónese|liquidar|ingresar|satisfacer|"
            "pago límite|se ruega pago"
        ),
        "antes de|antes del|hasta|no más tarde del|a más tardar el|como máximo el|máximo",
    ),
    (
        "zahlbar|zu zahlen|bitte zahlen|zahlung|zahlung erbeten|zu begleichen|zu überweisen|fällig|zahlungseingang",
        "bis|spätestens|vor dem",
    ),
    (
        "payable|à payer|à régler|paiement|règlement|régler|payer|à acquitter",
        "avant|jusqu'au|au plus tard|pour le",
    ),
    ("pagare|da pagare|pagamento|pagabile|saldare|da saldare", "entro|prima del"),
    ("pagar|a pagar|pagamento|pagável|liquidar", "até|antes de"),
    ("pagar|a pagar|pagament|abonar|pagador", "abans de|abans del|fins|com a màxim el"),
)
_ALONE = (
    "latest payment", "latest payment date", "last day to pay", "last date for payment", "final payment date",
    "pay bef", "due bef", "vcto", "f vcto", "fecha vcto", "vcmto", "vto pago", "lim pago", "f lim pago",
    "f límite pago", "fecha lím pago", "fecha tope de pago", "plazo hasta", "zahlb bis", "zahlungsfrist endet am",
    "spätester zahlungstermin", "dernier délai", "au plus tard le", "spätestens am", "a más tardar el", "no later than",
    "entro e non oltre il", "o mais tardar até", "com a màxim el",
    "pagable fins al",
)  # fmt: skip
DEADLINES = (
    *(
        f"{what} {when}"
        for whats, whens in _DEADLINE_PHRASES
        for what, when in product(whats.split("|"), whens.split("|"))
    ),
    *_ALONE,
)

LABELS = Vocabulary(
    {
    "date": (
        "invoice delivery date", "invoice and delivery date", "invoice supply date", "rechnungs lieferdatum",
        "rechnungs und lieferdatum", "fecha factura", "fecha de factura", "fecha de la factura", "fecha fra",
        "fecha de emision", "fecha emision", "fecha emision factura", "fecha de expedicion", "fecha expedicion",
        "emitida el", "expedida el", "emision", "fecha del documento", "fecha documento", "fecha doc", "f factura",
        "f emision", "f expedicion", "fecha ticket", "fecha y hora de emision", "fecha de facturacion",
        "fecha facturacion", "fecha rectificativa", "emitida en fecha", "factura de fecha", "factura emitida el",
        "factura con fecha", "fecha de compra", "fecha de venta", "fecha de la rectificativa", "invoice date",
        "inv date", "inv dt", "date of invoice", "date of issue", "issue date", "date issued", "issued on", "issued at",
        "issued", "raised", "emitida", "emitido", "expedida", "fecha de fra", "f fra", "ausgestellt", "erstellt am",
        "emise", "emessa il", "emesa", "invoiced", "date of the invoice", "tax invoice date", "invoice dated",
        "bill date", "bill dt", "billing date", "billed on", "statement date", "receipt date", "transaction date",
        "trans date", "trx date", "document date", "doc date", "date of receipt", "credit note date", "sale date",
        "date of sale", "purchase date", "date of purchase", "tax point date", "date tax point", "date and tax point",
        "tax point", "invoice date tax point", "invoice issue date", "date raised", "order date and time",
        "credit date", "bizdate", "date paid", "rechnungsdatum", "belegdatum", "ausstellungsdatum", "rechnung vom",
        "gutschriftsdatum", "gutschriftdatum", "kaufdatum", "date de facture", "date de la facture", "date facture",
        "date de facturation", "date d'emission", "date emission", "facture du", "emise le", "date de l'avoir",
        "date d'edition", "en date du", "date du document", "data factura", "data de la factura", "data d'emissio",
        "data emissio", "data de factura", "data d'expedicio", "data de l'emissio", "data fattura", "data emissione",
        "data di emissione", "data documento", "data della fattura", "del documento", "data da fatura",
        "data de emissao", "data emissao", "data fatura", "emitida em", "emitido em", "data do documento", "data doc",
    ),
    "plain_date": (
        "fecha", "date", "datum", "data", "dated", "fecha hora", "fecha y hora", "date time", "date and time", "dt",
        "date heure", "data hora", "data e hora", "data ora", "datum uhrzeit", "fecha de", "date of",
    ),
    "due": (
        *DEADLINES, "fecha adeudo", "dia de cargo", "adeudo", "se adeudara el", "se adeudara en su cuenta el",
        "cargo bancario", "cargo el dia", "cobro", "limite pago", "pagadero hasta", "pagadero antes de", "fecha maxima",
        "ultimo dia", "rent due date", "debit date", "date of debit", "payable from", "we will debit",
        "payment taken on", "payment will be taken on", "pago el", "se pasara al cobro el", "vencimientos",
        "fecha vencimiento", "fecha de vencimiento", "vto", "vtos", "fecha vto", "fecha de vto", "vence", "vence el",
        "fecha de vencimiento de pago", "fecha limite de pago", "fecha limite", "limite de pago", "pagar antes de",
        "pagar antes del", "pago antes de", "pago antes del", "paguese antes del", "plazo de pago hasta",
        "pagadero antes del", "pagadero el", "a pagar el", "hasta el", "fecha de pago", "fecha pago",
        "fecha prevista de pago", "pago previsto", "fecha de cargo", "fecha del cargo", "fecha cargo", "fecha de cobro",
        "fecha prevista de cobro", "fecha prevista cobro", "fecha de adeudo", "cargo en cuenta",
        "cargo en cuenta a partir del", "se cargara el", "se cargara en su cuenta el", "se cargara en cuenta el",
        "le cargaremos", "fecha domiciliacion", "fecha de domiciliacion", "sera cargada el", "vencimiento de pago",
        "vencimiento factura", "vencimiento pago", "fin del periodo de pago", "ultimo dia de pago",
        "fecha maxima de pago", "pagar hasta", "due date", "due", "due on", "due by", "date due", "payment due",
        "payment due date", "payment due by", "payment due on", "payment is due", "pay by", "pay before", "payable by",
        "payable on", "payable before", "pay on or before", "payment by", "payment required by", "to be paid by",
        "to be paid before", "remit by", "due for payment", "payment deadline", "settlement date", "debited on",
        "collected on", "will be charged on", "we will collect on", "payment date", "pay this amount by", "settle by",
        "payment to be made by", "payment expected by", "invoice due date", "bill due date", "terms due date",
        "payment collection date", "autopay date", "autopay on", "fallig am", "fallig", "falligkeit",
        "falligkeitsdatum", "fallig bis", "zahlbar bis", "zahlungsziel", "zahlung bis", "bis spatestens",
        "zu zahlen bis", "zahlungsfrist", "abbuchung am", "wird abgebucht am", "bitte zahlen sie bis",
        "bitte uberweisen sie bis", "uberweisung bis", "zahlungstermin", "echeance", "date echeance", "echeance le",
        "a payer avant le", "a regler avant le", "date limite de paiement", "date de paiement", "reglement avant le",
        "payable le", "a payer le", "date de prelevement", "preleve le", "date de reglement", "paiement du",
        "a regler le", "venciment", "data de venciment", "data venciment", "data limit de pagament", "data de carrec",
        "data de pagament", "venc", "carrec en compte", "vencimento", "data de vencimento", "data vencimento",
        "pagar ate", "data limite de pagamento", "pagamento ate", "data limite", "vence em", "debito em conta",
        "data de pagamento", "limite de pagamento", "data scadenza", "data di scadenza", "scadenza pagamento",
        "pagare entro", "pagamento entro", "entro il", "scadenze", "vervaldatum", "vervaldag",
    ),
    "authorisation": (  # of the tax office of Argentina
        "vto cae", "vto de cae", "fecha vto cae", "fecha de vto de cae", "vencimiento cae", "fecha de vencimiento cae",
    ),
    "time": ("hora", "time", "uhrzeit", "heure", "ora", "zeit"),
    "term": (
        "forma de pago", "forma pago", "f pago", "condiciones de pago", "condiciones pago", "plazo de pago", "plazo",
        "metodo de pago", "modo de pago", "medio de pago", "terminos de pago", "pago", "payment terms", "terms",
        "terms of payment", "payment term", "payment conditions", "credit terms", "payment", "payment method",
        "zahlungsbedingungen", "zahlungskonditionen", "zahlungsbedingung", "zahlungsart", "zahlungsweise",
        "conditions de paiement", "conditions de reglement", "modalites de paiement", "mode de reglement",
        "mode de paiement", "forma de pagament", "condicions de pagament", "condicoes de pagamento",
        "forma de pagamento", "condizioni di pagamento", "modalita di pagamento", "pagamento", "reglement", "terminos",
        "condiciones",
    ),
    }
)  # fmt: skip
