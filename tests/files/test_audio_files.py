"""Recordings through real workers: every container, slices, workers that are lost, limits, what is missing."""

import io
import os
import signal
import struct
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from fractions import Fraction
from typing import Any

import av
import numpy as np
import psutil
import pytest

from backend.errors import InvalidField, NotInstalled, TooLarge, UnreadableFile, WrongMediaType
from backend.files.audio_file import SampleLimits
from backend.files.file_readers import FileReaders, parse_audio_slice
from backend.files.frames import BadFrame, Frame
from backend.files.limits import FileLimits
from backend.files.speech_records import SAMPLE_RATE
from backend.files.worker_pool import WorkerProcess
from tests.files.conftest import newest_worker, own_bytes
from tests.files.pdfs import pdf, text
from tests.files.recordings import KINDS, Kind, all_samples, film_without_sound, frequency_at, recording, steps

MakeReaders = Callable[..., FileReaders]
WAV_16K = Kind("wav", "pcm_s16le", SAMPLE_RATE, "mono")
LOSSLESS = ["wav", "wav-7.1", "aiff", "flac", "flac-7.1", "caf-alac", "mkv", "mov", "w64", "rf64"]


@pytest.mark.parametrize("name", KINDS)
def test_each_container(readers: FileReaders, name: str):
    """Each second has its tone, the length is right to a coder's frame, and the file tells what it is."""
    kind = KINDS[name]
    with readers.open(recording(kind, steps(3, kind.rate))) as file:
        samples, incomplete = all_samples(readers, file)
        info = file.info.audio

    assert ("audio", 0, ()) == (file.info.kind, file.info.page_count, file.info.sizes)
    assert kind.rate == info.rate
    assert {"mono": 1, "stereo": 2, "5.1": 6, "7.1": 8}[kind.layout] == info.channels
    assert info.declared_s == pytest.approx(3, abs=0.13)
    assert 3 == pytest.approx(len(samples) / SAMPLE_RATE, abs=1e-3 if name in LOSSLESS else 0.13)
    assert [300, 500, 800] == [pytest.approx(frequency_at(samples, at), abs=5) for at in (0.05, 1.05, 2.55)]
    assert not incomplete


def test_sixteen_bit_samples_at_16_khz_are_kept_as_they_are(readers: FileReaders):
    """Nothing is rounded twice."""
    sound = np.random.default_rng(1).integers(-32768, 32768, 40_000).astype(np.int16)
    data = wav(sound.tobytes(), rate=SAMPLE_RATE)
    with readers.open(data) as file:
        samples, _ = all_samples(readers, file)

    assert np.array_equal(sound, samples)


@pytest.mark.parametrize("name", ["wav-24-bit", "wav-adpcm", "mp3", "ogg-opus-5.1", "m4a", "flac-7.1", "wma", "amr"])
@pytest.mark.parametrize("seconds", [0.0371, 0.5, 1.0])
def test_slices_are_the_whole(readers: FileReaders, name: str, seconds: float):
    """Samples are bit for bit the same, wherever the slices are cut."""
    kind = KINDS[name]
    data = recording(kind, steps(2.3, kind.rate))
    with readers.open(data) as file:
        expected, _ = all_samples(readers, file)
    with readers.open(data) as file:
        samples, _ = all_samples(readers, file, seconds)

    assert np.array_equal(expected, samples)


def test_slices_in_any_order(readers: FileReaders):
    """Going on, leaving out, going back, and behind the end."""
    with readers.open(recording(KINDS["mp3"], steps(3, 44_100))) as file:
        whole, _ = all_samples(readers, file)
        end = len(whole)
        for start, seconds in [(0, 0.5), (30_000, 0.3), (100, 0.2), (end - 10, 1.0), (end, 1.0), (end + 50, 1.0)]:
            part = readers.audio(file, start, seconds)
            expected = whole[start : start + round(seconds * SAMPLE_RATE)]

            assert np.array_equal(expected, part.samples)
            assert (start, start + round(seconds * SAMPLE_RATE) >= end) == (part.start, part.is_last)


