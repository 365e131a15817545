"""Which attention kernel really runs for a batch without and with padding, and whether a flash-attn package helps."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from backend.device.plan.precision import TORCH_NAMES, torch_dtype
from backend.device.records import DeviceType

_SHAPE = (2, 12, 64, 64)  # batch, heads, tokens, width of a head, as a base-size encoder sends them
_FAST = ("flash", "cudnn")
_DISPATCHER = "_fused_sdp_choice"  # private to torch; where it is gone, its rules as we know them stand in
_HUB = "kernels"  # fetches prebuilt kernels; nothing is compiled here

VersionOf = Callable[[str], str]  # a distribution's version, "" where it is not installed
TryKernel = Callable[[str, str], str]  # module and torch device in; "" out, or what went wrong as one sentence


@dataclass(frozen=True, slots=True)
class _Flash:
    """A distribution of flash-attn; two of them share the import name flash_attn."""

    name: str
    module: str  # what has its flash_attn_func
    oldest: tuple[int, int]  # compute capability


_FLASH = (
    _Flash("flash-attn", "flash_attn", (8, 0)),
    _Flash("flash-attn-3", "flash_attn_interface", (8, 0)),
    _Flash("flash-attn-4", "flash_attn.cute", (9, 0)),
)


@dataclass(frozen=True, slots=True)
class KernelUse:
    """What torch's scaled_dot_product_attention runs in one dtype: "flash", "cudnn", "efficient", "math" or "metal"."""

    dtype: str  # "bf16", "fp16" or "fp32"
    unpadded: str  # all texts of one length, so no mask
    padded: str  # with the mask that hides the padding


@dataclass(frozen=True, slots=True)
class Package:
    """A distribution that brings attention kernels."""

    name: str
    version: str  # "" where it is not installed
    usable: bool
    why: str  # one sentence; "" where it is not installed


@dataclass(frozen=True, slots=True)
class AttentionReport:
    """Everything about attention on one device."""

    device: str
    asked: bool  # torch's own dispatcher answered; otherwise these are its rules for such a card
    kernels: tuple[KernelUse, ...]  # one a dtype that the device computes itself
    packages: tuple[Package, ...]
    advice: tuple[str, ...]


def attention_report(
    device: str = "cpu", *, version_of: VersionOf | None = None, try_kernel: TryKernel | None = None
) -> AttentionReport:
    """Ask torch and the installed packages on a device that is here: "cpu", "mps" or "cuda:0".

    Opens a context on a card; call it for chosen ones only. ``expected_report`` needs no device.
    """
    import torch  # seconds and 300 MiB that a CPU service on another runtime must not pay

    kind = DeviceType(device.partition(":")[0])
    capability = torch.cuda.get_device_capability(device) if kind is DeviceType.CUDA else (0, 0)
    expected = expected_kernels(kind, capability)
    asked = kind is not DeviceType.MPS and hasattr(torch, _DISPATCHER)
    kernels = tuple(_ask(device, use.dtype) for use in expected) if asked else expected
    told, run = version_of or installed_version, try_kernel or try_flash
    found = tuple(_examine(flash, told(flash.name), device, capability, run) for flash in _FLASH)
    packages = (*found, _hub(told(_HUB)))
    return AttentionReport(device, asked, kernels, packages, advise(kind, capability, kernels, packages))


def expected_report(device: str, capability: tuple[int, int], system: str = "Linux") -> AttentionReport:
    """PURE: the same for a device that is not here, by torch's rules; says nothing of packages."""
    kind = DeviceType(device.partition(":")[0])
    kernels = expected_kernels(kind, capability, system)
    return AttentionReport(device, False, kernels, (), advise(kind, capability, kernels, ()))


def check_flash_attention(device: str = "auto", *, version_of: VersionOf | None = None) -> dict[str, object]:
    """Whether a flash-attn package is here and works: ``installed``, ``version``, ``package``, ``usable``, ``why``.

    Known by its distribution: flash-attn and flash-attn-4 share an import name. torch is imported only where one is
    installed.
    """
    told = version_of or installed_version
    if not any(told(flash.name) for flash in _FLASH):
        why = "no flash-attn package is installed; torch has flash kernels of its own, so nothing needs to be"
        return {"installed": False, "version": "", "package": "", "usable": False, "why": why}
    if device == "auto":
        import torch  # as in attention_report

        device = "cuda:0" if torch.cuda.is_available() else "cpu"
    found = [package for package in attention_report(device, version_of=told).packages if package.name != _HUB]
    best = max((package for package in found if package.version), key=lambda package: package.usable)
    return {
        "installed": True,
        "version": best.version,
        "package": best.name,
        "usable": best.usable,
        "why": best.why,
    }


