"""Opens a recording with PyAV and decodes its first sound track, forwards and in slices. Runs in the workers only."""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import av
import numpy as np
from av.audio.codeccontext import AudioCodecContext
from av.audio.frame import AudioFrame
from av.audio.plane import AudioPlane
from av.audio.resampler import AudioResampler
from av.audio.stream import AudioStream
from av.container import InputContainer
from av.packet import Packet
from av.stream import Discard
from numpy.typing import NDArray

from backend.errors import TooLarge, UnreadableFile
from backend.files.file_types import id3_bytes, missing_bytes, sound_demuxer
from backend.files.limits import FileLimits
from backend.files.pages import printable_line
from backend.files.speech_records import SAMPLE_RATE
from backend.files.stored_file import MappedFile
from backend.reasons import because

_LOST_RATIO = 0.1  # energy of the mean to that of the loudest channel; below it the channels cancel each other out
_WEIGHED_EVERY = 7  # samples: enough to compare energies, at a seventh of the cost


def mixed(channels: NDArray[np.float32]) -> NDArray[np.float32]:
    """The mean of the channels, or the loudest of them alone where the mean has hardly any of its energy left.

    That is so where channels are in opposite phase (a microphone's balanced cable that was taken for stereo: the mean
    is silence), and where one of four channels or more is all that is heard. A speaker on either side of a telephone
    call stays in the mean, at half of the amplitude.

    Args:
        channels: (samples, channels), about a second of them: the choice is made for all of them together.
    """
    count = channels.shape[1]
    if count == 1:
        return channels[:, 0]
    some = np.ascontiguousarray(channels[::_WEIGHED_EVERY])
    energies = np.einsum("nc,nc->c", some, some)
    loudest = int(energies.argmax())
    weights = np.full(count, 1.0 / count, np.float32)
    mean = some @ weights
    if float(mean @ mean) < _LOST_RATIO * float(energies[loudest]):
        return channels[:, loudest]
    return channels @ weights


RATES = (4_000, 400_000)  # Hz; a file that claims 1 Hz would be 16,000 times as large resampled
_MIXED_S = 0.5  # of sound at once: the channels are weighed over it
_DTYPES = {"u8": "u1", "s16": "i2", "s32": "i4", "flt": "f4", "dbl": "f8"}
_SAMPLES_PER_S = 2 * 48_000  # of all channels together, for each second of LIMIT_AUDIO_S: stereo at 48 kHz
# Samples of all channels for each byte of the file, beyond those of ten minutes. Speech has up to 130 (Opus at
# 6 kbit/s), silence in the usual blocks up to 800, an hour of it in eight channels in FLAC's largest blocks 15,000.
_SAMPLES_PER_BYTE, _FREE_SAMPLES = 1000, 600 * _SAMPLES_PER_S
_Form = tuple[int, str, int]  # rate, format, channels


def check_form(rate: int, channels: int, limits: FileLimits) -> None:
    """Raises: UnreadableFile for a rate that no recording has; TooLarge over LIMIT_AUDIO_CHANNELS."""
    if not RATES[0] <= rate <= RATES[1]:
        raise UnreadableFile(
            f"file: its sound has {rate} samples a second; {RATES[0]} to {RATES[1]} are read. Convert it to 16000"
        )
    if channels < 1:
        raise UnreadableFile("file: its sound has no channels, or more than the 512 that are ever read; is it damaged?")
    if channels > limits.audio_channels:
        raise TooLarge("file: channels", channels, limits.audio_channels, "LIMIT_AUDIO_CHANNELS", param="file")


@dataclass(frozen=True, slots=True)
class SampleLimits:
    """How much sound a file may hold."""

    limits: FileLimits
    file_bytes: int

    def check_seconds(self, seconds: float) -> None:
        """Raises: TooLarge."""
        if seconds > self.limits.audio_s:
            raise TooLarge("file: seconds of audio, at least", math.ceil(seconds), self.limits.audio_s, "LIMIT_AUDIO_S")

    def check_samples(self, samples: int, rate: int, channels: int) -> None:
        """Raises: TooLarge. ``samples``: of all channels together."""
        what = f"file: samples of its {channels} channels at {rate} Hz, at least"
        most = round(self.limits.audio_s * _SAMPLES_PER_S)
        if samples > most:
            raise TooLarge(what, samples, most, "LIMIT_AUDIO_S")
        if samples > (packed := self.most_packed):
            raise TooLarge(
                what,
                samples,
                packed,
                f"{_SAMPLES_PER_BYTE} for each of its {self.file_bytes} bytes",
                advice="It is silence for the most part; send it in parts, with fewer channels, or in another format",
            )

    @property
    def most_packed(self) -> int:
        """Samples of all channels that a file of this size may unpack to."""
        return _FREE_SAMPLES + _SAMPLES_PER_BYTE * self.file_bytes


