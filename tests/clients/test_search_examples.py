"""The Python examples of docs/search.md run as they stand there, against a running service."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.clients.server import MARKS, ROOT, LiveServer
from tests.end_to_end.invoices import SPANISH

pytestmark = MARKS
PAGE = (ROOT / "docs/search.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_examples(live_server: LiveServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, as a reader would run them: the vector store of the first is that of all."""
    (tmp_path / "invoice.pdf").write_bytes(SPANISH.digital)
    (tmp_path / "contract.pdf").write_bytes(SPANISH.scanned_pdf)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "example"}
    for example in EXAMPLES:
        source = example.replace("http://127.0.0.1:8000", live_server.url)
        exec(compile(source, "docs/search.md", "exec", dont_inherit=True), names)

    assert "langchain" in PAGE
    for found in ("documents", "nodes"):  # of LangChain's retriever and of LlamaIndex's
        assert "invoice.pdf" in str(names[found]), found
    assert 1 == names["documents"][0].metadata["page"]
    assert 1 == names["nodes"][0].metadata["page"]
