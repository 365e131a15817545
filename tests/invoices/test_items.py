"""Lines of goods and services, on pages built from text."""

from __future__ import annotations

import time

import pytest

from backend.files.visual_rows import rows_of
from backend.invoices.extract import extract_fields
from backend.invoices.items.find import ItemLines, find_items
from backend.tables.numbers import decimal_mark_of
from tests.invoices.rows import document_of_rows


def found(*pages: str) -> ItemLines | None:
    document = document_of_rows(*pages)
    return find_items(rows_of(document), decimal_mark_of(document))


def rows(*pages: str) -> list[dict[str, str]]:
    """The lines as a client sees them."""
    items = found(*pages)
    return [] if items is None else [{field.name: field.value for field in row.fields} for row in items.field.rows]


def short(*pages: str) -> list[tuple[str, ...]]:
    """Description, quantity, price and amount of each line, empty where there is none."""
    names = ("Description", "Quantity", "UnitPrice", "Amount")
    return [tuple(row.get(name, "") for name in names) for row in rows(*pages)]


def test_reads_columns_below_their_labels():
    """Each number goes to the column whose label it stands under."""
    assert rows("""
        FACTURA 2026/14

        Ref.     Concepto                     Cantidad    Precio    Dto.   IVA     Importe
        A-100    Monitor 24 pulgadas                 2     110,80    10%   21%      199,44
        B7       Papel A4, caja 5 paquetes           3      17,75          21%       53,25

                                                   Base imponible                   252,69
    """) == [
        {
            "Description": "Monitor 24 pulgadas", "ProductCode": "A-100", "Quantity": "2", "UnitPrice": "110.80",
            "Discount": "10", "TaxRate": "21", "Amount": "199.44",
        },
        {
            "Description": "Papel A4, caja 5 paquetes", "ProductCode": "B7", "Quantity": "3", "UnitPrice": "17.75",
            "TaxRate": "21", "Amount": "53.25",
        },
    ]  # fmt: skip


def test_reads_quantities_before_descriptions():
    """A figure right before a text is the quantity where its column stands there, with its sign."""
    assert short("""
        Uds.   Descripción                          P. unit.       Total
          -3   Bolígrafo azul, caja 50 uds.        10,29 EUR   -30,87 EUR
          12   Taco 8 mm                            0,10 EUR     1,20 EUR

                                          Subtotal            -29,67 EUR
    """) == [
        ("Bolígrafo azul, caja 50 uds.", "-3", "10.29", "-30.87"),
        ("Taco 8 mm", "12", "0.10", "1.20"),
    ]


def test_reads_texts_right_of_their_amounts():
    """A figure that touches a text is a quantity where the text begins in its own column; headings name no line."""
    assert rows("""
        Importe      IVA     Precio     Cant.          Artículo                               Ref.

        Albarán 20391 · 02/09/2025
          80,64      4        13,44               6    Barra precocida 250 g, caja 42 uds.    PX014
          49,80      10       24,90               2    Croissant mantequilla, caja 60         BL102

                                                       Base imponible      130,44
    """) == [
        {
            "Description": "Barra precocida 250 g, caja 42 uds.", "ProductCode": "PX014", "Quantity": "6",
            "UnitPrice": "13.44", "TaxRate": "4", "Amount": "80.64",
        },
        {
            "Description": "Croissant mantequilla, caja 60", "ProductCode": "BL102", "Quantity": "2",
            "UnitPrice": "24.90", "TaxRate": "10", "Amount": "49.80",
        },
    ]  # fmt: skip


def test_reads_headers_over_two_rows():
    """ "Precio" over "unitario" is one label."""
    assert short("""
        Descripción                     Cantidad      Precio      Importe
                                                    unitario         neto
        Limpieza de oficina                    4       25,00       100,00
        Cristales                              1       60,00        60,00

                                               Total sin IVA       160,00
    """) == [("Limpieza de oficina", "4", "25.00", "100.00"), ("Cristales", "1", "60.00", "60.00")]


