"""Small JSON files that several processes may read while one writes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def replace_json(file: Path, record: Mapping[str, Any]) -> None:
    """Write ``record``; the file is replaced whole, so a reader never sees half of it.

    Raises: OSError; the file is then as it was, and nothing is left beside it.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=file.parent, prefix=file.name, delete=False) as stream:
        made = Path(stream.name)
        try:
            json.dump(record, stream, indent=1)
            stream.flush()
            made.replace(file)
        except OSError:
            made.unlink()
            raise
