"""The settings for each class of hardware, their reasons, and the wishes that are never overruled."""

from dataclasses import replace

import pytest

from backend.device.choice.selection import DeviceRequest
from backend.device.facts.simulated import MACHINES, facts
from backend.device.plan.placement import Placement, place
from backend.device.records import DeviceType, GPUInfo, MachineFacts, Platform
from backend.errors import BadSettings, DoesNotFit
from backend.training.cli import make_parser
from backend.training.memory import Footprint
from backend.training.planner import Plan, Workload, half_precision_for, make_plan
from backend.training.records import MixedPrecisionConfig, TrainingConfig

GIB, MIB = 2**30, 2**20
T4 = GPUInfo(0, "Tesla T4", "GPU-a", 16 * GIB, (7, 5), bf16=False, free_bytes=15 * GIB)
A100 = GPUInfo(0, "NVIDIA A100 80GB", "GPU-b", 80 * GIB, (8, 0), bf16=True, free_bytes=79 * GIB)
SMALL = GPUInfo(0, "NVIDIA RTX A400", "GPU-c", 3 * GIB, (8, 6), bf16=True, free_bytes=3 * GIB)
GTX1080 = GPUInfo(0, "NVIDIA GeForce GTX 1080", "GPU-d", 8 * GIB, (6, 1), bf16=False, free_bytes=8 * GIB)
GTX1660 = GPUInfo(0, "NVIDIA GeForce GTX 1660", "GPU-e", 6 * GIB, (7, 5), bf16=False, free_bytes=6 * GIB)
APPLE = GPUInfo(0, "Apple M3 Pro", "", 27 * GIB, (0, 0), bf16=True, unified=True)
CPU = MachineFacts(8, "a processor", (), 16 * GIB, why_no_gpu="no driver", free_memory_bytes=12 * GIB)


def with_card(gpu: GPUInfo) -> MachineFacts:
    """A machine with this card."""
    kind = DeviceType.MPS if gpu is APPLE else DeviceType.CUDA
    return replace(CPU, gpus=(gpu,), gpu_type=kind, why_no_gpu="", platform=Platform(shm_bytes=8 * GIB))


def plan_for(machine: MachineFacts, config: TrainingConfig | None = None, **rest: object) -> Plan:
    """On the device that the machine would choose."""
    workload = rest.pop("workload", Workload())
    assert isinstance(workload, Workload)
    return make_plan(machine, place(machine, DeviceRequest()), config or TrainingConfig(), workload, **rest)  # type: ignore[arg-type]


def value(chosen: Plan, name: str) -> str:
    return next(choice.value for choice in chosen.choices if choice.name == name)


def why(chosen: Plan, name: str) -> str:
    return next(choice.why for choice in chosen.choices if choice.name == name)


def step(item_mib: int, lean_mib: int, *, weights_mib: int = 100) -> list[Footprint]:
    """Footprints of a model whose items take so much, in full and with checkpointing; estimated at 1 and 32."""
    return [
        Footprint(again, False, weights_mib * MIB, 10, weights_mib * MIB, {1: each * MIB, 32: 32 * each * MIB})
        for again, each in ((False, item_mib), (True, lean_mib))
    ]


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        pytest.param(CPU, "fp32", id="processor-that-emulates"),
        pytest.param(replace(CPU, cpu_flags=("avx512_bf16",)), "bf16", id="processor-with-bf16"),
        pytest.param(with_card(A100), "bf16", id="ampere"),
        pytest.param(with_card(T4), "fp16", id="turing"),
        pytest.param(with_card(GTX1080), "fp32", id="pascal"),
        pytest.param(with_card(GTX1660), "fp32", id="turing-without-tensor-cores"),
        pytest.param(with_card(APPLE), "fp16", id="apple"),
    ],
)
def test_precision(machine: MachineFacts, expected: str):
    """The best that the hardware computes itself, and what the loop will begin with."""
    chosen = plan_for(machine)
    half = expected if expected in ("bf16", "fp16") else None

    assert expected == value(chosen, "precision").replace("tf32", "fp32")
    assert half == half_precision_for(machine, place(machine, DeviceRequest()), TrainingConfig())
    assert chosen.config.mixed_precision == TrainingConfig().mixed_precision


def test_precision_as_asked():
    """Off is off; an emulated half precision is granted with a warning; T5 is kept from fp16, which it overflows."""
    asked = TrainingConfig(mixed_precision=MixedPrecisionConfig(dtype="bfloat16"))

    assert "fp32" == value(plan_for(with_card(A100), TrainingConfig(use_amp=False)), "precision")
    assert "emulates" in why(plan_for(with_card(T4), asked), "precision")
    assert "fp32" == value(plan_for(with_card(T4), workload=Workload(model_type="t5")), "precision")


@pytest.mark.parametrize(
    ("machine", "steps", "expected"),
    [
        pytest.param(CPU, 10**6, "off", id="cpu"),
        pytest.param(with_card(APPLE), 10**6, "off", id="apple"),
        pytest.param(with_card(GTX1080), 10**6, "off", id="too-old"),
        pytest.param(with_card(A100), 100, "off", id="short-run"),
        pytest.param(with_card(A100), None, "off", id="unknown-run"),
        pytest.param(with_card(A100), 10**5, "on", id="long-run"),
        pytest.param(replace(with_card(A100), platform=Platform("Windows")), 10**5, "off", id="windows"),
        pytest.param(replace(with_card(A100), platform=Platform(c_compiler=False)), 10**5, "off", id="no-compiler"),
    ],
)
def test_compile(machine: MachineFacts, steps: int | None, expected: str):
    """Where it can pay, and not for short runs."""
    chosen = plan_for(machine, workload=Workload(steps=steps))

    assert expected == value(chosen, "compile")
    assert (expected == "on") is chosen.config.compile


