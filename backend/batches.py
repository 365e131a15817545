"""The use case behind ``/v1/batches``: a file of requests, answered in the background into files of answers."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from io import BytesIO
from typing import Literal, NamedTuple, Protocol

import orjson

from backend.errors import BadInput, Conflict, NotFound, TooLarge
from backend.files.limits import FileLimits
from backend.files.stored_file import StoredFile
from backend.jobs.records import Failure, Job, JobQuota, Progress
from backend.jobs.service import JobService, WorkRequest
from backend.lanes.inference import Urgency
from backend.search.files import FileService
from backend.search.records import FileRecord, ListPage

BATCHES = ".batches"  # behind the owner of what is known of batches, which lists of files do not show
KEPT_S = 2_592_000.0  # a batch is known for 30 days
WINDOW_S = 86_400.0  # OpenAI's only completion window
MAX_REQUESTS = 50_000  # OpenAI's limit
KIND = "batch"  # of the jobs; and the purpose of the records that are listed
_OUTCOME = "outcome"  # the purpose of those that are not
_PREFIX = "batch_"
_MAX_ERRORS = 100  # of a file that is told
_AT_ONCE, _AT_ONCE_BYTES = 64, 2**17  # requests computed at the same time: vectors may take a thousand times the bytes
_MAX_LINE_BYTES = 2**22  # reading one holds Python's lock
Status = Literal["validating", "in_progress", "finalizing", "completed", "failed", "expired", "cancelled"]


class LineAnswer(NamedTuple):
    """What a request of a batch was answered with."""

    status: int
    body: bytes  # JSON
    tokens: int = 0


class AnswerLine(Protocol):
    """Answers the body of one request. Raises: what ends the whole batch, such as Unavailable and DeadlineExceeded."""

    def __call__(self, body: bytes, *, request_id: str, urgency: Urgency) -> Awaitable[LineAnswer]: ...


@dataclass(frozen=True, slots=True)
class BatchError:
    """Why a batch failed."""

    code: str
    message: str
    line: int | None = None  # of the input, from 1
    param: str | None = None


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """What a batch was asked for."""

    input_file_id: str
    endpoint: str
    metadata: Mapping[str, str] | None = None
    output_expires_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a batch ended. Times are Unix seconds."""

    status: Status
    ended_s: float
    started_s: float | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    total: int = 0
    completed: int = 0
    failed: int = 0
    tokens: int = 0
    errors: tuple[BatchError, ...] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as it stands."""

    id: str  # "batch_…"
    request: BatchRequest
    created_s: float
    status: Status
    outcome: Outcome | None  # once it has ended
    started_s: float | None = None
    total: int = 0
    completed: int = 0
    failed: int = 0


class RequestLine(NamedTuple):
    """A request of the input file."""

    custom_id: str
    body: bytes  # JSON


@dataclass(slots=True)
class _Answers:
    """The files that a batch writes."""

    output: StoredFile
    errors: StoredFile
    completed: int = 0
    failed: int = 0
    tokens: int = 0

    def add(self, answers: Sequence[tuple[RequestLine, str, LineAnswer]]) -> None:
        """Raises: TooLarge."""
        for line, request_id, answer in answers:
            is_good = answer.status < 400
            self.completed += is_good
            self.failed += not is_good
            self.tokens += answer.tokens
            (self.output if is_good else self.errors).write(_answer_line(line, request_id, answer))


def _answer_line(line: RequestLine, request_id: str, answer: LineAnswer) -> bytes:
    head = b'{"id":"batch_req_%b","custom_id":%b,' % (request_id.encode(), orjson.dumps(line.custom_id))
    response = b'"response":{"status_code":%d,"request_id":"%b","body":%b}' % (
        answer.status,
        request_id.encode(),
        answer.body,
    )
    return head + response + b',"error":null}\n'


class BatchService:
    """Batches of each caller: a job does the work, and what is known of a batch stands in the file storage.

    So its progress is the job's, and its files, its place in the list and its end outlive the job. Used on the event
    loop only.

    Args:
        limits: of an input file.
        output_bytes: of an output file; LIMIT_JOB_BYTES.
        answers: what answers a request, by the endpoint.
        runs_here_only: whether no other process has these files.
    """

    def __init__(
        self,
        jobs: JobService,
        files: FileService,
        limits: FileLimits,
        *,
        output_bytes: int,
        answers: Mapping[str, AnswerLine],
        runs_here_only: bool,
    ) -> None:
        self._jobs, self._files, self._answers = jobs, files, answers
        self._limits, self._output_limits = limits, FileLimits(file_bytes=output_bytes)
        self._runs_here_only = runs_here_only
        jobs.add_work(KIND, self._work)

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The paths whose requests a batch may hold."""
        return tuple(self._answers)

    async def create(self, owner: str, request: BatchRequest, *, quota: JobQuota | None = None) -> Batch:
        """Begin a batch. Raises: NotFound for the input file; as `FileService.upload` and `JobService.submit`."""
        await self._files.find(owner, request.input_file_id)
        job_id = secrets.token_hex(16)
        with closing(StoredFile.of(orjson.dumps(asdict(request)), self._limits)) as content:
            record = await self._keep(owner, _PREFIX + job_id, content, KIND)
            work = WorkRequest(KIND, job_id, content, record.id, owner, quota, self._runs_here_only)
            try:
                job = await self._jobs.submit_work(work)
            except BaseException:
                await self._files.delete(owner + BATCHES, record.id)
                raise
        return _of_job(record, request, job)

    async def find(self, owner: str, batch_id: str) -> Batch:
        """Raises: NotFound, also for somebody else's."""
        try:
            record, content = await self._files.content(owner + BATCHES, batch_id)
        except NotFound:
            record, content = None, None
        if record is None or content is None or record.purpose != KIND:
            raise NotFound(f"batch_id: there is no batch '{batch_id[:64]}'", param="batch_id")
        with closing(content):
            return await self._state(owner, record, BatchRequest(**orjson.loads(content.content())))

    async def list_batches(self, owner: str, page: ListPage) -> tuple[list[Batch], bool]:
        """The batches of a page of the list, and whether there are more."""
        records, has_more = await self._files.list_files(owner + BATCHES, page, KIND)
        return [await self.find(owner, record.id) for record in records], has_more

    async def cancel(self, owner: str, batch_id: str) -> Batch:
        """Stop a batch, without its answers so far. Raises: NotFound; Conflict for one that has ended."""
        batch = await self.find(owner, batch_id)
        try:
            job = None if batch.outcome else await self._jobs.cancel_live(_job_id(batch_id), owner, KIND)
        except NotFound:
            job = None
        if job is None:
            batch = await self.find(owner, batch_id)
            raise Conflict(f"batch_id: the batch '{batch_id}' is {batch.status}, and is not to be cancelled any more")
        await self._end(owner, batch_id, _outcome_of_job(job))
        return await self.find(owner, batch_id)

    async def _state(self, owner: str, record: FileRecord, request: BatchRequest) -> Batch:
        try:  # the job before the outcome: it ends after that was written
            job = await self._jobs.find(_job_id(record.id), owner, KIND)
        except NotFound:
            job = None
        outcome = await self._outcome(owner, record.id)
        if outcome is None and job is not None:
            return _of_job(record, request, job)
        if outcome is None:
            lost = BatchError(
                "job_lost", "the service ended before the batch had, or forgot how it ended; send it again"
            )
            outcome = Outcome("failed", record.created_s, errors=(lost,))
        counts = (outcome.total, outcome.completed, outcome.failed)
        return Batch(record.id, request, record.created_s, outcome.status, outcome, outcome.started_s, *counts)

    async def _outcome(self, owner: str, batch_id: str) -> Outcome | None:
        try:
            _, content = await self._files.content(owner + BATCHES, _outcome_id(batch_id))
        except NotFound:
            return None
        with closing(content):
            fields = orjson.loads(content.content())
        return Outcome(**{**fields, "errors": tuple(BatchError(**error) for error in fields["errors"])})

    async def _end(self, owner: str, batch_id: str, outcome: Outcome) -> bytes:
        packed = orjson.dumps(asdict(outcome))
        with closing(StoredFile.of(packed, self._limits)) as content:
            await self._keep(owner, _outcome_id(batch_id), content, _OUTCOME)
        return packed

    async def _keep(self, owner: str, record_id: str, content: StoredFile, purpose: str) -> FileRecord:
        upload = partial(self._files.upload, owner + BATCHES, content, record_id, purpose, expires_after_s=KEPT_S)
        return await self._once(owner + BATCHES, record_id, upload)

    async def _once(self, owner: str, file_id: str, upload: Callable[..., Awaitable[FileRecord]]) -> FileRecord:
        """A new file, or the one that an earlier attempt of the job has written."""
        try:
            return await upload(file_id=file_id)
        except BadInput as error:
            try:
                return await self._files.find(owner, file_id)
            except NotFound:
                raise error from None

    async def _work(
        self, content: StoredFile, job: Job, urgency: Urgency, tell: Callable[[Progress], None]
    ) -> tuple[bytes, int]:
        """The work of a job: check the input, answer its requests, and keep the files of answers."""
        request, batch_id = BatchRequest(**orjson.loads(content.content())), _PREFIX + job.id
        tell(Progress("opening"))
        _, source = await self._files.content(job.owner, request.input_file_id)
        with closing(source):
            lines, faults = await asyncio.to_thread(lambda: read_lines(source.content(), request.endpoint))
        if faults:
            outcome = Outcome("failed", self._files.now_s(), job.started_s, errors=tuple(faults))
            return await self._end(job.owner, batch_id, outcome), 0
        with (
            closing(StoredFile(self._output_limits)) as output,
            closing(StoredFile(self._output_limits)) as errors_file,
        ):
            answers = _Answers(output, errors_file)
            await self._answer(lines, request.endpoint, urgency, answers, tell)
            tell(Progress("understanding", len(lines), len(lines), answers.failed))
            outcome = Outcome(
                "completed",
                self._files.now_s(),
                job.started_s,
                await self._keep_answers(job, request, output, "output"),
                await self._keep_answers(job, request, errors_file, "error"),
                total=len(lines),
                completed=answers.completed,
                failed=answers.failed,
                tokens=answers.tokens,
            )
        return await self._end(job.owner, batch_id, outcome), answers.tokens

    async def _answer(
        self,
        lines: Sequence[RequestLine],
        endpoint: str,
        urgency: Urgency,
        answers: _Answers,
        tell: Callable[[Progress], None],
    ) -> None:
        answer_line = self._answers[endpoint]

        async def answered(line: RequestLine) -> tuple[RequestLine, str, LineAnswer]:
            request_id = secrets.token_hex(12)
            return line, request_id, await answer_line(line.body, request_id=request_id, urgency=urgency)

        tell(Progress("reading", 0, len(lines)))
        for group in _groups(lines):
            done = await asyncio.gather(*map(answered, group))
            try:
                await asyncio.to_thread(answers.add, done)
            except TooLarge as error:
                raise self._output_too_large(error) from error
            tell(Progress("reading", answers.completed + answers.failed, len(lines), answers.failed))

    def _output_too_large(self, error: TooLarge) -> TooLarge:
        advice = "Ask for encoding_format base64 or fewer dimensions, or send several batches."
        return TooLarge("bytes of answers", error.value, error.limit, "LIMIT_JOB_BYTES", advice=advice)

    async def _keep_answers(self, job: Job, request: BatchRequest, content: StoredFile, name: str) -> str | None:
        """The id of a file of answers; None for an empty one."""
        if not content.size_bytes:
            return None
        file_name, expires_after_s = f"{_PREFIX}{job.id}_{name}.jsonl", request.output_expires_after_s
        upload = partial(
            self._files.upload, job.owner, content, file_name, "batch_output", expires_after_s=expires_after_s
        )
        return (await self._once(job.owner, f"file-{job.id[:24]}-{name}", upload)).id


