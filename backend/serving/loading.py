"""Loads one model onto every device: runtime and dtype are chosen on the first, and the same on all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import cast

from backend.device.plan.attention import prefer_flash
from backend.device.plan.placement import Placement
from backend.device.records import DeviceType, MachineFacts
from backend.device.tuning_cache import TuningCache
from backend.errors import ModelUnavailable
from backend.lanes.engine import (
    EncoderEngine,
    Engine,
    Float32Encoder,
    Float32Fallback,
    NoFallback,
    Replicas,
    TaskHead,
    UnloadableEncoder,
)
from backend.models.autotune import Choice, EncoderRequest, Selector, torch_dtype_of
from backend.models.batch_limits import AdaptiveBatchLimits, learnt_batch_limits, measure_batch_limits
from backend.models.encoder import GRAPH_PADDING_COST, Encoder
from backend.models.generation import Generator
from backend.models.model_files import check_unchanged, resolve
from backend.models.pairs import PairTokenizer
from backend.models.readout import Readout
from backend.models.runtimes import (
    GRAPH_RUNTIMES,
    activations,
    capture_graphs,
    in_float32_of,
    load_encoder,
    warm_up,
)
from backend.models.sequence_head import SequenceHead, read_sequence_head
from backend.models.spec import ModelSpec
from backend.models.token_head import TokenHead, read_token_head
from backend.models.tokenizer import tokenizer_of
from backend.serving.catalog import AfterStart, LoadedModel, served_names
from backend.serving.engines.answers import LABEL_TASK
from backend.serving.engines.answers import LABELS as ANSWER_LABELS
from backend.serving.engines.answers import TASK as ANSWERS
from backend.serving.engines.generation import TASK as SUMMARIES
from backend.serving.engines.generation import GenerationEngine
from backend.serving.engines.heads import (
    ANALYSIS,
    CLASSIFIER,
    EMBEDDINGS,
    NER,
    RERANKER,
    LogitsHead,
    PoolingHead,
    SpanSumsHead,
    TokenLabelsHead,
)
from backend.serving.engines.zero_shot import read_nli
from backend.telemetry import Telemetry

_CPU_BUDGET, _GPU_BUDGET = 2048, 32_768  # padded tokens; a step of a CPU's lane costs as much for each row


@dataclass(frozen=True, slots=True)
class LoadContext:
    """What loading a model needs."""

    facts: MachineFacts
    placements: Sequence[Placement]  # one a device; models are measured on the first
    tuned: TuningCache
    telemetry: Telemetry
    models_dir: Path | None = None  # where bundled encoders are kept once they are converted


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Which model to load, how, and under which names."""

    source: str  # "bundled" or another of BUNDLED_SOURCES, a folder, or a hub id with @revision
    encoder_request: EncoderRequest
    aliases: Sequence[str] = ()
    task: str = EMBEDDINGS  # or NER, CLASSIFIER, RERANKER, ANSWERS, LABEL_TASK, SUMMARIES
    is_optional: bool = False  # the service starts without it where it cannot be loaded


@dataclass(frozen=True, slots=True)
class _DeviceReplica:
    """What all engines of a model share on one device: weights, learnt capacity and the float32 fallback."""

    resident: UnloadableEncoder
    batch_limits: AdaptiveBatchLimits
    exact: Float32Encoder | None  # None where the model is served in float32

    def engine(self, task: str, task_head: TaskHead, choice: Choice, telemetry: Telemetry) -> Engine:
        fallback = NoFallback() if self.exact is None else Float32Fallback(self.exact, task, telemetry)
        limits, launch_tokens = self.batch_limits, choice.launch_tokens
        return EncoderEngine(task, self.resident, task_head, choice.budget, limits, fallback, launch_tokens)


