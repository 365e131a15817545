"""The tree of errors. HTTP status, code and title of each error are attributes of its class.

    FinanciaError                     500
    ├── BadInput                      400  the caller must change the request
    │   ├── InvalidField              422  a field has the wrong type or value
    │   ├── TokenIdsOutOfRange        422  token ids of another tokenizer
    │   ├── UnreadableFile            422  an uploaded file, or a page of it, is broken
    │   ├── PasswordRequired          422  the file is encrypted and came without its password
    │   │   └── WrongPassword         422
    │   ├── TooLarge                  413  over a limit; names the setting that raises it
    │   ├── NotAcceptable             406  Accept allows none of the formats; lists them
    │   ├── WrongMediaType            415
    │   ├── HeadersTooLarge           431  request line and headers, before a key is looked at
    │   ├── WrongHost                 421  a Host that this service does not answer to
    │   ├── CrossSite                 403  a request that another web site made a browser send
    │   ├── Unauthorized              401
    │   │   └── KeyExpired            401  the key was one of this service's
    │   ├── Forbidden                 403  the key may not do this
    │   ├── WrongEncoder              409  a vector store whose vectors another model made
    │   ├── Conflict                  409  somebody changed it since the caller read it
    │   └── NotFound                  404
    │       └── UnknownModel          404  lists the known models
    ├── Overloaded                    429  the queue is full; Retry-After is computed
    ├── QuotaExceeded                 429  this caller has used up its share
    ├── HeadersTooLate                408  a client that began a request and did not send its headers
    ├── CallerGone                    499  the client disconnected
    ├── Unavailable                   503  not ready, draining, or a lane was lost
    │   ├── TooManyConnections        503  the limit of open connections is reached
    │   ├── ModelPending              503  the model is set, and could not be fetched from the hub yet
    │   ├── UpstreamFailed            503  the API of SUMMARY_URL failed
    │   └── DeviceLost            503  the context of the device is dead: the process must end
    ├── NotInstalled              503  this input needs an extra or a model that is absent; other work goes on
    ├── StorageCorrupt            500  stored documents whose data are broken: never a wrong answer
    ├── JobOfAnotherRelease       503  another release wrote the job in a format that this one cannot read
    ├── DeadlineExceeded              504
    ├── InferenceFailed               500  the engine raised on this item alone
    │   └── DoesNotFit                507  this item alone is too large for the device
    ├── TrainingError                 -    stops a training run; never in an HTTP answer
    │   ├── BadData                        examples that cannot be trained on; names file and line
    │   ├── BadCheckpoint                  absent, broken, or of another model or run
    │   └── TrainingFailed                 not finite in float32 either, or nothing fits; names the examples
    └── SetupError                    -    stops the start; never in an HTTP answer
        ├── BadSettings                    every faulty setting at once
        ├── DeviceUnavailable              an explicitly requested device that is not available
        └── ModelUnavailable               files absent, of an unknown kind, or of a wrong checksum
            └── HubUnreachable             the hub or the way to it fails: the same may succeed later

``status``, ``code`` and ``retryable`` are read in one place, api/problems.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

UnavailableKind = Literal["passing", "lane_died", "starved", "for_good"]

_MESSAGE_CHARS = 2000  # messages quote what the caller sent, which may be megabytes; field first, remedy last
_PARAM_CHARS = 200
_FIELD = re.compile(r"[\w-]{1,64}(?=[.\[:]|$)")  # of a place, or of the one that a message begins with
_LEFT_OUT = " […] "


def param_of(place: str) -> str | None:
    """The request's own field in a place such as ``files[1].name``, or in a message that begins with one."""
    field = _FIELD.match(place)
    return field[0] if field else None


class FinanciaError(Exception):
    """Root of the tree: a failure of the service unless a subclass says otherwise."""

    status = 500
    code = "internal_error"
    title = "Internal error"  # of a subclass with a code and no title: its code in words
    retryable = False
    param: str | None = None  # the request field at fault, where there is one
    told: tuple[str, ...] = ()  # attributes that answers tell as `params`, beside the sentence
    retry_after_s: float | None = None  # sent as Retry-After, rounded up to whole seconds

    def __init_subclass__(cls) -> None:
        if "code" in vars(cls) and "title" not in vars(cls):
            cls.title = cls.code.replace("_", " ").capitalize()


