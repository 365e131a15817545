"""Every snippet of the five GPU guides, as short calls of the same names; where one is refused, the reason is checked.

The names come from one place, ``backend.gpu_toolkit``. A guide that names card 0 gets it with ``--device cuda:0``; on
a machine without cards the request is refused and the same call is made without it.
"""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from backend.device import default_device
from backend.device.choice.saved_choice import CHOICE_FILE, ChoiceFile, choice_of
from backend.device.facts.machine import probe
from backend.device.facts.simulated import facts
from backend.errors import BadSettings, DeviceUnavailable
from backend.gpu_toolkit import (
    DeviceType,
    GPUConfig,
    GPUInfo,
    GPUManager,
    GPUMemoryOptimizer,
    IntegratedGPUTrainingSystem,
    MixedPrecisionConfig,
    MixedPrecisionTrainer,
    TrainingConfig,
    get_device_info,
    get_optimal_batch_size,
    manager,
    optimize_model_for_inference,
    profile_model,
)
from backend.training.cli import make_parser, parse_config

GUIDE_OF_FLAGS = {  # commands of document 003, without the program's name
    "mixed-precision": "--epochs 30",
    "without-mixed-precision": "--epochs 30 --no-amp",
    "without-compilation": "--epochs 30 --no-compile",
    "workers": "--num-workers 4",
    "without-channels-last": "--no-channels-last",
    "checkpointing": "--use-gradient-checkpointing",
    "little-memory": "--epochs 30 --batch-size 8 --use-gradient-checkpointing",
    "tensor-cores": "--epochs 30 --batch-size 32 --use-amp --use-compile --num-workers 2",
    "old-card": "--epochs 30 --no-amp --batch-size 16",
    "broken-workers": "--epochs 30 --num-workers 0",
    "fast": "--epochs 50 --batch-size 32 --use-amp --use-compile",
    "accumulation": "--epochs 50 --batch-size 8 --use-gradient-checkpointing --grad-accum 2",
    "everything": "--epochs 50 --batch-size 32 --use-amp --use-compile --num-workers 4 --focal-loss "
    "--label-smoothing 0.1",
    "cpu": "--epochs 50 --batch-size 16 --num-workers 4 --no-amp",
}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, device: str) -> Iterator[None]:
    """This machine, without its cards unless the tests run on one; what torch keeps for the process stays as it was."""
    monkeypatch.setattr(manager, "process_manager", None)
    default_device.configure(probe(look_for_gpu=device != "cpu"))
    benchmark = torch.backends.cudnn.benchmark
    yield
    torch.backends.cudnn.benchmark = benchmark
    default_device.reset()


@pytest.fixture
def model() -> nn.Module:
    """The guide's network, smaller."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))


def digits(count: int = 32) -> tuple[Tensor, Tensor]:
    """Inputs and classes for it."""
    return torch.randn(count, 784), torch.randint(10, (count,))


def on_card_0(device: str, **fields: Any) -> GPUConfig:
    """The guide's settings with ``device_ids=[0]``, or without where there is no card, once that was refused."""
    config = GPUConfig(device_ids=[0], **fields)
    if device.startswith("cuda"):
        return config
    with pytest.raises(DeviceUnavailable, match="cuda:0"):
        GPUManager(config).get_device()
    return GPUConfig(**fields)


