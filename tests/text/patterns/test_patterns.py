"""Pattern entities: what is found, with which value and offsets, and what is not."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.text.entity_merge import MODEL, PATTERN, Entity, merge
from backend.text.patterns import PATTERN_TYPES, find_patterns
from tests.text.marked import read_marked

ACCOUNTS = [
    pytest.param("ES79 2100 0813 6101 2345 6789", "ES7921000813610123456789", True, id="groups"),
    pytest.param("ES79\u00a02100\u00a00813\u00a06101\u00a02345\u00a06789", "ES7921000813610123456789", True, id="nbsp"),
    pytest.param("ES79-2100-0813-6101-2345-6789", "ES7921000813610123456789", True, id="hyphens"),
    pytest.param("ES79 2100 0813\n6101 2345 6789", "ES7921000813610123456789", True, id="line-break"),
    pytest.param("es79 2100 0813 6101 2345 6789", "ES7921000813610123456789", True, id="small-letters"),
    pytest.param("ES78 2100 0813 6101 2345 6789", "ES7821000813610123456789", False, id="wrong-check-digits"),
    pytest.param("ES80 2100 0813 6201 2345 6789", "ES8021000813620123456789", False, id="wrong-national-digits"),
    pytest.param("GB29NWBK60161331926819", "GB29NWBK60161331926819", True, id="british"),
]


@pytest.mark.parametrize(("written", "value", "valid"), ACCOUNTS)
def test_ibans(written, value, valid):
    """For any grouping the value is compact, and both checksums, also the national one, are verified."""
    text = f"Pague de 20 a 30 en {written}, gracias."
    start = text.index(written)

    assert [(written, start, value, valid)] == [
        (entity.text, entity.start, entity.value, entity.valid) for entity in find_patterns(text, ["IBAN"])
    ]


IDS = [
    pytest.param("DNI 45678912S", "NIF", "45678912S", True, id="nif"),
    pytest.param("DNI 45.678.912-S", "NIF", "45678912S", True, id="nif-with-points"),
    pytest.param("DNI 45678912A", "NIF", "45678912A", False, id="nif-wrong"),
    pytest.param("NIF 8765432-V", "NIF", "08765432V", True, id="nif-without-its-zero"),
    pytest.param("X-1234567-L", "NIE", "X1234567L", True, id="nie"),
    pytest.param("Z0011223A", "NIE", "Z0011223A", False, id="nie-wrong"),
    pytest.param("C.I.F. B-64717838", "CIF", "B64717838", True, id="cif"),
    pytest.param("CIF G-78.901.238", "CIF", "G78901238", True, id="cif-with-points"),
    pytest.param("P2807900B", "CIF", "P2807900B", True, id="cif-with-a-letter"),
    pytest.param("CIF B64717837", "CIF", "B64717837", False, id="cif-wrong"),
    pytest.param("VAT: FR 40 303 265 045", "VAT", "FR40303265045", True, id="vat-apart"),
    pytest.param("NL004495445B01", "VAT", "NL004495445B01", True, id="vat"),
    pytest.param("VAT no. GB 980 7806 84", "VAT", "GB980780684", True, id="vat-british"),
    pytest.param("ESB58378431", "VAT", "ESB58378431", True, id="vat-spanish"),
    pytest.param("DE136695977", "VAT", "DE136695977", False, id="vat-wrong"),
    pytest.param("0049-1500-00-1234567891", "CCC", "00491500001234567891", True, id="ccc"),
    pytest.param("0049 1500 11 1234567891", "CCC", "00491500111234567891", False, id="ccc-wrong"),
]


@pytest.mark.parametrize(("text", "kind", "value", "valid"), IDS)
def test_ids(text, kind, value, valid):
    """``value`` is compact; a wrong checksum is reported, with a lower score than any right one."""
    (entity,) = find_patterns(text, [kind])

    assert (kind, value, valid) == (entity.type, entity.value, entity.valid)
    assert (entity.score >= 0.9) == valid


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("BIC: CAIXESBBXXX", id="labelled"),
        pytest.param("SWIFT/BIC (CAIXESBBXXX)", id="two-labels"),
        pytest.param("IBAN ES79 2100 0813 6101 2345 6789 - CAIXESBBXXX", id="beside-its-iban"),
        pytest.param("CAIXESBBXXX", id="main-office"),
    ],
)
def test_bics(text):
    """A BIC has no checksum: it needs a label, an IBAN of its country, or the ending XXX."""
    assert [("CAIXESBBXXX", None)] == [(entity.value, entity.valid) for entity in find_patterns(text, ["BIC"])]


DATES = [
    ("12/03/2024", "2024-03-12"), ("12-3-24", "2024-03-12"), ("2024-03-12", "2024-03-12"),
    ("12.03.2024", "2024-03-12"), ("12 / 03 / 2024", "2024-03-12"), ("01/01/70", "1970-01-01"),
    ("12 de marzo de 2024", "2024-03-12"), ("12 de marzo del 2.024", "2024-03-12"),
    ("1º de mayo de 2024", "2024-05-01"), ("1.º de mayo de 2024", "2024-05-01"),
    ("primero de mayo de 2024", "2024-05-01"), ("12 marzo\nde 2024", "2024-03-12"),
    ("12-mar-24", "2024-03-12"), ("15/ABR/2024", "2024-04-15"), ("15/xul/2024", "2024-07-15"),
    ("3 de feb. de 2024", "2024-02-03"),
    ("March 12, 2024", "2024-03-12"), ("March 12th 2024", "2024-03-12"), ("12 March 2024", "2024-03-12"),
    ("12th of March 2024", "2024-03-12"), ("Sept. 3, 2023", "2023-09-03"), ("December31,2015", "2015-12-31"),
    ("marzo de 2024", "2024-03"), ("Mar 2024", "2024-03"), ("03/2024", "2024-03"), ("marzo - 09", "2009-03"),
    ("14 de mayo", "--05-14"), ("July 4", "--07-04"),
    ("8 de març de 2026", "2026-03-08"), ("8 d'abril del 2026", "2026-04-08"), ("8 mars 2026", "2026-03-08"),
    ("1er août 2026", "2026-08-01"), ("8. September 2026", "2026-09-08"), ("8. März 2026", "2026-03-08"),
    ("8 marzo 2026", "2026-03-08"), ("8 de março de 2026", "2026-03-08"), ("8 dicembre 2026", "2026-12-08"),
    ("Oktober 2026", "2026-10"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "value"), DATES, ids=[written for written, _ in DATES])
def test_dates(written, value):
    """Numeric and written dates, as ISO 8601."""
    text = f"Fecha {written}, (x)"

    assert [(written, value)] == [(entity.text, entity.value) for entity in find_patterns(text, ["DATE"])]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        pytest.param("03/04/2024", ["2024-04-03"], id="day-first"),
        pytest.param("03/04/2024 and 03/25/2024", ["2024-03-04", "2024-03-25"], id="a-date-that-is-month-first"),
        pytest.param("03/04/2024, March 25, 2024", ["2024-03-04", "2024-03-25"], id="written-month-first"),
        pytest.param("03/04/2024, 25 March 2024", ["2024-04-03", "2024-03-25"], id="written-day-first"),
        pytest.param("03/04/2024 25/03/2024 03/25/2024", ["2024-04-03", "2024-03-25", "2024-03-25"], id="both"),
        pytest.param("03.04.2024 and 03/25/2024", ["2024-04-03", "2024-03-25"], id="points-are-day-first"),
        pytest.param("Ref. 10-50-20, 12/03/2026", ["2026-03-12"], id="a-code-that-is-no-date"),
        pytest.param("Factura, NIF 12345678Z, 4-16-20, 12/03/2026", ["2020-04-16", "2026-03-12"], id="spanish-id"),
        pytest.param("Fecha factura 12/03/2026, pedido 12/25/26, cliente", ["2026-03-12", "2026-12-25"], id="spanish"),
        pytest.param("Austin, TX 78701, 12/03/2026", ["2026-12-03"], id="american-address"),
        pytest.param("Call (972) 555-0199. $34.00 on 12/03/2026", ["2026-12-03"], id="american-phone-and-dollars"),
        pytest.param("Call (972) 555-0199. £34.00 on 12/03/2026", ["2026-03-12"], id="pounds"),
        pytest.param("Invoice 12/03/2026, tel. +34 911 234 567, $ 3", ["2026-03-12"], id="spanish-phone"),
        pytest.param("DE 12345 Beispielstadt 12/03/2026", ["2026-03-12"], id="german-postcode"),
        pytest.param("8 mars 2026, 12/03/2026, $ 3", ["2026-03-08", "2026-03-12"], id="french-month"),
    ],
)
def test_ambiguous_dates_follow_the_others_of_the_text(text, values):
    """One decision per text: day first, unless its other dates or what tells the country say otherwise."""
    assert values == [entity.value for entity in find_patterns(text, ["DATE"])]


@pytest.mark.parametrize("text", ["31/02/2024", "29 de febrero de 2023", "Feb 30, 2024", "2023-02-29"])
def test_days_that_do_not_exist(text):
    """They are found, and are not valid."""
    assert [(text, None, False)] == [
        (entity.text, entity.value, entity.valid) for entity in find_patterns(text, ["DATE"])
    ]


MONEY = [
    ("1.284,50 €", "1284.50 EUR"), ("€1,284.50", "1284.50 EUR"), ("EUR 1 284,50", "1284.50 EUR"),
    ("$3.5 million", "3500000 USD"), ("1.284,50 euros", "1284.50 EUR"), ("US$ 48.2 million", "48200000 USD"),
    ("GBP 12,000", "12000 GBP"), ("3,5 millones de euros", "3500000 EUR"), ("12 mil euros", "12000 EUR"),
    ("1.181 millones de euros", "1181000000 EUR"),
    ("$2.125 million", "2125000 USD"), ("un millón de euros", "1000000 EUR"),
    ("five million dollars", "5000000 USD"), ("mil euros", "1000 EUR"), ("CHF 1'250.50", "1250.50 CHF"),
    ("12,5 M€", "12500000 EUR"), ("£3m", "3000000 GBP"), ("-45,10 €", "-45.10 EUR"), ("0.925 €", "0.925 EUR"),
    ("$ .42", "0.42 USD"), ("20€", "20 EUR"), ("1.000 €", "1000 EUR"), ("300 pesos", None), ("EUR2.30", "2.30 EUR"),
    ("1.284,50&nbsp;€", "1284.50 EUR"), ("1.500 millones\nde euros", "1500000000 EUR"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "value"), MONEY, ids=[written for written, _ in MONEY])
def test_money(written, value):
    """Both number formats, currency on either side, scale words; the value is a decimal and a code."""
    assert [(written, value)] == [(entity.text, entity.value) for entity in find_patterns(f"({written})", ["MONEY"])]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("12 € 30 €", ["12 €", "30 €"], id="suffixes"),
        pytest.param("€ 12 € 30", ["€ 12", "€ 30"], id="prefixes"),
        pytest.param("ref 883-221 £45.00", ["£45.00"], id="belongs-to-the-next"),
        pytest.param("Tornillos 2 150,00 €", ["150,00 €"], id="count-and-price"),
        pytest.param("Total: 2 150,00 €", ["2 150,00 €"], id="one-number-after-total"),
        pytest.param("un peso de 50 kg, five pounds of apples", [], id="weights"),
        pytest.param("Total 1.284,50 y 10-20 unidades", [], id="no-currency"),
    ],
)
def test_which_number_a_currency_belongs_to(text, found):
    """Each currency is used once, with the right number."""
    assert found == [entity.text for entity in find_patterns(text, ["MONEY"])]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("IVA 99,90 €; gasóleo 1,289 €", "1.289 EUR", id="the-text-writes-decimal-commas"),
        pytest.param("VAT 99.90 €; rate 1,289 €", "1289 EUR", id="the-text-writes-decimal-points"),
        pytest.param("99,90 € y 1,250 €", "1250 EUR", id="a-last-zero-says-nothing"),
        pytest.param("1,289 €", "1289 EUR", id="nothing-else-to-go-by"),
    ],
)
def test_three_digits_after_a_mark(text, value):
    """Thousands or decimals, according to the text's other numbers."""
    assert value == find_patterns(text, ["MONEY"])[-1].value


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("12,5 %", "12.5"), ("21%", "21"), ("3.125 %", "3.125"), ("diez por ciento", "10"), ("50 per cent", "50"),
        ("-2%", "-2"),
    ],
)  # fmt: skip
def test_percents(written, value):
    """Digits or a word; a single separator is decimal."""
    assert [(written, value)] == [
        (entity.text, entity.value) for entity in find_patterns(f"un {written}.", ["PERCENT"])
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("91 234 56 78", "+34912345678"), ("+34 600-123-456", "+34600123456"), ("670.97.10.26", "+34670971026"),
        ("tel. 633349565", "+34633349565"), ("(415) 555-2671", "+14155552671"), ("0034 93 693 29 05", "+34936932905"),
        ("020 7946 0958", "+442079460958"), ("+44 (0)113 496 0999", "+441134960999"), ("Tel: 55304000", None),
        ("+39 06 698 1234", "+39066981234"),
    ],
)  # fmt: skip
def test_phones(text, value):
    """E.164 where the country is known by its prefix or its grouping."""
    assert [value] == [entity.value for entity in find_patterns(text, ["PHONE"])]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Factura nº F-2024/0153", "F-2024/0153"), ("Nº de factura:\n24/001", "24/001"), ("Invoice #1234", "1234"),
        ("INVOICE\nInvoice No.: INV-7", "INV-7"), ("Factura: A/123", "A/123"), ("su factura 2023/4471", "2023/4471"),
        ("Invoice no. A 1234", "A 1234"), ("Número de factura: nu\u0301m", None), ("Fecha factura: 12/03/2024", None),
        ("Total factura: 92,57 €", None), ("Factura de 12 de marzo", None), ("La factura 12 de mayo", None),
        ("facturas pendientes 3", None),
    ],
)  # fmt: skip
def test_invoice_numbers(text, value):
    """Only numbers with a label; dates and totals of the invoice are none."""
    assert ([] if value is None else [value]) == [entity.value for entity in find_patterns(text, ["INVOICE_NUMBER"])]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("C/ Sol 3, 50009 Zaragoza", "50009"), ("C.P. 08001", "08001"), ("E-08028 Barcelona", "08028"),
        ("Madrid, 28045", "28045"), ("London SW1A 2AA", "SW1A 2AA"), ("Austin, TX 78701", "78701"),
        ("IL 62704-1234", None), ("Springfield, IL 62704-1234", "62704-1234"), ("A1 2BC", None),
        ("Código 53001 Nada", None), (", 25000 Euros", None), ("el 28013 es", None),
    ],
)  # fmt: skip
def test_postcodes(text, value):
    """Five digits are a postcode with a label, a town or a state."""
    assert ([] if value is None else [value]) == [entity.value for entity in find_patterns(text, ["POSTCODE"])]


