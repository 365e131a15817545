"""Invoices among much else: brands, deliveries, comments, balances of before, prices with tax, other countries."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from html import escape
from random import Random

from benchmarks.fields_designs import goods
from benchmarks.fields_designs.formats import AMERICAN, SPANISH, cents, money, short
from benchmarks.fields_designs.identities import iban, in_fours
from benchmarks.fields_designs.invoice import Invoice, Line, Printed, Sheet, Terms, settle, truth_of
from benchmarks.fields_designs.markup import any_day, any_number, boxes, grid, sheet, stacked, sums
from benchmarks.fields_designs.parties import Party, foreign_company, foreign_pair, spanish_company, spanish_person
from benchmarks.fields_designs.spanish import eur, num, percent

_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def american_day(day: date) -> str:
    """March 3, 2026."""
    return f"{day:%B} {day.day}, {day.year}"


def wholesaler(random: Random) -> Sheet:
    """A brand on top, the company in the foot; notes of delivery, lots and carriage between the goods."""
    lines = goods.lines_of(random, goods.FARM, random.randrange(5, 9), most=24, discounted=True)
    lines.append(Line("Portes", Decimal(1), Decimal(random.randrange(6, 20)), Decimal(21)))
    bill = settle(random, lines, Terms())
    day = any_day(random)
    due = day + timedelta(days=60)
    seller, buyer = spanish_company(random), spanish_company(random)
    invoice = Invoice(seller, buyer, any_number(random, day), day, bill, due, iban(random))
    delivered = day - timedelta(days=3)
    rows = [["", f"Albarán {random.randrange(10000, 99999)} de {delivered:%d/%m/%Y} - S/Ref. {random.randrange(900)}"]]
    for index, line in enumerate(bill.lines):
        cells = [num(line.unit_price, 3), short(line.discount, SPANISH), percent(line.rate), num(line.amount)]
        rows.append([line.code, line.description, f"{short(line.quantity, SPANISH)} UD", *cells])
        if index % 3 == 1:
            rows.append(["", f"Lote L{random.randrange(1000, 9999)} Cad. {random.randrange(1, 13):02d}/2027"])
    rates = [[percent(row.rate), num(row.base), num(row.amount)] for row in bill.taxes]
    facts = [
        ("Factura", invoice.number),
        ("F. factura", f"{day:%d/%m/%y}"),
        ("Cliente", f"43000{random.randrange(999)}"),
    ]
    facts += [("Agente", "07"), ("Pedido", f"PV{random.randrange(10**5)}"), ("Vto.", f"{due:%d/%m/%y}")]
    customer = (buyer.name, buyer.street, buyer.town)
    body = f"""<div class=two><div style="font-size:22pt;color:#a33">agro<b>mundi</b></div>
    <div class="small r">www.agromundi.example<br>Pedidos: 900 {random.randrange(100, 999)} 220<br>
    pedidos@agromundi.example</div></div>
    <div class=two><div class=box><div class=small>Facturar a</div>{stacked(*customer, "CIF " + buyer.tax_id)}</div>
    <div class=box><div class=small>Enviar a</div>{
        stacked("Almacén " + buyer.town.split()[-1], "Pol. Ind. El Olmo, nave 9", buyer.town)
    }</div></div>
    <br>{boxes(facts, "ruled shade")}<br>
    {grid(rows, ["Código", "Descripción", "Cantidad", "Precio", "Dto%", "IVA", "Importe"], "lined", "llrrrrr")}<br>
    <div class=two><div>{grid(rates, ["Tipo IVA", "Base", "Cuota"], "ruled", "rrr")}</div>
    <div>{
        sums(
            [
                ("Importe neto", num(bill.sub_total)),
                ("Total impuestos", num(bill.total_tax)),
                ("TOTAL €", num(bill.total)),
            ],
            "90%",
            "lined",
        )
    }</div></div>
    <p>Forma de pago: giro a 60 días, {in_fours(invoice.account)}</p><hr>
    <p class=small>{escape(seller.name)} - {escape(seller.address)} - NIF {
        seller.tax_id
    } - Insc. R.M. tomo 2.113, folio 87.
    Conforme al Reglamento (UE) 2016/679 puede ejercer sus derechos en datos@agromundi.example.</p>"""
    printed = Printed(accept={"VendorName": ["agromundi"]})
    return Sheet(sheet(body, points=8, font=2), truth_of(invoice, printed, language="es"))


def note(random: Random) -> Sheet:
    """A freelancer's page without table heads, lines or capitals; the issuer at the foot."""
    bill = settle(
        random,
        goods.lines_of(random, goods.WRITING, random.randrange(1, 3), most=1),
        Terms(withholding_rate=Decimal(7)),
    )
    day = any_day(random)
    seller, buyer = spanish_person(random), spanish_company(random)
    invoice = Invoice(seller, buyer, str(random.randrange(1, 60)), day, bill, None, iban(random))
    lines = "".join(f"<p>{escape(line.description)}: {num(line.amount)} euros</p>" for line in bill.lines)
    body = f"""<p>factura n.º {invoice.number}</p><p>fecha: {day.day}-{day.month}-{day:%y}</p><br>
    <p>cliente: {escape(buyer.name)}<br>cif: {buyer.tax_id}<br>{escape(buyer.address)}</p><br>{lines}<br>
    <p>base: {num(bill.sub_total)}</p><p>iva 21%: {num(bill.total_tax)}</p><p>irpf -7%: {num(bill.withholding)}</p>
    <p>total: {num(bill.payable)} euros</p><br><br><p>{escape(seller.name)}<br>{seller.tax_id}<br>
    {escape(seller.street)}
    <br>{escape(seller.town)}<br>n.º de cuenta: {in_fours(invoice.account)}</p>"""
    printed = Printed(columns=("Description", "Amount"), optional=())
    return Sheet(sheet(body, points=11, margin="28mm"), truth_of(invoice, printed, language="es"))


