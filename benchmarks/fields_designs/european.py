"""German, French, Catalan and Portuguese invoices."""

from __future__ import annotations

from datetime import timedelta
from html import escape
from random import Random

from benchmarks.fields_designs import goods
from benchmarks.fields_designs.formats import FRENCH, PORTUGUESE, SPANISH, long_date, money, number, short
from benchmarks.fields_designs.identities import iban, in_fours
from benchmarks.fields_designs.invoice import Invoice, Printed, Sheet, Terms, settle, truth_of
from benchmarks.fields_designs.markup import any_day, any_number, boxes, grid, sheet, stacked, sums
from benchmarks.fields_designs.parties import catalan_company, foreign_pair
from benchmarks.fields_designs.spanish import eur, num, percent


def german(random: Random) -> Sheet:
    """A letter by DIN 5008: sender's line above the address window, data at the right, bank in the foot."""
    bill = settle(random, goods.lines_of(random, goods.GERMAN, random.randrange(2, 5), most=6), Terms(tax="USt"))
    day = any_day(random)
    due = day + timedelta(days=14)
    invoice = Invoice(*foreign_pair(random, "DE"), any_number(random, day), day, bill, due, iban(random, "DE"))
    vendor, customer = invoice.vendor, invoice.customer
    assert customer is not None
    rows = [
        [str(index), line.description, short(line.quantity, SPANISH), eur(line.unit_price), eur(line.amount)]
        for index, line in enumerate(bill.lines, 1)
    ]
    totals = [
        ("Nettobetrag", eur(bill.sub_total)),
        *((f"zzgl. {row.rate} % MwSt. auf {num(row.base)}", eur(row.amount)) for row in bill.taxes),
        ("Rechnungsbetrag", eur(bill.total)),
    ]
    body = f"""<div class=r><b style="font-size:13pt">{escape(vendor.name)}</b></div><br>
    <div class=small><u>{escape(vendor.name)} · {escape(vendor.street)} · {escape(vendor.town)}</u></div>
    <div class=two><div>{escape(customer.name)}<br>{escape(customer.street)}<br>{escape(customer.town)}</div>
    <div>{
        grid(
            [
                ["Rechnungsnummer:", invoice.number],
                ["Rechnungsdatum:", f"{day:%d.%m.%Y}"],
                ["Kundennummer:", str(random.randrange(10000, 99999))],
            ]
        )
    }</div></div><br><h1>Rechnung</h1>
    <p>Wir erlauben uns, folgende Leistungen zu berechnen:</p>{
        grid(rows, ["Pos.", "Bezeichnung", "Menge", "Einzelpreis", "Gesamt"], "lined", "rlrrr")
    }<br>{sums(totals, "55%")}
    <p>Bitte zahlen Sie bis zum {due:%d.%m.%Y} ohne Abzug.</p><br><hr><div class=two style="font-size:75%">
    <div>{escape(vendor.name)}<br>{escape(vendor.street)}<br>{escape(vendor.town)}</div><div>Sparkasse<br>
    IBAN {in_fours(invoice.account)}</div><div>USt-IdNr. {vendor.tax_id}<br>Amtsgericht HRB {
        random.randrange(1000, 99999)
    }</div></div>"""
    optional = ("AmountDue", "TotalTax") if len(bill.taxes) > 1 else ("AmountDue",)
    return Sheet(sheet(body), truth_of(invoice, Printed(optional=optional, absent=("CustomerTaxId",)), language="de"))


def french(random: Random) -> Sheet:
    """Totals HT, TVA and TTC; the legal line in the foot."""
    bill = settle(random, goods.lines_of(random, goods.FRENCH, random.randrange(2, 5), most=20), Terms(tax="TVA"))
    day = any_day(random)
    due = day + timedelta(days=30)
    invoice = Invoice(*foreign_pair(random, "FR"), any_number(random, day), day, bill, due, iban(random, "FR"))
    vendor, customer = invoice.vendor, invoice.customer
    assert customer is not None
    rows = [
        [
            line.description,
            short(line.quantity, FRENCH),
            number(line.unit_price, FRENCH),
            f"{short(line.rate, FRENCH)} %",
            number(line.amount, FRENCH),
        ]
        for line in bill.lines
    ]
    totals = [
        ("Total HT", money(bill.sub_total, FRENCH)),
        *(
            (f"TVA {short(row.rate, FRENCH)} % ({number(row.base, FRENCH)})", money(row.amount, FRENCH))
            for row in bill.taxes
        ),
        ("Total TTC", money(bill.total, FRENCH)),
        ("Net à payer", money(bill.total, FRENCH)),
    ]
    body = f"""<div class=two>{stacked(vendor.name, vendor.street, vendor.town)}<div class=r>
    <h1>FACTURE</h1>N° {invoice.number}<br>du {long_date(day, "fr")}</div></div><br>
    <div class=two><div></div><div class=box>{stacked(customer.name, customer.street, customer.town)}
    <div>TVA intracom. {customer.tax_id}</div></div></div><br>
    {grid(rows, ["Désignation", "Qté", "P.U. HT", "TVA", "Montant HT"], "ruled shade", "lrrrr")}<br>{
        sums(totals, "55%", "lined")
    }
    <p>Date d'échéance : {due:%d/%m/%Y} - Règlement par virement : {in_fours(invoice.account)}</p><hr>
    <p class="small c">{escape(vendor.name)} au capital de 8 000 € - SIREN {vendor.tax_id[4:]} - N° TVA {
        vendor.tax_id
    }</p>"""
    optional = ("TotalTax",) if len(bill.taxes) > 1 else ()
    return Sheet(sheet(body), truth_of(invoice, Printed(optional=optional), language="fr"))


