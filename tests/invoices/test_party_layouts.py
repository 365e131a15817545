"""Who sells and who buys on pages of many layouts; none is a page of the development set."""

from __future__ import annotations

import pytest

from backend.invoices.parties.find import find_parties
from tests.invoices.rows import rows_of_text

LAYOUTS = [
    # Spanish pages
    pytest.param(
        """\
DATOS DEL EMISOR                           DATOS DEL CLIENTE
Nombre:     Marta Ruiz Calvo               Nombre:     Clínica Dental Sonrisa SLP
NIF:        12345678Z                      CIF:        B12345674
Domicilio:  Avda. de la Paz, 7, 3º A       Domicilio:  Calle Luna 3
Población:  28030 Madrid                   Población:  28004 Madrid

Factura nº: 23      Fecha: 3 de mayo de 2024

Concepto                  Importe
Sesiones de fisioterapia  420,00 €
Total                     420,00 €
""",
        {
            "VendorName": "Marta Ruiz Calvo", "VendorAddress": "Avda. de la Paz, 7, 3º A, 28030 Madrid",
            "VendorTaxId": "12345678Z",
            "CustomerName": "Clínica Dental Sonrisa SLP", "CustomerAddress": "Calle Luna 3, 28004 Madrid",
            "CustomerTaxId": "B12345674",
        },
        id="two-forms-side-by-side",
    ),
    pytest.param(
        """\
LIMPIEZAS BRILLO                                     FACTURA
                                                     Número   F-220
                                                     Fecha    05/06/2024

Facturar a:
Comunidad de Propietarios Calle Mayor 14
Calle Mayor 14
28013 Madrid
NIF: H78123456

Descripción                     Precio      Importe
Limpieza portal junio           200,00      200,00

Total                                       242,00

Limpiezas Brillo Norte, S.L. - CIF: B83456789 - C/ Alcalá 300, 28027 Madrid
Inscrita en el Registro Mercantil de Madrid, Tomo 1234, Folio 56, Hoja M-98765
""",
        {
            "VendorName": "Limpiezas Brillo Norte, S.L.", "VendorAddress": "C/ Alcalá 300, 28027 Madrid",
            "VendorTaxId": "B83456789",
            "CustomerName": "Comunidad de Propietarios Calle Mayor 14",
            "CustomerAddress": "Calle Mayor 14, 28013 Madrid", "CustomerTaxId": "H78123456",
        },
        id="vendor-at-the-foot",
    ),
    pytest.param(
        """\
Aguas de Levante, S.A.                 Factura de agua
                                       Nº factura 2024-556677
                                       Fecha de emisión 02/04/2024
Titular del contrato                   Total a pagar  38,20 €
PANIAGUA SANCHEZ JOSE ANTONIO
NIF 12345678Z
Dirección de suministro: Calle Pez 3, 4º B, 30001 Murcia
Nº contrato 998877

Consumo                 12 m3        20,00
Cuota fija                           18,20
Aguas de Levante, S.A. CIF A30123456. Domicilio social: Plaza Circular 9, 30008 Murcia. Inscrita en el R.M. de Murcia
""",
        {
            "VendorName": "Aguas de Levante, S.A.", "VendorAddress": "Plaza Circular 9, 30008 Murcia",
            "VendorTaxId": "A30123456",
            "CustomerName": "PANIAGUA SANCHEZ JOSE ANTONIO", "CustomerTaxId": "12345678Z",
            "CustomerAddress": "Calle Pez 3, 4º B, 30001 Murcia",
        },
        id="utility-bill",
    ),
    pytest.param(
        """\
Laura Gil Prieto | Diseño gráfico | NIF 12345678Z | Calle Sol 5, 2º, 15001 A Coruña | laura@gilprieto.es

Factura: 14/2024                Fecha: 01/03/2024

Cliente:    Bodegas Rías, S.A.
            Lugar de Barrantes s/n
            36636 Ribadumia, Pontevedra
            A36123456

Concepto                 Base      IVA      IRPF     Total
Logotipo                 600,00    126,00   90,00    636,00
""",
        {
            "VendorName": "Laura Gil Prieto", "VendorAddress": "Calle Sol 5, 2º, 15001 A Coruña",
            "VendorTaxId": "12345678Z",
            "CustomerName": "Bodegas Rías, S.A.",
            "CustomerAddress": "Lugar de Barrantes s/n, 36636 Ribadumia, Pontevedra", "CustomerTaxId": "A36123456",
        },
        id="freelancer-on-one-line",
    ),
    pytest.param(
        """\
FACTURA 2024/19                                     Fecha 22/03/2024

De: Raquel Soto Vidal, NIF 12345678Z, C/ Sagasta 18, 1º B, 26001 Logroño
Para: Bodegas Altún S.L., CIF B26123456, Ctra. de Laguardia km 3, 01307 Baños de Ebro (Álava)

Traducción de etiquetas      3     40,00     120,00
Revisión                     1     30,00      30,00
Base imponible                               150,00
""",
        {
            "VendorName": "Raquel Soto Vidal", "VendorAddress": "C/ Sagasta 18, 1º B, 26001 Logroño",
            "VendorTaxId": "12345678Z",
            "CustomerName": "Bodegas Altún S.L.",
            "CustomerAddress": "Ctra. de Laguardia km 3, 01307 Baños de Ebro (Álava)", "CustomerTaxId": "B26123456",
        },
        id="commas",
    ),
    pytest.param(
        """\
Ferretería Campos, S.A.
Avenida Constitución 12 - 13001 Ciudad Real - C.I.F.: A13123456 - Tlf.: 926 21 22 23

FACTURA

Cliente                       NIF           Dirección                  Población
Obras y Reformas Díaz, S.L.   B13654321     C/ Toledo, 25, bajo        13002 Ciudad Real

Número      Fecha         Forma de pago
F24/881     10/04/2024    Transferencia

Artículo              Cantidad    Precio    Importe
Taladro               1           89,00     89,00
""",
        {
            "VendorName": "Ferretería Campos, S.A.", "VendorAddress": "Avenida Constitución 12, 13001 Ciudad Real",
            "VendorTaxId": "A13123456",
            "CustomerName": "Obras y Reformas Díaz, S.L.", "CustomerTaxId": "B13654321",
            "CustomerAddress": "C/ Toledo, 25, bajo, 13002 Ciudad Real",
        },
        id="table-of-the-customer",
    ),
    pytest.param(
        """\
Conexia Móvil, S.A.U.                              FACTURA
                                                   Nº Factura: C24-1002938
                                                   Fecha factura: 01/05/2024
Nombre: ROMERO CANO MARIA DEL CARMEN               Periodo: 01/04/2024 - 30/04/2024
NIF: 12345678Z                                     Nº Cliente: 0099281
Dirección: AVDA ANDALUCIA 22 4 C
CP y Población: 14005 CORDOBA

RESUMEN                               IMPORTE
Cuotas                                24,79 €
IVA 21%                               5,21 €
TOTAL A PAGAR                         30,00 €

Conexia Móvil, S.A.U. Domicilio social: Paseo de la Castellana 200, 28046 Madrid. CIF A82123456. R.M. Madrid, T. 12345
""",
        {
            "VendorName": "Conexia Móvil, S.A.U.", "VendorAddress": "Paseo de la Castellana 200, 28046 Madrid",
            "VendorTaxId": "A82123456",
            "CustomerName": "ROMERO CANO MARIA DEL CARMEN", "CustomerTaxId": "12345678Z",
            "CustomerAddress": "AVDA ANDALUCIA 22 4 C, 14005 CORDOBA",
        },
        id="telephone-bill",
    ),
    pytest.param(
        """\
                       FACTURA SIMPLIFICADA

Electrodomésticos Vega, S.L.U.                        Nº: T24-00871
NIF: B33123456                                        Fecha: 02/05/2024
Calle Uría nº 12, bajo
33003 Oviedo (Asturias)
Teléfono: 985 12 34 56

DATOS CLIENTE
Nombre/Razón social: Inmobiliaria Nalón, S.A.
NIF/CIF: A33654321
Domicilio: C/ Fruela, 5 - 3º
C.P.: 33007      Localidad: Oviedo

Código     Descripción        Uds.    Precio    Importe
100        Lavadora           1       399,00    399,00
""",
        {
            "VendorName": "Electrodomésticos Vega, S.L.U.",
            "VendorAddress": "Calle Uría nº 12, bajo, 33003 Oviedo (Asturias)", "VendorTaxId": "B33123456",
            "CustomerName": "Inmobiliaria Nalón, S.A.", "CustomerTaxId": "A33654321",
            "CustomerAddress": "C/ Fruela, 5, 3º, 33007, Oviedo",
        },
        id="several-labels-on-a-row",
    ),
    pytest.param(
        """\
Imprenta Norte, S. Coop.
Polígono Malpica, calle E, nave 30
50016 Zaragoza
CIF F50123456

Cliente        Ayuntamiento de Utebo
NIF            P5027200I
Dirección      Avda. Zaragoza 2
CP y población 50180 Utebo

Factura        2024/332
Fecha          11/06/2024

Cantidad   Descripción           Precio    Importe
1000       Carteles              0,30      300,00
""",
        {
            "VendorName": "Imprenta Norte, S. Coop.",
            "VendorAddress": "Polígono Malpica, calle E, nave 30, 50016 Zaragoza", "VendorTaxId": "F50123456",
            "CustomerName": "Ayuntamiento de Utebo", "CustomerTaxId": "P5027200I",
            "CustomerAddress": "Avda. Zaragoza 2, 50180 Utebo",
        },
        id="labels-without-colons",
    ),
    pytest.param(
        """\
TRANSPORTES BÉJAR            Tel. 923 40 00 11            CIF: B37111111
TRANSPORTES BÉJAR HNOS S.L.  info@transbejar.com          Ctra. Salamanca 12
                                                          37700 Béjar

Destinatario: LANAS DEL TORMES S.A.
              C/ Toro, 88
              37002 Salamanca
              C.I.F. A37222222

Nº factura     Fecha          Vencimiento
5567           15/05/2024     15/06/2024

Concepto                         Kilos    Precio   Importe
Porte Béjar - Madrid             1200     0,10     120,00
""",
        {
            "VendorName": "TRANSPORTES BÉJAR HNOS S.L.", "VendorAddress": "Ctra. Salamanca 12, 37700 Béjar",
            "VendorTaxId": "B37111111",
            "CustomerName": "LANAS DEL TORMES S.A.", "CustomerTaxId": "A37222222",
            "CustomerAddress": "C/ Toro, 88, 37002 Salamanca",
        },
        id="letterhead-in-columns",
    ),
    pytest.param(
        """\
      E.S. LOS ROBLES
   CARBURANTES MESETA S.L.
    N-VI KM 203
    47100 TORDESILLAS
    CIF B47123123
FACTURA SIMPLIFICADA
N. OPERACION 8891
FECHA 12/02/2024 09:12
CLIENTE: REFORMAS PISUERGA SL
CIF: B47000000
GASOLEO A     40,00 L   1,509    60,36
TOTAL EUROS                      60,36
IVA 21%  BASE 49,88  CUOTA       10,48
""",
        {
            "VendorName": "CARBURANTES MESETA S.L.", "VendorAddress": "N-VI KM 203, 47100 TORDESILLAS",
            "VendorTaxId": "B47123123",
            "CustomerName": "REFORMAS PISUERGA SL", "CustomerTaxId": "B47000000",
        },
        id="ticket-with-customer",
    ),
    # pages of other countries
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
            "VendorAddress": "Unit 4, Riverside Trading Estate, Leeds, LS9 8AB", "VendorTaxId": "123456782",
            "CustomerName": "Helen Carter", "CustomerAddress": "12 Acacia Avenue, Harrogate HG1 2AB",
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
            "VendorName": "Blue Ridge Printing Co.", "VendorAddress": "200 Haywood Rd, Asheville, NC 28806",
            "VendorTaxId": "561234567",
            "CustomerName": "Oak & Elm Design LLC", "CustomerAddress": "55 Main St, Suite 210, Greenville, SC 29601",
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
            "VendorName": "Schreinerei Huber GmbH", "VendorAddress": "Lindenweg 8, 83022 Rosenheim",
            "VendorTaxId": "DE136695976",
            "CustomerName": "Sabine Vogel", "CustomerAddress": "Bahnhofstraße 21, 80335 München",
        },
        id="german-sender-line",
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
            "VendorName": "Padaria do Bairro, Lda.", "VendorAddress": "Rua das Flores, 120, 4050-262 Porto",
            "VendorTaxId": "501442600",
            "CustomerName": "Café Central Unipessoal Lda",
            "CustomerAddress": "Avenida da Liberdade 10, 1250-144 Lisboa", "CustomerTaxId": "503504564",
        },
        id="portuguese",
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
            "VendorName": "Officine Bianchi S.r.l.", "VendorAddress": "Via Garibaldi 22, 20121 Milano (MI)",
            "VendorTaxId": "00743110157",
            "CustomerName": "Rossi Costruzioni S.p.A.", "CustomerTaxId": "07643520567",
            "CustomerAddress": "Corso Francia 101, 10138 Torino",
        },
        id="italian",
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
            "VendorName": "JOE'S DINER", "VendorAddress": "1420 Elm Street, Springfield, IL 62701",
        },
        id="american-receipt",
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
            "VendorAddress": "3 Harbour Square, Dun Laoghaire, Co. Dublin, A96 D6R0", "VendorTaxId": "IE6388047V",
            "CustomerName": "O'Neill & Sons Butchers", "CustomerAddress": "41 Patrick Street, Cork T12 W8KP",
        },
        id="irish",
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
            "VendorName": "Westlink Telecom Ltd.", "VendorAddress": "1 Temple Quay, Bristol BS1 6DZ",
            "VendorTaxId": "GB123456782",
            "CustomerName": "David Hughes", "CustomerAddress": "27 Station Road, Bristol, BS1 4QT",
        },
        id="registered-office",
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
            "CustomerName": "Pedro Almeida", "CustomerTaxId": "123456789",
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
            "VendorName": "Sarah Whitmore", "VendorAddress": "Flat 2, 19 Beaumont Road, Bristol BS6 5TT",
            "CustomerName": "Penguin House Publishing Ltd", "CustomerAddress": "80 Strand, London WC2R 0RL",
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
            "VendorName": "Weber Elektrotechnik e.K.", "VendorAddress": "Industriestr. 14a, 72770 Reutlingen",
            "VendorTaxId": "7812345678",
            "CustomerName": "Autohaus Kern GmbH & Co. KG",
            "CustomerAddress": "Stuttgarter Straße 100, 72766 Reutlingen",
        },
        id="german-firm",
    ),
    # parties named by greetings, rare role words and rows of a grid, or not at all
    pytest.param(
        """\
POSADA LA MARISMA
Casa rural
Camino del Molino 4, 39770 Laredo
Tel. 942 00 11 22

Huésped obligado al pago: D.ª Sabela Regueiro Lema
Rúa Real 60, 15003 A Coruña

Factura 88/2026                  Fecha 15/05/2026

Concepto                         Importe
Habitación doble, 2 noches        180,00
IVA 10%                            18,00
Total                             198,00

Explotaciones Hosteleras del Asón, S.L. · tax id ESB62345678 · gracias por su visita
""",
        {
            "VendorName": "Explotaciones Hosteleras del Asón, S.L.",
            "VendorAddress": "Camino del Molino 4, 39770 Laredo", "VendorTaxId": "ESB62345678",
            "CustomerName": "Sabela Regueiro Lema", "CustomerAddress": "Rúa Real 60, 15003 A Coruña",
        },
        id="trade-name-above-company-below",
    ),
    pytest.param(
        """\
INVOICE 3381
Issued 4 March 2026

Hello Priya Raman,

here is your bill for February. Thank you for your custom.

Description                         Amount
Unlimited broadband                  35.00
Router rental                         5.00
Total                          GBP   40.00

Northwind Broadband Ltd, 14 Harbour Street, Bristol BS1 5TR
Company no. 07123456   VAT no. GB 123 4567 82
""",
        {
            "VendorName": "Northwind Broadband Ltd", "VendorAddress": "14 Harbour Street, Bristol BS1 5TR",
            "VendorTaxId": "GB123456782",
            "CustomerName": "Priya Raman",
        },
        id="greeting-en",
    ),
    pytest.param(
        """\
FACTURA 2026/118
Fecha de emisión: 2 de abril de 2026

Hola, Marta Ruiz Gil:

Aquí tienes tu factura del mes de marzo.

Concepto                         Importe
Cuota fibra 600                    29,00
IVA 21%                             6,09
Total                              35,09

Fibra Valles S.L. - Calle Mayor 12, 08401 Granollers - CIF B62345678
""",
        {
            "VendorName": "Fibra Valles S.L.", "VendorAddress": "Calle Mayor 12, 08401 Granollers",
            "VendorTaxId": "B62345678",
            "CustomerName": "Marta Ruiz Gil",
        },
        id="greeting-es",
    ),
    pytest.param(
        """\
FACTURA ORDINARIA
Número          F-2026-77            Fecha           11/02/2026
Emisor          Cerrajería Oliva SL (Jaén)             NIF        B23456785
Destinatario    Comunidad Prop. Olmo 5 (Jaén)          NIF        H23123454

Concepto                     Unidades    Precio     Importe
Cambio de bombín                    1     85,00       85,00
Base imponible                                        85,00
IVA 21%                                               17,85
Total                                                102,85
""",
        {
            "VendorName": "Cerrajería Oliva SL", "VendorTaxId": "B23456785",
            "CustomerName": "Comunidad Prop. Olmo 5", "CustomerTaxId": "H23123454",
        },
        id="grid-es",
    ),
    pytest.param(
        """\
FACTURA Nº 221                                 Fecha: 04/06/2026

                Nombre                    NIF          Dirección
Expedidor       Gestoría Luna SLP         B41234567    C/ Betis 4, 41010 Sevilla
Receptor        Bar El Rincón CB          E41123450    C/ Feria 20, 41003 Sevilla

Concepto                                 Importe
Asesoría fiscal mayo                      120,00
IVA 21%                                    25,20
Total                                     145,20
""",
        {
            "VendorName": "Gestoría Luna SLP", "VendorTaxId": "B41234567", "VendorAddress": "C/ Betis 4, 41010 Sevilla",
            "CustomerName": "Bar El Rincón CB", "CustomerTaxId": "E41123450",
            "CustomerAddress": "C/ Feria 20, 41003 Sevilla",
        },
        id="grid-rows-header",
    ),
    pytest.param(
        """\
Holzbau Kranz                                 Museum am Markt GmbH
Zimmerei und Dachbau                          Marktplatz 2
Lindenallee 8                                 50667 Köln
50968 Köln                                    USt-IdNr. DE136695976

Rechnung 2026-31                 Köln, den 12.03.2026

Pos   Bezeichnung            Menge    Preis     Betrag
1     Dachstuhl                  1   900,00     900,00
Gesamtbetrag                                    900,00

Holzbau Kranz · Inh. Peter Kranz · Steuernummer 214/5012/3456 · IBAN DE89 3704 0044 0532 0130 00
""",
        {
            "VendorName": "Holzbau Kranz", "VendorAddress": "Lindenallee 8, 50968 Köln",
            "CustomerName": "Museum am Markt GmbH", "CustomerAddress": "Marktplatz 2, 50667 Köln",
            "CustomerTaxId": "DE136695976",
        },
        id="unlabelled-de",
    ),
    pytest.param(
        """\
Pablo Rey Soto
Traductor jurado
NIF 12345678Z
Calle Toro 8, 49001 Zamora

En Zamora, a 3 de junio de 2026

FACTURA Nº 31

Muy señores míos:

Por la presente factura a Bodegas Duero, S.A., con CIF A49123450 y domicilio en Ctra. de Toro km 3, 49022 Zamora,
los trabajos siguientes:

Traducción de contrato             400,00 €
IVA 21 %                            84,00 €
Total                              484,00 €
""",
        {
            "VendorName": "Pablo Rey Soto", "VendorTaxId": "12345678Z", "VendorAddress": "Calle Toro 8, 49001 Zamora",
            "CustomerName": "Bodegas Duero, S.A.", "CustomerTaxId": "A49123450",
            "CustomerAddress": "Ctra. de Toro km 3, 49022 Zamora",
        },
        id="letter-es2",
    ),
    pytest.param(
        """\
Dr Helen Marsh
Translator
9 Beech Grove, Oxford OX2 7PL

2 June 2026

Invoice 77

Dear Quillon Press Ltd,

For the translation of three chapters I charge you the sum of 900.00 pounds.

Total: £900.00
Please pay to sort code 20-00-00, account 12345678.
""",
        {
            "VendorName": "Dr Helen Marsh", "VendorAddress": "9 Beech Grove, Oxford OX2 7PL",
            "CustomerName": "Quillon Press Ltd",
        },
        id="letter-en",
    ),
    pytest.param(
        """\
Academia Delta S.L.
Avda. Europa 3, 30007 Murcia
CIF B30123456

Recibo 88          Fecha: 01/04/2026
Matriculado: Hugo Sáez Alarcón
Curso: Inglés B2

Concepto              Importe
Cuota abril             60,00
Total                   60,00
""",
        {
            "VendorName": "Academia Delta S.L.", "VendorTaxId": "B30123456",
            "VendorAddress": "Avda. Europa 3, 30007 Murcia",
            "CustomerName": "Hugo Sáez Alarcón",
        },
        id="unlisted-role",
    ),
    pytest.param(
        """\
Residencia Los Tilos, S.L.U.
Camino Viejo 2, 39005 Santander
CIF B39123456

Factura 12/26      Fecha 31/03/2026
Residente / Pagador: Aurora Diego Peña
NIF: 12345678Z

Concepto              Importe
Estancia marzo        1.500,00
Total                 1.500,00
""",
        {
            "VendorName": "Residencia Los Tilos, S.L.U.", "VendorTaxId": "B39123456",
            "VendorAddress": "Camino Viejo 2, 39005 Santander",
            "CustomerName": "Aurora Diego Peña", "CustomerTaxId": "12345678Z",
        },
        id="slash-roles",
    ),
    pytest.param(
        """\
Jardines Pinar
12345678Z

Fra. 7     3-4-26

Viveros Olmedo SL
B47123456

Poda de setos   200
IVA 21%          42
Total           242
""",
        {
            "VendorName": "Jardines Pinar", "VendorTaxId": "12345678Z",
            "CustomerName": "Viveros Olmedo SL", "CustomerTaxId": "B47123456",
        },
        id="minimal",
    ),
    pytest.param(
        """\
FACTURE 2026-18                       Le 4 mars 2026

Émise par :                           Adressée à :
Camille Roux EI                       SARL Les Bons Plants
22 rue de l'Église                    7 chemin des Serres
33000 Bordeaux                        33700 Mérignac
N° TVA : FR 83 404 833 048            N° TVA : FR 40 303 265 045

Prestation                     Montant
Illustrations                   500,00
Total HT                        500,00
""",
        {
            "VendorName": "Camille Roux EI", "VendorAddress": "22 rue de l'Église, 33000 Bordeaux",
            "VendorTaxId": "FR83404833048",
            "CustomerName": "SARL Les Bons Plants", "CustomerAddress": "7 chemin des Serres, 33700 Mérignac",
            "CustomerTaxId": "FR40303265045",
        },
        id="fr-roles",
    ),
    pytest.param(
        """\
zumbera
la app de los patinetes

Factura simplificada                 ZB-2026-1188
Usuario                              Óscar Prieto Lima
Fecha                                12/02/2026
Método de pago                       Visa ****1122

Trayecto 14 min                      3,20 €
Desbloqueo                           1,00 €
Total (IVA incl.)                    4,20 €

Zumbera Movilidad Urbana, S.L. · NIF B66123456 · Carrer de Pallars 99, 08018 Barcelona
""",
        {
            "VendorName": "Zumbera Movilidad Urbana, S.L.", "VendorTaxId": "B66123456",
            "VendorAddress": "Carrer de Pallars 99, 08018 Barcelona",
            "CustomerName": "Óscar Prieto Lima",
        },
        id="brand-and-company",
    ),
    pytest.param(
        """\
Invoice INV-0091
Date: 4 March 2026

Prepared for Alder & Finch Ltd by Rowan Studio

Rowan Studio, 6 Dock Street, Liverpool L3 4AA. VAT GB 123 4567 82

Description           Amount
Brand guide         1,200.00
Total               1,200.00
""",
        {
            "VendorName": "Rowan Studio", "VendorAddress": "6 Dock Street, Liverpool L3 4AA",
            "VendorTaxId": "GB123456782",
            "CustomerName": "Alder & Finch Ltd",
        },
        id="sentence-customer-en",
    ),
    pytest.param(
        """\
Agència Terres Altes, S.L.                          Anke Veldman
Carrer de la Nau 8                                  Molenstraat 77
08009 Barcelona                                     7411 DG Deventer
CIF ESB62345678                                     Btw NL123456789B13
                                                    NL91 ABNA 0417 1643 00

Factuur 2026-19
Omschrijving                    Bedrag
Onderzoek                     1.997,50
Totaal                        1.997,50
""",
        {
            "VendorName": "Anke Veldman", "VendorAddress": "Molenstraat 77, 7411 DG Deventer",
            "VendorTaxId": "NL123456789B13",
            "CustomerName": "Agència Terres Altes, S.L.", "CustomerAddress": "Carrer de la Nau 8, 08009 Barcelona",
            "CustomerTaxId": "ESB62345678",
        },
        id="the-account-is-the-sellers",
    ),
    pytest.param(
        """\
AUTORIDADE TRIBUTÁRIA                       FATURA-RECIBO

TRANSMITENTE DOS BENS OU PRESTADOR DO SERVIÇO
NIF                                         Nome
218447094                                   HELENA SEIXAS BRITO
Domicílio                                   Atividade exercida
RUA DO ALMADA 402, 4050-034 PORTO           1332 - Tradutores

ADQUIRENTE
NIF                                         Nome
502884134                                   QUINTA DO VALADO, S.A.
Morada                                      País
LUGAR DO CARVALHAL, 5100-387 LAMEGO         PORTUGAL

Valor Base                 Taxa IVA         IVA
994,00                     23 %             228,62
""",
        {
            "VendorName": "HELENA SEIXAS BRITO", "VendorAddress": "RUA DO ALMADA 402, 4050-034 PORTO",
            "VendorTaxId": "218447094",
            "CustomerName": "QUINTA DO VALADO, S.A.",
            "CustomerAddress": "LUGAR DO CARVALHAL, 5100-387 LAMEGO, PORTUGAL", "CustomerTaxId": "502884134",
        },
        id="headings-above-the-columns-of-a-form",
    ),
    pytest.param(
        """\
RECIBO-FACTURA
Número 17

He recibido de Reparto Veloz Cimadevilla, S.L., con NIF B62345678, domiciliado en
Calle Olavarría, 8, 33201 Gijón, la cantidad de 208,12 euros, correspondiente al
alquiler de dos plazas de garaje.

Firmado: Ceferino Prendes Vega
NIF 10844120B
""",
        {
            "VendorName": "Ceferino Prendes Vega", "VendorTaxId": "10844120B",
            "CustomerName": "Reparto Veloz Cimadevilla, S.L.", "CustomerAddress": "Calle Olavarría, 8, 33201 Gijón",
            "CustomerTaxId": "B62345678",
        },
        id="receipt-in-a-sentence-es",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), LAYOUTS)
def test_the_parties_of_a_layout_are_found(text: str, expected: dict[str, str]) -> None:
    """Every name, address and tax number, and nothing else."""
    assert {field.name: field.value for field in find_parties(rows_of_text(text))} == expected