def utility(random: Random) -> Sheet:
    """An American utility: balance of before, payment, new charges, what is due; a slip to send back."""
    charges = [("Customer charge", 9, 16), ("Energy charge 612 kWh", 60, 110), ("Fuel adjustment", 3, 15)]
    lines = [
        Line(name, Decimal(1), Decimal(str(round(random.uniform(low, high), 2))), Decimal(4))
        for name, low, high in charges
    ]
    bill = settle(random, lines, Terms(tax="City tax"))
    before = cents(Decimal(str(random.uniform(70, 160))))
    kept = cents(before * random.choice((0, 0, 1)) / 2)  # half of it is not paid yet
    day = any_day(random)
    due = day + timedelta(days=21)
    bill = replace(bill, payable=bill.total + kept)
    buyer = foreign_company(random, "US")
    seller = replace(
        foreign_company(random, "US"), name=random.choice(("Clearwater Power & Light", "Mesa Valley Electric Co-op"))
    )
    invoice = Invoice(seller, buyer, str(random.randrange(10**8, 10**9)), day, bill, due, currency="USD")
    usd = AMERICAN
    rows = [
        ["Previous balance", money(before, usd)],
        ["Payment received - thank you", money(kept - before, usd)],
        ["Balance forward", money(kept, usd)],
    ]
    new = [[line.description, money(line.amount, usd)] for line in bill.lines]
    new += [
        [f"City tax {bill.taxes[0].rate}%", money(bill.total_tax, usd)],
        ["Total current charges", money(bill.total, usd)],
    ]
    facts = [
        ("Account number", f"{random.randrange(10**4)}-{random.randrange(10**5)}"),
        ("Bill number", invoice.number),
        ("Bill date", american_day(day)),
        ("Due date", american_day(due)),
        ("Amount due", money(bill.payable, usd)),
    ]
    body = f"""<div class=two><div><h1>{escape(seller.name)}</h1>{escape(seller.street)}, {escape(seller.town)}</div>
    <div>Service for<br>{stacked(buyer.name, buyer.street, buyer.town)}</div></div><br>{boxes(facts)}<br>
    <div class=two><div><p class=b>Your account</p>{grid(rows, (), "lined", "lr")}</div>
    <div><p class=b>Current charges</p>{grid(new, (), "lined", "lr")}</div></div><br>
    <p>Pay by {american_day(due)} to avoid a late fee of 1.5%.</p><br><hr style="border-top:1pt dashed">
    <div class=two><div>Please return this part with your payment<br>{escape(buyer.name)}</div>
    <div class=r>Amount due<br><b>{money(bill.payable, usd)}</b></div></div>"""
    printed = Printed(
        columns=("Description", "Amount"),
        one_total=False,
        optional=("SubTotal",),
        accept={"InvoiceTotal": [str(bill.payable)]},
    )
    return Sheet(sheet(body, size="Letter"), truth_of(invoice, printed, language="en"))


