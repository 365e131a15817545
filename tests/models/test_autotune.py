"""The fastest faithful encoder serves; its measurement is kept in a file, and repeated when anything changed."""

import json
import logging
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backend.device.plan.placement import Placement
from backend.device.records import DeviceType, GPUInfo, MachineFacts
from backend.device.tuning_cache import TuningCache
from backend.errors import ModelUnavailable
from backend.models import autotune, encoder_benchmark
from backend.models.autotune import EncoderRequest, Selector
from backend.models.encoder import Ids, TokenBatch, Vectors, pack, pool
from backend.models.encoder_benchmark import EncoderBenchmark
from backend.models.runtimes import Candidate, ModelDoesNotFit
from backend.models.spec import ModelSpec, Pooling
from tests.tiny_models import TinyModels, placement, spec_of, tokenizer_of

FACTS = MachineFacts(2, "a processor", ("avx2", "avx512_vnni", "avx512_bf16"), 2**33)
OLD_FACTS = replace(FACTS, cpu_flags=("avx2",))
CARD = replace(FACTS, gpus=(GPUInfo(0, "a card", "GPU-1", 2**33, (9, 0), bf16=True),), gpu_type=DeviceType.CUDA)
ON_CARD = Placement("cuda:0", 1, 1, 2, ("largest",), dtypes=("bf16", "fp16", "fp32"))
OLD_CARD = replace(FACTS, gpus=(GPUInfo(0, "a card", "GPU-1", 2**33, (7, 5), bf16=False),), gpu_type=DeviceType.CUDA)
ON_OLD_CARD = replace(ON_CARD, dtypes=("fp32",))
TABLE = np.random.default_rng(1).standard_normal((40_000, 24)).astype(np.float32)


@dataclass(eq=False)
class FakeEncoder:
    """Takes vectors from a table; each field adds one kind of fault."""

    runtime: str
    dtype: str
    tokens_per_s: float
    budgets: dict[int, float]  # factor of the speed at a budget
    noise: float = 0.0  # away from float32
    leak: float = 0.0  # of the neighbours into a text's vector
    few_rows: float = 0.0  # another kernel's error for batches of up to 4 tokens
    nan: bool = False
    broken: Exception | None = None
    padding_cost: float = 1.0

    def prepare(self, ids: Sequence[Ids]) -> TokenBatch:
        return pack(ids)

    def forward(self, batch: TokenBatch) -> Vectors:
        if self.broken is not None:
            raise self.broken
        hidden = TABLE[batch.ids]
        hidden = hidden + self.noise * TABLE[(batch.ids * 7 + 13) % len(TABLE)]
        if self.leak:
            hidden = hidden + self.leak * hidden.mean(axis=0) * batch.scatter.shape[1]
        if batch.tokens <= 4:
            hidden = hidden + self.few_rows * TABLE[(batch.ids * 5 + 11) % len(TABLE)]
        return np.full_like(hidden, np.nan) if self.nan else hidden

    def hidden(self, output: Vectors, batch: TokenBatch) -> Vectors:
        return output

    def pooled(self, output: Vectors, batch: TokenBatch, pooling: Pooling) -> Vectors:
        return pool(output, batch, pooling)


class FakeModels:
    """Loads fake encoders by candidate and records the loads; some cannot be loaded."""

    def __init__(self) -> None:
        self.encoders: dict[str, dict[str, Any]] = {}
        self.refusals: dict[str, Exception] = {}
        self.loaded: list[str] = []

    def has(self, name: str, tokens_per_s: float, **faults: Any) -> None:
        self.encoders[name] = {"tokens_per_s": tokens_per_s, "budgets": {}} | faults

    def load(self, spec: ModelSpec, candidate: Candidate, place: Placement) -> FakeEncoder:
        name = str(candidate)
        self.loaded.append(name)
        if name in self.refusals:
            raise self.refusals[name]
        if name not in self.encoders:
            raise ModelUnavailable("no such model")
        return FakeEncoder(candidate.runtime, candidate.dtype, **self.encoders[name])


