"""The layer that turns a query's tokens: for the encoder it was learnt on, and for no other."""

from dataclasses import replace

import numpy as np
import pytest

from backend.models.calibration import relevance_by_tokens
from backend.models.model_files import BUNDLED_FULL
from backend.text.late_interaction import OwnTokens, asking, query_layer, relevance_of, token_cosines
from tests.text.service_stack import VectorEngine, loaded_model
from tests.tiny_models import spec_of

WIDTH = 384


@pytest.fixture
def tokens() -> OwnTokens:
    vectors = np.random.default_rng(3).standard_normal((5, WIDTH)).astype(np.float32)
    return OwnTokens(np.arange(100, 105), vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def test_the_bundled_encoders_queries_are_turned(tokens):
    """Each token by one linear layer; a document's stay as they are."""
    model = loaded_model(VectorEngine(), sha256=spec_of(BUNDLED_FULL).sha256)
    layer = query_layer(spec_of(BUNDLED_FULL))

    turned = asking(tokens, model)

    expected = tokens.vectors @ layer.weight.T + layer.bias
    assert turned.vectors == pytest.approx(expected, abs=1e-4)
    nearest = (expected @ tokens.vectors.T).max(axis=1)
    weights = np.log(tokens.ids / 20)
    assert token_cosines(turned, [tokens])[0] == pytest.approx(np.average(nearest, weights=weights), abs=1e-4)


@pytest.mark.parametrize("changes", [{"sha256": "b" * 64}, {"adapter": "a-folder"}])
def test_other_encoders_queries_stay(tokens, changes):
    """Weights that are not those it was learnt on, or that an adapter changes, give vectors that mean other things."""
    model = loaded_model(VectorEngine(), **{"sha256": spec_of(BUNDLED_FULL).sha256, **changes})
    scores = np.array([0.3, 0.9], np.float32)

    assert query_layer(replace(spec_of(BUNDLED_FULL), **changes)) is None
    assert tokens is asking(tokens, model)
    assert relevance_of(scores, 0.2, model) == pytest.approx(relevance_by_tokens(scores, 0.2))