def test_joins_descriptions_over_several_rows():
    """Rows of text below a line continue its description; notes after a gap do not."""
    assert [
        row["Description"]
        for row in rows("""
        Description                  Hours     Rate     Amount

        Website redesign                10    80.00     800.00
        Home page and shop
        including mobile layout

        Copywriting                      2    60.00     120.00
        About us


        All work remains ours until paid.

                                      Net total         920.00
    """)
    ] == ["Website redesign Home page and shop including mobile layout", "Copywriting About us"]


def test_reads_descriptions_above_their_numbers():
    """Where no row of numbers has a text, the text above belongs to it."""
    assert short("""
        Description        Qty    U. price    Total
        Milo (B)
                             2        2.80     5.60
        Take away
                             2        0.20     0.40
        Total                                  6.00
    """) == [("Milo (B)", "2", "2.80", "5.60"), ("Take away", "2", "0.20", "0.40")]


def test_leaves_out_headings_and_carried_sums():
    """Delivery notes and sums carried from page to page are no goods; repeated headers are read again."""
    header = "Código   Descripción              Cant.   Precio    Importe"
    assert short(
        f"""
        {header}
        Albarán 1234 de fecha 3/3/2026
        A1       Tubo corrugado M16           8    24,73     197,84
        A2       Caja estanca                 2     5,00      10,00
        Suma y sigue                                         207,84
        Página 1 de 2
        """,
        f"""
        {header}
        Suma anterior                                        207,84
        Albarán 1235 de fecha 4/3/2026
        A3       Broca 6x110                  1     3,70       3,70

                                     TOTAL                   211,54
        """,
    ) == [
        ("Tubo corrugado M16", "8", "24.73", "197.84"),
        ("Caja estanca", "2", "5.00", "10.00"),
        ("Broca 6x110", "1", "3.70", "3.70"),
    ]


def test_reads_pages_before_the_first_header_that_was_read():
    """Lines whose arithmetic holds in the table's columns count on a page whose header could not be read."""
    assert [row["Amount"] for row in rows(
        """
        C0digc   Dscripcn                 Cnt.    Prce     Imprte
        A1       Tubo corrugado M16           8    24,73     197,84
        """,
        """
        Código   Descripción              Cant.   Precio    Importe
        A2       Caja estanca                 2     5,00      10,00
        A3       Broca 6x110                  3     3,70      11,10
                                          TOTAL              218,94
        """,
    )] == ["197.84", "10.00", "11.10"]  # fmt: skip


def test_goes_on_after_subtotals_of_sections():
    """A sub-total within the table ends it only where no line follows whose arithmetic holds."""
    assert [
        row["Amount"]
        for row in rows("""
        Item                Quantity    Unit price     Amount
        --- Non food ---
        Beeswax XL                 1         42.00      42.00
        Office chair               2         70.00     140.00
                                          Subtotal     182.00
        --- Food ---
        Olive oil                  3          1.50       4.50
                                          Subtotal       4.50

                                          Subtotal     186.50
        Tax 15%                                         27.98
        Total                                          214.48
    """)
    ] == ["42.00", "140.00", "4.50"]


def test_settles_thousands_by_arithmetic():
    """ "1.000" is one or a thousand as quantity x price says."""
    assert [
        row["Quantity"]
        for row in rows("""
        Concepto                     Cantidad     Precio     Importe
        Tornillo                        1.000       0,15      150,00
        Gasóleo A                       1.500       1,20        1,80
                                     Base imponible           151,80
    """)
    ] == ["1000", "1.500"]


def test_finds_prices_and_amounts_below_unknown_labels():
    """Numbers right of all known labels are the amounts; a number before them that makes the product is the price."""
    assert short("""
        Pos.   Menge   Beschreibung               VK-Satz   Zeilenwertung
        1          2   Grundgebühr                   3,89            7,78
        2          1   Dienst                        5,39            5,39
                                     Total EUR                     13,17
    """) == [("Grundgebühr", "2", "3.89", "7.78"), ("Dienst", "1", "5.39", "5.39")]


