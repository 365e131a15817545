"""Settings: how the environment is read, what stops the start, and descriptions."""

import traceback
from pathlib import Path

import pytest

from backend.config import Settings, load_settings
from backend.errors import BadSettings


def test_nothing_set():
    """An empty environment is a working configuration without a model hub."""
    settings = load_settings()

    assert ("127.0.0.1", 8000, "bundled") == (settings.host, settings.port, settings.model_profile)
    assert (None, (), ()) == (settings.redis_url, settings.api_keys, settings.cors_origins)


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch):
    """Names are the fields' names in capitals."""
    monkeypatch.setenv("PORT", "9001")
    monkeypatch.setenv("PRECISION", "exact")

    settings = load_settings()

    assert (9001, "exact") == (settings.port, settings.precision)


def test_the_environment_wins_over_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The environment overrides backend/.env."""
    file = tmp_path / ".env"
    file.write_text("PORT=9001\nDEVICE=cuda:1\n", encoding="utf-8")
    monkeypatch.setitem(Settings.model_config, "env_file", file)
    monkeypatch.setenv("PORT", "9002")

    settings = load_settings()

    assert (9002, "cuda:1") == (settings.port, settings.device)


def test_a_small_machine(monkeypatch: pytest.MonkeyPatch):
    """What the profile sets, unless the operator does."""
    monkeypatch.setenv("PROFILE", "small")
    monkeypatch.setenv("SPEECH_MODEL", "bundled")
    small = Settings(_env_file=None)

    assert (1, "tesseract", "bundled") == (small.lanes, small.ocr_engine, small.speech_model)
    assert small.memory_limit_bytes is not None
    assert small.memory_limit_bytes < 2**31


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a", ("a",), id="one"),
        pytest.param(" a , b,", ("a", "b"), id="spaces-and-a-comma-too-many"),
        pytest.param(",", (), id="only-a-comma"),
        pytest.param("", (), id="empty-is-unset"),
    ],
)
def test_lists(monkeypatch: pytest.MonkeyPatch, text: str, expected: tuple[str, ...]):
    """Lists are written with commas."""
    monkeypatch.setenv("API_KEYS", text)

    assert expected == load_settings().api_keys


@pytest.mark.parametrize(
    ("name", "expected"),
    [("USE_GPU", None), ("LANES", None), ("REDIS_URL", None), ("PORT", 8000), ("CACHE_TTL_S", 86_400.0)],
)
def test_empty_is_unset(monkeypatch: pytest.MonkeyPatch, name: str, expected: object):
    """``NAME=`` in a compose file or in .env leaves the default."""
    monkeypatch.setenv(name, "")

    assert expected == getattr(load_settings(), name.lower())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "-1"), ("PORT", "65536"), ("PORT", "http"), ("PRECISION", "fp8"), ("RUNTIME", "tensorrt"),
        ("LANES", "0"), ("BATCH_TOKENS", "15"), ("MODEL_PROFILE", "huge"), ("USE_GPU", "perhaps"),
        ("CACHE_TIMEOUT_S", "0"), ("CACHE_MEMORY_BYTES", "-1"), ("LIMIT_INPUTS", "0"), ("LIMIT_REQUEST_S", "-3"),
        ("LIMIT_REQUEST_S", "nan"), ("LOG_LEVEL", "LOUD"),
    ],
)  # fmt: skip
def test_a_bad_value_stops_the_start(monkeypatch: pytest.MonkeyPatch, name: str, value: str):
    """The message names the setting and its value."""
    monkeypatch.setenv(name, value)

    with pytest.raises(BadSettings) as caught:
        load_settings()

    assert f"{name}=" in str(caught.value)
    assert value in str(caught.value)


def test_every_fault_at_once(monkeypatch: pytest.MonkeyPatch):
    """One start reports every fault."""
    monkeypatch.setenv("PORT", "none")
    monkeypatch.setenv("PRECISION", "fp8")
    monkeypatch.setenv("LIMIT_INPUTS", "0")

    with pytest.raises(BadSettings) as caught:
        load_settings()

    assert ["LIMIT_INPUTS", "PORT", "PRECISION"] == sorted(fault.partition("=")[0] for fault in caught.value.faults)


def test_secrets_are_not_repeated(monkeypatch: pytest.MonkeyPatch):
    """A fault elsewhere does not print API keys."""
    monkeypatch.setenv("API_KEYS", "very-secret")
    monkeypatch.setenv("PORT", "none")

    with pytest.raises(BadSettings) as caught:
        load_settings()

    assert "very-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        pytest.param({"API_KEYS": "a=hush-1,hush-2,b=hush-1"}, "entry 3 of API_KEYS", id="one-key-twice"),
        pytest.param({"API_KEYS": "hush-1", "ADMIN_KEYS": "hush-1"}, "entry 1 of API_KEYS", id="a-key-in-both-lists"),
        pytest.param({"API_KEYS": "a=hush-1", "ADMIN_KEYS": "a=hush-2"}, "use two names", id="a-name-in-both-lists"),
        pytest.param({"API_KEYS": "my hush-1=x"}, "entry 1 of API_KEYS", id="no-name"),
        pytest.param({"API_KEYS": "key-2=hush-1"}, "keys without a name", id="a-name-that-others-get"),
    ],
)
def test_bad_keys(monkeypatch: pytest.MonkeyPatch, values: dict[str, str], named: str):
    """The message names the entry by its number; no key is in it, nor in what Python chains to it."""
    for name, value in values.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(BadSettings) as caught:
        load_settings()

    assert named in str(caught.value)
    assert "hush" not in "".join(traceback.format_exception(caught.value))


def test_settings_show_no_secrets(monkeypatch: pytest.MonkeyPatch):
    """Whoever logs the settings logs no key and no password."""
    for name in ("API_KEYS", "ADMIN_KEYS"):
        monkeypatch.setenv(name, f"{name}-hush")
    monkeypatch.setenv("REDIS_URL", "redis://:hush@cache:6379/0")

    assert "hush" not in repr(load_settings())


@pytest.mark.parametrize("admin_keys", ["", "admin-secret"])
def test_a_quota_that_nobody_has(monkeypatch: pytest.MonkeyPatch, admin_keys: str):
    """Quotas are those of the callers of API_KEYS: without any, a quota would be ignored in silence."""
    monkeypatch.setenv("ADMIN_KEYS", admin_keys)
    monkeypatch.setenv("QUOTA_JOBS", "3")

    with pytest.raises(BadSettings, match=r"QUOTA_JOBS=.3.: .*API_KEYS"):
        load_settings()


def test_a_keys_file(monkeypatch: pytest.MonkeyPatch):
    """API_KEYS may be one, with ADMIN_KEYS and quotas beside it; it is read later, not here."""
    monkeypatch.setenv("API_KEYS", "/run/secrets/keys.toml")
    monkeypatch.setenv("ADMIN_KEYS", "ops=admin-secret")
    monkeypatch.setenv("QUOTA_JOBS", "3")

    assert Path("/run/secrets/keys.toml") == load_settings().key_file
    monkeypatch.setenv("API_KEYS", "team=key.toml")
    assert load_settings().key_file is None


@pytest.mark.parametrize(
    ("name", "value"), [("API_KEYS", "keys.toml,hush"), ("ADMIN_KEYS", "keys.toml"), ("API_KEYS", "a.toml,b.toml")]
)
def test_a_keys_file_stands_alone(monkeypatch: pytest.MonkeyPatch, name: str, value: str):
    """Keys beside it would be two places to look at."""
    monkeypatch.setenv(name, value)

    with pytest.raises(BadSettings, match="stands alone in API_KEYS") as caught:
        load_settings()
    assert "hush" not in str(caught.value)


def test_caches_apart_without_keys(monkeypatch: pytest.MonkeyPatch):
    """Nobody could be told from another."""
    monkeypatch.setenv("CACHE_SCOPE", "key")
    with pytest.raises(BadSettings, match="no keys to keep apart"):
        load_settings()

    monkeypatch.setenv("ADMIN_KEYS", "ops=admin-secret")
    assert "key" == load_settings().cache_scope


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_says_how_to_choose(name: str):
    """``.env.example`` and docs/settings.md are made of the descriptions."""
    description = Settings.model_fields[name].description or ""

    assert description.endswith(".")


_UNUSED = {"OTEL_TRACES_SAMPLER": "jaeger_remote", "OTEL_TRACES_SAMPLER_ARG": "pollingIntervalMs=5000"}
_COLLECTOR = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


@pytest.mark.parametrize(
    "variables",
    [
        pytest.param({"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "maybe"}, id="no-collector"),
        pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, id="an-empty-one"),
        pytest.param({**_COLLECTOR, "OTEL_TRACES_EXPORTER": "none"}, id="none-wanted"),
        pytest.param({**_COLLECTOR, "OTEL_SDK_DISABLED": "True"}, id="disabled"),
    ],
)
def test_variables_of_traces_that_are_not_sent_stop_no_start(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
):
    """A cluster may set OTEL_* for all its services, with what only others understand."""
    for name, value in {**_UNUSED, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", **variables}.items():
        monkeypatch.setenv(name, value)

    assert not load_settings().traces


def test_variables_of_traces_that_are_sent_are_checked(monkeypatch: pytest.MonkeyPatch):
    for name, value in {**_UNUSED, **_COLLECTOR, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(BadSettings) as caught:
        load_settings()

    assert ["OTEL_EXPORTER_OTLP_PROTOCOL", *_UNUSED] == [fault.partition("=")[0] for fault in caught.value.faults]
