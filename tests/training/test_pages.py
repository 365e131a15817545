"""The pages of a document image task: every one read once, broken ones named, the split fair."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from backend.errors import BadData
from backend.training.data.document_pages import PageData, PageStore, read_pages
from backend.training.data.images import ImageCache
from backend.training.tasks.image_models import Preparation


def noise(file: Path, seed: int) -> Path:
    """A picture like no other."""
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (9, 7, 3), dtype=np.uint8)).save(file)
    return file


def archive(root: Path, counts: dict[str, int]) -> Path:
    """One folder a class."""
    for place, (label, count) in enumerate(counts.items()):
        for number in range(count):
            noise(root / label / f"{number:02}.png", 1000 * place + number)
    return root


def read(data: Path, *, cache_bytes: int = 1 << 20, **options: object) -> PageData:
    return read_pages(data, PageStore(Preparation(8, 6), ImageCache(cache_bytes)), **options)


def test_a_share_of_each_class_is_held_out(tmp_path: Path):
    """Rare classes are judged too, nothing is in both parts, and the same data are split the same way."""
    data = archive(tmp_path, {"letter": 40, "form": 20, "bill": 10, "note": 5})

    pages = read(data, held_out=0.2)

    assert ("bill", "form", "letter", "note") == pages.labels
    assert {"letter": 8, "form": 4, "bill": 2, "note": 1} == Counter(one.label for one in pages.judge)
    assert (8, 16, 32, 4) == pages.counts
    assert not {one.file for one in pages.learn} & {one.file for one in pages.judge}
    assert pages == read(data, held_out=0.2)


def test_copies_stay_on_one_side(tmp_path: Path):
    """The same picture under other names proves nothing at evaluation."""
    data = archive(tmp_path, {"letter": 10, "form": 10})
    for number in range(10):
        noise(data / f"letter/copy{number}.png", number)  # the letter of this number again

    pages = read(data, held_out=0.3)

    learnt, judged = ({one.file.read_bytes() for one in part} for part in (pages.learn, pages.judge))
    assert 9 == len(pages.judge)
    assert not learnt & judged


def test_the_data_may_say_what_is_for_evaluation(tmp_path: Path):
    """Nothing is held out of what is for training then."""
    archive(tmp_path / "train", {"letter": 10, "form": 10})
    archive(tmp_path / "dev", {"letter": 1, "form": 2})

    pages = read(tmp_path)

    assert (20, 3) == (len(pages.learn), len(pages.judge))


def test_evaluation_data_of_its_own(tmp_path: Path):
    """It is used whole, unless it says which part of it is for evaluation."""
    data = archive(tmp_path / "a", {"letter": 3, "form": 3})
    other = archive(tmp_path / "b", {"letter": 2, "form": 1})
    split = tmp_path / "c"
    archive(split / "train", {"letter": 2})
    archive(split / "test", {"letter": 1})

    assert (6, 3) == tuple(
        len(part) for part in (read(data, evaluation=other).learn, read(data, evaluation=other).judge)
    )
    assert 1 == len(read(data, evaluation=split).judge)
    assert (data, other) == read(data, evaluation=other).origin


def test_no_evaluation(tmp_path: Path):
    """A share of 0 learns from everything."""
    pages = read(archive(tmp_path, {"letter": 3, "form": 3}), held_out=0)

    assert (6, 0) == (len(pages.learn), len(pages.judge))


def test_broken_pages_are_left_out_counted_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Three of a hundred cannot be read: the run goes on without them and says which."""
    data = archive(tmp_path, {"letter": 60, "form": 37})
    for name in ("form/a.png", "form/b.pdf", "letter/c.png"):
        (data / name).write_bytes(b"%PDF-")

    with caplog.at_level(logging.WARNING):
        pages = read(data, threads=4)

    assert ["a.png", "b.pdf", "c.png"] == [one.file.name for one in pages.skipped]
    assert "render its pages first" in pages.skipped[1].why
    assert 97 == len(pages.learn) + len(pages.judge)
    [record] = caplog.records
    assert (3, 97) == (record.fields["left_out"], record.fields["readable"])


def test_sifting_fills_the_cache(tmp_path: Path):
    """The first epoch decodes nothing again."""
    store = PageStore(Preparation(8, 6), ImageCache(1 << 20))
    pages = read_pages(archive(tmp_path, {"letter": 5, "form": 5}), store)

    assert (10, 10) == (len(store.cache), store.cache.misses)
    assert (8, 6, 3) == store.pixels(pages.learn[0].file).shape
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
    """One class teaches nothing; if broken images are why, they are named."""
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
