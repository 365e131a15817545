"""Pages of the document image task: read once, unreadable ones reported, split by class."""

import logging
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from backend.errors import BadData
from backend.training.data.images import ImageCache, PageData, PageStore, read_pages
from backend.training.tasks.pretrained import Preprocessing


def noise(file: Path, seed: int) -> Path:
    """Save a unique image."""
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (9, 7, 3), dtype=np.uint8)).save(file)
    return file


def archive(root: Path, counts: dict[str, int]) -> Path:
    """Save ``counts`` unique images in one folder per class."""
    for place, (label, count) in enumerate(counts.items()):
        for number in range(count):
            noise(root / label / f"{number:02}.png", 1000 * place + number)
    return root


def read(data: Path, *, cache_bytes: int = 1 << 20, **options: object) -> PageData:
    return read_pages(data, PageStore(Preprocessing(8, 6), ImageCache(cache_bytes)), **options)


def test_a_share_of_each_class_is_held_out(tmp_path: Path):
    """Rare classes are evaluated too, no page is in both parts, and the split is reproducible."""
    data = archive(tmp_path, {"letter": 40, "form": 20, "bill": 10, "note": 5})

    pages = read(data, held_out=0.2)

    assert ("bill", "form", "letter", "note") == pages.labels
    assert {"letter": 8, "form": 4, "bill": 2, "note": 1} == Counter(page.label for page in pages.evaluation)
    assert (8, 16, 32, 4) == pages.counts
    assert not {page.file for page in pages.train} & {page.file for page in pages.evaluation}
    assert pages == read(data, held_out=0.2)


def test_copies_stay_on_one_side(tmp_path: Path):
    """Identical images under different names are not split between training and evaluation."""
    data = archive(tmp_path, {"letter": 10, "form": 10})
    for number in range(10):
        noise(data / f"letter/copy{number}.png", number)  # the letter of this number again

    pages = read(data, held_out=0.3)

    trained, evaluated = ({page.file.read_bytes() for page in part} for part in (pages.train, pages.evaluation))
    assert 9 == len(pages.evaluation)
    assert not trained & evaluated


def test_the_data_may_say_what_is_for_evaluation(tmp_path: Path):
    """Nothing is held out of what is for training then."""
    archive(tmp_path / "train", {"letter": 10, "form": 10})
    archive(tmp_path / "dev", {"letter": 1, "form": 2})

    pages = read(tmp_path)

    assert (20, 3) == (len(pages.train), len(pages.evaluation))


def test_evaluation_data_of_its_own(tmp_path: Path):
    """It is used whole, unless it says which part of it is for evaluation."""
    data = archive(tmp_path / "a", {"letter": 3, "form": 3})
    other = archive(tmp_path / "b", {"letter": 2, "form": 1})
    split = tmp_path / "c"
    archive(split / "train", {"letter": 2})
    archive(split / "test", {"letter": 1})

    assert (6, 3) == tuple(
        len(part) for part in (read(data, evaluation=other).train, read(data, evaluation=other).evaluation)
    )
    assert 1 == len(read(data, evaluation=split).evaluation)
    assert (data, other) == read(data, evaluation=other).origin


def test_broken_pages_are_left_out_counted_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Three of a hundred cannot be read: the run goes on without them and says which."""
    data = archive(tmp_path, {"letter": 60, "form": 37})
    for name in ("form/a.png", "form/b.pdf", "letter/c.png"):
        (data / name).write_bytes(b"%PDF-")

    with caplog.at_level(logging.WARNING):
        pages = read(data, threads=4)

    assert ["a.png", "b.pdf", "c.png"] == [image.file.name for image in pages.skipped]
    assert "render its pages first" in pages.skipped[1].why
    assert 97 == len(pages.train) + len(pages.evaluation)
    [record] = caplog.records
    assert (3, 97) == (record.fields["left_out"], record.fields["readable"])


def test_checking_the_pages_fills_the_cache(tmp_path: Path):
    """The first epoch decodes nothing again."""
    store = PageStore(Preprocessing(8, 6), ImageCache(1 << 20))
    pages = read_pages(archive(tmp_path, {"letter": 5, "form": 5}), store)

    assert (10, 10) == (len(store.cache), store.cache.misses)
    assert (8, 6, 3) == store.pixels(pages.train[0].file).shape
    assert 1 == store.cache.hits


@pytest.mark.parametrize(
    ("counts", "broken", "message"),
    [
        pytest.param({"letter": 3}, (), r"has 1 readable classes to learn \(letter\); at least 2 are needed", id="one"),
        pytest.param({"letter": 3}, ("form/a.png",), r"1 images cannot be read: a\.png: not an image", id="broken"),
        pytest.param({}, ("form/a.png", "letter/b.png"), "has 0 readable classes", id="nothing-readable"),
    ],
)
def test_too_few_classes(tmp_path: Path, counts: dict[str, int], broken: tuple[str, ...], message: str):
    """A single class is an error; unreadable images that caused it are named."""
    archive(tmp_path, counts)
    for name in broken:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")

    with pytest.raises(BadData, match=message):
        read(tmp_path)


def test_an_unknown_label_at_evaluation(tmp_path: Path):
    """It can never be predicted: the file and the label are named."""
    data = archive(tmp_path / "a", {"letter": 2, "form": 2})
    other = archive(tmp_path / "b", {"letter": 1, "receipt": 1})

    with pytest.raises(BadData, match=r"receipt.00\.png: the evaluation data has the label 'receipt'.*form, letter"):
        read(data, evaluation=other)