@pytest.fixture
def models(monkeypatch) -> FakeModels:
    """Speeds are set, not measured: openvino int8 is the fastest, both float32 encoders are exact."""
    monkeypatch.setattr(
        EncoderBenchmark,
        "speed",
        lambda self, encoder, budget=None: encoder.tokens_per_s * encoder.budgets.get(budget or self._budget, 1.0),
    )
    monkeypatch.setattr(EncoderBenchmark, "launch_tokens", lambda self, encoder, tokens_per_s: int(tokens_per_s / 400))
    monkeypatch.setattr(autotune, "release", lambda device: None)  # its cards are not there
    fakes = FakeModels()
    fakes.has("openvino int8", 30_000.0, noise=0.01)
    fakes.has("openvino bf16", 20_000.0, noise=0.003)
    fakes.has("onnx int8", 25_000.0, noise=0.02)
    fakes.has("openvino fp32", 9_000.0)
    fakes.has("onnx fp32", 10_000.0)
    return fakes


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "tuning.json"


@pytest.fixture
def select(models: FakeModels, file: Path) -> Callable[..., Any]:
    """What was measured and serves then, as ``serve``: measured first, unless an earlier call did."""

    def run(
        wanted: EncoderRequest | None = None,
        *,
        facts: MachineFacts = FACTS,
        place: Placement | None = None,
        **spec: Any,
    ) -> Any:
        selector = Selector(facts, place or placement(), TuningCache(file), load=models.load)
        model, request = replace(spec_of("minilm"), **spec), wanted or EncoderRequest()
        if selector.kept(model, request) is None:
            return selector.measure(model, tokenizer_of("minilm"), request)
        return selector.select(model, tokenizer_of("minilm"), request)

    return run


def measured(choice) -> dict[str, str]:
    """The fault of every candidate."""
    return {row.candidate: row.fault for row in choice.measured}


# What wins


def test_the_fastest_faithful_one_wins(select):
    """And everything that was measured is shown with its numbers."""
    encoder, choice = select()

    assert ("openvino", "int8", 30_000.0) == (choice.runtime, choice.dtype, choice.tokens_per_s)
    assert ("openvino", "int8") == (encoder.runtime, encoder.dtype)
    assert {
        "openvino int8": "",
        "openvino bf16": "",
        "onnx int8": "",
        "openvino fp32": "",
        "onnx fp32": "",
    } == measured(choice)
    assert "openvino int8: 30000 tokens/s" in choice.why[0]
    assert all(row.fidelity is not None and row.tokens_per_s > 0 for row in choice.measured)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        pytest.param({"leak": 0.2}, "neighbours change a vector", id="neighbours-leak"),
        pytest.param({"few_rows": 0.2}, "neighbours change a vector", id="another-kernel-for-a-query-of-one-word"),
        pytest.param({"noise": 0.8}, "differ from float32", id="far-from-float32"),
        pytest.param({"nan": True}, "", id="nan"),
    ],
)
def test_a_faster_one_that_is_unfaithful_is_refused(models, select, fault, why):
    """No speed makes up for it: batch must equal single, and similarities must order texts alike."""
    models.has("openvino int8", 99_000.0, **fault)
    with np.errstate(invalid="ignore"):
        _, choice = select()

    assert ("onnx", "int8") == (choice.runtime, choice.dtype)
    assert why in measured(choice)["openvino int8"] != ""


@pytest.mark.parametrize("noise", [0.12, 0.15])
def test_fast_lowers_the_thresholds(models, select, noise):
    """What auto refuses, PRECISION=fast may take; batch must equal single all the same."""
    models.has("openvino int8", 99_000.0, noise=noise)

    assert select(EncoderRequest())[1].runtime == "onnx"
    assert select(EncoderRequest(precision="fast"))[1].runtime == "openvino"


@pytest.mark.parametrize(
    "error", [ModelUnavailable("no graph"), RuntimeError("plugin not found")], ids=["ours", "theirs"]
)
def test_one_that_cannot_be_loaded_is_left_out_with_its_reason(models, select, error):
    models.refusals["openvino int8"] = error
    _, choice = select()

    assert ("onnx", "int8") == (choice.runtime, choice.dtype)
    assert f"cannot be loaded: {error}" == measured(choice)["openvino int8"]


