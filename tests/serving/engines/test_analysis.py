"""Sums of token vectors over spans of a text, window by window; computed here and on a device."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.lanes.engine import EncoderEngine, Float32Encoder, Float32Fallback, PinnedEncoder
from backend.models.encoder import SpannedText, pack, pool, pooled_and_sums, with_spans
from backend.models.spec import Pooling
from backend.models.tokenizer import Window, cut
from backend.serving.engines.heads import ANALYSIS, SpannedWindow, SpanSums, SpanSumsHead, spanned
from backend.telemetry import Telemetry
from tests.models.test_parity import random_ids
from tests.tiny_models import FAMILIES, TinyModels, encoder_of, spec_of

WIDTH = 4


def spec(*, normalize: bool = False) -> SimpleNamespace:
    return SimpleNamespace(width=WIDTH, normalize=normalize)


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


def computed(part: SpannedWindow) -> np.ndarray:
    """What the engine gives for a window, from the vectors that ``vectors_of`` makes up."""
    payload = SpannedText(part.window.ids, part.spans)
    batch = with_spans(pack([payload.ids]), [payload])
    return pooled_and_sums(vectors_of(part.window), batch, Pooling.MEAN)[0]


def sums_of(spans: np.ndarray, windows: Sequence[Window]) -> SpanSums:
    sums = SpanSums(len(spans), spec())  # type: ignore[arg-type]
    for part in (spanned(window, spans) for window in windows):
        sums.add(part, computed(part))
    return sums


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
    sums = sums_of(spans, windows_of(places, size, overlap))

    each = np.stack([np.random.default_rng(number + 1).standard_normal(WIDTH) for number in range(len(places))])
    for (start, stop), found in zip(spans.tolist(), sums.span_vectors(), strict=True):
        inside = [start <= first < stop for first, _ in places]
        total = each[inside].sum(axis=0)
        np.testing.assert_allclose(found, total / max(np.linalg.norm(total), 1e-12), atol=1e-5)


def test_a_text_without_windows_gives_zeros():
    sums = SpanSums(1, spec(normalize=True))  # type: ignore[arg-type]

    assert not sums.text_vector().any()
    assert not sums.span_vectors().any()


# On a device

SPANS: Sequence[Sequence[tuple[int, int]]] = (
    [(0, 3), (1, 3), (2, 3)],  # the whole text, and spans within each other
    [],
    [(40, 60), (0, 20), (10, 50), (59, 60)],  # in any order
    [(0, 1)],
)
LENGTHS = (3, 20, 60, 1)


def payloads_of(folder: Any) -> list[SpannedText]:
    ids = random_ids(LENGTHS, spec_of(folder).shape.vocabulary_size - 1, 3)
    return [SpannedText(text, np.array(spans, np.int64).reshape(-1, 2)) for text, spans in zip(ids, SPANS, strict=True)]


def run(encoder: Any, pooling: Pooling, payloads: Sequence[SpannedText], **options: Any) -> Sequence[Any]:
    engine = EncoderEngine(ANALYSIS, PinnedEncoder(encoder), SpanSumsHead(pooling), budget=512, **options)
    return engine.finish(engine.forward(engine.prepare(payloads)))


def by_hand(encoder: Any, pooling: Pooling, payloads: Sequence[SpannedText]) -> list[np.ndarray]:
    """Each text alone, its token vectors brought here and summed in float64."""
    rows = []
    for payload in payloads:
        batch = encoder.prepare([payload.ids])
        hidden = encoder.hidden(encoder.forward(batch), batch)
        sums = [hidden[first:stop].sum(axis=0, dtype=np.float64) for first, stop in payload.spans]
        rows.append(np.stack([pool(hidden, batch, pooling)[0], *sums]))
    return rows


@pytest.mark.parametrize("runtime", ["onnx", "torch", "torch-packed"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gives_the_sums_of_its_token_vectors(tiny: TinyModels, family, runtime):
    """In a batch with texts of other lengths, and the same where a device computes the sums."""
    folder = tiny.plain(family)
    encoder, payloads = encoder_of(folder, runtime, "fp32"), payloads_of(folder)

    for found, expected in zip(
        run(encoder, Pooling.MEAN, payloads), by_hand(encoder, Pooling.MEAN, payloads), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


class CountingTransfers:
    """A device's transfers that count the bytes brought home."""

    def __init__(self, transfers: Any) -> None:
        self._transfers = transfers
        self.bytes_home = 0

    def buffer(self, size: int) -> Any:
        return self._transfers.buffer(size)

    def copy_out(self, values: Any) -> Callable[[], Any]:
        self.bytes_home += values.nbytes
        copy: Callable[[], Any] = self._transfers.copy_out(values)
        return copy


@pytest.mark.parametrize("runtime", ["torch", "torch-packed"])
def test_only_sums_come_home(tiny: TinyModels, monkeypatch, runtime):
    """A row a text and a row a span, with one number each that says whether it is finite; no token vector."""
    folder = tiny.plain("bert")
    encoder: Any = encoder_of(folder, runtime, "fp32")
    transfers = CountingTransfers(encoder._transfers)
    monkeypatch.setattr(encoder, "_transfers", transfers)
    payloads = payloads_of(folder)

    run(encoder, Pooling.MEAN, payloads)
    rows = sum(1 + len(payload.spans) for payload in payloads)
    assert rows * (spec_of(folder).width + 1) * 4 == transfers.bytes_home
    assert rows < sum(LENGTHS) / 5


class Overflowing:
    """An encoder without a device in which the tokens 13 overflow."""

    runtime, dtype, padding_cost = "fake", "fp16", 0.0

    def __init__(self, value: float) -> None:
        self._value = value

    def prepare(self, ids: Any) -> Any:
        return pack(ids)

    def forward(self, batch: Any) -> np.ndarray:
        first = np.where(batch.ids == 13, self._value, batch.ids)
        return np.stack([first, np.ones(len(first))], axis=1).astype(np.float32)

    def hidden(self, output: np.ndarray, batch: Any) -> np.ndarray:
        return output

    def pooled(self, output: np.ndarray, batch: Any, pooling: Pooling) -> np.ndarray:
        return pool(output, batch, pooling)


def test_a_text_that_is_computed_again_keeps_its_spans():
    """The spans travel with the text, and its neighbours are untouched."""
    fallback = Float32Fallback(Float32Encoder(lambda: Overflowing(7.0)), ANALYSIS, Telemetry())
    texts = [([1, 2], [(0, 2)]), ([4, 13, 6], [(1, 3), (0, 1)]), ([8], [(0, 1)])]
    payloads = [SpannedText(np.array(ids), np.array(spans)) for ids, spans in texts]

    first, again, last = run(Overflowing(np.inf), Pooling.MEAN, payloads, fallback=fallback)
    assert [[1.5, 1], [3, 2]] == first.tolist()
    assert [pytest.approx([17 / 3, 1]), [13, 2], [4, 1]] == again.tolist()
    assert [[8, 1], [8, 1]] == last.tolist()
