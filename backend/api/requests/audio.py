"""The fields that come with a recording, in OpenAI's words; as strings, all of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, field_validator, model_validator

from backend.errors import InvalidField
from backend.files.speech_records import SpeechTask
from backend.speech.languages import LANGUAGES, language_code
from backend.speech.transcription_records import TranscriptionOptions

ResponseFormat = Literal["json", "text", "srt", "verbose_json", "vtt"]
Granularity = Literal["segment", "word"]
_FORMATS = get_args(ResponseFormat)
_SUBTITLES = ("srt", "vtt")
_PROMPT_CHARS = 10_000  # the model reads the last 223 tokens of it
_NOT_SERVED = {
    "known_speaker_names": "speakers are not told apart",
    "known_speaker_references": "speakers are not told apart",
}
_LANGUAGE = {"type": "string", "pattern": "^$|^ *(" + "|".join(LANGUAGES) + ") *$"}
_LISTS = ("timestamp_granularities", "include", "languages", "keywords")
_MOST_KEYWORDS = 1000


def audio_fields(fields: Mapping[str, str], repeated: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """A form's fields; a list may come as ``name[]`` again and again, as ``name``, as JSON and with commas."""
    found: dict[str, Any] = dict(fields)
    for name in _LISTS:
        values = [*repeated.get(f"{name}[]", ()), *repeated.get(name, ())]
        found[f"{name}[]"] = [item for text in values for item in _items(text)] or None
    return found


def _items(text: str) -> Iterable[str]:
    if text.lstrip().startswith("["):
        try:
            listed = json.loads(text)
        except ValueError:
            listed = None
        if isinstance(listed, list) and all(isinstance(item, str) for item in listed):
            return listed
    return [item.strip() for item in text.split(",") if item.strip()]


def _none_if_empty(value: Any) -> Any:
    """An empty field, as browsers' forms send them, counts as absent."""
    return None if value == "" else value


def _one_of(names: Iterable[str]) -> WithJsonSchema:
    return WithJsonSchema({"enum": ["", *names]})


def _list_of(names: Iterable[str]) -> WithJsonSchema:
    return WithJsonSchema({"type": "array", "items": {"enum": list(names)}})


