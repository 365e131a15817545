"""Answers of workers as records."""

import numpy as np

from backend.files.file_readers import parse_text_layer
from backend.files.frames import Frame
from backend.files.pages import Box


def test_what_words_have_in_common_is_there_once() -> None:
    """Of a text of five million characters, the words of its pages take 248 MB instead of 416."""
    boxes = np.array([[10, 20.004, 30, 32], [40, 20.004, 60, 32], [10, 40, 30, 52]], np.float32)
    places = np.array([[0, 0, 1], [0, 0, 0]], np.int32)  # lines, blocks
    texts = ["".join(("d", end)) for end in "eee"]  # three objects
    header = {"texts": texts, "rulings": 0, "turn": 0, "width": 90.0, "height": 90.0, "stats": {}}

    layer = parse_text_layer(Frame(header, bytearray(boxes.tobytes() + places.tobytes())))

    [[[first, second], [below]]] = layer.blocks
    assert [Box(10, 20, 30, 32), Box(40, 20, 60, 32), Box(10, 40, 30, 52)] == [w.box for w in (first, second, below)]
    assert first.box.top is second.box.top
    assert first.box.left is below.box.left
    assert first.text is second.text is below.text
