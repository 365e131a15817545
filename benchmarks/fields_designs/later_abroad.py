"""Papers from abroad, made after the second round of the extraction."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from html import escape
from random import Random

from benchmarks.fields_designs import goods
from benchmarks.fields_designs.formats import AMERICAN, BRITISH, FRENCH, IRISH, SPANISH, long_date, money, number, short
from benchmarks.fields_designs.identities import iban, in_fours
from benchmarks.fields_designs.invoice import Invoice, Line, Printed, Sheet, Terms, settle, truth_of
from benchmarks.fields_designs.markup import any_day, boxes, grid, sheet, stacked, sums
from benchmarks.fields_designs.parties import foreign_company, foreign_pair, spanish_company


def marketplace(random: Random) -> Sheet:
    """An English paper of a shop of the web for a Spanish company: sold by, prices with and without tax."""
    terms = Terms(tax="VAT", tax_included=True)
    bill = settle(random, goods.lines_of(random, goods.MARKET, random.randrange(1, 4), most=2), terms)
    day = any_day(random)
    seller, buyer = foreign_company(random, random.choice(("DE", "IE"))), spanish_company(random)
    serial = f"INV-{random.choice(('ES', 'DE'))}-{random.randrange(10**7, 10**9)}-{day.year}-{random.randrange(9999)}"
    invoice = Invoice(seller, buyer, serial, day, bill)
    described = replace(
        bill,
        lines=tuple(
            replace(line, description=f"{line.description} | B0{random.randrange(10**7, 10**8)}") for line in bill.lines
        ),
    )
    rows = [
        [
            line.description,
            str(line.quantity),
            money(line.unit_price / (1 + line.rate / 100), IRISH),
            f"{line.rate}%",
            money(line.unit_price, IRISH),
            money(line.amount, IRISH),
        ]
        for line in described.lines
    ]
    heads = ["Description", "Qty", "Unit price (excl. VAT)", "VAT rate", "Unit price (incl. VAT)"]
    heads += ["Item subtotal (incl. VAT)"]
    row = bill.taxes[0]
    rates = [[name, money(row.base, IRISH), money(row.amount, IRISH)] for name in (f"{row.rate}%", "Total")]
    order = f"40{random.randrange(9)}-{random.randrange(10**6, 10**7)}-{random.randrange(10**6, 10**7)}"
    body = f"""<div class=two><div><h1>Invoice</h1></div><div class=r><b>Paid</b><br>
    Payment reference {random.randrange(10**8, 10**9)}<br>
    Sold by {escape(seller.name)}<br>VAT # {seller.tax_id}</div></div><hr>
    <div class=r>Invoice date / Delivery date &nbsp; {long_date(day, "en")}<br>Invoice # &nbsp; {invoice.number}<br>
    Total payable &nbsp; {money(bill.total, IRISH)}</div><br>
    <div class="two small">
    {stacked("Billing address", buyer.name, buyer.street, buyer.town, "ES", f"VAT # ES{buyer.tax_id}")}
    {stacked("Delivery address", "Recepción", buyer.street, buyer.town, "ES")}
    {stacked("Sold by", seller.name, seller.street, seller.town, f"VAT # {seller.tax_id}")}</div><br>
    <b>Order information</b><br>Order date {long_date(day - timedelta(days=2), "en")}<br>Order # {order}<br><br>
    {grid(rows, heads, "lined", "lrrrrr")}
    <div class=r style="font-size:13pt">Invoice total &nbsp; {money(bill.total, IRISH)}</div><br>
    {grid(rates, ["VAT rate", "Item subtotal (excl. VAT)", "VAT subtotal"], "lined", "lrr")}"""
    return Sheet(
        sheet(body),
        truth_of(replace(invoice, bill=described), Printed(("Description", "Quantity", "Amount")), language="en"),
    )


def word_plumber(random: Random) -> Sheet:
    """A British plumber's letter from a word processor: no tax number, no table, account by sort code."""
    bill = settle(
        random, goods.lines_of(random, goods.PLUMBER, random.randrange(2, 5), most=1), Terms(tax_rate=Decimal(0))
    )
    day = any_day(random)
    seller, buyer = foreign_pair(random, "GB")
    owner = f"{random.choice(('Dave', 'Colin', 'Priya'))} {random.choice(('Hobbs', 'Fairley', 'Nair'))}"
    seller = replace(seller, name=f"{owner} Plumbing & Heating", tax_id="")
    buyer = replace(
        buyer, name=f"{random.choice(('Mrs J', 'Mr A', 'Dr S'))} {random.choice(('Whitcombe', 'Okafor', 'Penrose'))}"
    )
    invoice = Invoice(seller, buyer, f"{random.randrange(12, 900):04d}", day, bill, None, "", "GBP")
    rows = [(line.description, money(line.amount, BRITISH)) for line in bill.lines]
    body = f"""<div class=r><b>{escape(seller.name)}</b><br>{escape(seller.street)}<br>{escape(seller.town)}<br>
    Mob: 07700 900{random.randrange(100, 999)}<br>Gas Safe reg. {random.randrange(10**5, 10**6)}</div>
    <p>{escape(buyer.name)}<br>{escape(buyer.street)}<br>{escape(buyer.town)}</p><br>
    <p>{long_date(day, "en")}</p><p><b><u>INVOICE {invoice.number}</u></b></p>
    <p>Re: work carried out at the above address w/c {day - timedelta(days=7):%d/%m/%y}</p><br>{sums(rows, "90%")}<br>
    {sums([("Total to pay", money(bill.total, BRITISH))], "90%")}<br>
    <p>Payment by BACS within 14 days please: Sort code 40-{random.randrange(10, 99)}-12, a/c {
        random.randrange(10**7, 10**8)
    }</p>
    <p>Many thanks for your custom.</p><p>Not VAT registered</p>"""
    accept = {"CustomerName": [buyer.name.split(" ", 1)[1]]}
    printed = Printed(("Description", "Amount"), ("AmountDue", "SubTotal"), ("CustomerTaxId",), accept=accept)
    return Sheet(sheet(body, font=1, points=11), truth_of(invoice, printed, language="en"))


