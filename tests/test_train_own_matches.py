"""Teaching the network of own names: what made pages say of themselves, and what is learnt of them."""

import random
from typing import Any

import numpy as np

from backend.models.model_files import BUNDLED_ADAPTERS
from tests.documents.test_own_fields import MeaningByFirstWord
from tools.train_own_matches import ask, calibration, chosen, examples, fit, likelihoods, make_paper, read_kinds


def test_pages_print_what_they_say() -> None:
    """Each kind by one of its names, with its value; what is asked for besides is not there."""
    kinds = read_kinds()
    for seed in range(40):
        rng = random.Random(seed)
        pool = range(0, len(kinds), 3)
        paper = make_paper(rng, kinds, pool)
        words = set(paper.page.text.split())
        schema, numbers = ask(rng, kinds, pool, paper)

        for name, values in paper.printed.values():
            assert set(name.split()[:-1]) <= words
            assert set(values[-1].split()) <= words
        absent = [name for name in schema if numbers[name] not in paper.printed]
        assert 1 <= len(absent) <= 4
        assert numbers.keys() == schema.keys()


async def test_learning() -> None:
    """The rows are those that the service weighs; of each page labels are chosen once; the curve rises."""
    embeddings: Any = MeaningByFirstWord()
    asked = await examples(embeddings, [(1, 24)])
    network = fit(asked)

    likelier = np.concatenate([likelihoods(network, one)[one.right] for one in asked])
    others = np.concatenate([likelihoods(network, one)[~one.right] for one in asked])
    assert likelier.mean() > others.mean() + 0.2
    with np.load(BUNDLED_ADAPTERS / "own-names" / "weights.npz") as bundled:
        assert all(bundled["mean"].shape == one.features.shape[1:] for one in asked)
    assert all(len(list(chosen(network, [one]))) <= len({label for label, _ in one.pairs}) for one in asked)
    assert calibration(list(chosen(network, asked)))[0] > 0