def test_one_that_breaks_while_measured_is_left_out_with_its_reason(models, select):
    """A kernel that is missing shows only when it runs; that must not stop the start."""
    models.has("openvino int8", 99_000.0, broken=RuntimeError("no kernel"))
    _, choice = select()

    assert ("onnx", "int8") == (choice.runtime, choice.dtype)
    assert "no kernel" in measured(choice)["openvino int8"]


def test_torch_serves_what_has_no_graph(models, select):
    """An activation or a family without a graph falls back to torch, and every failure is in the rows."""
    graph = list(models.encoders)
    models.encoders.clear()
    models.has("torch fp32", 4_000.0)
    models.has("torch bf16", 8_000.0, noise=0.003)
    _, choice = select()

    assert ("torch", "bf16") == (choice.runtime, choice.dtype)
    assert all("cannot be loaded" in measured(choice)[name] for name in graph)


# Explicit settings


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param(EncoderRequest(precision="int8", runtime="torch"), id="torch-has-no-int8"),
        pytest.param(EncoderRequest(precision="fp16"), id="no-fp16-on-a-cpu"),
        pytest.param(EncoderRequest(precision="bf16", runtime="onnx"), id="onnx-has-no-bf16"),
        pytest.param(EncoderRequest(runtime="torch"), id="torch-cannot-load-it"),
    ],
)
def test_a_request_that_cannot_be_met_stops_the_start(select, wanted):
    """The error repeats the settings and names the model."""
    with pytest.raises(ModelUnavailable) as caught:
        select(wanted)

    assert f"PRECISION={wanted.precision} RUNTIME={wanted.runtime}" in str(caught.value)
    assert "all-MiniLM-L6-v2" in str(caught.value)


def test_the_reasons_of_all_candidates_are_in_the_error(models, select):
    models.encoders.clear()
    models.refusals["onnx fp32"] = RuntimeError("library is broken")

    with pytest.raises(ModelUnavailable) as caught:
        select()

    assert "onnx fp32: cannot be loaded: library is broken" in str(caught.value)
    assert "openvino int8: cannot be loaded: no such model" in str(caught.value)


def test_an_explicit_precision_is_kept_although_unfaithful(models, select):
    """int8 was asked for: it is served, and the reason says what is wrong with it."""
    models.has("openvino int8", 30_000.0, noise=0.8)
    models.has("onnx int8", 25_000.0, noise=0.8)
    _, choice = select(EncoderRequest(precision="int8"))

    assert ("openvino", "int8") == (choice.runtime, choice.dtype)
    assert any("PRECISION=int8 was asked for although similarities differ" in why for why in choice.why)
    assert not any("that keeps to float32" in why for why in choice.why)


def test_an_explicit_precision_is_still_measured_against_float32(models, select):
    """The reference is loaded for the measurement though it will not serve."""
    _, choice = select(EncoderRequest(precision="int8", runtime="onnx"))

    assert "onnx fp32" in models.loaded
    assert 0.9 < choice.measured[0].fidelity.cosine < 1.0
    assert {"onnx int8"} == set(measured(choice))


# Budgets


@pytest.mark.parametrize(
    ("factors", "budget"),
    [
        pytest.param({256: 0.9, 512: 1.0, 1024: 0.95}, 512, id="the-fastest"),
        pytest.param({256: 0.985, 512: 1.0, 1024: 1.01}, 256, id="the-smallest-within-3-percent"),
        pytest.param({256: 0.5, 512: 0.8, 1024: 1.0}, 1024, id="a-large-one-that-is-worth-it"),
    ],
)
def test_the_budget_is_the_smallest_that_is_fast(models, select, factors, budget):
    """A larger batch costs latency, so it must be worth it."""
    models.has("openvino int8", 30_000.0, noise=0.01, budgets=factors)
    _, choice = select(EncoderRequest(precision="int8", runtime="openvino"))

    assert budget == choice.budget
    assert choice.tokens_per_s == pytest.approx(30_000 * factors[budget])


def test_an_explicit_budget_is_kept(models, select):
    models.has("openvino int8", 30_000.0, noise=0.01, budgets={1024: 5.0})
    _, choice = select(EncoderRequest(batch_tokens=100))

    assert choice.budget == 100


# Machines


