"""Texts in the code pages of their countries, without a mark: read by their letters."""

import codecs

import pytest

from backend.files.text_files import decode_text

_LONG = {
    "es": "La señora Núñez pagó ayer la factura del año pasado. ¿Cuándo vence el plazo? La dirección está en Málaga.",
    "en": "It\u2019s due within thirty days; don\u2019t be late. The café\u2019s owner, Zoë, asked for “more time”.",
    "fr": "La société a été créée à Besançon en février. Où est la commande ? L\u2019élève a reçu une lettre dès Noël.",
    "de": "Die Rechnung über Büromöbel wurde geprüft. Müller & Söhne, Straße der Brüder Grimm, München, bis März.",
    "pl": "Faktura za zeszły rok została opłacona. Proszę wysłać towary do Łodzi, żeby spółka mogła działać.",
    "cs": "Faktura za loňský rok byla zaplacena. Ředitel včera podepsal všechny dokumenty, částka činí tisíc korun.",
    "ru": "Счёт за прошлый год был оплачен. Отправьте товары на наш склад в Москве. Договор вступил в силу.",
    "el": "Στο τιμολόγιο πληρώθηκε τη Δευτέρα. Παρακαλώ στείλτε τα εμπορεύματα στην αποθήκη μας στην Αθήνα.",
}
_PAGES = {
    "es": ("cp1252", "iso8859-1", "iso8859-15", "mac-roman", "cp850"),
    "en": ("cp1252", "mac-roman"),
    "fr": ("cp1252", "mac-roman"),
    "de": ("cp1252", "iso8859-1", "mac-roman", "cp1250"),
    "pl": ("cp1250", "iso8859-2"),
    "cs": ("cp1250", "iso8859-2"),
    "ru": ("cp1251", "koi8-r", "cp866", "iso8859-5", "mac-cyrillic"),
    "el": ("cp1253", "iso8859-7"),
}
_WIDE = [("utf-16-le", codecs.BOM_UTF16_LE), ("utf-16-le", b""), ("utf-16-be", codecs.BOM_UTF16_BE), ("utf-16-be", b"")]
_LATIN = ("es", "en", "fr", "de", "pl", "cs")


@pytest.mark.parametrize(
    ("language", "page"), [(language, page) for language, pages in _PAGES.items() for page in pages]
)
def test_a_text_of_a_language(language: str, page: str):
    """A hundred letters tell; in upper case, too."""
    for text in (_LONG[language], _LONG[language].upper()):
        content = text.encode(page, "ignore")

        assert content.decode(page) == decode_text(content)


@pytest.mark.parametrize(("language", "encoding", "mark"), [
    *((language, *wide) for language in _LATIN for wide in _WIDE), ("ru", *_WIDE[0]), ("el", *_WIDE[0]),
])  # fmt: skip
def test_utf_16(language: str, encoding: str, mark: bytes):
    """With its mark and without; other scripts need theirs, for their bytes are letters of other texts."""
    assert _LONG[language] == decode_text(mark + _LONG[language].encode(encoding))


@pytest.mark.parametrize(
    "text",
    [
        "año", "¿Qué?", "ÁREA, CAMIÓN, AÑO", "1.284,50 €", "1º 2ª", "Peñón número 3",
        "time—and again—the one \u2013 and don\u2019t", "Straße 12 \u2013 14 · 50 °C ± 2 µm",
        "Müller GmbH;Núñez, S.L.;Françoise Dupré;Ångström AB;Sørensen A/S;Genève", "São João às três",
        "Æbler på Øster Allé", "Þingvellir er í Bláskógabyggð", "naïve façade, coöperatie",
    ],
)  # fmt: skip
def test_a_few_words_of_western_europe(text: str):
    """What Windows-1252 explains is that, however short."""
    assert text == decode_text(text.encode("cp1252"))