class BadInput(FinanciaError):
    """The request cannot be served. The message says what is wrong, the value, and what to change."""

    status = 400
    code = "bad_input"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(_without_middle(message, _MESSAGE_CHARS))
        self.param = None if param is None else _without_middle(param, _PARAM_CHARS)


class InvalidField(BadInput):
    """A field is absent, of the wrong type, or has an invalid value.

    Its message begins with the place, such as ``files[1].name: ``; ``param`` is the field of that place unless told.
    """

    status = 422
    code = "invalid_field"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message, param=param_of(message) if param is None else param)


class TokenIdsOutOfRange(BadInput):
    """Token ids that this model's vocabulary does not have, usually another tokenizer's."""

    status = 422
    code = "token_ids_out_of_range"

    def __init__(self, token_id: int, vocabulary_size: int, *, param: str = "input") -> None:
        super().__init__(
            f"{param}: token id {token_id} is outside this model's vocabulary (0 to {vocabulary_size - 1}). "
            "The ids come from another tokenizer. Send texts instead of ids; LangChain's OpenAIEmbeddings sends "
            "tiktoken ids unless check_embedding_ctx_length=False is set.",
            param=param,
        )


class TooLarge(BadInput):
    """Over a limit. The message names the limit, the value, and the setting that raises it."""

    status = 413
    code = "too_large"
    told = ("what", "value", "limit", "setting")

    def __init__(
        self, what: str, value: float, limit: float, setting: str, *, advice: str = "", param: str | None = None
    ) -> None:
        message = f"{what}: {value} is over the limit of {limit} ({setting})"
        super().__init__(f"{message}. {advice}" if advice else message, param=param)
        self.what, self.value, self.limit, self.setting, self.advice = what, value, limit, setting, advice


class UnreadableFile(BadInput):
    """An uploaded file, or one page of it, that cannot be read: broken, cut off, or it crashed the worker process."""

    status = 422
    code = "unreadable_file"

    def __init__(self, message: str, *, page: int | None = None, param: str = "file") -> None:
        super().__init__(message, param=param)
        self.page = page  # from 1; None where the whole file is meant


class PasswordRequired(BadInput):
    """The file is encrypted and was sent without its password."""

    status = 422
    code = "password_required"

    def __init__(self, message: str = "file: it is encrypted; send its password with it") -> None:
        super().__init__(message, param="password")


class WrongPassword(PasswordRequired):
    """The password that was sent does not open the file."""

    code = "wrong_password"

    def __init__(self) -> None:
        super().__init__("password: it does not open this file")


class NotAcceptable(BadInput):
    """``Accept`` allows none of the formats of this answer."""

    status = 406
    code = "not_acceptable"

    def __init__(self, accept: str, known: Sequence[str]) -> None:
        super().__init__(f"Accept: '{accept[:200]}' allows none of {', '.join(known)}; leave it out to get {known[0]}")


class WrongMediaType(BadInput):
    """The body has a media type that this route does not accept."""

    status = 415
    code = "wrong_media_type"


class Unauthorized(BadInput):
    """No key, or a key that is not one of API_KEYS or ADMIN_KEYS."""

    status = 401
    code = "unauthorized"


class KeyExpired(Unauthorized):
    """The key was one of this service's until the time in the message."""

    code = "key_expired"


class Forbidden(BadInput):
    """The key is known, and may not do this."""

    status = 403
    code = "forbidden"


class HeadersTooLarge(BadInput):
    """Request line and headers over a limit; what follows is not read, and the connection is closed."""

    status = 431
    code = "headers_too_large"

    def __init__(self, what: str, got: int, limit: int) -> None:
        super().__init__(
            f"{what}: {got} or more, the limit is {limit} (fixed); move long values into the body, send fewer cookies"
        )


class WrongHost(BadInput):
    """The request's Host is not one of this service's names: a web page may have had its own name point here."""

    status = 421
    code = "wrong_host"
    title = "Misdirected request"


class CrossSite(BadInput):
    """A browser sent the request for a page of another web site."""

    status = 403
    code = "cross_site"
    title = "Cross-site request"


class WrongEncoder(BadInput):
    """The vectors of a vector store are those of another model than the one that serves."""

    status = 409
    code = "wrong_encoder"
    title = "Vectors of another model"


