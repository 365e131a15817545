"""Recognition of recordings: each container by its first bytes, and nothing else."""

import numpy as np
import pytest

from backend.files.file_types import FileType, id3_bytes, missing_bytes, sniff, sound_demuxer
from tests.files.recordings import KINDS, recording, steps

DEMUXERS = {"ipod": "mov", "mp4": "mov", "3gp": "mov", "webm": "matroska", "adts": "aac", "mp2": "mp3"}


@pytest.mark.parametrize("name", KINDS)
def test_each_container(name: str):
    """A recording is told from its first 64 KiB, by the demuxer that it needs."""
    kind = KINDS[name]
    head = recording(kind, steps(0.5, kind.rate))[:65536]

    assert FileType.AUDIO == sniff(head)
    assert DEMUXERS.get(kind.container, kind.container) == sound_demuxer(head)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        pytest.param(b"RIFF\xff\xff\xff\xffWAVEfmt ", "wav", id="wav-of-a-stream"),
        pytest.param(b"#!AMR-WB\n", "amr", id="amr-wb"),
        pytest.param(b"\x00\x00\x00\x14ftypqt  \x00\x00\x00\x00", "mov", id="quicktime"),
        pytest.param(b"\x00\x00\x10\x00moov\x00\x00\x00\x6cmvhd", "mov", id="quicktime-without-ftyp"),
        pytest.param(b"ID3\x03\x00\x00\x00\x00\x00\x04abcdfLaC", "flac", id="flac-behind-id3"),
        pytest.param(b"ID3\x03\x00\x00\x7f\x7f\x7f\x7fabcd", "mp3", id="id3-that-hides-what-follows"),
        pytest.param(b"RIFF\x00\x00\x00\x00WEBPVP8 ", None, id="webp"),
        pytest.param(b"RIFF\x00\x00\x00\x00AVI LIST", None, id="avi"),
        pytest.param(b"\x00\x00\x00\x1cftypavif\x00\x00\x00\x00avifmif1miaf", None, id="avif"),
        pytest.param(b"\x00\x00\x00\x18ftypmif1\x00\x00\x00\x00mif1avif", None, id="avif-as-compatible-brand"),
        pytest.param(b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic", None, id="heic"),
        pytest.param(b"\x00\x00\x00\x05moov", None, id="a-box-shorter-than-its-head"),
        pytest.param(b"\xff\xd8\xff\xe0\x00\x10JFIF", None, id="jpeg"),
        pytest.param(b"\xff\xfe" + "Hola, señor López".encode("utf-16-le"), None, id="utf-16"),
        pytest.param(b"\xff\xfb\x90\x00" + bytes(2000), None, id="one-frame-and-no-second"),
        pytest.param(b"#EXTM3U\n", None, id="hls"),
        pytest.param(b"", None, id="nothing"),
        # large files: printable bytes among those of their sizes
        pytest.param(b"\x00\x00\x00\x08wide\x05\x00\x00\x00mdat", "mov", id="wide-before-mdat"),
        pytest.param(b"\x05\x21\x41\x61mdat", "mov", id="86-megabytes-of-sound-first"),
        pytest.param(b"FORM\x25\x41\x41\x41AIFFCOMM\x00\x00\x00\x12", "aiff", id="aiff-of-600-megabytes"),
        pytest.param(b"RIFFAAA WAVEfmt \x10\x00\x00\x00", "wav", id="wav-whose-size-reads-as-letters"),
        pytest.param(b"fLaC\x80\x00\x00\x22", "flac", id="flac-with-one-block"),
    ],
)
def test_first_bytes(head: bytes, expected: str | None):
    """Signatures that recordings share with other files are told apart."""
    assert expected == sound_demuxer(head)


@pytest.mark.parametrize(
    "text",
    [
        "The wide river runs through the town.",
        "Citywide report of the year",
        "Las moov y otras cajas",
        "ID3,name,amount\n1,Acme,20\n",
        "ID3 tags are read from the beginning.",
        "OggSomething else",
        "fLaCky weather",
        "#!AMRunning order",
        "FORMATO AIFF, FLAC y WAV: qué pide cada emisora",
        "RIFF is WAVEs of text, again and again",
        "The ftyp box says which brand a film has.",
        "Una mdat de más de 538 megas",
    ],
)
def test_a_text_is_no_recording(text: str):
    """Words that are signatures too stay words, in any encoding of them."""
    for encoding in ("utf-8", "latin-1"):
        assert sound_demuxer(text.encode(encoding)) is None
        assert FileType.TEXT is sniff(text.encode(encoding))


@pytest.mark.parametrize(
    ("data", "demuxer", "expected"),
    [
        pytest.param(b"RIFF\x24\x04\x00\x00WAVE" + bytes(0x424 - 4), "wav", 0, id="whole"),
        pytest.param(b"RIFF\x24\x04\x00\x00WAVE" + bytes(0x24), "wav", 0x400 - 4, id="cut"),
        pytest.param(b"FORM\x00\x00\x04\x24AIFF" + bytes(0x24), "aiff", 0x400 - 4, id="cut-aiff"),
        pytest.param(b"RIFF\xff\xff\xff\xffWAVE", "wav", 0, id="from-a-pipe"),
        pytest.param(b"RF64\xff\xff\xff\xffWAVE", "wav", 0, id="larger-than-its-field"),
        pytest.param(b"OggS" + bytes(22) + b"\x02\xff\x0a" + bytes(265), "ogg", 0, id="whole-ogg"),
        pytest.param(b"OggS" + bytes(22) + b"\x02\xff\x0a" + bytes(65), "ogg", 200, id="cut-ogg"),
        pytest.param(b"OggS", "ogg", 0, id="cut-in-a-header"),
        pytest.param(b"abc", "mp3", 0, id="says-nothing"),
    ],
)
def test_what_is_missing_at_the_end(data: bytes, demuxer: str, expected: int):
    """By what a file says of its own length, where it says something."""
    assert expected == missing_bytes(data, demuxer)


def test_mp3_behind_zeros():
    """An editor's padding in place of a tag is skipped."""
    frames = recording(KINDS["mp3-without-id3"], steps(1, 16_000))

    assert sound_demuxer(bytes(1000) + frames) == "mp3"


@pytest.mark.parametrize("name", ["mp3-without-id3", "adts", "mp2"])
def test_bare_frames_are_found_from_their_headers(name: str):
    """Frame lengths are computed right, so that the second frame is where it must be, for every frame."""
    data = recording(KINDS[name], steps(1, KINDS[name].rate))
    marks = [at for at in range(len(data) - 1) if data[at] == 0xFF and data[at + 1] == data[1]]
    found = [at for at in marks if sound_demuxer(data[at:])]

    assert len(found) >= 20
    assert 0 == found[0]


def test_the_length_of_an_id3_tag():
    """Seven bits a byte; a footer counts."""
    assert 10 + 257 == id3_bytes(b"ID3\x04\x00\x00\x00\x00\x02\x01")
    assert 20 + 257 == id3_bytes(b"ID3\x04\x00\x10\x00\x00\x02\x01")
    assert 0 == id3_bytes(b"ID3\x04")


def test_random_bytes_are_no_recording():
    """Of 2,000 random files of 4 KiB none passes for one: two headers in a row are needed."""
    blocks = np.random.default_rng(5).bytes(2_000 * 4096)

    assert not [at for at in range(0, len(blocks), 4096) if sound_demuxer(blocks[at : at + 4096])]
