"""Whisper on the device: does it start, does its encoder agree with the CPU's, how fast is it."""

import time
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.errors import ModelUnavailable
from backend.files.speech_records import SAMPLE_RATE
from backend.speech.model_files import BUNDLED_SPEECH, resolve_speech_model
from backend.speech.transcribe import log_mel
from backend.speech.whisper import LoadedWhisper, SpeechPlacement, load_whisper, on_host, place_speech
from benchmarks.gpu_check.context import Context, NotPossible
from benchmarks.gpu_check.encoders import placement_on

_FRAMES = 3000  # of a window of 30 s
_BATCH, _SMALL_FRAMES = 16, 300
_EXACT = SpeechPlacement("cpu", 0, "float32", 1, 1, "the reference of this check")


def measure(context: Context) -> dict[str, Any]:
    """Where the service would run it, seconds of audio a second of its encoder, and cosine to float32 on the CPU.

    Raises: NotPossible without the extra [speech].
    """
    if find_spec("ctranslate2") is None:
        raise NotPossible("ctranslate2 is not installed (the extra [speech])")
    try:
        files = resolve_speech_model(BUNDLED_SPEECH)
    except ModelUnavailable as error:
        raise NotPossible(str(error)) from error
    place = place_speech(placement_on(context.device), lanes=1)
    result: dict[str, Any] = {"on": place.device, "precision": place.precision, "why": place.why}
    context.keep(result)
    started_s = time.perf_counter()
    model = load_whisper(files, place)
    result["load_s"] = time.perf_counter() - started_s
    frames, batch = (_SMALL_FRAMES, 1) if context.is_small else (_FRAMES, _BATCH)
    features = np.stack([_voice(seed, model.mels, frames) for seed in range(batch)])
    encoded = _encode(model, features)
    exact = _encode(load_whisper(files, _EXACT), features[:1])
    result["cosine_to_float32"] = _cosine(encoded[0], exact[0])
    runs = 1 if context.is_small else 5
    started_s = time.perf_counter()
    for _ in range(runs):
        _encode(model, features)
    seconds = (time.perf_counter() - started_s) / runs
    result |= {"batch": batch, "encode_s": seconds, "audio_per_s": batch * frames / 100 / seconds}
    return result


def _voice(seed: int, mels: int, frames: int) -> NDArray[np.float32]:
    """Features of a hum with overtones and noise, as loud as speech."""
    rng, times = np.random.default_rng(seed), np.arange(frames * 160) / SAMPLE_RATE
    tones = sum(np.sin(2 * np.pi * (110 + 7 * seed) * n * times) / n for n in range(1, 9))
    samples = 3000 * tones * (1 + np.sin(2 * np.pi * 3 * times)) + rng.normal(0, 200, len(times))
    return log_mel(samples.astype(np.int16), mels, frames)


def _encode(model: LoadedWhisper, features: NDArray[np.float32]) -> NDArray[Any]:
    import ctranslate2  # of the extra [speech]

    view = ctranslate2.StorageView.from_array(np.ascontiguousarray(features))
    return np.asarray(on_host(model.model.encode(view, to_cpu=True)), np.float32)


def _cosine(first: NDArray[Any], second: NDArray[Any]) -> float:
    a, b = first.ravel(), second.ravel()
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
