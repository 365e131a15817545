"""What schemathesis is told about the service beside its OpenAPI document. Runs in schemathesis' own process."""

import base64
import io
import json
import math
import wave
from contextlib import suppress
from typing import Any

import schemathesis
from PIL import Image, ImageDraw

from backend.api.api_keys import TIKA_CONTENTS
from tests.files.pdfs import pdf, text

TIMEOUT = "X-Request-Timeout-S"
_DEPLOYED = "/openai/deployments/{name}"
AUDIO = (
    *("/v1/audio/transcriptions", "/v1/audio/translations", "/v2/audio/transcriptions"),
    *(f"{_DEPLOYED}/audio/transcriptions", f"{_DEPLOYED}/audio/translations", "/hf/automatic-speech-recognition"),
)
_DOCLING = tuple(
    f"/v1/{act}/{source}{later}"
    for act in ("convert", "chunk/{chunker}")
    for source in ("file", "source")
    for later in ("", "/async")
)
_TIKA = (
    *(f"{path}{content}" for path in ("/tika", "/rmeta", "/tika/form", "/rmeta/form") for content in TIKA_CONTENTS),
    *("/meta", "/meta/form", "/detect/stream", "/process"),
)
UPLOADS = (
    *("/v1/documents", "/v1/ocr", "/v1/jobs", "/v1/files", "/v1/classify", *AUDIO, *_DOCLING, *_TIKA),
    *("/documentintelligence/documentModels/{model}:analyze", "/formrecognizer/documentModels/{model}:analyze"),
    *("/providers/mistral/azure/ocr", "/v1/answer", "/general/v0/general"),
)
_ENDLESS = "/v1/documents/{id}/events"  # until the document is deleted
_EVERY = 4  # upload keeps the bytes that were drawn for it; the others get a file that can be read

