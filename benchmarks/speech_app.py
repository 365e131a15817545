"""faster-whisper behind a minimal FastAPI app, the way its users serve it: one model, a route that runs on threads.

uvicorn benchmarks.speech_app:app    # with BENCHMARK_MODEL, BENCHMARK_THREADS and BENCHMARK_WORKERS
"""

import os
from typing import Annotated

from fastapi import FastAPI, File, Form, UploadFile
from faster_whisper import WhisperModel

from benchmarks.speech_peers import BEAMS, COMPUTE_TYPE

app = FastAPI()
_model = WhisperModel(
    os.environ["BENCHMARK_MODEL"],
    device="cpu",
    compute_type=COMPUTE_TYPE,
    cpu_threads=int(os.environ["BENCHMARK_THREADS"]),
    num_workers=int(os.environ["BENCHMARK_WORKERS"]),
)


@app.get("/health/ready")
def ready() -> dict[str, str]:
    """The model is loaded before the app answers."""
    return {"status": "ready"}


@app.post("/v1/audio/transcriptions")
def transcribe(file: Annotated[UploadFile, File()], language: Annotated[str | None, Form()] = None) -> dict[str, str]:
    """OpenAI's shape, as far as the benchmark reads it."""
    segments, info = _model.transcribe(file.file, language=language, beam_size=BEAMS)
    return {"text": "".join(segment.text for segment in segments).strip(), "language": info.language}
