"""Every route that reads texts in JSON: a body with a text, and the tokens that the fake services charge for "abc"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

TEXT_ROUTES: dict[str, tuple[Callable[[str], dict[str, Any]], int | None]] = {  # None: what the answer says
    "/embed": (lambda text: {"inputs": text}, 3),
    "/embed_all": (lambda text: {"inputs": text}, 3),
    "/similarity": (lambda text: {"inputs": {"source_sentence": text, "sentences": ["a"]}}, 4),
    "/predict": (lambda text: {"inputs": text}, 5),
    "/rerank": (lambda text: {"query": "a", "texts": [text]}, 4),
    "/tokenize": (lambda text: {"inputs": text}, 0),
    "/v1/embeddings": (lambda text: {"input": [text, "b"]}, 4),
    "/v1/entities": (lambda text: {"input": text}, 5),
    "/v1/answer": (lambda text: {"questions": ["a"], "input": text}, 5),
    "/v1/fields": (lambda text: {"input": text}, 0),
    "/v1/analyze": (lambda text: {"input": text}, None),
    "/v1/summarize": (lambda text: {"input": text}, 5),
    "/v1/classify": (lambda text: {"input": text}, 5),
    "/v1/rerank": (lambda text: {"query": text, "documents": ["a"]}, 4),
    "/v2/rerank": (lambda text: {"query": "a", "documents": [{"text": text}]}, 4),
    "/v1/embed": (lambda text: {"texts": [text]}, 3),
    "/v2/embed": (lambda text: {"inputs": [{"content": [{"type": "text", "text": text}]}]}, 3),
    "/embeddings": (lambda text: {"input": text}, 3),
    "/classify": (lambda text: {"input": [text]}, 5),
    "/v1/vector_stores/{id}/search": (lambda text: {"query": text}, 3),
    "/v1/similarity": (lambda text: {"source": text, "sentences": ["a"]}, 4),
    "/": (lambda text: {"inputs": text}, 3),
    "/invocations": (lambda text: {"query": "a", "texts": [text]}, 4),
    "/api/embed": (lambda text: {"input": text}, 3),
    "/api/embeddings": (lambda text: {"prompt": text}, 3),
    "/v1/ranking": (lambda text: {"query": {"text": "a"}, "passages": [{"text": text}]}, 4),
    "/v1/retrieval/{name}/reranking": (
        lambda text: {"query": {"text": "a"}, "passages": [{"text": text}], "model": "tiny/reranker"},
        4,
    ),
    "/v1/tokenize": (lambda text: {"text": text}, 0),
    "/vectors": (lambda text: {"text": text}, 3),
    "/vectors/": (lambda text: {"text": text}, 3),
    "/ner": (lambda text: {"text": text}, 5),
    "/ner/": (lambda text: {"text": text}, 5),
    "/hf/token-classification": (lambda text: {"inputs": text}, 5),
    "/hf/zero-shot-classification": (lambda text: {"inputs": text, "parameters": {"candidate_labels": ["a", "b"]}}, 5),
    "/hf/question-answering": (lambda text: {"inputs": {"question": "a", "context": text}}, 5),
    "/hf/summarization": (lambda text: {"inputs": text}, 5),
    "/openai/deployments/{name}/embeddings": (lambda text: {"input": text}, 3),
}