def test_a_gpu(models, select):
    """Half precision by torch, with budgets of a GPU's size."""
    models.has("torch bf16", 2e6, noise=0.003, budgets={8192: 1.2})
    models.has("torch fp16", 1.9e6, noise=0.001)
    models.has("torch fp32", 4e5)
    _, choice = select(facts=CARD, place=ON_CARD)

    assert ("torch", "bf16", 8192) == (choice.runtime, choice.dtype, choice.budget)
    assert 4096 == choice.launch_tokens, "the time of 6000 tokens, at most half a batch"
    assert "4096 tokens" in choice.why[-1]


def test_a_gpu_is_measured_on_full_batches_as_its_lanes_run_them(models, select, monkeypatch):
    """Eight budgets of tokens, and two batches in flight; a kept choice brings the cost of a launch with it."""
    seen: list[tuple[int, int]] = []

    def speed(self, encoder, budget=None):
        batches = self._speed_batches(encoder, budget or self._budget)
        seen.append((self._depth, sum(len(text) for batch in batches for text in batch) // (budget or self._budget)))
        return 1e6

    monkeypatch.setattr(EncoderBenchmark, "speed", speed)
    models.has("torch fp32", 4e5)
    _, first = select(facts=OLD_CARD, place=ON_OLD_CARD)
    _, kept = select(facts=OLD_CARD, place=ON_OLD_CARD)

    assert {(2, 8)} == set(seen)
    assert first.launch_tokens == kept.launch_tokens == 2048


def test_a_model_that_overflows_in_fp16(models, select):
    """Weights stored as bf16 leave fp16's range: not measured on a card without bf16, and the table says why."""
    models.has("torch fp16", 2e6, noise=0.001)
    models.has("torch fp32", 4e5)
    on_card: dict[str, Any] = {"facts": OLD_CARD, "place": replace(ON_OLD_CARD, dtypes=("fp16", "fp32"))}
    _, choice = select(**on_card, stored_dtype="bfloat16")
    _, asked_for = select(EncoderRequest(precision="fp16"), **on_card, stored_dtype="bfloat16")

    assert "fp32" == choice.dtype
    assert "stored as bf16" in {row.candidate: row.fault for row in choice.measured}["torch fp16"]
    assert "fp16" == asked_for.dtype


def test_budgets_that_do_not_fit_the_card(models, select, monkeypatch):
    """Too large a batch while measuring costs that budget, not the start."""
    models.has("torch fp32", 4e5, budgets={8192: 1.5, 32768: 9.0})
    speed = encoder_benchmark.EncoderBenchmark.speed

    def out_of_memory_at_32768(self, encoder, budget=None):
        if budget == 32768:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.50 GiB")
        return speed(self, encoder, budget)

    monkeypatch.setattr(encoder_benchmark.EncoderBenchmark, "speed", out_of_memory_at_32768)
    _, choice = select(facts=OLD_CARD, place=ON_OLD_CARD)

    assert 8192 == choice.budget


HALVES = {"torch fp32": 4e5, "torch bf16": 2e6, "torch-packed fp32": 5e5, "torch-packed bf16": 4e6}


@pytest.fixture
def alive(models, monkeypatch) -> weakref.WeakSet[FakeEncoder]:
    """A card that holds one encoder: while one is there, the next does not fit."""
    alive: weakref.WeakSet[FakeEncoder] = weakref.WeakSet()

    def load(spec: ModelSpec, candidate: Candidate, place: Placement) -> FakeEncoder:
        if alive:
            raise ModelDoesNotFit(f"{candidate} does not fit")
        encoder = FakeModels.load(models, spec, candidate, place)
        alive.add(encoder)
        return encoder

    monkeypatch.setattr(models, "load", load)
    for name, speed in HALVES.items():
        models.has(name, speed)
    return alive


@pytest.mark.parametrize("precision", ["auto", "bf16"])
def test_a_card_holds_one_encoder_at_a_time(models, select, alive, precision):
    """What measuring itself holds must not decide what fits: the packed runtime, measured last, wins and is kept."""
    encoder, choice = select(EncoderRequest(precision=precision), facts=CARD, place=ON_CARD)

    assert ("torch-packed", "bf16") == (choice.runtime, choice.dtype)
    assert not any(row.lacked_memory for row in choice.measured)
    assert [encoder] == list(alive)
    del encoder
    models.loaded.clear()
    select(EncoderRequest(precision=precision), facts=CARD, place=ON_CARD)
    assert ["torch-packed bf16"] == models.loaded


def test_a_winner_that_was_not_measured_last_is_loaded_again(models, select, alive):
    models.has("torch-packed bf16", 1e6)
    encoder, choice = select(facts=CARD, place=ON_CARD)

    assert ("torch", "bf16") == (choice.runtime, choice.dtype) == (encoder.runtime, encoder.dtype)
    assert "torch bf16" == models.loaded[-1]


def test_a_model_of_the_same_shape_needs_a_card_for_one_encoder_too(models, select, alive):
    """Its float32 reference is freed before the winner is loaded."""
    select(facts=CARD, place=ON_CARD)
    models.loaded.clear()
    _, choice = select(facts=CARD, place=ON_CARD, sha256="0" * 64)

    assert ["torch-packed fp32", "torch-packed bf16"] == models.loaded
    assert "same shape" in choice.why[0]


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param({"refusal": ModelDoesNotFit("too small")}, id="foreseen"),
        pytest.param({"refusal": RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")}, id="while-loaded"),
        pytest.param({"broken": RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")}, id="while-measured"),
    ],
)
def test_what_lacked_memory_is_measured_again(models, select, refused):
    """Another process may have had the memory: the choice without the best runtime serves, and is not kept."""
    for name, speed in HALVES.items():
        models.has(name, speed)
    if "refusal" in refused:
        models.refusals["torch-packed bf16"] = refused["refusal"]
    else:
        models.has("torch-packed bf16", 4e6, broken=refused["broken"])
    _, first = select(facts=CARD, place=ON_CARD)
    models.refusals.clear()
    models.has("torch-packed bf16", 4e6)
    _, second = select(facts=CARD, place=ON_CARD)
    models.loaded.clear()
    select(facts=CARD, place=ON_CARD)

    assert ("torch", "bf16") == (first.runtime, first.dtype)
    assert "too little memory was free for torch-packed bf16" in first.why[-1]
    assert ("torch-packed", "bf16") == (second.runtime, second.dtype)
    assert ["torch-packed bf16"] == models.loaded


# The file


def test_the_second_start_loads_one_encoder_and_measures_nothing(models, select, monkeypatch):
    """The same choice with the same rows, and it says where it comes from."""
    _, first = select()
    models.loaded.clear()
    monkeypatch.setattr(autotune, "EncoderBenchmark", lambda *_, **__: pytest.fail("measured again"))
    _, second = select()

    assert ["openvino int8"] == models.loaded
    assert (first.runtime, first.dtype, first.budget, first.measured) == (
        second.runtime,
        second.dtype,
        second.budget,
        second.measured,
    )
    assert (*first.why, "kept from an earlier start") == second.why


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"wanted": EncoderRequest(precision="fast")}, id="another-precision"),
        pytest.param({"facts": OLD_FACTS}, id="another-processor"),
        pytest.param({"place": placement(lanes=4)}, id="other-lanes"),
        pytest.param({"place": placement(threads=2)}, id="other-threads"),
        pytest.param({"sha256": "0" * 64}, id="another-model"),
    ],
)
def test_whatever_a_measurement_depends_on_makes_a_new_one(models, select, change):
    """A choice is never used for what it was not measured on."""
    select()
    models.loaded.clear()
    select(**change)

    assert len(models.loaded) > 1


