"""Command that checks whether the GPU works, which device the service would use, and why. Writes only the saved choice.

python -m backend.check_gpu [--json] [--gpu N] [--choose | --forget] [--as MACHINE] [--full | --verbose]

The exit code is 0 when all is good, 1 when degraded, 2 when the service would not start. See docs/gpu.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

if not __package__:  # started as a file: backend/ must not be on the path, its packages would hide libraries
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from backend.config import Settings, load_settings, publish
from backend.device.choice.prompt import choose_card, is_interactive
from backend.device.choice.saved_choice import CHOICE_FILE, ChoiceFile, SavedChoice
from backend.device.choice.selection import DeviceRequest, wants_gpu
from backend.device.diagnosis import Diagnosis, Finding, Observations, Status, as_json, diagnose, render, verdict_of
from backend.device.facts.amx import disable_faulty_amx
from backend.device.facts.host import cpu, read_host
from backend.device.facts.machine import probe
from backend.device.facts.nvml import Nvml
from backend.device.facts.simulated import MACHINES, simulated
from backend.device.facts.torch_source import Torch
from backend.device.memory.device_memory import allocator_options
from backend.device.plan.attention import AttentionReport, attention_report, expected_report, flash_preferred
from backend.device.plan.placement import Placement, place_all
from backend.device.records import (
    CardSample,
    DeviceType,
    DriverSource,
    GPULost,
    MachineFacts,
    Platform,
    TorchSource,
)
from backend.errors import BadSettings, DeviceUnavailable
from backend.models.runtimes import candidates, why_none
from backend.telemetry import configure_logging

EXIT_INTERRUPTED = 130  # what shells report for Ctrl-C


@dataclass(frozen=True, slots=True)
class Target:
    """The machine to diagnose: this one or a simulated one."""

    host: MachineFacts  # what the host alone tells
    driver: DriverSource
    torch: TorchSource
    attention: Callable[[MachineFacts, Placement], AttentionReport]
    visible: str | None = None  # CUDA_VISIBLE_DEVICES
    order: str | None = None  # CUDA_DEVICE_ORDER
    name: str = ""  # of a simulated machine

    def probe(self, *, look_for_gpu: bool) -> MachineFacts:
        """Probe this machine through its sources."""
        return probe(
            look_for_gpu=look_for_gpu,
            driver=self.driver,
            torch_source=self.torch,
            visible=self.visible,
            order=self.order,
            host=self.host,
        )


def this_machine(settings: Settings) -> Target:
    """This machine as the service would see it, after setting the environment variables that libraries read."""
    host = read_host()
    publish(settings, _allocator(settings, host.platform))
    return Target(
        host,
        Nvml(),
        Torch(),
        _served_attention,
        visible=settings.cuda_visible_devices,
        order=settings.cuda_device_order,
    )


def simulated_machine(name: str, settings: Settings) -> Target:
    """A simulated machine with this CUDA_DEVICE_ORDER; CUDA_VISIBLE_DEVICES is about the cards of this machine."""
    order = settings.cuda_device_order
    machine = simulated(name, order=order)
    sources = machine.driver_source, machine.torch_source
    return Target(machine.profile.host, *sources, _expected_attention, order=order, name=name)


def observe(
    target: Target, settings: Settings, request: DeviceRequest, saved: SavedChoice | None = None, *, full: bool = False
) -> tuple[MachineFacts, Observations]:
    """Collect everything that the diagnosis needs. Runs kernels only on the devices that would be used.

    Args:
        full: import torch and run kernels even if only the CPU would be used.
    """
    facts = target.probe(look_for_gpu=wants_gpu(request))
    if full and not facts.torch.version:
        facts = replace(facts, torch=target.torch.build())
    samples, lost = _sample_cards(target.driver, facts)  # before the kernels, which add this process to the cards'
    placements, refusal = _place(facts, request, saved)
    tested = [placement for placement in placements if full or placement.type is not DeviceType.CPU]
    kernels = {placement.device: target.torch.try_kernel(placement.device) for placement in tested}
    working = [placement for placement in tested if not kernels[placement.device]]
    runs, unserved = _candidate_runs(facts, placements, settings)
    return facts, Observations(
        request=request,
        placements=placements,
        refusal=refusal,
        saved=saved,
        kernels=kernels,
        samples=samples,
        lost=lost,
        attention={placement.device: target.attention(facts, placement) for placement in working},
        allocator=_allocator(settings, facts.platform),
        runs=runs,
        unserved=unserved,
        visible=target.visible,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Diagnose, write the report to standard output, and return the verdict's exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.machine == "list":
        sys.stdout.write("".join(f"{name:<20} {profile.description}\n" for name, profile in MACHINES.items()))
        return 0
    if options.machine and (options.choose or options.forget):
        parser.error("--choose and --forget are about this machine: leave --as out")
    if options.choose and (options.json or not is_interactive(sys.stdin, sys.stdout)):
        parser.error("--choose asks on a terminal; elsewhere name the card: --gpu N, or DEVICE=cuda:N")
    try:
        settings = load_settings()
    except BadSettings as error:
        return _report(options, _bad_settings(error))
    disable_faulty_amx(cpu()[1])  # the report then names the instructions that the service would use
    try:
        return _check(options, settings)
    except KeyboardInterrupt:
        sys.stdout.write("\n")
        return EXIT_INTERRUPTED


def _check(options: argparse.Namespace, settings: Settings) -> int:
    target = simulated_machine(options.machine, settings) if options.machine else this_machine(settings)
    request = DeviceRequest(
        settings.device, settings.use_gpu, settings.lanes, options.gpu, settings.gpu_memory_fraction
    )
    file = ChoiceFile(settings.state_dir / CHOICE_FILE)
    try:
        if options.forget:
            message = "The saved choice is forgotten." if file.forget() else f"There is no saved choice ({file.path})."
            sys.stdout.write("" if options.json else f"{message}\n\n")
        elif options.choose:
            choose_card(target.probe(look_for_gpu=True), file, sys.stdin, sys.stdout)
        saved = None if options.machine else file.load()
        facts, observed = observe(target, settings, request, saved, full=options.full)
    finally:
        target.driver.close()
    return _report(options, diagnose(facts, observed), facts, observed)


def _report(
    options: argparse.Namespace,
    diagnosis: Diagnosis,
    facts: MachineFacts | None = None,
    observed: Observations | None = None,
) -> int:
    """Write the report and return the exit code."""
    if options.json:
        content = as_json(diagnosis, facts, observed or Observations(), options.machine or "")
        sys.stdout.write(json.dumps(content, indent=1) + "\n")
    else:
        where = f"the simulated machine {options.machine}" if options.machine else "this machine"
        sys.stdout.write(render(diagnosis, f"Check of {where}"))
    return diagnosis.verdict.exit_code


def _bad_settings(error: BadSettings) -> Diagnosis:
    findings = tuple(Finding("settings", Status.FAIL, fault, anchor="settings") for fault in error.faults)
    return Diagnosis(verdict_of(findings), findings)


def _place(facts: MachineFacts, request: DeviceRequest, saved: SavedChoice | None) -> tuple[tuple[Placement, ...], str]:
    try:
        return place_all(facts, request, saved), ""
    except DeviceUnavailable as error:
        return (), str(error)


def _sample_cards(driver: DriverSource, facts: MachineFacts) -> tuple[dict[str, CardSample], dict[str, str]]:
    samples: dict[str, CardSample] = {}
    lost: dict[str, str] = {}
    for gpu in facts.usable:
        if not gpu.uuid or not facts.driver.version:  # Apple, AMD: NVML does not know them
            continue
        try:
            samples[gpu.uuid] = driver.sample(gpu.uuid)
        except GPULost as error:
            lost[gpu.uuid] = str(error)
    return samples, lost


def _served_attention(_facts: MachineFacts, placement: Placement) -> AttentionReport:
    """As the service runs: with cuDNN's attention off."""
    with flash_preferred():
        return attention_report(placement.device)


def _expected_attention(facts: MachineFacts, placement: Placement) -> AttentionReport:
    card = next((gpu for gpu in facts.usable if gpu.uuid == placement.uuid), None)
    return expected_report(placement.device, card.capability if card else (0, 0), facts.platform.system)


def _allocator(settings: Settings, platform: Platform) -> str:
    configured = settings.pytorch_alloc_conf or ""
    return allocator_options(configured, fraction=settings.gpu_memory_fraction, platform=platform)


def _candidate_runs(
    facts: MachineFacts, placements: Sequence[Placement], settings: Settings
) -> tuple[tuple[str, ...], str]:
    """The runtimes and dtypes that the first start would measure; () with the reason when there are none."""
    runs: tuple[str, ...] = ()
    for placement in placements:
        runs = tuple(str(candidate) for candidate in candidates(facts, placement, settings.precision, settings.runtime))
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
    parser.add_argument(
        *("--full", "--verbose"), action="store_true", help="look at torch even where only the CPU is used"
    )
    return parser


if __name__ == "__main__":
    configure_logging("WARNING")
    sys.exit(main())