def read_lines(content: bytes, endpoint: str) -> tuple[list[RequestLine], list[BatchError]]:
    """The requests of an input file, and what is wrong with it. Takes a second for 100 MB: call it on a thread."""
    lines, errors, custom_ids = list[RequestLine](), list[BatchError](), set[str]()
    for number, row in enumerate(BytesIO(content), 1):  # line by line: a list of empty ones takes 50 times their bytes
        if not row.strip():
            continue
        if len(lines) + len(errors) == MAX_REQUESTS:
            message = f"the file holds over {MAX_REQUESTS} requests, the most of a batch; send several batches"
            return [], [BatchError("too_many_requests", message)]
        read = _read_line(number, row, endpoint, custom_ids)
        if isinstance(read, BatchError):
            errors.append(read)
        else:
            custom_ids.add(read.custom_id)
            lines.append(read)
    if not lines and not errors:
        return [], [BatchError("empty_file", "the file holds no requests; write one a line, as JSON")]
    if len(errors) > _MAX_ERRORS:
        message = f"{len(errors) - _MAX_ERRORS} more lines are wrong, and are not listed"
        errors[_MAX_ERRORS:] = [BatchError("more_errors", message)]
    return lines, errors


def _read_line(number: int, row: bytes, endpoint: str, custom_ids: set[str]) -> RequestLine | BatchError:
    if len(row) > _MAX_LINE_BYTES:
        message = f"this line has {len(row)} bytes, and a request {_MAX_LINE_BYTES} at most; send several requests"
        return BatchError("line_too_long", message, number)
    try:
        fields = orjson.loads(row)
    except ValueError as error:
        return BatchError("invalid_json_line", f"this line is no JSON: {error}", number)
    if type(fields) is not dict:
        return BatchError("invalid_json_line", "this line must be a JSON object", number)
    custom_id, body = fields.get("custom_id"), fields.get("body")
    if type(custom_id) is not str or not custom_id:
        return _wrong(number, "custom_id", "must be a text that names the request")
    if custom_id in custom_ids:
        message = f"custom_id: '{custom_id[:64]}' names a request before it, too; give each its own"
        return BatchError("duplicate_custom_id", message, number, "custom_id")
    if fields.get("method") != "POST":
        return BatchError("invalid_method", "method: must be POST", number, "method")
    if fields.get("url") != endpoint:
        got = str(fields.get("url"))[:64]
        message = f"url: must be the batch's endpoint {endpoint}, got '{got}'"
        return BatchError("invalid_url", message, number, "url")
    if type(body) is not dict:
        return _wrong(number, "body", f"must be the JSON object that POST {endpoint} takes")
    return RequestLine(custom_id, orjson.dumps(body))


