"""Which attention kernels run: chooses flash before cuDNN, reports them per device, tests flash-attn packages."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from backend.device.plan.precision import TORCH_NAMES, torch_dtype
from backend.device.records import DeviceType

_SHAPE = (2, 12, 64, 64)  # batch, heads, tokens, head width, as in a base-size encoder
_FAST = ("flash", "cudnn")
_DISPATCHER = "_fused_sdp_choice"  # private to torch; without it ``expected_kernels`` is reported instead
_HUB = "kernels"  # the package that downloads prebuilt kernels

TryKernel = Callable[[str, str], str]  # (module, torch device) -> "" or the error as one sentence


@dataclass(frozen=True, slots=True)
class _Flash:
    """A flash-attn distribution; two of them share the import name flash_attn."""

    name: str
    module: str  # that defines flash_attn_func
    capability_min: tuple[int, int]


_FLASH = (
    _Flash("flash-attn", "flash_attn", (8, 0)),
    _Flash("flash-attn-3", "flash_attn_interface", (8, 0)),
    _Flash("flash-attn-4", "flash_attn.cute", (9, 0)),
)


@dataclass(frozen=True, slots=True)
class KernelUse:
    """The kernel of torch's scaled_dot_product_attention: "flash", "cudnn", "efficient", "math" or "metal"."""

    dtype: str  # "bf16", "fp16" or "fp32"
    unpadded: str  # all texts of one length, so no mask
    padded: str  # with the mask that hides the padding


@dataclass(frozen=True, slots=True)
class Package:
    """A distribution with attention kernels."""

    name: str
    version: str  # "" when not installed
    usable: bool
    why: str  # one sentence; "" when not installed


@dataclass(frozen=True, slots=True)
class AttentionReport:
    """The attention kernels and packages of one device."""

    device: str
    asked: bool  # True: reported by torch's dispatcher; False: by its rules for such a card
    kernels: tuple[KernelUse, ...]  # one per dtype that the device computes natively
    packages: tuple[Package, ...]
    advice: tuple[str, ...]


def prefer_flash() -> str:
    """Turn cuDNN's attention off in this process, on every device and thread; returns a log sentence.

    On Hopper and data-center Blackwell torch asks cuDNN first (aten/native/transformers/cuda/sdp_utils.cpp), which
    plans a kernel for each new shape: 47 ms of the host's time on an H100, and no plan is ever dropped. Batches of
    texts have a new shape nearly every time. Flash and the memory-efficient kernel serve all shapes at once.
    """
    import torch  # seconds and 300 MiB that a CPU service on another runtime must not pay

    torch.backends.cuda.enable_cudnn_sdp(False)
    return "attention by flash and the memory-efficient kernel; cuDNN's is off, which plans a kernel for each new shape"


@contextmanager
def flash_preferred() -> Iterator[None]:
    """``prefer_flash`` while the block runs; then as it was."""
    import torch  # likewise

    switches: Any = torch.backends.cuda  # without annotations
    before = bool(switches.cudnn_sdp_enabled())
    prefer_flash()
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def attention_report(device: str = "cpu") -> AttentionReport:
    """Query torch and the installed packages on a device of this machine: "cpu", "mps" or "cuda:0".

    As this process is set: inside ``flash_preferred`` as the service and training are.
    Creates a context on a card: call it for selected ones only. ``expected_report`` needs no device.
    """
    import torch  # as in prefer_flash

    kind = DeviceType(device.partition(":")[0])
    capability = torch.cuda.get_device_capability(device) if kind is DeviceType.CUDA else (0, 0)
    expected = expected_kernels(kind, capability)
    asked = kind is not DeviceType.MPS and hasattr(torch, _DISPATCHER)
    kernels = tuple(_dispatched_kernel(device, use.dtype) for use in expected) if asked else expected
    flash_packages = (
        _check_flash(flash, installed_version(flash.name), device, capability, try_flash) for flash in _FLASH
    )
    packages = (*flash_packages, _hub(installed_version(_HUB)))
    return AttentionReport(device, asked, kernels, packages, advise(kind, capability, kernels, packages))


def expected_report(device: str, capability: tuple[int, int], system: str = "Linux") -> AttentionReport:
    """PURE: the same for a device of another machine, by torch's rules; without packages."""
    kind = DeviceType(device.partition(":")[0])
    kernels = expected_kernels(kind, capability, system)
    return AttentionReport(device, False, kernels, (), advise(kind, capability, kernels, ()))


def check_flash_attention(device: str = "auto") -> dict[str, object]:
    """Whether a flash-attn package works here: ``installed``, ``version``, ``package``, ``usable``, ``why``.

    Looks for the distribution, since flash-attn and flash-attn-4 share an import name. Imports torch only if one is
    installed.
    """
    if not any(installed_version(flash.name) for flash in _FLASH):
        why = "no flash-attn package is installed; torch has flash kernels of its own, so nothing needs to be"
        return {"installed": False, "version": "", "package": "", "usable": False, "why": why}
    if device == "auto":
        import torch  # as in attention_report

        device = "cuda:0" if torch.cuda.is_available() else "cpu"
    packages = attention_report(device).packages
    installed = [package for package in packages if package.version and package.name != _HUB]
    best = max(installed, key=lambda package: package.usable)
    return {"installed": True, "version": best.version, "package": best.name, "usable": best.usable, "why": best.why}