@pytest.mark.parametrize(
    ("text", "kind", "written", "value"),
    [
        ("<Ana.P@Empresa.ES>", "EMAIL", "Ana.P@Empresa.ES", "Ana.P@empresa.es"),
        ("mailto:a@b.com.", "EMAIL", "a@b.com", "a@b.com"),
        ("jose.pen\u0303a@x.es", "EMAIL", "jose.pen\u0303a@x.es", "jose.peña@x.es"),
        ("(http://x.org/a_(b).)", "URL", "http://x.org/a_(b)", "http://x.org/a_(b)"),
        ('href="HTTPS://X.org/A?b=1&amp;c=2"', "URL", "HTTPS://X.org/A?b=1&amp;c=2", "https://x.org/A?b=1&c=2"),
        ("en www.x.es.", "URL", "www.x.es", "www.x.es"),
        ("ver x.com/docs,", "URL", "x.com/docs", "x.com/docs"),
    ],
)
def test_addresses(text, kind, written, value):
    """Without the sentence's punctuation; hosts in lower case, the rest unchanged."""
    assert [(written, value)] == [(entity.text, entity.value) for entity in find_patterns(text, [kind])]


NONE = {
    "IBAN": [  # a digit short, a digit long, no country, inside a word, a sentence
        "ES79 2100 0813 6101 2345 678", "ES79 2100 0813 6101 2345 67890", "XX79 2100 0813 6101 2345 6789",
        "PES79 2100 0813 6101 2345 6789", "de 12 de marzo de 2024 a las 12",
    ],
    "NIF NIE CIF VAT CCC BIC": [  # numbers of other things, codes, and words with the form of a BIC
        "Pieza B12345678 y expediente 12345678A", "REF-45678912S-2", "EL 123456789 DE 987654321",
        "paquete 00340434292135100186", "FACTURAS CONTRATO SUCURSAL DOCUMENT", "SWIFT RESPONSE",
    ],
    "DATE": [  # versions, IP addresses, order numbers, laws and verbs
        "versión 2.1.2024", "10.4.12", "192.168.1.10", "1.2.34", "2024-0312", "REF-12-03-24", "45/13/2024", "12/15",
        "May I ask 12", "March on", "Marco 12", "5 mars bars", "12 out of 24", "5 may be", "Hospital 12 de Octubre",
        "Ley 5/2019", "12/03/2024/7", "set 3 alarms",
    ],
    "PHONE": [  # orders, amounts, accounts and cards
        "Pedido 612345678", "912.345.678", "Cuenta 2100 0418 45", "4929 1234 5678 9012", "12-34-56-78", "91-234-56",
    ],
    "EMAIL URL": [  # two @ signs, no host, or the end of a sentence
        "x@y@z.es", "a@b", "@user", "fin.es decir", "S.A.R.L.", "user@", "v1.0.es",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("types", "text"), [(types, text) for types, texts in NONE.items() for text in texts])
def test_what_is_none(types, text):
    """The form of a type in another context is ignored; length and edges must match."""
    assert [] == find_patterns(text, types.split())


def companies(text: str) -> list[str]:
    return [entity.text for entity in find_patterns(text, {"ORG"})]


def by_model(text: str, kind: str, name: str) -> Entity:
    start = text.index(name)
    return Entity(kind, name, start, start + len(name), 0.7, MODEL)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Factura 2024/017 de Aceros del Norte, S.A. (NIF A58818501)", ["Aceros del Norte, S.A."]),
        (
            "Entre Construcciones Levante SL y la sociedad Inmobiliaria Ruiz e Hijos, S.L.U.",
            ["Construcciones Levante SL", "Inmobiliaria Ruiz e Hijos, S.L.U."],
        ),
        ("Acme Ltd hired Jane; Foo & Bar Holdings, Inc. did not.", ["Acme Ltd", "Foo & Bar Holdings, Inc."]),
        ("CLIENTE: TALLERES GARCÍA HNOS. S.L.\nMadrid", ["TALLERES GARCÍA HNOS. S.L."]),
        ("Banco\xa0Santander, S. A. 👍", ["Banco\xa0Santander, S. A."]),
        ("Between: Deutsche Post AG, and Philips N.V.", ["Deutsche Post AG", "Philips N.V."]),
        ("Peso neto: 5 SL. See no. 4 Inc", []),
        ("a limited company; un contrato, s.a.", []),
        ("Total SL.\nS.A.", ["Total SL."]),
    ],
)
def test_companies(text, expected):
    """Names end where a sentence, a field or a line does; the words that introduce them are left out."""
    assert expected == companies(text)


