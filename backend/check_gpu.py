"""Does the GPU work, what would be used, and why: the check-up as a command. Changes nothing but the saved choice.

python -m backend.check_gpu [--json] [--gpu N] [--choose | --forget] [--as MACHINE] [--full]

The exit code is 0 when all is good, 1 when degraded, 2 when the service would not start. docs/gpu.md says more.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

if not __package__:  # started as a file: our folder must not stand before libraries that share a name with a room
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from backend.config import Settings, load_settings, publish
from backend.device.checkup.examine import Checkup, Extras, Row, Status, examine, verdict_of
from backend.device.checkup.text import as_json, render
from backend.device.choice.prompt import choose_card, may_ask
from backend.device.choice.saved_choice import CHOICE_FILE, ChoiceFile, SavedChoice
from backend.device.choice.selection import Wishes, wants_gpu
from backend.device.facts.host import read_host
from backend.device.facts.machine import probe
from backend.device.facts.nvml import Nvml
from backend.device.facts.simulated import MACHINES, simulated
from backend.device.facts.torch_source import Torch
from backend.device.memory.device_memory import allocator_options
from backend.device.plan.attention import AttentionReport, attention_report, expected_report
from backend.device.plan.placement import Placement, place_all
from backend.device.records import (
    CardSample,
    DeviceType,
    DriverSource,
    GPULost,
    Host,
    MachineFacts,
    Platform,
    TorchSource,
)
from backend.errors import BadSettings, DeviceUnavailable
from backend.models.runtimes import candidates, why_none
from backend.telemetry import configure_logging

EXIT_INTERRUPTED = 130  # what shells report for Ctrl-C


@dataclass(frozen=True, slots=True)
class Subject:
    """The machine that is looked at."""

    host: Host
    driver: DriverSource
    torch: TorchSource
    attention: Callable[[MachineFacts, Placement], AttentionReport]
    visible: str | None = None  # CUDA_VISIBLE_DEVICES
    order: str | None = None  # CUDA_DEVICE_ORDER
    name: str = ""  # of a simulated machine

    def facts(self, *, look_for_gpu: bool) -> MachineFacts:
        """What it has."""
        return probe(
            look_for_gpu=look_for_gpu,
            driver=self.driver,
            torch_source=self.torch,
            visible=self.visible,
            order=self.order,
            host=self.host,
        )


def this_machine(settings: Settings) -> Subject:
    """The one we are on, as the service would see it: what libraries read from the environment is put there first."""
    host = read_host()
    publish(settings, _allocator(settings, host.platform))
    return Subject(
        host,
        Nvml(),
        Torch(),
        lambda _, placement: attention_report(placement.device),
        visible=settings.cuda_visible_devices,
        order=settings.cuda_device_order,
    )


def other_machine(name: str, settings: Settings) -> Subject:
    """A simulated one, numbered as the service would number its cards; CUDA_VISIBLE_DEVICES is about ours."""
    order = settings.cuda_device_order
    machine = simulated(name, order=order)
    return Subject(machine.profile.host, machine.driver_source, machine.torch_source, _expected, order=order, name=name)


def look(
    subject: Subject, settings: Settings, wishes: Wishes, saved: SavedChoice | None = None, *, full: bool = False
) -> tuple[MachineFacts, Extras]:
    """Everything that the check-up wants to know; computes on the devices that would be used and on no other.

    Args:
        full: import torch and compute even where only the CPU would be used.
    """
    facts = subject.facts(look_for_gpu=wants_gpu(wishes))
    if full and not facts.torch.version:
        facts = replace(facts, torch=subject.torch.build())
    samples, lost = _readings(subject.driver, facts)  # before we compute: later we are among its processes
    placements, refusal = _placed(facts, wishes, saved)
    examined = [placement for placement in placements if full or placement.type is not DeviceType.CPU]
    kernels = {placement.device: subject.torch.try_kernel(placement.device) for placement in examined}
    well = [placement for placement in examined if not kernels[placement.device]]
    runs, unserved = _runs(facts, placements, settings)
    return facts, Extras(
        wishes=wishes,
        placements=placements,
        refusal=refusal,
        saved=saved,
        kernels=kernels,
        samples=samples,
        lost=lost,
        attention={placement.device: subject.attention(facts, placement) for placement in well},
        allocator=_allocator(settings, facts.platform),
        runs=runs,
        unserved=unserved,
        visible=subject.visible,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Look, report on standard output, and answer with the verdict's exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.machine == "list":
        sys.stdout.write("".join(f"{name:<20} {profile.what}\n" for name, profile in MACHINES.items()))
        return 0
    if options.machine and (options.choose or options.forget):
        parser.error("--choose and --forget are about this machine: leave --as out")
    if options.choose and (options.json or not may_ask(sys.stdin, sys.stdout)):
        parser.error("--choose asks on a terminal; elsewhere name the card: --gpu N, or DEVICE=cuda:N")
    try:
        settings = load_settings()
    except BadSettings as error:
        return _tell(options, _bad_settings(error))
    try:
        return _check(options, settings)
    except KeyboardInterrupt:
        sys.stdout.write("\n")
        return EXIT_INTERRUPTED


def _check(options: argparse.Namespace, settings: Settings) -> int:
    subject = other_machine(options.machine, settings) if options.machine else this_machine(settings)
    wishes = Wishes(settings.device, settings.use_gpu, settings.lanes, options.gpu, settings.gpu_memory_fraction)
    file = ChoiceFile(settings.state_dir / CHOICE_FILE)
    try:
        if options.forget:
            _say_forgotten(file, loud=not options.json)
        elif options.choose:
            choose_card(subject.facts(look_for_gpu=True), file, sys.stdin, sys.stdout)
        saved = None if options.machine else file.load()
        facts, extras = look(subject, settings, wishes, saved, full=options.full)
    finally:
        subject.driver.close()
    return _tell(options, examine(facts, extras), facts, extras)


def _say_forgotten(file: ChoiceFile, *, loud: bool) -> None:
    done = "The saved choice is forgotten." if file.forget() else f"There is no saved choice ({file.path})."
    if loud:
        sys.stdout.write(f"{done}\n\n")


def _tell(
    options: argparse.Namespace, checkup: Checkup, facts: MachineFacts | None = None, extras: Extras | None = None
) -> int:
    if options.json:
        told = as_json(checkup, facts, extras or Extras(), options.machine or "")
        sys.stdout.write(json.dumps(told, indent=1) + "\n")
    else:
        where = f"the simulated machine {options.machine}" if options.machine else "this machine"
        sys.stdout.write(render(checkup, f"Check of {where}"))
    return checkup.verdict.exit_code


def _bad_settings(error: BadSettings) -> Checkup:
    rows = tuple(Row("settings", Status.FAIL, fault, anchor="settings") for fault in error.faults)
    return Checkup(verdict_of(rows), rows)


def _placed(facts: MachineFacts, wishes: Wishes, saved: SavedChoice | None) -> tuple[tuple[Placement, ...], str]:
    try:
        return place_all(facts, wishes, saved), ""
    except DeviceUnavailable as error:
        return (), str(error)


def _readings(driver: DriverSource, facts: MachineFacts) -> tuple[dict[str, CardSample], dict[str, str]]:
    samples: dict[str, CardSample] = {}
    lost: dict[str, str] = {}
    for gpu in facts.usable:
        if not gpu.uuid or not facts.driver.version:  # Apple, AMD: nobody to ask
            continue
        try:
            samples[gpu.uuid] = driver.sample(gpu.uuid)
        except GPULost as error:
            lost[gpu.uuid] = str(error)
    return samples, lost


def _expected(facts: MachineFacts, placement: Placement) -> AttentionReport:
    card = next((gpu for gpu in facts.usable if gpu.uuid == placement.uuid), None)
    return expected_report(placement.device, card.capability if card else (0, 0), facts.platform.system)


def _allocator(settings: Settings, platform: Platform) -> str:
    wished = settings.pytorch_alloc_conf or ""
    return allocator_options(wished, fraction=settings.gpu_memory_fraction, platform=platform)


def _runs(facts: MachineFacts, placements: Sequence[Placement], settings: Settings) -> tuple[tuple[str, ...], str]:
    """What the first start would measure with these settings, and why nothing where it is nothing."""
    runs: tuple[str, ...] = ()
    for placement in placements:
        runs = tuple(str(one) for one in candidates(facts, placement, settings.precision, settings.runtime))
        if not runs:
            return (), f"PRECISION={settings.precision}, RUNTIME={settings.runtime}: {why_none(placement)}"
    return runs, ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m backend.check_gpu",
        description="Does the GPU work, what would be used, and why. Settings are those of the service.",
        epilog="Exit code: 0 good, 1 degraded, 2 the service would not start. docs/gpu.md says what to do.",
    )
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    parser.add_argument("--gpu", type=int, metavar="N", help="as if the service were started with --gpu N")
    saved = parser.add_mutually_exclusive_group()
    saved.add_argument("--choose", action="store_true", help="ask which card to use, and keep the answer")
    saved.add_argument("--forget", action="store_true", help="forget the answer")
    parser.add_argument(
        "--as", dest="machine", metavar="MACHINE", choices=["list", *MACHINES], help="look at a simulated one"
    )
    parser.add_argument("--full", action="store_true", help="look at torch even where only the CPU is used")
    return parser


if __name__ == "__main__":
    configure_logging("WARNING")
    sys.exit(main())