def test_reads_the_price_as_amount_where_there_is_no_other():
    """ "Concepto | Precio" prints one number a line."""
    assert short("""
        Concepto                                   Precio
        Redacción de contrato                    350,00 €
        Asistencia a notaría                     120,00 €

        Base imponible                           470,00 €
    """) == [("Redacción de contrato", "", "", "350.00"), ("Asistencia a notaría", "", "", "120.00")]


def test_finds_amounts_right_of_a_misread_label():
    """The last column is that of the amounts, whatever its label reads."""
    assert short("""
        Item                Qty      Price       Ainoun!
        Silicone gun          7      15.00       105.00
        Wire tape             3       0.70         2.10
        Total                                    107.10
    """) == [("Silicone gun", "7", "15.00", "105.00"), ("Wire tape", "3", "0.70", "2.10")]


def test_reads_receipts_without_a_header():
    """Text left, amount right, until the total; "3 x 3,77" tells quantity and price of the line above."""
    assert short("""
             SUPERMERCADOS LA RIBERA
        03/08/2025 13:36 Caja 5

        1 ACEITE OLIVA VE 1L          7,99
        3 PAPEL COCINA 4R            11,31
            3 x 3,77
        1 HUEVOS L 12U                3,30

        TOTAL                        22,60
        TARJETA                      22,60
    """) == [
        ("ACEITE OLIVA VE 1L", "1", "", "7.99"),
        ("PAPEL COCINA 4R", "3", "3.77", "11.31"),
        ("HUEVOS L 12U", "1", "", "3.30"),
    ]


def test_reads_weighed_goods():
    """Kilograms x price per kilogram stand with the amount, below the name."""
    assert rows("""
        TOMATE RAMA
          0,456 kg x 2,99 €/kg        1,36
        PAN                           1,00

        TOTAL                         2,36
    """)[0] == {"Description": "TOMATE RAMA", "Unit": "kg", "Quantity": "0.456", "UnitPrice": "2.99", "Amount": "1.36"}


def test_reads_amounts_in_sentences():
    """A letter that is a bill: amounts stand at the ends of texts, in no column, and make its base."""
    assert short("""
        factura n.º 40 de 26-2-26

        Revisión de estilo del informe anual: 241,74 euros
        Traducción jurada de escritura, 14 folios: 314,84 euros

        base: 556,58
        iva 21%: 116,88
        total: 673,46 euros
    """) == [
        ("Revisión de estilo del informe anual", "", "", "241.74"),
        ("Traducción jurada de escritura, 14 folios", "", "", "314.84"),
    ]


def test_reads_quantities_with_units():
    """A unit stands beside its figure, in a column of its own, or glued to it."""
    assert [
        (row["Quantity"], row["Unit"])
        for row in rows("""
        Descripción                  Cantidad      Precio     Importe
        Saco de pienso                  18 UD      15,070      271,26
        Tijera de podar                   2UD      34,110       68,22

                                            Base imponible     339,48
    """)
    ] == [("18", "UD"), ("2", "UD")]


def test_reads_a_list_right_of_another():
    """Amounts of another box at the left are none of the lines'."""
    assert short("""
        Your account                            Current charges
        Previous balance          $78.85        Customer charge            $11.76
        Payment received         -$78.85        Energy charge 612 kWh      $77.22
        Balance forward            $0.00        Fuel adjustment            $13.62
                                                City tax 4%                 $4.10
                                                Total current charges     $106.70
    """) == [
        ("Customer charge", "", "", "11.76"),
        ("Energy charge 612 kWh", "", "", "77.22"),
        ("Fuel adjustment", "", "", "13.62"),
    ]


