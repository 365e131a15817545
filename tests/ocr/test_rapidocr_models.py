"""Which characters RapidOCR's networks answer with, and the memory they take."""

import numpy as np
import psutil
import pytest

from backend.device.memory.device_memory import trim_heap
from backend.ocr.rapidocr_models import LANGUAGES, RapidOcrModels, is_latin, is_latin_print


@pytest.mark.parametrize(
    ("languages", "expected"), [(("es", "en"), True), (("fr",), True), (("es", "zh"), False), (("vi",), False)]
)
def test_is_latin_print(languages, expected):
    """One language beyond Latin print needs the full character set."""
    assert expected == is_latin_print(languages)
    assert all(language in LANGUAGES for language in languages)


def test_latin_characters():
    """What Spanish invoices contain, without similar characters of other scripts."""
    assert all(is_latin(character) for character in "añÑéü¿¡ºª€—“”0%")
    assert not any(is_latin(character) for character in "丨〇Ⅰα")


def test_the_latin_recogniser_is_a_cut_of_the_full_one():
    """Its classes keep their order, blank first and space last, and their relative probabilities."""
    models = RapidOcrModels("cpu", 1)
    latin, every = models.characters(latin=True), models.characters(latin=False)
    noise = np.random.default_rng(5).normal(size=(1, 3, 48, 320)).astype(np.float32)
    cut, full = (models.run("recognize", noise, latin=flag)[0] for flag in (True, False))
    kept = [every.index(character) for character in latin]

    assert ("", " ") == (latin[0], latin[-1])
    assert len(latin) < 700
    assert len(every) > 18_000
    np.testing.assert_allclose(cut, full[:, kept] / full[:, kept].sum(axis=1, keepdims=True), atol=1e-4)


@pytest.mark.slow
def test_release_memory():
    """Frees the memory of a page, and the next page gives the same result, also from networks that were dropped."""
    models = RapidOcrModels("cpu", 1)
    models.release_memory()  # nothing is open yet
    page = np.zeros((1, 3, 1280, 960), np.float32)
    expected = models.run("detect", page)
    trim_heap()  # what earlier tests of this process have freed is not counted
    held = psutil.Process().memory_info().rss
    models.release_memory()
    trim_heap()  # as the service does; malloc keeps blocks of up to 32 MB once it has seen larger ones freed

    assert psutil.Process().memory_info().rss < held - 50 * 2**20
    np.testing.assert_array_equal(expected, models.run("detect", page))
    models.unload()
    np.testing.assert_array_equal(expected, models.run("detect", page))
