"""Companies are told by their legal form; where a model has found the organisation, its bounds stand."""

from __future__ import annotations

import pytest

from backend.documents.entities import MODEL, Entity
from backend.documents.merge import merge
from backend.documents.patterns import find_patterns


def companies(text: str) -> list[str]:
    return [one.text for one in find_patterns(text, {"ORG"})]


def by_model(text: str, kind: str, said: str) -> Entity:
    start = text.index(said)
    return Entity(kind, said, start, start + len(said), 0.7, MODEL)


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


def test_they_go_before_a_models_other_guesses_only():
    """A place called "Aceros del Norte" it is not; of an ORG the model has read the bounds in context."""
    text = "Factura de Aceros del Norte, S.A. en Bilbao"
    guessed = [
        by_model(text, "LOC", "Aceros del Norte"),
        by_model(text, "LOC", "S.A."),
        by_model(text, "LOC", "Bilbao"),
    ]
    kept = merge([*guessed, *find_patterns(text)]).kept
    assert [("ORG", "Aceros del Norte, S.A."), ("LOC", "Bilbao")] == [(one.type, one.text) for one in kept]

    kept = merge([by_model(text, "ORG", "Aceros del Norte"), *find_patterns(text)]).kept
    assert [("ORG", "Aceros del Norte")] == [(one.type, one.text) for one in kept]


def test_a_hostile_text_takes_linear_time():
    """Each form looks back over ninety characters, whatever stands there."""
    assert len(companies("A S.A. " * 5_000)) <= 5_000
    assert not companies("Ab " * 50_000)