def remittance(random: Random) -> Sheet:
    """An American invoice with a slip to tear off that says number, date and sum again, and a lock box."""
    rate = Decimal(random.choice(("6.25", "8.875", "7")))
    bill = settle(
        random,
        goods.lines_of(random, goods.AMERICAN, random.randrange(2, 6), most=6),
        Terms("Sales tax", tax_rate=rate),
    )
    day = any_day(random)
    due = day + timedelta(days=30)
    seller, buyer = foreign_pair(random, "US")
    invoice = Invoice(seller, buyer, f"{random.randrange(10**6, 10**7)}", day, bill, due, "", "USD")
    lines = [
        [
            line.code,
            line.description,
            str(line.quantity),
            number(line.unit_price, AMERICAN),
            number(line.amount, AMERICAN),
        ]
        for line in bill.lines
    ]
    facts = [
        ("Invoice No.", invoice.number),
        ("Invoice Date", f"{day:%m/%d/%Y}"),
        ("Account No.", f"{random.randrange(10**5, 10**6)}"),
    ]
    facts += [("P.O. No.", f"PO{random.randrange(999, 9999)}"), ("Terms", "Net 30"), ("Due Date", f"{due:%m/%d/%Y}")]
    totals = [
        ("Subtotal", number(bill.sub_total, AMERICAN)),
        (f"Sales Tax ({short(rate, AMERICAN)}%)", number(bill.total_tax, AMERICAN)),
    ]
    body = f"""<div class=two><div><b style="font-size:14pt">{escape(seller.name)}</b><br>
    {escape(seller.street)}<br>{escape(seller.town)}</div>
    <div class=r style="font-size:20pt">INVOICE</div></div><br>
    <div class=two>{stacked("Sold To", buyer.name, buyer.street, buyer.town)}{
        stacked("Ship To", buyer.name, "Dock 4", buyer.street, buyer.town)
    }</div>
    <br>{boxes(facts)}<br>{
        grid(lines, ["Item", "Description", "Qty Shipped", "Price", "Extension"], "shade", "llrrr")
    }<br>
    {sums([*totals, ("TOTAL DUE", money(bill.total, AMERICAN))])}<br><br>
    <div style="border-top:1pt dashed #000" class="c small">Please detach and return this portion
    with your payment</div><br>
    <div class=two><div>{stacked("REMIT TO", seller.name, "P.O. Box 7741", "Dallas, TX 75266")}</div>
    <div>Customer: {escape(buyer.name)}<br>Invoice: {invoice.number}<br>Amount Due: {
        money(bill.total, AMERICAN)
    }<br>Amount Enclosed: $ ________</div></div>"""
    accept = {"VendorAddress": ["P.O. Box 7741, Dallas, TX 75266"]}
    printed = Printed(optional=(), accept=accept)
    return Sheet(sheet(body, size="Letter"), truth_of(invoice, printed, language="en"))


