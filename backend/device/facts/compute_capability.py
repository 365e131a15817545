"""PURE: architecture and native dtypes of a CUDA compute capability. Product names mislead: an RTX 6000 Ada is 8.9."""

from __future__ import annotations

import re
from dataclasses import dataclass

# NVIDIA, "CUDA GPUs" (compute capability by product) and the CUDA programming guide's table of features.
NAMES: dict[tuple[int, int], str] = {
    (3, 0): "Kepler",
    (3, 2): "Kepler",  # Tegra K1
    (3, 5): "Kepler",
    (3, 7): "Kepler",  # K80
    (5, 0): "Maxwell",
    (5, 2): "Maxwell",
    (5, 3): "Maxwell",  # Jetson Nano, TX1
    (6, 0): "Pascal",  # P100
    (6, 1): "Pascal",  # GTX 10xx, P4, P40
    (6, 2): "Pascal",  # Jetson TX2
    (7, 0): "Volta",  # V100
    (7, 2): "Volta",  # Jetson Xavier
    (7, 5): "Turing",  # RTX 20xx, GTX 16xx, T4
    (8, 0): "Ampere",  # A100, A30
    (8, 6): "Ampere",  # RTX 30xx, A10, A40
    (8, 7): "Ampere",  # Jetson Orin
    (8, 9): "Ada Lovelace",  # RTX 40xx, L4, L40S, RTX 6000 Ada
    (9, 0): "Hopper",  # H100, H200, GH200
    (10, 0): "Blackwell",  # B200, GB200
    (10, 1): "Blackwell (Thor)",  # what CUDA before 13 called 11.0
    (10, 3): "Blackwell Ultra",  # B300, GB300
    (11, 0): "Blackwell (Thor)",  # Jetson T5000, DRIVE Thor
    (12, 0): "Blackwell workstation",  # RTX 50xx, RTX PRO 6000 Blackwell
    (12, 1): "Blackwell (GB10)",  # DGX Spark
}
# Turing chips TU116 and TU117 have no tensor cores, and networks in half precision give NaN or black images on them:
# AUTOMATIC1111/stable-diffusion-webui, wiki "Optimizations" (--no-half for 16xx); ComfyUI keeps such a list too.
_WITHOUT_TENSOR_CORES = re.compile(
    r"\b(GTX 16[356]0|MX450|MX550|T400E?|T500|T550|T600|T1000E?|T1200|T2000|CMP 30HX)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Architecture:
    """A GPU generation and the dtypes that its hardware computes without emulation."""

    name: str  # "Ada Lovelace"
    sm: str  # "sm_89"; "" without a compute capability (Apple, AMD)
    bf16: bool
    fp16: bool  # on tensor cores
    tf32: bool
    fp8: bool


def architecture(capability: tuple[int, int]) -> Architecture:
    """The generation of a compute capability; an unknown one is named "sm_XY (newer than this table)".

    (0, 0) means no CUDA card. Tensor cores came with Volta (fp16), Ampere (bf16, tf32) and Ada (fp8).
    """
    if capability == (0, 0):
        return Architecture("not a CUDA architecture", "", bf16=False, fp16=False, tf32=False, fp8=False)
    sm = f"sm_{capability[0]}{capability[1]}"
    return Architecture(
        name=NAMES.get(capability, f"{sm} (newer than this table)"),
        sm=sm,
        bf16=capability >= (8, 0),
        fp16=capability >= (7, 0),
        tf32=capability >= (8, 0),
        fp8=capability >= (8, 9),
    )


def fp16_is_broken(name: str, capability: tuple[int, int]) -> bool:
    """Whether half precision gives wrong numbers on this card: Turing without tensor cores (GTX 16xx, MX450, …).

    By name, since these cards share capability 7.5 with the T4 and the RTX 20xx.
    """
    return capability == (7, 5) and _WITHOUT_TENSOR_CORES.search(name) is not None