def test_reads_bills_beside_another_column():
    """What stands right of the amounts belongs to another part of the page."""
    assert short("""
        Detalle de la factura                           Su consumo
        Energía consumida            18,36 €            Consumo medio: 8,97 kWh
        97 kWh x 0,1893 €/kWh                           Último año: 3.937 kWh
        Alquiler de contador          0,77 €            Datos de pago
        Importe total sin IVA        19,13 €            Entidad: Caja Rural
        IVA 21 %                      4,02 €
        IMPORTE FACTURA              23,15 €
    """) == [("Energía consumida", "97", "0.1893", "18.36"), ("Alquiler de contador", "", "", "0.77")]


def test_takes_no_total_for_a_line_by_its_sum():
    """An amount that is the sum of the lines above and has no quantity is a total, whatever it is called."""
    assert short("""
        Partida    Descripción              Medición    Precio    Importe
        1.01       Falso techo de yeso            16     26,99     431,84
        1.02       Mortero, capa de 3 cm        15,5     15,09     233,90
                        Resultado de las partidas                  665,74
                        Con revisión de obra                       680,00
                        Total                                      680,00
    """) == [("Falso techo de yeso", "16", "26.99", "431.84"), ("Mortero, capa de 3 cm", "15.5", "15.09", "233.90")]


def test_reads_names_above_some_amounts_only():
    """On a receipt the name stands above "2 x 6,16   12,32", or beside the amount."""
    assert short("""
        FECHA 04-05-2026 HORA 10:04

        LLAVE FIJA 12/13               5,34
        CUENTO INFANTIL
          3 x 13,51                   40,53
        PILAS AAA BLISTER 4
          2 x 6,16                    12,32

        TOTAL EUROS                   58,19
    """) == [
        ("LLAVE FIJA 12/13", "", "", "5.34"),
        ("CUENTO INFANTIL", "3", "13.51", "40.53"),
        ("PILAS AAA BLISTER 4", "2", "6.16", "12.32"),
    ]


def test_reads_tables_with_unknown_labels():
    """Where no label tells what a column is, the sum and the products do."""
    assert short("""
        Minuta de honorarios                   Nº     Honorarios     Percibido
        Impuesto de sociedades                  2         197,36        394,72
        Redacción de contrato                   1         193,87        193,87

                             Base sujeta                                588,59
                             Cuota IVA al 21%                           123,60
                             Total                                      712,19
    """) == [("Impuesto de sociedades", "2", "197.36", "394.72"), ("Redacción de contrato", "1", "193.87", "193.87")]


def test_says_where_the_lines_stand():
    """The totals' finder must not take amounts among the lines for totals."""
    items = found("""
        Concepto                                  Importe
        Alquiler de local, marzo                   650,00

        Base imponible                             650,00
    """)
    top, bottom = items.regions[1]
    assert items.contains(1, (top + bottom) / 2)
    assert not items.contains(1, bottom + 20)
    assert not items.contains(2, (top + bottom) / 2)


def test_invents_nothing_in_letters_and_price_lists():
    """Amounts in sentences, tables without sums and agreements have no lines of goods."""
    assert (
        found("""
        Estimado cliente: le recordamos que su cuota de 45,00 euros vence el 3 de mayo.
        El importe total asciende a 90,00 euros y puede pagarlo en dos plazos.
    """)
        is None
    )
    assert (
        found("""
        Producto             Formato       Precio
        Aceite               1 L             7,99
        Harina               1 kg            1,20
    """)
        is None
    )


def test_reads_ten_thousand_words_in_time():
    """A page of nothing but figures and labels takes seconds, not minutes."""
    line = "Concepto  Total  12,00  Importe  3 x 4  1.000  IVA  21%  "
    began = time.process_time()
    found("\n".join([line * 4] * 200))
    assert time.process_time() - began < 5


def test_takes_no_row_of_rates_for_a_line():
    """Numbers without a name below a second header multiply by chance: "0,03  0,50  0,00"."""
    assert short("""
        FACTURA 14

        Artículo                      Cant.    Precio     Importe
        Pan                             4        0,50        2,00
        Chicle                          1        0,87        0,87

        Base Imp.     % I.V.A.    Cuota I.V.A.  % R.E.    Cuota R.E.
        2,00           10,00        0,20        1,40       0,03
        0,87            4,00        0,03        0,50       0,00

        TOTAL FACTURA                                       3,13
    """) == [("Pan", "4", "0.50", "2.00"), ("Chicle", "1", "0.87", "0.87")]