def subscription(random: Random) -> Sheet:
    """A software company abroad: the sum in a sentence on top, periods below the descriptions, no tax."""
    plans = [("Team plan, 12 seats", 90, 400), ("Additional storage 500 GB", 10, 60), ("Priority support", 40, 150)]
    chosen = random.sample(plans, random.randrange(1, 4))
    lines = [
        Line(name, Decimal(random.randrange(1, 4)), Decimal(str(round(random.uniform(low, high), 2))), Decimal(0))
        for name, low, high in chosen
    ]
    bill = settle(random, lines, Terms())
    day = any_day(random)
    due = day + timedelta(days=random.choice((0, 14)))
    seller, buyer = foreign_company(random, "US"), spanish_company(random)
    serial = f"{random.randrange(16**8):08X}-{random.randrange(1, 40):04d}"
    invoice = Invoice(seller, buyer, serial, day, bill, due, currency="USD")
    end = day + timedelta(days=30)
    rows = []
    for line in bill.lines:
        rows.append(
            [line.description, str(line.quantity), money(line.unit_price, AMERICAN), money(line.amount, AMERICAN)]
        )
        rows.append(
            [f"{_MONTHS[day.month - 1]} {day.day} - {_MONTHS[end.month - 1]} {end.day}, {end.year}", "", "", ""]
        )
    total = money(bill.total, AMERICAN)
    facts = [["Invoice number", serial], ["Date of issue", american_day(day)], ["Date due", american_day(due)]]
    body = f"""<div class=two><h1>Invoice</h1>
    <div class=r style="font-size:15pt;color:#66a">{escape(seller.name.split()[0])}</div></div>
    <div style="width:50%">{grid(facts)}</div><br>
    <div class=two>{stacked(seller.name, seller.street, seller.town, "United States", "billing@vendor.example")}
    {stacked("Bill to", buyer.name, buyer.street, buyer.town, "Spain", "ES VAT ES" + buyer.tax_id)}</div><br>
    <h1>{total} USD due {american_day(due)}</h1><p>Pay online</p><br>
    {grid(rows, ["Description", "Qty", "Unit price", "Amount"], "", "lrrr")}<br>
    {sums([("Subtotal", total), ("Total", total), ("Amount due", total + " USD")])}"""
    return Sheet(sheet(body), truth_of(invoice, Printed(optional=()), language="en"))


def fuel(random: Random) -> Sheet:
    """80 mm: litres with three decimals, a card slip with numbers of its own."""
    litres = Decimal(random.randrange(9000, 58000)) / 1000
    line = Line(
        random.choice(("GASOLEO A", "SIN PLOMO 95")), litres, Decimal(random.randrange(1350, 1790)) / 1000, Decimal(21)
    )
    bill = settle(random, [line], Terms(tax_included=True))
    day = any_day(random)
    seller = spanish_company(random)
    invoice = Invoice(seller, None, f"{random.randrange(10**4):04d}/{random.randrange(10**6):06d}", day, bill)
    row = bill.taxes[0]
    body = f"""<div class=c>E.S. {escape(seller.town.split(" ", 1)[1].split(" (")[0].upper())}<br>
    {escape(seller.name)}<br>{escape(seller.street)}<br>{escape(seller.town)}<br>
    NIF {seller.tax_id}</div><p>Nº FACTURA: {invoice.number}<br>{day:%d/%m/%Y} 17:{random.randrange(10, 60)} Surtidor {
        random.randrange(1, 9)
    }</p>
    {
        grid(
            [[line.description, num(litres, 3) + " L", num(line.unit_price, 3), num(line.amount)]],
            ["Producto", "Cant.", "€/L", "Importe"],
            "",
            "lrrr",
        )
    }
    <hr><table><tr><td class=b>TOTAL</td><td class="r b">{eur(bill.total)}</td></tr></table>
    <p class=small>Base imponible {num(row.base)} &nbsp; IVA 21,00% {num(row.amount)}</p><hr>
    <p class=small>TARJETA VISA ************{random.randrange(1000, 9999)}<br>
    AUT. {random.randrange(10**6):06d} OP. {random.randrange(10**4)}
    COMERCIO {random.randrange(10**8, 10**9)}<br>IMPORTE {eur(bill.total)}</p>"""
    html = sheet(body, size="80mm 150mm", margin="4mm", points=8)
    return Sheet(html, truth_of(invoice, Printed(), language="es", doc_type="receipt"))