def test_companies_displace_other_types_of_the_model_only():
    """A LOC of the model is displaced; an ORG of the model is kept, as it knows the bounds from context."""
    text = "Factura de Aceros del Norte, S.A. en Bilbao"
    guessed = [
        by_model(text, "LOC", "Aceros del Norte"),
        by_model(text, "LOC", "S.A."),
        by_model(text, "LOC", "Bilbao"),
    ]
    kept = merge([*guessed, *find_patterns(text)]).kept
    assert [("ORG", "Aceros del Norte, S.A."), ("LOC", "Bilbao")] == [(entity.type, entity.text) for entity in kept]

    kept = merge([by_model(text, "ORG", "Aceros del Norte"), *find_patterns(text)]).kept
    assert [("ORG", "Aceros del Norte")] == [(entity.type, entity.text) for entity in kept]


def test_many_companies_take_linear_time():
    """Each legal form searches only ninety characters before it."""
    assert len(companies("A S.A. " * 5_000)) <= 5_000
    assert not companies("Ab " * 50_000)


def test_only_the_types_asked_for():
    """Only the requested types are found; by default all of PATTERN_TYPES."""
    text = "CIF B64717838, 12/03/2024, 5 €"

    assert ["DATE", "MONEY"] == [entity.type for entity in find_patterns(text, ["MONEY", "DATE"])]
    assert [] == find_patterns(text, [])
    assert {entity.type for entity in find_patterns(text)} <= set(PATTERN_TYPES)


