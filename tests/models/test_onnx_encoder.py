"""What only ONNX Runtime can get wrong: threads, lanes that share a session, models without a graph."""

import numpy as np
import pytest

from backend.models import onnx_encoder
from backend.models.encoder import pack
from backend.models.onnx_graph import graph_inputs
from tests.models.test_parity import random_ids


def test_threads_are_the_lanes_own():
    """A session starts no more threads than a lane has, and none spins while another lane works."""
    options = onnx_encoder.session_options(3)

    assert (3, 1) == (options.intra_op_num_threads, options.inter_op_num_threads)
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


@pytest.mark.parametrize("relative", [True, False])
def test_inputs(relative):
    """Each token's row of the table as float32. Only MPNet's graph takes distances, one for each pair of slots."""
    batch = pack(random_ids([3, 5], 100), length_multiple=8)

    words = np.random.default_rng(1).normal(size=(100, 4)).astype(np.float16)

    inputs = graph_inputs(batch, words, {"relative"} if relative else ())

    assert relative == ("relative" in inputs)
    assert not relative or inputs["relative"].shape == (8, 8)
    assert np.array_equal(words[batch.ids].astype(np.float32), inputs["words"])
    assert np.float32 == inputs["words"].dtype