class Conflict(BadInput):
    """Somebody else changed what the request changes, since its caller read it. The message says who and what."""

    status = 409
    code = "conflict"
    title = "Changed meanwhile"


class NotFound(BadInput):
    """No such route or resource."""

    status = 404
    code = "not_found"


class UnknownModel(NotFound):
    """The request names a model that is not loaded."""

    code = "model_not_found"
    title = "Unknown model"
    told = ("name", "known")

    def __init__(self, name: str, known: Sequence[str], *, aliases: str = "") -> None:
        """Args: aliases: the setting that gives the loaded model further names."""
        advice = f"; {aliases} gives it further names" if aliases else ""
        super().__init__(f"model: '{name}' is not loaded here; loaded are {', '.join(known)}{advice}", param="model")
        self.name = name
        self.known = tuple(known)


class Overloaded(FinanciaError):
    """A queue is full. ``retry_after_s`` is queued tokens over the measured rate; other queues pass a ``message``."""

    status = 429
    code = "overloaded"
    retryable = True

    def __init__(self, queued_tokens: int, limit_tokens: int, retry_after_s: float, message: str = "") -> None:
        super().__init__(
            message
            or f"{queued_tokens} tokens are waiting, the limit is {limit_tokens} (LIMIT_QUEUE_TOKENS), half of which "
            f"one key may have while others wait; try again in {retry_after_s:.1f} s"
        )
        self.queued_tokens, self.limit_tokens = queued_tokens, limit_tokens
        self.retry_after_s = retry_after_s

    @classmethod
    def too_late(cls, queued: int, *, wait_s: float, left_s: float, again_s: float, of: str = "tokens") -> Overloaded:
        """For work that could not be done before the deadline of its request; refused at once instead."""
        message = (
            f"what waits ahead ({queued} {of}) takes about {wait_s:.0f} s, and this request has "
            f"{left_s:.0f} s left (LIMIT_REQUEST_S, or its own X-Request-Timeout-S); try again in {again_s:.1f} s"
        )
        return cls(queued, queued, again_s, message)


class QuotaExceeded(FinanciaError):
    """A caller has used up a quota; others are served. ``retry_after_s`` is when there is some of it again."""

    status = 429
    code = "quota_exceeded"
    told = ("quota",)
    retryable = True

    def __init__(self, quota: str, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.quota = quota  # "requests", "tokens", "pages", "jobs", "stored_bytes" or "waiting_files"
        self.retry_after_s = retry_after_s
        self.is_counted = False  # among what its caller was refused; set by its meter

    @classmethod
    def of_rate(cls, quota: str, used: int, limit: int, retry_after_s: float, setting: str = "") -> QuotaExceeded:
        """For a quota a minute; ``setting`` is where the operator changes it."""
        message = (
            f"{quota}: this key has used {used} within a minute, its quota is {limit} "
            f"({setting or f'QUOTA_{quota.upper()}_PER_MINUTE'}); try again in {retry_after_s:.1f} s"
        )
        return cls(quota, message, retry_after_s)


class HeadersTooLate(FinanciaError):
    """A client began a request and did not send its headers in time; the connection is closed."""

    status = 408
    code = "headers_too_late"
    retryable = True

    def __init__(self, limit_s: float) -> None:
        super().__init__(f"request line and headers were not sent within {limit_s:g} s (fixed); send them at once")


class CallerGone(FinanciaError):
    """The client closed the connection; its queued work items were dropped."""

    status = 499
    code = "caller_gone"
    title = "Client closed the request"


class Unavailable(FinanciaError):
    """Not ready yet, draining, or the device was lost. Another replica can answer.

    ``kind`` tells background work what to do: "passing" may succeed here later; "lane_died" once more, as the input may
    be the cause; "starved" a few times, as a busy machine or an input that hangs may be; "for_good" nevermore in this
    process, so another one must.
    """

    status = 503
    code = "unavailable"
    retryable = True

    def __init__(self, message: str, *, retry_after_s: float = 1.0, kind: UnavailableKind = "passing") -> None:
        super().__init__(message)
        self.retry_after_s, self.kind = retry_after_s, kind


def drained_too_late() -> Unavailable:
    """The error of a request that the server cancels, as its time to drain is over."""
    return Unavailable("the service is shutting down and had no time left for this request; ask again")


class TooManyConnections(Unavailable):
    """More connections are open than this process accepts; probes are answered all the same."""

    code = "too_many_connections"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"connections: {limit} are open, which is the limit (LIMIT_CONNECTIONS); keep fewer, ask another replica, "
            "or raise it"
        )


