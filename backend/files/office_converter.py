"""Turns old Word and PowerPoint files into docx and pptx with LibreOffice, where that is installed.

LibreOffice is a program of its own, started for each file and ended after it: without the service's environment, in a
folder that is removed, with limits on its memory, its files and its time. Macros are off, and nothing that a document
refers to is fetched.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from backend.errors import DeadlineExceeded, TooLarge, UnreadableFile
from backend.files.limits import FileLimits

PROGRAMS = ("soffice", "libreoffice")
TARGETS: Mapping[str, str] = {"doc": "docx", "ppt": "pptx"}
_WORK_RATIO = 3.0  # seconds for each of LIMIT_PAGE_S: it takes two to start
_MEMORY_RATIO = 4  # times LIMIT_READER_BYTES of address space, most of which it only maps
_SAFE_PROFILE = """<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry" xmlns:xs="http://www.w3.org/2001/XMLSchema">
<item oor:path="/org.openoffice.Office.Common/Security/Scripting"><prop oor:name="DisableMacrosExecution"><value>true</value></prop></item>
<item oor:path="/org.openoffice.Office.Common/Security/Scripting"><prop oor:name="MacroSecurityLevel"><value>3</value></prop></item>
<item oor:path="/org.openoffice.Office.Common/Security/Scripting"><prop oor:name="BlockUntrustedRefererLinks"><value>true</value></prop></item>
<item oor:path="/org.openoffice.Office.Writer/Content/Update"><prop oor:name="Link"><value>0</value></prop></item>
<item oor:path="/org.openoffice.Inet/Settings"><prop oor:name="ooInetProxyType"><value>2</value></prop></item>
<item oor:path="/org.openoffice.Inet/Settings"><prop oor:name="ooInetHTTPProxyName"><value>127.0.0.1</value></prop></item>
<item oor:path="/org.openoffice.Inet/Settings"><prop oor:name="ooInetHTTPProxyPort"><value>9</value></prop></item>
<item oor:path="/org.openoffice.Inet/Settings"><prop oor:name="ooInetHTTPSProxyName"><value>127.0.0.1</value></prop></item>
<item oor:path="/org.openoffice.Inet/Settings"><prop oor:name="ooInetHTTPSProxyPort"><value>9</value></prop></item>
</oor:items>
"""  # noqa: E501  # an entry a line, as LibreOffice writes them


@cache
def program() -> str | None:
    """LibreOffice's program; None where it is not installed."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


def converted(data: bytes, kind: str, limits: FileLimits, deadline_s: float | None = None) -> bytes:
    """An old file in the format that took its place. Blocks for some seconds.

    Args:
        kind: a key of `TARGETS`.
        deadline_s: when the caller stops waiting, on the monotonic clock.

    Raises: UnreadableFile where LibreOffice is not installed, or cannot read it; TooLarge where it takes too long;
        DeadlineExceeded where ``deadline_s`` passes before.
    """
    soffice, target = program(), TARGETS[kind]
    if soffice is None:
        raise UnreadableFile(
            f"file: it is an old Office file ({kind}), which is read where LibreOffice is installed (the image with "
            f"OFFICE=1), and here it is not; save it as {target} or PDF"
        )
    with tempfile.TemporaryDirectory(prefix="office-") as folder:
        source, profile = Path(folder, f"file.{kind}"), Path(folder, "profile", "user")
        source.write_bytes(data)
        profile.mkdir(parents=True)
        (profile / "registrymodifications.xcu").write_text(_SAFE_PROFILE, encoding="utf-8")
        _run(
            [
                soffice, f"-env:UserInstallation={Path(folder, 'profile').as_uri()}", "--headless", "--norestore",
                "--nolockcheck", "--convert-to", target, "--outdir", folder, str(source),
            ],
            folder,
            limits,
            deadline_s,
        )  # fmt: skip
        result = source.with_suffix(f".{target}")
        if not result.is_file():
            raise UnreadableFile(f"file: LibreOffice cannot read it as {kind}; it is damaged, or encrypted")
        return result.read_bytes()


def _run(command: list[str], folder: str, limits: FileLimits, deadline_s: float | None) -> None:
    limit_s, started_s = _WORK_RATIO * limits.page_s, time.monotonic()
    left_s = math.inf if deadline_s is None else max(0.0, deadline_s - started_s)
    environment = {"HOME": folder, "TMPDIR": folder, "PATH": os.defpath, "LANG": "C.UTF-8"}
    process = subprocess.Popen(  # noqa: S603  # a list of arguments of ours
        command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        _limit(process.pid, limits)
        process.wait(min(limit_s, left_s))
    except subprocess.TimeoutExpired:
        if left_s < limit_s:
            raise DeadlineExceeded(round(time.monotonic() - started_s, 1)) from None
        what = "file: seconds of LibreOffice's work, more than"
        raise TooLarge(what, limit_s, limit_s, "LIMIT_PAGE_S", advice="Save it as PDF.", param="file") from None
    finally:
        with contextlib.suppress(ProcessLookupError):  # it starts others, which end with it
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _limit(pid: int, limits: FileLimits) -> None:
    """Bound what it may take, as far as this system can from outside."""
    try:
        import resource  # not on Windows

        memory_bytes = _MEMORY_RATIO * limits.worker_bytes
        resource.prlimit(pid, resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (limits.file_bytes, limits.file_bytes))
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
    except (ImportError, AttributeError, OSError):  # macOS has no prlimit; it may have ended already
        return
