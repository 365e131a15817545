"""Keeps oneDNN from AMX where the processor reports it but executing it kills the process.

RawWord on a Xeon under a nested hypervisor: the AMX flags are passed on, but the first bfloat16 product of torch or
OpenVINO dies of SIGILL, in any thread. Every other instruction works there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Collection, MutableMapping

from backend.own_modules import PYTHONPATH

LIMIT_VARIABLE = "ONEDNN_MAX_CPU_ISA"  # read by the oneDNN inside torch and inside OpenVINO
WITHOUT_AMX = "AVX512_CORE_FP16"  # the largest instruction set below AMX
AMX_FLAGS = frozenset({"amx_tile", "amx_int8", "amx_bf16"})
_AVX512_FLAGS = frozenset({"avx512f", "avx512_vnni", "avx512_bf16"})
_BEYOND = {  # oneDNN's limits below AVX-512 with VNNI and bfloat16: what a processor has beyond them, AMX apart
    "SSE41": _AVX512_FLAGS | {"avx2", "avx_vnni"},
    "AVX": _AVX512_FLAGS | {"avx2", "avx_vnni"},
    "AVX2": _AVX512_FLAGS | {"avx_vnni"},
    "AVX2_VNNI": _AVX512_FLAGS,
    "AVX2_VNNI_2": _AVX512_FLAGS,
    "AVX512_CORE": _AVX512_FLAGS - {"avx512f"} | {"avx_vnni"},
    "AVX512_CORE_VNNI": frozenset({"avx512_bf16"}),
}
_TIMEOUT_S = 60.0  # 0.6 s on 2 cores; a machine that needs longer is busy, not broken
# One product through oneDNN's AMX kernels. OpenVINO, for it loads four times as fast as torch.
_PROBE = """
import backend  # first: it keeps OpenVINO's report of its import out
import numpy as np, openvino as ov
from openvino import opset13 as op
x = op.parameter([32, 64], np.float32)
model = ov.Model([op.matmul(x, np.ones((64, 64), np.float32), False, False)], [x])
compiled = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "bf16", "INFERENCE_NUM_THREADS": 1})
raise SystemExit(float(compiled(np.ones((32, 64), np.float32))[0].sum()) != 32 * 64 * 64)
"""


def disable_faulty_amx(
    cpu_flags: Collection[str],
    *,
    environ: MutableMapping[str, str] | None = None,
    amx_works: Callable[[], bool] | None = None,
) -> str:
    """Limit oneDNN to instructions below AMX if a product with AMX fails in a child process.

    Call it before torch or OpenVINO is imported; child processes inherit the limit. Costs nothing on a processor
    without AMX, and where the operator has set a limit, which stands.

    Args:
        environ: the process's environment; a test hands in another one.
        amx_works: runs the product; a test hands in the answer.

    Returns: the reason for the log, or "" where nothing was changed.
    """
    environ = os.environ if environ is None else environ
    if not AMX_FLAGS.intersection(cpu_flags) or LIMIT_VARIABLE in environ:
        return ""
    if (amx_works or probe_amx)():
        return ""
    environ[LIMIT_VARIABLE] = WITHOUT_AMX
    return f"the processor reports AMX but a product with it fails here: oneDNN is limited to {WITHOUT_AMX}"


def probe_amx() -> bool:
    """Whether a bfloat16 product runs and is right, in a process of its own. A time-out counts as working."""
    try:
        done = subprocess.run(  # noqa: S603  # our own interpreter and our own text
            [sys.executable, "-c", _PROBE],
            env={**os.environ, "PYTHONPATH": PYTHONPATH},
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode == 0


def flags_beyond_limit() -> frozenset[str]:
    """The processor's flags that oneDNN may not use here: by this module's limit, or by one that the operator set.

    With ``ONEDNN_MAX_CPU_ISA=AVX2`` a newer machine chooses, and its tests ask, as one of AVX2 alone.
    """
    limit = os.environ.get(LIMIT_VARIABLE, "").upper()
    if not limit or "AMX" in limit or limit in {"ALL", "DEFAULT"}:
        return frozenset()
    return _BEYOND.get(limit, frozenset()) | AMX_FLAGS