def test_no_text_no_entities():
    assert [] == find_patterns("")


SPELLINGS = [
    pytest.param("Nu\u0301mero de factura: F-12", "F-12", "INVOICE_NUMBER", id="combining-accent"),
    pytest.param("👩‍👩‍👧 12 de marzo de 2024 💶", "12 de marzo de 2024", "DATE", id="emoji"),
    pytest.param("\u202bשם\u202c \u200e12/03/2024\u200e", "12/03/2024", "DATE", id="marks-of-direction"),
    pytest.param("فاتورة ١٢/٠٣/٢٠٢٤", "١٢/٠٣/٢٠٢٤", "DATE", id="arabic-digits"),
    pytest.param("ES79\u200b2100\u00ad0813 6101 2345 6789", None, "IBAN", id="nothing-wide-inside"),
    pytest.param(
        "\uff11\uff12\uff0f\uff10\uff13\uff0f\uff12\uff10\uff12\uff14",
        "\uff11\uff12\uff0f\uff10\uff13\uff0f\uff12\uff10\uff12\uff14",
        "DATE",
        id="full-width",
    ),
    pytest.param("<td>12/03/2024</td>", "12/03/2024", "DATE", id="html"),
    pytest.param("12\u201303\u20132024", "12\u201303\u20132024", "DATE", id="en-dashes"),
]


