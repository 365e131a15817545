"""Jobs as bytes and back, for a store that other processes read. An older version's bytes are no job."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import orjson

from backend.jobs.records import Failure, Job, JobFile, Progress


def pack_job(job: Job) -> bytes:
    """A job without its progress, which changes more often."""
    fields = asdict(job)
    del fields["progress"]
    return orjson.dumps(fields)


def pack_progress(progress: Progress) -> bytes:
    """How far a job is; also what an event of it says."""
    return orjson.dumps(asdict(progress))


def unpack_job(packed: bytes, progress: bytes) -> Job | None:
    """The job of these bytes; None where they are not one."""
    try:
        fields: dict[str, Any] = orjson.loads(packed)
        failure = fields.pop("failure")
        return Job(
            **{**fields, "file": JobFile(**fields["file"])},
            failure=None if failure is None else Failure(**failure),
            progress=Progress(**orjson.loads(progress)),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