def _wrong(number: int, param: str, message: str) -> BatchError:
    return BatchError("missing_required_parameter", f"{param}: {message}", number, param)


def _groups(lines: Sequence[RequestLine]) -> Iterator[list[RequestLine]]:
    """Requests to be computed at the same time, in their order."""
    group, size_bytes = list[RequestLine](), 0
    for line in lines:
        if group and (len(group) == _AT_ONCE or size_bytes + len(line.body) > _AT_ONCE_BYTES):
            yield group
            group, size_bytes = [], 0
        group.append(line)
        size_bytes += len(line.body)
    yield group


def _job_id(batch_id: str) -> str:
    return batch_id.removeprefix(_PREFIX)


def _outcome_id(batch_id: str) -> str:
    return f"{_OUTCOME}_{_job_id(batch_id)}"


def _of_job(record: FileRecord, request: BatchRequest, job: Job) -> Batch:
    """A batch without an outcome, as its job stands."""
    outcome = _outcome_of_job(job) if job.ended else None
    stages: Mapping[str, Status] = {"reading": "in_progress", "understanding": "finalizing", "done": "finalizing"}
    status = outcome.status if outcome else stages.get(job.progress.stage, "validating")
    counts = _counts(job)
    return Batch(record.id, request, record.created_s, status, outcome, job.started_s, *counts)


def _outcome_of_job(job: Job) -> Outcome:
    """How a batch ended whose work did not: its job was cancelled, failed, or was late."""
    status: Status = "failed"
    if job.failure is None:
        status = "cancelled"
    elif job.failure.code == "deadline_exceeded":
        status = "expired"
    errors = () if job.failure is None else (_error_of(job.failure),)
    total, completed, failed = _counts(job)
    return Outcome(status, job.ended_s or job.created_s, job.started_s, None, None, total, completed, failed, 0, errors)


def _counts(job: Job) -> tuple[int, int, int]:
    progress = job.progress
    return progress.pages_total or 0, progress.pages_done - progress.failed_pages, progress.failed_pages


def _error_of(failure: Failure) -> BatchError:
    return BatchError(failure.code, failure.message, None, failure.param)
