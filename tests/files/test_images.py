"""Images decoded by real workers: upright, 8-bit gray or RGB, on white, with square pixels."""

import numpy as np
import pillow_heif
import pytest
from PIL import Image, ImageDraw

from backend.errors import TooLarge, UnreadableFile
from backend.files.file_readers import FileReaders
from backend.files.limits import FileLimits
from backend.files.records import Raster
from tests.files.pdfs import encoded

pillow_heif.register_heif_opener()
UPRIGHT = {  # EXIF orientation -> what makes it upright, as in PIL.ImageOps
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def corner(mode: str = "L", size: tuple[int, int] = (60, 40)) -> Image.Image:
    """White with a black upper left corner, which shows the orientation."""
    image = Image.new("L", size, 255)
    ImageDraw.Draw(image).rectangle((0, 0, 19, 9), fill=0)
    return image.convert(mode)


def read(readers: FileReaders, data: bytes, number: int = 1, **options: object) -> Raster:
    with readers.open(data) as file:
        return readers.render(file, number, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "mode", "options"),
    [
        ("PNG", "L", {}), ("PNG", "1", {}), ("PNG", "P", {}), ("PNG", "RGBA", {}), ("JPEG", "RGB", {"quality": 95}),
        ("JPEG", "CMYK", {"quality": 95}), ("TIFF", "1", {"compression": "group4"}),
        ("TIFF", "RGB", {"compression": "tiff_lzw"}), ("TIFF", "CMYK", {}), ("WEBP", "RGB", {"lossless": True}),
        ("BMP", "RGB", {}), ("GIF", "P", {}), ("HEIF", "RGB", {"quality": 95}),
    ],
)  # fmt: skip
def test_types_and_modes(readers: FileReaders, kind: str, mode: str, options: dict[str, object]):
    """All decode to the same image."""
    raster = read(readers, encoded(corner(mode), kind, **options))

    assert (40, 60) == raster.pixels.shape
    assert np.uint8 == raster.pixels.dtype
    assert raster.pixels[2:8, 2:18].max() < 30
    assert raster.pixels[12:, 22:].min() > 225
    assert "" == raster.incomplete


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "TIFF", "PNG", "WEBP"])
def test_every_orientation_stands_upright(readers: FileReaders, kind: str, orientation: int):
    """Like Pillow's transposition, and the size is right before decoding."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = corner("RGB")
    options: dict[str, object] = {"exif": exif}
    options |= {"quality": 95} if kind == "JPEG" else {"lossless": True} if kind == "WEBP" else {}
    with readers.open(encoded(stored, kind, **options)) as file:
        size = file.info.sizes[0]
        raster = readers.render(file, 1)
    upright = stored if orientation == 1 else stored.transpose(UPRIGHT[orientation])
    expected = np.asarray(upright.convert("L"))

    assert expected.shape == raster.pixels.shape
    assert np.abs(expected.astype(int) - raster.pixels).mean() < 4
    assert (size.height, size.width) == raster.pixels.shape


@pytest.mark.parametrize(("turn", "black_at"), [(0, (4, 4)), (90, (4, 55)), (180, (35, 55)), (270, (55, 4))])
def test_turned_clockwise(readers: FileReaders, turn: int, black_at: tuple[int, int]):
    """As OCR requests for a scan that lies on its side."""
    raster = read(readers, encoded(corner(size=(60, 40) if turn % 180 == 0 else (60, 60)), "PNG"), turn=turn)

    assert raster.pixels[black_at] == 0
    assert (raster.height, raster.width) == raster.pixels.shape


def test_sixteen_bit_gray(readers: FileReaders):
    """The high byte, or stretched if only twelve bits are used."""
    deep = Image.fromarray(np.linspace(0, 65535, 100, dtype=np.uint16).reshape(10, 10))
    dark = Image.fromarray(np.linspace(0, 4095, 100, dtype=np.uint16).reshape(10, 10))

    for image in (deep, dark):
        pixels = read(readers, encoded(image, "PNG")).pixels
        assert 0 == pixels.min()
        assert pixels.max() >= 254
        assert int(pixels[5, 0]) == pytest.approx(128, abs=3)


def test_transparent_is_white(readers: FileReaders):
    """Black on transparent becomes black on white."""
    clear = Image.new("RGBA", (20, 20), (0, 0, 0, 0))
    ImageDraw.Draw(clear).rectangle((0, 0, 5, 5), fill=(0, 0, 0, 255))
    pixels = read(readers, encoded(clear, "PNG")).pixels

    assert (0, 255) == (pixels[2, 2], pixels[15, 15])


def test_color(readers: FileReaders):
    """RGB of a colour image, gray of a gray one."""
    assert (40, 60, 3) == read(readers, encoded(corner("RGB"), "PNG"), color=True).pixels.shape
    assert (40, 60) == read(readers, encoded(corner("L"), "PNG"), color=True).pixels.shape


def test_a_fax_gets_square_pixels(readers: FileReaders):
    """204 x 98 dpi: the height is doubled; the scales map boxes back to the file's pixels."""
    raster = read(readers, encoded(corner("1"), "TIFF", compression="group4", dpi=(204, 98)))

    assert (83, 60) == raster.pixels.shape
    assert (60, 40) == (raster.width, raster.height)
    assert (1.0, pytest.approx(83 / 40)) == (raster.scale_x, raster.scale_y)
    assert raster.dpi == pytest.approx(204, abs=1)


