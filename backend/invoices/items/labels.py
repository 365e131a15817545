"""The words by which tables of goods and services are known: headers of columns, totals, sub-headings.

Spanish, English, Catalan, French, Portuguese, German and Italian.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from backend.files.visual_rows import Cell
from backend.invoices.label_match import LabelMatch, Vocabulary, tokens_of
from backend.invoices.money.labels import phrases_of
from backend.tables.numbers import numbers_in
from backend.text.patterns.folding import fold

# Labels of columns. "Article" and "Units" mean one of two columns, which the other labels of the header tell.
COLUMNS = Vocabulary(
    {
        "Description": (
            "descripción", "descripción del servicio", "descripción de los servicios", "descripción del producto",
            "descripción del artículo", "descripción de los trabajos", "concepto", "conceptos", "concepto facturado",
            "concepto / descripción", "detalle", "detalles", "detalle del servicio", "denominación", "designación",
            "servicio", "servicios", "servicio prestado", "trabajos realizados", "trabajo", "actividad", "nombre",
            "producto / servicio", "artículo / servicio", "artículo / descripción", "producto y descripción",
            "descripció", "concepte", "conceptes", "detall", "denominació", "servei", "serveis", "description",
            "item description", "product description", "service description", "description of goods",
            "description of services", "description of work", "goods description", "details", "particulars", "service",
            "services", "task", "activity", "work", "work done", "work performed", "work carried out",
            "description of work carried out", "item and description", "item details", "product / service",
            "product or service", "products", "goods", "goods or services", "charge", "charges", "charge description",
            "job description", "product name", "item name", "goods / services", "goods and services",
            "services rendered", "service provided", "désignation", "désignation des produits", "libellé", "prestation",
            "prestations", "intitulé", "détail", "description des prestations", "nature de la prestation",
            "désignation / description", "beschreibung", "bezeichnung", "leistung", "leistungen", "artikelbezeichnung",
            "leistungsbeschreibung", "beschreibung der leistung", "artikel / leistung", "bezeichnung der leistung",
            "produktbezeichnung", "descrição", "designação", "serviço", "serviços", "descrição do serviço",
            "descrizione", "prestazione", "descrizione articolo", "descrizione della prestazione", "servizio",
            "descripcion producto",
        ),
        "Article": (
            "artículo", "artículos", "producto", "productos", "item", "items", "product", "article", "articles",
            "artikel", "produkt", "produit", "produits", "artigo", "produto", "articolo", "prodotto", "prodotti",
            "referencia / artículo", "material", "materiales", "article / servei", "producte", "productes",
        ),
        "ProductCode": (
            "código", "cód", "código artículo", "cód artículo", "cód art", "referencia", "ref", "ref artículo", "sku",
            "ean", "código de barras", "codi", "código producto", "cód producto", "ref producto", "code", "item code",
            "item no", "item number", "product code", "product no", "part no", "part number", "part", "article no",
            "article number", "stock code", "catalogue no", "cat no", "reference", "product id", "item id",
            "service code", "code article", "réf article", "artikelnummer", "artikel-nr", "art-nr", "bestellnummer",
            "gtin", "art-nr-lieferant", "art-nr-lief", "materialnummer", "partida", "upc", "isbn", "código do produto",
            "codice", "codice articolo", "rif", "hsn", "hsn/sac", "hsn code", "material no",
        ),
        "Quantity": (
            "cantidad", "cantidades", "cant", "ctd", "cdad", "ctdad", "cantitat", "quant", "quantity", "qty", "qnty",
            "hours", "hrs", "horas", "hores", "días", "noches", "days", "nights", "nº unidades", "no of units",
            "qty / hrs", "hours / qty", "qty / hours", "qty / hr", "hrs / qty", "quantity / hours", "qty shipped",
            "ordered", "shipped", "quantity shipped", "cant / horas", "horas / uds", "nº horas", "número de horas",
            "nº uds", "consumo", "quantité", "qté", "heures", "jours", "menge", "anzahl", "stückzahl", "stunden", "std",
            "stück", "quantidade", "qtd", "qtde", "quantità", "qta", "ore", "qty ordered", "no of hours", "kg", "kilos",
            "peso", "weight", "sessions", "sesiones", "jornadas", "meses", "medición", "m3", "m2", "kwh", "litros",
            "litres", "kms", "km", "unds", "months",
        ),
        "Units": ("uds", "ud", "unidades", "unid", "unids", "units", "unitats", "unit", "un", "einheiten", "unités"),
        "Unit": (
            "unidad", "um", "ud medida", "unidad de medida", "unitat", "uom", "unit of measure", "einheit", "me",
            "unité", "unidade", "unità", "unità di misura", "medida", "envase", "formato",
        ),
        "UnitPrice": (
            "precio", "precio unitario", "precio unit", "precio ud", "precio unidad", "precio uni", "p unit",
            "p unitario", "p u", "p ud", "precio uds", "preu", "preu unitari", "preu unit", "pvp", "honorarios",
            "p venta", "precio venta unitario", "precio kg", "precio m2", "pv", "tarifa", "precio hora",
            "importe unitario", "importe unidad", "valor unitario", "coste unitario", "precio neto", "precio sin iva",
            "precio base", "€ / hora", "euros / ud", "precio venta", "price", "unit price", "price / unit",
            "price per unit", "unit cost", "cost", "rate", "hourly rate", "each", "price each", "price / hr",
            "rate / hr", "rate per hour", "unit rate", "list price", "net price", "u price", "day rate", "daily rate",
            "sales price", "unit amount", "item price", "cost per unit", "rsp", "prix unitaire", "prix", "pu ht",
            "prix unitaire ht", "prix unit", "prix unit ht", "prix ht", "einzelpreis", "preis", "vk-preis",
            "nettopreis", "einzel", "e preis netto", "grundpreis", "stückpreis", "e-preis", "ep", "einzelpreis netto",
            "preis / einheit", "preis / stk", "einheitspreis", "stundensatz", "preço", "preço unitário", "preço unit",
            "pr unitário", "prezzo", "prezzo unitario", "prezzo unit", "valor unit", "pr unit", "prec unit", "prec",
        ),
        "Discount": (
            "dto", "descuento", "dcto", "desc %", "dtos", "descompte", "dte", "bonif", "bonificación", "discount",
            "disc", "remise", "rem", "rabatt", "rabais", "desconto", "sconto", "sc %", "dto 1",
        ),
        "TaxRate": (
            "iva", "ive", "tipo iva", "tipo de iva", "tipo", "igic", "impuesto", "impuestos", "impto", "tasa iva",
            "iva aplicable", "vat", "vat rate", "tax", "taxes", "tax rate", "gst", "gst rate", "sales tax", "tva",
            "taux tva", "taux", "mwst", "ust", "mwst satz", "steuersatz", "steuer", "taxa", "taxa iva", "aliquota",
            "aliquota iva", "tax code", "hst", "ipsi", "% imp",
        ),
        "Amount": (
            "importe", "importe total", "importe neto", "importe eur", "total", "total línea", "neto", "precio total",
            "total neto", "importe sin iva", "importe línea", "subtotal", "total sin iva", "import", "import total",
            "base", "base imponible", "valor", "total bruto", "total con iva", "importe con iva", "importe bruto",
            "importe bi", "total base", "suma", "preu total", "base imposable", "amount", "line total", "total amount",
            "total price", "net amount", "net", "net total", "line amount", "ext price", "extended price", "extended",
            "extension", "ext amount", "total cost", "item total", "amt", "line net", "net value", "value", "total net",
            "gross", "gross amount", "total inc vat", "total ex vat", "total excl vat", "total incl vat", "amount due",
            "amount excl vat", "ext", "sum", "total value", "montant", "montant ht", "total ht", "prix total",
            "total ttc", "montant ttc", "prix total ht", "mt ht", "gesamtpreis", "gesamt", "betrag", "zeilenbetrag",
            "nettowert", "positionsbetrag", "gesamtwert", "wert", "gesamtnetto", "gesamt eur", "zeilensumme", "summe",
            "gesamtbetrag", "gp", "g-preis", "nettobetrag", "netto", "positionssumme", "bruttobetrag",
            "gesamtpreis netto", "valor total", "montante", "preço total", "valor líquido", "total líquido", "importo",
            "totale", "importo totale", "prezzo totale", "imponibile", "ammontare",
        ),
        "TaxAmount": (
            "cuota", "cuota iva", "importe iva", "vat amount", "tax amount", "gst amount", "montant tva", "mwst betrag",
            "steuerbetrag", "valor iva", "quota iva", "re", "recargo", "rec eq", "total iva", "importo iva", "vat amt",
            "tax amt", "cuota re",
        ),
        "Other": (
            "fecha", "date", "datum", "data", "nº", "ln", "no", "pos", "posición", "línea", "line", "position", "sl no",
            "sr no", "s no", "albarán", "nº albarán", "pedido", "lote", "lot", "batch", "serie", "serial", "bultos",
            "peso kg", "caducidad", "expiry", "order", "order no", "po", "job", "proyecto", "project", "period",
            "periodo", "from", "to", "desde", "hasta", "leistungszeitraum", "zeitraum", "service date", "empleado",
            "staff", "person", "iva amount", "nr", "lfd nr", "ligne", "line no", "room", "habitación", "color", "talla",
            "size", "colour", "cajas", "boxes", "origen", "origin", "entrega", "matrícula",
        ),
        # a header with one of these is no table of goods: movements of an account, a payslip, taxes, payments
        "NotItems": (
            "saldo", "balance", "debe", "haber", "debit", "credit", "devengos", "deducciones", "earnings", "deductions",
            "paid in", "paid out", "money in", "money out", "cargos", "abonos", "fecha valor", "f valor", "value date",
            "base iva", "tipo impositivo", "vat summary", "gst summary", "tax summary", "payment mode", "forma de pago",
            "vencimiento", "vencimientos", "payment method", "salesperson", "solde", "soll", "haben", "desglose de iva",
            "vat analysis", "ship via", "shipped via", "fob", "terms", "mora", "capital", "intereses", "amortización",
            "interest", "principal", "taxable amount",
        ),
    }
)  # fmt: skip

_ENDS = Vocabulary(
    {
        "total": phrases_of("total", "due", "rounding", "discount"),
        "subtotal": phrases_of("base", "gross"),
        "tax": phrases_of("tax", "surcharge", "withholding"),
        "payment": phrases_of("paid", "cash", "change", "balance", "tip"),
        "carried": (
            "suma y sigue", "suma anterior", "suma y continúa", "suma de líneas", "suma parcial", "lines total",
            "suma i segueix", "sigue", "continúa", "carried forward", "brought forward", "carry forward",
            "carried over", "brought over", "continued", "a reportar", "report", "à reporter", "übertrag",
            "a transportar", "a riportare", "riporto", "suma página", "total página", "page total", "page subtotal",
            "subtotal página", "sigue en página", "viene de página", "total hoja", "c/f", "b/f", "zwischensumme seite",
            "continues",
        ),
        "note": (
            "observaciones", "notas", "nota", "notes", "note", "remarks", "comments", "iban", "condiciones", "terms",
            "terms and conditions", "payment terms", "condiciones de pago", "bank details", "datos bancarios",
            "payment details", "payment information", "resumen", "página", "page", "seite", "transferencia",
            "make all checks", "thank you", "gracias", "bemerkungen", "remarques", "observacions",
            "zahlungsbedingungen", "bankverbindung", "how to pay", "payment instructions", "registered",
            "de conformidad", "inscrita", "método de pago", "mode de paiement", "conditions", "amount in words", "son",
            "importe en letras", "desglose de impuestos", "operación exenta", "merci", "vielen dank", "grazie",
            "obrigado", "zahlbar", "domiciliación", "cuenta", "ref pago", "factura rectificativa", "other information",
        ),
    }
)  # fmt: skip
_SUBHEADING = re.compile(
    r"\W{2,}|(albaran|albara|entrega|pedido|su pedido|n/ref|s/ref|delivery note|order no|sales order|lieferschein|"
    r"bon de livraison|guia de remessa|ddt|capitulo|chapter|partida|seccion|section|obra|proyecto|project|fecha|date|"
    r"fase|bloque|lote|grupo|auftrag|bestellung|commande|encomenda|dispatch|work order|parte de trabajo|"
    r"orden de trabajo|presupuesto)\b[^\w]*(n[ºo.]*|nr|no|num)?[\s.:#]*[\w/-]*\d",
    re.IGNORECASE,
)
_CONNECTORS = frozenset(
    {
        "at", "on", "of", "the", "to", "in", "incl", "included", "including", "excl", "standard", "reduced", "rate",
        "zero", "amount", "de", "del", "la", "el", "al", "sobre", "con", "sin", "incluido", "incluidos", "general",
        "reducido", "superreducido", "repercutido", "tipo", "importe", "cuota", "sur", "von", "auf", "inkl", "compris",
        "eur", "euro", "euros", "gbp", "usd", "rm",
    }
)  # fmt: skip
_SERIES = 2  # labels, and amounts, of a cell that sums up: "Net 460.00, VAT 92.00"
_MIN_SHARE = {"total": 0.6, "subtotal": 0.6, "tax": 0.75, "payment": 0.6, "note": 0.3, "carried": 0.5}
_TOTAL_WORDS = frozenset((
    "total", "totals", "totales", "grand", "gesamtbetrag", "rechnungsbetrag", "totale", "subtotal", "sub", "sous",
    "summe", "gesamtsumme", "nettosumme", "zwischensumme",
))  # fmt: skip
_OF_PAGE = re.compile(r"(pagina|page|pag\.?|hoja|seite|folha|pagine)\s*\d+\s*(de|of|/|von|di|sur)\s*\d+", re.IGNORECASE)


def end_label(cells: Sequence[Cell]) -> str | None:
    """What a row says by the beginning of a cell instead of naming goods: "total", "tax", "payment", "carried"…

    The label must be most of the cell's words ("Net curtains" are goods), unless it is a total or others follow it.
    """
    for cell in cells:
        found = _ENDS.find(cell)
        is_series = len({match.label for match in found}) >= _SERIES <= len(numbers_in(cell))
        for match in found[:1]:
            if _is_first(match) and (is_series or _is_total(match) or _share(match) >= _MIN_SHARE[match.label]):
                return match.label
    return None


def _is_first(match: LabelMatch) -> bool:
    """Whether no word stands before it: "2 SUB TOTAL" is a sub-total of two things."""
    return not any(character.isalpha() for word in match.cell.words[: match.first] for character in word.text)


def _is_total(match: LabelMatch) -> bool:
    return match.label in ("total", "subtotal") and match.phrase.split()[0] in _TOTAL_WORDS


def _share(match: LabelMatch) -> float:
    """The label's part of the words of its cell."""
    words = {word.start for word in match.cell.words if _counts(word.text)} | {word.start for word in match.words}
    return len(match.words) / len(words)


def _counts(text: str) -> bool:
    """Whether a word can name something; not "at", "sobre", "(standard)"."""
    tokens = tokens_of(text)
    return any(token.isalpha() and len(token) > 1 and token not in _CONNECTORS for token in tokens)


def is_subheading(text: str) -> bool:
    """Whether a row without amounts opens a group of lines: "Albarán 1234 de 3/3/2026", "--- Food ---"."""
    return _SUBHEADING.match(fold(text).text) is not None


def is_page_number(text: str) -> bool:
    """Whether a row says which page this is."""
    return _OF_PAGE.match(fold(text).text) is not None