def test_a_model_of_the_same_shape_tries_the_winner_first(models, select):
    """An adapter's merged weights, say: only fidelity is measured again."""
    _, first = select()
    models.loaded.clear()
    _, second = select(sha256="0" * 64)

    assert ["openvino fp32", "openvino int8"] == models.loaded
    assert (first.runtime, first.dtype, first.budget) == (second.runtime, second.dtype, second.budget)
    assert "same shape" in second.why[0]


def test_a_model_of_the_same_shape_for_which_the_winner_is_not_faithful_is_measured(models, select):
    select()
    models.has("openvino int8", 30_000.0, noise=9.0)
    _, choice = select(sha256="0" * 64)

    assert ("onnx", "int8") == (choice.runtime, choice.dtype)
    assert len(choice.measured) == 5


def test_a_model_of_another_shape_is_measured(models, select):
    select()
    models.loaded.clear()
    select(sha256="0" * 64, shape=replace(spec_of("minilm").shape, layers=12))

    assert len(models.loaded) == 5


def edit(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the entries of the file: the model's, and that of its shape."""
    content = json.loads(file.read_text())
    for entry in content["entries"].values():
        change(entry)
    file.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda entry: entry.pop("runtime"), id="a-field-is-absent"),
        pytest.param(lambda entry: entry.update(colour="red"), id="a-field-too-many"),
        pytest.param(lambda entry: entry["measured"][0].update(fidelity={"cosine": 1}), id="half-a-fidelity"),
        pytest.param(lambda entry: entry.update(budget="512"), id="a-budget-that-is-text"),
    ],
)
def test_an_entry_of_another_shape_is_measured_again(models, select, file, caplog, change):
    """A file written by hand or by another version costs a measurement, never the start."""
    select()
    edit(file, change)
    models.loaded.clear()
    _, choice = select()

    assert len(models.loaded) > 1
    assert ("openvino", "int8", 256) == (choice.runtime, choice.dtype, choice.budget)
    assert "the kept choice cannot be used; measuring again" in caplog.text


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ModelUnavailable("openvino is not installed"), id="gone"),
        pytest.param(RuntimeError("Cannot load library"), id="the-librarys-own-error"),
    ],
)
def test_a_kept_runtime_that_no_longer_loads_is_measured_again(models, select, caplog, error):
    """The next best one that is known serves until then, and the log says why."""
    select()
    models.loaded.clear()
    models.refusals["openvino int8"] = error
    caplog.set_level(logging.WARNING)
    _, choice = select()

    assert ("onnx", "int8", True) == (choice.runtime, choice.dtype, choice.is_provisional)
    assert "a runtime cannot be used; the next one serves" in caplog.text


