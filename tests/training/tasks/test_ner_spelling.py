"""Token types that say how words are written: nothing at first, and learnt where the tokenizer lowers letters."""

import pytest
import torch
from tokenizers import Tokenizer

from backend.device.plan.placement import LoaderSettings
from backend.errors import BadSettings
from backend.models.model_files import resolve
from backend.models.spec import TokenTypes
from backend.models.tokenizer import tokenizer_of
from backend.models.words import KINDS
from backend.training.data.batches import MicroBatchLoader
from backend.training.records import TrainingConfig
from backend.training.tasks.ner import NerOptions, NerTask, prepare, sentence_rows
from backend.training.trainer.loop import train
from tests.toy_training import StopAt
from tests.training.tasks.tagged_sentences import CASED, CONFIG, LABELS, SENTENCES, conll, sentence
from tests.training.tasks.task_checks import fit


def spelt(tiny, data, config, **options) -> NerTask:
    """A task on the tiny BERT, whose tokenizer lowers every letter."""
    return prepare(data, resolve(str(tiny.folder("bert"))), config, options=NerOptions(**options))


def test_rows_know_how_words_are_written(tiny):
    """Every piece of a word has its word's kind, special tokens none; in capitals every word of two letters has."""
    tokenizer = tokenizer_of(resolve(str(tiny.folder("bert"))))

    [row] = sentence_rows([sentence("La", "xyZ", "12", "euros")], tokenizer, LABELS)

    assert [0, 1, 4, 4, 4, 0, 0, 0, 0] == list(row.types)
    assert [0, 2, 2, 2, 2, 0, 0, 2, 0] == list(row.uppercase_types)
    assert len(row.ids) == len(row.types) == len(row.uppercase_types)


def test_a_grown_table_changes_no_answer(tiny, tmp_path):
    """Every new row begins as the first one: what the model says does not depend on the spelling yet."""
    on, off = (
        spelt(tiny, conll(tmp_path, *SENTENCES), TrainingConfig(lora_rank=rank), spelling=mode)
        for rank, mode in ((4, "on"), (None, "off"))
    )
    batch = on.collate([0, 1, 2])
    types = torch.arange(batch["input_ids"].numel()).reshape(batch["input_ids"].shape) % KINDS
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}

    with torch.no_grad():
        logits = on.model.eval()(**inputs, token_type_ids=types).logits
        torch.testing.assert_close(logits, off.model.eval()(**inputs).logits)
    assert "token_type_ids" not in off.collate([0])


@pytest.mark.slow
@pytest.mark.parametrize("lora_rank", [None, 4])
def test_capitals_are_learnt_where_the_tokenizer_hides_them(tiny, tmp_path, lora_rank):
    """The same ids with other tags: only the spelling tells names from words."""
    config = TrainingConfig(batch_size=16, lora_rank=lora_rank)
    file = conll(tmp_path, *CASED)
    scores = {}
    for mode in ("off", "auto"):
        base = resolve(str(tiny.folder("bert")))
        task = prepare(file, base, config, evaluation=file, options=NerOptions(spelling=mode))
        fit(task, steps=100, learning_rate=3e-3 if lora_rank is None else 1e-2)
        scores[mode] = task.evaluate(task.model).get("f1", 0.0)

    assert scores["off"] < 0.9
    assert 1.0 == scores["auto"]


def test_the_config_says_what_token_types_mean(tiny, tmp_path):
    """Serving reads it; and a published model is a base again, whose rows are kept."""
    task = spelt(tiny, conll(tmp_path, *CASED), CONFIG)
    fit(task, steps=5)
    task.publish(task.model, tmp_path / "out", {})

    spec = resolve(str(tmp_path / "out"))
    again = prepare(tmp_path / "train.conll", spec, CONFIG)
    assert TokenTypes.SPELLING is spec.token_types
    assert KINDS == spec.config["type_vocab_size"]
    tables = [
        dict(task.model.named_parameters())["bert.embeddings.token_type_embeddings.weight"] for task in (task, again)
    ]
    torch.testing.assert_close(*tables)
    with pytest.raises(BadSettings, match="was taught with it"):
        prepare(tmp_path / "train.conll", spec, CONFIG, options=NerOptions(spelling="off"))


def test_families_without_token_types(tiny, tmp_path):
    """Nothing to say it with: off by itself, and an error where it was asked for."""
    base = resolve(str(tiny.folder("distilbert")))
    file = conll(tmp_path, *SENTENCES)

    assert "token_type_ids" not in prepare(file, base, CONFIG).collate([0])
    with pytest.raises(BadSettings, match="no table of token types"):
        prepare(file, base, CONFIG, options=NerOptions(spelling="on"))


def test_recased_sentences(tiny, tmp_path):
    """Of a sentence, an epoch and a seed comes one spelling; all three kinds come about."""
    task = spelt(tiny, conll(tmp_path, *CASED), TrainingConfig(seed=3), recased=0.5)

    def types(size: int) -> list[list[int]]:
        cuts = [list(range(len(task.lengths)))[at : at + size] for at in range(0, len(task.lengths), size)]
        with MicroBatchLoader(task.collate, LoaderSettings(0, False, None), "cpu") as loader:
            batches = [batch for epoch in range(6) for batch in loader.load(cuts, epoch=epoch)]
        return [row for batch in batches for row in batch["token_type_ids"].tolist()]

    drawn = types(1)
    assert drawn == types(4)
    assert {frozenset({0}), frozenset({0, 2}), frozenset({0, 1})} <= {frozenset(types_of_row) for types_of_row in drawn}


def test_recased_sentences_of_a_tokenizer_that_keeps_capitals(tiny, tmp_path):
    """The text itself is drawn anew: in capitals, with its names so, or small; the labels go along."""
    file = conll(tmp_path, *["El/O señor/O Ruiz/B-DOC debe/O"] * 40)
    base = resolve(str(tiny.folder("roberta")))
    task = prepare(file, base, TrainingConfig(seed=3), options=NerOptions(recased=0.9))
    tokenizer = Tokenizer.from_file(str(base.folder / "tokenizer.json"))

    batch = task.collate(range(40))

    texts = {tokenizer.decode(row) for row in batch["input_ids"].tolist()}
    assert {"El señor Ruiz debe", "EL SEÑOR RUIZ DEBE", "El señor RUIZ debe", "el señor ruiz debe"} == texts
    assert [1] * 40 == (batch["labels"] == 1).sum(1).tolist()


def test_a_run_that_was_interrupted_ends_as_one_that_was_not(tiny, tmp_path):
    """Spellings are drawn by epoch and example, so a resumed run sees the same ones: the same bits come out."""
    config = TrainingConfig(
        batch_size=4, epochs=2, learning_rate=1e-2, head_learning_rate=2e-2, lora_rank=2, device="cpu", use_amp=False
    )
    file = conll(tmp_path, *CASED)

    def run(name: str, settings: TrainingConfig, **how) -> dict[str, torch.Tensor]:
        task = prepare(
            file, resolve(str(tiny.folder("bert"))), settings, evaluation=file, options=NerOptions(recased=0.5)
        )
        train(task, settings, output=tmp_path / name, **how)
        return task.model.state_dict()

    stopper = StopAt(6)
    expected = run("whole", config)
    run("cut", config, observers=[stopper], stop=stopper.event)
    resumed = run("cut", config, resume=True)
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in expected.items())