class MonoSound:
    """Takes frames in order, gives samples of int16 at 16 kHz, and counts. For one thread.

    What comes out does not depend on how the frames are handed in.
    """

    def __init__(self, limits: SampleLimits) -> None:
        self._limits = limits
        self._seconds_before = 0.0  # taken in other forms
        self._form_samples = 0  # taken in this form
        self._samples = 0  # of all channels
        self._form: _Form | None = None
        self._waiting: list[NDArray[Any]] = []  # (samples, channels) as they are stored, not mixed yet
        self._waiting_samples = 0
        self._resampler: AudioResampler | None = None

    @property
    def seconds(self) -> float:
        """Taken so far."""
        return self._seconds_before + (self._form_samples / self._form[0] if self._form else 0.0)

    def add(self, frame: AudioFrame) -> Iterator[NDArray[np.int16]]:
        """The samples that a frame completes. Raises: UnreadableFile, TooLarge."""
        form = (frame.sample_rate, frame.format.packed.name, frame.layout.nb_channels)
        check_form(form[0], form[2], self._limits.limits)
        if form != self._form:  # the first, or a stream of several recordings, joined
            yield from self.finish()
            self._seconds_before, self._form_samples, self._form = self.seconds, 0, form
        self._count(frame.samples, form)
        self._waiting.append(_stored(frame))
        self._waiting_samples += frame.samples
        if self._waiting_samples >= _MIXED_S * form[0]:
            yield from self._mix()

    def finish(self) -> Iterator[NDArray[np.int16]]:
        """What is left when no frame follows."""
        if self._waiting:
            yield from self._mix()
        if self._resampler is not None:
            for frame in self._resampler.resample(None):
                yield _samples(frame)
        self._resampler = None

    def _count(self, samples: int, form: _Form) -> None:
        rate, _, channels = form
        self._form_samples += samples
        self._samples += samples * channels
        self._limits.check_seconds(self.seconds)
        self._limits.check_samples(self._samples, rate, channels)

    def _mix(self) -> Iterator[NDArray[np.int16]]:
        assert self._form is not None
        rate, *_ = self._form
        channels = _as_float(np.concatenate(self._waiting))
        self._waiting, self._waiting_samples = [], 0
        mono = np.ascontiguousarray(mixed(channels))[np.newaxis]
        frame = AudioFrame.from_ndarray(mono, format="flt", layout="mono")
        frame.sample_rate = rate
        if self._resampler is None:
            self._resampler = AudioResampler(format="s16", layout="mono", rate=SAMPLE_RATE)
        for resampled in self._resampler.resample(frame):
            yield _samples(resampled)


def _stored(frame: AudioFrame) -> NDArray[Any]:
    """The samples of a frame as they are stored: (samples, channels)."""
    name = frame.format.packed.name
    if name not in _DTYPES:
        raise UnreadableFile(f"file: its samples are of a format that is not read here ({name}); convert it to 16 bit")
    dtype, channels = _DTYPES[name], frame.layout.nb_channels
    if channels == 1 or not frame.format.is_planar:
        return np.frombuffer(_buffer(frame, 0), dtype, frame.samples * channels).reshape(-1, channels)
    # not `frame.planes`: of eight channels it finds a ninth, behind the end of the array (PyAV 18.1)
    planes = [np.frombuffer(_buffer(frame, index), dtype, frame.samples) for index in range(channels)]
    return np.stack(planes, axis=1)


def _as_float(stored: NDArray[Any]) -> NDArray[np.float32]:
    """Samples from -1 to 1. A float that is no number is silence."""
    if stored.dtype == np.uint8:
        return (stored.astype(np.float32) - np.float32(128.0)) * np.float32(1 / 128)
    values = stored.astype(np.float32)
    if stored.dtype.kind == "i":
        values *= np.float32(-1.0 / np.iinfo(stored.dtype).min)
        return values
    if not np.isfinite(values.sum()):
        values = np.nan_to_num(values, nan=0.0, posinf=1.0, neginf=-1.0)
    return np.clip(values, -1.0, 1.0, out=values)


