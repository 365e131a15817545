"""The packed encoder: its attention, its graphs and its readouts give what transformers gives.

test_parity runs it against sentence-transformers for every family, pooling and activation. On a card
(``--device cuda:0``) the same tests run with the card's own kernels and with captured graphs.
"""

import gc
import weakref
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from backend.errors import ModelUnavailable
from backend.models.encoder import SpannedText, with_spans
from backend.models.model_files import resolve
from backend.models.readout import PooledVectors, SummedSpans, TokenVectors
from backend.models.runtimes import warm_up
from backend.models.spec import ModelSpec, Pooling
from backend.models.torch_attention import PaddedAttention, relative_bias
from backend.models.torch_encoder import TorchEncoder
from backend.models.torch_models import DTYPES
from backend.models.torch_packed import (
    SMALL_BUCKETS,
    GraphCache,
    GraphKey,
    Outputs,
    PackedEncoder,
    PackedModel,
    keys_of,
)
from backend.models.torch_packed_layers import FusedKernels, TorchKernels, choose_kernels, fault_of, rest_of_layer
from backend.models.weights import load_weights
from tests.models.test_parity import assert_same, cosines, random_ids
from tests.tiny_models import FAMILIES, TinyModels, encoder_of, rewrite, spec_of

LENGTHS = (3, 20, 1, 7, 60)


class EagerGraph:
    """A graph that computes again what it would have recorded, on the same fixed buffers."""

    def __init__(self, model: PackedModel, key: GraphKey) -> None:
        self._model, self._key = model, key
        self._inputs = torch.zeros(model.input_size(key), dtype=torch.int32)

    def replay(self, inputs: torch.Tensor) -> Outputs:
        self._inputs.copy_(inputs)
        return self._model.run_fixed(self._key, self._inputs)


def packed(spec: ModelSpec, device: str = "cpu", dtype: str = "fp32") -> PackedEncoder:
    return PackedEncoder(spec, dtype=dtype, device=device, threads=1)


def ids_of(spec: ModelSpec, lengths: Sequence[int] = LENGTHS, seed: int = 3) -> list[np.ndarray]:
    return random_ids(lengths, spec.shape.vocabulary_size - 1, seed)


def values(encoder, ids, readout) -> np.ndarray:
    results, finite = encoder.queue(encoder.prepare(ids), readout).wait()
    assert finite.all()
    return np.concatenate([np.atleast_2d(result) for result in results])


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gives_transformers_token_vectors(tiny: TinyModels, device, family):
    """Also with a batch's texts in another order, and each alone."""
    spec = spec_of(tiny.plain(family))
    encoder, reference = packed(spec, device), encoder_of(tiny.plain(family), "torch", "fp32")
    ids = ids_of(spec)
    alone = [values(encoder, [text], TokenVectors()) for text in ids]

    expected = values(reference, ids, TokenVectors())
    assert_same(expected, values(encoder, ids, TokenVectors()))
    assert_same(expected, np.concatenate(alone))
    assert_same(np.concatenate(alone[::-1]), values(encoder, ids[::-1], TokenVectors()))


@pytest.mark.parametrize("family", ["bert", "mpnet"])
def test_attention_that_pads_gives_the_same(tiny: TinyModels, family):
    """MPNet's way on a card, with and without a bias on the scores."""
    spec = spec_of(tiny.plain(family))
    encoder, expected = packed(spec), packed(spec)
    table = load_weights(spec).relative
    device = torch.device("cpu")
    bias = None if table is None else relative_bias(table, spec.max_tokens, device, torch.float32)
    model = encoder._model
    encoder._model = replace(model, attention=PaddedAttention(bias))

    assert (family == "mpnet") == (bias is not None)
    assert_same(values(expected, ids_of(spec), TokenVectors()), values(encoder, ids_of(spec), TokenVectors()))


@pytest.fixture
def typed(tiny: TinyModels, copy_of) -> ModelSpec:
    """A model of pairs, with token types."""
    folder = copy_of(tiny.plain("bert"))
    rewrite(folder / "config.json", architectures=["BertForSequenceClassification"])
    return resolve(str(folder))