# Before anything is measured


@pytest.fixture
def first_start(models: FakeModels, file: Path) -> Callable[..., Any]:
    """What serves on a machine that has measured nothing: ``first_start(EncoderRequest(...), cpu_flags=…)``."""

    def run(wanted: EncoderRequest | None = None, *, cpu_flags: tuple[str, ...] = FACTS.cpu_flags, **spec: Any) -> Any:
        selector = Selector(replace(FACTS, cpu_flags=cpu_flags), placement(), TuningCache(file), load=models.load)
        return selector.select(replace(spec_of("minilm"), **spec), tokenizer_of("minilm"), wanted or EncoderRequest())

    return run


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        pytest.param(("avx2", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8"), "openvino bf16", id="amx"),
        pytest.param(("avx2", "avx512_vnni"), "openvino int8", id="avx512-vnni"),
        pytest.param(("avx2",), "onnx int7", id="avx2"),
        pytest.param(("asimddp", "i8mm"), "openvino fp32", id="arm-never-measured"),
        pytest.param((), "openvino fp32", id="unknown"),
    ],
)
def test_a_first_start_measures_nothing(models, first_start, file, flags, expected):
    """One encoder is loaded: what is known of the processor's kind, and says so; it is not kept as if measured."""
    models.has("onnx int7", 20_000.0)
    encoder, choice = first_start(cpu_flags=flags)

    assert [expected] == models.loaded
    assert f"{encoder.runtime} {encoder.dtype}" == expected == str(choice.candidate)
    assert choice.is_provisional
    assert not choice.measured
    assert "until this" in choice.why[0]
    assert not file.exists()


@pytest.mark.parametrize(
    ("wanted", "spec", "expected"),
    [
        pytest.param(EncoderRequest(), {"source": "a/model"}, "openvino fp32", id="a-model-nobody-measured"),
        pytest.param(EncoderRequest(precision="int8"), {"source": "a/model"}, "openvino int8", id="that-in-int8"),
        pytest.param(EncoderRequest(precision="exact"), {}, "openvino fp32", id="exact"),
        pytest.param(EncoderRequest(runtime="onnx"), {}, "onnx int8", id="another-runtime"),
        pytest.param(EncoderRequest(precision="bf16"), {}, "openvino bf16", id="another-precision"),
        pytest.param(EncoderRequest(runtime="onnx"), {"adapter": Path("ner")}, "onnx fp32", id="a-tagger-on-onnx"),
    ],
)
def test_a_first_start_keeps_to_what_is_asked_and_known(first_start, wanted, spec, expected):
    """A setting is never ignored; of a foreign model nothing but float32 is known to be faithful."""
    assert expected == str(first_start(wanted, **spec)[1].candidate)