@pytest.mark.parametrize(("text", "written", "kind"), SPELLINGS)
def test_offsets_are_those_of_the_original_text(text, written, kind):
    """``text[start:end]`` is the original spelling, whatever folding changed."""
    (entity,) = find_patterns(text, [kind])

    assert (written or text) == entity.text == text[entity.start : entity.end]
    assert entity.value in ("F-12", "2024-03-12", "ES7921000813610123456789")


PIECES = st.one_of(
    st.sampled_from([entity.text for marked in read_marked() for entity in marked.entities]),
    st.sampled_from(["\u0301", "\u200d", "\u202e", "👩‍👧", "ש", "م", "\u00a0", *" \n.,-€", "IBAN ", "nº "]),
    st.text(max_size=6),
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_entities_of_any_text(text):
    """Offsets within the text, its own characters, a score, and a value that is never empty."""
    for entity in find_patterns(text):
        assert 0 <= entity.start < entity.end <= len(text)
        assert text[entity.start : entity.end] == entity.text
        assert 0.0 < entity.score <= 1.0
        assert (PATTERN, True) == (entity.source, entity.value != "")


@settings(max_examples=100, deadline=None)
@given(TEXTS, st.sampled_from(["", "é\u0301 👩‍👧 ש\u200f", "Hola, \u00ad", "\U0001f4b6"]))
def test_a_preceding_paragraph_only_shifts_the_entities(text, prefix):
    """By its length. It is of no language: words of one tell which way round a date is."""
    prefix = f"{prefix} zxq wvk qjz, zxq wvk qjz zxq wvk, qjz zxq wvk qjz zxq: wvk qjz zxq wvk qjz zxq wvk qjz\n\n\n"
    text = f"\n\n\n{text}"
    alone = [_shifted(entity, len(prefix)) for entity in find_patterns(text)]

    assert alone == find_patterns(prefix + text)


def _shifted(entity: Entity, by: int) -> Entity:
    return Entity(
        entity.type,
        entity.text,
        entity.start + by,
        entity.end + by,
        entity.score,
        entity.source,
        entity.value,
        entity.valid,
    )


HOSTILE = [
    "1", "a@", "1.1.1.", "ES", "ES11 ", "1 1 1-", "111 ", "111.111 ", "((((", "http://", "www.a.", "a.", "12/", "1 de ",
    "+1 2", "€ 1.", "mil millones ", "BIC ", "AAAABBCC ", "DE 1", "FR 1 ", "X-1", "e\u0301", "\u202e1", "\n ",
    "factura n ",
    "%", "_", "tel 1 ", "Madrid 1", "-", "A1 ", "marzo ", "1\u00a0",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_texts_end(piece):
    """Linear time for a quarter of a megabyte of near misses.

    Each took under 1.5 s of a busy core; catastrophic backtracking takes minutes.
    """
    text = piece * (250_000 // len(piece))
    started = time.process_time()

    found = find_patterns(text)

    assert time.process_time() - started < 10.0
    assert len(found) <= len(text)
