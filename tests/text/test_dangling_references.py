"""Openings that point back."""

import pytest

from backend.text.key_sentences import opens_with_reference


@pytest.mark.parametrize(
    ("sentence", "language"),
    [
        pytest.param("Esto obliga a la sociedad a revisar sus cuentas.", "es", id="pronoun"),
        pytest.param("«Dicho importe se abonará en marzo.", "es", id="after-a-quote"),
        pytest.param("Sin embargo, el margen bajó.", "es", id="two-words"),
        pytest.param("De la misma manera, el proveedor avisará.", "es", id="four-words"),
        pytest.param("Él firmó el acta.", "es", id="pronoun-with-accent"),
        pytest.param("However, margins fell.", "en", id="connector"),
        pytest.param("This increase was caused by prices.", "en", id="demonstrative"),
        pytest.param("It\u2019s due in March.", "en", id="curly-apostrophe"),
        pytest.param("He signed the minutes.", "en", id="he"),
        pytest.param("Según él, los ingresos servirán para reparar los colegios.", "es", id="segun-el"),
        pytest.param("Según ellas, bastará.", "es", id="segun-ellas"),
        pytest.param("Para ello, contrató coberturas.", "es", id="para-ello"),
        pytest.param("Por ello se aplaza.", "es", id="por-ello"),
        pytest.param("Con ello baja el riesgo.", "es", id="con-ello"),
        pytest.param("Gracias a esto, el margen subió.", "es", id="gracias-a-esto"),
        pytest.param("Como consecuencia de ello, se cerró la tienda.", "es", id="four-words-before"),
        pytest.param("A pesar de dicha sentencia, recurrió.", "es", id="dicha-after-prepositions"),
        pytest.param("La mayoría de ellos firmó.", "es", id="most-of-them"),
        pytest.param("Tras lo cual se levantó la sesión.", "es", id="lo-cual"),
        pytest.param("According to him, income will pay for schools.", "en", id="according-to-him"),
        pytest.param("Because of them, prices rose.", "en", id="because-of-them"),
        pytest.param("For this purpose, a fund was set up.", "en", id="for-this-purpose"),
        pytest.param("Most of these were sold.", "en", id="most-of-these"),
        pytest.param("Según ella, bastará.", None, id="either-language-with-preposition"),
        pytest.param("In addition, rents rose.", None, id="either-language"),
    ],
)
def test_a_reference(sentence: str, language: str | None) -> None:
    """Pronouns, demonstratives and connectors, in any case and after marks."""
    assert opens_with_reference(sentence, language)


@pytest.mark.parametrize(
    ("sentence", "language"),
    [
        pytest.param("El contrato se firmó en marzo.", "es", id="article-is-no-pronoun"),
        pytest.param("He visto el informe del auditor.", "es", id="he-is-a-spanish-verb"),
        pytest.param("Este contrato se rige por la ley española.", "es", id="the-document-itself"),
        pytest.param("This Agreement is governed by Spanish law.", "en", id="the-document-itself-en"),
        pytest.param("Según el alcalde, bastará.", "es", id="article-after-preposition"),
        pytest.param("Según el contrato, esto se paga en marzo.", "es", id="pronoun-later"),
        pytest.param("En este contrato se fija la renta.", "es", id="the-document-after-preposition"),
        pytest.param("Under this Agreement the rent is fixed.", "en", id="the-document-after-preposition-en"),
        pytest.param("According to the board, margins rose.", "en", id="noun-after-prepositions"),
        pytest.param("Para", "es", id="preposition-alone"),
        pytest.param("Según él, der Vertrag endet.", "de", id="language-without-a-list-after-preposition"),
        pytest.param("Además, der Vertrag endet.", "de", id="language-without-a-list"),
        pytest.param("Second quarter revenue rose.", "en", id="ordinal"),
        pytest.param("…", "en", id="no-word"),
        pytest.param("", None, id="empty"),
    ],
)
def test_no_reference(sentence: str, language: str | None) -> None:
    """What needs nothing before it."""
    assert not opens_with_reference(sentence, language)
