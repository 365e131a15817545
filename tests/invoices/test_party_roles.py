"""Pages that name the parties by greetings, rare role words and rows of a grid, or not at all."""

from __future__ import annotations

import pytest

from backend.invoices.parties.find import find_parties
from tests.invoices.rows import rows_of_text

LAYOUTS = [
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
            "VendorAddress": "Camino del Molino 4, 39770 Laredo",
            "VendorTaxId": "ESB62345678",
            "CustomerName": "Sabela Regueiro Lema",
            "CustomerAddress": "Rúa Real 60, 15003 A Coruña",
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
            "VendorName": "Northwind Broadband Ltd",
            "VendorAddress": "14 Harbour Street, Bristol BS1 5TR",
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
            "VendorName": "Fibra Valles S.L.",
            "VendorAddress": "Calle Mayor 12, 08401 Granollers",
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
            "VendorName": "Cerrajería Oliva SL",
            "VendorTaxId": "B23456785",
            "CustomerName": "Comunidad Prop. Olmo 5",
            "CustomerTaxId": "H23123454",
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
            "VendorName": "Gestoría Luna SLP",
            "VendorTaxId": "B41234567",
            "VendorAddress": "C/ Betis 4, 41010 Sevilla",
            "CustomerName": "Bar El Rincón CB",
            "CustomerTaxId": "E41123450",
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
            "VendorName": "Holzbau Kranz",
            "VendorAddress": "Lindenallee 8, 50968 Köln",
            "CustomerName": "Museum am Markt GmbH",
            "CustomerAddress": "Marktplatz 2, 50667 Köln",
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
            "VendorName": "Pablo Rey Soto",
            "VendorTaxId": "12345678Z",
            "VendorAddress": "Calle Toro 8, 49001 Zamora",
            "CustomerName": "Bodegas Duero, S.A.",
            "CustomerTaxId": "A49123450",
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
            "VendorName": "Dr Helen Marsh",
            "VendorAddress": "9 Beech Grove, Oxford OX2 7PL",
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
            "VendorName": "Academia Delta S.L.",
            "VendorTaxId": "B30123456",
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
            "VendorName": "Residencia Los Tilos, S.L.U.",
            "VendorTaxId": "B39123456",
            "VendorAddress": "Camino Viejo 2, 39005 Santander",
            "CustomerName": "Aurora Diego Peña",
            "CustomerTaxId": "12345678Z",
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
            "VendorName": "Jardines Pinar",
            "VendorTaxId": "12345678Z",
            "CustomerName": "Viveros Olmedo SL",
            "CustomerTaxId": "B47123456",
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
            "VendorName": "Camille Roux EI",
            "VendorAddress": "22 rue de l'Église, 33000 Bordeaux",
            "VendorTaxId": "FR83404833048",
            "CustomerName": "SARL Les Bons Plants",
            "CustomerAddress": "7 chemin des Serres, 33700 Mérignac",
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
            "VendorName": "Zumbera Movilidad Urbana, S.L.",
            "VendorTaxId": "B66123456",
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
            "VendorName": "Rowan Studio",
            "VendorAddress": "6 Dock Street, Liverpool L3 4AA",
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
            "VendorName": "Anke Veldman",
            "VendorAddress": "Molenstraat 77, 7411 DG Deventer",
            "VendorTaxId": "NL123456789B13",
            "CustomerName": "Agència Terres Altes, S.L.",
            "CustomerAddress": "Carrer de la Nau 8, 08009 Barcelona",
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
            "VendorName": "HELENA SEIXAS BRITO",
            "VendorAddress": "RUA DO ALMADA 402, 4050-034 PORTO",
            "VendorTaxId": "218447094",
            "CustomerName": "QUINTA DO VALADO, S.A.",
            "CustomerAddress": "LUGAR DO CARVALHAL, 5100-387 LAMEGO, PORTUGAL",
            "CustomerTaxId": "502884134",
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
            "VendorName": "Ceferino Prendes Vega",
            "VendorTaxId": "10844120B",
            "CustomerName": "Reparto Veloz Cimadevilla, S.L.",
            "CustomerAddress": "Calle Olavarría, 8, 33201 Gijón",
            "CustomerTaxId": "B62345678",
        },
        id="receipt-in-a-sentence-es",
    ),
]


@pytest.mark.parametrize(("text", "expected"), LAYOUTS)
def test_the_parties_of_a_layout_are_found(text: str, expected: dict[str, str]) -> None:
    """Every name, address and tax number, and nothing else."""
    assert {field.name: field.value for field in find_parties(rows_of_text(text))} == expected