def test_reads_negative_amounts_in_brackets():
    """Credit notes print them so; a number in brackets within a text is still none."""
    assert short("""
        Description                      Units     Unit price          Total
        Mineral water 500 ml (box)         (2)         274.72       (549.44)
        Tyre 205/55 R16                    (3)         155.88       (467.64)

                                          Taxable amount          (1,017.08)
    """) == [
        ("Mineral water 500 ml (box)", "-2", "274.72", "-549.44"),
        ("Tyre 205/55 R16", "-3", "155.88", "-467.64"),
    ]


def test_transport_is_a_line_unless_it_carries_a_sum():
    """What is carried to another page is known by its amount, as "Transporte" is a service, too."""
    first = """
        Concepto                     Cantidad    Precio     Importe
        Papel A4                            2     10,00       20,00
        Transporte                                             7,00
    """
    second = """
        Concepto                     Cantidad    Precio     Importe
        Transporte                                            27,00
        Carpetas                            3      1,00        3,00

                                  Base imponible              30,00
    """
    assert short(first, second) == [
        ("Papel A4", "2", "10.00", "20.00"),
        ("Transporte", "", "", "7.00"),
        ("Carpetas", "3", "1.00", "3.00"),
    ]


def test_a_row_that_goes_on_in_small_letters_begins_in_the_row_above():
    """Wrapped cells may stand at the foot of their row."""
    assert short("""
        Concepto                     Cantidad    Precio     Importe
        Papel A4                            2     10,00       20,00
        Mantenimiento anual
        del jardín                          1     40,00       40,00
        Carpetas                            3      1,00        3,00

                                  Base imponible              63,00
    """) == [
        ("Papel A4", "2", "10.00", "20.00"),
        ("Mantenimiento anual del jardín", "1", "40.00", "40.00"),
        ("Carpetas", "3", "1.00", "3.00"),
    ]


def test_reads_labels_in_two_languages():
    """ "Precio / Price" heads one column, so that a number left of it keeps its own."""
    assert short("""
        Artículo / Description         Pares / Pairs   Precio / Price   Importe / Amount
        Zapato Oxford 41                     80             36,40            2.912,00
        Botín Chelsea                        48             44,50            2.136,00

                                                    TOTAL EUR                5.048,00
    """) == [("Zapato Oxford 41", "80", "36.40", "2912.00"), ("Botín Chelsea", "48", "44.50", "2136.00")]


def test_a_row_without_a_discount_keeps_its_amount():
    """Rows that fill every column tell where amounts stand, not the nearest label."""
    assert short("""
        Cant.   Concepto                 Descuento      Importe
        1       Informe pericial         0,00       4,33
        2       Hosting y dominio                  50,90
        3       Tapa del día             0,00      89,70
        2       Cerveza                            11,94

                Base imponible                    156,87
    """) == [
        ("Informe pericial", "1", "", "4.33"),
        ("Hosting y dominio", "2", "", "50.90"),
        ("Tapa del día", "3", "", "89.70"),
        ("Cerveza", "2", "", "11.94"),
    ]


def test_takes_no_account_number_and_no_nameless_amount_for_a_line():
    """Among amounts with cents that name something."""
    assert short("""
        Concepte                          Quantitat      Preu       Import
        Quota de servei                          2      6,45        12,90
        Consum domèstic                         18      0,65        11,70
                                           24,60 €    2,46 €      27,06 €
        Compte                                                        9989
        Base imposable                     IVA 10%    Import total
    """) == [("Quota de servei", "2", "6.45", "12.90"), ("Consum domèstic", "18", "0.65", "11.70")]


