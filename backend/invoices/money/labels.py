"""What the words beside an amount say of it, and how surely.

A phrase may be read in two ways ("Net total" is the base of an invoice and the rounded total of a Malaysian receipt):
each reading has a strength, and arithmetic decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import product
from typing import Literal, NamedTuple

from backend.files.pages import Word
from backend.invoices.label_match import LabelMatch, Vocabulary, tokens_of

STRONG_TOTAL = (
    "importe de esta factura|total de esta factura|total de este recibo|this invoice|total factura|"
    "total de la factura|importe factura|importe de la factura|importe total factura|importe total de la factura|"
    "total importe factura|invoice total|total invoice amount|invoice amount|total for this invoice|grand total|"
    "importe total|importe total a facturar|bill total|total general|total documento|totale documento|"
    "totale fattura|importo totale|total da fatura|total fatura|total do documento|valor total|montante total|"
    "total facture|montant total|total général|total de la facture|net ttc|gesamtbetrag|rechnungsbetrag|"
    "gesamtsumme|endbetrag|endsumme|rechnungssumme|rechnungsendbetrag|gesamt|gesamtpreis brutto|bruttobetrag|"
    "bruttosumme|gesamtbetrag brutto|summe brutto|import total|total nota de crédito|total credit|credit total|"
    "credit note total|total nota de crèdit|total operación|total servicio|total order|order total|total orden|"
    "total rounded|rounded total|net total rounded|nett total rounded|grand total rounded|total payable rounded|"
    "total after rounding|total rm rounded|nett total|total amount rounded|total inc rounding|"
    "total sales inclusive of gst|total charges|total current charges|total new charges|current charges|"
    "total importes|total a cobrar|amount total|total amount|total due this invoice"
)
DUE = (
    "saldo a su cargo|saldo a nuestro favor|saldo a su favor|saldo final|saldo total|saldo resultante|"
    "diferencia a pagar|total a pagar|importe a pagar|a pagar|líquido|total líquido|líquido a percibir|"
    "líquido a pagar|neto a percibir|neto a pagar|total neto a pagar|total neto a percibir|total a percibir|"
    "a percibir|total a ingresar|pendiente|importe líquido|a liquidar|total a liquidar|resto a pagar|saldo a pagar|"
    "importe pendiente|pendiente de pago|total pendiente|importe pendiente de pago|saldo pendiente|"
    "total a transferir|importe a transferir|total a abonar|importe a abonar|a abonar|total a devolver|"
    "importe a devolver|importe a reembolsar|total a reembolsar|importe a cobrar|a cobrar|total adeudado|"
    "importe adeudado|importe del cargo|importe a cargar|total a domiciliar|líquid a percebre|total a percebre|"
    "import a pagar|resto|resta por pagar|queda por pagar|amount due|balance due|total due|total amount due|"
    "amount payable|total payable|due payable|net payable|net amount payable|total balance due|amount now due|"
    "amount owed|amount outstanding|outstanding|payable|please pay|pay this amount|amount to pay|to pay|"
    "total to pay|payment due|payment due upon receipt|current amount due|total amount payable|balance|new balance|"
    "total account balance|total now due|remaining balance|amount to be paid|total amount due on|amount refunded|"
    "refund|total refund|credit due|amount to be credited|amount credited|invoice balance|zu zahlen|zahlbetrag|"
    "zu zahlender betrag|zahlungsbetrag|restbetrag|offener betrag|fälliger betrag|noch zu zahlen|auszahlungsbetrag|"
    "zahllast|net à payer|net a payer ttc|reste à payer|à payer|montant à payer|total à payer|solde dû|montant dû|"
    "solde|netto a pagare|totale da pagare|da pagare|importo da pagare|totale dovuto|saldo da pagare|"
    "total a pagar eur|valor a pagar|líquido a receber|montante a pagar"
)
BASE = (
    "base imponible|base imponible total|total base imponible|bases imponibles|bases|suma bases|suma de bases|"
    "total bases|total base|b. imponible|base imp|base|bi|base imposable|base imposable total|imponibile|"
    "totale imponibile|tot imponibile|base tributável|total ilíquido|incidência|valor tributável|base iva|"
    "base sujeta|base sujeta a iva|base igic|base imponible igic|base imponible iva|base ht|nettobetrag|"
    "summe netto|nettosumme|netto|rechnungsbetrag netto|gesamt netto|gesamtbetrag netto|zwischensumme netto|"
    "nettowert|total ht|montant ht|montant total ht|net ht|total net ht|total hors taxe|taxable amount|taxable|"
    "net amount|net value|total net|net total amount|net invoice total|net invoice amount|total net amount|"
    "importe neto|total neto|neto gravado|importe total sin iva|subtotal less discount|subtotal after discount|"
    "subtotal con descuento|amt excl gst|amount excl gst|total excl gst|total neto sin iva|importe sin iva|"
    "importe antes de impuestos|honorarios|vatable amount|vatable sales|value excl vat|gst excl|"
    "amount excluding gst"
)
SUBTOTAL = (
    "goods total|goods value|total goods|subtotal|sub total|sub-total|suma|suma importes|suma total|suma y base|"
    "sous total|sous-total|total produits|zwischensumme|summe|total parcial|subtotale|items subtotal|item subtotal|"
    "total mercancía|total mercadoria|importe bruto neto|total artículos importe|total lines|line total sum|"
    "merchandise total|total productos|total conceptos|invoice subtotal|order subtotal|total prestaciones|"
    "parts and labor"
)
WITHOUT_TAX = (
    "before vat|before tax|before taxes|without vat|net of vat|excl vat|excl tax|ex vat|vat exclusive|sin iva|"
    "sin impuestos|antes de iva|antes de impuestos|sense iva|hors taxe|hors taxes|hors tva|ohne mwst|ohne ust|"
    "ohne umsatzsteuer|vor steuern|senza iva|sem iva|importe sin impuestos|total sin impuestos"
)
WITH_TAX = (
    "with vat|incl vat|inc vat|including vat|incl tax|with tax|after tax|con iva|iva inc|con impuestos|amb iva|ttc|"
    "toutes taxes comprises|mit mwst|inkl mwst gesamt|brutto|con iva incluido|com iva|total con impuestos|"
    "altogether|all in all|all together|in total|en total|en conjunto|insgesamt|alles zusammen|au total|in totale|"
    "you owe us|you pay"
)
GROSS = (
    "importe bruto|total bruto|bruto|suma bruta|total importe bruto|importe bruto total|total líneas|gross amount|"
    "gross total|total gross|valor bruto|total brut|brut|total brut ht|merce lorda|total antes de descuento|"
    "total before discount|subtotal before discount|importe sin descuento"
)
TAX_AMOUNT = (
    "total iva|cuota iva|cuota|cuotas|importe iva|iva|suma cuotas|suma de cuotas|total cuota|total cuotas|"
    "total cuotas iva|cuota total|total impuestos|impuestos|impuesto|importe impuestos|suma impuestos|"
    "total cuota iva|iva total|cuota igic|igic|total igic|importe igic|ipsi|quota|quota iva|total quota|import iva|"
    "iva repercutido|impuesto sobre el valor añadido|iva reducido|más iva|plus iva|i.v.a. repercutido|vat|"
    "total vat|vat total|vat amount|vat charged|plus vat|add vat|vat payable|tax|total tax|tax total|tax amount|"
    "sales tax|state tax|local tax|city tax|total sales tax|estimated tax|taxes|total taxes|gst|total gst|"
    "gst amount|gst payable|hst|pst|service tax|sst|gst amt|gst included|includes gst|gst incl amount|"
    "total gst amount|tva|total tva|montant tva|montant de la tva|mwst|mwst betrag|ust|ust betrag|umsatzsteuer|"
    "mehrwertsteuer|steuer|steuerbetrag|gesamt mwst|summe mwst|zzgl mwst|zzgl ust|zzgl umsatzsteuer|"
    "zzgl mehrwertsteuer|enthaltene mwst|inkl mwst|davon mwst|iva totale|totale iva|imposta|importo iva|tot iva|"
    "total do iva|valor iva|valor do iva|imposto|total imposto|montante iva|total impostos|total tax amount|iva s|"
    "iva al|iva incluido|includes vat|including vat of|of which vat|total includes|gst sr|sr gst|gst inclusive|"
    "gst incluned|lva"
)
SURCHARGE = (
    "recargo de equivalencia|rec|rec equiv|r equivalencia|re|r e|req|recargo|cuota re|cuota recargo|importe re|"
    "importe recargo|cuota r e|total recargo|total re|cuota rec equiv|recàrrec d'equivalència|cuota req"
)
WITHHOLDING = (
    "irpf|retención|retención irpf|retención a cuenta irpf|retención i.r.p.f.|retenciones|ret|reten irpf|"
    "importe retención|cuota retención|cuota irpf|importe irpf|total irpf|total retenciones|total retención|"
    "retención a cuenta|retenció|retenció irpf|menos irpf|menos retención|a deducir irpf|withholding|"
    "withholding tax|less withholding tax|income tax withholding|ritenuta|ritenuta d'acconto|ritenuta acconto|"
    "retenção|retenção irs|retenção na fonte|irs|retenue à la source|retención en la fuente|retention|"
    "deducción irpf"
)
DISCOUNT = (
    "descuento|descuentos|total descuento|total descuentos|importe descuento|importe dto|total dto|dto|dtos|"
    "descuento comercial|dto pronto pago|descuento pronto pago|dto pp|dto p.p.|d.p.p.|descuento por pronto pago|"
    "bonificación|bonificaciones|bonif|rappel|descompte|descompte comercial|dte|discount|discounts|total discount|"
    "less discount|trade discount|discount amount|settlement discount|prompt payment discount|invoice discount|"
    "promo discount|promotion|disc|voucher|coupon|savings applied|rabatt|nachlass|abzgl rabatt|skonto|remise|"
    "rabais|escompte|total remise|sconto|sconto totale|totale sconti|desconto|descontos|total descontos|"
    "desconto comercial|cupón|vale descuento|ahorro aplicado|promoción"
)
PAID = (
    "retención en garantía|retención de garantía|retención por garantía|fondo de garantía|retention money|"
    "anticipo|anticipos|menos anticipo|anticipo recibido|total anticipos|entrega a cuenta|entregas a cuenta|"
    "a cuenta|pago a cuenta|pagos a cuenta|pagos anticipados|pago anticipado|pagado|importe pagado|ya pagado|"
    "total pagado|importe ya pagado|pagado a cuenta|señal|depósito|provisión de fondos|provisiones de fondos|"
    "menos provisión de fondos|a deducir anticipo|cobrado|total cobrado|paga i senyal|bestreta|abonado|"
    "importe abonado|reserva|payments|payments/credits|payments credits|payment|payment received|payments received|"
    "amount paid|paid to date|amount received|less paid|less payments|less payment|already paid|prepaid|prepayment|"
    "less prepayment|prepayments|deposit|deposit paid|less deposit|advance payment|less advance|credits|"
    "credit applied|paid|total paid|advance|anzahlung|abzgl anzahlung|bereits bezahlt|bereits gezahlt|gezahlt|"
    "erhaltene anzahlung|acompte|acompte versé|acomptes|déjà payé|déjà réglé|montant réglé|acconto|acconti|"
    "già pagato|adiantamento|sinal|valor pago|pago"
)
BALANCE = (
    "saldo anterior|deuda anterior|importe pendiente anterior|facturas anteriores|pendiente anterior|"
    "importe facturas anteriores|saldo pendiente anterior|facturas pendientes anteriores|recibos pendientes|"
    "deuda pendiente|previous balance|previous unpaid balance|balance brought forward|balance b/f|brought forward|"
    "prior balance|past due|past due balance|previous amount due|overdue balance|overdue amount|previous invoice|"
    "balance forward|last bill|opening balance|amount of last bill|previous bill|previous statement balance|"
    "vorheriger saldo|ancien solde|solde antérieur|solde précédent|saldo precedente|arrears|"
    "account balance brought forward|unpaid balance"
)
CHARGE = (
    "portes|envío|transporte|gastos|otros gastos|embalaje|embalajes|manipulación|suplidos|total suplidos|suplido|"
    "importe suplidos|tasas|otros conceptos|ports|despeses d'enviament|cargos|otros cargos|punto verde|ecotasa|"
    "ecoraee|financiación|shipping|shipping handling|shipping & handling|s&h|handling|freight|freight charge|"
    "delivery|delivery charge|carriage|postage|p&p|packing|service charge|service charge 10|svc chg|service|"
    "svc charge|surcharge|fuel surcharge|disbursements|total disbursements|disbursement|expenses|fees|"
    "other charges|other|insurance|processing fee|late fee|convenience fee|booking fee|cargo por servicio|servicio|"
    "miscellaneous charges|exento|importe exento|base exenta|exempt|no sujeto|importe no sujeto|exento de iva|"
    "no sujeto a iva|zero rated|total zero rated|versand|versandkosten|porto|fracht|lieferkosten|verpackung|port|"
    "livraison|frais|débours|spese|trasporto|spedizione|bollo|imposta di bollo|despesas|tasa turística|"
    "city tax fee|tourist tax|no sujetos|conceptos no sujetos|no sujetas|operaciones no sujetas|exentos|"
    "conceptos exentos|operaciones exentas|total exento|total no sujeto|esente|fuori campo iva|steuerfrei|isento"
)
ROUNDING = (
    "rounding|rounding adj|rounding adjustment|rounding adjustments|rounding amount|rnd adj|round|rounded|"
    "bill rounding|redondeo|ajuste redondeo|ajuste por redondeo|rundung|rundungsdifferenz|arrondi|arrotondamento|"
    "arredondamento|pelarasan|penggenapan|5 cent adjustment|cash rounding"
)
TIP = "tip|tips|propina|gratuity|tip amount|trinkgeld|pourboire|mancia|gorjeta|added tip|driver tip|propines"
CASH = (
    "efectivo|entregado|entrega|importe entregado|recibido|tarjeta|tarjeta crédito|tarjeta de crédito|visa|"
    "mastercard|amex|metálico|contado|en efectivo|pago tarjeta|pago con tarjeta|pago efectivo|pago en efectivo|"
    "efectiu|targeta|bizum|maestro|su entrega|total entregado|importe recibido|cash|cash tendered|tendered|"
    "amount tendered|card|credit card|debit|credit|master|mydebit|accepted total|cash paid|paid by cash|"
    "paid by card|payment cash|payment mode cash|eftpos|eft|ebt|american express|bar|bargeld|gegeben|ec karte|"
    "girocard|kartenzahlung|espèces|carte|cb|contanti|pagamento contanti|carta|numerário|multibanco|dinheiro|"
    "entregue|touch n go|e wallet|tunai|cash rm|paid amount|customer paid"
)
CHANGE = (
    "cambio|devolución|su cambio|vuelta|canvi|a devolver|change|change due|cash change|your change|balance change|"
    "rückgeld|rendu|monnaie|à rendre|resto contanti|resto cliente|troco|change rm|baki|zurück"
)
RATE = (
    "tipo|tipo iva|tipo de iva|tipus|tipus iva|tipo igic|porcentaje|porcentaje iva|rate|vat rate|tax rate|gst rate|"
    "taux|taux tva|taux de tva|satz|steuersatz|mwst satz|ust satz|aliquota|aliquota iva|aliq iva|taxa|taxa iva|"
    "taxa de iva|código iva|cod iva|tax code|vat code|cod|letra|clase|sales tax rate"
)
SURCHARGE_RATE = "tipo re|tipo recargo|tipo rec equiv|tipo recargo equivalencia|porcentaje recargo"
COLUMN = (
    "descripción|concepto|conceptos|artículo|artículos|producto|detalle|denominación|servicio prestado|cantidad|"
    "cant|uds|unidades|ud|precio|precio unitario|precio unit|p unit|p u|pvp|p v p|código|ref|referencia|descripció|"
    "quantitat|preu|preu unitari|description|item|items|product|qty|quantity|unit price|price|unit cost|hours|hrs|"
    "u price|details|particulars|beschreibung|bezeichnung|menge|einzelpreis|e preis|artikel|anzahl|désignation|"
    "désignations|qté|quantité|prix unitaire|pu|pu ht|prix|libellé|descrizione|quantità|prezzo|prezzo unitario|"
    "quantidade|qtd|preço|preço unitário|descrição|designação|artigo|unidade|um|uom|unit|lectura|consumo kwh"
)
IGNORED = (
    "reverse charge|inversión del sujeto pasivo|autoliquidation|steuerschuldnerschaft|total qty|total quantity|"
    "total items|total item|total no of items|no of items|total artículos|nº artículos|total unidades|total uds|"
    "total bultos|total peso|total kg|total horas|total hours|total pieces|total units|total líneas|total savings|"
    "you saved|total saved|ahorro|ha ahorrado|ahorro total|capital social|suma y sigue|suma anterior|suma sigue|"
    "carried forward|total página|page total|subtotal página|total albarán|total pages|total consumo|consumo total|"
    "total kwh|total points|puntos|total puntos|total noches|total days|total nights|total number|número total|"
    "importe unitario|importe mínimo|límite|total miles|total weight|total volume|base unitaria|valor unitario|"
    "iva number|vat no|vat number|vat reg no|vat registration|vat id|vat reg|gst no|gst id|gst reg no|gst reg|"
    "gst id no|gst registration no|tax id|tax invoice|vat invoice|tax invoice no|ust idnr|ust id|steuernummer|"
    "steuer nr|n tva|no tva|tva intracommunautaire|nif iva|iva intracomunitario|partita iva|p iva|cod iva cliente|"
    "vat registered|tax number|tax reg no|tax registration|credit card no|card no|card number|credit limit|"
    "credit terms|credit note|payment terms|payment method|payment reference|payment date|payment due date|"
    "payment due by|balance sheet|iva responsable inscripto|visa no|base de datos|base legal|forma de pago|"
    "condiciones de pago|medio de pago|fecha de pago|due date|interest rate|exchange rate|tipo de cambio|"
    "tipo de pago|tipo de documento|tipo cliente|tipo factura|tipo de factura|tipo de interés|"
    "impuesto sobre la electricidad|impuesto eléctrico|impuesto electricidad|impuesto hidrocarburos|"
    "impuesto especial|cambios y devoluciones|cambio de|service address|service period|service provider|"
    "service date|item no|order no|delivery date|delivery note|delivery address|delivery no|tax point|tax date|"
    "total previous|resto del mundo|deposit account|cash inv no|cash invoice|cash sales|cash bill|cash sale"
)


Kind = Literal[
    "base", "tax", "surcharge", "withholding", "discount", "total", "due", "paid", "balance", "charge", "rounding",
    "tip", "cash", "change", "rate", "surcharge_rate", "withholding_rate", "gross", "column", "ignored",
]  # fmt: skip


# A field -> what labels say of its amount.
KIND_OF_AMOUNT: dict[str, Kind] = {"SubTotal": "base", "TotalTax": "tax", "InvoiceTotal": "total", "AmountDue": "due"}


class Reading(NamedTuple):
    """What a phrase may say of the amount beside it."""

    kind: Kind
    strength: float  # 0 to 1


def _spread(heads: str, tails: str) -> list[str]:
    """Every head before every tail, both separated by "|"."""
    return [f"{head} {tail}" for head, tail in product(heads.split("|"), tails.split("|"))]


_PHRASES: tuple[tuple[Kind, float, Iterable[str]], ...] = (
    ("total", 0.8, ["total", "totale", "totaal", "importe total eur"]),
    ("total", 0.45, ["importe", "import", "amount", "suma total a", "montant", "betrag", "valor"]),
    ("total", 1.0, STRONG_TOTAL.split("|")),
    ("total", 0.75, WITH_TAX.split("|")), ("base", 0.85, WITHOUT_TAX.split("|")),
    ("total", 0.95, _spread("total|total factura|importe total|importe", "iva incluido|iva incl|iva inc|con iva")),
    ("total", 0.95, _spread("total|amount", "vat incl|vat included|gst incl|gst included|incl|ttc|brutto")),
    ("total", 0.95, ["total igic incluido", "total con impuestos", "importe con impuestos"]),
    ("due", 1.0, DUE.split("|")),
    ("base", 1.0, BASE.split("|")),
    ("base", 0.95, _spread("total|importe total|importe|subtotal", "iva no incluido|iva excluido|sin iva")),
    ("base", 0.95, _spread("total|importe", "sin impuestos|antes de impuestos")),
    ("base", 0.8, SUBTOTAL.split("|")),
    ("gross", 0.9, GROSS.split("|")),
    ("tax", 1.0, TAX_AMOUNT.split("|")),
    ("tax", 0.95, _spread("vat|tax|gst|sales tax|iva|igic|tva|mwst|ust|impuestos", "subtotal|sub total|zwischensumme")),
    ("surcharge", 1.0, SURCHARGE.split("|")),
    ("surcharge_rate", 1.0, SURCHARGE_RATE.split("|")),
    ("withholding_rate", 1.0, ["tipo irpf", "tipo retención", "porcentaje retención", "porcentaje irpf"]),
    ("withholding", 1.0, WITHHOLDING.split("|")),
    ("discount", 1.0, DISCOUNT.split("|")),
    ("paid", 1.0, PAID.split("|")),
    ("balance", 1.0, BALANCE.split("|")),
    ("charge", 1.0, CHARGE.split("|")),
    ("rounding", 1.0, ROUNDING.split("|")),
    ("tip", 1.0, TIP.split("|")),
    ("cash", 1.0, CASH.split("|")),
    ("change", 1.0, CHANGE.split("|")),
    ("rate", 1.0, RATE.split("|")),
    ("column", 1.0, COLUMN.split("|")),
    ("ignored", 1.0, IGNORED.split("|")),
    # read in two ways
    ("base", 0.8, ["net", "subtota", "sub tota", "nett"]), ("total", 0.7, ["tota"]),
    ("base", 0.85, ["net total"]), ("total", 0.6, ["net total", "nett total"]),
    ("due", 0.6, ["total neto", "importe neto", "total net"]),
    ("total", 0.7, ["netto", "summe", "suma", "suma total"]),
    ("total", 0.9, ["total due", "total amount due", "total payable", "total a pagar", "a pagar", "to pay"]),
    ("total", 0.9, ["zu zahlen", "zu zahlender betrag", "net à payer", "total à payer", "totale da pagare"]),
    ("total", 0.5, ["total bruto", "total brut", "gross total", "gross amount", "total gross", "bruto", "valor bruto"]),
    ("total", 0.7, ["gross"]), ("gross", 0.6, ["gross"]),
    ("base", 0.8, ["total honorarios", "total servicios"]), ("total", 0.7, ["total honorarios", "total servicios"]),
    ("total", 0.9, ["total minuta", "total provisión"]),
    ("due", 0.9, ["importe a pagar", "total factura a pagar"]),
    ("paid", 0.7, ["entrega", "entregado", "credit", "depósito"]),
    ("cash", 0.6, ["paid", "pagado", "amount paid", "payment", "total paid", "pago", "abonado"]),
    ("due", 0.5, ["a devolver", "pendiente"]),
    ("charge", 0.6, ["surcharge", "charges", "charge"]), ("base", 0.5, ["charges"]),
)  # fmt: skip


def _key(phrase: str) -> str:
    """A phrase as `Vocabulary` compares it: "Sub-total" is "subtotal"."""
    return "".join(tokens_of(phrase))


def _with_galician(phrases: Iterable[str]) -> Iterator[str]:
    """The phrases, and those that name the tax or leave it out in Galician: "Total sen IVE", "Cota IVE"."""
    for phrase in phrases:
        yield phrase
        words = phrase.split()
        if "iva" in words:
            yield " ".join(_GALICIAN.get(word, word) for word in words)


_GALICIAN = {"iva": "ive", "sin": "sen", "cuota": "cota"}


def _readings() -> dict[str, tuple[Reading, ...]]:
    readings: dict[str, dict[Kind, float]] = {}
    for kind, strength, phrases in _PHRASES:
        for phrase in _with_galician(phrases):
            kinds = readings.setdefault(_key(phrase), {})
            kinds[kind] = max(strength, kinds.get(kind, 0.0))
    return {key: tuple(Reading(*pair) for pair in kinds.items()) for key, kinds in readings.items()}


_READINGS = _readings()  # by key
MONEY_LABELS = Vocabulary({_key(phrase): (phrase,) for *_, phrases in _PHRASES for phrase in _with_galician(phrases)})


def phrases_of(*kinds: Kind) -> list[str]:
    """The phrases that say one of these kinds before all others."""
    phrases = (phrase for *_, own in _PHRASES for phrase in _with_galician(own))
    return [one for one in phrases if max(_READINGS[_key(one)], key=lambda reading: reading.strength).kind in kinds]


# Rates of value-added tax in Spain (with IGIC and former ones), Portugal, Italy, France, Germany, the United Kingdom,
# Ireland and Malaysia; a bare "21" beside a base is one of these.
KNOWN_RATES = frozenset(map(Decimal, (
    "21", "10", "4", "5", "7.5", "2", "7", "3", "6.5", "9.5", "15", "20", "23", "13", "6", "22", "5.5", "2.1", "8.5",
    "19", "16", "13.5", "9", "4.8", "0", "8", "12", "17", "18", "25", "24", "27",
)))  # fmt: skip
# Recargo de equivalencia, Ley 37/1992, art. 161, and those of 2023 and 2024.
SURCHARGE_RATES = frozenset(map(Decimal, (
    "5.2", "1.4", "0.5", "0.62", "1.75", "0.26", "1",
)))  # fmt: skip
# Words after "Total" that say whether the tax is in it: "Total (excl. VAT)", "Total RM Including GST 6%".
_OUTSIDE = frozenset((
    "sin", "excl", "excluding", "exclusive", "excluded", "exc", "ex", "before", "without", "hors", "ohne", "exkl",
    "zzgl", "sem", "sen", "senza", "sense", "antes", "no", "not", "excluido", "ht",
))  # fmt: skip
_INSIDE = frozenset((
    "incl", "including", "inclusive", "included", "inc", "con", "with", "inkl", "com", "amb", "incluido",
    "incluidos", "inclusa", "ttc", "after",
))  # fmt: skip
_TAX_WORDS = frozenset((
    "iva", "ive", "igic", "ipsi", "impuestos", "impostos", "vat", "gst", "sst", "tax", "taxes", "tva", "taxe", "mwst",
    "ust", "ht", "ttc", "incluido", "incluidos",
))  # fmt: skip
_RATE_OF: dict[Kind, Kind] = {"tax": "rate", "surcharge": "surcharge_rate", "withholding": "withholding_rate"}
_QUALIFIED: frozenset[Kind] = frozenset(("total", "base", "due", "gross"))


def readings_of(match: LabelMatch, words: Sequence[Word] = ()) -> Sequence[Reading]:
    """What a label of `MONEY_LABELS` may say.

    Args:
        words: those after it, before its amount: they may say whether the tax is in it.
    """
    readings = _READINGS[match.label]
    if _is_percentage(match):
        return tuple(Reading(_RATE_OF.get(kind, kind), strength) for kind, strength in readings)
    if words and readings[0].kind in _QUALIFIED:
        if words[0].text.startswith("0%"):
            return (Reading("charge", 0.7),)  # what is not taxed: "Total 0% supplies"
        tokens = {token for word in (*match.words, *words) for token in tokens_of(word.text)}
        if tokens & _TAX_WORDS and tokens & _OUTSIDE:
            return (Reading("base", 0.9),)
        if tokens & _TAX_WORDS and tokens & _INSIDE:
            return (Reading("total", 0.95),)
    return readings


def _is_percentage(match: LabelMatch) -> bool:
    """Whether a percent sign without a number belongs to a label: "% IVA", "IVA %"."""
    words = match.cell.words
    signs = [word for word in match.words if "%" in word.text]
    signs += [word for word in words[match.last : match.last + 1] if word.text.startswith("%")]
    before = words[max(match.first - 2, 0) : match.first]
    if before and before[-1].text == "%" and not any(map(str.isdigit, before[0].text)):
        return True
    return any(not any(map(str.isdigit, word.text)) for word in signs)


def says(match: LabelMatch, *kinds: Kind) -> bool:
    """Whether one of a label's readings is of these kinds."""
    return any(reading.kind in kinds for reading in _READINGS[match.label])
