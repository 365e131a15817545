"""What only OpenVINO can get wrong: round sizes, one request a thread, options of the plugin, signal stacks."""

import ctypes
import subprocess
import sys
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from backend.models import openvino_encoder
from backend.models.model_files import resolve
from backend.models.openvino_encoder import OpenVinoEncoder, _Stack, kept_signal_stack
from backend.models.spec import EncoderShape, Pooling
from tests.models.test_parity import random_ids, run
from tests.tiny_models import encoder_of

SHAPE = EncoderShape(
    family="bert", layers=6, width=384, heads=12, hidden_width=1536, vocabulary_size=100, positions=512,
    position_offset=0, epsilon=1e-12, activation="gelu",
)  # fmt: skip
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="signal stacks are handled on Linux only")
SURVIVES_A_CHILD = """
import signal, subprocess, sys
from backend.models.openvino_encoder import OpenVinoEncoder
from backend.models.model_files import resolve
signal.signal(signal.SIGCHLD, lambda number, frame: None)  # as torch's DataLoader has it
encoders = [OpenVinoEncoder(resolve("minilm"), dtype="fp32", lanes=2, threads=1) for _ in range(2)]
del encoders[0]
encoders.clear()
subprocess.run([sys.executable, "-c", ""], check=True)
print("alive")
"""


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [[1], [16], [17, 3], [5] * 7])
def test_sizes_are_rounded(lengths):
    """Few shapes serve every batch: rows are rounded to 4 and at least 8, lengths in attention to 16."""
    batch = encoder_of("minilm", "openvino", "int8").prepare(random_ids(lengths, 30000))

    assert len(batch.ids) % 4 == 0
    assert len(batch.ids) >= 8
    assert batch.scatter.shape[1] % 16 == 0
    assert sum(lengths) == batch.tokens


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "kept"), [("bf16", "f16"), ("fp32", "f32")])
def test_weights_beside_bfloat16_are_kept_in_half_precision(dtype, kept, monkeypatch):
    """OpenVINO keeps the weights that it was given beside those it computes with."""
    compiled = []
    monkeypatch.setattr(
        openvino_encoder.openvino.Core, "compile_model", lambda core, model, *rest: compiled.append(model) or Mock()
    )
    OpenVinoEncoder(resolve("minilm"), dtype=dtype, lanes=2, threads=1)
    constants = [node for node in compiled[0].get_ops() if node.get_type_name() == "Constant"]

    assert kept == max(constants, key=lambda node: node.get_byte_size()).get_element_type().get_type_name()


def test_results_outlive_the_next_call():
    """The runtime's buffer is overwritten; what was handed out is not."""
    encoder = encoder_of("minilm", "openvino", "int8")
    ids = random_ids([9, 4], 30000)
    batch = encoder.prepare(ids)
    output = encoder.forward(batch)
    hidden, pooled = encoder.hidden(output, batch), encoder.pooled(output, batch, Pooling.CLS)
    kept = hidden.copy(), pooled.copy()

    run(encoder, random_ids([9, 4], 30000, seed=9), Pooling.MEAN)

    np.testing.assert_array_equal(kept[0], hidden)
    np.testing.assert_array_equal(kept[1], pooled)


@pytest.mark.parametrize(
    ("dtype", "bf16", "hint", "group"),
    [
        pytest.param("fp32", True, "f32", 0, id="fp32-stays-fp32-on-a-bf16-machine"),
        pytest.param("bf16", True, "bf16", 0, id="bf16"),
        pytest.param("int8", True, "bf16", 128, id="int8-with-the-rest-in-bf16"),
        pytest.param("int8", False, "f32", 128, id="int8-where-there-is-no-bf16"),
    ],
)
def test_options(monkeypatch, dtype, bf16, hint, group):
    """Precision and quantisation are always said, never left to the plugin's default."""
    monkeypatch.setattr(openvino_encoder, "flags_beyond_limit", frozenset)  # a simulated processor has none of them
    options = openvino_encoder._arithmetic(dtype, replace(SHAPE, width=384, hidden_width=1536), bf16=bf16)

    assert (hint, group) == (options["INFERENCE_PRECISION_HINT"], options["DYNAMIC_QUANTIZATION_GROUP_SIZE"])


@pytest.mark.parametrize(
    ("width", "hidden_width", "group"),
    [
        pytest.param(768, 3072, 128, id="base"),
        pytest.param(1024, 4096, 128, id="large"),
        pytest.param(312, 1200, 312, id="not-divided-by-it"),
        pytest.param(384, 1200, 384, id="its-hidden-layer-not-divided-by-it"),
    ],
)
def test_a_scale_is_of_channels_that_divide_every_layer(width, hidden_width, group):
    """A group that divides only some layers would leave the others unquantised, at a third of the speed."""
    assert group == openvino_encoder._group_channels(replace(SHAPE, width=width, hidden_width=hidden_width))


@pytest.mark.slow
def test_wide_and_narrow_give_the_same_bits():
    """Whether other batches run meanwhile decides the threads, never the vector."""
    encoder = OpenVinoEncoder(resolve("minilm"), dtype="int8", lanes=2, threads=1)
    ids = random_ids([3, 17, 40, 5], 30000)
    wide = run(encoder, ids, Pooling.MEAN)
    encoder._running = 1  # as if another lane were at work
    narrow = run(encoder, ids, Pooling.MEAN)

    np.testing.assert_array_equal(wide, narrow)


def test_a_form_that_does_not_compile_leaves_the_other(monkeypatch, caplog):
    """No request pays for it, and the log tells why batches side by side are slow."""
    encoder = OpenVinoEncoder(resolve("minilm"), dtype="fp32", lanes=2, threads=1)
    monkeypatch.setattr(encoder, "_compile_narrow", Mock(side_effect=RuntimeError("no memory")))
    ids = random_ids([3], 30000)
    alone = run(encoder, ids, Pooling.MEAN)
    encoder._running = 1  # as if another lane were at work
    for _ in range(2):
        np.testing.assert_array_equal(alone, run(encoder, ids, Pooling.MEAN))

    assert 1 == caplog.text.count("no memory")


def signal_stack() -> tuple[int | None, int, int]:
    stack = _Stack()
    ctypes.CDLL(None).sigaltstack(None, ctypes.byref(stack))
    return stack.base, stack.size, stack.flags


@ON_LINUX
def test_the_signal_stack_of_before_is_back():
    """Also when the block fails."""
    before, memory = signal_stack(), ctypes.create_string_buffer(1 << 16)

    def leave_a_stack() -> None:
        with kept_signal_stack():
            ctypes.CDLL(None).sigaltstack(ctypes.byref(_Stack(ctypes.addressof(memory), 0, 1 << 16)), None)
            assert ctypes.addressof(memory) == signal_stack()[0]
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        leave_a_stack()

    assert before == signal_stack()


@ON_LINUX
@pytest.mark.slow
def test_a_process_that_drops_models_survives_its_children():
    """Compiled on the main thread, dropped, then a child ends: without the guard this was a SIGSEGV."""
    ended = subprocess.run(
        [sys.executable, "-c", SURVIVES_A_CHILD], capture_output=True, text=True, timeout=100, check=False
    )

    assert (0, "alive") == (ended.returncode, ended.stdout.strip()), ended.stderr