def test_the_last_slice_says_so(readers: FileReaders):
    """A slice that ends where the recording does is the last: nobody has to ask once more."""
    with readers.open(recording(WAV_16K, steps(2, SAMPLE_RATE))) as file:
        assert [False, True] == [readers.audio(file, start, 1.0).is_last for start in (0, SAMPLE_RATE)]


def test_a_worker_lost_between_slices(make_readers: MakeReaders):
    """The next one decodes from the beginning: same samples."""
    readers = make_readers()
    with readers.open(recording(KINDS["m4a"], steps(3, 44_100))) as file:
        whole, _ = all_samples(readers, file)
        first = readers.audio(file, 0, 1.0).samples
        kill_workers()
        second = readers.audio(file, SAMPLE_RATE, 1.0).samples

    assert np.array_equal(whole[: 2 * SAMPLE_RATE], np.concatenate([first, second]))


def test_many_recordings_at_once_are_decoded_once(make_readers: MakeReaders):
    """Recordings stay open beside documents: none is closed, and so decoded again, for the sake of another."""
    opened: list[int] = []

    class Watched(WorkerProcess):
        def call(self, request, **options):  # type: ignore[no-untyped-def]
            opened.extend([request["file"]] if request["call"] == "open" else [])
            return super().call(request, **options)

    data = recording(WAV_16K, steps(2, SAMPLE_RATE))
    limits = FileLimits()
    with FileReaders(1, limits, start_worker=lambda: Watched(limits)) as readers, ExitStack() as stack:
        recordings = [stack.enter_context(readers.open(data)) for _ in range(8)]
        documents = [stack.enter_context(readers.open(pdf(text(b"page")))) for _ in range(6)]
        for start in (0, SAMPLE_RATE):
            for file in recordings:
                readers.audio(file, start, 1.0)
            for document in documents:
                readers.page_text(document, 1)

    assert {file.number for file in recordings} == {number for number in opened if opened.count(number) == 1}


def test_recordings_joined_with_another_rate(readers: FileReaders):
    """A stream that changes is heard to its end, each part at its own rate."""
    parts = [recording(Kind("adts", "aac", rate, "mono"), steps(2, rate)) for rate in (16_000, 44_100)]
    with readers.open(b"".join(parts)) as file:
        samples, _ = all_samples(readers, file)

    assert 4 == pytest.approx(len(samples) / SAMPLE_RATE, abs=0.2)
    assert [300, 300] == [pytest.approx(frequency_at(samples, at), abs=5) for at in (0.08, 2.15)]


def test_opposite_channels_are_heard(readers: FileReaders):
    """The mean of a channel and its opposite is silence; one of them is taken."""
    sound = steps(1, 44_100)
    with readers.open(recording(KINDS["wav"], np.stack([sound, -sound]))) as file:
        samples, _ = all_samples(readers, file)

    assert 300 == pytest.approx(frequency_at(samples, 0.05), abs=5)
    assert np.abs(samples).max() > 10_000


def test_numbers_that_are_none(readers: FileReaders):
    """NaN is silence, infinity is full scale, and the sound around them is kept."""
    sound = steps(1, SAMPLE_RATE)
    sound[2000:2100], sound[3000], sound[4000] = np.nan, np.inf, -1e30
    with readers.open(wav(sound.tobytes(), rate=SAMPLE_RATE, bits=32, code=3)) as file:
        samples, _ = all_samples(readers, file)

    assert [0, 0, 32767, -32768] == samples[[2000, 2099, 3000, 4000]].tolist()
    assert 300 == pytest.approx(frequency_at(samples, 0.05), abs=5)


def wav(
    sound: bytes, *, rate: int, channels: int = 1, bits: int = 16, code: int = 1, declared: int | None = None
) -> bytes:
    """A RIFF file with any header."""
    size = len(sound) if declared is None else declared
    frame_bytes = channels * bits // 8
    layout = struct.pack("<HHIIHH", code, channels, rate, rate * frame_bytes % 2**32, frame_bytes % 2**16, bits)
    head = b"RIFF" + struct.pack("<I", min(36 + size, 2**32 - 1)) + b"WAVEfmt " + struct.pack("<I", 16) + layout
    return head + b"data" + struct.pack("<I", size) + sound