@pytest.mark.slow
def test_001_set_up_and_train(device: str, model: nn.Module) -> None:
    """Set up, train, clean up, with float16 where there is a card: the loss falls, and every number is there."""
    gpu = on_card_0(
        device,
        memory_fraction=0.9,
        enable_mixed_precision=True,
        enable_gradient_checkpointing=True,
        enable_data_parallel=False,
        pin_memory=True,
        num_workers=0,
    )
    mixed = MixedPrecisionConfig(enabled=True, dtype="float16", loss_scaling=True, initial_scale=2**16, growth_factor=2)
    if device == "cpu":
        with pytest.raises(BadSettings, match="float16 on a CPU"):
            IntegratedGPUTrainingSystem(gpu, mixed)
        mixed.dtype = "auto"
    system = IntegratedGPUTrainingSystem(gpu, mixed)
    info = system.setup_training(model, (32, 784))
    loader = DataLoader(TensorDataset(*digits()), batch_size=min(16, info["optimal_batch_size"]), **info["loader"])
    epochs: list[int] = []
    stats = system.training_loop(
        model=model,
        train_loader=loader,
        criterion=nn.CrossEntropyLoss(),
        optimizer=torch.optim.Adam(model.parameters(), lr=0.001),
        num_epochs=10,
        on_epoch=lambda epoch, row: epochs.append(epoch),
    )
    system.cleanup()

    assert 1 <= info["optimal_batch_size"] <= 1024
    assert 32 * (784 + 1) + 10 * (32 + 1) == info["trainable_parameters"] == info["total_parameters"]
    assert info["model"] is model
    assert any("precision" in why or "bear" in why or "half" in why for why in info["why"])
    assert stats["final_loss"] == stats["epochs"][-1]["loss"] < stats["epochs"][0]["loss"]
    assert 20 == stats["steps"] + stats["skipped_steps"]  # float16 may look for its scale
    assert (0, None) == (stats["out_of_memory"], stats["micro_batch"])
    assert {stats["precision"]: stats["steps"]} == stats["steps_by_precision"]
    assert [*range(10)] == epochs
    assert {"loss", "steps", "duration_s", "step_s", "items_per_s"} == set(stats["epochs"][0])
    assert stats["device_metrics"]["device"] == str(system.device)


@pytest.mark.slow
def test_001_memory_optimizer(device: str, model: nn.Module) -> None:
    """The model, the batch for so many GiB, and the memory of each batch size; less memory, no larger batch."""
    optimizer = GPUMemoryOptimizer(device)
    lean = optimizer.optimize_model_memory(model, (32, 784))
    eight, six = (optimizer.optimize_batch_size(lean, (32, 784), target_memory_gb=size) for size in (0.008, 0.006))
    profile = optimizer.profile_memory_usage(lean, (32, 784))

    assert 1 <= six <= eight
    assert [1, 2, 4, 8, 16, 32] == list(profile)
    assert all(row["memory_used_gb"] > 0 for row in profile.values())


def test_001_several_cards() -> None:
    """Settings for two cards are taken by any machine, and met by one that has them."""
    config = GPUConfig(
        device_ids=[0, 1],
        memory_fraction=0.95,
        enable_data_parallel=True,
        enable_distributed=False,
        pin_memory=True,
        num_workers=8,
        prefetch_factor=4,
        persistent_workers=True,
    )
    default_device.configure(facts("ada-and-blackwell"))
    found = GPUManager(config)

    assert ["cuda:0", "cuda:1"] == [placement.device for placement in found.placements]
    assert (8, True, 4, True) == tuple(
        getattr(found.loader_settings(), name)
        for name in ("num_workers", "pin_memory", "prefetch_factor", "persistent_workers")
    )


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(
            {
                "enabled": True,
                "initial_scale": 2**16,
                "growth_factor": 2.0,
                "backoff_factor": 0.5,
                "growth_interval": 2000,
                "hysteresis": 2000,
                "min_scale": 1.0,
                "max_scale": 2**24,
            },
            id="advanced",
        ),
        pytest.param({"initial_scale": 2**15}, id="diffusion"),
    ],
)
def test_001_a_scaler_for_bfloat16(fields: dict[str, Any]) -> None:
    """Taken as both snippets write it but for the scaler, with a warning that says why; one for float16 must react."""
    with pytest.warns(UserWarning, match=r"loss_scaling=True with bfloat16 has no effect: .* only skips steps"):
        taken = MixedPrecisionConfig(dtype="bfloat16", loss_scaling=True, **fields)

    assert ("bf16", None) == (taken.short_dtype, taken.loss_scaling)
    assert fields == {name: getattr(taken, name) for name in fields}
    for dtype in ("float16", "auto"):
        with pytest.raises(BadSettings, match="hysteresis=2000: bad steps in a row to bear"):
            MixedPrecisionConfig(dtype=dtype, **{**fields, "hysteresis": 2000})


