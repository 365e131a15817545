"""Every recording of the shared data answers as it must; what names other files or addresses opens none."""

import csv
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from mmap import ACCESS_READ, mmap
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import av
import psutil
import pytest

from backend.errors import BadInput, UnreadableFile, WrongMediaType
from backend.files.audio_file import open_container
from backend.files.file_readers import FileReaders
from backend.files.file_types import FileType, sniff, sound_demuxer
from backend.files.speech_records import SAMPLE_RATE
from tests.conftest import DATA_DIR
from tests.files.recordings import all_samples

SPEECH = DATA_DIR / "speech"
SLOW = {"en_long.opus", "es_long.opus"}
MUST = {"nasty-ok": {200}, "nasty-any": {200, 413, 415, 422}, "nasty-error": {413, 415, 422}}
PLAYLISTS = {
    "sdp": b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 5004 RTP/AVP 0\r\n",
    "hls": b"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n/etc/passwd\n#EXT-X-ENDLIST\n",
    "ffconcat": b"ffconcat version 1.0\nfile /etc/passwd\n",
    "dash": b"<?xml version='1.0'?><MPD xmlns='urn:mpeg:dash:schema:mpd:2011'><Period/></MPD>",
    "lavfi": b"sine=frequency=440:duration=3600",
}


def _rows() -> Iterator[pytest.ParameterSet]:
    if not SPEECH.is_dir():
        return
    with (SPEECH / "transcripts.tsv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            path = SPEECH / row["file"]
            marks = [pytest.mark.slow, pytest.mark.timeout(300)] if path.name in SLOW else []
            yield pytest.param(path, row["kind"], float(row["seconds"] or 0), id=row["file"], marks=marks)


@pytest.mark.parametrize(("path", "kind", "seconds"), list(_rows()))
def test_shared_recordings(readers: FileReaders, path: Path, kind: str, seconds: float):
    """Real ones have their length, hostile ones an answer, and no worker is lost of either."""
    died = readers.counts().died
    try:
        with readers.open(path) as file:
            status, length_s = 200, len(all_samples(readers, file)[0]) / SAMPLE_RATE
    except BadInput as error:
        status, length_s = error.status, 0.0

    assert status in MUST.get(kind, {200})
    assert not seconds or length_s == pytest.approx(seconds, abs=0.35)
    assert died == readers.counts().died


@pytest.mark.parametrize("name", PLAYLISTS)
def test_texts_that_name_other_files(name: str):
    """They are refused by their type before a parser sees them; one that is like any text is read as one."""
    assert sound_demuxer(PLAYLISTS[name]) is None
    if name == "lavfi":
        assert FileType.TEXT is sniff(PLAYLISTS[name])
        return
    with pytest.raises(WrongMediaType):
        sniff(PLAYLISTS[name])


@pytest.mark.parametrize("name", PLAYLISTS)
@pytest.mark.parametrize("demuxer", ["wav", "mp3", "mov", "ogg", "matroska", "asf", "flac", "aac"])
def test_texts_that_get_through(name: str, demuxer: str):
    """Were one taken for a recording, the demuxer named alone would read it, and find none; no socket is opened."""
    process = psutil.Process()
    before = process.net_connections()
    with mapped(PLAYLISTS[name]) as data, suppress(UnreadableFile, av.FFmpegError):
        assert not list(open_container(data, demuxer).decode(audio=0))

    assert before == process.net_connections()


@pytest.mark.parametrize(
    ("name", "demuxer"), [("sdp", "sdp"), ("hls", "hls"), ("ffconcat", "concat"), ("dash", "dash")]
)
def test_the_demuxers_of_playlists_open_nothing(name: str, demuxer: str):
    """No table names them; were they asked all the same, the next file or address is refused."""
    before = _opened()
    with mapped(PLAYLISTS[name]) as data, pytest.raises((UnreadableFile, av.FFmpegError)):
        assert list(open_container(data, demuxer).demux())

    assert before == _opened()


def _opened() -> tuple[list[Any], list[str]]:
    """Connections, and paths: where pytest writes to a file, its position moves."""
    process = psutil.Process()
    return process.net_connections(), sorted(one.path for one in process.open_files())


def test_a_worker_for_pdfs_does_not_load_pyav():
    """The library is loaded by the first recording."""
    code = "import sys, backend.files.worker; print('av' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "False" == done.stdout.strip()


@contextmanager
def mapped(content: bytes) -> Iterator[mmap]:
    with TemporaryFile() as file:
        file.write(content)
        file.flush()
        with mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            yield data
