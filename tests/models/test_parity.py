"""Every runtime and dtype against sentence-transformers, and every batch against its texts alone.

Tolerances: float32 differs by the order of its sums only (cosine 0.99999, values to a thousandth of the largest);
bfloat16 keeps 8 bits of a number, int8 with a scale a token about 7, which layers of random weights spread wider
than trained ones.

A text's vector must not depend on its batch, on any processor, for every arithmetic that the autotuner accepts there.
What breaks it is a kernel that is chosen by the batch's size: with int8 weights and bf16 activations OpenVINO computes
up to 4 rows in another kernel than 5 and more, on processors with AMX (cosine 0.99987 for a text of 3 tokens alone and
among others, roberta with random weights). Our batches therefore have at least 8 rows (docs/engine.md).
"""

import functools
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from backend.device.facts.host import cpu
from backend.device.plan.precision import CPU_BF16_FLAGS
from backend.lanes.engine import EncoderEngine, PinnedEncoder
from backend.models.encoder import Encoder, Vectors, normalized
from backend.models.encoder_benchmark import (
    AUTO,
    MIN_BATCH_SINGLE,
    EncoderBenchmark,
    measure_fidelity,
    probe_texts,
    rejection_reason,
)
from backend.models.runtimes import adds_int8_exactly
from backend.models.spec import Pooling
from backend.serving.engines.heads import EMBEDDINGS, PoolingHead, finished
from tests.tiny_models import FAMILIES, TinyModels, encoder_of, reference_of, spec_of, tokenizer_of

EXACT = [("onnx", "fp32"), ("openvino", "fp32"), ("torch", "fp32"), ("torch-packed", "fp32")]
ONNX_INT8 = "int8" if adds_int8_exactly(cpu()[1]) else "int7"  # a kernel that this processor has
FAST = [("onnx", ONNX_INT8), ("openvino", "int8"), ("torch", "bf16"), ("torch-packed", "bf16")]
FAST += [("openvino", "bf16")] if CPU_BF16_FLAGS.intersection(cpu()[1]) else []
EVERY = [*EXACT, *FAST]
TEXTS = (
    "the invoice is due",
    "Factura: importe total 1.284,50 € la ñandú",
    "a",
    "",
    "zürich " * 12,
    "de la " * 60,  # over the length of every tiny model
)


def vectors(source: str | Path, encoder: Encoder, texts: Sequence[str]) -> Vectors:
    """The vectors of one batch, as the service makes them."""
    spec, tokens = spec_of(source), tokenizer_of(source).encode(texts)
    return run(encoder, [text.ids for text in tokens], spec.pooling, normalize=spec.normalize)


def run(encoder: Encoder, ids: Sequence[np.ndarray], pooling: Pooling, *, normalize: bool = True) -> Vectors:
    engine = EncoderEngine(EMBEDDINGS, PinnedEncoder(encoder), PoolingHead(pooling), budget=512)
    return finished(engine.finish(engine.forward(engine.prepare(ids))), dimensions=None, normalize=normalize)


@functools.cache
def reference_vectors(*texts: str) -> Vectors:
    encoded: Vectors = reference_of("minilm").encode(list(texts))
    return encoded


def cosines(first: Vectors, second: Vectors) -> Vectors:
    return (normalized(first) * normalized(second)).sum(axis=1)


def random_ids(lengths: Sequence[int], vocabulary_size: int, seed: int = 3) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.integers(5, vocabulary_size, length) for length in lengths]


def assert_same(expected: Vectors, found: Vectors) -> None:
    """Equal but for the order of float32 sums."""
    assert expected.shape == found.shape
    assert found.dtype == np.float32
    assert cosines(expected, found).min() >= 0.99999
    np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.parametrize(("runtime", "dtype"), EXACT)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_equals_sentence_transformers(tiny: TinyModels, family, runtime, dtype):
    """BERT, MPNet, XLM-R, DistilBERT and RoBERTa: positions, distances, biases and norms are each loaded correctly."""
    folder = tiny.folder(family)

    expected = reference_of(folder).encode(list(TEXTS))
    assert_same(expected, vectors(folder, encoder_of(folder, runtime, dtype), TEXTS))


@pytest.mark.parametrize(("runtime", "dtype"), EXACT)
@pytest.mark.parametrize("normalize", [True, False], ids=["normalized", "raw"])
@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "lasttoken"])
def test_every_pooling_equals_sentence_transformers(tiny: TinyModels, pooling, normalize, runtime, dtype):
    folder = tiny.folder("bert", pooling, normalize=normalize)
    weights = tiny.folder("bert")  # the same in all these folders

    expected = reference_of(folder).encode(list(TEXTS))
    assert_same(expected, vectors(folder, encoder_of(weights, runtime, dtype), TEXTS))


