"""Similarity: the cosines of the embedding service, and scores that start from those of unrelated texts."""

import asyncio

import numpy as np
import pytest

from backend.models.calibration import likeness
from backend.serving.engines.neutral_texts import ALL_NEUTRAL_TEXTS, unrelated_cosine
from backend.text.embeddings import EmbedOptions
from backend.text.neutral_vectors import NeutralVectors
from backend.text.similarity import SimilarityService
from tests.text.service_stack import PROMPTS, VectorEngine

SENTENCES = ["the total", "la factura"]


@pytest.mark.parametrize("options", [None, EmbedOptions(prompt_name="query", dimensions=64)], ids=["plain", "options"])
async def test_scores_start_from_unrelated_texts(build, options):
    """The neutral texts have the same prompt and dimensions; equal texts score 1."""
    stack = build(VectorEngine(), spec={"prompts": PROMPTS})

    compared = await SimilarityService(stack.service, NeutralVectors(stack.service)).compare(
        "la factura", SENTENCES, options
    )

    cosines, _ = await stack.service.similarity("la factura", SENTENCES, options)
    same = (options or EmbedOptions())._replace(normalize=True)
    neutral = (await stack.service.embed(ALL_NEUTRAL_TEXTS, same)).vectors
    assert tuple(cosines) == compared.cosines
    assert pytest.approx(likeness(np.array(cosines), unrelated_cosine(neutral, neutral))) == compared.scores
    assert 1.0 == pytest.approx(compared.scores[1], abs=1e-5)
    assert 3 == len(compared.embedded.tokens)


async def test_neutral_texts_are_embedded_once_whatever_the_dimensions(build):
    """A caller who asks for another number each time pays for its own texts only, and so do the others."""
    stack = build(VectorEngine(), spec={"prompts": PROMPTS})
    similarity = SimilarityService(stack.service, NeutralVectors(stack.service))
    computed = []
    for dimensions in (None, 8, 9, 384):
        before = len(stack.computed)
        await similarity.compare(
            f"source {dimensions}", [f"sentence {dimensions}"], EmbedOptions(dimensions=dimensions)
        )
        computed.append(len(stack.computed) - before)

    assert [2 + len(ALL_NEUTRAL_TEXTS), 2, 2, 2] == computed


async def test_neutral_texts_are_finished_for_the_next_request_when_the_first_has_gone(build, monkeypatch):
    """Else no request with less time than they take would ever be answered."""
    stack = build(VectorEngine(), spec={"prompts": PROMPTS})
    similarity = SimilarityService(stack.service, NeutralVectors(stack.service))
    embed, reached, gate, calls = stack.service.embed_in_chunks, asyncio.Event(), asyncio.Event(), []

    async def waiting(*arguments):
        calls.append(arguments)
        reached.set()
        await gate.wait()
        return await embed(*arguments)

    monkeypatch.setattr(stack.service, "embed_in_chunks", waiting)
    first = asyncio.create_task(similarity.compare("la factura", SENTENCES))
    await reached.wait()
    first.cancel()
    gate.set()
    assert isinstance(*await asyncio.gather(first, return_exceptions=True), asyncio.CancelledError)
    await similarity.compare("la factura", SENTENCES)

    assert 1 == len(calls)