def web_shop(random: Random) -> Sheet:
    """A German shop: prices with tax, order and delivery beside the invoice's own number and date."""
    bill = settle(
        random,
        goods.lines_of(random, goods.GERMAN, random.randrange(2, 5), most=3),
        Terms(tax="MwSt", tax_included=True),
    )
    day = any_day(random)
    seller, buyer = foreign_pair(random, "DE")
    invoice = Invoice(
        seller, replace(buyer, name="Anneliese Kortmann", tax_id=""), f"RE-{random.randrange(10**6)}", day, bill
    )
    rows = [
        [line.code, line.description, str(line.quantity), num(line.unit_price), num(line.amount)] for line in bill.lines
    ]
    ordered = day - timedelta(days=2)
    facts = [
        ["Bestellnummer", f"{random.randrange(10**7)}"],
        ["Bestelldatum", f"{ordered:%d.%m.%Y}"],
        ["Rechnungs-Nr.", invoice.number],
        ["Datum", f"{day:%d.%m.%Y}"],
        ["Lieferdatum", f"{day + timedelta(days=1):%d.%m.%Y}"],
    ]
    totals = [
        ("Summe netto", eur(bill.sub_total)),
        *((f"{row.rate}% MwSt", eur(row.amount)) for row in bill.taxes),
        ("Gesamtbetrag", eur(bill.total)),
    ]
    body = f"""<div class=two><div>Rechnungsadresse<br>Anneliese Kortmann<br>{escape(buyer.street)}<br>
    {escape(buyer.town)}</div>
    <div style="width:45%;flex:none">{grid(facts, (), "lined")}</div></div><br>
    {grid(rows, ["Art.-Nr.", "Artikel", "Anzahl", "Preis (brutto)", "Summe (brutto)"], "shade", "llrrr")}<br>
    {sums(totals)}
    <p>Die Zahlung ist bereits eingegangen. Zahlungsart: PayPal.</p><br><hr>
    <p class=small>{escape(seller.name)}, {escape(seller.street)}, {escape(seller.town)}, USt-ID: {seller.tax_id}</p>"""
    several = len(bill.taxes) > 1
    return Sheet(
        sheet(body, font=2),
        truth_of(invoice, Printed(optional=("AmountDue", "TotalTax") if several else ("AmountDue",)), language="de"),
    )


