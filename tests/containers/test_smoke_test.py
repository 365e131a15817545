"""deploy/image/smoke_test.py: what it refuses. That it passes, each build of an image shows (make test-containers)."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from PIL import Image

from tests.containers.engine import ROOT


@pytest.fixture
def smoke() -> ModuleType:
    spec = importlib.util.spec_from_file_location("smoke_test", ROOT / "deploy/image/smoke_test.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def install(monkeypatch: pytest.MonkeyPatch, smoke: ModuleType, *names: str) -> None:
    packages = [SimpleNamespace(metadata={"Name": name}, version="1.0") for name in names]
    monkeypatch.setattr(smoke, "distributions", lambda: packages)


def test_two_onnx_runtimes(monkeypatch: pytest.MonkeyPatch, smoke: ModuleType) -> None:
    """They fill one folder: which of the two is imported is chance. None at all is refused too."""
    install(monkeypatch, smoke, "onnxruntime", "onnxruntime_gpu")
    with pytest.raises(SystemExit, match=r"one ONNX Runtime is needed.*installed: onnxruntime, onnxruntime-gpu"):
        smoke.check_packages("gpu")

    install(monkeypatch, smoke, "torch")
    with pytest.raises(SystemExit, match="installed: none"):
        smoke.check_packages("cpu")


@pytest.mark.parametrize(("kind", "cuda"), [("gpu", None), ("cpu", "12.9")])
def test_a_torch_of_the_other_image(monkeypatch: pytest.MonkeyPatch, smoke: ModuleType, kind: str, cuda: str | None):
    install(monkeypatch, smoke, "onnxruntime")
    monkeypatch.setattr(torch.version, "cuda", cuda)

    with pytest.raises(SystemExit, match=f"is of CUDA {cuda}, in the image for {kind}: see TORCH_INDEX_URL"):
        smoke.check_packages(kind)


def test_an_onnx_runtime_of_another_cuda(monkeypatch: pytest.MonkeyPatch, smoke: ModuleType) -> None:
    """It would load the libraries of a CUDA that torch does not bring."""
    from onnxruntime.capi import build_and_package_info

    monkeypatch.setattr(build_and_package_info, "cuda_version", "12.8", raising=False)
    with pytest.raises(SystemExit, match=r"onnxruntime-gpu is for CUDA 12.8, torch for 13.0"):
        smoke.check_onnxruntime("13.0")
    with pytest.raises(SystemExit, match="and no CUDA"):
        smoke.check_onnxruntime("12.9")


def test_speech_without_its_library(monkeypatch: pytest.MonkeyPatch, smoke: ModuleType) -> None:
    monkeypatch.setattr("backend.speech.whisper.load_cublas", lambda: "libcublas.so.12 cannot be loaded")

    with pytest.raises(SystemExit, match="speech would stay on the CPU: libcublas"):
        smoke.check_speech_on_cuda()


def test_a_compiler_without_headers(monkeypatch: pytest.MonkeyPatch, smoke: ModuleType, tmp_path: Path, capsys):
    """Python's are needed too; no compiler at all is a choice (WITH_COMPILER=no)."""
    compiler = tmp_path / "gcc"
    compiler.write_text("#!/bin/sh\necho 'Python.h: No such file' >&2\nexit 1\n", encoding="utf-8")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(SystemExit, match=r"cannot do what torch.compile asks of it:\nPython.h: No such file"):
        smoke.check_compiler()

    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    smoke.check_compiler()

    assert "no C compiler: torch.compile is not used" in capsys.readouterr().out


def test_a_service_that_does_not_start(monkeypatch: pytest.MonkeyPatch, smoke: ModuleType, tmp_path: Path) -> None:
    """Its exit code, at once and not after the wait."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 2\n", encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    service = smoke.Service(str(tmp_path))

    with pytest.raises(SystemExit, match="the service ended with 2 before it was ready"):
        service.wait()


def test_what_it_sends(smoke: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "page.png").write_bytes(smoke.printed_page())

    with Image.open(tmp_path / "page.png") as page:
        assert (874, 1240) == page.size
    assert smoke.silence().startswith(b"RIFF")
