"""Labels of the numbers and dates at the head of invoices and receipts, and of what stands beside them and is neither.

Spanish, English, Catalan, French, German, Italian and Portuguese. Kinds: "id", "number" and "reference" of an invoice,
each less sure than the one before, its "title", "series", the invoice it rectifies ("rectified"), the customer's
"order", "other_id", "date" and "plain_date", "operation_date", "due", "other_date", "time", "term", "other". The others
("Nº de cliente", "Fecha de entrega", "Total factura") keep their values from being taken for an invoice's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product

from backend.invoices.label_match import Vocabulary

# By language: what is to be done, and by when; every one of the first stands before every one of the second.
_DEADLINE_PHRASES: tuple[tuple[str, str], ...] = (
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
    *(
        f"{what} {when}"
        for whats, whens in _DEADLINE_PHRASES
        for what, when in product(whats.split("|"), whens.split("|"))
    ),
    *_ALONE,
)


_NUMBER_ES = ("n", "no", "num", "numero", "nro", "nr", "ref", "referencia", "codigo", "cod")
_NUMBER_EN = ("no", "number", "num", "nr", "id", "ref", "reference", "code")


def _romance(nouns: Iterable[str], numbers: Iterable[str] = _NUMBER_ES) -> Iterator[str]:
    """'factura nº', 'nº factura', 'nº de factura', 'número de la factura'."""
    for noun in nouns:
        for number in numbers:
            yield from (f"{noun} {number}", f"{number} {noun}", f"{number} de {noun}", f"{number} de la {noun}")


def _germanic(nouns: Iterable[str], numbers: Iterable[str] = _NUMBER_EN) -> Iterator[str]:
    """'invoice no', 'invoice number', 'no of invoice'."""
    for noun in nouns:
        yield from (f"{noun} {number}" for number in numbers)


_INVOICES_ES = (
    "factura", "fra", "fact", "factura simplificada", "factura rectificativa", "factura proforma",
    "fra rectificativa", "factura completa", "factura ordinaria", "factura recapitulativa", "rectificativa",
    "ticket", "tique", "tiquet", "recibo", "abono", "factura abono", "factura de abono", "nota de abono",
    "nota de credito", "minuta", "simplificada", "f simplificada", "fs", "nota de credit", "boleta", "nota",
    "num ticket", "fra simpl", "fra simplificada", "fact simpl", "fact simplificada", "fac", "fac simpl",
    "fac simplificada", "factura simpl", "f simpl", "fact simp", "fra simp", "factura simp", "tiq", "tck", "tkt",
    "simplif", "fra simplif", "fact simplif", "factura simplif", "factura simplificada ticket", "factura ticket",
    "serie y numero", "serie numero", "serie n",
)  # fmt: skip
_INVOICES_EN = (
    "invoice", "inv", "tax invoice", "vat invoice", "sales invoice", "simplified tax invoice", "bill", "receipt",
    "rcpt",
    "credit note", "credit memo", "ticket", "slip", "cash bill", "cash sale",
    "note", "fee note", "debit note", "sales note", "guest check", "till receipt", "cash memo", "voucher", "docket",
    "sale", "resit", "invoice bill", "statement", "proforma invoice", "proforma", "folio", "check", "chk",
)  # fmt: skip
_NOTES_ES = (
    "nota de cargo",
    "nota de venta",
    "nota de honorarios",
    "recibo de alquiler",
    "liquidacion",
    "vale",
    "cargo",
)
_DOCUMENTS = ("documento", "doc", "comprobante", "justificante", "document", "dokument", "beleg")
_INVOICES_OTHER = (
    "facture", "avoir", "note d'honoraires", "fattura", "parcella", "fatura", "fatura recibo", "nota di credito", "ft",
    "fr", "piece", "ricevuta", "scontrino", "recu", "rechnung",
)  # fmt: skip
# "Fra. simpl. nº", "F. simp.", "Fact. S."
_SIMPLIFIED = tuple(
    f"{invoice} {kind}"
    for invoice in ("f", "fc", "fac", "fact", "fra", "ft", "fta", "ftra", "factura", "ticket factura", "tique factura")
    for kind in ("s", "si", "sim", "simp", "simpl", "simple", "simplif", "simplific", "simplificada")
)
_OTHERS_ES = (
    "cliente", "contrato", "cuenta", "cuenta cliente", "albaran", "poliza", "expediente", "habitacion", "reserva",
    "socio", "colegiado", "serie equipo", "matricula", "bastidor", "contador", "lote", "presupuesto", "oferta",
    "obra", "proyecto", "registro", "proveedor", "autorizacion", "referencia catastral", "abonado", "suministro",
    "mandato", "operacion", "agente", "vendedor", "telefono", "caja", "mesa", "terminal", "comercio", "afiliacion",
    "seguridad social", "remito", "envio", "seguimiento", "parte", "orden de trabajo", "orden de reparacion", "fax",
    "licencia", "catastro", "producto", "articulo", "linea", "servicio", "movil", "nomina", "hoja", "tarjeta",
    "unidades", "paginas", "noches", "personas", "cups", "identificacion fiscal", "cai", "cae", "obra social",
)  # fmt: skip
_OTHERS_EN = (
    "customer", "client", "account", "acct", "contract", "delivery note", "despatch note", "policy", "booking",
    "reservation", "confirmation", "room", "meter", "company", "company registration", "company reg", "reg",
    "registration", "vat", "vat reg", "vat registration", "gst", "gst reg", "tax", "tax reg", "ein", "charity", "job",
    "project", "quote", "quotation", "estimate", "tracking", "shipment", "licence", "license", "vehicle", "serial",
    "phone", "tel", "telephone", "fax", "mobile", "table", "station", "terminal", "counter", "cashier", "auth",
    "approval", "card", "merchant", "supplier", "vendor", "routing", "swift", "bic", "membership",
    "member", "guest", "store", "shop", "branch", "item", "part", "sku", "product", "user", "station id", "lot",
    "reference payment", "payment reference", "waybill", "awb", "container", "token", "queue",
    "previous invoice", "transaction", "trans", "trx",
    "registered in england and wales", "registered in england", "registered", "hst", "abn", "acn", "uen", "co reg",
    "sst", "business reg", "till", "register", "operator", "clerk", "site", "supply", "mpan", "mprn", "gprn",
)  # fmt: skip
_ORDERS_ES = (
    "pedido", "su pedido", "s pedido", "pedido cliente", "pedido de compra", "orden de compra", "orden compra", "orden",
    "o c", "comanda", "encomenda", "ordine", "commande", "bon de commande", "vostro ordine", "nota de encomenda",
)  # fmt: skip
_ORDERS_EN = (
    "purchase order", "po", "p o", "order", "your order", "customer order", "sales order", "customer po", "bestell",
    "auftrags", "bestellung", "auftrag", "ihre bestell",
)  # fmt: skip
_RECTIFIED_ES = (
    "factura rectificada", "fra rectificada", "factura original", "factura de origen", "factura origen",
    "factura que rectifica", "factura que se rectifica", "factura a la que rectifica", "factura anulada",
    "factura sustituida", "documento rectificado", "factura abonada", "factura modificada", "fra original",
)  # fmt: skip

_PHRASES: Mapping[str, tuple[str, ...]] = {
    "id": (
        *_romance(_INVOICES_ES), *_romance(_SIMPLIFIED), *_romance(_NOTES_ES), *_germanic(_INVOICES_EN),
        "factura electronica n", "factura electronica numero",
        "numero y serie", "n serie y numero", "inv", "su factura n", "nuestra factura n",
        "factura num y serie", "our invoice no", "f simplificada", *_romance(_INVOICES_OTHER),
        "numero de la facture", "n de facture", "n de la facture", "facture n", "reference facture",
        "n facture d'avoir", "numero della fattura", "fattura n", "numero da fatura", "n da fatura", "fatura n",
        "rechnungsnummer", "rechnungs nummer", "rechnungsnr", "rechnungs nr", "rechnung nr",
        "rechnung nummer", "re nr", "rg nr", "belegnummer", "beleg nr", "belegnr", "gutschrift nr",
        "gutschriftsnummer", "gutschriftnummer", "gutschrift nummer", "bon nr", "quittung nr", "quittungs nr",
        "kassenbon nr", "handelsrechnung nr", "re nummer", "dokumentnummer",
    ),
    "number": (*_romance(_DOCUMENTS), "n", "no", "num", "numero", "number", "nr", "nro", "nummer", "document"),
    "reference": ("ref", "referencia", "reference", "our ref", "n ref", "nuestra referencia"),
    "title": (
        "factura", "factura simplificada", "factura rectificativa", "factura completa", "fra", "factura electronica",
        "factura de venta", "factura proforma", "factura de abono", "factura ordinaria", "invoice", "tax invoice",
        "vat invoice", "sales invoice", "commercial invoice", "ticket", "tique", "recibo", "receipt", "credit note",
        "bill", "facture", "avoir", "rechnung", "gutschrift", "fattura", "fatura", "fatura recibo",
        "fatura simplificada", "nota de abono", "abono", "nota de credito", "minuta", "minuta de honorarios",
        "tiquet", "facture d'avoir", "simplified invoice", "simplified tax invoice", "cash bill", "cash sale",
        "cash receipt", "kassenbon", "quittung", "factura de serveis", "factura de servicios",
        "nota de honorarios", "nota de cargo", "fee note", "debit note", "recibo de alquiler", "cash memo", "voucher",
        *_SIMPLIFIED, "fac", "fact", "tiq", "tkt",
        "factura de suministro", "nota di credito", "parcella", "sales receipt",
    ),
    "series": ("serie", "serie factura", "serie de facturacion", "series"),
    "rectified": (
        *_RECTIFIED_ES, *_romance(_RECTIFIED_ES), "rectifica a", "rectifica", "rectifica la factura",
        "rectifica a la factura", "rectifica factura", "anula a", "rectifica a la factura n",
        "rectifica la factura n", "rectifica factura n", "anula la factura", "rectificacion de la factura",
        "rectificacion de la factura n", "rectifica la fra", "corrige la factura", "corrige a",
        "abono de la factura", "abono de la factura n", "abono factura n", "abono sobre factura",
        "sustituye a la factura", "sustituye a", "en relacion con la factura", "referida a la factura",
        "ref factura rectificada", "correspondiente a la factura", "factura de referencia", "original invoice",
        "original invoice no", "original invoice number", "credit for invoice", "for invoice", "against invoice",
        "against invoice no", "credit note for invoice", "relates to invoice", "relating to invoice",
        "in respect of invoice", "in respect of invoice no", "corrects invoice", "correction of invoice",
        "corrected invoice", "credited invoice", "invoice credited", "applies to invoice",
        "rectifica la factura num", "factura rectificada n", "rectifica la factura numero", "facture d'origine",
        "annule la facture", "avoir sur facture", "avoir sur la facture", "facture rectifiee", "sur facture n",
        "gutschrift zu rechnung", "gutschrift zu rechnung nr", "korrektur zu rechnung", "storno zu rechnung",
        "zu rechnung nr", "ursprungsrechnung", "zur rechnung", "zur rechnung nr", "storno der rechnung",
        "originalrechnung", "fattura originale", "rettifica la fattura", "storno fattura", "fatura de origem",
        "documento de origem", "referente a fatura", "fatura original", "factura rectificada num",
        "rectifica la factura nro",
    ),
    "order": (
        *_ORDERS_ES, *_romance(_ORDERS_ES), *_ORDERS_EN, *_germanic(_ORDERS_EN), "n pedido cliente", "ref pedido",
        "your reference", "your ref", "customer reference", "customer ref", "su referencia", "s ref", "su ref",
        "ref cliente", "reference client", "votre reference", "votre commande", "n de commande",
        "numero de commande", "numero d'ordine", "n ordine", "rif ordine", "bestellnummer", "bestellnr",
        "bestell nr", "ihre bestellung", "ihre bestellung vom", "auftragsnummer", "auftragsnr", "auftrags nr",
        "ihr zeichen", "ihre referenz", "buyer reference", "po ref", "nuestro pedido", "n de comanda",
        "ordre d'achat", "referencia del cliente", "vossa encomenda", "encomenda n", "requisicao n",
        "referencia de cliente", "vostre comanda",
    ),
    "other_id": (
        *_romance(_OTHERS_ES), *_germanic(_OTHERS_EN), "cliente", "albaran", "albaranes", "contrato", "customer",
        "account", "cuenta", "delivery note", "cif", "nif", "dni", "nie", "nif cif", "cif nif", "c i f", "n i f",
        "vat", "vat id", "tva", "tva intracommunautaire", "n tva", "numero de tva", "siret", "siren", "rcs", "ape",
        "naf", "ust id", "ust idnr", "ust id nr", "steuernummer", "steuer nr", "hrb", "hra", "kundennummer",
        "kundennr", "kunden nr", "kd nr", "lieferschein", "lieferschein nr", "lieferscheinnummer", "vertragsnummer",
        "vertrags nr", "lief nr", "gln", "zahlernummer", "handelsregister", "partita iva", "p iva", "codice fiscale",
        "codice cliente", "numero cliente", "contribuinte", "n contribuinte", "nipc", "contribuinte n",
        "n de client", "code client", "numero client", "client n", "bon de livraison", "bl n", "n contrat", "cups",
        "telefono", "tel", "telf", "tlf", "tfno", "tfn", "fax", "movil", "phone", "telephone", "atencion al cliente",
        "registro mercantil", "hoja", "tomo", "folio registro", "inscrita", "registered in england", "codigo postal",
        "c p", "iban", "bic", "swift", "ccc", "n de serie", "mesa", "caja", "cajero", "atendido por",
        "agente", "vendedor", "tarjeta", "autorizacion", "aid", "arqc", "terminal", "tienda", "order type",
        "station", "cashier", "counter", "table", "gst id", "gst id no", "gst reg no", "co reg no", "roc no",
        "sst id", "sst no", "customer id", "huella", "codigo de verificacion", "csv", "atcud", "mandato sepa",
        "referencia de mandato", "habitacion", "room", "localizador", "localizador reserva", "colegiado",
        "n colegiado", "poliza", "expediente", "presupuesto", "proyecto", "pagina", "pag", "page", "seite", "hoja n",
        "hotline", "n afiliacion", "cuit", "iibb", "iibb convenio", "rfc", "ruc", "rut", "nit", "matricula",
        "kennzeichen", "punto de suministro", "contador", "referencia contrato", "referencia de contrato",
        "referencia del contrato", "contrato n", "n contrato", "referencia catastral", "payment reference",
        "referencia de pago", "concepto de la transferencia", "verwendungszweck", "kommunikation",
        "reference de paiement", "reg no", "reg number", "vat reg no", "company no", "company number",
        "registered no",
    ),
    "date": (
        "invoice delivery date", "invoice and delivery date", "invoice supply date", "rechnungs lieferdatum",
        "rechnungs und lieferdatum", "fecha factura entrega", "fecha de factura y entrega",
        "fecha factura", "fecha de factura", "fecha de la factura", "fecha fra", "fecha de emision", "fecha emision",
        "fecha emision factura", "fecha de emision de la factura", "fecha de emision factura", "fecha de expedicion",
        "fecha expedicion", "emitida el", "expedida el", "emision", "fecha del documento", "fecha documento",
        "fecha doc", "f factura", "f emision", "f expedicion", "fecha ticket", "fecha y hora de emision",
        "fecha de facturacion", "fecha facturacion", "fecha rectificativa", "emitida en fecha", "factura de fecha",
        "factura emitida el", "factura con fecha", "fecha de compra", "fecha de venta", "fecha de la rectificativa",
        "fecha de la factura rectificativa", "invoice date", "inv date", "inv dt", "date of invoice",
        "date of issue", "issue date", "date issued", "issued on", "issued at", "issued", "raised", "raised on",
        "emitida", "emitido", "expedida", "fecha de fra", "f fra", "ausgestellt", "erstellt am", "emise", "emessa il",
        "emesa", "invoiced", "date of the invoice",
        "tax invoice date", "invoice dated", "invoiced on", "bill date", "bill dt", "billing date", "billed on",
        "statement date", "receipt date", "transaction date", "trans date", "trx date", "document date", "doc date",
        "date of receipt", "credit note date", "sale date", "date of sale", "purchase date", "date of purchase",
        "tax point date", "date tax point", "date and tax point", "tax point", "invoice date tax point",
        "invoice issue date", "date raised", "order date and time", "credit date", "bizdate", "biz date",
        "date paid", "rechnungsdatum", "rechnungs datum", "belegdatum", "beleg datum", "ausstellungsdatum",
        "ausgestellt am", "rechnung vom", "gutschriftsdatum", "gutschriftdatum", "rechnungsdatum lieferdatum",
        "kaufdatum", "rechnungsdatum leistungsdatum", "date de facture", "date de la facture", "date facture",
        "date de facturation", "date d'emission", "date emission", "facture du", "emise le", "date de l'avoir",
        "date d'edition", "en date du", "date du document", "data factura", "data de la factura", "data d'emissio",
        "data emissio", "data de factura", "data d'expedicio", "data de l'emissio", "emesa el", "data fattura",
        "data emissione", "data di emissione", "data documento", "data della fattura", "del documento",
        "data da fatura", "data de emissao", "data emissao", "data fatura", "emitida em", "emitido em",
        "data do documento", "data doc",
    ),
    "plain_date": (
        "fecha", "date", "datum", "data", "dated", "fecha hora", "fecha y hora", "date time", "date and time", "dt",
        "date heure", "data hora", "data e hora", "data ora", "datum uhrzeit", "fecha de", "date of",
    ),
    "operation_date": (
        "fecha operacion", "fecha de operacion", "fecha de la operacion", "fecha de devengo", "fecha devengo",
        "fecha de prestacion", "fecha del servicio", "fecha de servicio", "date of supply", "supply date",
        "leistungsdatum", "leistungszeitpunkt", "data operacio", "data d'operacio", "service date",
        "date of service", "date de prestation", "fecha de realizacion", "data operazione",
    ),
    "due": (
        *DEADLINES,
        "fecha adeudo", "fecha de adeudo en cuenta", "fecha de cargo bancario", "dia de cargo", "dia de cobro",
        "adeudo", "fecha de adeudo bancario", "se adeudara el", "se adeudara en su cuenta el", "cargo bancario",
        "cargo el dia", "se cargara en su cuenta el dia", "cobro", "cobro el", "cobro el dia",
        "fecha limite de ingreso", "limite pago", "pagadero hasta", "pagadera hasta", "pagadera antes del",
        "pagadero antes de", "fecha maxima", "ultimo dia", "rent due", "rent due date", "rent due on", "debit date",
        "date of debit", "bank debit date", "payable from", "we will debit", "payment taken on",
        "payment will be taken on", "pago el", "se pasara al cobro el", "vencimiento", "vencimientos",
        "fecha vencimiento", "fecha de vencimiento", "f vencimiento", "vto", "vtos", "f vto", "fecha vto",
        "fecha de vto", "vence", "vence el", "vencimiento el", "con vencimiento", "con vencimiento el",
        "fecha de vencimiento de pago", "fecha limite de pago", "fecha limite", "limite de pago", "pagar antes de",
        "pagar antes del", "pago antes de", "pago antes del", "a pagar antes del", "a pagar antes de",
        "paguese antes del", "plazo de pago hasta", "pagadero antes del", "pagadero el", "a pagar el", "hasta el",
        "fecha de pago", "fecha pago", "fecha prevista de pago", "pago previsto", "fecha de cargo",
        "fecha del cargo", "fecha de cargo en cuenta", "fecha cargo", "fecha prevista de cargo",
        "fecha prevista cargo", "fecha de cobro", "fecha prevista de cobro", "fecha prevista cobro",
        "fecha de adeudo", "cargo en cuenta", "cargo en cuenta el", "cargo en cuenta a partir del", "se cargara el",
        "se cargara en su cuenta el", "se cargara en cuenta el", "adeudo en cuenta", "le cargaremos",
        "fecha domiciliacion", "fecha de domiciliacion", "sera cargado el", "sera cargada el",
        "fecha de pago prevista", "vencimiento de pago", "vencimiento factura", "vencimiento pago",
        "fin del periodo de pago", "periodo de pago hasta", "ultimo dia de pago", "vencimiento recibo",
        "a abonar antes del", "abonar antes del", "fecha maxima de pago", "pago hasta el", "pagar hasta el",
        "pagar hasta", "due date", "due", "due on", "due by", "date due", "payment due", "payment due date",
        "payment due by", "payment due on", "payment is due", "payment is due by", "payment is due on", "pay by",
        "please pay by", "pay before", "payable by", "payable on", "payable before", "pay on or before",
        "payment by", "payment required by", "to be paid by", "to be paid before", "please remit by",
        "please remit until", "remit by", "amount due by", "amount due on", "total due by", "total due on",
        "balance due by", "due for payment", "due for payment by", "payment deadline", "settlement date",
        "direct debit date", "will be debited on", "debited on", "collected on", "collected on or after",
        "will be collected on", "will be charged on", "we will collect on", "payment date", "pay this amount by",
        "settle by", "payment to be made by", "payment expected by", "invoice due", "invoice due date", "bill due",
        "bill due date", "due and payable by", "terms due date", "payment collection date", "autopay date",
        "autopay on", "fallig am", "fallig", "falligkeit", "falligkeitsdatum", "fallig bis", "zahlbar bis",
        "zahlbar bis zum", "zahlungsziel", "zahlung bis", "zahlung bis zum", "bis spatestens", "zahlungsfrist bis",
        "zu zahlen bis", "zahlungsfrist", "abbuchung am", "wird abgebucht am", "bitte zahlen sie bis",
        "bitte uberweisen sie bis", "uberweisung bis", "faellig am", "faelligkeit", "faelligkeitsdatum",
        "rechnung fallig am", "zahlungsziel bis", "zahlungstermin", "echeance", "date d'echeance", "date echeance",
        "echeance le", "a payer avant le", "a regler avant le", "payable avant le", "date limite de paiement",
        "date de paiement", "reglement avant le", "payable le", "a payer le", "date de prelevement", "preleve le",
        "sera preleve le", "date de reglement", "echeance de paiement", "paiement avant le", "paiement du",
        "a regler le", "echeance au", "venciment", "data de venciment", "data venciment", "data limit de pagament",
        "data de carrec", "data de pagament", "venc", "carrec en compte", "vencimento", "data de vencimento",
        "data vencimento", "pagar ate", "data limite de pagamento", "pagamento ate", "data limite", "vence em",
        "debito em conta", "data de pagamento", "limite de pagamento", "scadenza", "data scadenza",
        "data di scadenza", "scadenza pagamento", "pagare entro", "pagamento entro", "entro il", "da pagare entro",
        "scadenza il", "scadenze",
    ),
    "other_date": (
        "fecha entrega", "fecha de entrega", "fecha pedido", "fecha de pedido", "fecha del pedido", "fecha albaran",
        "fecha de albaran", "fecha valor", "f valor", "fecha de nacimiento", "fecha nacimiento", "fecha impresion",
        "fecha de impresion", "impreso el", "impreso", "fecha de alta", "fecha alta", "fecha de baja",
        "fecha inicio", "fecha de inicio", "fecha fin", "fecha de fin", "fecha final", "fecha lectura",
        "fecha de lectura", "fecha lectura actual", "fecha lectura anterior", "lectura anterior", "lectura actual",
        "ultima lectura", "proxima lectura", "periodo", "periodo de facturacion", "periodo facturacion",
        "periodo facturado", "periodo de consumo", "periodo de liquidacion", "periodo de servicio",
        "periodo liquidado", "desde", "hasta", "fecha entrada", "fecha de entrada", "fecha de salida",
        "fecha salida", "fecha llegada", "fecha de llegada", "entrada", "salida", "llegada", "check in", "check out",
        "checkin", "checkout", "arrival", "departure", "arrival date", "departure date", "stay", "estancia",
        "fecha envio", "fecha de envio", "fecha contrato", "fecha de contrato", "fecha del contrato",
        "inicio de actividad", "inicio de actividades", "inicio actividad", "fecha vto cae", "fecha de reparacion",
        "fecha factura rectificada", "fecha de la factura rectificada", "fecha factura original",
        "fecha de la factura original", "fecha rectificada", "fecha fra rectificada", "fecha reserva",
        "fecha de reserva", "fin de contrato", "fin del contrato", "fecha fin contrato", "fecha fin de contrato",
        "validez", "valido hasta", "valida hasta", "caducidad", "fecha de caducidad", "proxima factura",
        "proxima facturacion", "fecha proxima factura", "factura anterior", "fecha de recepcion", "order date",
        "date of order", "date ordered", "ordered on", "delivery date", "date of delivery", "delivered on",
        "delivered", "ship date", "shipping date", "shipped on", "shipped", "dispatch date", "despatch date",
        "date shipped", "period", "billing period", "service period", "statement period", "period from", "period to",
        "from date", "to date", "service from", "service to", "usage period", "for the period", "rental period",
        "print date", "printed on", "printed", "print by", "date printed", "date of birth", "birth date", "dob",
        "start date", "end date", "expiry date", "expires", "expiry", "valid until", "valid to", "exp date",
        "previous bill", "next bill", "next reading", "next scheduled read date", "read date", "meter read date",
        "last payment", "payment received", "payments received", "payments received as of", "original invoice date",
        "date of original invoice", "po date", "p o date", "purchase order date", "contract date", "contract end",
        "late fee after", "return by", "returns until", "refund by", "paid on", "payment received on",
        "next billing date", "next payment", "renewal date", "renews on", "discount date", "discount if paid by",
        "if paid by", "lieferdatum", "liefertermin", "bestelldatum", "auftragsdatum", "leistungszeitraum",
        "leistungs datum", "abrechnungszeitraum", "zeitraum", "vertragsdatum", "vertrags datum", "druckdatum",
        "geburtsdatum", "anreise", "abreise", "lieferschein vom", "bestellung vom", "versanddatum",
        "verbrauchszeitraum", "lieferzeitraum", "skonto bis", "bei zahlung bis", "ablesedatum", "auftrag vom",
        "date de livraison", "date livraison", "date de commande", "date commande", "livre le", "commande du",
        "periode", "periode de facturation", "date d'impression", "date de naissance", "date d'expedition",
        "date de depart", "date d'arrivee", "arrivee", "depart", "date du contrat", "valable jusqu'au", "periode du",
        "data de lliurament", "data comanda", "data d'entrega", "data entrega", "periode de facturacio",
        "data de comanda", "data albara", "data de naixement", "data de entrega", "data da encomenda",
        "periodo de faturacao", "data de expedicao", "data carga", "data de nascimento", "hora de carga",
        "data di consegna", "data consegna", "data ordine", "data di nascita", "periodo di riferimento",
        "periodo di fatturazione", "data ddt", "data de inicio", "data de leitura", "ley", "reglamento",
        "real decreto", "rgpd", "fecha de registro", "inscripcion", "as of", "since", "desde el", "hasta la fecha",
        "fecha tope", "fecha ultimo pago", "bizday", "sort code",
    ),
    "time": ("hora", "time", "uhrzeit", "heure", "ora", "zeit"),
    "term": (
        "forma de pago", "forma pago", "f pago", "condiciones de pago", "condiciones pago", "plazo de pago", "plazo",
        "metodo de pago", "modo de pago", "medio de pago", "terminos de pago", "pago", "payment terms", "terms",
        "terms of payment", "payment term", "payment conditions", "credit terms", "payment", "payment method",
        "zahlungsbedingungen", "zahlungskonditionen", "zahlungsbedingung", "zahlungsart", "zahlungsweise",
        "conditions de paiement", "conditions de reglement", "modalites de paiement", "mode de reglement",
        "mode de paiement", "forma de pagament", "condicions de pagament", "condicoes de pagamento",
        "forma de pagamento", "condizioni di pagamento", "modalita di pagamento", "pagamento", "reglement",
        "terminos", "condiciones",
    ),
    "other": (
        "codigo", "cod", "zona", "ruta", "divisa", "moneda", "currency",
        "total", "total factura", "total a pagar", "importe", "importe factura", "importe total",
        "importe de la factura", "importe total factura", "base", "base imponible", "total due", "amount due",
        "balance due", "total invoice", "invoice total", "invoice amount", "bill total", "total bill", "amount",
        "subtotal", "sub total", "iva", "net", "cash", "change", "efectivo", "cambio", "factura a", "facturar a",
        "facturado a", "facturas", "facturas pendientes", "invoices", "invoice to", "invoiced to", "invoice address",
        "bill to", "billed to", "sold to", "ship to", "deliver to", "bills", "datos de facturacion",
        "direccion de facturacion", "detalle de la factura", "detalle factura", "resumen de la factura",
        "factura de electricidad", "factura de la luz", "factura de gas", "factura de agua", "factura del gas",
        "emisor", "receptor", "proveedor", "destinatario", "titular", "motivo", "concepto", "descripcion",
        "description", "qty", "cantidad", "precio", "observaciones", "notas", "notes", "domiciliacion",
        "domiciliacion bancaria", "domicilio", "direccion", "address", "email", "e mail", "web", "www", "calle",
        "para", "rechnung an", "rechnungsempfanger", "rechnungsadresse", "rechnungsbetrag", "facture a",
        "facturer a", "adresse de facturation", "montant", "adresse de livraison", "cliente factura", "summe",
        "gesamt", "betrag", "menge", "entidad", "banco", "bank", "cuenta bancaria", "transferencia", "reembolso",
        "remittance", "please quote invoice number", "please quote the invoice number", "quote invoice number",
        "include the invoice number", "indicando el numero de factura", "indique el numero de factura",
        "indicar numero de factura", "bajo angabe der rechnungsnummer", "unter angabe der rechnungsnummer",
        "rappeler le numero de facture", "copia de factura", "copia factura", "invoice copy", "factura emitida por",
        "facturas anteriores", "facturacion", "attn", "attention", "a la atencion", "conditions of invoice",
        "numero de lineas", "numero de articulos", "no of items", "number of items", "total items", "no of pages",
        "num articulos", "n articulos", "n lineas", "items",
    ),
}  # fmt: skip

# How far a label is trusted: "Date" stands beside other dates too, "Nº" beside anything.
STRENGTH: Mapping[str, float] = {
    "number": 0.7,
    "reference": 0.45,
    "title": 0.6,
    "plain_date": 0.85,
    "operation_date": 0.5,
}
LABELS = Vocabulary(_PHRASES)
