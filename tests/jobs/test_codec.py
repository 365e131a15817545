"""Job records written and read back."""

from dataclasses import replace

import orjson
import pytest

from backend.errors import JobOfAnotherRelease
from backend.jobs.document_codec import OLDEST_FORMAT, RECORD_FORMAT, pack_job, pack_progress, unpack_job
from backend.jobs.records import Failure, Progress
from tests.jobs.samples import job, moved


def test_there_and_back():
    failed = replace(moved(job(), "start", "fail"), failure=Failure("no", "bad_input", 400, "file"))
    for record in (job(), failed, job(progress=Progress("reading", 3, None, 1))):
        assert record == unpack_job("one", pack_job(record), pack_progress(record.progress))


@pytest.mark.parametrize("packed", [b"", b"[]", b"{}", b'{"failure":null,"id":"x"}', b"\xff"])
def test_foreign_bytes_are_not_guessed_at(packed):
    with pytest.raises(JobOfAnotherRelease, match="job 'one'"):
        unpack_job("one", packed, b"{}")


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"format": OLDEST_FORMAT - 1}, id="older"),
        pytest.param({"format": RECORD_FORMAT + 1}, id="newer"),
        pytest.param({"format": None}, id="before-formats-had-numbers"),
        pytest.param({"status": "paused"}, id="a-status-of-a-later-release"),
    ],
)
def test_another_format_is_unreadable(changes):
    """Which is not the same as absent: another replica may read it."""
    fields = orjson.loads(pack_job(job())) | changes

    with pytest.raises(JobOfAnotherRelease):
        unpack_job("one", orjson.dumps(fields), pack_progress(job().progress))


def test_fields_of_a_later_release_are_left_out():
    """As long as the format is the same."""
    record = replace(moved(job(), "start", "fail"), failure=Failure("no", "bad_input", 400, "file"))
    fields = orjson.loads(pack_job(record)) | {"priority": 3}
    fields["file"]["language"] = fields["failure"]["page"] = "new"
    progress = orjson.loads(pack_progress(record.progress)) | {"eta_s": 9}

    assert record == unpack_job("one", orjson.dumps(fields), orjson.dumps(progress))


def test_a_waiting_job_of_an_earlier_release_does_not_expire():
    """They wrote an expiry from the start; that of an ended job counts."""
    fields = orjson.loads(pack_job(job())) | {"expires_s": 5.0}
    ended = moved(job(), "cancel")

    assert job() == unpack_job("one", orjson.dumps(fields), pack_progress(job().progress))
    assert ended.expires_s == unpack_job("one", pack_job(ended), pack_progress(ended.progress)).expires_s


def test_the_trace_of_a_job():
    """It is kept; a job of a release without traces has none, and one of this release is read there too."""
    record = job(trace="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    earlier = orjson.loads(pack_job(record))
    del earlier["trace"]

    assert record == unpack_job("one", pack_job(record), b"{}")
    assert job() == unpack_job("one", orjson.dumps(earlier), b"{}")
