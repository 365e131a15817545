"""Jobs, uploads and stores for tests."""

from dataclasses import replace
from typing import Any

from backend.files.limits import FileLimits
from backend.files.stored_file import StoredFile
from backend.jobs.records import Change, Job, JobFile, move

NOW_S = 1_900_000_000.0  # in the future: keys that Redis is to expire then are kept
TTL_S = 100.0
LIMITS = FileLimits()
CONTENT = b"%PDF-1.7 " + bytes(range(256))


def job(job_id: str = "one", **changes: Any) -> Job:
    """A job that was just accepted."""
    record = Job(
        id=job_id,
        owner="owner",
        file=JobFile("invoice.pdf", len(CONTENT), "ab" * 32, "pdf"),
        options={"document": {"pages": "1-3"}, "encoding_format": "float"},
        same=f"same-{job_id}",
        limit_s=60.0,
        ttl_s=TTL_S,
        created_s=NOW_S,
    )
    return replace(record, **changes)


def upload(content: bytes = CONTENT) -> StoredFile:
    return StoredFile.of(content, LIMITS)


def moved(record: Job, *changes: Change, now_s: float = NOW_S) -> Job:
    """The job after these changes, all of which must be allowed."""
    for change in changes:
        after = move(record, change, now_s)
        assert after is not None
        record = after
    return record
