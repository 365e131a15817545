"""``python -m backend.training TASK --data … --output …``: plan, train, publish; an interrupted run can go on.

The exit code is 0 when the model is published, 1 when training failed, 2 for wrong usage, settings or data, and 130
after Ctrl-C or SIGTERM, with a checkpoint that --resume goes on from.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from torch import nn
from transformers.utils import logging as transformers_logging

from backend.device import default_device
from backend.device.choice.selection import DeviceRequest
from backend.device.facts.simulated import facts as simulated_facts
from backend.device.memory.device_memory import apply_ceiling
from backend.device.plan.placement import Placement, place
from backend.device.records import DeviceType, MachineFacts
from backend.errors import BadCheckpoint, BadData, FinanciaError, SetupError
from backend.telemetry import configure_logging, log_event
from backend.training.flags import config_of, parser
from backend.training.lora import add_lora
from backend.training.memory.footprint import Footprint, fed_by, footprints
from backend.training.memory.memory_plan import table
from backend.training.planner import Plan, Subject, half_for, plan
from backend.training.records import Task, TrainingConfig, TrainingResult
from backend.training.task_setup import make_task
from backend.training.trainer.checkpoints import require_fresh
from backend.training.trainer.distributed import Ranks, join
from backend.training.trainer.loop import train
from backend.training.trainer.progress import observers_for

DONE, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130
_COUNTS = (1, 4, 16)  # micro-batches of the table, beside the whole batch
_LORA_RANK = 8  # of the table's rows; the rank changes little of the memory
_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None, *, stop: threading.Event | None = None) -> int:
    """Do what the command line says; the exit code.

    Args:
        stop: ends the run as a signal would; for callers that are not the process's main thread.
    """
    made = parser()
    options = made.parse_args(arguments)
    _check(made, options)
    configure_logging("INFO")
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # a fresh head is reported like a fault
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # likewise without annotations
    try:
        return _run(options, list(sys.argv[1:] if arguments is None else arguments), stop or threading.Event())
    except (SetupError, BadData) as error:
        return _failed(error, WRONG)
    except FinanciaError as error:
        return _failed(error, FAILED)
    except OSError as error:  # disks that are full, folders that may not be written
        return _failed(error, FAILED)
    except KeyboardInterrupt:
        return _failed("interrupted before there was anything to keep", INTERRUPTED)


def _check(made: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """What argparse cannot say. Ends the process with exit code 2."""
    if options.task == "plan" and options.planned is None:
        made.error("plan: name the task with --task")
    if options.task != "plan" and (options.planned or options.machine):
        made.error("--task and --as are for plan")
    if options.task != "plan" and options.output is None:
        made.error("--output: where shall the model go?")


def _run(options: argparse.Namespace, command: Sequence[str], stop: threading.Event) -> int:
    config, told = config_of(options)
    if options.task == "plan":
        return _plan_only(options, config, told)
    if not options.resume:
        try:
            require_fresh(options.output)
        except BadCheckpoint as error:
            return _failed(error, WRONG)
    ranks = join(config.device)
    facts, placement = default_device.machine_facts(), default_device.placement(config.device)
    limit = apply_ceiling(placement.device, placement.memory_bytes)
    task = make_task(options.task, options, config, device=placement.device, ranks=ranks.count)
    if fit := getattr(task, "fit", None):  # a head on frozen vectors: solved, not stepped; one process is enough
        return _publish(task, fit(), options, config, command) if ranks.main else DONE
    made = _planned(facts, placement, task, config, told, ranks=ranks, all_ways=False)
    if ranks.main:
        _say(_text(made), f"memory: {limit}")
    with _signals(stop):
        result = train(
            task,
            made.config,
            output=options.output,
            resume=options.resume,
            observers=observers_for(options.output) if ranks.main else (),
            stop=stop,
        )
    if result.reason == "interrupted":
        note = f"interrupted at step {result.steps}; the same command with --resume goes on"
        return _failed(note, INTERRUPTED) if ranks.main else INTERRUPTED
    code = _publish(task, result, options, made.config, command) if ranks.main else DONE
    ranks.leave()
    return code


def _plan_only(options: argparse.Namespace, config: TrainingConfig, told: frozenset[str]) -> int:
    facts = simulated_facts(options.machine) if options.machine else default_device.machine_facts()
    placement = (
        place(facts, DeviceRequest(device=config.device))
        if options.machine
        else default_device.placement(config.device)
    )
    task = make_task(options.planned, options, config, device="cpu")
    if hasattr(task, "fit"):
        _say("a head on frozen vectors: it is solved in seconds and needs no plan; --mode full trains the encoder")
        return DONE
    _say(_text(_planned(facts, placement, task, config, told, all_ways=True)))
    return DONE


def _planned(
    facts: MachineFacts,
    placement: Placement,
    task: Task,
    config: TrainingConfig,
    told: frozenset[str],
    *,
    ranks: Ranks | None = None,
    all_ways: bool,
) -> Plan:
    count, lengths = ranks.count if ranks else 1, task.lengths
    steps = config.max_steps or config.epochs * -(-len(lengths) // config.batch_size)
    subject = Subject(
        images=any(isinstance(one, nn.Conv2d) for one in task.model.modules()),
        model_type=str(getattr(getattr(task.model, "config", None), "model_type", "")),
        steps=steps,
        ranks=count,
        eight_bit=placement.type is DeviceType.CUDA,  # bitsandbytes' kernels; --use-8-bit-optimizer asks for it
        splittable=task.splittable,
    )
    whole = -(-config.batch_size // count)
    foreseen = _foreseen(task, config, half_for(facts, placement, config, subject.model_type), whole, all_ways=all_ways)
    return plan(facts, placement, config, subject, told=told, footprints=foreseen)


def _foreseen(
    task: Task, config: TrainingConfig, half: str | None, whole: int, *, all_ways: bool
) -> tuple[Footprint, ...]:
    """By the longest example. Before a run only what decides: one item, the whole batch; LoRA only where it is on."""
    longest = max(range(len(task.lengths)), key=task.lengths.__getitem__)
    counts = {1, whole, *(count for count in _COUNTS if all_ways and count < whole)}
    adds = all_ways and config.lora_rank is None
    try:
        return footprints(
            task.model,
            fed_by(task.model, task.collate, longest),
            sorted(counts),
            half=half,
            add_lora=(lambda model: add_lora(model, _LORA_RANK)) if adds else None,
        )
    except Exception as error:  # noqa: BLE001  # a foreign model under fake tensors can raise anything; the run itself need not
        log_event(_log, logging.WARNING, "memory could not be foreseen", reason=f"{type(error).__name__}: {error}")
        return ()


def _text(made: Plan) -> str:
    """The plan for people: what was found, each choice with its reason and flag, and what would fit."""
    width = max(len(one.name) for one in made.choices)
    rows = [f"  {one.name:<{width}}  {one.value}: {one.why} ({one.flag})" for one in made.choices]
    parts = [f"{made.device}: {made.hardware}", *rows]
    return "\n".join([*parts, table(made.ways, made.room_bytes)] if made.ways else parts)


def _publish(
    task: Task, result: TrainingResult, options: argparse.Namespace, config: TrainingConfig, command: Sequence[str]
) -> int:
    notes: dict[str, Any] = {
        "command": ["python", "-m", "backend.training", *command],
        "config": config.as_dict(),
        "steps": result.steps,
        "epochs": round(result.epochs, 3),
        "loss": result.loss,
        "precision": result.precision,
        "ended by": result.reason,
    }
    if result.skipped:
        notes["examples left out"] = list(result.skipped)
    task.publish(task.model, options.output, notes)
    scores = ", ".join(f"{name} {value:.4f}" for name, value in result.metrics.items()) or "no evaluation data"
    _say(f"{result.steps} steps in {result.precision}, ended by {result.reason}; {scores}", f"model: {options.output}")
    return DONE


@contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM asks the run to keep a checkpoint and end; the second ends it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  # as signal calls it
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        log_event(_log, logging.WARNING, "ending after this step, with a checkpoint", signal=number)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _failed(reason: object, code: int) -> int:
    sys.stderr.write(f"{reason}\n")
    return code