@pytest.mark.parametrize(("runtime", "dtype"), EXACT)
def test_prompts_equal_sentence_transformers(tiny: TinyModels, runtime, dtype):
    """A prompt is part of the text, its tokens part of the mean."""
    folder = tiny.folder("bert", prompts=True)
    spec = spec_of(folder)
    tokens = tokenizer_of(folder).encode(TEXTS, prompt=spec.prompts["query"])

    expected = reference_of(folder).encode(list(TEXTS), prompt_name="query")
    found = run(encoder_of(folder, runtime, dtype), [text.ids for text in tokens], spec.pooling)
    assert_same(expected, found)


@pytest.mark.parametrize(("runtime", "dtype"), EXACT)
def test_a_plain_transformers_folder_equals_sentence_transformers(tiny: TinyModels, runtime, dtype):
    """Without modules.json both take mean pooling and no normalisation."""
    folder = tiny.plain("xlm-roberta")

    expected = reference_of(folder).encode(list(TEXTS))
    assert_same(expected, vectors(folder, encoder_of(folder, runtime, dtype), TEXTS))


@pytest.mark.slow
@pytest.mark.parametrize(("runtime", "dtype"), EXACT)
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu"])
def test_every_activation_equals_transformers(tiny: TinyModels, activation, runtime, dtype):
    """The graph's own operators are transformers' functions."""
    folder = tiny.plain("bert", hidden_act=activation)

    expected = reference_of(folder).encode(list(TEXTS))
    assert_same(expected, vectors(folder, encoder_of(folder, runtime, dtype), TEXTS))


@pytest.mark.parametrize(("runtime", "dtype"), EXACT)
@pytest.mark.parametrize("family", FAMILIES)
def test_token_vectors_equal_transformers(tiny: TinyModels, family, runtime, dtype):
    """hidden gives each text's own rows, without padding and without filling."""
    folder = tiny.folder(family)
    encoder, spec = encoder_of(folder, runtime, dtype), spec_of(folder)
    ids = random_ids([3, 17, 1, 9], spec.shape.vocabulary_size - 1)
    with torch.inference_mode():
        model = reference_of(folder)[0].auto_model
        expected = torch.cat([model(input_ids=torch.from_numpy(text)[None]).last_hidden_state[0] for text in ids])

    batch = encoder.prepare(ids)
    assert_same(expected.numpy(), encoder.hidden(encoder.forward(batch), batch))


@pytest.mark.slow
@pytest.mark.parametrize(("runtime", "dtype"), EXACT)
def test_the_bundled_model_equals_sentence_transformers(runtime, dtype):
    """On the probe texts, from a few words to more than the model's length."""
    texts = [*probe_texts()[::3], "la factura de marzo " * 200, ""]

    expected = reference_vectors(*texts)
    assert_same(expected, vectors("minilm", encoder_of("minilm", runtime, dtype), texts))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runtime", "dtype", "least"),
    [
        pytest.param("torch", "bf16", 0.9995, id="torch-bf16"),
        pytest.param("torch-packed", "bf16", 0.9995, id="torch-packed-bf16"),
        *([pytest.param("openvino", "bf16", 0.9995, id="openvino-bf16")] if ("openvino", "bf16") in FAST else []),
        pytest.param("openvino", "int8", 0.985, id="openvino-int8"),
        pytest.param("onnx", ONNX_INT8, 0.985, id="onnx-int8"),
        pytest.param("onnx", "int7", 0.985, id="onnx-int7"),
    ],
)
def test_the_bundled_model_in_fast_arithmetic(runtime, dtype, least):
    """The least cosine on the probe texts (0.990 was measured for int8, docs/engine.md)."""
    texts = probe_texts()[::2]
    expected = reference_vectors(*texts)

    assert cosines(expected, vectors("minilm", encoder_of("minilm", runtime, dtype), texts)).min() >= least


@pytest.mark.slow
@pytest.mark.parametrize(("runtime", "dtype"), FAST)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_in_fast_arithmetic(tiny: TinyModels, family, runtime, dtype):
    """A matrix read the wrong way round, or a scale at the wrong axis, would leave nothing of the cosine."""
    folder = tiny.folder(family)
    expected = reference_of(folder).encode(list(TEXTS))

    assert cosines(expected, vectors(folder, encoder_of(folder, runtime, dtype), TEXTS)).min() >= 0.98


# Batch equals single


@pytest.mark.slow
@pytest.mark.parametrize(("runtime", "dtype"), EVERY)
@pytest.mark.parametrize(
    "lengths",
    [
        pytest.param([7, 8, 9], id="around-8"),
        pytest.param([15, 16, 17], id="around-16"),
        pytest.param([16, 16, 16, 16], id="all-of-16"),
        pytest.param([31, 32, 33, 1], id="around-32-with-one-token"),
        pytest.param([5, 5, 5, 64, 5], id="one-long-among-short"),
        pytest.param([1], id="one-token-alone"),
        pytest.param([1] * 20, id="twenty-of-one-token"),
        pytest.param([255, 256, 3], id="at-the-models-length"),
        pytest.param([63, 64, 65, 2], id="around-64"),
    ],
)
def test_neighbours_of_chosen_lengths_change_nothing(lengths, runtime, dtype):
    """Lengths where kernels change blocks and where sizes are rounded."""
    assert_accepted_and_kept("minilm", runtime, dtype, batch_single("minilm", lengths, runtime, dtype))


