"""Chooses the runtime, dtype and batch budget for a model: measured once, checked against float32, kept in a file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from backend.device.faults import FaultKind, classify
from backend.device.plan.placement import Placement
from backend.device.plan.precision import DtypeChoice, for_model
from backend.device.records import DeviceType, MachineFacts
from backend.device.tuning_cache import TuningCache, fingerprint
from backend.errors import ModelUnavailable
from backend.models.encoder import Encoder, Vectors
from backend.models.encoder_benchmark import (
    AUTO,
    FAST,
    EncoderBenchmark,
    Fidelity,
    FidelityThresholds,
    measure_fidelity,
    probe_texts,
    rejection_reason,
)
from backend.models.runtimes import (
    Candidate,
    Precision,
    Runtime,
    candidates,
    fallback,
    load_encoder,
    versions,
    why_none,
)
from backend.models.spec import ModelSpec
from backend.models.tokenizer import TextTokenizer
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
_CPU_BUDGETS, _GPU_BUDGETS = (512, 256, 1024), (16384, 4096, 8192, 32768)  # the candidates are compared at the first
_WORTH_IT = 1.05  # a larger budget must be this much faster: it costs latency


@dataclass(frozen=True, slots=True)
class EncoderRequest:
    """What the operator set: PRECISION, RUNTIME, BATCH_TOKENS."""

    precision: Precision = "auto"
    runtime: Runtime = "auto"
    batch_tokens: int | None = None

    @property
    def thresholds(self) -> FidelityThresholds:
        """How faithful a candidate must be."""
        return FAST if self.precision == "fast" else AUTO


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """One candidate's measurement, shown by GET /v1/system."""

    candidate: str
    tokens_per_s: float  # all lanes together
    fidelity: Fidelity | None
    fault: str  # why it was not eligible, or ""


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen runtime, dtype and budget, and why."""

    runtime: str
    dtype: str
    budget: int  # padded tokens of a batch
    tokens_per_s: float
    why: tuple[str, ...]
    measured: tuple[CandidateResult, ...] = ()


Loader = Callable[[ModelSpec, Candidate, Placement], Encoder]


class Selector:
    """Chooses an encoder for a model on one placement. Only tests replace ``load``."""

    def __init__(
        self, facts: MachineFacts, placement: Placement, kept: TuningCache, *, load: Loader = load_encoder
    ) -> None:
        self._facts, self._placement, self._kept, self._load = facts, placement, kept, load

    def select(self, spec: ModelSpec, tokenizer: TextTokenizer, request: EncoderRequest) -> tuple[Encoder, Choice]:
        """The encoder to serve with. The first start measures for some seconds; later ones read the file.

        Raises: ModelUnavailable when an explicit request, or every candidate, fails.
        """
        key, same_shape = self._key(spec.sha256, request), self._key(repr(spec.shape), request)
        kept = self._from_file(key, spec)
        if kept is not None:
            return kept
        encoder, choice = self._from_same_shape(same_shape, spec, tokenizer, request) or self._measure_all(
            spec, tokenizer, request
        )
        entry = asdict(replace(choice, why=(*choice.why, "kept from an earlier start")))
        self._kept.save(key, entry)
        self._kept.save(same_shape, entry)
        return encoder, choice

    def _key(self, model: str, request: EncoderRequest) -> str:
        facts = self._facts
        cards = [(gpu.uuid, gpu.name, gpu.total_bytes, gpu.capability) for gpu in facts.usable]
        machine = (facts.cpu_name, facts.cpu_flags, cards, facts.driver.version)
        place = (self._placement.device, self._placement.lanes, self._placement.threads)
        return fingerprint(
            {"model": model, "wish": asdict(request), "machine": machine, "place": place, "versions": versions()}
        )

    def _from_file(self, key: str, spec: ModelSpec) -> tuple[Encoder, Choice] | None:
        try:
            entry = self._kept.load(key)
            if entry is None:
                return None
            choice = _choice_from(entry)
            return self._load(spec, Candidate(choice.runtime, choice.dtype), self._placement), choice
        except (ModelUnavailable, RuntimeError, KeyError, TypeError, ValueError) as error:
            log_event(_log, logging.WARNING, "the kept choice cannot be used; measuring again", reason=error)
            return None

    def _from_same_shape(
        self, key: str, spec: ModelSpec, tokenizer: TextTokenizer, request: EncoderRequest
    ) -> tuple[Encoder, Choice] | None:
        """The choice for another model of the same shape, if it is faithful here too: equal shapes are equally fast."""
        kept = self._from_file(key, spec)
        if kept is None:
            return None
        encoder, choice = kept
        benchmark = self._benchmark(tokenizer, choice.budget)
        name = f"{choice.runtime} {choice.dtype}"
        reference = benchmark.vectors(self._reference(spec, {name: encoder}))
        row = _measure(name, encoder, benchmark, reference, request.thresholds)
        if row.fault:
            return None
        why = (
            f"{name}: the fastest for a model of the same shape on this machine, and it keeps to float32 with this one",
            f"batches of {choice.budget} padded tokens: {row.tokens_per_s:.0f} tokens/s",
        )
        return encoder, replace(choice, tokens_per_s=row.tokens_per_s, why=why, measured=(row,))

    def _benchmark(self, tokenizer: TextTokenizer, budget: int) -> EncoderBenchmark:
        ids = [tokens.ids for tokens in tokenizer.encode(probe_texts())]
        return EncoderBenchmark(ids, lanes=self._placement.lanes, budget=budget)

    def _measure_all(
        self, spec: ModelSpec, tokenizer: TextTokenizer, request: EncoderRequest
    ) -> tuple[Encoder, Choice]:
        log_event(_log, logging.INFO, "measuring runtimes, once for this model and machine", model=spec.name)
        first, *others = self._budgets(request)
        benchmark = self._benchmark(tokenizer, first)
        encoders, failures = self._load_any(spec, request)
        reference = benchmark.vectors(self._reference(spec, encoders))
        rows = [_measure(name, encoder, benchmark, reference, request.thresholds) for name, encoder in encoders.items()]
        best = _best(rows, spec, request, self._placement)
        speeds = {size: _speed(benchmark, encoders[best.candidate], size) for size in others}
        return encoders[best.candidate], _choice(
            best, {first: best.tokens_per_s, **speeds}, [*rows, *failures], request
        )

    def _budgets(self, request: EncoderRequest) -> tuple[int, ...]:
        if request.batch_tokens:
            return (request.batch_tokens,)
        return _CPU_BUDGETS if self._placement.type is DeviceType.CPU else _GPU_BUDGETS

    def _load_any(self, spec: ModelSpec, request: EncoderRequest) -> tuple[dict[str, Encoder], list[CandidateResult]]:
        available = candidates(self._facts, self._placement, request.precision, request.runtime)
        suitable, failures = self._suitable(spec, available, request)
        encoders, more = self._load_all(spec, suitable)
        failures = [*more, *failures]
        if not encoders and self._placement.type is DeviceType.CPU:
            encoders, more = self._load_all(spec, fallback(request.precision, request.runtime))
            failures += more
        if not encoders:
            raise _nothing_left(spec, request, failures, self._placement)
        return encoders, failures

    def _suitable(
        self, spec: ModelSpec, available: Sequence[Candidate], request: EncoderRequest
    ) -> tuple[list[Candidate], list[CandidateResult]]:
        """The candidates without dtypes this model is known to overflow in; an explicit dtype is measured anyway."""
        if self._placement.type is DeviceType.CPU or request.precision not in ("auto", "fast"):
            return list(available), []
        known = for_model(DtypeChoice(self._placement.dtypes, ""), spec.shape.family, spec.stored_dtype)
        unsuitable = [
            CandidateResult(str(each), 0.0, None, known.why) for each in available if each.dtype not in known.dtypes
        ]
        return [each for each in available if each.dtype in known.dtypes], unsuitable

    def _load_all(
        self, spec: ModelSpec, available: Sequence[Candidate]
    ) -> tuple[dict[str, Encoder], list[CandidateResult]]:
        encoders: dict[str, Encoder] = {}
        failures: list[CandidateResult] = []
        for candidate in available:
            try:
                encoders[str(candidate)] = self._load(spec, candidate, self._placement)
            except (ModelUnavailable, RuntimeError) as error:  # RuntimeError: OpenVINO's and ONNX Runtime's own
                failures.append(CandidateResult(str(candidate), 0.0, None, f"cannot be loaded: {error}"))
        return encoders, failures

    def _reference(self, spec: ModelSpec, encoders: dict[str, Encoder]) -> Encoder:
        for encoder in encoders.values():
            if encoder.dtype == "fp32":
                return encoder
        runtime = next(iter(encoders.values())).runtime
        return self._load(spec, Candidate(runtime, "fp32"), self._placement)


def _measure(
    name: str, encoder: Encoder, benchmark: EncoderBenchmark, reference: Vectors, thresholds: FidelityThresholds
) -> CandidateResult:
    try:
        vectors = benchmark.vectors(encoder)
        fidelity = measure_fidelity(vectors, *benchmark.batched_and_single(encoder, vectors), reference)
        return CandidateResult(name, benchmark.speed(encoder), fidelity, rejection_reason(fidelity, thresholds))
    except Exception as error:  # noqa: BLE001  # the border to a foreign runtime: a kernel broken here shows only now
        return CandidateResult(name, 0.0, None, f"fails: {error}")


def _speed(benchmark: EncoderBenchmark, encoder: Encoder, budget: int) -> float:
    """Tokens a second; 0 where batches of that budget do not fit the device."""
    try:
        return benchmark.speed(encoder, budget)
    except (RuntimeError, MemoryError) as error:
        if classify(error).kind is not FaultKind.OUT_OF_MEMORY:
            raise
        log_event(_log, logging.WARNING, "the device is too small for this budget", budget=budget)
        return 0.0


def _best(
    rows: Sequence[CandidateResult], spec: ModelSpec, request: EncoderRequest, placement: Placement
) -> CandidateResult:
    """The fastest that passes; where none does (an explicit precision), the fastest that runs."""
    running = [row for row in rows if row.fidelity is not None]
    if not running:
        raise _nothing_left(spec, request, rows, placement)
    return max([row for row in running if not row.fault] or running, key=lambda row: row.tokens_per_s)


def _nothing_left(
    spec: ModelSpec, request: EncoderRequest, rows: Sequence[CandidateResult], placement: Placement
) -> ModelUnavailable:
    reasons = "; ".join(f"{row.candidate}: {row.fault}" for row in rows) or why_none(placement)
    wished = f"PRECISION={request.precision} RUNTIME={request.runtime}"
    return ModelUnavailable(f"{wished} leaves nothing to serve {spec.name} with: {reasons}")


def _choice(
    best: CandidateResult, speeds: Mapping[int, float], rows: Sequence[CandidateResult], request: EncoderRequest
) -> Choice:
    """``speeds``: the best candidate's tokens a second, by budget."""
    fastest = max(speeds.values())
    budget = min(size for size, speed in speeds.items() if speed * _WORTH_IT >= fastest)
    eligible = sum(not row.fault for row in rows)
    rank = f"the fastest of {eligible} that keep to float32" if not best.fault else "the fastest that runs"
    why = [
        f"{best.candidate}: {best.tokens_per_s:.0f} tokens/s, {rank}",
        f"batches of {budget} padded tokens: {speeds[budget]:.0f} tokens/s",
    ]
    if best.fault:
        why.append(f"PRECISION={request.precision} was asked for although {best.fault}")
    runtime, dtype = best.candidate.split()
    return Choice(runtime, dtype, budget, speeds[budget], tuple(why), tuple(rows))


def _choice_from(entry: Mapping[str, Any]) -> Choice:
    """Raises: KeyError, TypeError or ValueError for an entry of another shape."""
    rows = [{**row, "fidelity": Fidelity(**row["fidelity"]) if row["fidelity"] else None} for row in entry["measured"]]
    if not isinstance(entry["budget"], int) or entry["budget"] < 1:
        raise ValueError(f"budget {entry['budget']!r} is no number of tokens")
    return Choice(**{**entry, "why": tuple(entry["why"]), "measured": tuple(CandidateResult(**row) for row in rows)})
