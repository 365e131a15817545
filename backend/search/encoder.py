"""The embedding model as vector stores know it: its identity, and the prompts of passages and queries."""

from __future__ import annotations

from backend.search.records import EncoderIdentity
from backend.serving.catalog import LoadedModel
from backend.text.embeddings import EmbedOptions

# Names that models give these prompts, by preference; a model without any embeds texts as they stand.
PASSAGE = EmbedOptions(prompts=("passage", "document", "search_document", "retrieval.passage"), normalize=True)
QUERY = EmbedOptions(prompts=("query", "search_query", "retrieval.query"), normalize=True)


def identity_of(model: LoadedModel) -> EncoderIdentity:
    """Whose vectors these are, whatever runtime computes them: replicas on other machines share a store."""
    return EncoderIdentity(model.spec.fingerprint, model.name, model.spec.width)
