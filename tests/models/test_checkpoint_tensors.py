"""A LoRA adapter is merged as peft merges it; what is no plain LoRA is refused."""

import json
import mmap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForTokenClassification

from backend.errors import ModelUnavailable
from backend.models.checkpoint_tensors import Rows, read_adapter, read_table, read_tensors
from backend.models.model_files import resolve
from backend.models.runtimes import Candidate, load_encoder
from backend.models.spec import TokenTypes
from backend.models.token_head import read_token_head
from backend.models.weights import load_weights
from tests.tiny_models import TinyModels, placement, rewrite
from tests.tiny_taggers import LABELS

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft's own reading
MODULES = {
    "bert": ["query", "key", "value", "dense"],
    "xlm-roberta": ["query", "value", "dense"],
    "distilbert": ["q_lin", "lin2"],
}
Publish = Callable[..., Path]


@pytest.fixture
def publish(tiny: TinyModels, tmp_path: Path) -> Publish:
    """``publish("bert")``: an adapter of random numbers on a tiny base, as peft writes it."""

    def make(family: str = "bert", types: int = 0, **lora: object) -> Path:
        base = tiny.plain(family)
        extra = {"type_vocab_size": types} if types else {}
        names = dict(enumerate(LABELS))
        model = AutoModelForTokenClassification.from_pretrained(
            base, num_labels=len(LABELS), id2label=names, ignore_mismatched_sizes=True, **extra
        )
        saved = ["classifier", *(["token_type_embeddings"] if types else [])]
        options = {"r": 4, "lora_alpha": 8, "target_modules": MODULES[family], "modules_to_save": saved, **lora}
        adapted = get_peft_model(model, LoraConfig(**options))
        torch.manual_seed(5)
        for name, weights in adapted.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                torch.nn.init.normal_(weights, std=0.2)
        folder = tmp_path / f"{family}-adapter"
        adapted.save_pretrained(folder)
        adapted.config.architectures = [type(model).__name__]
        adapted.config.save_pretrained(folder)
        if types:
            rewrite(folder / "config.json", financia_token_types="spelling")
        rewrite(folder / "adapter_config.json", base_model_name_or_path=str(base))
        return folder

    return make


def merged_by_peft(folder: Path, base: Path, **config: object) -> torch.nn.Module:
    """The same adapter, merged by the library that wrote it."""
    model = AutoModelForTokenClassification.from_pretrained(
        base, num_labels=len(LABELS), ignore_mismatched_sizes=True, **config
    )
    return PeftModel.from_pretrained(model, folder).merge_and_unload().eval()


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["onnx", "openvino", "torch"])
@pytest.mark.parametrize("family", MODULES)
def test_the_merged_model_is_pefts(tiny: TinyModels, publish: Publish, family, runtime):
    """Token vectors and the head's labels, on every runtime."""
    folder = publish(family)
    spec = resolve(str(folder))
    ids = np.array([5, 9, 12, 7, 20], np.int64)
    reference = merged_by_peft(folder, tiny.plain(family))

    encoder = load_encoder(spec, Candidate(runtime, "fp32"), placement())
    batch = encoder.prepare([ids])
    hidden = encoder.hidden(encoder.forward(batch), batch)
    with torch.no_grad():
        logits = reference(input_ids=torch.from_numpy(ids)[None]).logits[0]

    expected = torch.softmax(logits, -1).numpy()
    np.testing.assert_allclose(read_token_head(spec).probabilities(hidden), expected, atol=1e-4)