def test_a_first_start_falls_back_to_float32(models, first_start):
    """What is known may not load here: the next best serves."""
    models.refusals |= {name: RuntimeError("no kernel") for name in ("openvino int8", "onnx int8")}

    assert "openvino fp32" == str(first_start()[1].candidate)


def test_what_is_measured_serves_at_the_next_start(models, first_start, select):
    models.has("openvino bf16", 99_000.0, noise=0.003)
    assert first_start()[1].is_provisional
    select()
    _, choice = first_start()

    assert ("openvino bf16", False) == (str(choice.candidate), choice.is_provisional)


@pytest.mark.parametrize(("device", "expected"), [("cpu", 3.0), ("cuda:0", 50.0)])
def test_speeds_on_a_cpu_are_of_its_processor_time(monkeypatch, models, select, device, expected):
    """A busy neighbour made int8 faster than bfloat16 where it takes 1.3 times as long; a card is waited for."""
    clocks: list[float] = []
    monkeypatch.setattr(EncoderBenchmark, "speed", lambda self, encoder, budget=None: clocks.append(self._clock()) or 1)
    monkeypatch.setattr(autotune.time, "process_time", lambda: 6.0)
    monkeypatch.setattr(autotune.time, "perf_counter", lambda: 50.0)
    models.has("torch fp32", 1.0)
    select(place=placement(device=device, lanes=2))

    assert {expected} == set(clocks)


def test_a_speed_that_was_disturbed_is_measured_again(monkeypatch):
    """Requests slow a candidate down, so its speed is that of a time when none came; after some tries the best."""
    waits, speeds = [], iter([100.0, 300.0, 200.0])

    class Quiet:
        def wait(self) -> None:
            waits.append(1)

        def was_disturbed(self) -> bool:
            return len(waits) < 3

    monkeypatch.setattr(EncoderBenchmark, "_best_window", lambda *_: next(speeds))
    benchmark = EncoderBenchmark([np.arange(3)], lanes=1, budget=8, quiet=Quiet())

    assert 300.0 == benchmark.speed(FakeEncoder("onnx", "fp32", 1.0, {}))
    assert 3 == len(waits)


# For real


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["auto", "exact", "int8"])
def test_a_small_model_for_real(tiny: TinyModels, file, monkeypatch, precision):
    """With real encoders: measure, choose, keep, load from the file."""
    monkeypatch.setattr(encoder_benchmark, "WINDOW_S", 0.02)
    folder = tiny.folder("mpnet")
    for _ in range(2):
        selector, wanted = Selector(FACTS, placement(), TuningCache(file)), EncoderRequest(precision=precision)
        work = selector.measure if selector.kept(spec_of(folder), wanted) is None else selector.select
        encoder, choice = work(spec_of(folder), tokenizer_of(folder), wanted)
        assert (choice.runtime, choice.dtype) == (encoder.runtime, encoder.dtype)

    assert "kept from an earlier start" in choice.why
    assert {row.candidate for row in choice.measured if row.fault} <= {
        name for name in measured(choice) if not name.endswith("fp32")
    }


@pytest.mark.slow
def test_a_model_without_a_graph_for_real(tiny: TinyModels, file, monkeypatch):
    """silu has no operator in the graph: torch serves it without being asked for."""
    monkeypatch.setattr(encoder_benchmark, "WINDOW_S", 0.02)
    folder = tiny.plain("bert", hidden_act="silu")

    encoder, choice = Selector(FACTS, placement(), TuningCache(file)).select(
        spec_of(folder), tokenizer_of(folder), EncoderRequest()
    )

    assert encoder.runtime == "torch"
    assert any("RUNTIME=torch serves this model" in row.fault for row in choice.measured)