def _samples(frame: AudioFrame) -> NDArray[np.int16]:
    return np.frombuffer(_buffer(frame, 0), np.int16, frame.samples)


def _buffer(frame: AudioFrame, plane: int) -> memoryview:
    return memoryview(cast("bytes", AudioPlane(frame, plane)))


_NAMED_CODECS = frozenset(
    {
        "aac", "ac3", "alac", "amrnb", "amrwb", "eac3", "flac", "gsm", "gsm_ms", "mp1", "mp1float", "mp2", "mp2float",
        "mp3", "mp3float", "opus", "speex", "vorbis", "wmalossless", "wmapro", "wmav1", "wmav2", "wmavoice",
    }
)  # fmt: skip
_CODEC_FAMILIES = ("pcm_", "adpcm_ima_wav", "adpcm_ima_qt", "adpcm_ms", "adpcm_g7", "adpcm_swf", "adpcm_yamaha")
CODECS = frozenset(
    name
    for name in av.codec.codecs_available
    if name in _NAMED_CODECS or (name.startswith(_CODEC_FAMILIES) and not name.startswith("pcm_s64"))
)
_MAX_TRACKS = 64  # of sound, pictures and subtitles: looking into one takes 0.7 MB
_OPTIONS = {
    "codec_whitelist": ",".join(sorted(CODECS)),  # no decoder of pictures is run to look into a film
    "protocol_whitelist": "none",
    "max_streams": f"{_MAX_TRACKS}",
}
_HEAD_BYTES = 64 * 1024  # that tell the container, behind a tag
_MAX_READ_ERRORS = 16  # of the container, each skipped; then what was read is all
_MAX_BAD_PACKETS = 1000  # before the first sound: an encrypted track is not tried to its end
_ANNOUNCING = frozenset({"aiff", "caf", "flac", "matroska", "mov", "w64", "wav"})  # that write down their length
_MISSING_RATIO = 0.05  # of the announced length, and a second: less is rounding
_PADDING_S = 0.5  # at both ends, which coders add and decoders leave out
_METADATA = (("title", "title"), ("artist", "author"), ("encoder", "producer"), ("creation_time", "created"))
_METADATA_CHARS = 500


class AudioFile:
    """An open recording. For one thread; it is decoded once, however many slices are asked for in order."""

    def __init__(self, data: mmap.mmap, limits: FileLimits) -> None:
        self._data, self._limits = data, SampleLimits(limits, len(data))
        demuxer = sound_demuxer(data[: id3_bytes(data[:_HEAD_BYTES]) + _HEAD_BYTES])
        if demuxer is None:
            raise UnreadableFile("file: it is no recording")
        self._demuxer = demuxer
        self._decoding: _Decoding | None = None
        _check_encryption(data, demuxer)

    def info(self) -> dict[str, Any]:
        """What the file says of itself. Raises: UnreadableFile without a track of sound that can be decoded."""
        decoding = self._begun()
        stream, container = decoding.stream, decoding.container
        declared_s = _declared_s(container, stream)
        if declared_s is not None and self._may_be_too_much(declared_s, stream):
            self._check_length()
        return {
            "page_count": 0,
            "sizes": [],
            "metadata": _metadata(container),
            "audio": {
                "codec": stream.codec_context.name,
                "rate": stream.codec_context.sample_rate,
                "channels": stream.codec_context.layout.nb_channels,
                "declared_s": declared_s,
                "tracks": len(container.streams.audio),
            },
        }

    def slice(self, start: int, samples: int) -> tuple[NDArray[np.int16], bool, str]:
        """At most ``samples`` of sound from sample ``start``, whether they are the last, and what is missing.

        Asked for backwards, the file is decoded from its beginning again.

        Raises: UnreadableFile where nothing in the file can be decoded; TooLarge.
        """
        if self._decoding is not None and start < self._decoding.position:
            self.close()
        try:
            return self._begun().take(start, samples)
        except BaseException:
            self.close()  # what raised once is over, and would seem to have ended well
            raise

    def close(self) -> None:
        """Free the decoder."""
        if self._decoding is not None:
            self._decoding.container.close()
        self._decoding = None

    def _begun(self) -> _Decoding:
        if self._decoding is None:
            container = open_container(self._data, self._demuxer)
            try:
                track = _track(container, self._limits.limits)
                self._decoding = _Decoding(container, track, self._demuxer, self._limits)
                self._decoding.missing_bytes = missing_bytes(self._data, self._demuxer)
            except BaseException:
                container.close()
                raise
        return self._decoding

    def _may_be_too_much(self, declared_s: float, stream: AudioStream) -> bool:
        form = stream.codec_context
        samples = declared_s * form.sample_rate * form.layout.nb_channels
        return declared_s > self._limits.limits.audio_s or samples > self._limits.most_packed

    def _check_length(self) -> None:
        """Refuse a file with too much sound before hours of it are heard: by its packets, not by what it declares.

        Where these do not tell, decoding counts.
        """
        seconds = 0.0
        container = open_container(self._data, self._demuxer)
        with contextlib.closing(container), contextlib.suppress(av.FFmpegError):
            stream = container.streams.audio[0]
            for packet in container.demux(stream):
                samples = stream.codec_context.frame_size
                if samples and packet.size:
                    seconds += samples / stream.codec_context.sample_rate
                elif packet.duration and packet.time_base:
                    seconds += float(packet.duration * packet.time_base)
                self._limits.check_seconds(seconds - _PADDING_S)
                rate, channels = stream.codec_context.sample_rate, stream.codec_context.layout.nb_channels
                self._limits.check_samples(int((seconds - _PADDING_S) * rate * channels), rate, channels)


