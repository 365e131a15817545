"""Models that write: batch equals single, lengths, cancel, broken numbers, what is refused."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSeq2SeqLM

from backend.errors import CallerGone, InferenceFailed, ModelUnavailable
from backend.models.autotune import EncoderRequest
from backend.models.generation import Generation
from backend.models.spec import read_shape
from backend.serving.loading import choose_generator
from tests.tiny_generators import MAX_TOKENS, SEQ2SEQ, TinyGenerators, generator_of, generators
from tests.tiny_models import copy_of, placement, rewrite, spec_of, tokenizer_of

__all__ = ["copy_of", "generators"]
TEXTS = (
    "the invoice total is due, la factura de importe 100 euros",
    "total",
    "la factura: 1.284,50 €",
    "the the the invoice is due " * 6,
)


def ids_of(folder: Path) -> list[np.ndarray]:
    return [tokens.ids for tokens in tokenizer_of(folder).encode(TEXTS)]


def written(folder: Path, tasks: list[Generation], dtype: str = "fp32", device: str = "cpu") -> list[Any]:
    return [
        result if isinstance(result, Exception) else result.tolist()
        for result in generator_of(folder, dtype, device).generate(tasks)
    ]


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("family", SEQ2SEQ)
def test_batch_equals_single(generators: TinyGenerators, device: str, family: str, beams: int) -> None:
    """Whatever runs beside a text, of other lengths in and out: the same tokens."""
    folder = generators.folder(family)
    tasks = [Generation(ids, 6 + 5 * number, 3, beams) for number, ids in enumerate(ids_of(folder))]
    together = written(folder, tasks, device=device)

    assert together == [written(folder, [task], device=device)[0] for task in tasks]
    assert all(together)


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_greedy_is_that_of_transformers(generators: TinyGenerators, family: str) -> None:
    """One text, with the same settings."""
    folder = generators.folder(family)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    for ids in ids_of(folder):
        expected = model.generate(
            torch.from_numpy(ids[None]),
            max_new_tokens=12,
            num_beams=1,
            do_sample=False,
            no_repeat_ngram_size=3,
            forced_eos_token_id=None,
        )[0, 1:].tolist()
        ends = expected.index(model.config.eos_token_id) if model.config.eos_token_id in expected else len(expected)

        assert expected[:ends] == written(folder, [Generation(ids, 12)])[0]


def test_beams_of_one_batch_may_differ(generators: TinyGenerators) -> None:
    """Tasks with other beams run one after the other; results stay in order."""
    folder = generators.folder("t5")
    tasks = [Generation(ids, 8, 0, beams) for ids, beams in zip(ids_of(folder), (1, 4, 1, 2), strict=True)]

    assert written(folder, tasks) == [written(folder, [task])[0] for task in tasks]


@pytest.mark.parametrize("beams", [1, 4])
def test_lengths(generators: TinyGenerators, beams: int) -> None:
    """At most and at least so many tokens, each task its own."""
    folder = generators.folder("bart")
    lengths = [(1, 0), (9, 9), (20, 15), (4, 2)]
    tasks = [Generation(ids, most, least, beams) for ids, (most, least) in zip(ids_of(folder), lengths, strict=True)]

    for result, (most, least) in zip(written(folder, tasks), lengths, strict=True):
        assert least <= len(result) <= most


@pytest.mark.parametrize("beams", [1, 3])
def test_who_leaves_ends_its_row_alone(generators: TinyGenerators, beams: int) -> None:
    """The neighbour's text is the same; the model is asked no longer than for the longest wanted row."""
    folder = generators.folder("t5")
    ids, asked = ids_of(folder), count(1)
    leaving = Generation(ids[0], 50, 50, beams, is_wanted=lambda: next(asked) < 4)
    staying = Generation(ids[2], 8, 8, beams)
    gone, stays = written(folder, [leaving, staying])

    assert isinstance(gone, CallerGone)
    assert written(folder, [staying])[0] == stays
    assert next(asked) <= 10


def test_a_text_that_nobody_wants_stops_at_once(generators: TinyGenerators) -> None:
    """One step, not a thousand."""
    asked = count()
    task = Generation(ids_of(generators.folder("bart"))[0], 200, 200, 1, is_wanted=lambda: next(asked) < 0)

    assert isinstance(written(generators.folder("bart"), [task])[0], CallerGone)
    assert next(asked) <= 2


def test_numbers_that_are_not_finite_fail_one_text(generators: TinyGenerators, monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN never becomes a text."""
    folder = generators.folder("t5")
    generator = generator_of(folder)
    head: Any = generator._model.lm_head
    forward: Callable[..., Any] = head.forward

    def poisoned(hidden: torch.Tensor) -> torch.Tensor:
        logits = forward(hidden)
        logits[0] = torch.nan
        return logits

    fine = written(folder, [Generation(ids_of(folder)[1], 6)])[0]
    monkeypatch.setattr(head, "forward", poisoned)
    broken, other = generator.generate([Generation(ids_of(folder)[0], 6), Generation(ids_of(folder)[1], 6)])

    assert isinstance(broken, InferenceFailed)
    assert "PRECISION=fp32" in str(broken)
    assert fine == other.tolist()


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_bf16(generators: TinyGenerators, device: str, family: str) -> None:
    """Half the memory; within the lengths, and tokens of the vocabulary."""
    folder = generators.folder(family)
    results = written(folder, [Generation(ids, 10, 2) for ids in ids_of(folder)], "bf16", device)

    assert all(2 <= len(result) <= 10 for result in results)
    assert torch.bfloat16 == generator_of(folder, "bf16", device)._model.dtype


def test_shapes(generators: TinyGenerators) -> None:
    """The sizes of the reading part, and how many tokens it reads."""
    t5, bart = (spec_of(generators.folder(family)) for family in ("t5", "bart"))

    assert [True, True] == [t5.is_seq2seq, bart.is_seq2seq]
    assert [32, 32] == [t5.width, bart.width]
    assert [MAX_TOKENS, MAX_TOKENS] == [t5.max_tokens, bart.max_tokens]
    assert 256 == read_shape(generators.folder("bart")).positions


def test_a_model_without_all_its_tensors(generators: TinyGenerators, copy_of: Callable[[Path], Path]) -> None:
    """transformers would fill them with random numbers."""
    folder = copy_of(generators.folder("t5"))
    rewrite(folder / "config.json", num_layers=3)

    with pytest.raises(ModelUnavailable, match="lacks the tensors"):
        generator_of(folder)


@pytest.mark.parametrize(
    ("precision", "dtype"), [("auto", "fp32"), ("exact", "fp32"), ("bf16", "bf16"), ("fp16", "fp16"), ("int8", "fp32")]
)
def test_the_choice_on_a_cpu(generators: TinyGenerators, precision: Any, dtype: str) -> None:
    """What was asked for, where torch has it; the reason is kept."""
    choice = choose_generator(spec_of(generators.folder("t5")), placement(), EncoderRequest(precision))

    assert ("torch", dtype) == (choice.runtime, choice.dtype)
    assert choice.why
    assert ("whatever" in " ".join(choice.why)) == (precision == "int8")
