"""What only ONNX Runtime can get wrong: threads."""

from backend.models import onnx_encoder


def test_threads_are_the_lanes_own():
    """A session starts no more threads than a lane has, and none spins while another lane works."""
    options = onnx_encoder.session_options(3)

    assert (3, 1) == (options.intra_op_num_threads, options.inter_op_num_threads)
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
