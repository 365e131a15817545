"""Speed of an encoder, and how far its vectors are from float32's, on texts written for this project."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise

import numpy as np

from backend.models.encoder import Encoder, Ids, Vectors
from backend.models.spec import Pooling
from backend.models.vectors import normalized

BATCH_SINGLE_AT_LEAST = 0.9999  # the promise: a text gets one vector, whatever is in the batch with it
# The best of short windows: other work on the machine only ever makes one slower. Single windows of 0.3 s chose
# budgets of 256, 512 and 1024 in three starts in a row.
_WINDOWS, _WINDOW_S = 3, 0.15
_SINGLES = 16  # probe texts that are also encoded alone
_SHORT_LENGTHS = (1, 2, 3, 4, 6, 8)  # tokens: products of few rows may run in other kernels (docs/engine.md)
_LONG_LENGTHS = (3, 4, 5, 6, 8, 10, 12, 14)  # sentences in a paragraph
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


def probe_texts() -> list[str]:
    """64 Spanish and English texts, from one sentence to a page: mean length near 40 tokens, as real traffic has."""
    pairs = [f"{first} {second}" for first, second in list(pairwise(_SENTENCES))[:24]]
    paragraphs = [
        " ".join((_SENTENCES * 2)[3 * index : 3 * index + count]) for index, count in enumerate(_LONG_LENGTHS)
    ]
    return [*_SENTENCES, *pairs, *paragraphs]


@dataclass(frozen=True, slots=True)
class Fidelity:
    """Agreement with float32 on the probe texts, and of the encoder with itself."""

    batch_single: float  # least cosine between a text's vector alone and among others
    spearman: float  # of all pairwise similarities with float32's
    neighbours: float  # share of texts whose nearest neighbour is float32's too
    cosine: float  # least cosine to float32


@dataclass(frozen=True, slots=True)
class FidelityThresholds:
    """What a candidate must reach."""

    spearman: float
    neighbours: float


AUTO = FidelityThresholds(spearman=0.995, neighbours=0.9)
FAST = FidelityThresholds(spearman=0.98, neighbours=0.8)


def measure_fidelity(vectors: Vectors, batched: Vectors, single: Vectors, reference: Vectors) -> Fidelity:
    """Compare a candidate with float32 and with itself.

    Shapes: vectors, reference (texts, width); batched, single (others, width), the same texts encoded in batches and
    one by one.
    """
    vectors, reference = normalized(vectors), normalized(reference)
    similarities, expected = vectors @ vectors.T, reference @ reference.T
    pairs = np.triu_indices(len(vectors), k=1)
    return Fidelity(
        batch_single=_least_cosine(normalized(batched), normalized(single)),
        spearman=spearman(similarities[pairs], expected[pairs]),
        neighbours=float(np.mean(_nearest(similarities) == _nearest(expected))),
        cosine=_least_cosine(vectors, reference),
    )


def rejection_reason(fidelity: Fidelity, thresholds: FidelityThresholds) -> str:
    """Why the candidate does not pass, or "". A non-finite vector makes every comparison fail."""
    if not fidelity.batch_single >= BATCH_SINGLE_AT_LEAST:
        return f"neighbours change a vector: batch against single {fidelity.batch_single:.5f} < {BATCH_SINGLE_AT_LEAST}"
    if not fidelity.spearman >= thresholds.spearman:
        return f"similarities differ from float32: Spearman {fidelity.spearman:.4f} < {thresholds.spearman}"
    if not fidelity.neighbours >= thresholds.neighbours:
        share, needed = fidelity.neighbours, thresholds.neighbours
        return f"nearest neighbours differ from float32: {share:.0%} agree, {needed:.0%} needed"
    return ""


def spearman(first: Vectors, second: Vectors) -> float:
    """Rank correlation of two equally long 1-D arrays (ties in order of appearance)."""
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


class EncoderBenchmark:
    """Runs encoders on token ids, shortest text first, on as many threads as there are lanes.

    Used while the service starts, when nothing else runs.
    """

    def __init__(self, ids: Sequence[Ids], *, lanes: int, budget: int) -> None:
        """``budget``: padded tokens of a batch unless a call says otherwise."""
        self._lanes, self._budget = lanes, budget
        self._ids = sorted(ids, key=len)

    def vectors(self, encoder: Encoder) -> Vectors:
        """(texts, width), mean-pooled, computed in batches within the budget."""
        return np.concatenate([encode_batch(encoder, batch) for batch in cut_batches(self._ids, self._budget)])

    def batched_and_single(self, encoder: Encoder, vectors: Vectors) -> tuple[Vectors, Vectors]:
        """The same texts encoded in batches and one by one: (texts, width) twice.

        Every few probe texts of rising length, and beginnings of the longest one that are as short as a query of one
        word.

        Args:
            vectors: of all probe texts, as ``vectors`` gives them.
        """
        rows = range(0, len(self._ids), max(1, len(self._ids) // _SINGLES))
        longest = self._ids[-1]
        short = [longest[:length] for length in _SHORT_LENGTHS if length < len(longest)]
        batched = np.concatenate([vectors[rows], encode_batch(encoder, [*short, longest])[: len(short)]])
        texts = [*(self._ids[row] for row in rows), *short]
        return batched, np.concatenate([encode_batch(encoder, [text]) for text in texts])

    def speed(self, encoder: Encoder, budget: int | None = None) -> float:
        """Tokens a second, all lanes together, after one pass that compiles the shapes."""
        batches = cut_batches(self._ids, budget or self._budget)
        for batch in batches:
            encode_batch(encoder, batch)
        return max(self._window(encoder, batches) for _ in range(_WINDOWS))

    def _window(self, encoder: Encoder, batches: list[list[Ids]]) -> float:
        endless, lock, token_counts = cycle(batches), threading.Lock(), list[int]()
        started_s = time.perf_counter()
        arguments = (encoder, endless, lock, token_counts, started_s + _WINDOW_S)
        threads = [threading.Thread(target=_run_until, args=arguments) for _ in range(self._lanes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(token_counts) / (time.perf_counter() - started_s)


def cut_batches(ids: Sequence[Ids], budget: int) -> list[list[Ids]]:
    """Consecutive texts, shortest first, while longest x count stays within the budget."""
    batches: list[list[Ids]] = [[]]
    for text in ids:
        if batches[-1] and len(text) * (len(batches[-1]) + 1) > budget:
            batches.append([])
        batches[-1].append(text)
    return batches


def encode_batch(encoder: Encoder, ids: Sequence[Ids]) -> Vectors:
    """Mean-pooled vectors of one batch: (texts, width)."""
    batch = encoder.prepare(ids)
    return encoder.pooled(encoder.forward(batch), batch, Pooling.MEAN)


def _run_until(
    encoder: Encoder, endless: Iterator[list[Ids]], lock: threading.Lock, token_counts: list[int], until_s: float
) -> None:
    while time.perf_counter() < until_s:
        with lock:
            batch = next(endless)
        encode_batch(encoder, batch)
        token_counts.append(sum(map(len, batch)))


def _ranks(values: Vectors) -> Vectors:
    ranks = np.empty(len(values), np.float32)
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
    return ranks


def _nearest(similarities: Vectors) -> Vectors:
    others = similarities - 4.0 * np.eye(len(similarities), dtype=np.float32)  # a text is not its own neighbour
    nearest: Vectors = others.argmax(axis=1)
    return nearest


def _least_cosine(first: Vectors, second: Vectors) -> float:
    return float((first * second).sum(axis=1).min())
