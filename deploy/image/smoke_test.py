"""Checks an image while it is built: its packages fit together, and the service answers on the CPU without a hub.

    python smoke_test.py cpu|gpu        (in the image, as its user; needs the standard library and the image alone)

A build that ends here would have ended at the first start, or at the first request of one kind. No card is needed:
what only a card can show is left to `python check_gpu.py` on one.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.error
import urllib.request
import wave
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

READY_S, ANSWER_S, STOP_S = 600.0, 180.0, 90.0  # an image for another processor is built on an emulated one
TEXT = "Factura 2024/017 de Aceros del Norte, S.A. (NIF A58818501): 1.284,50 EUR, vence el 12 de marzo de 2024."
PRINT = ("Factura 2024-017 de Aceros del Norte", "Vence el 12 de marzo de 2024")


def check_packages(kind: str) -> None:
    """One ONNX Runtime, of torch's CUDA; libraries that are opened late can be opened."""
    names = {re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower(): one.version for one in distributions()}
    runtimes = sorted(name for name in names if name in {"onnxruntime", "onnxruntime-gpu"})
    if len(runtimes) != 1:
        sys.exit(f"one ONNX Runtime is needed, as both fill one folder; installed: {', '.join(runtimes) or 'none'}")
    import torch

    cuda = torch.version.cuda
    if (kind == "gpu") != bool(cuda):
        sys.exit(f"torch {torch.__version__} is of CUDA {cuda}, in the image for {kind}: see TORCH_INDEX_URL")
    say(f"torch {torch.__version__}, CUDA {cuda}, {runtimes[0]} {names[runtimes[0]]}")
    if runtimes == ["onnxruntime-gpu"]:
        check_onnxruntime(cuda or "")
    if cuda:
        check_speech_on_cuda()


def check_onnxruntime(cuda: str) -> None:
    """Its CUDA is torch's, and all libraries that its provider names are there but the driver's."""
    import onnxruntime
    from onnxruntime.capi import build_and_package_info as info

    if info.cuda_version.partition(".")[0] != cuda.partition(".")[0]:
        sys.exit(f"onnxruntime-gpu is for CUDA {info.cuda_version}, torch for {cuda}: see tools/lock_image.py")
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        sys.exit(f"onnxruntime-gpu offers {onnxruntime.get_available_providers()} and no CUDA")
    provider = Path(onnxruntime.__file__).parent / "capi" / "libonnxruntime_providers_cuda.so"
    folders = sorted({str(file.parent) for root in nvidia_folders() for file in root.rglob("*.so*")})
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(folders)}
    listed = subprocess.run(["ldd", provider], env=environment, check=True, capture_output=True, text=True).stdout
    absent = {line.split()[0] for line in listed.splitlines() if "not found" in line} - {"libcuda.so.1"}
    if absent:
        sys.exit(f"no package of torch's brings what ONNX Runtime's CUDA needs: {', '.join(sorted(absent))}")
    say(f"ONNX Runtime for CUDA {info.cuda_version}: {len(listed.splitlines())} libraries found")


def nvidia_folders() -> list[Path]:
    """Where the packages of CUDA's libraries lie."""
    spec = find_spec("nvidia")
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []


def check_speech_on_cuda() -> None:
    """CTranslate2 opens cuBLAS of CUDA 12 at its first multiplication, and would fail there."""
    from backend.speech.whisper import load_cublas

    if fault := load_cublas():
        sys.exit(f"speech would stay on the CPU: {fault}")
    ctypes.CDLL("libcublas.so.12")  # as CTranslate2 asks for it
    say("CTranslate2 finds cuBLAS")