# Refusals of requests that their schema allows, because they depend on what JSON Schema cannot see: (code, parameter
# at fault, words of the message). Everything else that is refused is a fault of the schema or of the validation.
STATE: dict[str, tuple[tuple[str, str | None, str], ...]] = {
    "what is loaded": (
        ("model_not_found", None, ""),  # whatever name was drawn
        ("invalid_field", "prompt_name", "is not one of this model's prompts"),
        ("invalid_field", "dimensions", ""),  # the model's width
        ("invalid_field", "max_tokens", "texts are read to the model's"),
        ("token_ids_out_of_range", None, ""),  # the model's vocabulary
        ("invalid_field", "input", "are another tokenizer's"),  # the model's special tokens
        ("too_large", None, "tokens"),  # the model's length, where truncating was forbidden
        ("invalid_field", "types", "is not one of the entity types here"),
        ("invalid_field", "inputs", "classifies single texts"),  # a pair, without a model for pairs
        ("invalid_field", "hypothesis_template", "is for NLI models"),
        ("invalid_field", "multi_label", "was made to give a text"),  # the classifier's own kind
        ("invalid_field", "replicas", "shares nothing with others"),  # POST /admin/models, without a shared store
        ("invalid_field", "source", ""),  # POST /admin/models: a folder or a hub id that is not there
        ("invalid_field", "engine", "is not here"),
        ("invalid_field", "file", "IMAGE_MODEL is not set"),
        ("invalid_field", "method", "is configured for"),  # no SUMMARY_MODEL, no SUMMARY_URL
        ("invalid_field", "language", ""),
        ("invalid_field", None, "is no language that an engine reads"),
    ),
    "who asks": (
        ("forbidden", None, "ADMIN_KEYS"),  # POST /admin/models, where there are no admins
    ),
    "what was kept before": (
        ("not_found", None, ""),  # jobs and classifiers
        ("conflict", None, "is not to be cancelled any more"),  # a batch that has ended
        ("invalid_field", "name", ""),  # a bundled classifier's, or as many as there may be
        ("invalid_field", "pages", "there is no page"),
        ("invalid_field", "after", ""),  # no id, or of nothing in this list
        ("invalid_field", "before", ""),
        ("wrong_encoder", None, ""),
        ("invalid_field", "part_ids", ""),  # of another upload, or not all of it
        ("invalid_field", "md5", "the parts together have"),
        ("invalid_field", "Idempotency-Key", "came before with another file"),
        ("invalid_field", "If-Match", "must be the ETag"),  # schemathesis fills headers with 0, whatever their pattern
        ("overloaded", None, ""),
    ),
    "the file": (
        ("invalid_field", "format", "a document is stored with format=json"),  # with store=true
        ("wrong_media_type", None, "file: it "),  # looks like, is a recording, is of the type
        ("unreadable_file", None, ""),
        ("password_required", None, ""),
        ("wrong_password", None, ""),
        ("too_large", "file", ""),
        ("invalid_field", "xml", ""),  # the electronic invoice beside it
        ("invalid_field", "schema", ""),  # a schema within the schema: what can be read of JSON Schema
        ("too_large", "schema", ""),
        ("invalid_field", "entity_labels", ""),  # JSON within the form
        ("too_large", "entity_labels", ""),
        ("invalid_field", "document_annotation_format", ""),  # the same
        ("too_large", "document_annotation_format", ""),
        ("invalid_field", "queryFields", ""),  # the same
        ("too_large", "queryFields", ""),
        ("invalid_field", "inputs", "the summary is empty"),
        ("invalid_field", "pages", ""),  # behind its last page, or backwards
        ("invalid_field", "format", "a recording"),  # of paper, of recordings
        ("invalid_field", None, "is no base64"),
        ("bad_input", None, "it must hold a file as base64"),
        ("invalid_field", None, "fetches no addresses"),
        ("invalid_field", "sources", "for nothing is fetched"),
        ("invalid_field", "base64Source", "is missing"),
        ("invalid_field", "files", "the form has no field"),  # a list of files is drawn as it cannot be sent
        ("invalid_field", "data", "the form has no field"),
        ("bad_input", None, "it is empty (0 bytes)"),
    ),
    "relations between values": (
        ("invalid_field", "stream", "comes whole"),  # subtitles
        ("invalid_field", "inputs", "send inputs to embed, or query"),
        ("invalid_field", None, "page_range"),
        ("invalid_field", "pages", "runs backwards"),
        ("invalid_field", "split", ""),  # backwards, or a page in two documents
        ("invalid_field", "to_formats", "is not served"),
        ("invalid_field", "target", ""),  # JSON's, of any kind
        ("invalid_field", "purpose", ""),  # a file alone as the body, without it in the query
        ("invalid_field", "questions", "field required"),  # the same
        ("invalid_field", "expires_after", "send it together"),
        ("invalid_field", "expires_after", "send store=true"),
        ("invalid_field", None, "chunk_overlap_tokens"),  # over half of a chunk
        ("invalid_field", None, "is there twice"),  # a file in a batch
        ("invalid_field", "min_tokens", "is more than"),
        ("invalid_field", "summary_min_tokens", "is more than"),
        ("invalid_field", "input", "blanks alone"),
        ("invalid_field", "input", "needs one of input, pages and document"),
        ("invalid_field", "document", "needs document_url"),
        ("invalid_field", "input", "image is no base64"),
        ("invalid_field", None, "is for texts; an image model"),
        ("invalid_field", "file", "only blanks or tags"),
        ("invalid_field", None, "has no letter and no digit"),  # a query
        ("bad_input", None, "leave empty texts out"),  # one of several queries
        ("invalid_field", None, "did you mean"),  # a member that is almost a known one
        ("invalid_field", None, "does not hold exactly"),  # a whole number that is no float64
        ("invalid_field", None, "control characters"),
        ("invalid_field", "filters", "compares with one"),  # several values
        ("invalid_field", "filters", "compares by order"),  # a boolean
        ("invalid_field", "filters", "a list of values for"),  # one value
        ("too_large", "filters", ""),  # levels, comparisons
        ("invalid_field", "ranking_options", "more than 0"),  # one of two weights
        ("invalid_field", "classifier_id", "says the same as model"),
        ("invalid_field", "task", "each chooses a prompt"),
        ("invalid_field", "input_type", "each chooses a prompt"),
        ("invalid_field", "task", "token ids are read as they are"),
        ("invalid_field", "input_type", "token ids are read as they are"),
        ("invalid_field", "prompt_name", "token ids are read as they are"),
        ("too_large", "inputs", "LIMIT_TEXT_CHARS"),  # the parts of one together
        ("invalid_field", "documents", "must have the fields of rank_fields"),
        ("invalid_field", "documents", "must be a text"),  # a field that rank_fields names
        ("bad_input", "documents", "must not be empty"),
        ("invalid_field", "labels", "is there twice"),  # but for blanks around it, or in a form's list
        ("bad_input", "labels", "must not be empty"),  # in a form's list
        ("invalid_field", "labels", "a label is a name"),
        ("invalid_field", "labels", "one label alone"),  # in a form's list
        ("invalid_field", "examples", ""),  # two labels at least, and one text with one label
        ("too_large", "examples", "LIMIT_INPUTS"),  # texts of all labels together
        ("too_large", "labels", "LIMIT_LABELS"),  # of all examples
    ),
}


def _depends_on_state(problem: dict[str, Any]) -> bool:
    error = problem["error"]
    named = problem["param"] if isinstance(error, str) else error["param"]
    return any(
        problem["code"] == code and param in (None, named) and words in problem["detail"]
        for reasons in STATE.values()
        for code, param, words in reasons
    )