def load_model(context: LoadContext, request: ModelRequest, *, later: bool = False) -> LoadedModel:
    """Load the model for its task. Seconds; minutes where it is fetched first.

    Args:
        later: where it is known what executes it, the weights are loaded by ``after_start`` or by the first request.

    Raises: ModelUnavailable with the reason.
    """
    spec = resolve(request.source, request.task, models_dir=context.models_dir)
    if spec.is_seq2seq or request.task == SUMMARIES:
        return _load_generator(context, request, spec)
    head = _head(spec, request.task)
    tokenizer = tokenizer_of(spec)
    if isinstance(head, SequenceHead) and (request.task == RERANKER or read_nli(head.labels) is not None):
        PairTokenizer(tokenizer, spec.token_types)  # raises here what every request would fail with
    first, *others = _placements(context, spec)
    selector = Selector(context.facts, first, context.tuned)
    encoder: Encoder | None = None
    foreseen = selector.foreseen(spec, request.encoder_request) if later else []
    if foreseen and foreseen[0].runtime in GRAPH_RUNTIMES:
        choice = foreseen[0]
    else:
        encoder, choice = selector.select(spec, tokenizer, request.encoder_request)
    task_head = _task_head(spec, head)
    replicas = [
        _replica(context, spec, choice, first, readout=task_head.readout, encoder=encoder),
        *(_replica(context, spec, choice, placement, readout=task_head.readout) for placement in others),
    ]

    def engine(task: str, task_head: TaskHead) -> Engine:
        engines = [replica.engine(task, task_head, choice, context.telemetry) for replica in replicas]
        return Replicas(engines) if others else engines[0]

    after_start = AfterStart(
        warm_up=lambda: warm_up(replicas[0].resident.get(), spec.max_tokens),
        load=partial(load_model, context, request),
        measure=selector.work(spec, request.encoder_request) if choice.is_provisional else None,
        measured=partial(selector.kept, spec, request.encoder_request),
    )
    return LoadedModel(
        spec=spec,
        tokenizer=tokenizer,
        engine=engine(request.task, task_head),
        token_engine=engine(ANALYSIS, SpanSumsHead(spec.pooling)),
        placement=first,
        choice=choice,
        names=served_names(spec, request.aliases),
        created_s=datetime.now(UTC).timestamp(),
        task=request.task,
        residents=tuple(replica.resident for replica in replicas),
        labels=head.labels if head else (),
        head=head if isinstance(head, SequenceHead) else None,
        activations=activations(choice.candidate, context.facts.cpu_flags) if first.type is DeviceType.CPU else "",
        after_start=after_start if first.type is DeviceType.CPU else None,
    )


def _placements(context: LoadContext, spec: ModelSpec) -> Sequence[Placement]:
    """Where it runs: a static model on the CPU, whatever has the others."""
    if spec.is_static and context.placements[0].type is not DeviceType.CPU:
        return [replace(context.placements[0], device="cpu", uuid="", dtypes=("fp32",), memory_bytes=0, vector_bytes=0)]
    return context.placements


def _load_generator(context: LoadContext, request: ModelRequest, spec: ModelSpec) -> LoadedModel:
    """Load a model that writes. Nothing is measured: its dtype follows from the device and the model's family."""
    if request.task != SUMMARIES:
        raise ModelUnavailable(f"{spec.name} writes texts from texts; SUMMARY_MODEL serves it, {request.task} cannot")
    if not spec.is_seq2seq:
        raise ModelUnavailable(f"{spec.name} is a {spec.shape.family} encoder; SUMMARY_MODEL needs a model that writes")
    tokenizer, first = tokenizer_of(spec), context.placements[0]
    choice = choose_generator(spec, first, request.encoder_request)
    residents, engines = [], []
    for placement in context.placements:
        load = partial(load_generator, spec, choice, placement)
        resident: UnloadableEncoder[Generator] = UnloadableEncoder(
            load(), partial(_generator_again, spec, load), name=spec.name, device=placement.device
        )
        residents.append(resident)
        engines.append(GenerationEngine(resident, choice.budget, learnt_batch_limits(placement)))
    engine: Engine = engines[0] if len(engines) == 1 else Replicas(engines)
    return LoadedModel(
        spec=spec,
        tokenizer=tokenizer,
        engine=engine,
        token_engine=engine,
        placement=first,
        choice=choice,
        names=served_names(spec, request.aliases),
        created_s=datetime.now(UTC).timestamp(),
        task=request.task,
        residents=tuple(residents),
    )


def _generator_again(spec: ModelSpec, load: Callable[[], Generator]) -> Generator:
    """From the same files as the first time. Raises: ModelUnavailable where they are others now."""
    check_unchanged(spec)
    return load()