def expected_kernels(kind: DeviceType, capability: tuple[int, int], system: str = "Linux") -> tuple[KernelUse, ...]:
    """PURE: what torch's dispatcher selects on such a device after ``prefer_flash``.

    Flash needs Ampere, half precision and no mask; the memory-efficient kernel takes masks and every dtype. Without
    ``prefer_flash`` cuDNN's goes first on compute capability 9.0 and 10.x, for both.
    """
    if kind is DeviceType.CPU:
        return tuple(KernelUse(dtype, "flash", "flash") for dtype in TORCH_NAMES)  # the CPU's flash takes a mask
    if kind is DeviceType.MPS:
        return tuple(KernelUse(dtype, "metal", "metal") for dtype in TORCH_NAMES)
    half = "flash" if capability >= (8, 0) and system != "Windows" else "efficient"  # pytorch#108175: not in its wheels
    dtypes = [dtype for dtype in TORCH_NAMES if dtype != "bf16" or capability >= (8, 0)]
    return tuple(KernelUse(dtype, "efficient" if dtype == "fp32" else half, "efficient") for dtype in dtypes)


def advise(
    kind: DeviceType, capability: tuple[int, int], kernels: Sequence[KernelUse], packages: Sequence[Package]
) -> tuple[str, ...]:
    """PURE: what would make attention faster here.

    Never recommends a build from source: for the RTX 50 series that often fails (flash-attention#2361, #2535), and
    torch has the same kernels.
    """
    if kind is not DeviceType.CUDA:
        return ()
    advice: list[str] = []
    halves = [use for use in kernels if use.dtype != "fp32"]
    if any("cudnn" in (use.unpadded, use.padded) for use in kernels):
        advice.append(
            "torch takes cuDNN's attention here, which plans a kernel for each new shape (47 ms each on an H100); the "
            "service and training turn it off: torch.backends.cuda.enable_cudnn_sdp(False)"
        )
    if capability < (8, 0):
        advice.append("flash attention needs an Ampere card (8.0) or newer; the memory-efficient kernel runs instead")
    elif any(use.unpadded in _FAST and use.padded not in _FAST for use in halves):
        advice.append(
            "padded batches run the memory-efficient kernel, because a mask rules flash out; "
            "batches of equal lengths keep flash, and the batcher already sorts by length"
        )
    if any(use.unpadded in _FAST for use in halves):
        advice.append("float32 never runs flash attention on a card; PRECISION=auto takes a half precision that does")
    advice += [
        f"{package.name} {package.version} is installed but does not work: {package.why}"
        for package in packages
        if package.version and not package.usable and package.name != _HUB
    ]
    return tuple(advice)


def installed_version(distribution: str) -> str:
    """The distribution's version, or "" when not installed. Imports nothing."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def try_flash(module: str, device: str) -> str:
    """Run the package's kernel once on the device: "" or the error.

    The import alone finds only wheels that were built for another torch; one without code for this card fails at the
    first call (flash-attention#1638).
    """
    import torch  # as in attention_report

    batch, heads, tokens, width = _SHAPE
    query = torch.ones(batch, tokens, heads, width, device=device, dtype=torch.float16)
    try:
        result = importlib.import_module(module).flash_attn_func(query, query, query)
        output = result[0] if isinstance(result, tuple) else result
        finite = bool(torch.isfinite(output).all())
    except Exception as error:  # noqa: BLE001  # a foreign binary, which may raise anything
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return "" if finite else "its output is not finite"


def _check_flash(
    flash: _Flash, installed: str, device: str, capability: tuple[int, int], try_kernel: TryKernel
) -> Package:
    if not installed:
        return Package(flash.name, "", False, "")
    if not device.startswith("cuda"):
        return Package(flash.name, installed, False, f"it runs on NVIDIA cards only, not on {device}")
    if capability < flash.capability_min:
        need, has = (".".join(map(str, pair)) for pair in (flash.capability_min, capability))
        return Package(flash.name, installed, False, f"it needs compute capability {need}, this card has {has}")
    fault = try_kernel(flash.module, device)
    return Package(flash.name, installed, not fault, fault or f"one call ran on {device}")


def _hub(installed: str) -> Package:
    why = "fetches prebuilt kernels from the hub on first use" if installed else ""
    return Package(_HUB, installed, bool(installed), why)


def _dispatched_kernel(device: str, dtype: str) -> KernelUse:
    """What torch's dispatcher selects for card, build, shapes, mask and the user's switches."""
    import torch  # as in attention_report
    from torch.nn.attention import SDPBackend

    backends: Any = SDPBackend  # defined in C, untyped
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
