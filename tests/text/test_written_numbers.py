"""Numbers of transcripts as they are written."""

import pytest

from backend.files.speech_records import Segment, SpokenWord
from backend.text.written_numbers import with_written_numbers


def said(text: str, language: str | None = "es") -> Segment:
    """A segment that says a word a second, each a little less sure than the one before it."""
    texts = text.split()
    words = tuple(SpokenWord(word, float(index), index + 0.5, 1.0 - 0.01 * index) for index, word in enumerate(texts))
    return Segment(0.0, float(len(texts)), text, words, tokens=(1, 2), language=language)


def written(text: str, language: str = "es") -> str:
    segment = with_written_numbers(said(text, language))
    assert segment.text == " ".join(word.text for word in segment.words)
    return segment.text.replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("heard", "expected"),
    [
        ("mil doscientos ochenta y cuatro con cincuenta euros.", "1.284,50 €."),
        ("asciende a 1234 euros con 56 céntimos", "asciende a 1.234,56 €"),
        ("un euro con cinco céntimos", "1,05 €"),
        ("3 mil euros", "3.000 €"),
        ("tres millones doscientos mil euros", "3.200.000 €"),
        ("dos millones de euros", "2 millones de euros"),
        ("el veintiún por ciento y el cinco coma dos por ciento", "el 21 % y el 5,2 %"),
        ("vence el doce de marzo de dos mil veinticuatro", "vence el 12 de marzo de 2024"),
        ("el primero de mayo", "el 1 de mayo"),
        ("a las cinco y media o a las seis menos cuarto", "a las 5:30 o a las 5:45"),
        ("veintitrés mil ciento cuarenta y cinco habitantes", "23.145 habitantes"),
        ("tres coma cero cinco, versión dos punto tres", "3,05, versión 2.3"),
        ("teléfono seis cero cero, uno dos tres, cuatro cinco seis.", "teléfono 600123456."),
        ("al seiscientos doce, treinta y cuatro, cincuenta y seis, setenta y ocho", "al 612345678"),
        ("CIF be cinco ocho ocho uno ocho cinco cero uno", "CIF B58818501"),
        ("DNI uno dos tres cuatro cinco seis siete ocho zeta", "DNI 12345678Z"),
        ("factura 2026 barra 47", "factura 2026/47"),
    ],
)
def test_spanish(heard: str, expected: str) -> None:
    """Amounts, shares, dates, times, telephone numbers, ids."""
    assert expected == written(heard)


@pytest.mark.parametrize(
    ("heard", "expected"),
    [
        ("one thousand two hundred eighty-four dollars and fifty cents,", "$1,284.50,"),
        ("three point one four percent", "3.14%"),
        ("due March twelfth, twenty twenty-four", "due March 12th, 2024"),
        ("the fifth of May nineteen eighty-four", "the 5th of May 1984"),
        ("at ten thirty, by five oh five pm", "at 10:30, by 5:05 pm"),
        ("a hundred and twenty books", "120 books"),
        ('"forty-two line Bible"', '"42 line Bible"'),
        ("call five five five, oh one double two", "call 5550122"),
        ("twenty-one million people", "21 million people"),
    ],
)
def test_english(heard: str, expected: str) -> None:
    """The same in English, with its years in pairs and ordinals in dates."""
    assert expected == written(heard, "en")


@pytest.mark.parametrize(
    ("heard", "language"),
    [
        ("dos o tres casas, una de ellas", "es"),
        ("mil gracias, las mil y una noches, treinta y tantos años", "es"),
        ("uno dos tres cuatro", "es"),  # counting aloud
        ("los años setenta y la Guerra de los Treinta Años", "es"),
        ("vendió un euro, medio euro y cientos de libros", "es"),
        ("llama a la ONCE", "es"),
        ("trescientos veinte siete", "es"),  # no whole
        ("3500, 21% y 12/03/2024", "es"),  # as they are written
        ("one of us, a hundred friends, seven eleven and thirty something", "en"),
        ("the first time, may one ask, in the second half", "en"),
        ("30 to 50 thousand dollars", "en"),
    ],
)
def test_what_is_no_clear_number_stays(heard: str, language: str) -> None:
    """Words that are numbers elsewhere, and numbers that cannot be told, are as they were heard."""
    assert heard == written(heard, language)


def test_other_languages_stay() -> None:
    """A segment in another language, or in none, is as it was."""
    segments = [said("twenty euros", language) for language in ("de", None)]

    assert segments == [with_written_numbers(segment) for segment in segments]


def test_the_language_that_is_written_counts() -> None:
    """A translation of Spanish is English."""
    assert "$20" == with_written_numbers(said("twenty dollars", "es"), "en").text


def test_a_number_lasts_from_its_first_word_to_its_last() -> None:
    """It is as sure as its least sure word; the others keep their seconds."""
    segment = with_written_numbers(said("son treinta y cinco euros, gracias"))

    assert [
        SpokenWord("son", 0.0, 0.5, 1.0),
        SpokenWord("35\u00a0€,", 1.0, 4.5, 0.96),
        SpokenWord("gracias", 5.0, 5.5, 0.95),
    ] == list(segment.words)
    assert (0.0, 6.0, (1, 2)) == (segment.start_s, segment.end_s, segment.tokens)


def test_a_number_that_two_segments_share_stays() -> None:
    """Half of it would be another number; punctuation between them tells that there are two."""
    first, second = said("asciende a mil novecientos"), said("treinta y cuatro euros, más veinte.")
    ended = said("Son mil novecientos.")

    assert first == with_written_numbers(first, goes_on=True)
    assert "treinta y cuatro euros, más 20." == with_written_numbers(second, before=first.text).text
    assert "34\u00a0€, más 20." == with_written_numbers(second, before=ended.text).text
    assert "Son 1900." == with_written_numbers(ended, goes_on=True).text


def test_slashes_without_end_are_cut() -> None:
    """An id has a few parts; what is said on and on is several."""
    assert "2/2/2/2/2/2 barra 2/2" in written(" barra ".join(["dos"] * 2000))


def test_an_id_has_at_most_thirty_digits() -> None:
    """More digits in a row than any number has are left as they are."""
    heard = " ".join(["siete dos"] * 40)

    assert heard == written(heard)
