"""Document images: found in every folder layout, decoded safely, checked, cached up to a limit."""

import io
import json
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from backend.errors import BadData
from backend.training.data.images import ImageCache, cache_limit_bytes, decode, read_examples, resize
from tests.conftest import DATA_DIR

NASTY = DATA_DIR / "nasty_images"
RED, WHITE = (255, 0, 0), (255, 255, 255)


def page(file: Path, colour: object = "white", size: tuple[int, int] = (8, 6), mode: str = "RGB") -> Path:
    """A small picture of one colour."""
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(file)
    return file


def labels_and_names(data: Path) -> list[tuple[str, str, str]]:
    """Label, split and name of every example."""
    return [(example.label, example.split, example.file.name) for example in read_examples(data)]


def test_a_folder_a_class(tmp_path: Path):
    """Folders name the classes, deeper files belong to them, hidden files and thumbnails to nobody."""
    for name in ("letter/b.png", "letter/2024/a.png", "invoice/c.png"):
        page(tmp_path / name)
    for name in ("letter/.DS_Store", "letter/Thumbs.db", ".git/config.png", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")

    assert [("invoice", "", "c.png"), ("letter", "", "a.png"), ("letter", "", "b.png")] == labels_and_names(tmp_path)


def test_folders_of_splits(tmp_path: Path):
    """train and validation hold the classes where they are all there is."""
    page(tmp_path / "train/letter/a.png")
    page(tmp_path / "validation/letter/b.png")

    assert [("letter", "train", "a.png"), ("letter", "dev", "b.png")] == labels_and_names(tmp_path)


def test_a_class_may_be_called_test(tmp_path: Path):
    """A folder of pictures is a class whatever its name is."""
    page(tmp_path / "test/a.png")
    page(tmp_path / "letter/b.png")

    assert [("letter", "", "b.png"), ("test", "", "a.png")] == labels_and_names(tmp_path)


@pytest.mark.parametrize("name", ["labels.tsv", "labels.jsonl", "metadata.jsonl"])
@pytest.mark.parametrize("given", ["folder", "file"])
def test_a_list(tmp_path: Path, name: str, given: str):
    """A list beside the pictures, given itself or by its folder; files are found from where it lies."""
    rows = [
        {"file": "scans/a.png", "label": "letter", "split": "train"},
        {"file": "b.pdf", "label": "form", "split": "test"},
    ]
    lines = [json.dumps(row) for row in rows]
    if name.endswith(".tsv"):
        lines = ["\t".join(rows[0]), *("\t".join(row.values()) for row in rows)]
    (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")

    examples = read_examples(tmp_path if given == "folder" else tmp_path / name)

    assert [(tmp_path / "scans/a.png", "letter", "train"), (tmp_path / "b.pdf", "form", "dev")] == [
        (example.file, example.label, example.split) for example in examples
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("file\tlabel\na.png\t\n", r"labels\.tsv:2: no label", id="no-label"),
        pytest.param("name\tlabel\na.png\tx\n", r"labels\.tsv:2: no file; the fields are name, label", id="no-file"),
        pytest.param("file\tlabel\na.png\n", r"labels\.tsv:2", id="a-field-short"),
        pytest.param("file\tlabel\tsplit\na\tx\tfirst\n", r"labels\.tsv:2: split 'first' is none of", id="split"),
        pytest.param("file\tlabel\n", "no example", id="empty"),
    ],
)
def test_a_list_that_says_nothing_usable(tmp_path: Path, content: str, message: str):
    """The file and the line are named."""
    (tmp_path / "labels.tsv").write_text(content, encoding="utf-8")

    with pytest.raises(BadData, match=message):
        read_examples(tmp_path)


def test_nothing_to_read(tmp_path: Path):
    """An empty folder and a missing one are told apart."""
    with pytest.raises(BadData, match="no example"):
        read_examples(tmp_path)
    with pytest.raises(BadData, match="does not exist"):
        read_examples(tmp_path / "gone")


@pytest.mark.parametrize(
    ("mode", "colour", "expected"),
    [
        pytest.param("1", 1, WHITE, id="fax"),
        pytest.param("L", 100, (100, 100, 100), id="grey"),
        pytest.param("I;16", 65535, WHITE, id="16-bit-white-stays-white"),
        pytest.param("I;16", 32768, (127, 127, 127), id="16-bit-grey-is-not-cut-off"),
        pytest.param("RGBA", (255, 0, 0, 255), RED, id="opaque"),
        pytest.param("RGBA", (0, 0, 0, 0), WHITE, id="transparent-is-paper-and-not-black"),
        pytest.param("LA", (0, 0), WHITE, id="transparent-grey"),
        pytest.param("P", 0, (0, 0, 0), id="palette"),
    ],
)
def test_every_mode_becomes_rgb_on_paper(tmp_path: Path, mode: str, colour: object, expected: tuple[int, ...]):
    """What a reader would see on white paper."""
    image = decode(page(tmp_path / "a.png", colour, mode=mode))

    assert ("RGB", expected) == (image.mode, image.getpixel((3, 3)))


@pytest.mark.parametrize(
    ("mode", "values"), [("F", [0.0, 1.0]), ("F", [0.0, 255.0]), ("I", [0, 65535]), ("I", [0, 255])]
)
def test_wide_values_are_scaled(tmp_path: Path, mode: str, values: list[float]):
    """Scanners' float and 32-bit files: the largest value is white."""
    image = Image.new(mode, (2, 1))
    image.putdata(values)
    image.save(tmp_path / "a.tif")

    decoded = decode(tmp_path / "a.tif")

    assert [(0, 0, 0), WHITE] == [decoded.getpixel((x, 0)) for x in (0, 1)]


def test_cmyk_and_the_first_frame(tmp_path: Path):
    """A CMYK JPEG and a GIF of two frames are pages like any other."""
    page(tmp_path / "a.jpg", (0, 0, 0, 0), mode="CMYK")
    Image.new("RGB", (4, 4), RED).save(tmp_path / "b.gif", save_all=True, append_images=[Image.new("RGB", (4, 4))])

    assert WHITE == decode(tmp_path / "a.jpg").getpixel((0, 0))
    assert RED == decode(tmp_path / "b.gif").getpixel((0, 0))


def test_a_photograph_is_turned_upright(tmp_path: Path):
    """EXIF says that the camera was held on its side."""
    image, exif = Image.new("RGB", (40, 20), WHITE), Image.Exif()
    image.paste(RED, (0, 0, 8, 20))
    exif[0x0112] = 6  # shown after a quarter turn clockwise
    image.save(tmp_path / "a.jpg", exif=exif, quality=95)

    upright = decode(tmp_path / "a.jpg")

    assert (20, 40) == upright.size
    assert upright.getpixel((10, 2))[1] < 100 < upright.getpixel((10, 37))[1]


def png(width: int = 64, height: int = 64) -> bytes:
    """A PNG of noise whose header says another size."""
    stream = io.BytesIO()
    Image.effect_noise((64, 64), 90).save(stream, "PNG")
    content = bytearray(stream.getvalue())
    content[16:24] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    return bytes(content)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        pytest.param("a.png", b"", "not an image of PNG", id="empty"),
        pytest.param("a.png", b"invoice 12", "not an image of PNG", id="text"),
        pytest.param("a.pdf", b"%PDF-1.7", "a PDF is not an image: render its pages first", id="pdf"),
        pytest.param(
            "a.eps", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image of", id="eps-is-not-run"
        ),
        pytest.param("a.png", png(60000, 60000), "DecompressionBombError", id="bomb"),
        pytest.param("a.png", png(65, 64), "cannot be decoded", id="header-lies"),
        pytest.param("a.png", png()[:2000], "cannot be decoded", id="cut-off"),
    ],
)
def test_what_cannot_be_read_says_why(tmp_path: Path, name: str, content: bytes, why: str):
    """One kind of error with a reason, whatever a decoder raises."""
    (tmp_path / name).write_bytes(content)

    with pytest.raises(BadData, match=why):
        decode(tmp_path / name)


