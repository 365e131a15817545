"""Which runtime, dtype and budget serve a model fastest here: measured once, checked against float32, kept."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from backend.device.facts.machine import DeviceType, MachineFacts
from backend.device.faults import FaultKind, classify
from backend.device.measurements import TunedSettings, fingerprint
from backend.device.plan.placement import Placement
from backend.device.plan.precision import DtypeChoice, for_model
from backend.errors import ModelUnavailable
from backend.models.encoder import Encoder, Vectors
from backend.models.encoder_bench import Bench
from backend.models.fidelity import AUTO, FAST, Bar, Fidelity, compare, fault
from backend.models.probe_texts import probe_texts
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
_CPU_BUDGETS, _GPU_BUDGETS = (512, 256, 1024), (16384, 4096, 8192, 32768)  # the first one ranks the candidates
_WORTH_IT = 1.05  # a larger budget must be this much faster: it costs latency


@dataclass(frozen=True, slots=True)
class Wish:
    """What the operator asked for."""

    precision: Precision = "auto"
    runtime: Runtime = "auto"
    batch_tokens: int | None = None

    @property
    def bar(self) -> Bar:
        """How faithful a candidate must be."""
        return FAST if self.precision == "fast" else AUTO


@dataclass(frozen=True, slots=True)
class Measured:
    """One candidate's row, shown by GET /v1/system."""

    candidate: str
    tokens_per_s: float  # all lanes together
    fidelity: Fidelity | None
    fault: str  # why it was not eligible, or ""


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen and why."""

    runtime: str
    dtype: str
    budget: int  # padded tokens of a batch
    tokens_per_s: float
    why: tuple[str, ...]
    measured: tuple[Measured, ...] = ()


Loader = Callable[[ModelSpec, Candidate, Placement], Encoder]


class Selector:
    """Chooses an encoder for a model on one placement. ``load`` is replaced by tests only."""

    def __init__(
        self, facts: MachineFacts, placement: Placement, kept: TunedSettings, *, load: Loader = load_encoder
    ) -> None:
        self._facts, self._placement, self._kept, self._load = facts, placement, kept, load

    def select(self, spec: ModelSpec, tokenizer: TextTokenizer, wish: Wish) -> tuple[Encoder, Choice]:
        """The encoder to serve with. The first start measures (seconds); later ones read the file.

        Raises: ModelUnavailable when an explicit wish, or every candidate, fails.
        """
        key, kind = self._key(spec.sha256, wish), self._key(repr(spec.shape), wish)
        found = self._from_file(key, spec)
        if found is not None:
            return found
        encoder, choice = self._from_twin(kind, spec, tokenizer, wish) or self._measured(spec, tokenizer, wish)
        kept = asdict(replace(choice, why=(*choice.why, "kept from an earlier start")))
        self._kept.save(key, kept)
        self._kept.save(kind, kept)
        return encoder, choice

    def _key(self, model: str, wish: Wish) -> str:
        facts = self._facts
        cards = [(gpu.uuid, gpu.name, gpu.total_bytes, gpu.capability) for gpu in facts.usable]
        machine = (facts.cpu_name, facts.cpu_flags, cards, facts.driver.version)
        place = (self._placement.device, self._placement.lanes, self._placement.threads)
        return fingerprint(
            {"model": model, "wish": asdict(wish), "machine": machine, "place": place, "versions": versions()}
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

    def _from_twin(
        self, kind: str, spec: ModelSpec, tokenizer: TextTokenizer, wish: Wish
    ) -> tuple[Encoder, Choice] | None:
        """What was fastest for another model of this very shape, if it is faithful here too: speed is the shape's."""
        twin = self._from_file(kind, spec)
        if twin is None:
            return None
        encoder, choice = twin
        bench = self._bench(tokenizer, choice.budget)
        name = f"{choice.runtime} {choice.dtype}"
        reference = bench.vectors(self._reference(spec, {name: encoder}))
        row = _measure(name, encoder, bench, reference, wish.bar)
        if row.fault:
            return None
        why = (
            f"{name}: the fastest for a model of the same shape on this machine, and it keeps to float32 with this one",
            f"batches of {choice.budget} padded tokens: {row.tokens_per_s:.0f} tokens/s",
        )
        return encoder, replace(choice, tokens_per_s=row.tokens_per_s, why=why, measured=(row,))

    def _bench(self, tokenizer: TextTokenizer, budget: int) -> Bench:
        ids = [tokens.ids for tokens in tokenizer.encode(probe_texts())]
        return Bench(ids, lanes=self._placement.lanes, budget=budget)

    def _measured(self, spec: ModelSpec, tokenizer: TextTokenizer, wish: Wish) -> tuple[Encoder, Choice]:
        log_event(_log, logging.INFO, "measuring runtimes, once for this model and machine", model=spec.name)
        first, *others = self._budgets(wish)
        bench = self._bench(tokenizer, first)
        encoders, faults = self._load_any(spec, wish)
        reference = bench.vectors(self._reference(spec, encoders))
        rows = [_measure(name, encoder, bench, reference, wish.bar) for name, encoder in encoders.items()]
        best = _best(rows, spec, wish, self._placement)
        speeds = {size: _speed(bench, encoders[best.candidate], size) for size in others}
        return encoders[best.candidate], _choice(best, {first: best.tokens_per_s, **speeds}, [*rows, *faults], wish)

    def _budgets(self, wish: Wish) -> tuple[int, ...]:
        if wish.batch_tokens:
            return (wish.batch_tokens,)
        return _CPU_BUDGETS if self._placement.type is DeviceType.CPU else _GPU_BUDGETS

    def _load_any(self, spec: ModelSpec, wish: Wish) -> tuple[dict[str, Encoder], list[Measured]]:
        names = candidates(self._facts, self._placement, wish.precision, wish.runtime)
        names, unfit = self._bearable(spec, names, wish)
        encoders, faults = self._load_all(spec, names)
        faults += unfit
        if not encoders and self._placement.type is DeviceType.CPU:
            encoders, more = self._load_all(spec, fallback(wish.precision, wish.runtime))
            faults += more
        if not encoders:
            raise _nothing_left(spec, wish, faults, self._placement)
        return encoders, faults

    def _bearable(
        self, spec: ModelSpec, names: Sequence[Candidate], wish: Wish
    ) -> tuple[list[Candidate], list[Measured]]:
        """The candidates less what this model is known not to bear; an explicit dtype is measured whatever is known."""
        if self._placement.type is DeviceType.CPU or wish.precision not in ("auto", "fast"):
            return list(names), []
        known = for_model(DtypeChoice(self._placement.dtypes, ""), spec.shape.family, spec.stored_dtype)
        unfit = [Measured(str(name), 0.0, None, known.why) for name in names if name.dtype not in known.dtypes]
        return [name for name in names if name.dtype in known.dtypes], unfit

    def _load_all(self, spec: ModelSpec, names: Sequence[Candidate]) -> tuple[dict[str, Encoder], list[Measured]]:
        encoders: dict[str, Encoder] = {}
        faults: list[Measured] = []
        for name in names:
            try:
                encoders[str(name)] = self._load(spec, name, self._placement)
            except (ModelUnavailable, RuntimeError) as error:  # RuntimeError: OpenVINO's and ONNX Runtime's own
                faults.append(Measured(str(name), 0.0, None, f"cannot be loaded: {error}"))
        return encoders, faults

    def _reference(self, spec: ModelSpec, encoders: dict[str, Encoder]) -> Encoder:
        for encoder in encoders.values():
            if encoder.dtype == "fp32":
                return encoder
        runtime = next(iter(encoders.values())).runtime
        return self._load(spec, Candidate(runtime, "fp32"), self._placement)


