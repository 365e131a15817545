"""Speed of an encoder, and how far its vectors are from float32's, on texts written for this project."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from typing import Protocol

import numpy as np

from backend.models.encoder import Encoder, Ids, Vectors, normalized
from backend.models.readout import PooledVectors, reads_on_device
from backend.models.spec import Pooling

MIN_BATCH_SINGLE = 0.9999  # the promise: a text gets one vector, whatever is in the batch with it
# The best of short windows: other work on the machine only ever makes one slower. Single windows of 0.3 s chose
# budgets of 256, 512 and 1024 in three starts in a row.
WINDOWS, WINDOW_S = 3, 0.15
_TRIES = 5  # of a speed that other work disturbed
WARM_UP_S = 3.0  # of one speed: on a slow device part of the batches tells as much
_READOUT = PooledVectors(Pooling.MEAN)
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
    if not fidelity.batch_single >= MIN_BATCH_SINGLE:
        return f"neighbours change a vector: batch against single {fidelity.batch_single:.5f} < {MIN_BATCH_SINGLE}"
    if not fidelity.spearman >= thresholds.spearman:
        return f"similarities differ from float32: Spearman {fidelity.spearman:.4f} < {thresholds.spearman}"
    if not fidelity.neighbours >= thresholds.neighbours:
        share, needed = fidelity.neighbours, thresholds.neighbours
        return f"nearest neighbours differ from float32: {share:.0%} agree, {needed:.0%} needed"
    return ""


def spearman(first: Vectors, second: Vectors) -> float:
    """Rank correlation of two equally long 1-D arrays (ties in order of appearance)."""
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


class Quiet(Protocol):
    """Tells a measurement when it has the machine to itself."""

    def wait(self) -> None:
        """Return once nothing else is to be done."""

    def was_disturbed(self) -> bool:
        """Whether something else ran since the last ``wait``."""


class _AlwaysQuiet:
    def wait(self) -> None:
        pass

    def was_disturbed(self) -> bool:
        return False


ALWAYS_QUIET = _AlwaysQuiet()


class EncoderBenchmark:
    """Runs encoders on token ids, shortest text first, on as many threads as there are lanes."""

    def __init__(
        self,
        ids: Sequence[Ids],
        *,
        lanes: int,
        budget: int,
        depth: int = 1,
        budgets_at_least: int = 0,
        quiet: Quiet = ALWAYS_QUIET,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Store what to measure on.

        Args:
            budget: padded tokens of a batch unless a call says otherwise.
            depth: batches in progress on a lane, as in serving.
            budgets_at_least: speeds are measured on the texts repeated until they fill so many batches. For
                accelerators: on one batch that is not full, all runtimes take as long as their launches.
            quiet: when speeds may be measured; one that was disturbed is measured again, some times.
            clock: seconds that a speed is of; on a CPU its lanes' processor time, which other processes hardly change.
        """
        self._lanes, self._budget, self._depth, self._budgets_at_least = lanes, budget, depth, budgets_at_least
        self.quiet, self._clock = quiet, clock
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
        """Tokens a second, all lanes together, after a pass that compiles the shapes."""
        batches = self._warm_up(encoder, self._speed_batches(encoder, budget or self._budget))
        self._window(encoder, batches)  # batches side by side may be compiled apart
        best = 0.0
        for _ in range(_TRIES):
            self.quiet.wait()
            best = max(best, self._best_window(encoder, batches))
            if not self.quiet.was_disturbed():
                break
        return best

    def launch_tokens(self, encoder: Encoder, tokens_per_s: float) -> int:
        """How many tokens the encoder computes, at that speed of full batches, in the time of its smallest batch."""
        smallest = self._ids[0]
        rate = self._best_window(encoder, self._warm_up(encoder, [[smallest]]))
        return round(tokens_per_s * len(smallest) / rate) if rate > 0 else 0

    def _speed_batches(self, encoder: Encoder, budget: int) -> list[list[Ids]]:
        repeats = -(-self._budgets_at_least * budget // sum(map(len, self._ids)))
        ids = [text for text in self._ids for _ in range(max(1, repeats))]
        batches = cut_batches(ids, budget, packed=not encoder.padding_cost)
        if repeats > 1:  # any part of them is then of mixed lengths
            random.Random(0).shuffle(batches)  # noqa: S311 - the same order for every candidate
        return batches

    def _warm_up(self, encoder: Encoder, batches: list[list[Ids]]) -> list[list[Ids]]:
        """Run the batches, for some seconds; those that were run. Accelerators record a graph the second time."""
        until_s = self._clock() + WARM_UP_S
        for count, batch in enumerate(batches, start=1):
            for _ in range(2 if self._budgets_at_least else 1):
                encode_batch(encoder, batch)
            if self._clock() > until_s:
                return batches[:count]
        return batches

    def _best_window(self, encoder: Encoder, batches: list[list[Ids]]) -> float:
        return max(self._window(encoder, batches) for _ in range(WINDOWS))

    def _window(self, encoder: Encoder, batches: list[list[Ids]]) -> float:
        shared = _SharedBatches(cycle(batches))
        started_s = self._clock()
        arguments = (encoder, shared, self._depth, lambda: self._clock() > started_s + WINDOW_S)
        threads = [threading.Thread(target=_run_until, args=arguments) for _ in range(self._lanes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if shared.failures:
            raise shared.failures[0]
        return sum(shared.token_counts) / (self._clock() - started_s)


class _SharedBatches:
    """What the threads of a window take their batches from, and report to."""

    def __init__(self, endless: Iterator[list[Ids]]) -> None:
        self._endless, self._lock = endless, threading.Lock()
        self.token_counts: list[int] = []
        self.failures: list[Exception] = []

    def take(self) -> list[Ids]:
        with self._lock:
            return next(self._endless)


def cut_batches(ids: Sequence[Ids], budget: int, *, packed: bool = False) -> list[list[Ids]]:
    """Consecutive texts, shortest first, while longest x count stays within the budget; their sum where ``packed``."""
    batches: list[list[Ids]] = [[]]
    tokens = 0
    for text in ids:
        tokens += len(text)
        if batches[-1] and (tokens if packed else len(text) * (len(batches[-1]) + 1)) > budget:
            batches.append([])
            tokens = len(text)
        batches[-1].append(text)
    return batches


def encode_batch(encoder: Encoder, ids: Sequence[Ids]) -> Vectors:
    """Mean-pooled vectors of one batch: (texts, width)."""
    return launch(encoder, ids)()


def launch(encoder: Encoder, ids: Sequence[Ids]) -> Callable[[], Vectors]:
    """Start a batch as a lane does; the result waits for the device and gives the mean-pooled vectors."""
    batch = encoder.prepare(ids)
    if reads_on_device(encoder):
        queued = encoder.queue(batch, _READOUT)
        return lambda: np.stack(queued.wait()[0])
    output = encoder.forward(batch)
    return lambda: encoder.pooled(output, batch, Pooling.MEAN)


def _run_until(encoder: Encoder, shared: _SharedBatches, depth: int, is_over: Callable[[], bool]) -> None:
    """As a lane: the next batch is launched before the oldest in flight is waited for."""
    in_flight: deque[tuple[Callable[[], Vectors], int]] = deque()

    def finish_oldest() -> None:
        wait, tokens = in_flight.popleft()
        wait()
        shared.token_counts.append(tokens)

    try:
        while not is_over():
            batch = shared.take()
            in_flight.append((launch(encoder, batch), sum(map(len, batch))))
            if len(in_flight) >= depth:
                finish_oldest()
        while in_flight:
            finish_oldest()
    except Exception as error:  # noqa: BLE001 - raised again on the thread that measures
        shared.failures.append(error)


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