class ModelPending(Unavailable):
    """The request names a model that is set and could not be fetched from the hub yet; another serves meanwhile."""

    code = "model_pending"
    title = "Model not fetched yet"

    def __init__(self, name: str, reason: str, *, serving: str | None, retry_after_s: float) -> None:
        meanwhile = f"leave model out to have {serving} meanwhile" if serving else "none serves in its place"
        super().__init__(
            f"model: '{name}' is set here and not loaded yet: {reason}. It is fetched in the background; {meanwhile}, "
            f"or try again in {retry_after_s:.0f} s",
            retry_after_s=retry_after_s,
        )
        self.param = "model"
        self.name, self.serving = name, serving


class UpstreamFailed(Unavailable):
    """The API at SUMMARY_URL failed, refused, or answered with what is no summary."""

    code = "upstream_failed"


class DeviceLost(Unavailable):
    """The device's context is dead (illegal access, device assert, lost card); only a new process can use it again."""

    code = "device_lost"

    def __init__(self, message: str, *, retry_after_s: float = 1.0, kind: UnavailableKind = "for_good") -> None:
        super().__init__(message, retry_after_s=retry_after_s, kind=kind)


class NotInstalled(FinanciaError):
    """This input needs an extra or a model that is absent here. Inputs of other kinds are served."""

    status = 503
    code = "not_installed"


class StorageCorrupt(FinanciaError):
    """Stored documents cannot be read as they were written; the message says which, and how to recover."""

    code = "storage_corrupt"
    title = "Stored data are broken"


class JobOfAnotherRelease(FinanciaError):
    """A job, or its result, in a format of another release: a rolling upgrade is under way. A replica of it answers."""

    status = 503
    code = "job_of_another_release"
    retryable = True
    retry_after_s = 10.0

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} was written by another release of the service, in a format that this one cannot read. Replicas of "
            "that release answer for it: ask again, and once more when the upgrade is complete"
        )


class DeadlineExceeded(FinanciaError):
    """The deadline of a request or background job has passed before it ended."""

    status = 504
    code = "deadline_exceeded"
    retryable = True

    def __init__(self, limit_s: float, message: str = "") -> None:
        super().__init__(
            message
            or f"not answered within {limit_s:g} s (LIMIT_REQUEST_S, or the request's own X-Request-Timeout-S); "
            "send less in one request, a long document as a job (POST /v1/jobs), or raise the limit"
        )
        self.limit_s = limit_s


class InferenceFailed(FinanciaError):
    """The engine raised on this one item; the others of its batch were answered."""

    code = "inference_failed"


class DoesNotFit(InferenceFailed):
    """One item alone needs more device memory than there is."""

    status = 507
    code = "does_not_fit"
    title = "Does not fit the device"


class TrainingError(FinanciaError):
    """Stops a training run with a readable reason."""


class BadData(TrainingError):
    """Examples that cannot be trained on: none, one class only, a malformed line. The message names file and line."""


class BadCheckpoint(TrainingError):
    """A checkpoint that is absent, broken, or of another model or run."""


class TrainingFailed(TrainingError):
    """The run cannot go on: not finite in float32 either, or not one item fits. The message names the examples."""


class SetupError(FinanciaError):
    """Stops the start with a readable reason."""


class BadSettings(SetupError):
    """One or more settings are wrong; all are listed at once."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("settings: " + "; ".join(faults))
        self.faults = tuple(faults)


class DeviceUnavailable(SetupError):
    """A device that DEVICE or USE_GPU requests and this machine does not have."""


class ModelUnavailable(SetupError):
    """A model's files are absent, of a kind that cannot be served, or not the ones expected."""


class HubUnreachable(ModelUnavailable):
    """A model of the hub that is not on this machine, while the hub or the way to it fails."""


def _without_middle(text: str, most_chars: int) -> str:
    """The text, or its beginning and end where it is longer than so many characters."""
    kept = most_chars - len(_LEFT_OUT)
    return text if len(text) <= most_chars else f"{text[: kept - kept // 2]}{_LEFT_OUT}{text[-(kept // 2) :]}"
