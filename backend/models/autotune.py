"""Chooses the runtime, dtype and batch budget for a model: measured once, checked against float32, kept in a file.

On a CPU a model serves at once, by what is known of processors of its kind, and is measured when the service rests
(`resting_process`); on an accelerator, whose memory holds one encoder at a time, the first start measures.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from backend.device.faults import FaultKind, classify
from backend.device.memory.device_memory import release
from backend.device.plan.placement import Placement
from backend.device.plan.precision import DtypeChoice, for_model
from backend.device.records import DeviceType, MachineFacts
from backend.device.tuning_cache import TuningCache, fingerprint
from backend.errors import ModelUnavailable
from backend.models.encoder import Encoder, Vectors
from backend.models.encoder_benchmark import (
    ALWAYS_QUIET,
    AUTO,
    FAST,
    EncoderBenchmark,
    Fidelity,
    FidelityThresholds,
    Quiet,
    measure_fidelity,
    probe_texts,
    rejection_reason,
)
from backend.models.model_files import BUNDLED_SOURCES
from backend.models.resting_process import Work
from backend.models.runtimes import (
    Candidate,
    ModelDoesNotFit,
    Precision,
    Runtime,
    candidates,
    fallback,
    fastest_known,
    load_encoder,
    versions,
    why_none,
)
from backend.models.spec import ModelSpec
from backend.models.tokenizer import TextTokenizer, tokenizer_of
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
_CPU_BUDGETS, _GPU_BUDGETS = (512, 256, 1024), (16384, 4096, 8192, 32768)  # the candidates are compared at the first
_STATIC_BUDGET = 8192  # 8 MB of rows in float32
_GPU_BATCHES = 8  # full ones at least, that a speed is measured on
_MEASUREMENT = 3  # another number measures again
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


_ASKED_DTYPES = {"exact": "fp32", "fp32": "fp32", "bf16": "bf16", "fp16": "fp16"}  # by PRECISION


def torch_dtype_of(
    request: EncoderRequest, placement: Placement, *, family: str, stored_dtype: str | None, cpu_why: str
) -> tuple[str, str]:
    """The dtype of a model that torch alone runs, unmeasured, and why: what PRECISION asks for, else what fits best.

    Args:
        cpu_why: why it is float32 on a CPU.
    """
    if request.precision in _ASKED_DTYPES:
        return _ASKED_DTYPES[request.precision], f"PRECISION={request.precision}"
    if placement.type is DeviceType.CPU:
        return "fp32", f"fp32: {cpu_why}"
    known = for_model(DtypeChoice(placement.dtypes, ""), family, stored_dtype)
    return known.dtypes[0], known.why or f"{known.dtypes[0]}: the card computes it best"


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """One candidate's measurement, shown by GET /v1/system."""

    candidate: str
    tokens_per_s: float  # all lanes together
    fidelity: Fidelity | None
    fault: str  # why it was not eligible, or ""
    lacked_memory: bool = False  # for want of memory, which another start may have


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen runtime, dtype and budget, and why."""

    runtime: str
    dtype: str
    budget: int  # padded tokens of a batch
    tokens_per_s: float
    why: tuple[str, ...]
    measured: tuple[CandidateResult, ...] = ()
    launch_tokens: int = 0  # that the device computes in the time of a launch; 0 where it was not measured
    is_provisional: bool = False  # not measured here yet

    @property
    def candidate(self) -> Candidate:
        return Candidate(self.runtime, self.dtype)


Loader = Callable[[ModelSpec, Candidate, Placement], Encoder]


class Selector:
    """Chooses an encoder for a model on one placement. Only tests replace ``load``.

    Args:
        quiet: when to measure.
    """

    def __init__(
        self,
        facts: MachineFacts,
        placement: Placement,
        kept: TuningCache,
        *,
        load: Loader = load_encoder,
        quiet: Quiet = ALWAYS_QUIET,
    ) -> None:
        self._facts, self._placement, self._kept, self._load, self._quiet = facts, placement, kept, load, quiet

    def select(self, spec: ModelSpec, tokenizer: TextTokenizer, request: EncoderRequest) -> tuple[Encoder, Choice]:
        """The encoder to serve with: the best of ``foreseen`` that loads; where none does, what is measured now.

        Raises: ModelUnavailable when an explicit request, or every candidate, fails.
        """
        if spec.is_static:
            return self._static(spec, request)
        for choice in self.foreseen(spec, request):
            try:
                return self._load(spec, choice.candidate, self._placement), choice
            except (ModelUnavailable, RuntimeError) as error:
                reason = f"{choice.candidate}: {error}"
                log_event(_log, logging.WARNING, "a runtime cannot be used; the next one serves", reason=reason)
        return self.measure(spec, tokenizer, request)

    def _static(self, spec: ModelSpec, request: EncoderRequest) -> tuple[Encoder, Choice]:
        if request.runtime != "auto" or request.precision not in ("auto", "exact", "fast", "fp32"):
            raise ModelUnavailable(
                f"PRECISION={request.precision} RUNTIME={request.runtime} leaves nothing to serve {spec.name} with: it "
                "is a table of vectors without layers; set RUNTIME=auto and PRECISION=auto"
            )
        why = "a table of vectors without layers: no runtime or precision to choose"
        choice = Choice("static", "fp32", request.batch_tokens or _STATIC_BUDGET, 0.0, (why,))
        return self._load(spec, choice.candidate, self._placement), choice

    def foreseen(self, spec: ModelSpec, request: EncoderRequest) -> list[Choice]:
        """What to serve with unmeasured, the best first: what was kept, and on a CPU what is known of its kind.

        Of a model that nobody has measured on such processors nothing but float32 is known to be faithful.
        """
        kept = self.kept(spec, request)
        known = self._known(spec, request) if self._on_cpu else []
        return known if kept is None else [kept, *known]

    def kept(self, spec: ModelSpec, request: EncoderRequest) -> Choice | None:
        """What was measured for this model on this machine, if nothing that it depends on has changed."""
        return self._kept_choice(self._key(spec.sha256, request))

    def work(self, spec: ModelSpec, request: EncoderRequest) -> Work:
        """Measures a model that serves already, in a `resting_process`, and keeps the choice."""
        return partial(_measure_model, partial(Selector, self._facts, self._placement, self._kept), spec, request)

    def measure(self, spec: ModelSpec, tokenizer: TextTokenizer, request: EncoderRequest) -> tuple[Encoder, Choice]:
        """Measure the candidates, and keep what is chosen for later starts. Raises: as ``select``."""
        same_shape = self._key(repr(spec.shape), request)
        encoder, choice = self._from_same_shape(same_shape, spec, tokenizer, request) or self._measure_all(
            spec, tokenizer, request
        )
        if lacked := [row.candidate for row in choice.measured if row.lacked_memory]:
            why = f"measured again at the next start: too little memory was free for {', '.join(lacked)}"
            return encoder, replace(choice, why=(*choice.why, why))
        entry = asdict(replace(choice, why=(*choice.why, "kept from an earlier start")))
        self._kept.save(self._key(spec.sha256, request), entry)
        self._kept.save(same_shape, entry)
        return encoder, choice

    def _known(self, spec: ModelSpec, request: EncoderRequest) -> list[Choice]:
        available = candidates(self._facts, self._placement, request.precision, request.runtime)
        kind, order = fastest_known(self._facts.cpu_flags) if spec.source in BUNDLED_SOURCES else ("", ())
        if spec.adapter is not None:  # the tagger's: ONNX Runtime's int8 and int7 do not keep to float32 with it
            order = tuple(each for each in order if each.runtime != "onnx")
        exact_first = sorted(available, key=lambda each: each.dtype != "fp32")
        ranked = [*(each for each in order if each in available), *(each for each in exact_first if each not in order)]
        budget = self._budgets(request)[0]
        known = f"the fastest faithful one measured on processors with {kind}, until this one is measured"
        safe = "serves until this processor is measured"
        return [
            Choice(
                each.runtime,
                each.dtype,
                budget,
                0.0,
                (f"{each}: {known if each in order else safe}",),
                is_provisional=True,
            )
            for each in ranked
        ]

    def _key(self, model: str, request: EncoderRequest) -> str:
        facts = self._facts
        cards = [(gpu.uuid, gpu.name, gpu.total_bytes, gpu.capability) for gpu in facts.usable]
        machine = (facts.cpu_name, facts.cpu_flags, cards, facts.driver.version)
        place = (self._placement.device, self._placement.lanes, self._placement.threads)
        parts = {"model": model, "wish": asdict(request), "machine": machine, "place": place, "versions": versions()}
        return fingerprint({**parts, "measurement": _MEASUREMENT})

    @property
    def _on_cpu(self) -> bool:
        return self._placement.type is DeviceType.CPU

    def _kept_choice(self, key: str) -> Choice | None:
        try:
            entry = self._kept.load(key)
            return None if entry is None else _choice_from(entry)
        except (KeyError, TypeError, ValueError) as error:
            _cannot_be_used(error)
            return None

    def _from_same_shape(
        self, key: str, spec: ModelSpec, tokenizer: TextTokenizer, request: EncoderRequest
    ) -> tuple[Encoder, Choice] | None:
        """The choice for another model of the same shape, if it is faithful here too: equal shapes are equally fast."""
        choice = self._kept_choice(key)
        if choice is None:
            return None
        contest = self._contest(spec, self._benchmark(tokenizer, choice.budget), request)
        contest.measure([choice.candidate])
        row = contest.rows[0]
        if row.fault:
            _cannot_be_used(row.fault)
            return None
        why = (
            f"{row.candidate}: the fastest for a model of the same shape here, and it keeps to float32 with this one",
            f"batches of {choice.budget} padded tokens: {row.tokens_per_s:.0f} tokens/s",
        )
        _, encoder = contest.winner(spec, request, self._placement)
        return encoder, replace(choice, tokens_per_s=row.tokens_per_s, why=why, measured=(row,))

    def _benchmark(self, tokenizer: TextTokenizer, budget: int) -> EncoderBenchmark:
        ids = [tokens.ids for tokens in tokenizer.encode(probe_texts())]
        place = self._placement
        batches = 0 if self._on_cpu else _GPU_BATCHES
        return EncoderBenchmark(
            ids,
            lanes=place.lanes,
            budget=budget,
            depth=place.depth,
            budgets_at_least=batches,
            quiet=self._quiet,
            clock=(lambda: time.process_time() / place.lanes) if self._on_cpu else time.perf_counter,
        )

    def _measure_all(
        self, spec: ModelSpec, tokenizer: TextTokenizer, request: EncoderRequest
    ) -> tuple[Encoder, Choice]:
        log_event(_log, logging.INFO, "measuring runtimes, once for this model and machine", model=spec.name)
        first, *others = self._budgets(request)
        benchmark = self._benchmark(tokenizer, first)
        contest = self._measured(spec, benchmark, request)
        best, encoder = contest.winner(spec, request, self._placement)
        speeds = {size: _speed(benchmark, encoder, size) for size in others}
        choice = _choice(best, {first: best.tokens_per_s, **speeds}, contest.rows, request)
        return encoder, choice if self._on_cpu else _with_launch(choice, encoder, benchmark)

    def _budgets(self, request: EncoderRequest) -> tuple[int, ...]:
        if request.batch_tokens:
            return (request.batch_tokens,)
        return _CPU_BUDGETS if self._on_cpu else _GPU_BUDGETS

    def _contest(self, spec: ModelSpec, benchmark: EncoderBenchmark, request: EncoderRequest) -> _Contest:
        place = self._placement
        return _Contest(
            lambda each: self._load(spec, each, place),
            benchmark,
            request.thresholds,
            device=place.device,
            holds_best=self._on_cpu,
        )

    def _measured(self, spec: ModelSpec, benchmark: EncoderBenchmark, request: EncoderRequest) -> _Contest:
        available = candidates(self._facts, self._placement, request.precision, request.runtime)
        suitable, unsuitable = self._suitable(spec, available, request)
        contest = self._contest(spec, benchmark, request)
        contest.measure(suitable)
        if not contest.has_loaded and self._on_cpu:
            contest.measure(fallback(request.precision, request.runtime))
        contest.rows += unsuitable
        return contest

    def _suitable(
        self, spec: ModelSpec, available: Sequence[Candidate], request: EncoderRequest
    ) -> tuple[list[Candidate], list[CandidateResult]]:
        """The candidates without dtypes this model is known to overflow in; an explicit dtype is measured anyway."""
        if self._on_cpu or request.precision not in ("auto", "fast"):
            return list(available), []
        known = for_model(DtypeChoice(self._placement.dtypes, ""), spec.shape.family, spec.stored_dtype)
        unsuitable = [
            CandidateResult(str(each), 0.0, None, known.why) for each in available if each.dtype not in known.dtypes
        ]
        return [each for each in available if each.dtype in known.dtypes], unsuitable


class _Contest:
    """Measures candidates one after the other: all of them at once fill a small card.

    Args:
        load: an encoder by its candidate.
        holds_best: whether the best so far stays while the next is loaded. Else it is freed, and loaded again at the
            end: on a card it would take the memory that decides whether the next one fits.
    """

    def __init__(
        self,
        load: Callable[[Candidate], Encoder],
        benchmark: EncoderBenchmark,
        thresholds: FidelityThresholds,
        *,
        device: str,
        holds_best: bool,
    ) -> None:
        self._load_encoder, self._benchmark, self._thresholds = load, benchmark, thresholds
        self._device, self._holds_best = device, holds_best
        self._reference: Vectors | None = None
        self._best: tuple[CandidateResult, Candidate] | None = None
        self._held: Encoder | None = None  # of the best
        self.rows: list[CandidateResult] = []
        self.has_loaded = False

    def measure(self, available: Sequence[Candidate]) -> None:
        """Measure each; float32 first, as the others are compared with it."""
        for candidate in sorted(available, key=lambda each: each.dtype != "fp32"):
            try:
                self._enter(candidate)
            except (ModelUnavailable, RuntimeError) as error:  # RuntimeError: OpenVINO's and ONNX Runtime's own
                self.rows.append(_failed(str(candidate), "cannot be loaded", error))

    def winner(self, spec: ModelSpec, request: EncoderRequest, placement: Placement) -> tuple[CandidateResult, Encoder]:
        """The fastest that passes; where none does (an explicit precision), the fastest that runs."""
        if self._best is None:
            raise _nothing_left(spec, request, self.rows, placement)
        row, candidate = self._best
        if self._held is None:
            self._held = self._load(candidate)
        return row, self._held

    def _enter(self, candidate: Candidate) -> None:
        if self._reference is None and candidate.dtype != "fp32":
            self._reference = self._benchmark.vectors(self._load(Candidate(candidate.runtime, "fp32")))
        encoder = self._load(candidate)
        self.has_loaded = True
        if self._reference is None:
            self._reference = self._benchmark.vectors(encoder)
        row = _measure(str(candidate), encoder, self._benchmark, self._reference, self._thresholds)
        self.rows.append(row)
        if row.fidelity is not None and (self._best is None or _rank(row) > _rank(self._best[0])):
            self._best, self._held = (row, candidate), encoder

    def _load(self, candidate: Candidate) -> Encoder:
        if not self._holds_best:
            self._held = None
        release(self._device)
        self._benchmark.quiet.wait()
        return self._load_encoder(candidate)


def _rank(row: CandidateResult) -> tuple[bool, float]:
    return not row.fault, row.tokens_per_s


def _measure(
    name: str, encoder: Encoder, benchmark: EncoderBenchmark, reference: Vectors, thresholds: FidelityThresholds
) -> CandidateResult:
    try:
        vectors = benchmark.vectors(encoder)
        fidelity = measure_fidelity(vectors, *benchmark.batched_and_single(encoder, vectors), reference)
        return CandidateResult(name, benchmark.speed(encoder), fidelity, rejection_reason(fidelity, thresholds))
    except Exception as error:  # noqa: BLE001  # the border to a foreign runtime: a kernel broken here shows only now
        return _failed(name, "fails", error)


def _failed(name: str, what: str, error: Exception) -> CandidateResult:
    lacked = isinstance(error, ModelDoesNotFit) or classify(error).kind is FaultKind.OUT_OF_MEMORY
    return CandidateResult(name, 0.0, None, f"{what}: {error}", lacked)


def _cannot_be_used(reason: object) -> None:
    log_event(_log, logging.WARNING, "the kept choice cannot be used; measuring again", reason=reason)


def _speed(benchmark: EncoderBenchmark, encoder: Encoder, budget: int) -> float:
    """Tokens a second; 0 where batches of that budget do not fit the device."""
    try:
        return benchmark.speed(encoder, budget)
    except (RuntimeError, MemoryError) as error:
        if classify(error).kind is not FaultKind.OUT_OF_MEMORY:
            raise
        log_event(_log, logging.WARNING, "the device is too small for this budget", budget=budget)
        return 0.0


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


def _with_launch(choice: Choice, encoder: Encoder, benchmark: EncoderBenchmark) -> Choice:
    """With the measured cost of a launch, at most half a batch: what comes later must find room in one."""
    tokens = min(choice.budget // 2, benchmark.launch_tokens(encoder, choice.tokens_per_s))
    why = f"a launch takes as long as {tokens} tokens: padding up to that is free"
    return replace(choice, launch_tokens=tokens, why=(*choice.why, why))


def _choice_from(entry: Mapping[str, Any]) -> Choice:
    """Raises: KeyError, TypeError or ValueError for an entry of another shape."""
    rows = [{**row, "fidelity": Fidelity(**row["fidelity"]) if row["fidelity"] else None} for row in entry["measured"]]
    if not isinstance(entry["budget"], int) or entry["budget"] < 1:
        raise ValueError(f"budget {entry['budget']!r} is no number of tokens")
    return Choice(**{**entry, "why": tuple(entry["why"]), "measured": tuple(CandidateResult(**row) for row in rows)})


def _measure_model(selector: Callable[..., Selector], spec: ModelSpec, request: EncoderRequest, quiet: Quiet) -> None:
    selector(quiet=quiet).measure(spec, tokenizer_of(spec), request)