@pytest.mark.parametrize("dpi", [(300, 300), (1, 1), (0, 0)])
def test_implausible_resolutions_are_ignored(readers: FileReaders, dpi: tuple[int, int]):
    """One dot an inch is a default, not a size."""
    raster = read(readers, encoded(corner(), "TIFF", dpi=dpi))

    assert (300.0 if dpi == (300, 300) else None) == raster.dpi


def test_pages_of_a_tiff(readers: FileReaders):
    """Each page has its own size."""
    sizes = [(60, 40), (70, 50), (80, 60)]
    first, *rest = (corner(size=size) for size in sizes)
    with readers.open(encoded(first, "TIFF", save_all=True, append_images=rest)) as file:
        shapes = [readers.render(file, number).pixels.shape[::-1] for number in (3, 1, 2)]

        assert 3 == file.info.page_count
        assert sizes == [(size.width, size.height) for size in file.info.sizes]
    assert [sizes[2], sizes[0], sizes[1]] == shapes


def test_an_animation_is_its_first_frame(readers: FileReaders):
    """One page, with the number of frames in the metadata."""
    frames = [Image.new("L", (20, 20), shade) for shade in (255, 0, 128)]
    with readers.open(encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])) as file:
        raster = readers.render(file, 1)

        assert (1, "3") == (file.info.page_count, file.info.metadata["frames"])
    assert raster.pixels.min() == 255


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "TIFF"])
def test_a_truncated_file(readers: FileReaders, kind: str):
    """What is there is read, and ``incomplete`` says so."""
    noise = Image.fromarray(np.random.default_rng(1).integers(0, 256, (200, 200), np.uint8))
    data = encoded(noise, kind)
    complete = read(readers, data).pixels
    half = read(readers, data[: len(data) // 2])

    assert "cut off" in half.incomplete
    rows = slice(110, None) if kind == "BMP" else slice(0, 90)  # a bitmap begins with its lowest line
    assert np.array_equal(complete[rows], half.pixels[rows])


def test_a_truncated_webp(readers: FileReaders):
    """libwebp decodes no part of an image: a clear error."""
    noise = Image.fromarray(np.random.default_rng(1).integers(0, 256, (200, 200), np.uint8))
    data = encoded(noise, "WEBP")

    with pytest.raises(UnreadableFile, match="begins like WEBP but is broken"):
        read(readers, data[: len(data) // 2])


def test_too_many_pixels_are_not_decoded(make_readers):
    """The header decides: 413 with the setting."""
    readers = make_readers(limits=FileLimits(page_pixels=10_000))

    with pytest.raises(TooLarge, match=r"pixels: 12000 is over the limit of 10000 \(LIMIT_PAGE_PIXELS\)"):
        readers.open(encoded(Image.new("1", (120, 100)), "PNG"))


def test_images_over_the_render_limit_are_shrunk(make_readers):
    """Not refused; the scales tell by how much."""
    readers = make_readers(limits=FileLimits(render_pixels=1_000))
    raster = read(readers, encoded(corner(), "PNG", dpi=(300, 300)))

    assert raster.pixels.size <= 1_000
    assert raster.scale_x == pytest.approx(raster.pixels.shape[1] / 60)
    assert raster.dpi == pytest.approx(300 * min(raster.scale_x, raster.scale_y), rel=0.01)


def test_a_broken_later_page_of_a_tiff(readers: FileReaders):
    """The pages before it are read: found by fuzzing, where one directory without a width cost the whole file."""
    pages = [corner(size=(60, 40)) for _ in range(3)]
    data = encoded(pages[0], "TIFF", save_all=True, append_images=pages[1:])
    width_tag = (256).to_bytes(2, "little")
    second = data.index(width_tag, data.index(width_tag) + 200)
    with readers.open(data[:second] + b"\xff\xfe" + data[second + 2 :]) as file:
        assert 1 == file.info.page_count
        assert (40, 60) == readers.render(file, 1).pixels.shape


def test_a_broken_later_frame_of_an_animation(readers: FileReaders):
    """The first frame is the page; that the others cannot be counted is no reason to refuse it."""
    frames = [Image.new("L", (20, 20), shade) for shade in (255, 0)]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    second = data.rindex(b",")  # begins the descriptor of a frame, ten bytes
    raster = read(readers, data[: second + 10])

    assert raster.pixels.min() == 255


def test_a_broken_jpeg_is_refused_in_our_words(readers: FileReaders):
    """Not with a KeyError of Pillow's registry."""
    with pytest.raises(UnreadableFile, match="it begins like JPEG but is broken"):
        readers.open(b"\xff\xd8\xff\xe0" + bytes(100))