@schemathesis.check
def accepted_or_state(ctx: schemathesis.CheckContext, response: Any, case: schemathesis.Case) -> None:
    """A request that its schema allows is refused for what JSON Schema cannot see only."""
    if case.meta is None or not case.meta.generation.mode.is_positive or not 400 <= response.status_code < 500:
        return
    if response.status_code == 405 or (ctx and case.method.upper() not in case.operation.schema[case.path]):
        return  # a probe of schemathesis' own
    if response.status_code == 401:
        return  # ignored_auth's business
    problem = response.json()
    if not _depends_on_state(problem):
        raise AssertionError(f"a request that its schema allows was refused: {problem['detail']}")


@schemathesis.check
def problems_are_ours(ctx: schemathesis.CheckContext, response: Any, case: schemathesis.Case) -> None:
    """Every error is a problem of our shape, on the routes in other services' shapes, too."""
    del ctx, case
    if response.status_code < 400 or response.headers["content-type"] == ["application/json"]:  # /health
        return
    problem = json.loads(response.content)
    assert problem["status"] == response.status_code
    assert problem["type"] == f"urn:financia:problem:{problem['code']}"
    assert problem["request_id"] == response.headers["x-request-id"][0]
    if isinstance(problem["error"], str):  # text-embeddings-inference's
        assert {"error_type", "param"} <= set(problem)
    else:
        assert {"message", "type", "code", "param"} <= set(problem["error"])
    assert response.headers["x-should-retry"] == ["true" if problem["retryable"] else "false"]
    assert "Traceback" not in problem["detail"]


_forgotten: set[str] = set()


@schemathesis.check
def forgotten_jobs_are_gone(ctx: schemathesis.CheckContext, response: Any, case: schemathesis.Case) -> None:
    """After DELETE has answered 204 nothing of the job is answered. (200 cancels it; what it had read stays.)"""
    del ctx
    job_id = str((case.path_parameters or {}).get("id", ""))
    if not case.path.startswith("/v1/jobs/{id}"):
        return
    if case.method.upper() == "DELETE" and response.status_code == 204:
        _forgotten.add(job_id)
    elif job_id in _forgotten:
        assert response.status_code == 404 or response.status_code in (401, 405, 422), response.status_code


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: schemathesis.Case, kwargs: dict[str, Any]) -> None:
    """Give requests the time they need, and most uploads a file that can be read: drawn bytes never are."""
    del context, kwargs
    with suppress(KeyError, TypeError, ValueError):
        if 0 < float(case.headers[TIMEOUT]) < math.inf:
            case.headers[TIMEOUT] = "60"
    if case.path == _ENDLESS:
        case.headers.setdefault(TIMEOUT, "1")
        if case.headers[TIMEOUT] == "60":
            case.headers[TIMEOUT] = "1"
    if case.path not in UPLOADS or case.meta is None or not case.meta.generation.mode.is_positive:
        return
    files = (SOUND,) if case.path in AUDIO else FILES
    if case.path in AUDIO and isinstance(case.body, dict) and len(str(case.body.get("model", ""))) % _EVERY:
        case.body["model"] = "whisper-1"  # no drawn name is a model's
    if isinstance(case.body, bytes) and len(case.body) % _EVERY:
        case.body = files[len(case.body) % len(files)]
    elif isinstance(case.body, dict):
        _put_files(case.body, files)


def _put_files(body: dict[str, Any], files: tuple[bytes, ...]) -> None:
    """Files in place of drawn bytes in a form, and of drawn base64 in JSON."""
    for name in ("file", "upload"):
        if isinstance(drawn := body.get(name), bytes) and len(drawn) % _EVERY:
            body[name] = files[len(drawn) % len(files)]
    if isinstance(drawn := body.get("files"), list):
        body["files"] = [files[index % len(files)] for index, _ in enumerate(drawn)]
    for name in ("base64Source", "inputs"):
        if isinstance(drawn := body.get(name), str) and len(drawn) % _EVERY:
            body[name] = base64.b64encode(files[len(drawn) % len(files)]).decode()


def _picture() -> bytes:
    image = Image.new("L", (400, 80), 255)
    ImageDraw.Draw(image).text((10, 20), "Invoice 2024/017", font_size=30, fill=0)
    target = io.BytesIO()
    image.save(target, "PNG", dpi=(150, 150))
    return target.getvalue()


def _sound() -> bytes:
    """A second of a tone, in which nobody speaks."""
    target = io.BytesIO()
    with wave.open(target, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(16_000)
        sound.writeframes(
            b"".join(int(9000 * math.sin(i / 6)).to_bytes(2, "little", signed=True) for i in range(16_000))
        )
    return target.getvalue()


SOUND = _sound()
FILES = (
    SOUND, pdf(text(b"Invoice 2024-017 of Acme Ltd, London")), pdf(text(b"first page"), text(b"second page")),
    _picture(), pdf(text(b"secret"), password="open"), pdf(text(b"Total 1.284,50 EUR"))[:-200],
)  # fmt: skip
