"""Job records written and read back."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from backend.jobs.codec import RECORD_FORMAT, pack_job, pack_progress, unpack_job
from backend.jobs.records import Failure, Progress
from tests.jobs.samples import job, moved


def test_there_and_back():
    failed = replace(moved(job(), "start", "fail"), failure=Failure("no", "bad_input", 400, "file"))
    for record in (job(), failed, job(progress=Progress("reading", 3, None, 1))):
        assert record == unpack_job(pack_job(record), pack_progress(record.progress))


@pytest.mark.parametrize("packed", [b"", b"[]", b"{}", b'{"failure":null,"id":"x"}', b"\xff"])
def test_foreign_bytes_are_no_job(packed):
    """Bytes that are no record are not guessed at."""
    assert unpack_job(packed, b"{}") is None


@pytest.mark.parametrize("older", [{}, {"format": RECORD_FORMAT - 1}])
def test_another_format_is_no_job(older):
    """A job whose result is packed in another way is not found; the first format had no number."""
    fields = orjson.loads(pack_job(job()))
    del fields["format"]

    assert unpack_job(orjson.dumps(fields | older), pack_progress(job().progress)) is None