def check_compiler() -> None:
    """Where a C compiler is installed, it compiles what Triton has it compile: C with Python's headers."""
    compiler = shutil.which("gcc")
    if compiler is None:
        say("no C compiler: torch.compile is not used")
        return
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text("#include <Python.h>\nint probe(void) { return PY_MAJOR_VERSION; }\n", encoding="utf-8")
        include = sysconfig.get_paths()["include"]
        command = [compiler, str(source), "-O3", "-shared", "-fPIC", f"-I{include}", "-o", f"{folder}/probe.so"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the C compiler cannot do what torch.compile asks of it:\n{done.stderr}")
    say(f"{compiler} compiles for torch.compile")


class Service:
    """The service as the image starts it, but on the CPU, offline and with empty folders."""

    def __init__(self, folder: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        places = {"STATE_DIR": f"{folder}/state", "HF_HOME": f"{folder}/models", "HOME": folder, "TMPDIR": folder}
        offline = {"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": "http://127.0.0.1:9"}
        chosen = {"USE_GPU": "false", "RUNTIME": "torch", "PRECISION": "exact"}  # else it would measure five of them
        fixed = {"HOST": "127.0.0.1", "PORT": str(self._port), **chosen, **places, **offline}
        self._process = subprocess.Popen([sys.executable, "-m", "backend.main"], env={**os.environ, **fixed})

    def wait(self) -> None:
        end = time.monotonic() + READY_S
        while self._process.poll() is None:
            try:
                self.ask("GET", "/health/ready")
            except OSError:
                if time.monotonic() > end:
                    sys.exit(f"the service was not ready within {READY_S:.0f} s")
                time.sleep(0.5)
            else:
                return
        sys.exit(f"the service ended with {self._process.returncode} before it was ready; its log is above")

    def ask(self, method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> dict[str, Any]:
        """The JSON answer. Raises: OSError where there is none, or an error."""
        headers = {"Content-Type": kind} if body is not None else {}
        url = f"http://127.0.0.1:{self._port}{path}"
        request = urllib.request.Request(url, data=body, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            told: dict[str, Any] = json.load(answer)
            return told

    def post(self, path: str, **fields: object) -> dict[str, Any]:
        try:
            return self.ask("POST", path, json.dumps(fields).encode())
        except urllib.error.HTTPError as error:
            sys.exit(f"POST {path}: {error.code} {error.read().decode(errors='replace')}")

    def upload(self, path: str, name: str, content: bytes, **fields: str) -> dict[str, Any]:
        """The JSON answer to a file as forms send it."""
        edge = "smoke-test-edge"
        parts = [f'name="{field}"\r\n\r\n{value}'.encode() for field, value in fields.items()]
        parts.append(f'name="file"; filename="{name}"\r\n\r\n'.encode() + content)
        body = b"".join(f"--{edge}\r\nContent-Disposition: form-data; ".encode() + part + b"\r\n" for part in parts)
        try:
            return self.ask("POST", path, body + f"--{edge}--\r\n".encode(), f"multipart/form-data; boundary={edge}")
        except urllib.error.HTTPError as error:
            sys.exit(f"POST {path}: {error.code} {error.read().decode(errors='replace')}")

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(STOP_S)
        if code:
            sys.exit(f"the service ended with {code} when it was told to stop")

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def check_answers(service: Service) -> None:
    """One request of each kind, answered by what is in the image."""
    vectors = service.post("/v1/embeddings", input=[TEXT], model="bundled")["data"]
    expect(len(vectors[0]["embedding"]) == 384, "embeddings", vectors[0]["embedding"][:3])
    entities = service.post("/v1/entities", input=TEXT)
    expect("A58818501" in json.dumps(entities), "entities", entities)
    types = service.post("/v1/classify", input=[f"Factura n.º 2024-017. {TEXT}"], top_k=2)
    expect(types["data"][0]["prediction"] == "invoice", "document types", types)
    labels = service.post("/v1/classify", input=["El equipo ganó la final."], labels=["deportes", "política"])
    expect(labels["data"][0]["prediction"] == "deportes", "classes of the request", labels)
    for engine in ("tesseract", "rapidocr"):
        page = service.upload("/v1/documents", "page.png", printed_page(), engine=engine)
        expect("Aceros del Norte" in page["text"], f"a page by {engine}", page["text"])
    heard = service.upload("/v1/audio/transcriptions", "silence.wav", silence(), model="whisper-1")
    expect(heard["text"] == "", "a silent recording", heard)
    check_search(service)
    say("texts, classes, pages, speech and search answer without a hub")


def check_search(service: Service) -> None:
    file = service.upload("/v1/files", "nota.txt", TEXT.encode(), purpose="assistants")
    store = service.post("/v1/vector_stores", name="smoke test", file_ids=[file["id"]])
    end = time.monotonic() + ANSWER_S
    while service.ask("GET", f"/v1/vector_stores/{store['id']}")["file_counts"]["completed"] == 0:
        expect(time.monotonic() < end, "indexing a file", store)
        time.sleep(0.2)
    hits = service.post(f"/v1/vector_stores/{store['id']}/search", query="¿Cuándo vence la factura?")
    expect("12 de marzo" in json.dumps(hits, ensure_ascii=False), "search", hits)


def check_whisper() -> None:
    """The speech model loads and runs; silence alone would not reach it."""
    import ctranslate2
    import numpy as np

    from backend.device.plan.placement import Placement
    from backend.speech.model_files import resolve_speech_model
    from backend.speech.whisper import load_whisper, place_speech

    loaded = load_whisper(resolve_speech_model("bundled"), place_speech(Placement("cpu", 1, 1, 1, ()), lanes=1))
    mels = ctranslate2.StorageView.from_array(np.zeros((1, loaded.mels, 3000), np.float32))
    expect(bool(loaded.model.detect_language(mels)[0]), "Whisper", "no language")
    say("Whisper runs")


def printed_page() -> bytes:
    """A PNG of A5 at 150 dpi."""
    from PIL import Image, ImageDraw, ImageFont

    paper = Image.new("L", (874, 1240), 255)
    pen, font = ImageDraw.Draw(paper), ImageFont.load_default(28)
    for row, line in enumerate(PRINT):
        pen.text((80, 100 + 70 * row), line, 0, font)
    written = io.BytesIO()
    paper.save(written, "PNG")
    return written.getvalue()


def silence() -> bytes:
    """Two seconds of it, as a WAV file."""
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(bytes(64_000))
    return written.getvalue()


def expect(holds: bool, what: str, got: object) -> None:
    if not holds:
        sys.exit(f"{what}: not what was expected, got {got}")


def say(text: str) -> None:
    print(f"smoke test: {text}", flush=True)


def main() -> None:
    """Every check; the first that fails ends the build with what is wrong."""
    kinds = {"cpu", "gpu"} & set(sys.argv[1:])
    if len(kinds) != 1:
        sys.exit(f"say which image this is, cpu or gpu; got {sys.argv[1:]}")
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
    check_packages(*kinds)
    check_compiler()
    check_whisper()
    with tempfile.TemporaryDirectory() as folder:
        service = Service(folder)
        try:
            service.wait()
            check_answers(service)
            service.stop()
        finally:
            service.kill()


if __name__ == "__main__":
    main()
