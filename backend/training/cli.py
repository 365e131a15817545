"""``python -m backend.training TASK --data … --output …``: plan, train, publish; an interrupted run can be resumed.

The exit code is 0 when the model is published, 1 when training failed, 2 for wrong usage, settings or data, and 130
after Ctrl-C or SIGTERM, with a checkpoint that --resume goes on from.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar, get_args

from torch import nn
from transformers.utils import logging as transformers_logging

from backend.device import default_device
from backend.device.choice.selection import DeviceRequest
from backend.device.facts.simulated import MACHINES
from backend.device.facts.simulated import facts as simulated_facts
from backend.device.memory.device_memory import apply_ceiling
from backend.device.plan.placement import Placement, place
from backend.device.records import DeviceType, MachineFacts
from backend.errors import BadCheckpoint, BadData, BadSettings, FinanciaError, SetupError
from backend.models.model_files import BUNDLED, resolve
from backend.telemetry import configure_logging, log_event
from backend.training.data.augmentation import AugmentConfig
from backend.training.lora import add_lora
from backend.training.memory import Footprint, estimate_footprints, longest_example_inputs
from backend.training.planner import Plan, Workload, format_plan, half_precision_for, make_plan
from backend.training.records import MixedPrecisionConfig, Schedule, Task, TrainingConfig, TrainingResult
from backend.training.tasks import classifier_head, document_images, embeddings, ner, text_classifier
from backend.training.tasks.classifier_head import ClassifierHeadTask
from backend.training.trainer.checkpoints import require_fresh
from backend.training.trainer.distributed import ProcessGroup, init_process_group
from backend.training.trainer.loop import train
from backend.training.trainer.progress import observers_for

DONE, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130
TASKS = ("text-classifier", "ner", "embeddings", "document-images")
_TABLE_COUNTS = (1, 4, 16)  # micro-batches of the table, beside the whole batch
_TABLE_LORA_RANK = 8  # of the table's rows; the rank changes little of the memory
_FEW_TEXTS = 1000  # below it a head on frozen vectors is the safer choice; --mode overrules it
_GIB = 2**30
_log = logging.getLogger(__name__)
_Record = TypeVar("_Record", MixedPrecisionConfig, TrainingConfig)
_LORA_LEARNING_RATE = 2e-4  # adapters start from nothing and bear more: QLoRA's, arXiv 2305.14314
_FOCAL_GAMMA = 2.0  # Lin et al. 2017, arXiv 1708.02002

Flag = tuple[str, str, Mapping[str, Any]]  # name, field, arguments of argparse
_RUN: tuple[Flag, ...] = (
    ("--epochs", "epochs", {"type": int, "help": "passes over the data (default 3)"}),
    ("--max-steps", "max_steps", {"type": int, "help": "optimizer steps after which the run ends"}),
    ("--batch-size", "batch_size", {"type": int, "help": "items of an optimizer step, all processes together (32)"}),
    ("--micro-batch", "micro_batch", {"type": int, "help": "items that run at once; planned, changes no result"}),
    ("--learning-rate", "learning_rate", {"type": float, "help": "the highest (5e-5; 2e-4 with LoRA)"}),
    ("--head-learning-rate", "head_learning_rate", {"type": float, "help": "of a new head (the same)"}),
    ("--weight-decay", "weight_decay", {"type": float, "help": "of AdamW, not of biases and norms (0.01)"}),
    ("--betas", "betas", {"type": float, "nargs": 2, "metavar": ("B1", "B2"), "help": "of AdamW (0.9 0.999)"}),
    ("--max-grad-norm", "max_grad_norm", {"type": float, "help": "gradients are clipped to it (1.0); 0 clips nothing"}),
    ("--schedule", "schedule", {"choices": get_args(Schedule), "help": "of the learning rate (one_cycle)"}),
    ("--warmup-ratio", "warmup_ratio", {"type": float, "help": "share of the steps that warm up (0.1)"}),
    ("--seed", "seed", {"type": int, "help": "of every random number (42)"}),
    ("--evaluate-every", "evaluate_every", {"type": int, "help": "steps; by default after each epoch"}),
    ("--patience", "patience", {"type": int, "help": "evaluations without improvement that end the run"}),
    ("--checkpoint-every", "checkpoint_every", {"type": int, "help": "steps; by default after each epoch"}),
    ("--keep-checkpoints", "keep_checkpoints", {"type": int, "help": "the last ones that stay, beside the best (2)"}),
    ("--snapshot-every", "snapshot_every", {"type": int, "help": "steps between snapshots in memory (50)"}),
)
_MACHINE: tuple[Flag, ...] = (
    ("--device", "device", {"help": "auto (default), cpu, cuda, cuda:1, mps, or cards of torchrun: cuda:0,cuda:1"}),
    ("--num-workers", "num_workers", {"type": int, "help": "threads that prepare data; from cores by default"}),
)
_LOSS: tuple[Flag, ...] = (
    ("--focal-loss", "focal_gamma", {"type": float, "nargs": "?", "const": _FOCAL_GAMMA, "metavar": "GAMMA",
                                     "help": "looks at hard examples (gamma 2 unless given)"}),
    ("--label-smoothing", "label_smoothing", {"type": float, "help": "share of the target spread over all classes"}),
    ("--class-weights", "class_weights", {"choices": ("none", "balanced"), "help": "balanced: the rare count more"}),
)  # fmt: skip
_LORA: tuple[Flag, ...] = (
    ("--lora-rank", "lora_rank", {"type": int, "help": "train adapters of this rank instead of all weights; 0: all"}),
    ("--lora-alpha", "lora_alpha", {"type": float, "help": "twice the rank by default"}),
    ("--lora-dropout", "lora_dropout", {"type": float, "help": "before the adapters (0.05)"}),
)
_PRECISION: tuple[Flag, ...] = (
    ("--amp-dtype", "dtype", {"metavar": "DTYPE", "help": "bfloat16 or float16; by default what the device bears"}),
    ("--initial-scale", "initial_scale", {"type": float, "help": "of the loss, for float16 (65536)"}),
    ("--growth-factor", "growth_factor", {"type": float, "help": "of the scale (2)"}),
    ("--backoff-factor", "backoff_factor", {"type": float, "help": "of the scale (0.5)"}),
    ("--growth-interval", "growth_interval", {"type": int, "help": "good steps before the scale grows (2000)"}),
    ("--hysteresis", "hysteresis", {"type": int, "help": "bad steps in a row before the scale falls (2)"}),
    ("--min-scale", "min_scale", {"type": float, "help": "floor of the scale (1)"}),
    ("--max-scale", "max_scale", {"type": float, "help": "ceiling of the scale (2**24)"}),
    (
        "--recovery-interval",
        "recovery_interval",
        {
            "type": int,
            "help": "clean steps after numbers broke before the faster precision is tried again (200); 0: never",
        },
    ),
)
_SWITCHES = (  # name, field, help; --use-name and --no-name
    ("amp", "use_amp", "mixed precision"),
    ("compile", "compile", "torch.compile"),
    ("channels-last", "channels_last", "images in the order that tensor cores convolve in"),
    ("gradient-checkpointing", "gradient_checkpointing", "activations computed again instead of kept"),
    ("8-bit-optimizer", "eight_bit_optimizer", "AdamW's memory in 8 bits (CUDA, bitsandbytes)"),
    ("length-groups", "group_by_length", "batches of items of like length"),
    ("deterministic", "deterministic", "only algorithms that give the same bits each time; slower"),
    ("loss-scaling", "loss_scaling", "a gradient scaler for float16"),
)


def main(arguments: Sequence[str] | None = None, *, stop: threading.Event | None = None) -> int:
    """Run the command line; the exit code.

    Args:
        stop: ends the run as a signal would; for callers that are not the process's main thread.
    """
    parser = make_parser()
    options = parser.parse_args(arguments)
    _check(parser, options)
    configure_logging("INFO")
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # a fresh head is reported like a fault
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # likewise without annotations
    try:
        return _train(options, list(sys.argv[1:] if arguments is None else arguments), stop or threading.Event())
    except (SetupError, BadData) as error:
        return _report(error, WRONG)
    except FinanciaError as error:
        return _report(error, FAILED)
    except OSError as error:  # disks that are full, folders that may not be written
        return _report(error, FAILED)
    except KeyboardInterrupt:
        return _report("interrupted before there was anything to keep", INTERRUPTED)


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """What argparse cannot check. Ends the process with exit code 2."""
    if options.task == "plan" and options.planned is None:
        parser.error("plan: name the task with --task")
    if options.task != "plan" and (options.planned or options.machine):
        parser.error("--task and --as are for plan")
    if options.task != "plan" and options.output is None:
        parser.error("--output: where shall the model go?")


def _train(options: argparse.Namespace, command: Sequence[str], stop: threading.Event) -> int:
    config, user_set = parse_config(options)
    if options.task == "plan":
        return _show_plan(options, config, user_set)
    if not options.resume:
        try:
            require_fresh(options.output)
        except BadCheckpoint as error:
            return _report(error, WRONG)
    group = init_process_group(config.device)
    facts, placement = default_device.machine_facts(), group.placement
    limit = apply_ceiling(placement.device, placement.memory_bytes)
    task = make_task(options.task, options, config, device=placement.device, processes=group.size)
    if isinstance(task, ClassifierHeadTask):  # a head on frozen vectors is solved at once; one process is enough
        return _publish(task, task.fit(), options, config, command) if group.is_main else DONE
    plan = _plan(facts, placement, task, config, user_set, group=group)
    if group.is_main:
        _print(format_plan(plan), f"memory: {limit}")
    with _stop_on_signals(stop):
        result = train(
            task,
            plan.config,
            output=options.output,
            resume=options.resume,
            observers=observers_for(options.output) if group.is_main else (),
            stop=stop,
        )
    if result.reason == "interrupted":
        note = f"interrupted at step {result.steps}; the same command with --resume goes on"
        return _report(note, INTERRUPTED) if group.is_main else INTERRUPTED
    code = _publish(task, result, options, plan.config, command) if group.is_main else DONE
    group.shutdown()
    return code


def _show_plan(options: argparse.Namespace, config: TrainingConfig, user_set: frozenset[str]) -> int:
    facts = simulated_facts(options.machine) if options.machine else default_device.machine_facts()
    placement = (
        place(facts, DeviceRequest(device=config.device))
        if options.machine
        else default_device.placement(config.device)
    )
    task = make_task(options.planned, options, config, device="cpu")
    if isinstance(task, ClassifierHeadTask):
        _print("a head on frozen vectors: it is solved in seconds and needs no plan; --mode full trains the encoder")
        return DONE
    _print(format_plan(_plan(facts, placement, task, config, user_set)))
    return DONE


def _plan(
    facts: MachineFacts,
    placement: Placement,
    task: Task,
    config: TrainingConfig,
    user_set: frozenset[str],
    *,
    group: ProcessGroup | None = None,
) -> Plan:
    """The plan of a run by ``group``; without one of ``plan``, which estimates every way to train."""
    count, lengths = group.size if group else 1, task.lengths
    steps = config.max_steps or config.epochs * -(-len(lengths) // config.effective_batch)
    workload = Workload(
        images=any(isinstance(module, nn.Conv2d) for module in task.model.modules()),
        model_type=str(getattr(getattr(task.model, "config", None), "model_type", "")),
        steps=steps,
        ranks=count,
        eight_bit=placement.type is DeviceType.CUDA,  # bitsandbytes' kernels; --use-8-bit-optimizer asks for it
        splittable=task.splittable,
    )
    half = half_precision_for(facts, placement, config, workload.model_type)
    footprints = _estimate(task, config, half, -(-config.effective_batch // count), all_ways=group is None)
    return make_plan(facts, placement, config, workload, user_set=user_set, footprints=footprints)


def _estimate(
    task: Task, config: TrainingConfig, half: str | None, share: int, *, all_ways: bool
) -> tuple[Footprint, ...]:
    """By the longest example. Before a run only what decides: one item, this rank's share; LoRA only where it is on."""
    longest = max(range(len(task.lengths)), key=task.lengths.__getitem__)
    counts = {1, share, *(count for count in _TABLE_COUNTS if all_ways and count < share)}
    adds = all_ways and config.lora_rank is None
    try:
        return estimate_footprints(
            task.model,
            longest_example_inputs(task.model, task.collate, longest),
            sorted(counts),
            half=half,
            add_lora=(lambda model: add_lora(model, _TABLE_LORA_RANK)) if adds else None,
        )
    except Exception as error:  # noqa: BLE001  # a foreign model under fake tensors can raise anything; the run itself need not
        log_event(_log, logging.WARNING, "memory could not be foreseen", reason=f"{type(error).__name__}: {error}")
        return ()