def with_types(ids: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [np.stack([text, np.arange(len(text)) // 3 % 2]) for text in ids]


def test_token_types_are_read(typed: ModelSpec):
    """A cross-encoder's second text: other vectors than with the first type, and transformers' own."""
    encoder, reference = packed(typed), TorchEncoder(typed, dtype="fp32", device="cpu", threads=1)
    ids = ids_of(typed, [9, 4])
    pairs = with_types(ids)

    assert_same(values(reference, pairs, TokenVectors()), values(encoder, pairs, TokenVectors()))
    assert cosines(values(encoder, ids, TokenVectors()), values(encoder, pairs, TokenVectors())).min() < 0.999


# What has no packed form


def test_an_unknown_family_is_refused_with_the_runtime_that_serves_it(tiny: TinyModels, copy_of):
    folder = copy_of(tiny.plain("bert"))
    rewrite(folder / "config.json", model_type="electra")

    with pytest.raises(ModelUnavailable, match="family 'electra'; RUNTIME=torch serves it"):
        packed(resolve(str(folder)))


def test_an_unknown_activation_is_refused(tiny: TinyModels, copy_of):
    folder = copy_of(tiny.plain("bert"))
    rewrite(folder / "config.json", hidden_act="mish")

    with pytest.raises(ModelUnavailable, match=r"activation 'mish'.*RUNTIME=torch serves this model"):
        packed(resolve(str(folder)))


# Graphs


@pytest.fixture
def with_graphs(tiny: TinyModels) -> PackedEncoder:
    """An encoder on the CPU whose graphs compute again what they would have recorded."""
    encoder = packed(spec_of(tiny.plain("bert")))
    encoder.graphs = GraphCache(lambda key: EagerGraph(encoder._model, key))
    return encoder


@pytest.mark.parametrize("pooling", list(Pooling))
def test_a_graph_gives_what_its_batch_gives_without_one(with_graphs: PackedEncoder, tiny: TinyModels, pooling):
    """Fewer texts than it takes are filled up with empty ones, whatever an earlier batch left in its buffers."""
    spec = spec_of(tiny.plain("bert"))
    plain = packed(spec)
    batches = [ids_of(spec, lengths, seed) for seed, lengths in enumerate([(9, 30), (5,), (1, 2, 3, 4, 5), (40,)])]

    for ids in batches:
        expected = values(plain, ids, PooledVectors(pooling))
        np.testing.assert_array_equal(expected, values(with_graphs, ids, PooledVectors(pooling)))
    assert with_graphs.graphs is not None
    assert 1 == len(with_graphs.graphs)


def test_one_graph_serves_batches_of_any_spans(with_graphs: PackedEncoder, tiny: TinyModels):
    """It holds the token vectors; what spans there are is summed behind it."""
    spec = spec_of(tiny.plain("bert"))
    plain, readout = packed(spec), SummedSpans(Pooling.MEAN)
    for seed, spans in enumerate(([[0, 4]], [[1, 9], [2, 3], [0, 9]], [[5, 6], [0, 1]])):
        payloads = [SpannedText(text, np.array(spans)) for text in ids_of(spec, (9, 30), seed)]
        batch = with_spans(plain.prepare([payload.ids for payload in payloads]), payloads)
        expected, found = (encoder.queue(batch, readout).wait()[0] for encoder in (plain, with_graphs))

        assert [1 + len(spans)] * 2 == [len(rows) for rows in found]
        np.testing.assert_array_equal(np.concatenate(expected), np.concatenate(found))
    assert with_graphs.graphs is not None
    assert 1 == len(with_graphs.graphs)


def test_warming_up_captures_every_size(with_graphs: PackedEncoder):
    """No early request waits for a capture, whatever the task's readout."""
    readout, keys = PooledVectors(Pooling.CLS), list[GraphKey]()

    def capture(key: GraphKey) -> EagerGraph:
        keys.append(key)
        return EagerGraph(with_graphs._model, key)

    with_graphs.graphs = GraphCache(capture)
    warm_up(with_graphs, 12, readout)

    longest = with_graphs._model.max_tokens
    assert [key for rows in SMALL_BUCKETS for key in keys_of(rows, longest)] == keys


def test_readouts_share_the_graphs(with_graphs: PackedEncoder, tiny: TinyModels):
    """Readouts in turns capture nothing once the model is warm, and each gets what its batch gives without a graph."""
    spec = spec_of(tiny.plain("bert"))
    plain, keys = packed(spec), list[GraphKey]()

    def capture(key: GraphKey) -> EagerGraph:
        keys.append(key)
        return EagerGraph(with_graphs._model, key)

    with_graphs.graphs = GraphCache(capture)
    warm_up(with_graphs, 12, PooledVectors(Pooling.CLS))
    ids = ids_of(spec, [9, 4])
    for readout in [PooledVectors(Pooling.CLS), TokenVectors(), PooledVectors(Pooling.MEAN)] * 2:
        np.testing.assert_array_equal(values(plain, ids, readout), values(with_graphs, ids, readout))

    assert len(set(keys)) == len(keys)


def test_large_batches_and_many_short_texts_run_without_a_graph(with_graphs: PackedEncoder, tiny: TinyModels):
    spec, readout = spec_of(tiny.plain("bert")), PooledVectors(Pooling.MEAN)
    for lengths in ([60] * 600, [1] * 20):
        for _ in range(3):
            values(with_graphs, ids_of(spec, lengths), readout)

    assert with_graphs.graphs is not None
    assert 0 == len(with_graphs.graphs)


def test_a_card_that_cannot_capture_serves_all_the_same(with_graphs: PackedEncoder, tiny: TinyModels):
    def refuse(key: GraphKey) -> EagerGraph:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    with_graphs.graphs = GraphCache(refuse)
    spec, readout = spec_of(tiny.plain("bert")), PooledVectors(Pooling.MEAN)
    ids = ids_of(spec, [9, 5])

    rows = [values(with_graphs, ids, readout) for _ in range(3)]
    np.testing.assert_array_equal(rows[0], rows[2])
    assert "not permitted" in with_graphs.graphs.fault


# Fused kernels


class WrongKernels(TorchKernels):
    """Kernels that leave out the second bias."""

    def rest(self, attended, hidden, layer, activation, epsilon):
        weight, bias = layer.down
        return rest_of_layer(attended, hidden, replace(layer, down=(weight, 0 * bias)), activation, epsilon)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_kernels_are_taken_only_where_they_keep_to_torch_s_results(dtype):
    cpu = torch.device("cpu")

    assert "" == fault_of(TorchKernels(), cpu, dtype)
    assert "differs from the reference by" in fault_of(WrongKernels(), cpu, dtype)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_a_card_fuses_what_follows_attention(device, dtype):
    chosen = choose_kernels(torch.device(device), dtype)

    if not device.startswith("cuda"):
        assert isinstance(chosen, TorchKernels)
        return
    assert "" == fault_of(FusedKernels(), torch.device(device), dtype)
    assert isinstance(chosen, FusedKernels)


# The device


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_half_precision_on_the_asked_device(tiny: TinyModels, device, dtype):
    """Rounding only; batch equals single there too."""
    if device == "cpu" and dtype == "fp16":
        pytest.skip("fp16 is for GPUs")
    for family in FAMILIES:
        spec = spec_of(tiny.plain(family))
        encoder, reference = packed(spec, device, dtype), encoder_of(tiny.plain(family), "torch", "fp32")
        ids, readout = ids_of(spec), PooledVectors(Pooling.MEAN)
        alone = [[values(encoder, [text], readout) for text in ids] for _ in range(3)]  # on a card twice by graph

        together = values(encoder, ids, readout)
        assert cosines(values(reference, ids, readout), together).min() >= 0.995
        assert min(cosines(np.concatenate(rows), together).min() for rows in alone) >= 0.9999


def test_a_card_captures_the_graphs_of_small_batches(tiny: TinyModels, device):
    if not device.startswith("cuda"):
        pytest.skip("graphs are CUDA's")
    spec = spec_of(tiny.plain("bert"))
    encoder, readout = packed(spec, device, "bf16"), PooledVectors(Pooling.MEAN)
    rows = [values(encoder, ids_of(spec, [9]), readout) for _ in range(3)]

    assert ("", 1) == (encoder.graphs.fault, len(encoder.graphs))
    assert min(float(cosines(rows[0], row).min()) for row in rows) >= 0.9999


def test_an_encoder_is_freed_with_its_last_reference(with_graphs: PackedEncoder, tiny: TinyModels):
    """An idle model's memory is released at once: nothing waits for the garbage collector."""
    spec = spec_of(tiny.plain("bert"))
    encoder = packed(spec)
    model = encoder._model
    encoder.graphs = GraphCache(lambda key: EagerGraph(model, key))
    for _ in range(2):
        values(encoder, ids_of(spec, [5]), PooledVectors(Pooling.MEAN))
    freed = weakref.ref(encoder)
    gc.disable()
    try:
        del encoder
        assert freed() is None
    finally:
        gc.enable()