class _Decoding:
    """One pass over a file's sound."""

    def __init__(self, container: InputContainer, stream: AudioStream, demuxer: str, limits: SampleLimits) -> None:
        self.container, self.stream = container, stream
        self.position = 0  # samples that were given out or left out before the ones that wait
        self._demuxer = demuxer
        self.missing_bytes = 0  # at the end of the file, by what it says itself
        self._sound = MonoSound(limits)
        self._blocks = self._decoded_blocks()
        self._waiting: list[NDArray[np.int16]] = []
        self._is_over = False
        self._packets = self._bad_packets = self._read_errors = 0
        self._last_error = ""

    def take(self, start: int, samples: int) -> tuple[NDArray[np.int16], bool, str]:
        """See `AudioFile.slice`; ``start`` is not before `position`."""
        self._fill(start, start + samples)
        waiting = np.concatenate([np.empty(0, np.int16), *self._waiting])
        taken, rest = np.split(waiting, [samples])
        self.position = start + len(taken)
        self._waiting = [rest] if len(rest) else []
        return taken, self._is_over and not len(rest), self._incomplete()

    def _fill(self, start: int, end: int) -> None:
        """Decode until one sample more than ``end`` waits, which tells that the slice is not the last."""
        count = sum(map(len, self._waiting))
        while self.position + count <= end or self.position < start:
            while self._waiting and self.position < start:  # what is before the slice
                first = self._waiting[0][: start - self.position]
                self.position += len(first)
                count -= len(first)
                self._waiting[0] = self._waiting[0][len(first) :]
                if not len(self._waiting[0]):
                    del self._waiting[0]
            if self._is_over or self.position + count > end:
                break
            block = next(self._blocks, None)
            if block is None:
                self._is_over = True
                continue
            self._waiting.append(block)
            count += len(block)

    def _decoded_blocks(self) -> Iterator[NDArray[np.int16]]:
        for frame in self._frames():
            yield from self._sound.add(frame)
        yield from self._sound.finish()
        if not self._sound.seconds:
            reason = f": {self._last_error}" if self._last_error else ""
            raise UnreadableFile(f"file: no sound in it can be decoded{reason}")

    def _frames(self) -> Iterator[AudioFrame]:
        """The frames in order; what cannot be decoded is counted and left out."""
        while True:
            try:
                for packet in self.container.demux(self.stream):
                    yield from self._decoded(packet)
                return
            except av.FFmpegError as error:
                _check_memory(error)
                self._last_error = _reason(error)
                self._read_errors += 1
                if self._read_errors >= _MAX_READ_ERRORS:
                    return

    def _decoded(self, packet: Packet[Any]) -> list[AudioFrame]:
        self._packets += 1
        try:
            return [frame for frame in self.stream.decode(packet) if frame.samples > 0]
        except EOFError:  # flushed twice, after an error of reading at the end
            return []
        except av.FFmpegError as error:
            _check_memory(error)
            self._last_error = _reason(error)
            self._bad_packets += 1
            if self._bad_packets >= _MAX_BAD_PACKETS and not self._sound.seconds:
                raise UnreadableFile(
                    f"file: none of its first {self._bad_packets} packets of sound can be decoded: {self._last_error}"
                ) from error
            return []

    def _incomplete(self) -> str:
        faults = []
        if self._bad_packets:
            faults.append(because("packets_lost", bad=self._bad_packets, packets=self._packets))
        if self._read_errors:
            faults.append(because("reading_stopped", seconds=self._sound.seconds, error=self._last_error))
        if self._is_over and self._demuxer in _ANNOUNCING:
            declared_s, seconds = _declared_s(self.container, self.stream) or 0.0, self._sound.seconds
            if declared_s - seconds > 1.0 + _MISSING_RATIO * declared_s:
                faults.append(because("shorter_sound", announced_s=declared_s, seconds=seconds))
        if self._is_over and self.missing_bytes:
            faults.append(because("bytes_missing", bytes=self.missing_bytes))
        return because("sound_cut_off", fault="; ".join(faults)) if faults else ""