def test_limits_and_absence(tmp_path: Path):
    """Pages over the bound are not decoded; a file that is gone is said to be gone."""
    with pytest.raises(BadData, match="48 pixels are more than 47"):
        decode(page(tmp_path / "a.png"), pixels_max=47)
    with pytest.raises(BadData, match="no such file"):
        decode(tmp_path / "b.png")


@pytest.mark.skipif(not NASTY.is_dir(), reason="the shared data are not here")
@pytest.mark.filterwarnings("ignore")  # Pillow names every broken tag
def test_hostile_files_are_pictures_or_bad_data():
    """65 broken and hostile files: each decodes or says why, none ends the process or raises anything else."""
    outcomes = {}
    for file in sorted(NASTY.iterdir()):
        try:
            outcomes[file.name] = decode(file).mode
        except BadData as error:
            outcomes[file.name] = str(error)

    assert {"own_1x1.png", "own_1x5000.png", "pillow_exif_typeerror.jpg"} <= {
        name for name, outcome in outcomes.items() if outcome == "RGB"
    }
    assert all(
        "RGB" != outcomes[name] for name in ("own_bomb_20000x20000_1bit.png", "own_zero_bytes.png", "small_svg.svg")
    )


def test_the_whole_page_is_squeezed():
    """No crop: the colours of all four corners are still in the corners."""
    image = Image.new("RGB", (400, 100), WHITE)
    for corner, colour in (((0, 0), RED), ((300, 75), (0, 0, 255))):
        image.paste(colour, (*corner, corner[0] + 100, corner[1] + 25))

    small = resize(image, 20, 10)

    assert ((20, 10, 3), np.uint8) == (small.shape, small.dtype)
    assert [list(RED), list(WHITE), [0, 0, 255]] == [small[y, x].tolist() for y, x in ((0, 0), (0, 9), (19, 9))]


