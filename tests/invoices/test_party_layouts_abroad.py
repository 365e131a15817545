"""Who sells and who buys on pages of other countries; none is a page of the development set."""

from __future__ import annotations

import pytest

from backend.invoices.parties.find import find_parties
from tests.invoices.rows import rows_of_text

LAYOUTS = [
    pytest.param(
        """\
Brightwater Plumbing Services Ltd
Unit 4, Riverside Trading Estate
Leeds
LS9 8AB
Tel: 0113 496 0000
VAT No: 123 4567 82

INVOICE

Bill To:                         Invoice No: 1042
Mrs Helen Carter                 Date: 4 June 2024
12 Acacia Avenue                 Due: 18 June 2024
Harrogate HG1 2AB

Description            Qty    Unit price    Amount
Boiler service         1      £95.00        £95.00
Total                                       £95.00
""",
        {
            "VendorName": "Brightwater Plumbing Services Ltd",
            "VendorAddress": "Unit 4, Riverside Trading Estate, Leeds, LS9 8AB",
            "VendorTaxId": "123456782",
            "CustomerName": "Helen Carter",
            "CustomerAddress": "12 Acacia Avenue, Harrogate HG1 2AB",
        },
        id="british",
    ),
    pytest.param(
        """\
INVOICE                                             #10045

From                      Bill To                   Ship To
Blue Ridge Printing Co.   Oak & Elm Design LLC      Oak & Elm Studio
200 Haywood Rd            55 Main St, Suite 210     78 Lexington Ave
Asheville, NC 28806       Greenville, SC 29601      Greenville, SC 29601
EIN 56-1234567

Item              Qty     Rate      Amount
Brochures         500     $0.45     $225.00
""",
        {
            "VendorName": "Blue Ridge Printing Co.",
            "VendorAddress": "200 Haywood Rd, Asheville, NC 28806",
            "VendorTaxId": "561234567",
            "CustomerName": "Oak & Elm Design LLC",
            "CustomerAddress": "55 Main St, Suite 210, Greenville, SC 29601",
        },
        id="three-columns",
    ),
    pytest.param(
        """\
                                                  Schreinerei Huber GmbH
                                                  Lindenweg 8
                                                  83022 Rosenheim
Schreinerei Huber GmbH · Lindenweg 8 · 83022 Rosenheim
Frau
Sabine Vogel                                      Tel. 08031 12345
Bahnhofstraße 21                                  info@schreinerei-huber.de
80335 München                                     USt-IdNr. DE136695976

Rechnung Nr. 2024-118                             Datum: 12.04.2024

Pos   Beschreibung          Menge    Einzelpreis    Gesamt
1     Tisch Eiche           1        890,00         890,00
""",
        {
            "VendorName": "Schreinerei Huber GmbH",
            "VendorAddress": "Lindenweg 8, 83022 Rosenheim",
            "VendorTaxId": "DE136695976",
            "CustomerName": "Sabine Vogel",
            "CustomerAddress": "Bahnhofstraße 21, 80335 München",
        },
        id="german-sender-line",
    ),
    pytest.param(
        """\
BOULANGERIE MARTIN SARL                        FACTURE N° F2024-031
12 rue de la République                        Date : 15/02/2024
69002 Lyon
SIRET : 812 345 678 00012
TVA intracommunautaire : FR40303265045

Client :
Hôtel des Alpes SAS
4 avenue de la Gare
74000 Annecy

Désignation          Quantité    Prix unitaire    Montant
Baguettes            100         0,95             95,00
""",
        {
            "VendorName": "BOULANGERIE MARTIN SARL",
            "VendorAddress": "12 rue de la République, 69002 Lyon",
            "VendorTaxId": "FR40303265045",
            "CustomerName": "Hôtel des Alpes SAS",
            "CustomerAddress": "4 avenue de la Gare, 74000 Annecy",
        },
        id="french",
    ),
    pytest.param(
        """\
Padaria do Bairro, Lda.
Rua das Flores, 120
4050-262 Porto
NIPC: 501442600

Fatura FT 2024/55

Exmo.(s) Sr.(s)
Café Central Unipessoal Lda
Avenida da Liberdade 10
1250-144 Lisboa
NIF: 503504564

Descrição          Quantidade    Preço     Valor
Pão                100           0,20      20,00
""",
        {
            "VendorName": "Padaria do Bairro, Lda.",
            "VendorAddress": "Rua das Flores, 120, 4050-262 Porto",
            "VendorTaxId": "501442600",
            "CustomerName": "Café Central Unipessoal Lda",
            "CustomerAddress": "Avenida da Liberdade 10, 1250-144 Lisboa",
            "CustomerTaxId": "503504564",
        },
        id="portuguese",
    ),
    pytest.param(
        """\
            JOE'S DINER
         1420 Elm Street
       Springfield, IL 62701
         (217) 555-0134
Server: Amy          Table 12
06/14/2024 12:45 PM
2 Cheeseburger           19.00
1 Iced tea                2.50
Subtotal                 21.50
Tax                       1.72
Total                    23.22
Thank you!
""",
        {
            "VendorName": "JOE'S DINER",
            "VendorAddress": "1420 Elm Street, Springfield, IL 62701",
        },
        id="american-receipt",
    ),
    pytest.param(
        """\
Fusteria Puig i Fills, SL
Carrer del Pi, 14
17001 Girona
NIF: B17123456

FACTURA núm. 45/2024                 Data: 12/06/2024

Dades del client
Ajuntament de Celrà
Plaça de l'Església, 1
17460 Celrà
NIF: P1705600J

Concepte                    Quantitat   Preu      Import
Portes de roure             3           450,00    1.350,00
""",
        {
            "VendorName": "Fusteria Puig i Fills, SL",
            "VendorAddress": "Carrer del Pi, 14, 17001 Girona",
            "VendorTaxId": "B17123456",
            "CustomerName": "Ajuntament de Celrà",
            "CustomerTaxId": "P1705600J",
            "CustomerAddress": "Plaça de l'Església, 1, 17460 Celrà",
        },
        id="catalan",
    ),
    pytest.param(
        """\
Officine Bianchi S.r.l.
Via Garibaldi 22
20121 Milano (MI)
P.IVA 00743110157

Fattura n. 88/2024 del 03/05/2024

Spett.le
Rossi Costruzioni S.p.A.
Corso Francia 101
10138 Torino
P. IVA 07643520567

Descrizione            Quantità    Prezzo    Importo
Manutenzione           1           500,00    500,00
""",
        {
            "VendorName": "Officine Bianchi S.r.l.",
            "VendorAddress": "Via Garibaldi 22, 20121 Milano (MI)",
            "VendorTaxId": "00743110157",
            "CustomerName": "Rossi Costruzioni S.p.A.",
            "CustomerTaxId": "07643520567",
            "CustomerAddress": "Corso Francia 101, 10138 Torino",
        },
        id="italian",
    ),
    pytest.param(
        """\
INVOICE
Clonmore Media DAC                               Invoice #: 553
3 Harbour Square, Dun Laoghaire                  Invoice date: 02/05/2024
Co. Dublin, A96 D6R0
VAT No. IE6388047V

Invoice To:
O'Neill & Sons Butchers
41 Patrick Street
Cork T12 W8KP

Service                       Hours    Rate     Amount
Video editing                 10       60.00    600.00
""",
        {
            "VendorName": "Clonmore Media DAC",
            "VendorAddress": "3 Harbour Square, Dun Laoghaire, Co. Dublin, A96 D6R0",
            "VendorTaxId": "IE6388047V",
            "CustomerName": "O'Neill & Sons Butchers",
            "CustomerAddress": "41 Patrick Street, Cork T12 W8KP",
        },
        id="irish",
    ),
    pytest.param(
        """\
INVOICE
Jordan Blake
88 Pine Hollow Ln
Burlington, VT 05401
jordan@blakephoto.com
802-555-0177

INVOICE NUMBER      INVOICE DATE      DUE DATE
JB-204              05/01/2024        05/31/2024

BILLED TO
Maple & Main Cafe
14 Church St
Burlington, VT 05401

DESCRIPTION              HOURS     RATE       AMOUNT
Menu photography         6         $85.00     $510.00
TOTAL                                         $510.00
Please make checks payable to Jordan Blake
""",
        {
            "VendorName": "Jordan Blake",
            "VendorAddress": "88 Pine Hollow Ln, Burlington, VT 05401",
            "CustomerName": "Maple & Main Cafe",
            "CustomerAddress": "14 Church St, Burlington, VT 05401",
        },
        id="american-freelancer",
    ),
    pytest.param(
        """\
                                               INVOICE

Mr David Hughes                                Invoice number   99812
27 Station Road                                Invoice date     14/02/2024
Bristol                                        Account no       44821
BS1 4QT

Description                       Net        VAT       Total
Broadband February                25.00      5.00      30.00
Total                                                  30.00

Westlink Telecom Ltd. Registered in England. Registered office: 1 Temple Quay, Bristol BS1 6DZ. VAT No. GB 123 4567 82
""",
        {
            "VendorName": "Westlink Telecom Ltd.",
            "VendorAddress": "1 Temple Quay, Bristol BS1 6DZ",
            "VendorTaxId": "GB123456782",
            "CustomerName": "David Hughes",
            "CustomerAddress": "27 Station Road, Bristol, BS1 4QT",
        },
        id="registered-office",
    ),
    pytest.param(
        """\
Menuiserie Lefèvre EURL                          Facture n° 2024-12
ZA des Landes, 8 rue du Moulin                   Le 14/03/2024
35000 Rennes
Tél : 02 99 12 34 56                             Mme Claire Dupont
SIRET 812 345 678 00012                          3 impasse des Lilas
N° TVA : FR40303265045                           35700 Rennes

Désignation          Qté      PU HT     Total HT
Fenêtre bois         2        450,00    900,00
""",
        {
            "VendorName": "Menuiserie Lefèvre EURL",
            "VendorAddress": "ZA des Landes, 8 rue du Moulin, 35000 Rennes",
            "VendorTaxId": "FR40303265045",
            "CustomerName": "Claire Dupont",
            "CustomerAddress": "3 impasse des Lilas, 35700 Rennes",
        },
        id="customer-without-label",
    ),
    pytest.param(
        """\
Invoice
Brightfox Software Inc.                                Invoice number: BF-2231
548 Market Street, Suite 300                           Date: Mar 4, 2024
San Francisco, CA 94104
United States
Tax ID: 82-1234567

Billed to
Pedro Almeida
Rua Augusta 24, 2º
1100-053 Lisboa
Portugal
NIF 123456789

Description              Qty     Unit price     Amount
Team plan                1       $49.00         $49.00
""",
        {
            "VendorName": "Brightfox Software Inc.",
            "VendorAddress": "548 Market Street, Suite 300, San Francisco, CA 94104, United States",
            "VendorTaxId": "821234567",
            "CustomerName": "Pedro Almeida",
            "CustomerTaxId": "123456789",
            "CustomerAddress": "Rua Augusta 24, 2º, 1100-053 Lisboa, Portugal",
        },
        id="foreign-customer",
    ),
    pytest.param(
        """\
Sarah Whitmore
Illustration & Design
Flat 2, 19 Beaumont Road, Bristol BS6 5TT
sarah@whitmoreillustration.co.uk  |  07700 900123

INVOICE 0042                                    12 March 2024

To:   Penguin House Publishing Ltd
      80 Strand
      London WC2R 0RL

Cover illustration                                     £650.00
Two spot illustrations                                 £180.00
Total                                                  £830.00

Account name: Sarah Whitmore  Sort code: 12-34-56  Account: 12345678
""",
        {
            "VendorName": "Sarah Whitmore",
            "VendorAddress": "Flat 2, 19 Beaumont Road, Bristol BS6 5TT",
            "CustomerName": "Penguin House Publishing Ltd",
            "CustomerAddress": "80 Strand, London WC2R 0RL",
        },
        id="british-freelancer",
    ),
    pytest.param(
        """\
Weber Elektrotechnik e.K.
Inhaber: Jens Weber
Industriestr. 14a
72770 Reutlingen
Tel.: 07121 445566
Steuernummer: 78/123/45678

Firma
Autohaus Kern GmbH & Co. KG
Stuttgarter Straße 100
72766 Reutlingen

Rechnung                       Rechnungsnummer: R-2024-17
                               Rechnungsdatum: 02.02.2024
                               Kundennummer: 10042

Pos   Bezeichnung        Menge   Einzelpreis   Gesamtpreis
1     Montage            4 Std   65,00         260,00
""",
        {
            "VendorName": "Weber Elektrotechnik e.K.",
            "VendorAddress": "Industriestr. 14a, 72770 Reutlingen",
            "VendorTaxId": "7812345678",
            "CustomerName": "Autohaus Kern GmbH & Co. KG",
            "CustomerAddress": "Stuttgarter Straße 100, 72766 Reutlingen",
        },
        id="german-firm",
    ),
]


@pytest.mark.parametrize(("text", "expected"), LAYOUTS)
def test_the_parties_of_a_layout_are_found(text: str, expected: dict[str, str]) -> None:
    """Every name, address and tax number, and nothing else."""
    assert {field.name: field.value for field in find_parties(rows_of_text(text))} == expected
