"""Keys: equal inputs have equal keys, and only those."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.lanes.cache.store import KEY_BYTES, CacheNamespace

any_text = st.text(st.characters(exclude_categories=()))  # lone surrogates and NUL included
parts = st.lists(any_text, max_size=4)
inputs = st.tuples(st.just("text"), any_text) | st.tuples(st.just("ids"), st.lists(st.integers(0, 2**63 - 1)))
paths = st.tuples(parts, st.lists(parts, max_size=2), inputs)


def key_of(path):
    parts, narrowings, (kind, data) = path
    namespace = CacheNamespace(*parts)
    for parameters in narrowings:
        namespace = namespace.narrow(*parameters)
    return namespace.key(kind, data)


@given(paths, paths)
def test_only_equal_paths_share_a_key(first, second):
    """Keys are equal exactly when model, parameters, kind and input are."""
    assert (first == second) == (key_of(first) == key_of(second))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param((["ab", "c"], [], ("text", "x")), (["a", "bc"], [], ("text", "x")), id="parts-moved"),
        pytest.param((["a"], [["b"]], ("text", "x")), (["a", "b"], [], ("text", "x")), id="part-or-parameter"),
        pytest.param((["a"], [[]], ("text", "x")), (["a"], [], ("text", "x")), id="no-parameters-or-not-narrowed"),
        pytest.param((["a"], [], ("text", "bx")), (["ab"], [], ("text", "x")), id="part-or-text"),
        pytest.param((["a"], [], ("text", "\0" * 8)), (["a"], [], ("ids", [0])), id="text-or-ids"),
        pytest.param((["a"], [], ("text", "x")), (["a"], [], ("file", b"x")), id="text-or-file"),
        pytest.param(
            (["a"], [], ("text", "\ud83d\ude00")), (["a"], [], ("text", "\U0001f600")), id="surrogates-or-emoji"
        ),
        pytest.param((["a"], [], ("text", "a\0")), (["a"], [], ("text", "a")), id="trailing-nul"),
    ],
)
def test_near_collisions(first, second):
    """Inputs that plain concatenation would confuse have different keys."""
    assert key_of(first) != key_of(second)


def test_keys_are_stable():
    """Replicas and restarts find each other's entries: these bytes change only on purpose."""
    namespace = CacheNamespace("all-MiniLM-L6-v2", "bundled", "53aa5117", "onnx", "int8").narrow("prompt=", "max=256")

    assert KEY_BYTES == len(namespace.key("text", "Factura nº 7"))
    assert "266c736d3d4640d309a3d391a14c10b5" == namespace.key("text", "Factura nº 7").hex()
    assert "60efbc35a2f4feb1dea810efedddffb2" == namespace.key("ids", [101, 7592, 102]).hex()
    for dtype in (np.int32, np.int64):
        assert "60efbc35a2f4feb1dea810efedddffb2" == namespace.key("ids", np.array([101, 7592, 102], dtype)).hex()


@pytest.mark.parametrize(
    ("ids", "error"),
    [
        pytest.param([1.5], TypeError, id="no-integer"),
        pytest.param(["7"], TypeError, id="text"),
        pytest.param([2**63], OverflowError, id="beyond-64-bits"),
    ],
)
def test_invalid_ids_have_no_key(ids, error):
    """Unchecked token ids raise."""
    with pytest.raises(error):
        CacheNamespace("a").key("ids", ids)