class TranslationForm(BaseModel):
    """`POST /v1/audio/translations`: what is said in a file, in English."""

    model_config = ConfigDict(extra="ignore")

    model: Annotated[str | None, BeforeValidator(_none_if_empty), WithJsonSchema({"type": "string"})] = Field(
        None, description="whisper-1, gpt-4o-transcribe, or a name that GET /v1/models lists; unset: the one loaded."
    )
    prompt: str = Field("", max_length=_PROMPT_CHARS, description="Names and words to expect, or what was said before.")
    response_format: Annotated[ResponseFormat | None, BeforeValidator(_none_if_empty), _one_of(_FORMATS)] = Field(
        None, description="json (unset), text, srt, verbose_json or vtt."
    )
    temperature: Annotated[
        float | None,
        BeforeValidator(_none_if_empty),
        WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"const": ""}]}),
    ] = Field(None, ge=0, le=1, description="0 (unset): the most likely text, sampled only where that is doubtful.")
    language: Annotated[
        str | None,
        BeforeValidator(_none_if_empty),
        WithJsonSchema(_LANGUAGE),
    ] = Field(None, description="Of the recording: es, spa, es-MX or Spanish; unset: it is found, piece by piece.")
    timestamp_granularities: Annotated[list[Granularity] | None, _list_of(get_args(Granularity))] = Field(
        None,
        alias="timestamp_granularities[]",
        description="What verbose_json has times of: segment (unset), word, or both. Subtitles without word are cut "
        "at segments.",
    )
    stream: Annotated[bool | None, BeforeValidator(_none_if_empty), WithJsonSchema({"enum": ["", "true", "false"]})] = (
        Field(None, description="true: server-sent events, as soon as each segment is final.")
    )

    @field_validator("language")
    @classmethod
    def _is_known(cls, language: str | None) -> str | None:
        if language is None or not language.strip():
            return None
        code = language_code(language)
        if code is None:
            raise InvalidField(
                f"language: '{language.strip()[:40]}' is not one that the model knows; send its ISO 639-1 code, one of "
                f"{', '.join(sorted(LANGUAGES))}, or leave it out to have it found",
                param="language",
            )
        return code

    @model_validator(mode="before")
    @classmethod
    def _refuses_what_is_not_served(cls, fields: Any) -> Any:
        if fields.get("response_format") == "diarized_json":
            raise InvalidField(
                f"response_format: diarized_json is not served, speakers are not told apart; there are "
                f"{', '.join(_FORMATS)}",
                param="response_format",
            )
        for name, why in _NOT_SERVED.items():
            if fields.get(name) or fields.get(f"{name}[]"):
                raise InvalidField(f"{name}: is not served: {why}; leave it out", param=name)
        return fields

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> TranslationForm:
        if self.stream and self.response_format in _SUBTITLES:
            raise InvalidField(
                f"stream: {self.response_format} comes whole; send response_format json, text or verbose_json with "
                "stream, or stream=false",
                param="stream",
            )
        return self

    @property
    def with_logprobs(self) -> bool:
        return False

    @property
    def format(self) -> ResponseFormat:
        return self.response_format or "json"

    @property
    def granularities(self) -> frozenset[Granularity]:
        """What the answer has times of."""
        return frozenset(self.timestamp_granularities or ("segment",))

    def options(self) -> TranscriptionOptions:
        """The options of the transcription service."""
        return self._options("translate", self.prompt)

    def _options(self, task: SpeechTask, prompt: str, *, with_words: bool = False) -> TranscriptionOptions:
        cuts_at_words = self.format in _SUBTITLES and self.timestamp_granularities is None
        return TranscriptionOptions(
            task=task,
            language=self.language,
            prompt=prompt,
            temperature=self.temperature or 0.0,
            with_words=with_words or cuts_at_words or "word" in self.granularities,
        )


class TranscriptionForm(TranslationForm):
    """`POST /v1/audio/transcriptions`: what is said in a file."""

    include: Annotated[list[Literal["logprobs"]] | None, _list_of(("logprobs",))] = Field(
        None,
        alias="include[]",
        description="logprobs: of each word, with json and in the events of a stream.",
    )
    languages: Annotated[list[str] | None, WithJsonSchema({"type": "array", "items": _LANGUAGE})] = Field(
        None,
        alias="languages[]",
        description="Languages that it may be; one alone counts as `language`, of several each piece's own is found.",
    )
    keywords: Annotated[list[str] | None, WithJsonSchema({"type": "array", "items": {"type": "string"}})] = Field(
        None,
        max_length=_MOST_KEYWORDS,
        alias="keywords[]",
        description="Words to expect; they go before the prompt.",
    )
    chunking_strategy: Annotated[Literal["auto"] | None, BeforeValidator(_none_if_empty), _one_of(("auto",))] = Field(
        None, description="auto, which it always is: cut where nobody speaks."
    )

    @model_validator(mode="before")
    @classmethod
    def _refuses_own_chunking(cls, fields: Any) -> Any:
        chunking = fields.get("chunking_strategy")
        if chunking not in (None, "", "auto") or any(name.startswith("chunking_strategy[") for name in fields):
            raise InvalidField(
                "chunking_strategy: only auto is served: recordings are cut where nobody speaks; send auto or leave it "
                "out",
                param="chunking_strategy",
            )
        return fields

    @property
    def with_logprobs(self) -> bool:
        return bool(self.include)

    def options(self) -> TranscriptionOptions:
        """The options of the transcription service."""
        prompt = " ".join(part for part in (", ".join(self.keywords or ()), self.prompt) if part)
        return self._options("transcribe", prompt, with_words=self.with_logprobs)

    @model_validator(mode="after")
    def _one_language_alone(self) -> TranscriptionForm:
        codes = [self._is_known(language) for language in self.languages or ()]
        if self.language is None and len(codes) == 1:
            self.language = codes[0]
        return self


REQUESTS: tuple[type[BaseModel], ...] = (TranscriptionForm, TranslationForm)
