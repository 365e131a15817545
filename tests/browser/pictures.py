"""Takes the pictures of the documentation from a running service.

    python -m tests.browser.pictures http://127.0.0.1:8000/ docs/pictures invoice-1.pdf invoice-2.pdf …

The service keeps the files; give it a STATE_DIR of its own.
"""

import asyncio
import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

from tests.browser.chrome import Chrome, Tab, open_tab

_UNTIL = """new Promise((done) => setInterval(
    () => document.querySelectorAll('#ledger-rows tr').length === %d && done(true), 200))"""


async def take(url: str, folder: Path, files: list[Path]) -> None:
    """Drop the files on the ledger; picture the table, then the screen that checks its first document."""
    with tempfile.TemporaryDirectory() as profile:
        chrome = Chrome(Path(profile))
        try:
            async with open_tab(chrome, languages="es") as tab:
                await tab.open(f"{url}#ledger")
                await tab.show(width_px=1280)
                await tab.drop_file(*files)
                await tab.run(_UNTIL % len(files))
                await _picture(tab, folder / "libro.png")
                await tab.run("document.querySelector('#ledger-rows tr a').click()")
                await tab.wait_for("document.querySelector('#validation-form input') === document.activeElement")
                await _picture(tab, folder / "revisar.png")
        finally:
            chrome.close()


async def _picture(tab: Tab, path: Path) -> None:
    await asyncio.sleep(2)  # pages and boxes are painted
    Image.open(io.BytesIO(await tab.screenshot())).convert("RGB").quantize(64).save(path, optimize=True)


if __name__ == "__main__":
    asyncio.run(take(sys.argv[1], Path(sys.argv[2]), [Path(name) for name in sys.argv[3:]]))