def small_business_fr(random: Random) -> Sheet:
    """A French one-person business without tax: SIRET in place of a tax number, a person's name."""
    bill = settle(
        random, goods.lines_of(random, goods.FREELANCE, random.randrange(1, 4), most=3), Terms(tax_rate=Decimal(0))
    )
    day = any_day(random)
    due = day + timedelta(days=30)
    seller, buyer = foreign_pair(random, "FR")
    seller = replace(
        seller,
        name=f"{random.choice(('Maëlle', 'Thibault', 'Solène'))} {random.choice(('Kervella', 'Dumoulin', 'Fabre'))}",
        tax_id="",
    )
    invoice = Invoice(seller, buyer, f"{day.year}-{random.randrange(1, 80):03d}", day, bill, due, iban(random, "FR"))
    lines = [
        [line.description, str(line.quantity), money(line.unit_price, FRENCH), money(line.amount, FRENCH)]
        for line in bill.lines
    ]
    body = f"""<p>{escape(seller.name)}<br>Entrepreneur individuel<br>{escape(seller.street)}<br>
    {escape(seller.town)}<br>
    SIRET {random.randrange(10**8, 10**9)} 000{random.randrange(10, 99)}</p>
    <div style="margin-left:55%">À l'attention de<br><b>{escape(buyer.name)}</b><br>{escape(buyer.street)}<br>
    {escape(buyer.town)}</div><br>
    <p>Facture n° {invoice.number} du {day:%d/%m/%Y}</p>
    <p>À régler au plus tard le {long_date(due, "fr")} par virement ({in_fours(invoice.account)}).</p><br>
    {grid(lines, ["Prestation", "Qté", "Prix unitaire", "Montant"], "lined", "lrrr")}<br>
    {sums([("Total net à payer", money(bill.total, FRENCH))])}
    <p class=small>TVA non applicable, art. 293 B du CGI.</p>"""
    printed = Printed(optional=("AmountDue", "SubTotal"), absent=("CustomerTaxId",))
    return Sheet(sheet(body, points=10), truth_of(invoice, printed, language="fr"))


