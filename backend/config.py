"""Settings: the only reader of the environment. A bad value stops the start and lists every fault at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from backend.callers.callers import key_faults
from backend.callers.key_file import is_key_file
from backend.device.choice.saved_choice import STATE_DIR
from backend.errors import BadSettings

ENV_FILE = Path(__file__).resolve().parent / ".env"
Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Words = Annotated[tuple[str, ...], NoDecode]  # comma-separated in the environment
_QUOTAS = ("quota_requests_per_minute", "quota_tokens_per_minute", "quota_pages_per_minute", "quota_jobs")
_SECRETS = frozenset(
    {"api_keys", "admin_keys", "redis_url", "search_url", "summary_url_key", "otel_exporter_otlp_headers"}
)  # no message repeats their values

# OpenTelemetry's exporter reads them from the environment, where those of backend/.env are not.
_FOR_THE_EXPORTER = ("otel_exporter_otlp_endpoint", "otel_exporter_otlp_traces_endpoint", "otel_exporter_otlp_headers")
_NO_TRACES = {"otel_traces_exporter": "none", "otel_sdk_disabled": "true"}  # whatever else is set
# What PROFILE=small sets where nothing else is said: 1.2 GB at most under texts, scans and invoices at once.
_SMALL = {
    "lanes": 1,
    "measure_when_idle": False,  # a second runtime beside the one that serves
    "memory_limit_bytes": 1_400_000_000,
    "ocr_engine": "tesseract",
    "reader_processes": 1,
    "job_workers": 1,
    "index_workers": 1,
    "search_memory_bytes": 64 * 2**20,
    "speech_model": "none",
    "answer_model": "none",
    "label_model": "none",
    "cache_memory_bytes": 16 * 2**20,
    "limit_page_pixels": 20_000_000,
}


class Settings(BaseSettings):
    """Every setting, with its unit, its default and how to choose. ``.env.example`` is generated from here."""

    model_config = SettingsConfigDict(
        env_file=ENV_FILE, frozen=True, extra="ignore", env_ignore_empty=True, populate_by_name=True,
        hide_input_in_errors=True,
    )  # fmt: skip

    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 in a container.")
    port: int = Field(8000, ge=0, le=65535, description="TCP port; 0 takes a free one and logs it.")
    server_processes: int = Field(
        1,
        ge=1,
        le=64,
        description="Processes that answer clients, each with an event loop, a tokenizer and caches; over 1 one more "
        "loads the models and computes for all of them. 2 to 4 for a card that outruns one Python process; Linux only.",
    )
    state_dir: Path = Field(STATE_DIR, description="Folder for what was measured on this machine; keep it on a volume.")
    taught_in: Literal["shared", "state"] = Field(
        "shared",
        description="Where taught classifiers and extractors are kept: shared is where all replicas know them "
        "(SEARCH_URL, else REDIS_URL, else STATE_DIR), state is STATE_DIR, of this process alone.",
    )

    use_gpu: bool | None = Field(
        None, description="true demands a GPU, false never touches one, unset takes one when there."
    )
    device: str = Field(
        "auto",
        description="auto, cpu, mps, cuda (the card with the most free memory), cuda:1; cuda:all or cuda:0,cuda:1 use "
        "several cards. An explicit device that is absent stops the start.",
    )
    gpu_memory_fraction: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Part of the GPU's memory this process may take, 0 to 1; unset: nine tenths of what is free now.",
    )
    cuda_visible_devices: str | None = Field(
        None, description="The NVIDIA cards this process may see, by index or UUID: 0,1 or GPU-5c2…; unset: all."
    )
    cuda_device_order: Literal["PCI_BUS_ID", "FASTEST_FIRST"] = Field(
        "PCI_BUS_ID", description="How CUDA numbers the cards; PCI_BUS_ID are the numbers of nvidia-smi."
    )
    pytorch_alloc_conf: str | None = Field(
        None,
        validation_alias=AliasChoices("pytorch_alloc_conf", "pytorch_cuda_alloc_conf"),
        description="Options of torch's allocator; yours win over ours. PYTORCH_CUDA_ALLOC_CONF is read too.",
    )
    precision: Literal["auto", "exact", "fast", "fp32", "bf16", "fp16", "int8"] = Field(
        "auto",
        description="auto measures once, while nothing waits, and takes the fastest that stays close to fp32; "
        "exact is fp32; fast lowers the bar (Spearman 0.98 for 0.995); the others are that dtype or an error.",
    )
    runtime: Literal["auto", "torch", "torch-packed", "torch-compiled", "onnx", "openvino"] = Field(
        "auto",
        description="What executes the models; auto measures. torch-packed and torch-compiled are torch without "
        "padding, for CUDA cards; the latter compiles its layers at each start and is never measured unasked.",
    )
    measure_when_idle: bool = Field(
        True,
        description="On a CPU: false serves by what is known of its kind, without the process that measures beside the "
        "service (0.6 GB more for minutes, once for each choice).",
    )
    profile: Literal["standard", "small"] = Field(
        "standard",
        description="small: for machines of 2 GiB, without speech and RapidOCR, with one lane and one reader; what is "
        "set beside it wins.",
    )
    lanes: int | None = Field(
        None, ge=1, description="Threads that run batches; unset: one per usable core on a CPU, one per GPU."
    )
    batch_tokens: int | None = Field(None, ge=16, description="Padded tokens of a batch; unset: measured once.")

    model_profile: Literal["bundled", "multilingual"] = Field(
        "bundled",
        description="bundled runs without a hub, Spanish and English first; multilingual fetches larger models from "
        "the hub once, also for names and for labels in the request.",
    )
    embedding_model: str | None = Field(
        None,
        description="bundled (Spanish and English), bundled-full (its 12 layers), bundled-fast (six of them), "
        "bundled-static (no layers: a table of word pieces), minilm (fast, English only), a local folder, or a hub id "
        "with @revision; while the hub cannot be reached the bundled one serves, unless a request "
        "names this one. Unset: the profile's.",
    )
    ner_model: str | None = Field(
        None,
        description="The token classifier of POST /v1/entities: bundled, a local folder such as python -m "
        "backend.training ner writes (a LoRA adapter too), a hub id with @revision, or none. Unset: the profile's.",
    )
    classifier_model: str | None = Field(
        None,
        description="A sequence classifier for POST /v1/classify: a local folder or a hub id with @revision; an NLI "
        "model serves labels given in the request; or none. Unset: the profile's; without one the embedding model "
        "does both.",
    )
    reranker_model: str | None = Field(
        None,
        description="A cross-encoder for POST /v1/rerank: a local folder or a hub id with @revision. Unset: the "
        "embedding model compares.",
    )
    answer_model: str | None = Field(
        None,
        description="The model of POST /v1/answer, which also reads sentences for a `schema`: bundled, a local folder "
        "of the same kind, or none. Unset: the profile's.",
    )
    label_model: str | None = Field(
        None,
        description="The model of types of entities in your own words (`labels`): bundled, a local folder of the same "
        "kind, or none. Unset: the profile's.",
    )
    image_model: str = Field(
        "",
        description="An image classifier of pages, for images in POST /v1/classify and beside the text's classes in "
        "POST /v1/documents: a local folder such as python -m backend.training document-images writes, or a hub id "
        "with @revision (ViT, DiT, BEiT, Swin, ResNet, ConvNeXt; safetensors). Unset, or none: pages are not looked "
        "at.",
    )
    model_keep_alive_s: Seconds | None = Field(
        None,
        description="Seconds without a request after which a model leaves memory, to come back with the next; "
        "unset: never.",
    )
    memory_limit_bytes: Count | None = Field(
        None,
        description="Bytes of the service process that may be resident; parsers have bounds of their own. "
        "From 90 % of it the process gives back, in this order, until it is below: freed pages; OCR networks and "
        "the speech model at rest; half of the cached vectors; searched stores; models unused for a minute. Above it "
        "requests with a body get 429. GET /v1/system shows its parts under memory. Unset: four fifths of the "
        "container's memory; where it has no limit, none.",
    )
    model_aliases: Words = Field(
        (), description="Further names a request may give the embedding model, comma-separated."
    )

    ocr_engine: Literal["auto", "tesseract", "pytesseract", "rapidocr"] = Field(
        "auto",
        description="What recognises pages without text of their own: auto chooses page by page among those that are "
        "there; the others are that engine or an error.",
    )
    ocr_languages: Words = Field(
        ("es", "en"),
        description="Languages of the print where a request names none, most likely first: a page is read with the "
        "first two, and once more where its text is in another. Data for es (and eu), en, ca, gl, fr, pt, it and de "
        "come along.",
    )
    tessdata_prefix: Path | None = Field(
        None, description="Folder of Tesseract's language files, in place of the service's own and of this system's."
    )
    reader_processes: Count | None = Field(
        None, description="Processes that parse files, apart from the service; unset: one per usable core."
    )

    job_workers: Count = Field(
        2, description="Background jobs at once in this process; each reads several pages at once."
    )
    job_ttl_s: Seconds = Field(86_400.0, description="Seconds a background job is kept after its end, with its file.")

    search_url: str | None = Field(
        None,
        repr=False,
        description="postgresql://user:password@host/database, with the extension pgvector: where files and vector "
        "stores are kept, for several replicas. Unset: in a folder of STATE_DIR, by one process.",
    )
    search_memory_bytes: int = Field(
        2 * 2**30,
        ge=0,
        description="Bytes of vectors kept in memory to search them, without SEARCH_URL; of the stores used last. On a "
        "GPU as many again there for large stores, at most an eighth of the service's memory on it.",
    )
    index_workers: Count = Field(
        2,
        description="Large files of vector stores that this process reads and embeds at once; up to sixteen of at most "
        "64 KiB each beside every one.",
    )
    summary_model: str | None = Field(
        None,
        description="A sequence-to-sequence model that writes summaries (T5, mT5, BART, Pegasus, Marian): a local "
        "folder or a hub id with @revision. Unset: summaries are made of the text's own sentences.",
    )
    summary_url: str | None = Field(
        None, description="An OpenAI-compatible API that writes summaries, such as http://llm:8001/v1."
    )
    summary_url_model: str | None = Field(None, description="The model to name to SUMMARY_URL.")
    summary_url_key: str | None = Field(None, repr=False, description="The bearer key of SUMMARY_URL.")

    speech_model: str = Field(
        "bundled",
        description="What transcribes speech: bundled (Whisper base, where the extra [speech] is installed), a folder "
        "or hub id with @revision of a Whisper model in CTranslate2's format (Systran/faster-whisper-small), or none.",
    )
    speech_model_aliases: Words = Field(
        (),
        description="Further names a request may give the speech model, comma-separated, such as whisper-large-v3; "
        "OpenAI's own it has.",
    )
    speaker_model: str = Field(
        "",
        description="An ONNX file that makes vectors of voices, such as WeSpeaker's and 3D-Speaker's, from audio or 80 "
        "log-mel features: diarized_json then tells speakers apart. Unset: it is refused.",
    )
    speech_beams: int = Field(
        5,
        ge=1,
        le=10,
        description="Beams of transcription: 1 takes 0.7 of the time, with 2 % more words wrong in read Spanish.",
    )
    speech_precision: Literal["auto", "int8", "float16", "float32"] = Field(
        "auto", description="Arithmetic of the speech model: auto is int8 on a CPU and float16 on CUDA."
    )

    redis_url: str | None = Field(
        None, repr=False, description="redis://host:6379/0. Unset: the cache lives in this process only."
    )
    cache_enabled: bool = Field(True, description="false computes every vector anew.")
    cache_memory_bytes: int = Field(
        128 * 2**20, ge=0, description="Bytes of the in-process cache; 1.6 KB a 384-wide vector."
    )
    cache_ttl_s: Seconds = Field(86_400.0, description="Seconds a vector stays in Redis.")
    cache_timeout_s: Seconds = Field(
        0.05, description="Seconds a request may wait for Redis before it goes on without."
    )
    cache_prefix: str = Field("financia", description="Prefix of every Redis key.")

    limit_inputs: Count = Field(2048, description="Inputs in one request.")
    limit_labels: Count = Field(1000, description="Labels in one request, and of one classifier that is learnt.")
    limit_text_chars: Count = Field(1_000_000, description="Characters of one text.")
    limit_request_chars: Count = Field(16_000_000, description="Characters of all texts of one request.")
    limit_queue_chars: Count = Field(
        32_000_000,
        description="Characters of all requests being worked on, texts under 4,000 aside, of one key half "
        "of it while others wait; above it 429 with Retry-After, before anything is tokenised.",
    )
    limit_tokenize_tokens: Count = Field(1_000_000, description="Tokens that one POST /tokenize is answered with.")
    limit_body_bytes: Count = Field(16 * 2**20, description="Bytes of one request body.")
    limit_file_bytes: Count = Field(100 * 2**20, description="Bytes of one uploaded file.")
    limit_pages: Count = Field(200, description="Pages read of one file; a request may name which.")
    limit_document_chars: Count = Field(
        5_000_000,
        description="Characters of the pages of one file together: 1,600 of prose. The pages after them fail with 413; "
        "each million takes 110 MB while the file is worked on.",
    )
    limit_document_lines: Count = Field(
        200_000,
        description="Paragraphs, lines and cells of an office file, a mail, a web page or a text: 10,000 rows of 20 "
        "columns; 413 as soon as there is one more, or tables of ten times as many places, empty ones too.",
    )
    limit_page_pixels: Count = Field(
        100_000_000, description="Pixels of one image as its header tells them; A3 at 600 dpi is 70 million."
    )
    limit_page_s: Seconds = Field(
        20.0,
        description="Seconds of work (of a core) that OCR may spend on a page (RapidOCR three times as many): then "
        "what it has read is the answer, marked `incomplete`. Also to open a file and to draw a page; then 413.",
    )
    limit_render_pixels: Count = Field(
        40_000_000, description="Pixels a page is drawn with at most; a larger one gets fewer dpi."
    )
    limit_audio_s: Seconds = Field(14_400.0, description="Seconds of one recording, counted as they are decoded.")
    limit_audio_channels: Count = Field(8, description="Channels of one recording; they are mixed into one.")
    limit_reader_bytes: Count = Field(2**30, description="Bytes of memory a process may take to parse a file.")
    limit_queue_tokens: Count = Field(
        1_000_000,
        description="Tokens that may wait, of one key half of them while others wait; above it 429 with Retry-After.",
    )
    limit_request_s: Seconds = Field(
        60.0,
        description="Seconds from a request's headers to its answer, the upload included; then 504, and what it has "
        "queued is dropped.",
    )
    limit_transcription_s: Seconds = Field(
        600.0,
        description="The same for /v1/audio/transcriptions and translations, whose clients send whole recordings; two "
        "cores transcribe about six minutes in one.",
    )
    limit_job_s: Seconds = Field(3600.0, description="Seconds one background job may run.")
    limit_jobs: Count = Field(1000, description="Background jobs that may wait or run, with Redis over all replicas.")
    limit_job_bytes: Count = Field(
        256 * 2**20,
        description="Bytes of background jobs: without Redis of all files, pages and answers, with it of one answer.",
    )
    limit_stored_files: Count = Field(10_000, description="Files that one key may keep.")
    limit_stored_bytes: Count = Field(
        20 * 2**30, description="Bytes that one key may keep: of files, and of what vector stores hold of them."
    )
    limit_stored_chunks: Count = Field(1_000_000, description="Chunks in all vector stores of one key.")
    limit_vector_stores: Count = Field(1000, description="Vector stores of one key.")
    limit_waiting_files: Count = Field(
        10_000, description="Files of one key that may wait to be indexed at the same time, over all its vector stores."
    )
    limit_connections: Count = Field(
        2000,
        description="Connections open at once, idle ones too; above it 503, except for probes. Half of them may answer "
        "one key at the same time (without keys one address); above it 429.",
    )
    limit_in_flight_bytes: Count = Field(
        512 * 2**20,
        description="Bytes of request bodies being worked on and of answers that clients have not read, of each "
        "process; one key (without keys one address) may have half. Above it 429 with Retry-After, and the "
        "slowest reader is disconnected. At least twice LIMIT_FILE_BYTES.",
    )
    keep_alive_s: Seconds = Field(
        75.0,
        description="Seconds an idle connection stays open: longer than the balancer in front does (AWS and nginx 60, "
        "Google 600), or its next POST ends in 502.",
    )
    limit_drain_s: Seconds = Field(30.0, description="Seconds to finish accepted requests after SIGTERM.")

    api_keys: Words = Field(
        (),
        repr=False,
        description="Bearer keys, comma-separated, each as name=key or as the key alone. The name stands for the key "
        "in metrics; two keys of one name are one caller. Or a .toml file of tenants with quotas, roles and expiry, "
        "read again when it changes (docs/keys.md). Empty, with ADMIN_KEYS empty too: no key needed, as for probes.",
    )
    admin_keys: Words = Field(
        (),
        repr=False,
        description="Bearer keys, written as API_KEYS, that may also swap models and change the classifiers of others; "
        "they have no quotas. Empty: nobody may.",
    )
    quota_requests_per_minute: int | None = Field(
        None, ge=1, description="Requests a minute of each caller of API_KEYS; unset: no quota."
    )
    quota_tokens_per_minute: int | None = Field(
        None,
        ge=1,
        description="Tokens a minute of each caller of API_KEYS, as usage in answers counts them; unset: no quota.",
    )
    quota_pages_per_minute: int | None = Field(
        None, ge=1, description="Pages of files a minute of each caller of API_KEYS; unset: no quota."
    )
    quota_jobs: int | None = Field(
        None,
        ge=1,
        description="Background jobs of each caller of API_KEYS that may wait or run at once; unset: LIMIT_JOBS alone.",
    )
    cache_scope: Literal["service", "key"] = Field(
        "service",
        description="Who shares cached results and equal inputs under way: all callers, or (key) each caller its own "
        "only, so that no answer's speed tells what others have sent; costs hits.",
    )
    cors_origins: Words = Field((), description="Origins allowed by CORS, comma-separated. Empty: off.")
    allowed_hosts: Words = Field(
        (),
        description="Further names that callers reach this service by while there are no keys, comma-separated; * is "
        "any. IP addresses and names without a public suffix are always allowed.",
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="Least level that is logged.")
    log_format: Literal["text", "json"] = Field(
        "text", description="Of log lines: text, or one JSON object a line, with request_id, trace_id and span_id."
    )

    otel_exporter_otlp_endpoint: str | None = Field(
        None,
        description="OpenTelemetry collector that gets traces over OTLP (HTTP, protobuf): http://collector:4318. With "
        "this and OTEL_EXPORTER_OTLP_TRACES_ENDPOINT unset there are none. Other standard variables, such as "
        "OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, are read from the environment.",
    )
    otel_exporter_otlp_traces_endpoint: str | None = Field(
        None, description="The same with its whole path, for traces alone: http://collector:4318/v1/traces."
    )
    otel_exporter_otlp_headers: str | None = Field(
        None, repr=False, description="Headers for the collector: api-key=secret,x-tenant=a."
    )
    otel_exporter_otlp_protocol: Literal["http/protobuf"] = Field(
        "http/protobuf", description="How traces are sent; gRPC is not built in."
    )
    otel_traces_exporter: Literal["otlp", "none"] = Field("otlp", description="none: no traces, whatever is set.")
    otel_traces_sampler: Literal[
        "always_on",
        "always_off",
        "traceidratio",
        "parentbased_always_on",
        "parentbased_always_off",
        "parentbased_traceidratio",
    ] = Field(
        "parentbased_always_on",
        description="Which requests are traced; parentbased_ ones do as the caller's traceparent says, where one came.",
    )
    otel_traces_sampler_arg: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Part of the requests that the traceidratio samplers trace: 0.01 is one in a hundred.",
    )
    otel_bsp_max_queue_size: Count = Field(
        2048, description="Spans that wait for the collector at most; more are dropped, and counted."
    )
    otel_bsp_max_export_batch_size: Count = Field(512, description="Spans sent at once.")
    otel_sdk_disabled: bool = Field(False, description="true: no traces, whatever is set.")

    @property
    def traces(self) -> bool:
        """Whether spans are sent to a collector."""
        is_set = self.otel_exporter_otlp_endpoint or self.otel_exporter_otlp_traces_endpoint
        return bool(is_set) and self.otel_traces_exporter == "otlp" and not self.otel_sdk_disabled

    @model_validator(mode="before")
    @classmethod
    def _of_the_profile(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {**_SMALL, **values} if values.get("profile") == "small" else values

    @model_validator(mode="before")
    @classmethod
    def _without_traces(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Without traces nothing is asked of the other OTEL_* variables: a cluster may set them for all services."""
        off = {name for name, value in _NO_TRACES.items() if str(values.get(name, "")).lower() == value}
        if any(map(values.get, _FOR_THE_EXPORTER[:2])) and not off:
            return values
        read = {*_FOR_THE_EXPORTER, *off}
        return {name: value for name, value in values.items() if not name.startswith("otel_") or name in read}

    @field_validator(
        "model_aliases",
        "speech_model_aliases",
        "ocr_languages",
        "api_keys",
        "admin_keys",
        "cors_origins",
        "allowed_hosts",
        mode="before",
    )
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(word.strip() for word in value.split(",") if word.strip()) if isinstance(value, str) else value

    @field_validator("api_keys", "admin_keys")
    @classmethod
    def _check_keys(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if any(map(is_key_file, value)):
            if info.field_name == "admin_keys" or len(value) > 1:
                raise ValueError(
                    "a .toml file of keys stands alone in API_KEYS, without further keys; put those into the file"
                )
            return value
        others = info.data.get("api_keys", ()) if info.field_name == "admin_keys" else ()
        others = () if any(map(is_key_file, others)) else others
        if faults := key_faults(str(info.field_name).upper(), value, others):
            raise ValueError("; ".join(faults))
        return value

    @field_validator(*_QUOTAS)
    @classmethod
    def _check_quota(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("api_keys") == ():
            raise ValueError("quotas are those of the callers of API_KEYS, which has none; set it, or no quota")
        return value

    @field_validator("cache_scope")
    @classmethod
    def _check_scope(cls, value: str, info: ValidationInfo) -> str:
        if value == "key" and not info.data.get("api_keys") and not info.data.get("admin_keys"):
            raise ValueError("there are no keys to keep apart; set API_KEYS or ADMIN_KEYS, or leave it at service")
        return value

    @property
    def key_file(self) -> Path | None:
        """The keys file of API_KEYS, where it is one."""
        return Path(self.api_keys[0]).expanduser() if self.api_keys and is_key_file(self.api_keys[0]) else None

    @field_validator("state_dir")
    @classmethod
    def _expand(cls, value: Path) -> Path:
        return value.expanduser()

    @field_validator("log_level", mode="before")
    @classmethod
    def _upper(cls, value: Any) -> Any:
        return value.upper() if isinstance(value, str) else value


def publish(settings: Settings, allocator_options: str) -> None:
    """Set the environment variables of libraries that read them; call before any of them is imported.

    Args:
        allocator_options: for torch's allocator, as ``device_memory.allocator_options`` makes them.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads would take the lanes' cores
    os.environ["CUDA_DEVICE_ORDER"] = settings.cuda_device_order
    if settings.cuda_visible_devices is not None:  # from backend/.env it is not in the environment yet
        os.environ["CUDA_VISIBLE_DEVICES"] = settings.cuda_visible_devices
    for name in _FOR_THE_EXPORTER:
        if value := getattr(settings, name):
            os.environ.setdefault(name.upper(), str(value))
    if allocator_options:
        os.environ["PYTORCH_ALLOC_CONF"] = allocator_options
        os.environ.pop("PYTORCH_CUDA_ALLOC_CONF", None)  # its old name; torch warns when it meets both


def load_settings(**overrides: Any) -> Settings:
    """Read the environment and ``backend/.env`` once.

    Raises: BadSettings with every fault: the setting, its value and what is wrong with it.
    """
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":  # the one setting whose empty value has a meaning: no GPU
        overrides.setdefault("cuda_visible_devices", "")
    try:
        return Settings(**overrides)
    except ValidationError as error:
        raise BadSettings([_fault(dict(fault)) for fault in error.errors()]) from error


def _fault(fault: dict[str, Any]) -> str:
    setting = str(fault["loc"][0]) if fault["loc"] else ""
    name = "_".join(str(part) for part in fault["loc"]).upper()
    value = "***" if setting in _SECRETS else repr(fault.get("input"))
    return f"{name}={value}: {fault['msg']}"