def italian(random: Random) -> Sheet:
    """Imponibile, IVA and a withheld fifth."""
    names = ("Progettazione impianto elettrico", "Consulenza strutturale, giornata", "Rilievo topografico")
    lines = [
        Line(name, Decimal(random.randrange(1, 4)), Decimal(random.randrange(180, 900)), Decimal(22))
        for name in random.sample(names, 2)
    ]
    bill = settle(random, lines, Terms(withholding_rate=Decimal(20)))
    day = any_day(random)

    def party(name: str) -> Party:
        digits = f"{random.randrange(10**9, 10**10):010d}"
        doubled = sum(sum(divmod(2 * int(digit), 10)) for digit in digits[1::2])
        check = -(doubled + sum(map(int, digits[::2]))) % 10
        return Party(
            name,
            f"IT{digits}{check}",
            True,
            f"Via Garibaldi {random.randrange(1, 99)}",
            random.choice(("40121 Bologna", "10123 Torino")),
        )

    seller, buyer = (
        party("Studio Tecnico Ferrante"),
        party(random.choice(("Officine Brambati S.r.l.", "Cantine Morlacchi S.p.A."))),
    )
    account = "IT60X0542811101000000123456"
    invoice = Invoice(seller, buyer, f"{random.randrange(1, 300)}/{day.year}", day, bill, None, account)
    rows = [[line.description, str(line.quantity), num(line.unit_price), num(line.amount)] for line in bill.lines]
    totals = [
        ("Imponibile", eur(bill.sub_total)),
        ("IVA 22%", eur(bill.total_tax)),
        ("Totale fattura", eur(bill.total)),
        ("Ritenuta d'acconto 20%", eur(-bill.withholding)),
        ("Netto a pagare", eur(bill.payable)),
    ]
    body = f"""{stacked(seller.name, seller.street, seller.town, "P.IVA " + seller.tax_id[2:])}<br>
    <div class=two><div><b>FATTURA n. {invoice.number} del {day:%d/%m/%Y}</b></div>
    <div>Spett.le<br>{escape(buyer.name)}<br>{escape(buyer.street)}<br>{escape(buyer.town)}<br>
    P.IVA {buyer.tax_id[2:]}</div></div><br>
    {grid(rows, ["Descrizione", "Q.tà", "Prezzo", "Importo"], "ruled", "lrrr")}<br>{sums(totals, "50%", "lined")}
    <p>Bonifico bancario: {in_fours(account)}</p>"""
    return Sheet(sheet(body), truth_of(invoice, Printed(one_total=False, optional=()), language="it"))


def asian_receipt(random: Random) -> Sheet:
    """80 mm, Malaysia: company with its registration number, tax included, rounding, cash."""
    names = ("MILO KOSONG", "ROTI CANAI", "TOOL BOX 16IN", "A4 PAPER 80GSM", "DURACELL AA 4S", "NASI LEMAK AYAM")
    lines = [
        Line(name, Decimal(random.randrange(1, 4)), Decimal(random.randrange(20, 400)) / 10, Decimal(6))
        for name in random.sample(names, random.randrange(2, 5))
    ]
    bill = settle(random, lines, Terms(tax="GST", tax_included=True))
    day = any_day(random)
    name = random.choice(("KEDAI RUNCIT SURIA SDN. BHD.", "WAN LI HARDWARE TRADING SDN BHD", "RESTORAN PELITA HIJAU"))
    seller = Party(
        name,
        "",
        True,
        f"NO {random.randrange(1, 99)}, JALAN MELUR {random.randrange(1, 9)}, TAMAN INDAH",
        "81100 JOHOR BAHRU, JOHOR",
    )
    number_ = f"CS{random.randrange(10**5):05d}"
    invoice = Invoice(seller, None, number_, day, bill, currency="MYR")
    rows = [[f"{line.quantity} x {line.description}", f"{line.amount:.2f}"] for line in bill.lines]
    row = bill.taxes[0]
    body = f"""<div class=c><b>{escape(name)}</b><br>({random.randrange(10**5, 10**6)}-K)<br>
    {escape(seller.street)}<br>{escape(seller.town)}<br>
    TEL: 07-{random.randrange(10**6, 10**7)}</div><p class=c>TAX INVOICE</p><p>Inv No : {number_}<br>
    Date : {day:%d/%m/%Y} 12:{random.randrange(10, 60)}:08<br>Cashier : 02</p>
    {grid(rows, (), "", "lr")}<hr><table><tr><td>Total (incl. GST)</td><td class=r>{bill.total:.2f}</td></tr>
    <tr><td class=b>TOTAL RM</td><td class="r b">{bill.total:.2f}</td></tr><tr><td>CASH</td>
    <td class=r>{bill.total + 5:.2f}</td></tr>
    <tr><td>CHANGE</td><td class=r>5.00</td></tr></table><p>GST SUMMARY</p>{
        grid([["SR @ 6%", f"{row.base:.2f}", f"{row.amount:.2f}"]], ["Tax", "Amt(RM)", "Tax(RM)"], "", "lrr")
    }
    <p class="c small">GOODS SOLD ARE NOT RETURNABLE</p>"""
    html = sheet(body, size="80mm 170mm", margin="4mm", points=8, font=2)
    printed = Printed(columns=("Description", "Quantity", "Amount"), optional=("AmountDue", "SubTotal", "TotalTax"))
    return Sheet(html, truth_of(invoice, printed, language="en", doc_type="receipt"))
