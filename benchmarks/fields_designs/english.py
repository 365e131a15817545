"""British, American and Irish invoices."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from html import escape
from random import Random

from benchmarks.fields_designs import goods
from benchmarks.fields_designs.formats import AMERICAN, BRITISH, IRISH, long_date, money, number, short
from benchmarks.fields_designs.identities import iban, in_fours
from benchmarks.fields_designs.invoice import Invoice, Printed, Sheet, Terms, settle, truth_of
from benchmarks.fields_designs.markup import any_day, any_number, boxes, grid, sheet, stacked, sums
from benchmarks.fields_designs.parties import foreign_pair


def trades(random: Random) -> Sheet:
    """A British tradesman: VAT by line, deposit paid, balance due."""
    terms = Terms(tax="VAT", prepaid_share=Decimal("0.3") if random.random() < 0.6 else Decimal(0))
    bill = settle(random, goods.lines_of(random, goods.BRITISH, random.randrange(2, 6), most=3, halves=True), terms)
    day = any_day(random)
    due = day + timedelta(days=14)
    invoice = Invoice(*foreign_pair(random, "GB"), any_number(random, day), day, bill, due, currency="GBP")
    vendor, customer = invoice.vendor, invoice.customer
    assert customer is not None
    rows = [
        [
            line.description,
            short(line.quantity, BRITISH),
            money(line.unit_price, BRITISH),
            f"{line.rate}%",
            money(line.amount, BRITISH),
        ]
        for line in bill.lines
    ]
    totals = [
        ("Net total", money(bill.sub_total, BRITISH)),
        *((f"VAT {row.rate}% on {money(row.base, BRITISH)}", money(row.amount, BRITISH)) for row in bill.taxes),
        ("Gross total", money(bill.total, BRITISH)),
    ]
    if bill.prepaid:
        totals += [
            ("Less deposit received", money(-bill.prepaid, BRITISH)),
            ("Balance due", money(bill.payable, BRITISH)),
        ]
    body = f"""<div class=two><div><h1>{escape(vendor.name)}</h1>{escape(vendor.street)}<br>
    {escape(vendor.town)}<br>VAT No. {vendor.tax_id[2:5]} {vendor.tax_id[5:9]} {vendor.tax_id[9:]}</div>
    <div class=r style="font-size:18pt;color:#777">SALES INVOICE</div></div><br>
    <div class=two><div>Bill to:<br>{stacked(customer.name, customer.street, customer.town)}</div>
    <div>{
        grid(
            [
                ["Invoice no.", invoice.number],
                ["Tax point", long_date(day, "en")],
                ["Your order", "PO/" + str(random.randrange(100, 9999))],
                ["Please pay by", long_date(due, "en")],
            ]
        )
    }</div></div><br>
    {grid(rows, ["Work carried out", "Qty", "Unit", "VAT", "Net"], "lined", "lrrrr")}<br>{sums(totals)}
    <p class=small>Sort code 20-{random.randrange(10, 99)}-{random.randrange(10, 99)} Account {
        random.randrange(10**7, 10**8)
    }. Goods remain our property until paid for.</p>"""
    optional = (("TotalTax",) if len(bill.taxes) > 1 else ()) + (() if bill.prepaid else ("AmountDue",))
    printed = Printed(one_total=not bill.prepaid, optional=optional, absent=("CustomerTaxId",))
    return Sheet(sheet(body), truth_of(invoice, printed, language="en"))


def statement_boxes(random: Random) -> Sheet:
    """A British invoice in ruled boxes: labels above, one rate, trade discount."""
    bill = settle(
        random,
        goods.lines_of(random, goods.BRITISH, random.randrange(3, 7), most=8),
        Terms(tax="VAT", tax_rate=Decimal(20), discount_rate=Decimal(random.choice((0, 5, 10)))),
    )
    day = any_day(random)
    invoice = Invoice(*foreign_pair(random, "GB"), any_number(random, day), day, bill, None, iban(random, "GB"), "GBP")
    vendor, customer = invoice.vendor, invoice.customer
    assert customer is not None
    rows = [
        [
            line.code,
            line.description,
            str(line.quantity),
            number(line.unit_price, BRITISH),
            number(line.amount, BRITISH),
        ]
        for line in bill.lines
    ]
    totals = [("Goods value", number(bill.gross, BRITISH))]
    if bill.discount:
        totals += [
            ("Less trade discount", number(-bill.discount, BRITISH)),
            ("Taxable amount", number(bill.sub_total, BRITISH)),
        ]
    totals += [("VAT at 20%", number(bill.total_tax, BRITISH)), ("TOTAL GBP", number(bill.total, BRITISH))]
    body = f"""<div class=c><div style="font-size:15pt">{escape(vendor.name)}</div>
    <div class=small>Registered office: {escape(vendor.address)}. Registered in England no. {
        random.randrange(10**6, 10**7):08d}. VAT registration {vendor.tax_id}</div></div><br>
    <div class=two><div class=box>Customer<br>{escape(customer.name)}<br>{escape(customer.street)}<br>
    {escape(customer.town)}</div><div class=box>Deliver to<br>Unit 4, {escape(customer.street)}<br>
    {escape(customer.town)}</div></div><br>
    {
        boxes(
            [
                ("Document", "INVOICE"),
                ("Number", invoice.number),
                ("Date", f"{day:%d/%m/%Y}"),
                ("Account", "".join(random.choices("ABCDEFG", k=5))),
                ("Terms", "30 days net"),
            ]
        )
    }<br>
    {grid(rows, ["Part", "Description", "Quantity", "Each", "Value"], "ruled", "llrrr")}<br>{
        sums(totals, "40%", "ruled")
    }<p>IBAN {in_fours(invoice.account)}</p>"""
    return Sheet(sheet(body, font=1), truth_of(invoice, Printed(absent=("CustomerTaxId",)), language="en"))


def american(random: Random) -> Sheet:
    """An American invoice: month first, purchase order, sales tax, a credit already applied at times."""
    terms = Terms(
        tax="Sales tax",
        tax_rate=Decimal(random.choice(("0", "6", "7.5", "8.875"))),
        prepaid_share=Decimal("0.5") if random.random() < 0.3 else Decimal(0),
    )
    bill = settle(random, goods.lines_of(random, goods.AMERICAN, random.randrange(2, 7), most=12), terms)
    day = any_day(random)
    due = day + timedelta(days=30)
    invoice = Invoice(*foreign_pair(random, "US"), any_number(random, day), day, bill, due, currency="USD")
    vendor, customer = invoice.vendor, invoice.customer
    assert customer is not None
    rows = [
        [line.description, str(line.quantity), money(line.unit_price, AMERICAN), money(line.amount, AMERICAN)]
        for line in bill.lines
    ]
    totals = [("Subtotal", money(bill.sub_total, AMERICAN))]
    if bill.taxes:
        totals += [(f"Sales Tax ({short(bill.taxes[0].rate, AMERICAN)}%)", money(bill.total_tax, AMERICAN))]
    totals += [("Invoice Total", money(bill.total, AMERICAN))]
    if bill.prepaid:
        totals += [("Payments/Credits", money(-bill.prepaid, AMERICAN)), ("Balance Due", money(bill.payable, AMERICAN))]
    body = f"""<div class=two><div><b style="font-size:14pt">{escape(vendor.name)}</b><br>
    {escape(vendor.street)}<br>{escape(vendor.town)}<br>(555) 01{random.randrange(10, 99)}-{
        random.randrange(1000, 9999)
    }</div>
    <div><table class="ruled shade"><tr><th>Date</th><th>Invoice #</th></tr><tr><td>{day:%m/%d/%Y}</td>
    <td>{invoice.number}</td></tr></table></div></div><br>
    <table class="ruled shade" style="width:50%"><tr><th>Bill To</th></tr><tr><td>{escape(customer.name)}<br>
    {escape(customer.street)}<br>{escape(customer.town)}</td></tr></table><br>
    {
        boxes(
            [
                ("P.O. No.", str(random.randrange(1000, 99999))),
                ("Terms", "Net 30"),
                ("Due Date", f"{due:%m/%d/%Y}"),
                ("Rep", "KL"),
            ]
        )
    }<br>
    {grid(rows, ["Description", "Qty", "Rate", "Amount"], "ruled shade", "lrrr")}<br>{sums(totals, "45%", "ruled")}
    <p class=small>Thank you for your business!</p>"""
    printed = Printed(one_total=not bill.prepaid, optional=() if bill.prepaid else ("AmountDue",))
    return Sheet(sheet(body, size="Letter"), truth_of(invoice, printed, language="en"))


def irish(random: Random) -> Sheet:
    """An Irish invoice at two rates; the issuer's details stand in the foot."""
    bill = settle(random, goods.lines_of(random, goods.IRISH, random.randrange(2, 6), most=7), Terms(tax="VAT"))
    day = any_day(random)
    due = day + timedelta(days=21)
    invoice = Invoice(*foreign_pair(random, "IE"), any_number(random, day), day, bill, due, iban(random, "IE"))
    vendor, customer = invoice.vendor, invoice.customer
    assert customer is not None
    rows = [
        [
            str(line.quantity),
            line.description,
            number(line.unit_price, IRISH),
            f"{line.rate}",
            number(line.amount, IRISH),
        ]
        for line in bill.lines
    ]
    rates = [[f"{row.rate}%", number(row.base, IRISH), number(row.amount, IRISH)] for row in bill.taxes]
    body = f"""<h1>INVOICE {invoice.number}</h1><div class=two><div>To: {escape(customer.name)}<br>
    {escape(customer.street)}<br>{escape(customer.town)}</div>
    <div class=r>Dated {long_date(day, "en")}<br>Payable by {long_date(due, "en")}</div></div><br>{
        grid(rows, ["Qty", "Item", "Price", "VAT %", "Total ex VAT"], "lined", "rlrrr")
    }<br>
    <div class=two><div>{grid(rates, ["VAT rate", "Goods", "VAT"], "ruled", "rrr")}</div>
    <div>{
        sums(
            [
                ("Total ex VAT", number(bill.sub_total, IRISH)),
                ("Total VAT", number(bill.total_tax, IRISH)),
                ("Amount payable", money(bill.total, IRISH)),
            ],
            "90%",
        )
    }</div></div>
    <br><br><hr><div class="small c">{escape(vendor.name)} · {escape(vendor.address)} · VAT Reg {vendor.tax_id} · IBAN {
        in_fours(invoice.account)
    } · BIC BOFIIE2D</div>"""
    return Sheet(sheet(body, font=2, points=9.5), truth_of(invoice, Printed(absent=("CustomerTaxId",)), language="en"))
