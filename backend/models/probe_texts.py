"""Spanish and English texts of mixed lengths to measure and check an encoder with; written for this project."""

from __future__ import annotations

from itertools import pairwise

_SENTENCES = (
    "Adjuntamos la factura correspondiente al mes de marzo, con vencimiento a treinta días.",
    "The invoice is due within thirty days of receipt.",
    "El importe total asciende a 1.284,50 euros, impuestos incluidos.",
    "Please find attached the signed contract and its two annexes.",
    "La parte arrendataria se obliga a devolver el inmueble en buen estado.",
    "Net revenue rose by eight percent, driven by higher volumes in the second half.",
    "Rogamos confirmen la recepción de este documento.",
    "Our records show that the payment did not reach the account.",
    "El saldo de la cuenta corriente a cierre de ejercicio fue negativo.",
    "The tenant shall pay the deposit before the keys are handed over.",
    "Se adjunta copia del documento nacional de identidad y de la última nómina.",
    "A meeting of the board was held at the registered office.",
    "¿Cuál es el plazo para presentar la reclamación?",
    "What is the fee for closing the account early?",
    "Recibo de la compra: pan, leche, aceite y fruta.",
    "Total: 42.10 USD. Thank you for your visit!",
    "La auditoría no detectó irregularidades significativas en los estados financieros.",
    "The company leases its warehouses under agreements that expire over the next five years.",
    "Estimada señora: le escribimos en relación con su solicitud de préstamo hipotecario.",
    "Either party may terminate this agreement with sixty days' written notice.",
    "El paciente acudió a consulta por dolor en la rodilla derecha.",
    "The shipment was delayed because customs asked for further papers.",
    "Transferencia recibida de Construcciones Levante por trabajos de reforma.",
    "Interest accrues daily on the unpaid balance at the agreed rate.",
    "El informe anual describe los riesgos de mercado, de crédito y de liquidez.",
    "Goodwill is tested for impairment once a year or when events require it.",
    "Los trabajadores disfrutarán de veintitrés días laborables de vacaciones.",
    "He scored twice in the second half and the team went through to the final.",
    "La exposición reúne más de cien obras del siglo diecinueve.",
    "Heavy rain is expected along the coast until Thursday evening.",
    "El tren de las siete llegó con cuarenta minutos de retraso.",
    "Mix the flour with the eggs, add the milk slowly and let it rest.",
)
_LONG_LENGTHS = (3, 4, 5, 6, 8, 10, 12, 14)  # sentences in a paragraph


def probe_texts() -> list[str]:
    """64 texts, from one sentence to a page: mean length near 40 tokens, as real traffic of this kind has."""
    pairs = [f"{first} {second}" for first, second in list(pairwise(_SENTENCES))[:24]]
    paragraphs = [
        " ".join((_SENTENCES * 2)[3 * index : 3 * index + count]) for index, count in enumerate(_LONG_LENGTHS)
    ]
    return [*_SENTENCES, *pairs, *paragraphs]
