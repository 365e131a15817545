"""Token vectors, and their sums over spans of a text, window by window."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.engines.analysis import TASK, SpanSums, TokenVectorsHead
from backend.engines.encoder_engine import EncoderEngine
from backend.models.encoder import pool
from backend.models.encoder_source import PinnedEncoder
from backend.models.spec import Pooling
from backend.models.windows import Window, cut
from tests.tiny_models import encoder_of, spec_of, tokenizer_of

WIDTH = 4


def spec(pooling: Pooling = Pooling.MEAN, *, normalize: bool = False) -> SimpleNamespace:
    return SimpleNamespace(width=WIDTH, pooling=pooling, normalize=normalize)


def windows_of(places: list[tuple[int, int]], size: int, overlap: int) -> list[Window]:
    """Windows over tokens at these places, a special token on either side."""
    made = []
    for start, stop, own_start, own_stop in cut(len(places), size, overlap):
        framed = np.array([(-1, -1), *places[start:stop], (-1, -1)], np.int64)
        ids = np.array([0, *range(start + 1, stop + 1), 0], np.int64)
        made.append(Window(ids, framed, np.full(len(ids), -1), own_start - start + 1, own_stop - start + 1))
    return made


def vectors_of(window: Window) -> np.ndarray:
    """A vector a token that only its id decides."""
    return np.stack([np.random.default_rng(int(number)).standard_normal(WIDTH) for number in window.ids]).astype("f4")


@st.composite
def texts(draw):
    """Places of tokens, one after the other with gaps, and spans over them, some empty or within others."""
    sizes = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), min_size=1, max_size=40))
    places, at = [], 0
    for gap, length in sizes:
        places.append((at + gap, at + gap + length))
        at += gap + length
    ends = st.integers(0, at + 2)
    spans = draw(st.lists(st.tuples(ends, ends).map(sorted), max_size=8))
    size = draw(st.integers(2, 12))
    return places, np.array(spans, np.int64).reshape(-1, 2), size, draw(st.integers(0, size - 1))


@given(texts())
def test_spans_are_the_sums_of_the_tokens_that_begin_in_them(text):
    """Wherever the windows are cut, overlaps counted once; of length one, zeros where no token begins."""
    places, spans, size, overlap = text
    sums = SpanSums(spans, spec())  # type: ignore[arg-type]
    for window in windows_of(places, size, overlap):
        sums.add(window, vectors_of(window))

    each = np.stack([np.random.default_rng(number + 1).standard_normal(WIDTH) for number in range(len(places))])
    for (start, stop), found in zip(spans.tolist(), sums.span_vectors(), strict=True):
        inside = [start <= first < stop for first, _ in places]
        total = each[inside].sum(axis=0)
        np.testing.assert_allclose(found, total / max(np.linalg.norm(total), 1e-12), atol=1e-5)


@given(texts(), st.sampled_from(Pooling), st.booleans())
def test_the_text_vector_is_the_mean_of_the_windows(text, pooling, normalize):
    """Each window pooled as the model pools a text, weighted by the tokens it owns."""
    places, spans, size, overlap = text
    windows = windows_of(places, size, overlap)
    sums = SpanSums(spans, spec(pooling, normalize=normalize))  # type: ignore[arg-type]
    for window in windows:
        sums.add(window, vectors_of(window))

    pooled = [_pooled(vectors_of(window), pooling) for window in windows]
    expected = np.average(pooled, axis=0, weights=[window.own_stop - window.own_start for window in windows])
    expected = expected / np.linalg.norm(expected) if normalize else expected
    np.testing.assert_allclose(sums.text_vector(), expected, atol=1e-5)


def _pooled(vectors: np.ndarray, pooling: Pooling) -> np.ndarray:
    batch = SimpleNamespace(starts=np.array([0]), lengths=np.array([len(vectors)]))
    return pool(vectors, batch, pooling)[0]  # type: ignore[arg-type]


def test_a_text_without_windows_gives_zeros():
    sums = SpanSums(np.array([[0, 3]]), spec(normalize=True))  # type: ignore[arg-type]

    assert not sums.text_vector().any()
    assert not sums.span_vectors().any()


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["onnx", "openvino", "torch"])
def test_token_vectors_pooled_are_the_texts_vector(runtime):
    """The analysis and the embedding of a text use the same token vectors, in a batch as alone."""
    encoder = encoder_of("minilm", runtime, "fp32")
    ids = [text.ids for text in tokenizer_of("minilm").encode(["la factura", "the total is due " * 20, ""])]
    engine = EncoderEngine(TASK, PinnedEncoder(encoder), TokenVectorsHead(), budget=512)

    rows = engine.finish(engine.forward(engine.prepare(ids)))

    batch = encoder.prepare(ids)
    pooled = encoder.pooled(encoder.forward(batch), batch, Pooling.MEAN)
    assert [(len(text), spec_of("minilm").width) for text in ids] == [row.shape for row in rows]
    np.testing.assert_allclose([row.mean(axis=0) for row in rows], pooled, atol=1e-5)
