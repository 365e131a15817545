"""Job records as bytes, for a store that other processes read."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import orjson

from backend.jobs.records import Failure, Job, JobFile, Progress

RECORD_FORMAT = 2  # to be raised when a job or its result is packed differently; jobs of other formats are not found


def pack_job(job: Job) -> bytes:
    """A job without its progress, which changes more often."""
    fields = asdict(job)
    del fields["progress"]
    return orjson.dumps({"format": RECORD_FORMAT, **fields})


def pack_progress(progress: Progress) -> bytes:
    """The progress of a job as JSON; also the data of a "progress" event."""
    return orjson.dumps(asdict(progress))


def unpack_job(packed: bytes, progress: bytes) -> Job | None:
    """The job of these bytes; None for bytes of another version or of something else."""
    try:
        fields: dict[str, Any] = orjson.loads(packed)
        if fields.pop("format", None) != RECORD_FORMAT:
            return None
        failure = fields.pop("failure")
        return Job(
            **{**fields, "file": JobFile(**fields["file"])},
            failure=None if failure is None else Failure(**failure),
            progress=Progress(**orjson.loads(progress)),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