def expected_kernels(kind: DeviceType, capability: tuple[int, int], system: str = "Linux") -> tuple[KernelUse, ...]:
    """PURE: what torch's dispatcher takes on such a device (aten/native/transformers/cuda/sdp_utils.cpp).

    Flash needs Ampere, half precision and no mask; the memory-efficient kernel takes masks and every dtype. cuDNN's
    comes after both unless somebody asks for it (transformers#48163, on Hopper).
    """
    if kind is DeviceType.CPU:
        return tuple(KernelUse(dtype, "flash", "flash") for dtype in TORCH_NAMES)  # the CPU's own takes a mask
    if kind is DeviceType.MPS:
        return tuple(KernelUse(dtype, "metal", "metal") for dtype in TORCH_NAMES)
    half = "flash" if capability >= (8, 0) and system != "Windows" else "efficient"  # pytorch#108175: not in its wheels
    dtypes = [dtype for dtype in TORCH_NAMES if dtype != "bf16" or capability >= (8, 0)]
    return tuple(KernelUse(dtype, "efficient" if dtype == "fp32" else half, "efficient") for dtype in dtypes)


def advise(
    kind: DeviceType, capability: tuple[int, int], kernels: Sequence[KernelUse], packages: Sequence[Package]
) -> tuple[str, ...]:
    """PURE: what would make attention faster here. Never to build something from source: for the RTX 50 series

    that fails more often than not (flash-attention#2361, #2535), and torch brings the same kernels.
    """
    if kind is not DeviceType.CUDA:
        return ()
    said: list[str] = []
    halves = [use for use in kernels if use.dtype != "fp32"]
    if capability < (8, 0):
        said.append("flash attention needs an Ampere card (8.0) or newer; the memory-efficient kernel runs instead")
    elif any(use.unpadded in _FAST and use.padded not in _FAST for use in halves):
        said.append(
            "padded batches run the memory-efficient kernel, because a mask rules flash out; "
            "batches of equal lengths keep flash, and the batcher already sorts by length"
        )
    if any(use.unpadded in _FAST for use in halves):
        said.append("float32 never runs flash attention on a card; PRECISION=auto takes a half precision that does")
    said += [
        f"{package.name} {package.version} is installed but does not work: {package.why}"
        for package in packages
        if package.version and not package.usable and package.name != _HUB
    ]
    return tuple(said)


def installed_version(distribution: str) -> str:
    """Its version, or "" where it is not installed. Nothing is imported."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def try_flash(module: str, device: str) -> str:
    """Run the package's kernel once on the device: "" or what went wrong.

    An import alone proves nothing: a wheel built for another torch fails there, but one without code for this card
    fails at the first call (flash-attention#1638).
    """
    import torch  # as in attention_report

    batch, heads, tokens, width = _SHAPE
    query = torch.ones(batch, tokens, heads, width, device=device, dtype=torch.float16)
    try:
        found = importlib.import_module(module).flash_attn_func(query, query, query)
        output = found[0] if isinstance(found, tuple) else found
        finite = bool(torch.isfinite(output).all())
    except Exception as error:  # noqa: BLE001  # the border to foreign binaries, which break in any way
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return "" if finite else "its output is not finite"


def _examine(flash: _Flash, found: str, device: str, capability: tuple[int, int], try_kernel: TryKernel) -> Package:
    if not found:
        return Package(flash.name, "", False, "")
    if not device.startswith("cuda"):
        return Package(flash.name, found, False, f"it runs on NVIDIA cards only, not on {device}")
    if capability < flash.oldest:
        need, has = (".".join(map(str, pair)) for pair in (flash.oldest, capability))
        return Package(flash.name, found, False, f"it needs compute capability {need}, this card has {has}")
    fault = try_kernel(flash.module, device)
    return Package(flash.name, found, not fault, fault or f"one call ran on {device}")


def _hub(found: str) -> Package:
    return Package(_HUB, found, bool(found), "fetches prebuilt kernels from the hub on first use" if found else "")


def _ask(device: str, dtype: str) -> KernelUse:
    """torch's dispatcher itself, which weighs card, build, shapes, mask and the user's switches."""
    import torch  # as in attention_report
    from torch.nn.attention import SDPBackend

    backends: Any = SDPBackend  # made in C, without types
    names = {
        int(backends.FLASH_ATTENTION): "flash",
        int(backends.CUDNN_ATTENTION): "cudnn",
        int(backends.EFFICIENT_ATTENTION): "efficient",
        int(backends.MATH): "math",
    }
    query = torch.ones(_SHAPE, device=device, dtype=torch_dtype(dtype))
    batch, _, tokens, _ = _SHAPE
    mask = torch.ones(batch, 1, tokens, tokens, device=device, dtype=torch.bool)
    mask[0, :, :, tokens // 2 :] = False
    choose: Any = getattr(torch, _DISPATCHER)
    unpadded, padded = (
        names.get(int(choose(query, query, query, hidden, 0.0, False)), "other") for hidden in (None, mask)
    )
    return KernelUse(dtype, unpadded, padded)