def test_compiling_without_a_compiler_is_refused():
    """The plan says why it is off; who asks for it on a card is told what to install, and may still refuse it."""
    bare = replace(with_card(A100), platform=Platform(c_compiler=False))

    assert "gcc or clang" in why(plan_for(bare, workload=Workload(steps=10**5)), "compile")
    with pytest.raises(BadSettings, match="--use-compile: it needs a C compiler"):
        plan_for(bare, TrainingConfig(compile=True), user_set={"compile"})
    assert "as asked" == why(plan_for(bare, TrainingConfig(compile=False), user_set={"compile"}), "compile")


@pytest.mark.parametrize(
    ("gpu", "images", "expected"),
    [(A100, True, True), (A100, False, False), (GTX1080, True, False), (None, True, False)],
)
def test_layout(gpu: GPUInfo | None, images: bool, expected: bool):
    """Channels last for convolutions on tensor cores."""
    chosen = plan_for(with_card(gpu) if gpu else CPU, workload=Workload(images=images))

    assert expected is chosen.config.channels_last


def test_the_batch_runs_in_parts():
    """Parts of like size: 20 fit, so two of 16 and not 20 and 12."""
    capacity = place(with_card(SMALL), DeviceRequest()).memory_bytes
    each = (capacity // MIB - 300) / 1.3 / 20.5
    chosen = plan_for(with_card(SMALL), footprints=step(int(each), 1))

    assert 16 == chosen.config.micro_batch
    assert chosen.config.gradient_checkpointing is False
    assert "20 of 32 items fit at once: 2 parts a step" in why(chosen, "micro-batch")


def test_little_memory():
    """Fewer than eight at once: activations are computed again, as training guides advise, with the same batch."""
    chosen = plan_for(with_card(SMALL), footprints=step(500, 60))

    assert chosen.config.gradient_checkpointing
    assert 32 == chosen.config.batch_size
    assert 16 == chosen.config.micro_batch
    assert "little memory" in chosen.hardware
    assert "same gradients" in why(chosen, "gradient-checkpointing")


def test_a_cpu_does_not_compute_twice_for_nothing():
    """Small micro-batches cost a processor nothing; only what does not fit at all is checkpointed."""
    tight = replace(CPU, free_memory_bytes=2 * GIB)

    assert not plan_for(tight, footprints=step(600, 60)).config.gradient_checkpointing
    assert plan_for(tight, footprints=step(6000, 60)).config.gradient_checkpointing


def test_what_the_user_set_stays():
    """No setting of the user is overruled, whatever would be better."""
    config = TrainingConfig(micro_batch=30, num_workers=3, compile=False, channels_last=True)
    user_set = {"micro_batch", "num_workers", "compile", "gradient_checkpointing", "channels_last"}
    chosen = plan_for(
        with_card(SMALL), config, workload=Workload(steps=10**6), user_set=user_set, footprints=step(500, 60)
    )

    assert config == chosen.config
    assert "though 3 would fit" in why(chosen, "micro-batch")
    assert all(
        "as asked" in why(chosen, name) for name in ("compile", "gradient-checkpointing", "num-workers", "layout")
    )


def test_not_even_one_item_fits():
    """Stopped before the start, with what would fit."""
    lora = Footprint(False, True, 100 * MIB, 10, MIB, {1: 20 * MIB, 32: 640 * MIB})
    config, user_set = TrainingConfig(), {"gradient_checkpointing"}

    with pytest.raises(
        DoesNotFit, match=r"these would fit: checkpointing \(--use-gradient-checkpointing\) 29 at once; LoRA"
    ):
        plan_for(with_card(SMALL), config, user_set=user_set, footprints=[*step(5000, 60), lora])


def test_a_loss_that_looks_at_the_whole_batch():
    """Is not cut into equal parts: the task bounds its own memory by the micro-batch."""
    chosen = plan_for(with_card(SMALL), workload=Workload(splittable=False), footprints=step(60, 59))

    assert 32 > (chosen.config.micro_batch or 0) > 16
    assert "the loss looks at the whole batch" in why(chosen, "micro-batch")


def test_what_changes_the_result_is_left_to_the_user():
    """LoRA and the 8-bit optimizer are shown, not chosen."""
    chosen = plan_for(with_card(SMALL), workload=Workload(eight_bit=True), footprints=step(500, 60))

    assert (None, False) == (chosen.config.lora_rank, chosen.config.eight_bit_optimizer)
    assert ["off", "off"] == [value(chosen, "lora"), value(chosen, "8-bit-optimizer")]
    assert 4 == len(chosen.memory_plans)


def test_every_choice_has_its_switch():
    """Each flag is one that the command line knows, whichever way the choice went."""
    flags = make_parser().format_help()
    for machine in (CPU, with_card(A100), with_card(APPLE), with_card(GTX1080)):
        for images in (True, False):
            chosen = plan_for(machine, workload=Workload(images=images, steps=10**6), footprints=step(10, 3))

            assert [] == [choice.flag for choice in chosen.choices if choice.flag.split()[0] not in flags]
            assert all(choice.why for choice in chosen.choices)


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_real_machines(name: str):
    """Every captured machine that has a device gets a plan."""
    machine = facts(name)
    placement: Placement = place(machine, DeviceRequest())

    chosen = make_plan(machine, placement, TrainingConfig(), footprints=step(1, 1, weights_mib=1))

    assert placement.device == chosen.device
    assert 32 == chosen.config.micro_batch
