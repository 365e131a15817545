"""Jobs written and read back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.jobs.codec import pack_job, pack_progress, unpack_job
from backend.jobs.records import Failure, Progress
from tests.jobs.samples import job, moved


def test_there_and_back():
    """Nothing is lost."""
    failed = replace(moved(job(), "start", "fail"), failure=Failure("no", "bad_input", 400, "file"))
    for one in (job(), failed, job(progress=Progress("reading", 3, None, 1))):
        assert one == unpack_job(pack_job(one), pack_progress(one.progress))


@pytest.mark.parametrize("packed", [b"", b"[]", b"{}", b'{"failure":null,"id":"x"}', b"\xff"])
def test_foreign_bytes_are_no_job(packed):
    """What another version wrote is not guessed at."""
    assert unpack_job(packed, b"{}") is None