def test_a_partial_sum_is_no_line_and_ends_nothing():
    """Lines without quantities may follow it."""
    assert [
        line[0]
        for line in short("""
        Concepto                            Importe
        Suero fisiológico                     15,64
        Traducción jurada                     28,18
        Suma de líneas                        43,82
        Alquiler de contador                   6,68

        Base imponible                        50,50
    """)
    ] == ["Suero fisiológico", "Traducción jurada", "Alquiler de contador"]


def test_the_sign_of_a_product_is_no_description():
    """ "2 uds. x 3,36" below a name."""
    assert short("""
        Portes
        2 uds x 3,36                6,72
        Detergente
        1 ud x 4,00                 4,00

        TOTAL                      10,72
    """) == [("Portes", "2", "3.36", "6.72"), ("Detergente", "1", "4.00", "4.00")]


def test_reads_amounts_that_the_rows_below_break_down():
    """A bill says what each service costs, then of what; its total stands above."""
    assert short("""
        Charges this month                    $4.10
        Total for this invoice                $4.10
        Detail
        Data Transfer                         $0.01
        Charges                               $0.01
        VAT **                                $0.00
        Elastic Compute                       $1.87
        Charges                               $1.87
        VAT **                                $0.00
        Archive                               $2.22
        Charges                               $2.22
        VAT **                                $0.00
    """) == [
        ("Data Transfer", "", "", "0.01"),
        ("Elastic Compute", "", "", "1.87"),
        ("Archive", "", "", "2.22"),
    ]


_HEAD = """
Talleres Ibarra, S.L.                    Factura 2026/118
C/ Mayor 3, 28001 Madrid                 Fecha 12/03/2026
NIF B29338878
Cliente: Bodegas Roncal, S.A.
"""


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        pytest.param(
            """
Description              Quantité     Prix    Rem.    Prix HT
                                  unitaire
Nougat de l'Abbaye             20     4,55     10%      81,90
Biscuits aux raisins           15     3,20              48,00
                                      Total HT         129,90
""",
            [("Nougat de l'Abbaye", "20", "4.55", "81.90"), ("Biscuits aux raisins", "15", "3.20", "48.00")],
            id="two-prices",
        ),
        pytest.param(
            """
Falso techo de yeso                 16     26,99     431,84
Mortero, capa de 3 cm             15,5     15,09     233,90
según memoria
Puerta de paso                       1    208,59     208,59
""",
            [
                ("Falso techo de yeso", "16", "26.99", "431.84"),
                ("Mortero, capa de 3 cm según memoria", "15.5", "15.09", "233.90"),
                ("Puerta de paso", "1", "208.59", "208.59"),
            ],
            id="neither-header-nor-sum",
        ),
        pytest.param(
            """
Guante de piel flor                  5      8,66     15      36,81
Abono foliar 1 l                     2     12,32      5      23,41

                            IMPORTE BRUTO 60,22
""",
            [("Guante de piel flor", "5", "8.66", "36.81"), ("Abono foliar 1 l", "2", "12.32", "23.41")],
            id="discounts",
        ),
        pytest.param(
            """
Qty   Work done              Rate      Tax      Line
12    Printer toner        265.86    6.625%   3190.32
2     Bulb LED 9W          373.50    6.625%    747.00
88    Brake pads front      20.39    6.625%   1794.32

                                  Sub Total            5731.64
""",
            [
                ("Printer toner", "12", "265.86", "3190.32"),
                ("Bulb LED 9W", "2", "373.50", "747.00"),
                ("Brake pads front", "88", "20.39", "1794.32"),
            ],
            id="labels-that-name-other-columns",
        ),
    ],
)
def test_the_network_reads_lines_whose_columns_no_label_tells(text: str, lines: list[tuple[str, ...]]):
    """As long as quantity x price makes their amounts."""
    fields = {field.name: field for field in extract_fields(document_of_rows(f"{_HEAD}{text}")).fields}

    values = [{cell.name: cell.value for cell in row.fields} for row in fields["Items"].rows]
    assert lines == [tuple(row[name] for name in ("Description", "Quantity", "UnitPrice", "Amount")) for row in values]
