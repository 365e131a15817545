"""Recordings for tests, made with PyAV: every container, with tones whose place tells the second."""

import io
import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import av
import numpy as np
from av.container import Flags
from numpy.typing import NDArray

from backend.files.file_readers import FileReaders, OpenFile
from backend.files.speech_records import SAMPLE_RATE

BLOCK = 1024  # samples of a frame as they are encoded


class Kind(NamedTuple):
    """How a recording is written."""

    container: str  # libavformat's muxer
    codec: str
    rate: int = 44_100
    layout: str = "stereo"
    sample_format: str | None = None  # None: the encoder's first
    bit_rate: int | None = None
    options: Mapping[str, str] = {}
    with_video: bool = False


KINDS: dict[str, Kind] = {
    "wav": Kind("wav", "pcm_s16le"),
    "wav-8-bit": Kind("wav", "pcm_u8", 8_000, "mono"),
    "wav-24-bit": Kind("wav", "pcm_s24le", 96_000),
    "wav-float": Kind("wav", "pcm_f32le", 48_000),
    "wav-double": Kind("wav", "pcm_f64le", 16_000, "mono"),
    "wav-mulaw": Kind("wav", "pcm_mulaw", 8_000, "mono"),
    "wav-adpcm": Kind("wav", "adpcm_ima_wav", 22_050, "mono"),
    "wav-7.1": Kind("wav", "pcm_s16le", 48_000, "7.1"),
    "rf64": Kind("wav", "pcm_s16le", options={"rf64": "always"}),
    "w64": Kind("w64", "pcm_s16le"),
    "aiff": Kind("aiff", "pcm_s16be"),
    "au": Kind("au", "pcm_s16be"),
    "caf": Kind("caf", "pcm_s16be"),
    "caf-alac": Kind("caf", "alac", 48_000, "mono"),
    "mp3": Kind("mp3", "libmp3lame"),
    "mp3-without-id3": Kind("mp3", "libmp3lame", 16_000, "mono", options={"id3v2_version": "0", "write_xing": "0"}),
    "mp2": Kind("mp2", "mp2", 48_000, bit_rate=192_000),
    "flac": Kind("flac", "flac", 48_000, "mono", "s16"),
    "flac-7.1": Kind("flac", "flac", 48_000, "7.1", "s16"),
    "flac-24-bit": Kind("flac", "flac", 96_000, "stereo", "s32"),
    "ogg-opus": Kind("ogg", "libopus", 48_000, "mono"),
    "ogg-opus-5.1": Kind("ogg", "libopus", 48_000, "5.1"),
    "ogg-flac": Kind("ogg", "flac", 16_000, "mono", "s16"),
    "ogg-vorbis": Kind("ogg", "vorbis", options={"strict": "experimental"}),
    "m4a": Kind("ipod", "aac"),
    "m4a-alac": Kind("ipod", "alac", 44_100, "mono"),
    "m4a-7.1": Kind("ipod", "aac", 48_000, "7.1"),
    "mp4": Kind("mp4", "aac", 48_000, with_video=True),
    "mov": Kind("mov", "pcm_s16le", 48_000, with_video=True),
    "3gp": Kind("3gp", "aac", 16_000, "mono"),
    "webm": Kind("webm", "libopus", 48_000, "mono"),
    "mkv": Kind("matroska", "flac", 44_100, "stereo", "s16", with_video=True),
    "adts": Kind("adts", "aac", 32_000, "mono"),
    "wma": Kind("asf", "wmav2", bit_rate=128_000),
    "amr": Kind("amr", "libopencore_amrnb", 8_000, "mono", bit_rate=12_200),
}


def recording(kind: Kind, sound: NDArray[np.float32]) -> bytes:
    """``sound`` (samples, at ``kind.rate``, the same in each channel) or (channels, samples) as a file."""
    target = io.BytesIO()
    with av.open(target, "w", format=kind.container, options=dict(kind.options)) as container:
        container.flags |= Flags.bitexact.value  # no random serial numbers: the same bytes each time
        options = {name: value for name, value in kind.options.items() if name == "strict"}
        stream: Any = container.add_stream(kind.codec, rate=kind.rate, options=options)
        stream.layout = kind.layout
        if kind.sample_format:
            stream.format = kind.sample_format
        if kind.bit_rate:
            stream.bit_rate = kind.bit_rate
        if kind.with_video:
            _add_video(container)
        for frame in _frames(kind, sound):
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return target.getvalue()


def _frames(kind: Kind, sound: NDArray[np.float32]) -> Iterator[av.AudioFrame]:
    channels = av.AudioLayout(kind.layout).nb_channels
    every = np.broadcast_to(sound, (channels, sound.shape[-1])).astype(np.float32)
    for at in range(0, every.shape[1], BLOCK):
        packed = np.ascontiguousarray(every[:, at : at + BLOCK].T).reshape(1, -1)  # PyAV 18.1 has no eight planes
        frame = av.AudioFrame.from_ndarray(packed, "flt", kind.layout)
        frame.sample_rate, frame.pts, frame.time_base = kind.rate, at, Fraction(1, kind.rate)
        yield frame


def _add_video(container: Any) -> None:
    stream = container.add_stream("mpeg4", rate=5)
    stream.width = stream.height = 32
    stream.pix_fmt = "yuv420p"
    for number in range(5):
        frame = av.VideoFrame.from_ndarray(np.full((48, 32), 40 * number, np.uint8), "yuv420p")
        frame.pts = number
        container.mux(stream.encode(frame))
    container.mux(stream.encode(None))


def film_without_sound() -> bytes:
    """An mp4 of a second, pictures only."""
    target = io.BytesIO()
    with av.open(target, "w", format="mp4") as container:
        _add_video(container)
    return target.getvalue()


def steps(seconds: float, rate: int) -> NDArray[np.float32]:
    """A tone that changes every half of a second, from 300 Hz in steps of 100 Hz, over some noise."""
    time_s = np.arange(round(seconds * rate)) / rate
    frequency = 300 + 100 * (np.floor(2 * time_s) % 10)
    noise = np.random.default_rng(7).standard_normal(len(time_s))
    sound: NDArray[np.float32] = (0.4 * np.sin(2 * math.pi * frequency * time_s) + 0.01 * noise).astype(np.float32)
    return sound


def frequency_at(samples: NDArray[np.int16], second: float) -> float:
    """The loudest frequency of the 0.4 s from ``second`` on, to 2.5 Hz."""
    at = round(second * SAMPLE_RATE)
    piece = samples[at : at + round(0.4 * SAMPLE_RATE)]
    return float(np.abs(np.fft.rfft(piece)).argmax()) * SAMPLE_RATE / len(piece)


def all_samples(readers: FileReaders, file: OpenFile, seconds: float = 60.0) -> tuple[NDArray[np.int16], str]:
    """A recording's sound, read in slices of ``seconds``, and what is missing of it."""
    slices, start = [], 0
    while True:
        part = readers.audio(file, start, seconds)
        slices.append(part.samples)
        start += len(part.samples)
        if part.is_last:
            return np.concatenate(slices), part.incomplete