@pytest.mark.parametrize("runtime", ["onnx", "openvino", "torch"])
def test_token_types_reach_the_model(tiny: TinyModels, publish: Publish, runtime):
    """An adapter whose table of token types has five rows, and texts whose tokens use them."""
    folder = publish("bert", types=5)
    spec = resolve(str(folder))
    texts = [np.array([[5, 9, 12, 7], [0, 1, 4, 2]]), np.array([[3, 8], [0, 3]]), np.array([6, 7, 8])]
    reference = merged_by_peft(folder, tiny.plain("bert"), type_vocab_size=5)

    encoder = load_encoder(spec, Candidate(runtime, "fp32"), placement())
    batch = encoder.prepare(texts)
    rows = np.split(encoder.hidden(encoder.forward(batch), batch), batch.starts[1:])

    assert spec.token_types is TokenTypes.SPELLING
    head = read_token_head(spec)
    for text, hidden in zip(texts, rows, strict=True):
        ids, types = text if text.ndim > 1 else (text, np.zeros_like(text))
        with torch.no_grad():
            logits = reference(
                input_ids=torch.from_numpy(ids)[None], token_type_ids=torch.from_numpy(types)[None]
            ).logits[0]
        np.testing.assert_allclose(head.probabilities(hidden), torch.softmax(logits, -1).numpy(), atol=1e-4)
    moved = encoder.prepare([np.array([[5, 9, 12, 7], [0, 0, 0, 0]])])
    assert np.abs(encoder.hidden(encoder.forward(moved), moved) - rows[0]).max() > 1e-3


def test_rank_stabilised_scaling(tiny: TinyModels, publish: Publish):
    """alpha / sqrt(r), as the adapter's config asks."""
    folder = publish("bert", use_rslora=True)
    name = "encoder.layer.0.attention.self.query.weight"

    merged = read_tensors(resolve(str(folder)))[name]

    expected = merged_by_peft(folder, tiny.plain("bert")).state_dict()[f"bert.{name}"].numpy()
    np.testing.assert_allclose(merged, expected, atol=1e-6)


def test_only_what_is_asked_for_is_read(publish: Publish):
    """A head is two tensors of a checkpoint of hundreds."""
    spec = resolve(str(publish("bert")))

    assert set(read_tensors(spec, ["classifier.weight", "no.such"])) == {"classifier.weight"}


def test_two_adapters_of_one_base_are_two_models(publish: Publish, tiny: TinyModels):
    """Cache keys and kept measurements never mix them, nor with the base."""
    base, first = resolve(str(tiny.plain("bert"))), resolve(str(publish("bert")))
    second = resolve(str(publish("bert", r=2)))

    assert len({base.sha256, first.sha256, second.sha256}) == 3
    assert first.folder == base.folder
    assert first.name == "bert-adapter"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"peft_type": "IA3"}, "peft_type=IA3", id="another-method"),
        pytest.param({"use_dora": True}, "not use_dora", id="dora"),
        pytest.param({"alpha_pattern": {"query": 2}}, "not alpha_pattern", id="scales-apart"),
        pytest.param({"bias": "all"}, "bias=all", id="biases"),
        pytest.param({"r": "four"}, "cannot be read", id="no-number"),
    ],
)
def test_another_method_is_refused(publish: Publish, changes, reason):
    """It would be merged wrongly in silence."""
    folder = publish("bert")
    rewrite(folder / "adapter_config.json", **changes)

    with pytest.raises(ModelUnavailable, match=reason):
        read_adapter(folder)


def test_half_a_pair_is_refused(publish: Publish):
    """A file that was cut when it was copied together."""
    folder = publish("bert")
    file = folder / "adapter_model.safetensors"
    tensors = load_file(file)
    save_file({name: one for name, one in tensors.items() if "layer.0.output.dense.lora_B" not in name}, file)

    with pytest.raises(ModelUnavailable, match="half of a pair is absent"):
        read_adapter(folder)


def test_an_adapter_of_another_base_is_refused(publish: Publish, tiny: TinyModels):
    """By the base's digest where the adapter has it, else by the shapes."""
    folder = publish("bert")
    other = tiny.plain("bert", intermediate_size=48)
    rewrite(folder / "adapter_config.json", base_model_name_or_path=str(other))
    with pytest.raises(ModelUnavailable, match="adapter of another base"):
        read_tensors(resolve(str(folder)))

    rewrite(folder / "adapter_config.json", base_sha256="0" * 64)
    with pytest.raises(ModelUnavailable, match="with other weights"):
        resolve(str(folder))