@pytest.mark.slow
@pytest.mark.parametrize(("runtime", "dtype"), EVERY)
def test_neighbours_of_any_lengths_change_nothing(runtime, dtype):
    """Ten random mixes, two to nine texts of one to seventy tokens."""
    random = np.random.default_rng(11)
    least = [
        batch_single("minilm", random.integers(1, 70, random.integers(2, 10)).tolist(), runtime, dtype, seed)
        for seed in range(10)
    ]

    assert_accepted_and_kept("minilm", runtime, dtype, min(least))


@pytest.mark.slow
@pytest.mark.parametrize(("runtime", "dtype"), EVERY)
@pytest.mark.parametrize("family", FAMILIES)
def test_neighbours_change_nothing_in_any_family(tiny: TinyModels, family, runtime, dtype):
    """Positions, distances and masks belong to each text alone."""
    folder = tiny.folder(family)

    mixes = ([1, 40, 3, 16, 17], [8, 7, 9, 48])
    assert_accepted_and_kept(
        folder, runtime, dtype, min(batch_single(folder, lengths, runtime, dtype) for lengths in mixes)
    )


@pytest.mark.slow
@pytest.mark.parametrize(("runtime", "dtype"), [pair for pair in EVERY if pair[0] in {"onnx", "openvino"}])
def test_lanes_do_not_disturb_each_other(runtime, dtype):
    """Four threads at once, each with texts of its own, get what each gets alone."""
    encoder = encoder_of("minilm", runtime, dtype)
    work = [random_ids([4 + thread, 19, 2], 30000, seed=thread) for thread in range(4)]
    expected = [run(encoder, ids, Pooling.MEAN) for ids in work]
    found: dict[tuple[int, int], np.ndarray] = {}
    together = threading.Barrier(len(work))

    def lane(number: int) -> None:
        together.wait(10)
        for turn in range(5):
            found[number, turn] = run(encoder, work[number], Pooling.MEAN)

    threads = [threading.Thread(target=lane, args=(number,)) for number in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert len(found) == 20
    for (number, _), vectors in found.items():
        np.testing.assert_array_equal(expected[number], vectors)


@pytest.mark.slow
@pytest.mark.parametrize(("runtime", "dtype"), EVERY)
def test_a_batch_again_is_the_same_bit_for_bit(runtime, dtype):
    """Nothing of an earlier, larger batch is left in a runtime's buffers."""
    encoder = encoder_of("minilm", runtime, dtype)
    small, large = random_ids([5, 9], 30000), random_ids([60] * 12, 30000, seed=4)

    first = run(encoder, small, Pooling.MEAN)
    run(encoder, large, Pooling.MEAN)

    np.testing.assert_array_equal(first, run(encoder, small, Pooling.MEAN))


def assert_accepted_and_kept(source: str | Path, runtime: str, dtype: str, least_cosine: float) -> None:
    """The promise holds for what the autotuner accepts on this processor; what it refuses, it refuses for this."""
    reason = neighbour_fault(source, runtime, dtype)
    if reason:
        assert reason.startswith("neighbours change a vector")
        assert dtype != "fp32"  # the last resort: never refused
    else:
        assert least_cosine >= MIN_BATCH_SINGLE


@functools.cache
def neighbour_fault(source: str | Path, runtime: str, dtype: str) -> str:
    """Why the autotuner would refuse the encoder for its batches alone, or ""; the encoder is its own reference."""
    encoder = encoder_of(source, runtime, dtype)
    benchmark = EncoderBenchmark([text.ids for text in tokenizer_of(source).encode(probe_texts())], lanes=2, budget=512)
    vectors = benchmark.vectors(encoder)
    fidelity = measure_fidelity(vectors, *benchmark.batched_and_single(encoder, vectors), vectors)
    return rejection_reason(fidelity, AUTO)


def batch_single(source: str | Path, lengths: Sequence[int], runtime: str, dtype: str, seed: int = 3) -> float:
    """The least cosine between a text's vector in this batch and alone."""
    encoder = encoder_of(source, runtime, dtype)
    ids = random_ids(lengths, spec_of(source).shape.vocabulary_size - 1, seed)

    together = run(encoder, ids, Pooling.MEAN)
    alone = np.concatenate([run(encoder, [text], Pooling.MEAN) for text in ids])
    return float(cosines(together, alone).min())


# Odd input


@pytest.mark.slow
@pytest.mark.parametrize(("runtime", "dtype"), EVERY)
@pytest.mark.parametrize("family", FAMILIES)
def test_texts_as_long_as_the_position_table(tiny: TinyModels, family, runtime, dtype):
    """The last row of the table is used and none beyond it."""
    folder = tiny.plain(family)
    longest = spec_of(folder).max_tokens
    tokens = tokenizer_of(folder).encode(["de la " * 200])

    assert longest == len(tokens[0].ids) == 64
    assert np.isfinite(run(encoder_of(folder, runtime, dtype), [text.ids for text in tokens], Pooling.MEAN)).all()