def encrypted_m4a() -> bytes:
    data = recording(KINDS["m4a"], steps(1, 44_100))
    at = data.index(b"mp4a", data.index(b"stsd"))
    return data[:at] + b"enca" + data[at + 4 :]


def m4a_of_tracks(tracks: int) -> bytes:
    def box(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", 8 + len(content)) + name + content

    return box(b"ftyp", b"M4A \0\0\0\0M4A ") + box(b"moov", tracks * box(b"trak", b""))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(wav(bytes(3200), rate=1), "1 samples a second; 4000 to 400000", id="1-hz"),
        pytest.param(wav(bytes(3200), rate=3_999), "3999 samples a second", id="below-the-telephone"),
        pytest.param(wav(bytes(3200), rate=400_001), "400001 samples a second", id="over-400-khz"),
        pytest.param(wav(bytes(3200), rate=16_000, channels=0), "sound has no channels", id="0-channels"),
        pytest.param(wav(bytes(3200), rate=16_000, channels=65_535), "more than the 512", id="65535-channels"),
        pytest.param(wav(bytes(3200), rate=16_000, bits=0), "file: .* no sound in it|codec", id="0-bits"),
        pytest.param(wav(b"", rate=16_000), "no sound in it can be decoded", id="header-alone"),
        pytest.param(b"ID3\x03\x00\x00\x00\x00\x1f " + bytes(4000), "broken", id="tag-alone"),
        pytest.param(film_without_sound(), "a video without sound", id="video-without-sound"),
        pytest.param(encrypted_m4a(), "encrypted .DRM.", id="drm"),
        pytest.param(recording(KINDS["m4a"], steps(1, 44_100))[:3000], "broken", id="m4a-without-its-index"),
        pytest.param(m4a_of_tracks(65), "more than 64 tracks", id="65-tracks"),
        pytest.param(b"OggS\x00\x02" + bytes(500), "broken|no sound", id="ogg-of-zeros"),
        pytest.param(b"\x1aE\xdf\xa3" + bytes(500), "broken|no sound", id="matroska-of-zeros"),
    ],
)
def test_files_that_are_refused(readers: FileReaders, data: bytes, message: str):
    """The error says what is wrong."""
    with pytest.raises(UnreadableFile, match=message), readers.open(data) as file:
        all_samples(readers, file)


def test_too_many_channels(make_readers: MakeReaders):
    """Refused by the header; the message has the number, the limit and its setting."""
    with pytest.raises(TooLarge, match=r"channels: 30 is over the limit of 8 \(LIMIT_AUDIO_CHANNELS\)"):
        make_readers().open(wav(bytes(60_000), rate=16_000, channels=30))


