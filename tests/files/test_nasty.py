"""Every broken, hostile and real file of the shared data gives pages or a clear 4xx, in time, and loses no worker."""

import time
from pathlib import Path

import psutil
import pytest

from backend.errors import BadInput
from backend.files import office_converter
from backend.files.file_readers import FileReaders
from backend.files.limits import FileLimits
from backend.files.resolution import choose_resolution
from backend.files.text_files import choose_source
from tests.conftest import DATA_DIR
from tests.files.conftest import newest_worker, own_bytes

FOLDERS = ("nasty_pdf", "nasty_images", "pdf_samples", "multiformat_lorem")
NOT_TEST_FILES = {".txt", ".md", ".tsv"}  # descriptions of the data sets
SLOW = {"hugemono.pdf"}  # 1.2 gigapixels in 30 kB
FILES = [
    pytest.param(path, id=path.name, marks=[pytest.mark.slow] if path.name in SLOW else [])
    for folder in FOLDERS
    for path in sorted((DATA_DIR / folder).glob("*"))
    if path.suffix not in NOT_TEST_FILES
]

# Expected result of each file that is not simply read: its error code, or those of its first three pages.
OUTCOMES: dict[str, str | list[str]] = {
    "T01_007_header-no-version-info.pdf": "wrong_media_type",  # nothing in its first kilobyte says PDF
    "T02-01_002_document-catalog-wrong-object-number.pdf": "unreadable_file",
    "T02-01_004_document-catalog-incorrect-pages-reference.pdf": "unreadable_file",
    "T02-02_001_no-page-tree-node.pdf": "unreadable_file",
    "T02-02_003_page-tree-different-kids.pdf": ["", "", "unreadable_file"],
    "T02-02_005_page-tree-no-kids.pdf": ["unreadable_file"],
    "T02-02_007_page-tree-wrong-count.pdf": ["", "unreadable_file", "unreadable_file"],
    "T02-03_002_page-object-wrong-type.pdf": ["unreadable_file"],
    "T02-03_006_page-object-missing.pdf": ["unreadable_file"],
    "T04_008_trailer-no-trailer-keyword.pdf": "unreadable_file",
    "T04_010_trailer-no-closing-brackets.pdf": "unreadable_file",
    "T04_012_trailer-root-no-indirect-reference.pdf": "unreadable_file",
    "T04_014_trailer-root-indirect-reference-to-wrong-object.pdf": "unreadable_file",
    "aes-128.pdf": "password_required",
    "aes-256-r6.pdf": "password_required",
    "encryption_openpassword.pdf": "password_required",
    "invalid.pdf": "unreadable_file",
    "libreoffice-writer-password.pdf": "password_required",
    "minimal_test.pdf": "unreadable_file",
    "own_random_after_header.pdf": "unreadable_file",
    "own_truncated_half.pdf": "unreadable_file",
    "own_zero_bytes.pdf": "unreadable_file",
    "pdfjs_poppler-937-0-fuzzed.pdf": ["unreadable_file"],
    "rc4-40.pdf": "password_required",
    "own_bomb_20000x20000_1bit.png": "too_large",
    "own_header_lies_60000x60000.png": "too_large",
    "own_zero_bytes.png": "unreadable_file",
    "pillow_16bit.cropped.j2k": "wrong_media_type",
    "pillow_apng__chunk_no_fctl.png": ["unreadable_file"],
    "pillow_apng__syntax_num_frames_zero.png": ["unreadable_file"],
    "pillow_bmp__b__badheadersize.bmp": "unreadable_file",
    "pillow_crash-0e16d3bfb83be87356d026d66919deaefca44dac.tif": ["unreadable_file"],
    "pillow_crash-1185209cf7655b5aed8ae5e77784dfdd18ab59e9.tif": ["unreadable_file"],
    "pillow_crash-4f085cc12ece8cde18758d42608bed6a2a2cfb1c.tif": ["unreadable_file"],
    "pillow_crash-63b1dffefc8c075ddc606c0a2f5fdc15ece78863.tif": ["unreadable_file"],
    "pillow_cross_scan_line_truncated.tga": "wrong_media_type",
    "pillow_decompression_bomb.gif": "too_large",
    "pillow_truncated_end_chunk.png": ["incomplete"],
    "pillow_truncated_jpeg.jpg": ["incomplete"],
    "pillow_zero_width.gif": "unreadable_file",
    "small_gif.gif": "unreadable_file",  # the smallest has no image at all
    "small_jxl.jxl": "wrong_media_type",
    "small_svg.svg": "wrong_media_type",
    "small_webp.webp": ["unreadable_file"],
}
if office_converter.program() is None:
    OUTCOMES["lorem-ipsum.doc"] = "unreadable_file"