def catalan(random: Random) -> Sheet:
    """An invoice in Catalan."""
    bill = settle(random, goods.lines_of(random, goods.CATALAN, random.randrange(2, 5), most=4), Terms())
    day = any_day(random)
    due = day + timedelta(days=30)
    invoice = Invoice(
        catalan_company(random), catalan_company(random), any_number(random, day), day, bill, due, iban(random)
    )
    vendor, customer = invoice.vendor, invoice.customer
    assert customer is not None
    rows = [
        [line.description, short(line.quantity, SPANISH), num(line.unit_price), percent(line.rate), num(line.amount)]
        for line in bill.lines
    ]
    rates = [[num(row.base), percent(row.rate), num(row.amount)] for row in bill.taxes]
    body = f"""<div class=two>{stacked(vendor.name, vendor.street, vendor.town, "NIF " + vendor.tax_id)}
    <div>{
        boxes([("Factura núm.", invoice.number), ("Data", f"{day:%d/%m/%Y}"), ("Venciment", f"{due:%d/%m/%Y}")])
    }</div></div><br>
    <p>Client</p>{stacked(customer.name, customer.street, customer.town, "NIF " + customer.tax_id)}<br>{
        grid(rows, ["Concepte", "Quantitat", "Preu", "IVA", "Import"], "lined", "lrrrr")
    }<br>
    <div class=two><div>{grid(rates, ["Base imposable", "Tipus", "Quota"], "ruled", "rrr")}</div>
    <div class=r style="font-size:13pt">Total factura<br><b>{eur(bill.total)}</b></div></div>
    <p>Domiciliació: {in_fours(invoice.account)}</p>"""
    optional = ("AmountDue", "TotalTax", "SubTotal") if len(rates) > 1 else ("AmountDue",)
    return Sheet(sheet(body, font=2, points=9.5), truth_of(invoice, Printed(optional=optional), language="ca"))


def portuguese(random: Random) -> Sheet:
    """A Fatura with the issuer's contribuinte number and a summary of IVA."""
    bill = settle(random, goods.lines_of(random, goods.PORTUGUESE, random.randrange(2, 5), most=10), Terms(tax="IVA"))
    day = any_day(random)
    due = day + timedelta(days=30)
    invoice = Invoice(
        *foreign_pair(random, "PT"),
        f"FT {random.choice('AB')}{day:%y}/{random.randrange(10, 900)}",
        day,
        bill,
        due,
        iban(random, "PT"),
    )
    vendor, customer = invoice.vendor, invoice.customer
    assert customer is not None
    rows = [
        [
            line.description,
            short(line.quantity, PORTUGUESE),
            number(line.unit_price, PORTUGUESE),
            f"{line.rate}%",
            number(line.amount, PORTUGUESE),
        ]
        for line in bill.lines
    ]
    rates = [[f"{row.rate}%", number(row.base, PORTUGUESE), number(row.amount, PORTUGUESE)] for row in bill.taxes]
    body = f"""{stacked(vendor.name, vendor.street, vendor.town, "Contribuinte n.º " + vendor.tax_id)}<br>
    <div class=two><div><b>Fatura n.º {invoice.number}</b><br>Data de emissão: {day.isoformat()}<br>
    Vencimento: {due.isoformat()}</div>
    <div>Exmo.(s) Sr.(s)<br>{escape(customer.name)}<br>{escape(customer.street)}<br>{escape(customer.town)}<br>
    NIF: {customer.tax_id}</div></div><br>
    {grid(rows, ["Descrição", "Qtd.", "Preço Unit.", "IVA", "Valor"], "lined", "lrrrr")}<br>
    <div class=two><div>{grid(rates, ["Taxa", "Incidência", "Valor IVA"], "ruled", "rrr")}</div>
    <div>{
        sums(
            [
                ("Total ilíquido", money(bill.sub_total, PORTUGUESE)),
                ("Total IVA", money(bill.total_tax, PORTUGUESE)),
                ("Total do documento", money(bill.total, PORTUGUESE)),
            ],
            "90%",
        )
    }</div></div>
    <p class=small>Processado por programa certificado n.º {random.randrange(100, 2999)}/AT. Transferência: {
        in_fours(invoice.account)
    }</p>"""
    return Sheet(sheet(body), truth_of(invoice, Printed(), language="pt"))