def test_a_config_without_a_base(publish: Publish):
    folder = publish("bert")
    (folder / "adapter_config.json").write_text(json.dumps({"r": 4}))

    with pytest.raises(ModelUnavailable, match=r"adapter_config\.json cannot be read"):
        resolve(str(folder))


# The word table

WORDS = "embeddings.word_embeddings.weight"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("immutable", [True, False])
def test_a_table_in_its_own_dtype(tiny: TinyModels, copy_of, dtype, immutable):
    """Of a file that may be mapped and of one that may not; what numpy cannot map is read."""
    folder = copy_of(tiny.plain("bert"))
    file = folder / "model.safetensors"
    stored = {name: value.to(dtype) for name, value in load_file(file).items()}
    save_file(stored, file, metadata={"format": "pt"})
    spec = replace(resolve(str(folder)), is_immutable=immutable)

    table = read_table(spec, ["bert.nothing", WORDS])

    assert np.array_equal(stored[WORDS].double().numpy(), table.astype(np.float64))
    assert str(dtype).removeprefix("torch.") == str(table.dtype)
    assert _is_mapped(table) == (immutable and dtype is not torch.float64)
    assert (read_table(spec, [WORDS]) is table) == _is_mapped(table)  # a second mapping would count as resident again


def test_rows_of_a_table(tiny: TinyModels):
    file = resolve(str(tiny.plain("bert"))).folder / "model.safetensors"
    table = load_file(file)[WORDS].numpy()

    rows = Rows(file, [WORDS])

    assert table.shape[1] == rows.width
    assert all(np.array_equal(row, rows.row(number)) for number, row in enumerate(table))
    with pytest.raises(ModelUnavailable, match="nothing"):
        Rows(file, ["nothing"])


def _is_mapped(table: np.ndarray) -> bool:
    return isinstance(table.base, np.memmap) or (table.base is not None and isinstance(table.base, mmap.mmap))


def test_a_table_that_is_not_there(tiny: TinyModels):
    """Told by None: the caller knows which model lacks it."""
    for immutable in (True, False):
        assert read_table(replace(resolve(str(tiny.plain("bert"))), is_immutable=immutable), ["nothing"]) is None


def test_a_table_that_cannot_be_read(tiny: TinyModels, copy_of):
    folder = copy_of(tiny.plain("bert"))
    spec = replace(resolve(str(folder)), is_immutable=True)
    (folder / "model.safetensors").write_bytes(b"\0" * 8 + b"{")

    with pytest.raises(ModelUnavailable, match="cannot be mapped"):
        read_table(spec, [WORDS])


@pytest.mark.parametrize("immutable", [True, False])
def test_an_adapter_that_brings_its_own_table(tiny: TinyModels, publish: Publish, immutable):
    """Its rows and not the mapped ones, for every runtime; the rest of the model is the base with it merged."""
    folder = publish("bert", modules_to_save=["classifier", "word_embeddings"])
    spec = replace(resolve(str(folder)), is_immutable=immutable)
    base = resolve(str(json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"]))

    table, weights = read_table(spec, [WORDS, f"bert.{WORDS}"]), load_weights(spec)

    expected = next(value for name, value in read_adapter(folder).replaced.items() if name.endswith(WORDS))
    assert table is not None
    assert np.array_equal(expected, table)
    assert np.array_equal(expected, weights.words)
    assert not np.array_equal(read_table(base, [WORDS]), table)
    merged = read_tensors(spec)["encoder.layer.0.attention.output.dense.weight"]
    assert np.array_equal(merged, weights.layers[0].attended.weight)


def test_an_adapter_of_layers_leaves_the_table_mapped(tiny: TinyModels, publish: Publish):
    """So the models of a service share it."""
    table = read_table(replace(resolve(str(publish("bert"))), is_immutable=True), [WORDS])

    assert table is not None
    assert _is_mapped(table)
