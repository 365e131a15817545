"""Whether fast arithmetic keeps the work: similarity and retrieval on licensed data, against float32."""

import csv
import functools
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from backend.models.encoder import Vectors, normalized
from backend.models.encoder_benchmark import cut_batches, encode_batch
from tests.tiny_models import encoder_of, tokenizer_of

INT8 = [pytest.param(runtime, id=runtime) for runtime in ("openvino", "onnx")]
STS_POINTS = 0.3  # less than separates one model size from the next
MRR_POINTS = 1.0  # six of 612 questions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def encoded(texts: list[str], runtime: str, dtype: str) -> Vectors:
    """Vectors of length 1, in the order of the texts, computed in batches like the service's."""
    encoder = encoder_of("minilm", runtime, dtype)
    ids = [tokens.ids for tokens in tokenizer_of("minilm").encode(texts)]
    order = sorted(range(len(ids)), key=lambda index: len(ids[index]))
    rows = [encode_batch(encoder, group) for group in cut_batches([ids[index] for index in order], 512)]
    vectors = np.empty((len(texts), 384), np.float32)
    vectors[order] = np.concatenate(rows)
    return normalized(vectors)


@functools.cache
def similarity_points(folder: Path, language: str, runtime: str, dtype: str) -> float:
    """Spearman x 100 with the annotators' scores."""
    with (folder / "sts_stsb" / f"{language}_stsb_dev.tsv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
    vectors = encoded([row[name] for name in ("sentence1", "sentence2") for row in rows], runtime, dtype)
    similarities = (vectors[: len(rows)] * vectors[len(rows) :]).sum(axis=1)
    return 100 * float(spearmanr(similarities, [float(row["score"]) for row in rows]).statistic)


@functools.cache
def retrieval_points(folder: Path, language: str, runtime: str, dtype: str) -> float:
    """Mean reciprocal rank x 100 of the right paragraph."""
    data = folder / "retr_xquad"
    corpus, queries = (
        [json.loads(line) for line in (data / f"{language}_{part}.jsonl").read_text(encoding="utf-8").splitlines()]
        for part in ("corpus", "queries")
    )
    with (data / "qrels.tsv").open(encoding="utf-8") as stream:
        wanted = {row["query_id"]: row["doc_id"] for row in csv.DictReader(stream, delimiter="\t")}
    places = {row["id"]: place for place, row in enumerate(corpus)}
    right = np.array([places[wanted[row["id"]]] for row in queries])
    scores = encoded([row["text"] for row in queries], runtime, dtype)
    scores = scores @ encoded([row["text"] for row in corpus], runtime, dtype).T
    ranks = (scores > scores[np.arange(len(right)), right][:, None]).sum(axis=1) + 1
    return 100 * float((1 / ranks).mean())


@pytest.mark.slow
@pytest.mark.parametrize("runtime", INT8)
@pytest.mark.parametrize("language", ["en", "es"])
@pytest.mark.parametrize(
    "score", [(similarity_points, STS_POINTS), (retrieval_points, MRR_POINTS)], ids=["STS-B", "XQuAD"]
)
def test_int8_keeps_its_scores(data_dir, record_property, score, language, runtime):
    """Spearman of similarities stays within 0.3 points of float32's, the mean reciprocal rank within one."""
    points, most = score
    exact, fast = points(data_dir, language, "onnx", "fp32"), points(data_dir, language, runtime, "int8")
    record_property("points", f"{points.__name__} {language} {runtime} int8 {fast:.2f}, fp32 {exact:.2f}")
    print(f"{points.__name__} {language}: {runtime} int8 {fast:.2f}, fp32 {exact:.2f}")  # noqa: T201 - to be read

    assert abs(fast - exact) <= most