def _measure(name: str, encoder: Encoder, bench: Bench, reference: Vectors, bar: Bar) -> Measured:
    try:
        places, alone = bench.alone(encoder)
        fidelity = compare(bench.vectors(encoder), places, alone, reference)
        return Measured(name, bench.speed(encoder), fidelity, fault(fidelity, bar))
    except Exception as error:  # noqa: BLE001  # the border to a foreign runtime: a kernel broken here shows only now
        return Measured(name, 0.0, None, f"fails: {error}")


def _speed(bench: Bench, encoder: Encoder, budget: int) -> float:
    """Tokens a second; 0 where batches of that budget do not fit the device."""
    try:
        return bench.speed(encoder, budget)
    except (RuntimeError, MemoryError) as error:
        if classify(error).kind is not FaultKind.OUT_OF_MEMORY:
            raise
        log_event(_log, logging.WARNING, "the device is too small for this budget", budget=budget)
        return 0.0


def _best(rows: Sequence[Measured], spec: ModelSpec, wish: Wish, placement: Placement) -> Measured:
    """The fastest that passes; where none does (an explicit precision), the fastest that runs."""
    running = [row for row in rows if row.fidelity is not None]
    if not running:
        raise _nothing_left(spec, wish, rows, placement)
    return max([row for row in running if not row.fault] or running, key=lambda row: row.tokens_per_s)


def _nothing_left(spec: ModelSpec, wish: Wish, rows: Sequence[Measured], placement: Placement) -> ModelUnavailable:
    reasons = "; ".join(f"{row.candidate}: {row.fault}" for row in rows) or why_none(placement)
    wished = f"PRECISION={wish.precision} RUNTIME={wish.runtime}"
    return ModelUnavailable(f"{wished} leaves nothing to serve {spec.name} with: {reasons}")


def _choice(best: Measured, speeds: Mapping[int, float], rows: Sequence[Measured], wish: Wish) -> Choice:
    """``speeds``: tokens a second of the best candidate by budget."""
    fastest = max(speeds.values())
    budget = min(size for size, speed in speeds.items() if speed * _WORTH_IT >= fastest)
    eligible = sum(not row.fault for row in rows)
    rank = f"the fastest of {eligible} that keep to float32" if not best.fault else "the fastest that runs"
    why = [
        f"{best.candidate}: {best.tokens_per_s:.0f} tokens/s, {rank}",
        f"batches of {budget} padded tokens: {speeds[budget]:.0f} tokens/s",
    ]
    if best.fault:
        why.append(f"PRECISION={wish.precision} was asked for although {best.fault}")
    runtime, dtype = best.candidate.split()
    return Choice(runtime, dtype, budget, speeds[budget], tuple(why), tuple(rows))


def _choice_from(entry: Mapping[str, Any]) -> Choice:
    """Raises: KeyError, TypeError or ValueError for an entry of another shape."""
    rows = [{**row, "fidelity": Fidelity(**row["fidelity"]) if row["fidelity"] else None} for row in entry["measured"]]
    if not isinstance(entry["budget"], int) or entry["budget"] < 1:
        raise ValueError(f"budget {entry['budget']!r} is no number of tokens")
    return Choice(**{**entry, "why": tuple(entry["why"]), "measured": tuple(Measured(**row) for row in rows)})
