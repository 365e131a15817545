"""Dtypes by hardware and model, without emulated or overflowing ones; and torch's float32 precision."""

import importlib.util
import subprocess
import sys

import pytest

from backend.device.plan.precision import (
    DtypeChoice,
    amp_dtype,
    common,
    dtypes_for,
    for_model,
    fp32_precision,
    set_fp32_precision,
)
from backend.device.records import GPUInfo


def card(name, capability, *, bf16):
    """A card of this capability."""
    return GPUInfo(0, name, "GPU-a", 8 * 2**30, capability, bf16=bf16)


ADA = dtypes_for(card("NVIDIA GeForce RTX 4090", (8, 9), bf16=True))
TURING = dtypes_for(card("Tesla T4", (7, 5), bf16=False))


@pytest.mark.parametrize(
    ("name", "capability", "bf16", "expected", "word"),
    [
        pytest.param("NVIDIA H200", (9, 0), True, ("bf16", "fp16", "fp32"), "Hopper", id="hopper"),
        pytest.param("NVIDIA RTX 6000 Ada Generation", (8, 9), True, ("bf16", "fp16", "fp32"), "Ada", id="ada"),
        pytest.param("A card of 2030", (17, 0), True, ("bf16", "fp16", "fp32"), "newer than this table", id="future"),
        pytest.param("Tesla T4", (7, 5), False, ("fp16", "fp32"), "emulated", id="turing-emulates-bf16"),
        pytest.param("NVIDIA GeForce GTX 1660", (7, 5), False, ("fp32",), "wrong numbers", id="turing-without-cores"),
        pytest.param("Tesla P100-PCIE-16GB", (6, 0), False, ("fp16", "fp32"), "twice", id="p100-has-fast-fp16"),
        pytest.param("NVIDIA GeForce GTX 1080", (6, 1), False, ("fp32",), "slower", id="pascal-has-slow-fp16"),
        pytest.param("Apple M3", (0, 0), True, ("fp16", "bf16", "fp32"), "Apple", id="apple"),
        pytest.param("Apple M1", (0, 0), False, ("fp16", "fp32"), "Apple", id="apple-m1"),
    ],
)
def test_dtypes_of_a_card(name, capability, bf16, expected, word):
    """Best first, none emulated, float32 last; the reason names the hardware."""
    choice = dtypes_for(card(name, capability, bf16=bf16))

    assert expected == choice.dtypes
    assert word in choice.why
    assert choice.why.startswith(choice.dtypes[0])


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        pytest.param(("avx2", "avx512f", "avx512_vnni"), ("fp32",), id="cascade-lake"),
        pytest.param(("avx512_bf16",), ("bf16", "fp32"), id="cooper-lake"),
        pytest.param(("amx_bf16", "avx512_bf16"), ("bf16", "fp32"), id="sapphire-rapids"),
        pytest.param(("asimddp", "bf16"), ("bf16", "fp32"), id="graviton-3"),
    ],
)
def test_dtypes_of_a_processor(flags, expected):
    """bf16 only if the processor has it natively: emulated it is slower than float32."""
    assert expected == dtypes_for(None, flags).dtypes