@pytest.mark.parametrize("declared", [0, 1000, 0x7FFFFFFF, 0xFFFFFFFF])
def test_a_declared_length_is_not_trusted(readers: FileReaders, declared: int):
    """What a stream's header says of its end, before that was known, changes nothing but what is said of it."""
    sound = (20_000 * steps(1, SAMPLE_RATE)).astype("<i2")
    with readers.open(wav(sound.tobytes(), rate=SAMPLE_RATE, declared=declared)) as file:
        samples, _ = all_samples(readers, file)

    expected = sound[: declared // 2] if declared == 1000 else sound
    assert np.array_equal(expected, samples)


@pytest.mark.parametrize("declared", [None, 0xFFFFFFFF])
def test_too_many_seconds(make_readers: MakeReaders, declared: int | None):
    """Counted as they are decoded; the slice that would go over the limit is refused, and again when asked again."""
    readers = make_readers(limits=FileLimits(audio_s=2.0))
    data = wav(bytes(2 * 16_000 * 3), rate=16_000, declared=declared)
    with pytest.raises(TooLarge, match=r"seconds of audio, at least: 3 is over the limit of 2.0 \(LIMIT_AUDIO_S\)"):
        readers.open(data)
    with readers.open(data[:44] + bytes(2 * 16_000 * 2)) as file:
        assert 2 * SAMPLE_RATE == len(all_samples(readers, file)[0])


def test_seconds_that_are_declared_too_few(make_readers: MakeReaders):
    """A file that hides its length is refused when it gets there, every time."""
    readers = make_readers(limits=FileLimits(audio_s=2.0))
    data = bytearray(recording(KINDS["flac"], steps(4, 48_000)))
    data[21:26] = bytes([data[21] & 0xF0, 0, 0, 0x10, 0])  # STREAMINFO: 4096 samples in all
    with readers.open(bytes(data)) as file:
        assert SAMPLE_RATE == len(readers.audio(file, 0, 1.0).samples)
        for _ in range(2):
            with pytest.raises(TooLarge, match="LIMIT_AUDIO_S"):
                readers.audio(file, SAMPLE_RATE, 2.0)


def test_too_many_samples_of_all_channels(make_readers: MakeReaders):
    """Eight channels may be a quarter as long as two: silence of hours packs into a few kilobytes."""
    readers = make_readers(limits=FileLimits(audio_s=4.0))
    silence = np.zeros(round(1.5 * 48_000), np.float32)
    with (
        readers.open(recording(KINDS["flac-7.1"], silence)) as file,
        pytest.raises(TooLarge, match="8 channels at 48000"),
    ):
        all_samples(readers, file)


def silent_flac(seconds: float, *, block: int, layout: str) -> bytes:
    """Silence in blocks of so many samples, of which FLAC writes a few bytes."""
    target, rate = io.BytesIO(), 48_000
    with av.open(target, "w", format="flac") as container:
        stream: Any = container.add_stream("flac", rate=rate, options={"frame_size": str(block)})
        stream.layout, stream.format = layout, "s16"
        silence = np.zeros((1, block * stream.layout.nb_channels), np.int16)
        for at in range(0, round(seconds * rate), block):
            frame = av.AudioFrame.from_ndarray(silence, "s16", layout)
            frame.sample_rate, frame.pts, frame.time_base = rate, at, Fraction(1, rate)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return target.getvalue()


@pytest.mark.slow
def test_silence_that_packs_into_nothing(make_readers: MakeReaders):
    """A few kilobytes are not decoded for minutes: by their packets they are refused before."""
    data = silent_flac(400.0, block=65_535, layout="7.1")
    readers, began_s = make_readers(), time.process_time()
    with pytest.raises(TooLarge, match=rf"1000 for each of its {len(data)} bytes"):
        readers.open(data)

    assert time.process_time() - began_s < 1.0
    assert len(data) < 50_000


@pytest.mark.slow
def test_packed_silence_whose_header_lies(make_readers: MakeReaders):
    """It is counted as it is decoded."""
    data = bytearray(silent_flac(400.0, block=65_535, layout="7.1"))
    data[21] &= 0xF0  # of STREAMINFO's 36 bits for the number of samples
    data[22:26] = (48_000).to_bytes(4, "big")
    readers = make_readers()
    with readers.open(bytes(data)) as file, pytest.raises(TooLarge, match="1000 for each of its"):
        all_samples(readers, file, 600.0)


@pytest.mark.slow
def test_silence_as_encoders_write_it_passes(readers: FileReaders):
    """In their usual blocks, and in stereo, for longer than needs no look at the size."""
    with readers.open(silent_flac(1200.0, block=4096, layout="stereo")) as file:
        seconds = len(all_samples(readers, file, 600.0)[0]) / SAMPLE_RATE

    assert 1200 == pytest.approx(seconds, abs=0.1)


@pytest.mark.parametrize("bit_rate", [6_000, 16_000])
def test_hours_of_opus_pass(bit_rate: int):
    """Four hours of what a minute packs into, at the lowest rates for speech."""
    minute = recording(KINDS["ogg-opus"]._replace(bit_rate=bit_rate), steps(60.0, 48_000))
    SampleLimits(FileLimits(), 240 * len(minute)).check_samples(4 * 3600 * 48_000, 48_000, 1)

    assert len(minute) < 150_000


def test_a_damaged_mp3(readers: FileReaders):
    """What is broken in the middle is left out and said; what follows is heard."""
    data = bytearray(recording(KINDS["mp3"], steps(3, 44_100)))
    middle = len(data) // 2
    data[middle : middle + 1500] = np.random.default_rng(3).bytes(1500)
    with readers.open(bytes(data)) as file:
        samples, incomplete = all_samples(readers, file)

    assert 3 == pytest.approx(len(samples) / SAMPLE_RATE, abs=0.3)
    assert 800 == pytest.approx(frequency_at(samples, len(samples) / SAMPLE_RATE - 0.45), abs=5)
    assert "damaged" in incomplete


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("wav", "bytes are missing"),
        ("aiff", "bytes are missing"),
        ("flac", "announces 3.0 s"),
        ("mkv", "announces 3.0 s"),
    ],
)
def test_a_file_that_is_cut_off(readers: FileReaders, name: str, said: str):
    """What was there is heard; formats that write down their length tell that some is missing."""
    kind = KINDS[name]
    data = recording(kind, steps(3, kind.rate))
    with readers.open(data[: len(data) // 2]) as file:
        samples, incomplete = all_samples(readers, file)

    assert 1.5 == pytest.approx(len(samples) / SAMPLE_RATE, abs=0.2)
    assert 300 == pytest.approx(frequency_at(samples, 0.05), abs=5)
    assert said in incomplete


def test_documents_have_no_sound_and_recordings_no_pages(readers: FileReaders):
    """Each call refuses the other kind of file by name."""
    with readers.open(pdf(text(b"page"))) as file, pytest.raises(WrongMediaType, match="type pdf, which has no sound"):
        readers.audio(file, 0, 1.0)
    with readers.open(recording(WAV_16K, steps(1, SAMPLE_RATE))) as file:
        assert readers.einvoice(file) is None
        with pytest.raises(InvalidField, match="no page 1; the file has 0"):
            readers.page_text(file, 1)


def test_without_the_extra():
    """The error says how to install it, and other files are read."""
    code = "import sys; sys.modules['av'] = None; from backend.files import worker; worker.main(int(sys.argv[1]))"
    command, limits = (sys.executable, "-P", "-c", code), FileLimits()
    with FileReaders(1, limits, start_worker=lambda: WorkerProcess(limits, command=command)) as readers:
        with pytest.raises(
            NotInstalled, match=r"not installed; .* pip install 'financia-inference\[speech\]'"
        ) as caught:
            readers.open(recording(WAV_16K, steps(1, SAMPLE_RATE)))
        with readers.open(pdf(text(b"page"))) as file:
            assert "page" == readers.page_text(file, 1).text

    assert not caught.value.retryable


@pytest.mark.parametrize(
    ("size", "is_last"),
    [
        pytest.param(34, True, id="more-than-was-asked-for"),
        pytest.param(31, True, id="half-a-sample"),
        pytest.param(30, False, id="short-and-not-the-last"),
        pytest.param(30, 1, id="no-truth-value"),
    ],
)
def test_a_worker_that_was_taken_over(size: int, is_last: bool):
    """Its answer is checked before it is believed."""
    with pytest.raises(BadFrame):
        parse_audio_slice(Frame({"is_last": is_last, "incomplete": ""}, bytearray(size)), 0, 16)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["mp3-without-id3", "adts"])
def test_an_hour(make_readers: MakeReaders, name: str):
    """Slices of a minute pass, nothing is lost, and the worker stays as large as after the first."""
    kind = KINDS[name]
    minute = recording(kind, steps(60, kind.rate))
    readers = make_readers()
    with readers.open(60 * minute) as file:
        sizes, samples, is_last = [], 0, False
        while not is_last:
            part = readers.audio(file, samples, 60.0)
            samples, is_last = samples + len(part.samples), part.is_last
            sizes.append(own_bytes(newest_worker()))

    assert 3600 == pytest.approx(samples / SAMPLE_RATE, abs=60 * 0.13)  # a coder's padding, each minute
    assert max(sizes) - sizes[0] < 16 * 2**20
    assert (0, 0) == (readers.counts().recycled, readers.counts().died)


def kill_workers() -> None:
    for child in psutil.Process().children():
        if "backend.files.worker" in " ".join(child.cmdline()):
            os.kill(child.pid, signal.SIGKILL)
            child.wait(10)