def _publish(
    task: Task | ClassifierHeadTask,
    result: TrainingResult,
    options: argparse.Namespace,
    config: TrainingConfig,
    command: Sequence[str],
) -> int:
    notes: dict[str, Any] = {
        "command": ["python", "-m", "backend.training", *command],
        "config": config.as_dict(),
        **result.summary(),
    }
    task.publish(task.model, options.output, notes)
    scores = ", ".join(f"{name} {value:.4f}" for name, value in result.metrics.items()) or "no evaluation data"
    _print(
        f"{result.steps} steps in {result.precisions}, ended by {result.reason}; {scores}", f"model: {options.output}"
    )
    return DONE


@contextmanager
def _stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM makes the run save a checkpoint and end; the second ends it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def request_stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  # as signal calls it
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        log_event(_log, logging.WARNING, "ending after this step, with a checkpoint", signal=number)

    previous = {number: signal.signal(number, request_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _print(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _report(reason: object, code: int) -> int:
    """Print why the command ends, and give its exit code back."""
    sys.stderr.write(f"{reason}\n")
    return code


def make_parser() -> argparse.ArgumentParser:
    """The parser of ``python -m backend.training``. Flags that are not given are None."""
    parser = argparse.ArgumentParser(
        prog="python -m backend.training",
        description="Train a model on your data, as this machine can; what it writes, the service loads.",
        epilog="Exit code: 0 done, 1 failed, 2 wrong usage, settings or data, 130 interrupted (--resume goes on).",
        allow_abbrev=False,
    )
    parser.add_argument("task", choices=(*TASKS, "plan"), help="what to train; plan: say what would fit, and end")
    parser.add_argument(
        "--data", type=Path, nargs="+", required=True, help="file or folder to learn from; ner: several"
    )
    parser.add_argument("--evaluation", type=Path, help="file or folder to measure on; by default a part of the data")
    parser.add_argument("--held-out", type=float, default=0.1, help="that part (0.1)")
    parser.add_argument("--output", type=Path, help="folder of the model, its checkpoints and its log")
    parser.add_argument("--base", help="model to start from: bundled (default of texts), a folder or a hub id")
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint in --output")
    parser.add_argument("--task", dest="planned", choices=TASKS, help="with plan: the task to plan for")
    parser.add_argument("--as", dest="machine", choices=sorted(MACHINES), metavar="MACHINE",
                      help="with plan: for another machine; check_gpu --as list names them")  # fmt: skip
    for title, flags in (("run", _RUN), ("machine", _MACHINE), ("loss", _LOSS), ("LoRA", _LORA), ("AMP", _PRECISION)):
        group = parser.add_argument_group(title)
        for name, field, options in flags:
            group.add_argument(name, dest=field, **{"metavar": "N" if "choices" not in options else None, **options})
    parser.add_argument("--grad-accum", dest="gradient_accumulation_steps", type=int, metavar="N",
                        help="N batches of --batch-size make one optimizer step")  # fmt: skip
    switches = parser.add_argument_group("switches, each chosen for the machine unless said")
    for name, field, help_text in _SWITCHES:
        pair = switches.add_mutually_exclusive_group()
        pair.add_argument(f"--use-{name}", dest=field, action="store_const", const=True, help=help_text)
        pair.add_argument(f"--no-{name}", dest=field, action="store_const", const=False, help="without it")
    _add_task_flags(parser)
    return parser


def parse_config(options: argparse.Namespace) -> tuple[TrainingConfig, frozenset[str]]:
    """The settings, and the names of the fields that the user set. Raises: BadSettings with every fault at once."""
    given = {name: value for name, value in vars(options).items() if value is not None}
    scaler = _fields_in(given, MixedPrecisionConfig)
    values = _fields_in(given, TrainingConfig)
    for record, name in ((values, "lora_rank"), (values, "max_grad_norm"), (scaler, "recovery_interval")):
        if record.get(name) == 0:  # means: none
            record[name] = None
    if "betas" in values:
        values["betas"] = tuple(values["betas"])
    if values.get("lora_rank") and "learning_rate" not in values:
        values["learning_rate"] = _LORA_LEARNING_RATE
    faults: list[str] = []
    if {"gradient_accumulation_steps", "micro_batch"} <= values.keys():
        faults.append("--grad-accum and --micro-batch say the same in two ways: leave one of them out")
    mixed = _make(MixedPrecisionConfig, scaler, faults)
    config = _make(TrainingConfig, values, faults)
    if mixed is None or config is None or faults:
        raise BadSettings(faults)
    return replace(config, mixed_precision=mixed), frozenset({*values, *scaler})


def _make(record: type[_Record], values: Mapping[str, Any], faults: list[str]) -> _Record | None:
    try:
        return record(**values)
    except BadSettings as error:
        faults += error.faults
        return None


def _fields_in(values: Mapping[str, Any], record: type) -> dict[str, Any]:
    return {field.name: values[field.name] for field in fields(record) if field.name in values}


def _add_task_flags(parser: argparse.ArgumentParser) -> None:
    texts = parser.add_argument_group("text-classifier, ner, embeddings")
    texts.add_argument("--mode", choices=("auto", "head", "full"), default="auto",
                       help="text-classifier: a head on frozen vectors (few texts), or the whole encoder")  # fmt: skip
    texts.add_argument("--vector-cache", type=Path, metavar="FOLDER",
                       help="--mode head: keep the encoder's vectors there for the next run")  # fmt: skip
    texts.add_argument("--no-grams", dest="grams", action="store_false",
                       help="--mode head: try no n-grams beside the vector; encoders of one language gain")  # fmt: skip
    texts.add_argument("--types", type=_names, default=(), help="ner: kinds of entities, e.g. PER,ORG,LOC")
    texts.add_argument("--relabel", type=_pairs, default={}, metavar="FROM=TO,…",
                       help="ner: kinds of entities to rename, before --types chooses")  # fmt: skip
    texts.add_argument("--spelling", choices=("auto", "on", "off"), default="auto",
                       help="ner: say how words are written; auto: where the tokenizer hides it")  # fmt: skip
    texts.add_argument("--recased", type=float, default=0.0, metavar="SHARE",
                       help="ner: share of sentences seen small, in capitals, or with their names so (0)")  # fmt: skip
    texts.add_argument("--publish-as", choices=("merged", "adapter"), default="merged",
                       help="ner: a whole model, or a LoRA adapter of a few MiB for its base")  # fmt: skip
    texts.add_argument("--halfway", action="store_true",
                       help="ner: publish the mean of the adapter in --base and of what was learnt")  # fmt: skip
    texts.add_argument("--encoder-dropout", type=float, metavar="SHARE",
                       help="ner: of the encoder's own dropout layers; 0 is a fifth faster on a CPU")  # fmt: skip
    texts.add_argument("--objective", default="auto", help="embeddings: the loss; by the data unless said")
    texts.add_argument("--teacher", help="embeddings: model whose vectors are learnt from parallel texts")
    images = parser.add_argument_group("document-images")
    images.add_argument("--image-size", type=int, nargs=2, metavar=("HEIGHT", "WIDTH"), help="px; the base's own")
    images.add_argument("--augment", choices=("none", "document", "randaugment"), default="document",
                        help="changes to training images; randaugment is for photographs")  # fmt: skip
    images.add_argument("--mixup", type=float, default=0.0, metavar="ALPHA", help="0 is off")
    images.add_argument("--cutmix", type=float, default=0.0, metavar="ALPHA", help="0 is off")
    cache = images.add_mutually_exclusive_group()
    cache.add_argument("--image-cache", type=float, metavar="GIB", help="of decoded images (a quarter of memory)")
    cache.add_argument("--no-image-cache", dest="image_cache", action="store_const", const=0.0, help="read each time")


def _pairs(text: str) -> dict[str, str]:
    pairs = [pair.split("=") for pair in text.replace(",", " ").split()]
    if any(len(pair) != 2 or not all(pair) for pair in pairs):
        raise argparse.ArgumentTypeError(f"{text!r}: expected FROM=TO, with commas between several")
    return dict(pairs)


def _names(text: str) -> Sequence[str]:
    return tuple(name for name in text.replace(",", " ").split() if name)


def make_task(
    name: str, options: argparse.Namespace, config: TrainingConfig, *, device: str, processes: int = 1
) -> Task | ClassifierHeadTask:
    """The task with its data read and its base model loaded.

    Args:
        device: where frozen models run that only make vectors.
        processes: of the run, on this machine.

    Raises: BadData, BadSettings, ModelUnavailable.
    """
    if not 0 <= options.held_out < 1:
        raise BadSettings([f"--held-out={options.held_out:g}: must be from 0 to below 1"])
    read = {"evaluation": options.evaluation, "held_out": options.held_out}
    if name == "document-images":
        return _document_images(options, config, processes, read)
    base = resolve(options.base or BUNDLED)
    if name == "ner":
        chosen = ner.NerOptions(**_fields_in(vars(options), ner.NerOptions))
        return ner.prepare(options.data, base, config, options=chosen, **read)
    if name == "embeddings":
        teacher = resolve(options.teacher) if options.teacher else None
        return embeddings.prepare(
            _single_path(options.data),
            base,
            config,
            objective=options.objective,
            teacher=teacher,
            device=device,
            **read,
        )
    if options.mode == "head" or (options.mode == "auto" and _has_few_texts(options, config, read)):
        more = {"vector_cache": options.vector_cache, "grams": options.grams}
        return classifier_head.prepare(_single_path(options.data), base, config, device=device, **more, **read)
    return text_classifier.prepare(_single_path(options.data), base, config, **read)


def _single_path(data: Sequence[Path]) -> Path:
    """The one path that all tasks but "ner" read."""
    if len(data) > 1:
        raise BadSettings([f"--data: {len(data)} paths; only ner takes several"])
    return data[0]


def _has_few_texts(options: argparse.Namespace, config: TrainingConfig, read: dict[str, Any]) -> bool:
    """Whether a head is enough; not with LoRA, which only a whole encoder has."""
    few = len(text_classifier.read_data(_single_path(options.data), **read).train) < _FEW_TEXTS
    return few and config.lora_rank is None


def _document_images(options: argparse.Namespace, config: TrainingConfig, processes: int, read: dict[str, Any]) -> Task:
    if not options.base:
        raise BadSettings(
            ["--base: document-images needs an image model's folder or hub id, or resnet, convnext or vit"]
        )
    changes = AugmentConfig(policy=options.augment, mixup_alpha=options.mixup, cutmix_alpha=options.cutmix)
    cache = None if options.image_cache is None else int(options.image_cache * _GIB)
    return document_images.prepare(
        _single_path(options.data),
        options.base,
        config,
        augmentation=changes,
        image_size=tuple(options.image_size) if options.image_size else None,
        cache_bytes=cache,
        processes=processes,
        **read,
    )
