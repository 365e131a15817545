"""Spanish invoices of companies: boxes, hotel, workshop, telecom, water, works, Canary Islands, credit note."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from html import escape
from random import Random

from benchmarks.fields_designs import goods
from benchmarks.fields_designs.formats import SPANISH, long_date, money, number, short
from benchmarks.fields_designs.identities import iban, in_fours
from benchmarks.fields_designs.invoice import Bill, Invoice, Line, Printed, Sheet, Terms, negated, settle, truth_of
from benchmarks.fields_designs.markup import any_day, any_number, boxes, grid, sheet, stacked, sums
from benchmarks.fields_designs.parties import canary_company, spanish_company, spanish_person


def eur(value: Decimal) -> str:
    """With the sign behind it."""
    return money(value, SPANISH)


def num(value: Decimal, places: int = 2) -> str:
    """Without a sign."""
    return number(value, SPANISH, places)


def percent(value: Decimal) -> str:
    """A rate."""
    return f"{short(value, SPANISH)}%"


def tax_rows(bill: Bill) -> list[list[str]]:
    """Base, rate and amount of each row."""
    return [[num(row.base), percent(row.rate), num(row.amount)] for row in bill.taxes]


def box_grid(random: Random) -> Sheet:
    """Labels above values in ruled boxes, discounts by line, equivalence surcharge in the same tax row."""
    with_surcharge = random.random() < 0.6
    bill = settle(
        random,
        goods.lines_of(random, goods.FARM, random.randrange(4, 9), discounted=True),
        Terms(surcharge=with_surcharge),
    )
    day = any_day(random)
    due = day + timedelta(days=random.choice((15, 30, 60)))
    invoice = Invoice(
        spanish_company(random),
        spanish_person(random) if with_surcharge else spanish_company(random),
        any_number(random, day),
        day,
        bill,
        due,
        iban(random),
    )
    vendor, customer = invoice.vendor, invoice.customer
    assert customer is not None
    lines = [
        [
            line.code,
            line.description,
            short(line.quantity, SPANISH),
            num(line.unit_price),
            short(line.discount, SPANISH) if line.discount else "",
            num(line.amount),
        ]
        for line in bill.lines
    ]
    head = ["Código", "Artículo", "Uds.", "Precio", "% Dto", "Total"]
    main = [row for row in bill.taxes if row.kind == "IVA"]
    extra = {row.base: row for row in bill.taxes if row.kind == "RE"}
    rates = [
        [num(row.base), short(row.rate, SPANISH), num(row.amount)]
        + ([short(extra[row.base].rate, SPANISH), num(extra[row.base].amount)] if extra else [])
        for row in main
    ]
    rate_head = ["Base imponible", "% IVA", "Cuota IVA"] + (["% R.E.", "Cuota R.E."] if extra else [])
    body = f"""<div class=two>{stacked(vendor.name, vendor.street, vendor.town, "C.I.F.: " + vendor.tax_id)}
    <div class=box><div class=small>DATOS DEL CLIENTE</div>{
        stacked(customer.name, customer.street, customer.town, "NIF/CIF " + customer.tax_id)
    }</div></div><br>
    {
        boxes(
            [
                ("FACTURA N.º", invoice.number),
                ("FECHA", f"{day:%d-%m-%Y}"),
                ("CÓD. CLIENTE", str(random.randrange(400, 9000))),
                ("FORMA DE PAGO", "Recibo domiciliado" if random.random() < 0.4 else "Transferencia"),
                ("VENCIMIENTO", f"{due:%d-%m-%Y}"),
            ]
        )
    }<br>
    {grid(lines, head, "lined", "llrrrr")}<br>{grid(rates, rate_head, "ruled", "rrrrr")}<br>
    {boxes([("IMPORTE BRUTO", num(bill.gross)), ("TOTAL FACTURA", eur(bill.total))], small=False)}
    <p class=small>Cuenta de abono: {in_fours(invoice.account)}</p>"""
    printed = Printed(optional=("AmountDue", "TotalTax", "SubTotal") if len(main) > 1 else ("AmountDue", "TotalTax"))
    if len(main) == 1 and not extra:
        printed = Printed()
    return Sheet(sheet(body), truth_of(invoice, printed, language="es"))


def hotel(random: Random) -> Sheet:
    """Stay in a sentence of dates, guest, prices by night; tax included in a small table below."""
    bill = settle(random, goods.lines_of(random, goods.HOTEL, random.randrange(2, 6), most=5), Terms())
    day = any_day(random)
    invoice = Invoice(
        spanish_company(random, "hotel"),
        random.choice((spanish_company, spanish_person))(random),
        any_number(random, day),
        day,
        bill,
    )
    vendor, customer = invoice.vendor, invoice.customer
    assert customer is not None
    arrival = day - timedelta(days=random.randrange(1, 6))
    lines = [
        [f"{arrival:%d/%m}", line.description, short(line.quantity, SPANISH), num(line.unit_price), num(line.amount)]
        for line in bill.lines
    ]
    label = random.choice(("Factura", "Nº de factura", "Factura núm."))
    taxes = "".join(
        f"<div>{percent(row.rate)} IVA s/ {num(row.base)} ...... {num(row.amount)}</div>" for row in bill.taxes
    )
    body = f"""<div class=c><h1>{escape(vendor.name)}</h1><div>{escape(vendor.street)} · {escape(vendor.town)}</div>
    <div class=small>N.I.F. {vendor.tax_id} · Tel. +34 9{
        random.randrange(10**7, 10**8)
    } · reservas@hotel.example</div></div><hr>
    <div class=two><div><p>Titular: <b>{escape(customer.name)}</b></p><p>N.I.F.: {customer.tax_id}</p>
    <p>{escape(customer.address)}</p></div>
    <div><p>{label}: {invoice.number}</p><p>Fecha de emisión: {day:%d/%m/%y}</p>
    <p>Entrada: {arrival:%d/%m/%Y} &nbsp; Salida: {day:%d/%m/%Y}</p><p>Habitación: {
        random.randrange(101, 620)
    }</p></div></div><br>
    {grid(lines, ["Día", "Servicio", "Cant.", "Precio", "Importe EUR"], "lined", "llrrr")}<br>
    <div class=two><div class=small>{taxes}</div><div>{
        sums(
            [
                ("Total sin IVA", num(bill.sub_total)),
                ("I.V.A.", num(bill.total_tax)),
                ("TOTAL A PAGAR", eur(bill.total)),
            ],
            "90%",
        )
    }</div></div>
    <p class=small>Pagado con tarjeta ****{random.randrange(1000, 9999)}. Gracias por alojarse con nosotros.</p>"""
    return Sheet(sheet(body, font=1), truth_of(invoice, Printed(), language="es"))


def workshop(random: Random) -> Sheet:
    """A car workshop: labels with colons in two columns, vehicle data, one or two advance payments."""
    terms = Terms(prepaid_share=Decimal("0.25") if random.random() < 0.5 else Decimal(0))
    bill = settle(random, goods.lines_of(random, goods.WORKSHOP, random.randrange(3, 8), most=4, halves=True), terms)
    day = any_day(random)
    invoice = Invoice(spanish_company(random, "workshop"), spanish_person(random), any_number(random, day), day, bill)
    vendor, customer = invoice.vendor, invoice.customer
    assert customer is not None
    lines = [
        [line.description, line.code, short(line.quantity, SPANISH), num(line.unit_price), num(line.amount)]
        for line in bill.lines
    ]
    totals = [
        ("Suma", num(bill.gross)),
        ("Base", num(bill.sub_total)),
        (f"IVA {percent(bill.taxes[0].rate)}", num(bill.total_tax)),
        ("Total factura", eur(bill.total)),
    ]
    if bill.prepaid:
        totals += [("Entregado a cuenta", num(-bill.prepaid)), ("Pendiente de pago", eur(bill.payable))]
    plate = f"{random.randrange(1000, 9999)} {''.join(random.choices('BCDFGHJKLM', k=3))}"
    body = f"""<div class=two><div style="font-size:16pt">FACTURA DE REPARACIÓN</div>
    <div class=r>Orden de reparación {random.randrange(10000, 99999)}</div></div>
    <table class=ruled><tr><td style="width:50%"><b>{escape(vendor.name)}</b><br>{escape(vendor.street)}<br>
    {escape(vendor.town)}<br>CIF {vendor.tax_id} - Reg. Ind. 9/{random.randrange(1000, 9999)}</td>
    <td>Cliente: {escape(customer.name)}<br>Dirección: {escape(customer.address)}<br>DNI: {customer.tax_id}</td></tr>
    <tr><td>Número: {invoice.number}<br>Fecha: {long_date(day, "es")}</td>
    <td>Matrícula: {plate} &nbsp; Km: {random.randrange(9000, 220000)}<br>Bastidor: VF1{
        random.randrange(10**8, 10**9)
    }</td></tr></table><br>
    {grid(lines, ["Concepto", "Referencia", "Horas/Uds", "€/ud", "Importe"], "shade", "llrrr")}<br>{
        sums(totals, "50%", "ruled")
    }"""
    printed = Printed(one_total=not bill.prepaid, optional=() if bill.prepaid else ("AmountDue",))
    return Sheet(sheet(body, points=8.5, font=2), truth_of(invoice, printed, language="es"))


def telecom(random: Random) -> Sheet:
    """A telephone bill: summary on the left, a masked account, lines without quantities."""
    bill = settle(random, goods.lines_of(random, goods.TELECOM, random.randrange(3, 7), most=1), Terms())
    day = any_day(random)
    due = day + timedelta(days=random.randrange(4, 12))
    customer = spanish_person(random)
    invoice = Invoice(
        spanish_company(random, "telecom"),
        customer,
        f"{random.choice('TFC')}{random.randrange(10**8, 10**9)}",
        day,
        bill,
        due,
    )
    vendor = invoice.vendor
    masked = (
        f"ES{random.randrange(10, 99)} {random.randrange(1000, 9999)} **** **** **** {random.randrange(1000, 9999)}"
    )
    lines = [[line.description, num(line.amount)] for line in bill.lines]
    body = f"""<div class=two><div><h1 style="color:#06c">{escape(vendor.name.split()[0].lower())}</h1></div>
    <div class=r>{escape(customer.name)}<br>{escape(customer.street)}<br>{escape(customer.town)}</div></div>
    <div class=two><div class=box><p class=b>Tu factura de {long_date(day, "es").split(" de ")[1]}</p>
    <p>Importe total <span style="font-size:15pt">{eur(bill.total)}</span></p>
    <p>Fecha de cargo en banco: {due:%d/%m/%Y}</p><p>Nº de cuenta: {masked}</p></div>
    <div class=box><p>Factura nº: {invoice.number}</p><p>Emitida el {day:%d/%m/%Y}</p>
    <p>Periodo facturado: {day - timedelta(days=31):%d/%m/%Y} - {day - timedelta(days=1):%d/%m/%Y}</p>
    <p>NIF del titular: {customer.tax_id}</p></div></div>
    <h1>Detalle</h1>{grid(lines, ["Concepto", "Importe (€)"], "lined", "lr")}<br>
    {
        sums(
            [
                ("Total (base imponible)", num(bill.sub_total)),
                (f"IVA ({percent(bill.taxes[0].rate)})", num(bill.total_tax)),
                ("Total a pagar", eur(bill.total)),
            ],
            "60%",
        )
    }
    <p class=small>{escape(vendor.name)}, con domicilio en {escape(vendor.address)}, NIF {
        vendor.tax_id
    }, inscrita en el Registro Mercantil de Madrid, tomo {random.randrange(9999)}, folio 12.</p>"""
    return Sheet(sheet(body), truth_of(invoice, Printed(columns=("Description", "Amount")), language="es"))


def water(random: Random) -> Sheet:
    """A water bill: meter readings, blocks of consumption with cubic metres, reduced rate."""
    cubic = [Decimal(random.randrange(4, 22)) for _ in range(3)]
    prices = [Decimal("0.4120"), Decimal("0.8675"), Decimal("1.3110")]
    fixed = [
        Line(name, Decimal(1), Decimal(str(round(random.uniform(3, 14), 2))), Decimal(10))
        for name in ("Cuota de servicio", "Canon de alcantarillado")
    ]
    blocks = [
        Line(f"Consumo bloque {index}", *pair, Decimal(10))
        for index, pair in enumerate(zip(cubic, prices, strict=True), 1)
    ]
    bill = settle(random, [*fixed, *blocks], Terms())
    day = any_day(random)
    due = day + timedelta(days=20)
    invoice = Invoice(
        spanish_company(random, "water"),
        spanish_person(random),
        f"{day:%y}{random.randrange(10**5, 10**6)}",
        day,
        bill,
        due,
    )
    vendor, customer = invoice.vendor, invoice.customer
    assert customer is not None
    lines = [
        [line.description, short(line.quantity, SPANISH), num(line.unit_price, 4), num(line.amount)]
        for line in bill.lines
    ]
    before = random.randrange(300, 3000)
    body = f"""<table><tr><td class=b style="font-size:13pt">{escape(vendor.name)}</td>
    <td class=r>{escape(vendor.street)}<br>{escape(vendor.town)}<br>CIF: {vendor.tax_id}</td></tr></table>
    {
        boxes(
            [
                ("Titular del contrato", customer.name),
                ("NIF", customer.tax_id),
                ("Póliza", str(random.randrange(10**6))),
                ("Dirección de suministro", customer.address),
            ],
            "lined",
        )
    }<br>
    {
        boxes(
            [
                ("Número de factura", invoice.number),
                ("Fecha factura", f"{day:%d/%m/%Y}"),
                ("Fecha límite de pago", f"{due:%d/%m/%Y}"),
                ("TOTAL A PAGAR", eur(bill.total)),
            ],
            "ruled shade",
        )
    }<br>
    {
        grid(
            [["Anterior", str(before), "Actual", str(before + int(sum(cubic))), "Consumo", f"{int(sum(cubic))} m³"]],
            (),
            "lined",
        )
    }<br>
    {grid(lines, ["Conceptos facturados", "m³", "Precio €", "Total €"], "", "lrrr")}<br>
    {
        sums(
            [
                ("Base imponible", num(bill.sub_total)),
                ("I.V.A. 10 %", num(bill.total_tax)),
                ("Total factura", num(bill.total)),
            ]
        )
    }"""
    return Sheet(sheet(body, font=2), truth_of(invoice, Printed(), language="es"))


def works(random: Random) -> Sheet:
    """Building works over three pages, with carried sums, wrapped descriptions and a general discount."""
    lines = goods.lines_of(random, goods.BUILDING, random.randrange(70, 95), most=40, halves=True)
    bill = settle(random, lines, Terms(discount_rate=Decimal(random.choice((0, 3, 5)))))
    day = any_day(random)
    due = day + timedelta(days=45)
    invoice = Invoice(
        spanish_company(random, "builders"),
        spanish_company(random),
        any_number(random, day),
        day,
        bill,
        due,
        iban(random),
    )
    vendor, customer = invoice.vendor, invoice.customer
    assert customer is not None
    rows = [
        [
            f"{index // 10 + 1}.{index % 10 + 1:02d}",
            line.description + (" según mediciones de la dirección facultativa y memoria" if index % 4 == 0 else ""),
            short(line.quantity, SPANISH),
            num(line.unit_price),
            num(line.amount),
        ]
        for index, line in enumerate(bill.lines)
    ]
    described = replace(
        bill, lines=tuple(replace(line, description=row[1]) for line, row in zip(bill.lines, rows, strict=True))
    )
    totals = [("Suma de partidas", eur(bill.gross))]
    if bill.discount:
        totals += [("Descuento", eur(-bill.discount)), ("Base imponible", eur(bill.sub_total))]
    totals += [
        (f"IVA {percent(bill.taxes[0].rate)} (inversión en vivienda)", eur(bill.total_tax)),
        ("Total", eur(bill.total)),
    ]
    body = f"""<table><tr><td><b>{escape(vendor.name)}</b><br>{escape(vendor.address)}<br>NIF {vendor.tax_id}</td>
    <td class=r><h1>Factura {invoice.number}</h1>{long_date(day, "es")}<br>Vto. {due:%d.%m.%Y}</td></tr></table>
    <p>A la atención de:</p>{stacked(customer.name, "NIF " + customer.tax_id, customer.street, customer.town)}<br>
    {grid(rows, ["Partida", "Descripción", "Medición", "Precio", "Importe"], "lined", "llrrr")}<br>{sums(totals)}
    <p>Abonar en {in_fours(invoice.account)}</p>"""
    return Sheet(sheet(body, points=8.5), truth_of(replace(invoice, bill=described), Printed(), language="es"))


def canaries(random: Random) -> Sheet:
    """IGIC at two rates, values to the right of aligned labels, everything without lines."""
    bill = settle(random, goods.lines_of(random, goods.CANARY, random.randrange(2, 5), most=12), Terms(tax="IGIC"))
    day = any_day(random)
    invoice = Invoice(
        canary_company(random), canary_company(random), any_number(random, day), day, bill, None, iban(random)
    )
    vendor, customer = invoice.vendor, invoice.customer
    assert customer is not None
    lines = [
        [short(line.quantity, SPANISH), line.description, percent(line.rate), num(line.unit_price), num(line.amount)]
        for line in bill.lines
    ]
    facts = [
        ["Factura", invoice.number],
        ["Fecha de expedición", f"{day:%d/%m/%Y}"],
        ["Destinatario", customer.name],
        ["CIF/NIF", customer.tax_id],
        ["Domicilio", customer.address],
    ]
    totals = [
        ("Total neto", num(bill.sub_total)),
        *((f"IGIC {percent(row.rate)} sobre {num(row.base)}", num(row.amount)) for row in bill.taxes),
        ("Importe total EUR", num(bill.total)),
    ]
    body = f"""<div class=r>{stacked(vendor.name, vendor.street, vendor.town, "CIF " + vendor.tax_id)}</div><br>
    {grid(facts)}<br>
    {grid(lines, ["Cant.", "Detalle", "IGIC", "P. unit.", "Importe"], "", "rlrrr")}<br>{sums(totals, "55%")}<br>
    <p>Ingreso en cuenta IBAN: {in_fours(invoice.account)}</p>"""
    optional = ("AmountDue", "TotalTax") if len(bill.taxes) > 1 else ("AmountDue",)
    return Sheet(sheet(body, points=10), truth_of(invoice, Printed(optional=optional), language="es"))


def credit_note(random: Random) -> Sheet:
    """A corrective invoice that names the rectified one beside its own number; with and without minus signs."""
    bill = settle(
        random, goods.lines_of(random, goods.FARM, random.randrange(1, 4), most=6), Terms(tax_rate=Decimal(21))
    )
    if random.random() < 0.5:
        bill = negated(bill)
    day = any_day(random)
    original = day - timedelta(days=random.randrange(10, 80))
    invoice = Invoice(
        spanish_company(random), spanish_company(random), f"R-{day.year}/{random.randrange(2, 90):03d}", day, bill
    )
    vendor, customer = invoice.vendor, invoice.customer
    assert customer is not None
    lines = [
        [line.description, short(line.quantity, SPANISH), num(line.unit_price), num(line.amount)] for line in bill.lines
    ]
    body = f"""<h1>{random.choice(("FACTURA RECTIFICATIVA", "NOTA DE ABONO", "FACTURA DE ABONO"))}</h1>
    <table class=ruled><tr><td>Número</td><td>{invoice.number}</td><td>Fecha</td><td>{day:%d/%m/%Y}</td></tr>
    <tr><td>Factura que se rectifica</td><td>{any_number(random, original)}</td><td>De fecha</td>
    <td>{original:%d/%m/%Y}</td></tr></table><br>
    <div class=two><div><div class=small>EXPEDIDOR</div>{
        stacked(vendor.name, vendor.street, vendor.town, "NIF: " + vendor.tax_id)
    }</div>
    <div><div class=small>DESTINATARIO</div>{
        stacked(customer.name, customer.street, customer.town, "NIF: " + customer.tax_id)
    }</div></div>
    <p>Motivo: devolución de mercancía defectuosa.</p>
    {grid(lines, ["Concepto", "Unidades", "Precio", "Importe"], "ruled", "lrrr")}<br>
    {
        grid(
            [[num(bill.sub_total), percent(bill.taxes[0].rate), num(bill.total_tax), eur(bill.total)]],
            ["Base imponible", "Tipo", "Cuota", "Total"],
            "ruled",
            "rrrr",
        )
    }"""
    return Sheet(sheet(body), truth_of(invoice, Printed(), language="es", doc_type="credit_note"))