def test_001_when_memory_runs_out(device: str, model: nn.Module) -> None:
    """A smaller batch, checkpointing from the next set-up on, memory given back."""
    config = GPUConfig(device=device)
    found, optimizer = GPUManager(config), GPUMemoryOptimizer(device)
    config.enable_gradient_checkpointing = True

    assert optimizer.optimize_batch_size(model, (32, 784), target_memory_gb=0.006) >= 1
    assert found.config.enable_gradient_checkpointing
    assert found.clear_memory() >= 0


def test_001_when_numbers_break(device: str, model: nn.Module) -> None:
    """bfloat16 in place of float16: a scaler that was asked for goes with it. A gentler scale for float16."""
    config = MixedPrecisionConfig(enabled=True, dtype="float16", loss_scaling=True, initial_scale=2**16)
    config.initial_scale = 2**15
    config.growth_factor = 1.5
    gentle = (config.scales, config.initial_scale, config.growth_factor)
    with pytest.warns(UserWarning, match="loss_scaling=True with bfloat16"):
        config.dtype = "bfloat16"
    trainer = MixedPrecisionTrainer(config, device)

    assert (True, 2**15, 1.5) == gentle
    assert (None, "bfloat16") == (config.loss_scaling, config.dtype)
    assert torch.bfloat16 == trainer.forward_pass(model, digits(2)[0]).dtype
    with pytest.raises(BadSettings, match="growth_factor=1: must be above 1"):
        config.growth_factor = 1.0
    with pytest.raises(BadSettings, match="dtype='float8'"):
        config.dtype = "float8"
    assert (None, "bfloat16", 1.5) == (config.loss_scaling, config.dtype, config.growth_factor)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["language", "vision", "diffusion"])
def test_001_kinds_of_models(device: str, kind: str) -> None:
    """A transformer and a denoiser get their memory, a network of images its batch."""
    layers = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2, enable_nested_tensor=False
    )
    images = nn.Sequential(nn.Conv2d(3, 4, 3, stride=8), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 28 * 28, 2))
    network, shape = {
        "language": (layers, (4, 8, 16)),
        "vision": (images, (8, 3, 224, 224)),
        "diffusion": (nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.SiLU(), nn.Conv2d(8, 3, 3)), (2, 3, 16, 16)),
    }[kind]
    GPUConfig(memory_fraction=0.95, enable_gradient_checkpointing=True, enable_mixed_precision=True)
    GPUConfig(pin_memory=True, num_workers=8, prefetch_factor=4)
    optimizer = GPUMemoryOptimizer(device, max_batch_size=8)

    if kind == "vision":
        assert 1 <= optimizer.optimize_batch_size(network, shape) <= 8
    else:
        assert network is optimizer.optimize_model_memory(network, shape)


def test_002_the_right_device(device: str) -> None:
    """Chosen by itself, or among several cards the one with the most memory; named devices still work."""
    chosen = TrainingConfig(device="auto"), TrainingConfig(device="cuda")
    default_device.configure(facts("ada-and-blackwell"))
    freest = GPUManager(set_ceiling=lambda *_: "").setup_device()

    assert ("auto", "cuda") == tuple(config.device for config in chosen)
    assert torch.device("cuda:0") == freest
    assert {"cuda", "mps", "cpu"} == {str(kind) for kind in DeviceType}
    assert all(isinstance(gpu, GPUInfo) for gpu in default_device.machine_facts().gpus)