class Maker:
    """Makes pictures of 100 bytes and counts them."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, name: str) -> Callable[[], np.ndarray]:
        def make() -> np.ndarray:
            self.made.append(name)
            return np.full((100,), len(self.made), dtype=np.uint8)

        return make


def test_the_cache_keeps_its_bound_and_what_came_first():
    """Ten pictures asked for in ever new orders, room for five: five hits an epoch, from the second on."""
    cache, maker, random = ImageCache(599), Maker(), np.random.default_rng(0)

    hits = []
    for _ in range(4):
        before = cache.hits
        for name in random.permutation(10):
            cache.get(Path(str(name)), maker(str(name)))
        hits.append(cache.hits - before)

    assert [0, 5, 5, 5] == hits
    assert (5, 500) == (len(cache), cache.held_bytes)


def test_a_failure_is_not_kept():
    """What could not be read may be there the next time."""
    cache, maker = ImageCache(1000), Maker()

    def fails() -> np.ndarray:
        raise BadData("not yet")

    with pytest.raises(BadData):
        cache.get(Path("a"), fails)

    assert 1 == cache.get(Path("a"), maker("a"))[0]


def test_threads_share_the_cache():
    """Many threads at once: the limit holds, every image is complete, the counters are correct."""
    cache = ImageCache(1000)

    def ask(number: int) -> bool:
        value = number % 30
        made = cache.get(Path(str(value)), lambda: np.full((100,), value, dtype=np.uint8))
        return bool((made == value).all())

    with ThreadPoolExecutor(8) as pool:
        right = list(pool.map(ask, range(2000)))

    assert all(right)
    assert (10, 1000, 2000) == (len(cache), cache.held_bytes, cache.hits + cache.misses)


@pytest.mark.parametrize(
    ("wanted", "processes", "expected"),
    [
        pytest.param(None, 1, 2000, id="a-quarter"),
        pytest.param(500, 1, 500, id="less-as-wished"),
        pytest.param(9000, 1, 2000, id="never-more"),
        pytest.param(0, 1, 0, id="off"),
        pytest.param(None, 4, 500, id="shared-by-ranks"),
    ],
)
def test_the_bound_of_the_cache(wanted: int | None, processes: int, expected: int):
    """A quarter of the memory at most, for all processes together."""
    assert expected == cache_limit_bytes(8000, wanted, processes=processes)