def open_container(data: mmap.mmap, demuxer: str) -> InputContainer:
    """The container, read by the one demuxer and from these bytes alone: no other file, no address."""
    options = {**_OPTIONS, "format_whitelist": demuxer}
    try:
        return av.open(
            MappedFile(data),
            mode="r",
            format=demuxer,
            container_options=options,
            metadata_errors="replace",
            io_open=_refuse,
        )
    except MemoryError as error:  # libav's answer to a track too many, too
        raise UnreadableFile(
            f"file: it has more than {_MAX_TRACKS} tracks, or claims more memory than a file may take; "
            "send its sound alone, as WAV or MP3"
        ) from error
    except (av.FFmpegError, ValueError) as error:
        raise UnreadableFile(f"file: it begins like a recording ({demuxer}) but is broken: {_reason(error)}") from error


def _refuse(url: str, _flags: int, _options: dict[str, str]) -> NoReturn:
    raise PermissionError(f"the file refers to another one ({url[:80]})")


def _track(container: InputContainer, limits: FileLimits) -> AudioStream:
    """The first track of sound, ready to be decoded; the others are left out."""
    if not container.streams.audio:
        what = "it is a video without sound" if container.streams.video else "there is no sound in it"
        raise UnreadableFile(f"file: {what}")
    track = container.streams.audio[0]
    for stream in container.streams:
        if stream is not track:
            stream.discard = Discard.all
    codec: AudioCodecContext | None = track.codec_context  # None where there is no decoder
    if codec is None or codec.name not in CODECS:
        name = "unknown" if codec is None else codec.name
        raise UnreadableFile(f"file: its sound is of a codec that is not read here ({name}); convert it to WAV or MP3")
    check_form(codec.sample_rate, codec.layout.nb_channels, limits)
    codec.thread_count = 1
    return track


def _declared_s(container: InputContainer, stream: AudioStream) -> float | None:
    if stream.duration and stream.time_base:
        seconds = float(stream.duration * stream.time_base)
    elif container.duration:
        seconds = container.duration / av.time_base
    else:
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None


def _metadata(container: InputContainer) -> dict[str, str]:
    said = {name.lower(): value for name, value in container.metadata.items()}
    return {
        ours: printable_line(said[name])[:_METADATA_CHARS] for name, ours in _METADATA if said.get(name, "").strip()
    }


def _check_encryption(data: mmap.mmap, demuxer: str) -> None:
    """Raises: UnreadableFile for an mp4 whose sound is encrypted (a shop's DRM): it decodes to noise."""
    at = data.find(b"stsd") if demuxer == "mov" else -1
    while at >= 0:
        if data[at + 16 : at + 20] in (b"enca", b"drms"):
            raise UnreadableFile("file: its sound is encrypted (DRM); send a recording without copy protection")
        at = data.find(b"stsd", at + 4)


def _check_memory(error: Exception) -> None:
    if isinstance(error, MemoryError):
        raise MemoryError from error  # noqa: TRY004  # its own class, not libav's, has an answer


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error).splitlines()[0][:200] or type(error).__name__