def test_002_profile_and_inference(device: str, model: nn.Module) -> None:
    """Samples a second of a model that was prepared; the largest batch; everything about the device."""
    served = optimize_model_for_inference(model, device=device)
    results = profile_model(model=served, input_shape=(784,), batch_size=32, batches=3, device=device)

    assert results["throughput_samples_per_sec"] > 0
    assert not served.training
    assert 1 <= get_optimal_batch_size(served, (784,), device, max_batch_size=8) <= 8
    assert get_device_info(device)["platform"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"use_amp": True}, (32, 32, "auto"), id="mixed-precision-on"),
        pytest.param(
            {"batch_size": 32, "use_amp": True, "amp_dtype": "float16", "num_workers": 8},
            (32, 32, "fp16"),
            id="float16",
        ),
        pytest.param({"amp_dtype": "bfloat16"}, (32, 32, "bf16"), id="bfloat16"),
        pytest.param({"batch_size": 16}, (16, 16, "auto"), id="smaller-batch"),
        pytest.param({"batch_size": 16, "gradient_accumulation_steps": 2}, (32, 16, "auto"), id="accumulation"),
    ],
)
def test_002_training_config(fields: dict[str, Any], expected: tuple[int, int, str]) -> None:
    """Items of a step, items at once, and the half precision; what was given can be read back."""
    config = TrainingConfig(device="auto", **fields)

    assert expected == (config.effective_batch, config.items_at_once or config.effective_batch, config.short_dtype)
    assert fields == {name: getattr(config, name) for name in fields}
    assert fields.items() <= config.as_dict().items()


@pytest.mark.parametrize(
    ("name", "reason"),
    [("SignTrainer", r"train\(task, config\) trains any model"), ("SignFlowInferencePipeline", "the service runs")],
)
@pytest.mark.parametrize("package", ["backend.training", "backend.gpu_toolkit"])
def test_002_classes_of_its_application(package: str, name: str, reason: str) -> None:
    """Refused at the import, with what to take instead."""
    with pytest.raises(ImportError, match=reason):
        exec(f"from {package} import {name}")
    assert name not in dir(importlib.import_module(package))


@pytest.mark.parametrize("flags", GUIDE_OF_FLAGS.values(), ids=GUIDE_OF_FLAGS)
def test_003_commands(flags: str) -> None:
    """Every command's flags are taken and give valid settings. ``test_cli`` runs them."""
    options = make_parser().parse_args(["document-images", "--data", "x", "--output", "y", *flags.split()])
    config, user_set = parse_config(options)

    assert "--batch-size 8 --use-gradient-checkpointing --grad-accum 2" not in flags or 16 == config.effective_batch
    assert ("--no-amp" in flags, "--use-compile" in flags) == (not config.use_amp, config.compile)
    assert len([flag for flag in flags.split() if flag.startswith("--")]) == len(user_set)


def test_004_the_script_of_verification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Platform, cards, Flash Attention and the saved choice, in a process without settings of the service."""
    machine = facts("ada-and-blackwell")
    monkeypatch.setenv("STATE_DIR", str(tmp_path))
    monkeypatch.setattr(default_device, "probe", lambda: machine)
    default_device.reset()
    first_run = GPUConfig().config.get("selected_gpu_id")
    ChoiceFile(tmp_path / CHOICE_FILE).save(choice_of(machine.gpus[1], "580", "2026-01-01T00:00:00+00:00"))
    default_device.reset()
    config = GPUConfig()
    platform, flash = config.detect_platform(), config.check_flash_attention()

    assert first_run is None
    assert 1 == config.config["selected_gpu_id"] == config.config.get("selected_gpu_id")
    assert "cuda:1" == default_device.placement().device
    assert [0, 1] == [gpu["id"] for gpu in config.get_gpu_info()]
    assert all(gpu["name"] and gpu["architecture"] for gpu in config.get_gpu_info())
    assert isinstance(platform["is_wsl"], bool)
    assert platform["system"]
    assert flash["version"] if flash["installed"] else flash["why"]
