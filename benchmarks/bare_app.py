"""sentence-transformers behind FastAPI in its simplest form: one sync route that calls ``encode``.

A peer of the benchmark, not an example to follow. FastAPI runs the route in its thread pool, so concurrent requests
compete for the cores instead of sharing a batch.
"""

import os

from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer

app = FastAPI()
# In float32 as the README of most models runs; left alone, transformers takes the dtype the file is stored in.
model = SentenceTransformer(os.environ["BENCHMARK_MODEL"], device="cpu", model_kwargs={"dtype": "float32"})


class EmbeddingRequest(BaseModel):
    input: str | list[str]
    model: str = "bundled"
    encoding_format: str = "float"


@app.post("/v1/embeddings")
def embeddings(request: EmbeddingRequest) -> dict[str, object]:
    texts = [request.input] if isinstance(request.input, str) else request.input
    vectors = model.encode(texts, normalize_embeddings=True, show_progress_bar=False)
    data = [
        {"object": "embedding", "index": index, "embedding": vector.tolist()} for index, vector in enumerate(vectors)
    ]
    return {"object": "list", "data": data, "model": request.model, "usage": {"prompt_tokens": 0, "total_tokens": 0}}


@app.get("/health/ready")
def ready() -> dict[str, str]:
    return {"status": "ok"}
