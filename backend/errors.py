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
    │   ├── Unauthorized              401
    │   └── NotFound                  404
    │       └── UnknownModel          404  lists the known models
    ├── Overloaded                    429  the queue is full; Retry-After is computed
    ├── CallerGone                    499  the client disconnected
    ├── Unavailable                   503  not ready, draining, or a lane was lost
    │   └── DeviceLost            503  the context of the device is dead: the process must end
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

``status``, ``code`` and ``retryable`` are read in one place, api/problems.py.
"""

from __future__ import annotations

from collections.abc import Sequence


class FinanciaError(Exception):
    """Root of the tree: a failure of the service unless a subclass says otherwise."""

    status = 500
    code = "internal_error"
    title = "Internal error"
    retryable = False
    param: str | None = None  # the request field at fault, where there is one
    retry_after_s: float | None = None  # sent as Retry-After, rounded up to whole seconds


class BadInput(FinanciaError):
    """The request cannot be served. The message says what is wrong, the value, and what to change."""

    status = 400
    code = "bad_input"
    title = "Bad input"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class InvalidField(BadInput):
    """A field is absent, of the wrong type, or has an invalid value."""

    status = 422
    code = "invalid_field"
    title = "Invalid field"


class TokenIdsOutOfRange(BadInput):
    """Token ids that this model's vocabulary does not have, usually another tokenizer's."""

    status = 422
    code = "token_ids_out_of_range"
    title = "Token ids out of range"

    def __init__(self, token_id: int, vocabulary_size: int, *, param: str = "input") -> None:
        super().__init__(
            f"{param}: token id {token_id} is outside this model's vocabulary (0 to {vocabulary_size - 1}). "
            "The ids come from another tokenizer. Send texts instead of ids; LangChain's OpenAIEmbeddings sends "
            "tiktoken ids unless check_embedding_ctx_length=False is set.",
            param=param,
        )
        self.token_id = token_id
        self.vocabulary_size = vocabulary_size


class TooLarge(BadInput):
    """Over a limit. The message names the limit, the value, and the setting that raises it."""

    status = 413
    code = "too_large"
    title = "Too large"

    def __init__(
        self, what: str, value: float, limit: float, setting: str, *, advice: str = "", param: str | None = None
    ) -> None:
        message = f"{what}: {value} is over the limit of {limit} ({setting})"
        super().__init__(f"{message}. {advice}" if advice else message, param=param)
        self.what, self.value, self.limit, self.setting = what, value, limit, setting


class UnreadableFile(BadInput):
    """An uploaded file, or one page of it, that cannot be read: broken, cut off, or it crashed the worker process."""

    status = 422
    code = "unreadable_file"
    title = "Unreadable file"

    def __init__(self, message: str, *, page: int | None = None, param: str = "file") -> None:
        super().__init__(message, param=param)
        self.page = page  # from 1; None where the whole file is meant


class PasswordRequired(BadInput):
    """The file is encrypted and was sent without its password."""

    status = 422
    code = "password_required"
    title = "Password required"

    def __init__(self, message: str = "file: it is encrypted; send its password with it") -> None:
        super().__init__(message, param="password")


class WrongPassword(PasswordRequired):
    """The password that was sent does not open the file."""

    code = "wrong_password"
    title = "Wrong password"

    def __init__(self) -> None:
        super().__init__("password: it does not open this file")


class NotAcceptable(BadInput):
    """``Accept`` allows none of the formats of this answer."""

    status = 406
    code = "not_acceptable"
    title = "Not acceptable"

    def __init__(self, accept: str, known: Sequence[str]) -> None:
        super().__init__(f"Accept: '{accept[:200]}' allows none of {', '.join(known)}; leave it out to get {known[0]}")
        self.accept = accept
        self.known = tuple(known)


class WrongMediaType(BadInput):
    """The body has a media type that this route does not accept."""

    status = 415
    code = "wrong_media_type"
    title = "Wrong media type"


class Unauthorized(BadInput):
    """No key, or a key that is not one of API_KEYS."""

    status = 401
    code = "unauthorized"
    title = "Unauthorized"


class NotFound(BadInput):
    """No such route or resource."""

    status = 404
    code = "not_found"
    title = "Not found"


class UnknownModel(NotFound):
    """The request names a model that is not loaded."""

    code = "model_not_found"
    title = "Unknown model"

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(f"model: '{name}' is not loaded here; loaded are {', '.join(known)}", param="model")
        self.name = name
        self.known = tuple(known)


class Overloaded(FinanciaError):
    """A queue is full. ``retry_after_s`` is queued tokens over the measured rate; other queues pass a ``message``."""

    status = 429
    code = "overloaded"
    title = "Overloaded"
    retryable = True

    def __init__(self, queued_tokens: int, limit_tokens: int, retry_after_s: float, message: str = "") -> None:
        super().__init__(
            message
            or f"{queued_tokens} tokens are waiting, the limit is {limit_tokens} (LIMIT_QUEUE_TOKENS); "
            f"try again in {retry_after_s:.1f} s"
        )
        self.queued_tokens, self.limit_tokens = queued_tokens, limit_tokens
        self.retry_after_s = retry_after_s


class CallerGone(FinanciaError):
    """The client closed the connection; its queued work items were dropped."""

    status = 499
    code = "caller_gone"
    title = "Client closed the request"


class Unavailable(FinanciaError):
    """Not ready yet, draining, or the device was lost. Another replica can answer."""

    status = 503
    code = "unavailable"
    title = "Unavailable"
    retryable = True

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class DeviceLost(Unavailable):
    """The device's context is dead (illegal access, device assert, lost card); only a new process can use it again."""

    code = "device_lost"
    title = "Device lost"


class DeadlineExceeded(FinanciaError):
    """The deadline of a request or background job has passed before it ended."""

    status = 504
    code = "deadline_exceeded"
    title = "Deadline exceeded"
    retryable = True

    def __init__(self, limit_s: float, message: str = "") -> None:
        super().__init__(
            message
            or f"not answered within {limit_s:g} s (LIMIT_REQUEST_S, or the request's own X-Request-Timeout-S); "
            "send fewer inputs in one request or raise the limit"
        )
        self.limit_s = limit_s


class InferenceFailed(FinanciaError):
    """The engine raised on this one item; the others of its batch were answered."""

    code = "inference_failed"
    title = "Inference failed"


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
