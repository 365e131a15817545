"""Where RapidOCR's networks run, and what they may answer."""

from __future__ import annotations

import numpy as np
import psutil
import pytest

from backend.engines.ocr.rapidocr_charset import LANGUAGES, is_latin, is_latin_print
from backend.engines.ocr.rapidocr_models import RapidModels, choose_provider, rapid_version

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


@pytest.mark.parametrize(
    ("device", "available", "expected", "why"),
    [
        pytest.param("cpu", [CUDA, CPU], CPU, "as the models are", id="the-cpu-was-chosen"),
        pytest.param("mps", [CPU], CPU, "mps", id="a-device-that-onnx-runtime-does-not-know"),
        pytest.param("cuda:1", [CUDA, CPU], CUDA, "cuda:1", id="cuda"),
        pytest.param("cuda:0", [CPU], CPU, "install onnxruntime-gpu", id="cuda-without-the-package-is-told"),
    ],
)
def test_choose_provider(device, available, expected, why):
    """The device of the models where ONNX Runtime can; never another one in silence."""
    provider = choose_provider(device, available)

    assert expected == provider.name
    assert why in provider.why


def test_cuda_is_told_which_card_and_to_search_by_heuristic():
    """The default search tries every algorithm for every new shape."""
    options = choose_provider("cuda:1", [CUDA]).options

    assert {"device_id": "1", "cudnn_conv_algo_search": "HEURISTIC"} == dict(options)


@pytest.mark.parametrize(
    ("languages", "expected"), [(("es", "en"), True), (("fr",), True), (("es", "zh"), False), (("vi",), False)]
)
def test_is_latin_print(languages, expected):
    """One language beyond it, and the whole alphabet is needed."""
    assert expected == is_latin_print(languages)
    assert all(language in LANGUAGES for language in languages)


def test_latin_characters():
    """What Spanish invoices hold, and not what only looks like it."""
    assert all(is_latin(character) for character in "añÑéü¿¡ºª€—“”0%")
    assert not any(is_latin(character) for character in "丨〇Ⅰα")


def test_the_package_is_here():
    """It is a dependency; without it every test below would be about nothing."""
    assert rapid_version()


def test_the_latin_recogniser_is_the_whole_one_cut():
    """The kept characters keep their order: blank first, space last, and the same likeliest letters."""
    models = RapidModels("cpu", 1)
    latin, every = models.characters(latin=True), models.characters(latin=False)
    noise = np.random.default_rng(5).normal(size=(1, 3, 48, 320)).astype(np.float32)
    cut, whole = (models.run("recognize", noise, latin=flag)[0] for flag in (True, False))
    kept = [every.index(character) for character in latin]

    assert ("", " ") == (latin[0], latin[-1])
    assert len(latin) < 700
    assert len(every) > 18_000
    np.testing.assert_allclose(cut, whole[:, kept] / whole[:, kept].sum(axis=1, keepdims=True), atol=1e-4)


def test_give_back():
    """A page takes some hundred MB, which go back to the system when they are asked for, and the next page is read."""
    models = RapidModels("cpu", 1)
    models.give_back()  # nothing is open yet
    page = np.zeros((1, 3, 1280, 960), np.float32)
    expected = models.run("detect", page)
    held = psutil.Process().memory_info().rss
    models.give_back()

    assert psutil.Process().memory_info().rss < held - 50 * 2**20
    np.testing.assert_array_equal(expected, models.run("detect", page))
