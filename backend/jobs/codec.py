"""Job records as bytes, for a store that other processes read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any, get_args

import orjson

from backend.errors import JobOfAnotherRelease
from backend.jobs.records import Failure, Job, JobFile, Progress, Status

# Raised when a release changes the meaning of a job, of its options, or of its result. Fields that readers may ignore
# change nothing. A release reads its own format and the one before, so that old and new replicas can share a Redis; a
# job in another format is left to replicas that can read it.
RECORD_FORMAT = 2
OLDEST_FORMAT = 2  # that this release reads; format 1 was never released


def pack_job(job: Job) -> bytes:
    """A job without its progress, which changes more often."""
    record = asdict(job)
    del record["progress"]
    return orjson.dumps({"format": RECORD_FORMAT, **record})


def pack_progress(progress: Progress) -> bytes:
    """The progress of a job as JSON; also the data of a "progress" event."""
    return orjson.dumps(asdict(progress))


def unpack_job(job_id: str, packed: bytes, progress: bytes) -> Job:
    """The job of these bytes, without fields that this release does not know.

    Raises: JobOfAnotherRelease for a format that it cannot read.
    """
    try:
        stored: dict[str, Any] = orjson.loads(packed)
        if not OLDEST_FORMAT <= stored["format"] <= RECORD_FORMAT or stored["status"] not in get_args(Status):
            raise JobOfAnotherRelease(f"job '{job_id}'")
        job = Job(
            **{
                **_known(Job, stored),
                "file": JobFile(**_known(JobFile, stored["file"])),
                "failure": None if stored["failure"] is None else Failure(**_known(Failure, stored["failure"])),
                "progress": Progress(**_known(Progress, orjson.loads(progress))),
            }
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise JobOfAnotherRelease(f"job '{job_id}'") from error
    return job if job.ended else replace(job, expires_s=None)  # earlier releases let jobs expire while they waited


def _known(record: type, stored: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(record)}
    return {name: value for name, value in stored.items() if name in names}