def petrol_slip(random: Random) -> Sheet:
    """A British filling station: litres and price a litre in one line, card lines below, tax in a small table."""
    line = Line("UNLEADED 95", Decimal(random.randrange(1200, 5800)) / 100, Decimal("1.459"), Decimal(20))
    bill = settle(random, [line], Terms(tax="VAT", tax_included=True))
    day = any_day(random)
    seller = foreign_company(random, "GB")
    invoice = Invoice(seller, None, f"{random.randrange(10**5, 10**6)}", day, bill, currency="GBP")
    row = bill.taxes[0]
    body = f"""<div class=c>{escape(seller.name)}<br>{escape(seller.street)}<br>{escape(seller.town)}<br>
    VAT NO {seller.tax_id[2:]}</div><br>{day:%d/%m/%y} 18:{random.randrange(10, 59)} TILL 2<br>RECEIPT NO {
        invoice.number
    }
    <hr>PUMP {random.randrange(1, 9)}<br>{
        sums(
            [(line.description, money(line.amount, BRITISH)), (f"{line.quantity} L @ £{line.unit_price}/L", "")], "100%"
        )
    }<hr>{sums([("TOTAL", money(bill.total, BRITISH)), ("VISA DEBIT", money(bill.total, BRITISH))], "100%")}
    <div class=small>VAT RATE {row.rate}% NET {number(row.base, BRITISH)} VAT {number(row.amount, BRITISH)}</div><br>
    AID A0000000031010<br>CARD ************{random.randrange(1000, 9999)}<br>
    AUTH CODE {random.randrange(10**5, 10**6)}
    <div class=c>THANK YOU</div>"""
    return Sheet(
        sheet(body, size="80mm 150mm", margin="4mm", points=8),
        truth_of(invoice, Printed(), language="en", doc_type="receipt"),
    )


def craftsman_de(random: Random) -> Sheet:
    """A German craftsman: sender's line over the window, facts in a block at the right, an instalment taken off."""
    terms = Terms(tax="MwSt", tax_rate=Decimal(19), prepaid_share=Decimal("0.5"))
    bill = settle(random, goods.lines_of(random, goods.GERMAN, random.randrange(2, 5), most=4), terms)
    day = any_day(random)
    due = day + timedelta(days=14)
    seller, buyer = foreign_pair(random, "DE")
    invoice = Invoice(seller, buyer, f"RE-{day:%Y}-{random.randrange(9, 700)}", day, bill, due, iban(random, "DE"))
    rows = [
        [
            str(index),
            line.description,
            f"{line.quantity} Stk.",
            number(line.unit_price, SPANISH),
            number(line.amount, SPANISH),
        ]
        for index, line in enumerate(bill.lines, 1)
    ]
    facts = [["Rechnungs-Nr.", invoice.number], ["Kunden-Nr.", f"{random.randrange(10000, 99999)}"]]
    facts += [["Rechnungsdatum", f"{day:%d.%m.%Y}"], ["Leistungsdatum", f"{day - timedelta(days=5):%d.%m.%Y}"]]
    totals = [("Nettobetrag", money(bill.sub_total, SPANISH)), ("zzgl. 19 % MwSt.", money(bill.total_tax, SPANISH))]
    totals += [("Gesamtbetrag", money(bill.total, SPANISH)), ("abzgl. Abschlag", money(-bill.prepaid, SPANISH))]
    body = f"""<div class=r style="font-size:15pt">{escape(seller.name)}</div><br><br>
    <div class=two><div>
    <u class=small>{escape(seller.name)} · {escape(seller.street)} · {escape(seller.town)}</u><br><br>
    {escape(buyer.name)}<br>{escape(buyer.street)}<br>{escape(buyer.town)}</div><div>{grid(facts)}</div></div><br>
    <h1>Rechnung</h1><p>Sehr geehrte Damen und Herren, wir erlauben uns zu berechnen:</p>
    {grid(rows, ["Pos.", "Bezeichnung", "Menge", "E-Preis", "G-Preis"], "lined", "llrrr")}<br>
    {sums([*totals, ("Noch zu zahlen", money(bill.payable, SPANISH))], "55%")}
    <p>Zahlbar ohne Abzug bis zum {due:%d.%m.%Y}.</p><br><hr><div class="two small"><div>{escape(seller.name)}<br>
    {escape(seller.street)}<br>{escape(seller.town)}</div><div>USt-IdNr. {seller.tax_id}<br>Amtsgericht HRB 4417</div>
    <div>IBAN {in_fours(invoice.account)}</div></div>"""
    printed = Printed(optional=(), one_total=False, absent=("CustomerTaxId",))
    return Sheet(sheet(body, points=10), truth_of(invoice, printed, language="de"))