PASSWORDS = {
    "aes-128.pdf": "foo",
    "aes-256-r6.pdf": "foo",
    "rc4-40.pdf": "foo",
    "libreoffice-writer-password.pdf": "openpassword",
}


def outcome(readers: FileReaders, path: Path, password: str | None = None) -> str | list[str]:
    """The code of the file's error, or of each of its first three pages, "" for one that was read and drawn."""
    try:
        with readers.open(path, password=password) as file:
            return [page_outcome(readers, file, number) for number in range(1, min(3, file.info.page_count) + 1)]
    except BadInput as error:
        return error.code


def page_outcome(readers: FileReaders, file, number: int) -> str:
    try:
        layer = readers.page_text(file, number)
        resolution = choose_resolution(layer.width, layer.height, layer.stats, readers.limits)
        raster = readers.render(file, number, resolution=resolution, turn=layer.turn)
    except BadInput as error:
        return error.code
    assert choose_source(layer).why
    assert raster.pixels.size <= readers.limits.render_pixels
    return "incomplete" if raster.incomplete else ""


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES)
def test_every_file_has_its_outcome(readers: FileReaders, path: Path):
    """As in the table, or pages that are read; in time, without losing a worker."""
    before, began_s = readers.counts(), time.monotonic()
    result = outcome(readers, path)
    after, took_s = readers.counts(), time.monotonic() - began_s
    default: str | list[str] = "wrong_media_type" if path.suffix in {".sgi", ".j2k"} else []

    assert OUTCOMES.get(path.name, default or [""] * len(result)) == result
    assert took_s < 2 * FileLimits().page_s
    assert (before.died, before.late) == (after.died, after.late)


@pytest.mark.parametrize("name", PASSWORDS)
def test_encrypted_files_open_with_their_password(readers: FileReaders, data_dir: Path, name: str):
    """RC4 and both kinds of AES."""
    assert "" in outcome(readers, data_dir / "nasty_pdf" / name, PASSWORDS[name])


def test_the_table_names_files_that_are_there(data_dir: Path):
    """So that a renamed file is noticed."""
    names = {path.name for folder in FOLDERS for path in (data_dir / folder).iterdir()}

    assert OUTCOMES.keys() <= names


def test_one_text_in_many_formats(readers: FileReaders, data_dir: Path):
    """The same text from three PDF producers, one of which hyphenates."""
    texts = []
    for name in ("lorem-ipsum.pdf", "lorem-ipsum-pages-09-4.1-923.pdf", "lorem-ipsum.oo3.2.export-pdfa.pdf"):
        with readers.open(data_dir / "multiformat_lorem" / name) as file:
            pages = [readers.page_text(file, number) for number in range(1, file.info.page_count + 1)]
            texts.append(_letters("".join(page.text for page in pages)))
    expected = _letters((data_dir / "multiformat_lorem/lorem-ipsum.gt.txt").read_text(encoding="utf-8"))

    assert [expected] * 3 == texts


def _letters(text: str) -> str:
    return "".join(text.replace("-", " ").split())


@pytest.mark.alone
@pytest.mark.timeout(600)
def test_memory_comes_back(make_readers, data_dir: Path, monkeypatch: pytest.MonkeyPatch):
    """A thousand pages read and drawn: the worker and this process are as large as after the first fifty."""
    monkeypatch.setattr("backend.files.worker_pool.MAX_CALLS", 10**9)
    readers = make_readers()
    sizes: list[tuple[int, int]] = []
    path = data_dir / "pdf_samples/en_invoice_azureinterior.pdf"
    for index in range(1000):
        with readers.open(path) as file:
            layer = readers.page_text(file, 1)
            readers.render(file, 1, turn=layer.turn)
        if index in (50, 998):
            sizes.append((psutil.Process().memory_info().rss, own_bytes(newest_worker())))

    assert sizes[1][0] - sizes[0][0] < 16 * 2**20
    assert sizes[1][1] - sizes[0][1] < 16 * 2**20
    assert 0 == readers.counts().recycled