def _head(spec: ModelSpec, task: str) -> TokenHead | SequenceHead | None:
    if task == NER:
        return read_token_head(spec)
    if task in (ANSWERS, LABEL_TASK):
        return _answer_head(spec)
    head = read_sequence_head(spec) if task in (CLASSIFIER, RERANKER) else None
    if task == RERANKER and head is not None and len(head.labels) > 1:
        raise ModelUnavailable(
            f"{spec.name} tells {len(head.labels)} labels apart ({', '.join(head.labels[:3])}, …); a reranker has one"
        )
    return head


def _answer_head(spec: ModelSpec) -> TokenHead:
    head = read_token_head(spec)
    if head.labels != ANSWER_LABELS:
        raise ModelUnavailable(
            f"{spec.name} has the labels {', '.join(head.labels[:5])}; a model for questions or labels has "
            f"{', '.join(ANSWER_LABELS)}, as the bundled one"
        )
    return head


def _task_head(spec: ModelSpec, head: TokenHead | SequenceHead | None) -> TaskHead:
    if isinstance(head, TokenHead):
        return TokenLabelsHead(head)
    return LogitsHead(head) if head else PoolingHead(spec.pooling)


def _load_again(spec: ModelSpec, load: Callable[[], Encoder], readout: Readout | None = None) -> Encoder:
    """From the same files as the first time. Raises: ModelUnavailable where they are others now.

    Args:
        readout: as for ``warm_up``; None for an encoder that serves single texts.
    """
    check_unchanged(spec)
    encoder = load()
    if readout is not None:
        capture_graphs(encoder, readout)
    return encoder


def _replica(
    context: LoadContext,
    spec: ModelSpec,
    choice: Choice,
    placement: Placement,
    *,
    readout: Readout,
    encoder: Encoder | None = None,
) -> _DeviceReplica:
    """Warmed up and measured, but on a CPU, where that has time (`AfterStart`), and the encoder may come later too."""
    load = partial(load_encoder, spec, choice.candidate, placement)
    in_float32 = partial(load_encoder, spec, in_float32_of(choice.runtime), placement)
    exact = Float32Encoder(partial(_load_again, spec, in_float32))
    batch_limits = learnt_batch_limits(placement)
    if placement.type is not DeviceType.CPU:
        encoder = encoder or load()
        warm_up(encoder, spec.max_tokens, readout)
        batch_limits = measure_batch_limits(
            encoder, spec, choice, placement, kept=context.tuned, platform=context.facts.platform
        )
    resident = UnloadableEncoder(
        encoder,
        partial(_load_again, spec, load, readout),
        name=spec.name,
        device=placement.device,
        companions=(exact.drop,),
        padding_cost=GRAPH_PADDING_COST,
    )
    return _DeviceReplica(resident, batch_limits, None if choice.dtype == "fp32" else exact)


def choose_generator(spec: ModelSpec, placement: Placement, request: EncoderRequest) -> Choice:
    """What PRECISION asks for; else float32 on a CPU, and on a card what it computes best and the model can bear."""
    is_cpu = placement.type is DeviceType.CPU
    cpu_why = "a token at a time waits for memory, not for arithmetic"
    dtype, why = torch_dtype_of(
        request, placement, family=spec.shape.family, stored_dtype=spec.stored_dtype, cpu_why=cpu_why
    )
    reasons = [f"{spec.name} on {placement.device}: {why}"]
    if request.precision == "int8" or request.runtime not in ("auto", "torch"):
        reasons.append("texts are written by torch, in fp32, bf16 or fp16 alone, whatever RUNTIME and PRECISION say")
    budget = request.batch_tokens or (_CPU_BUDGET if is_cpu else _GPU_BUDGET)
    return Choice("torch", dtype, budget, 0.0, tuple(reasons))


def load_generator(spec: ModelSpec, choice: Choice, placement: Placement) -> Generator:
    """The model in the chosen arithmetic. Raises: ModelUnavailable."""
    from backend.models.seq2seq import TorchSeq2Seq  # seconds and 300 MiB: only where a model is set

    if placement.type is DeviceType.CUDA:
        prefer_flash()
    return cast("Generator", TorchSeq2Seq(spec, dtype=choice.dtype, device=placement.device, threads=placement.threads))
