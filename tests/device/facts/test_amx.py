"""AMX that the processor reports but cannot execute is kept from oneDNN."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from backend.device.facts.amx import LIMIT_VARIABLE, WITHOUT_AMX, disable_faulty_amx, probe_amx
from backend.device.facts.host import cpu

AMX = ("avx512_bf16", "amx_bf16")


@pytest.mark.parametrize(
    ("flags", "environ", "works", "expected"),
    [
        pytest.param(AMX, {}, False, {LIMIT_VARIABLE: WITHOUT_AMX}, id="broken"),
        pytest.param(AMX, {}, True, {}, id="working"),
        pytest.param(("avx512_bf16",), {}, False, {}, id="no-amx"),
        pytest.param(AMX, {LIMIT_VARIABLE: "AVX2"}, False, {LIMIT_VARIABLE: "AVX2"}, id="the-operators-limit-stands"),
    ],
)
def test_the_limit(flags: tuple[str, ...], environ: dict[str, str], works: bool, expected: dict[str, str]):
    """oneDNN is limited exactly where AMX is reported and fails, and the reason is given."""
    before = dict(environ)

    reason = disable_faulty_amx(flags, environ=environ, amx_works=lambda: works)

    assert expected == environ
    assert bool(reason) == (environ != before)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("", ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")),
        ("avx512_core_amx", ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")),
        ("AVX512_CORE_FP16", ("avx2", "avx512f", "avx512_vnni", "avx512_bf16")),
        ("AVX512_CORE", ("avx2", "avx512f")),
        ("avx2", ("avx2",)),
    ],
)
def test_a_limit_hides_the_flags_beyond_it(monkeypatch, tmp_path, limit: str, expected: tuple[str, ...]):
    """Whoever set it: a machine that is limited to AVX2 chooses as one that has no more."""
    monkeypatch.setenv(LIMIT_VARIABLE, limit)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("flags : avx2 avx512f avx512_vnni avx512_bf16 amx_bf16\n")

    assert expected == cpu(tmp_path)[1]


@pytest.mark.slow
def test_after_the_guard_products_run(monkeypatch: pytest.MonkeyPatch):
    """On every machine: what the guard leaves enabled computes a bfloat16 product without killing the process."""
    monkeypatch.delenv(LIMIT_VARIABLE, raising=False)
    environ = dict(os.environ)
    flags = () if sys.platform != "linux" else cpu()[1]

    disable_faulty_amx(flags, environ=environ)
    script = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); assert 64 == (a @ a)[0, 0]"
    done = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=False)

    assert 0 == done.returncode, done.stderr


def test_the_probe_below_amx(monkeypatch: pytest.MonkeyPatch):
    """The probe itself computes right where AMX is not used."""
    monkeypatch.setenv(LIMIT_VARIABLE, WITHOUT_AMX)

    assert probe_amx()


def test_the_probe_tells_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """OpenVINO's report of its import to its maker begins with files in the user's folder, but for where CI is set."""
    monkeypatch.setenv(LIMIT_VARIABLE, WITHOUT_AMX)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)

    assert probe_amx()
    assert [] == list(tmp_path.iterdir())