@pytest.mark.parametrize(
    ("hardware", "model_type", "stored", "expected", "word"),
    [
        pytest.param(ADA, "bert", "float32", ("bf16", "fp16", "fp32"), "native", id="nothing-against-it"),
        pytest.param(ADA, "bert", None, ("bf16", "fp16", "fp32"), "native", id="dtype-unknown"),
        pytest.param(ADA, "modernbert", "bfloat16", ("bf16", "fp32"), "range", id="bf16-weights-not-in-fp16"),
        pytest.param(TURING, "modernbert", "torch.bfloat16", ("fp32",), "range", id="bf16-weights-on-turing"),
        pytest.param(ADA, "bert", "float16", ("fp16", "bf16", "fp32"), "stored so", id="fp16-weights-keep-their-bits"),
        pytest.param(TURING, "bert", "fp16", ("fp16", "fp32"), "native", id="fp16-weights-on-turing"),
        pytest.param(ADA, "gemma3_text", "float32", ("bf16", "fp32"), "unsloth#4014", id="embeddinggemma"),
        pytest.param(TURING, "gemma3_text", "float32", ("fp32",), "overflows", id="embeddinggemma-on-turing"),
        pytest.param(ADA, "mt5", "float16", ("bf16", "fp32"), "overflows", id="known-bad-before-stored-so"),
        pytest.param(
            DtypeChoice(("fp32",), "as it is"), "t5", "bfloat16", ("fp32",), "as it is", id="nothing-to-take-away"
        ),
    ],
)
def test_dtypes_of_a_model(hardware, model_type, stored, expected, word):
    """Dtypes that overflow are left out; weights stored in fp16 try fp16 first."""
    choice = for_model(hardware, model_type, stored)

    assert expected == choice.dtypes
    assert word in choice.why


def test_common():
    """Two cards use the dtypes of both, so that a text has the same vector on either."""
    shared = common([ADA, TURING])

    assert ("fp16", "fp32") == shared.dtypes
    assert "vectors agree" in shared.why
    assert ADA is common([ADA]), "one device needs no agreement"
    assert ADA is common([ADA, ADA])


@pytest.mark.parametrize(
    ("dtypes", "expected"), [(("bf16", "fp16", "fp32"), "bf16"), (("fp16", "fp32"), "fp16"), (("fp32",), None)]
)
def test_amp(dtypes, expected):
    """The first half-precision dtype."""
    assert expected == amp_dtype(dtypes)


def test_an_unknown_fp32_precision():
    """Refused, so that a typo does not change results."""
    before = fp32_precision()

    with pytest.raises(ValueError, match="neither 'ieee' nor 'tf32'"):
        set_fp32_precision("bf16")
    assert before == fp32_precision()


_AFTER_SETTING = """
import sys, warnings
warnings.simplefilter("error")
from backend.device.plan.precision import fp32_precision, set_fp32_precision
assert "ieee" == fp32_precision(), "torch's default"
import torch
backends = torch.backends
for mode in sys.argv[1:]:
    set_fp32_precision(mode)
    values = [fp32_precision(), backends.cuda.matmul.fp32_precision, backends.cudnn.conv.fp32_precision,
            backends.cudnn.rnn.fp32_precision]
    assert [mode] * 4 == values, values
    # Other people's code still reads the old names: torch.compile, OCR toolkits, benchmarks.
    assert (mode == "tf32") is backends.cuda.matmul.allow_tf32
    assert (mode == "tf32") is backends.cudnn.allow_tf32
    assert ("high" if mode == "tf32" else "highest") == torch.get_float32_matmul_precision()
    with backends.cudnn.flags(enabled=True):
        pass
    assert (mode == "tf32") is backends.cudnn.allow_tf32, "and a with-block gives it back"
    set_fp32_precision(mode)
warnings.simplefilter("ignore")  # theirs
import rapidocr, sentence_transformers, transformers
from transformers import BertConfig, BertModel
BertModel(BertConfig(vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8))
print("fine")
"""


@pytest.mark.slow  # imports large libraries in separate processes
@pytest.mark.parametrize("modes", [("tf32", "ieee", "tf32"), ("ieee", "tf32", "ieee")])
def test_old_and_new_interface_agree(modes):
    """In any order of modes; afterwards OCR and transformer libraries import and build a model.

    In a separate process, since the setting is global.
    """
    installed = [name for name in ("rapidocr", "sentence_transformers") if importlib.util.find_spec(name)]
    script = _AFTER_SETTING.replace(
        "import rapidocr, sentence_transformers, transformers", f"import {', '.join([*installed, 'transformers'])}"
    )
    done = subprocess.run([sys.executable, "-c", script, *modes], check=False, capture_output=True, text=True)

    assert "fine" == done.stdout.strip(), done.stderr
