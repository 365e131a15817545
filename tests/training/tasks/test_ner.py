"""The ner task: labels on first sub-words, windows, training, publishing."""

import json

import pytest
import torch
from torch import nn
from transformers import AutoModelForTokenClassification, AutoTokenizer, pipeline

from backend.errors import BadData, BadSettings, ModelUnavailable
from backend.models.model_files import resolve
from backend.models.tokenizer import tokenizer_of
from backend.training.data.conll import detokenize, read_conll
from backend.training.losses import IGNORED
from backend.training.records import TrainingConfig
from backend.training.tasks.ner import NerOptions, first_pieces, prepare, sentence_rows
from tests.tiny_models import FAMILIES, MAX_TOKENS
from tests.training.tasks.tagged_sentences import CONFIG, LABELS, SENTENCES, conll, sentence
from tests.training.tasks.task_checks import assert_splits_agree, fit


@pytest.mark.parametrize("family", FAMILIES)
def test_each_word_is_assigned_to_its_first_piece(tiny, family):
    """In every family's tokenizer, however it marks spaces; other pieces of a word have no label."""
    tokenizer = tokenizer_of(resolve(str(tiny.folder(family))))
    words = ("la", "factura", "ñandú99", "is", "12.50", "euros", ".")
    text, spans = detokenize(words)
    pieces = tokenizer.pieces([text], add_special_tokens=False)[0]

    owners = first_pieces(pieces, text, spans)

    assert list(range(len(words))) == [word for word in owners if word != IGNORED]
    for piece, word in zip(pieces, owners, strict=True):
        if word != IGNORED:
            assert text[piece.start : piece.stop].strip()[0] == words[word][0]


def test_tags_stand_on_first_pieces(tiny):
    """Special tokens and later pieces of a word have no label."""
    tokenizer = tokenizer_of(resolve(str(tiny.folder("bert"))))

    rows = sentence_rows([sentence("the", "xyz", "euros", tags="O B-DOC I-DOC")], tokenizer, LABELS)

    assert [[IGNORED, 0, 1, IGNORED, IGNORED, 2, IGNORED]] == [list(row.labels) for row in rows]
    assert [[IGNORED, 0, 1, IGNORED, IGNORED, 2, IGNORED]] == [list(row.words) for row in rows]


def test_words_that_serving_cuts_are_taught_part_by_part(tiny):
    """ "is." is a word of the data, and two of serving, which reads a label from each; scores know the data's alone."""
    tokenizer = tokenizer_of(resolve(str(tiny.folder("bert"))))

    [row] = sentence_rows([sentence("the", "is.", "total.", tags="O B-DOC O")], tokenizer, LABELS)

    assert [IGNORED, 0, 1, 2, 0, 0, IGNORED] == list(row.labels)
    assert [IGNORED, 0, 1, IGNORED, 2, IGNORED, IGNORED] == list(row.words)


@pytest.mark.parametrize("family", ["bert", "xlm-roberta"])
def test_long_sentences_are_windowed_and_nothing_is_lost(tiny, family):
    """Each word belongs to one window, and no window is longer than the model's maximum."""
    tokenizer = tokenizer_of(resolve(str(tiny.folder(family))))
    long = sentence(*(("factura", "xy", "12")[number % 3] for number in range(150)))

    rows = sentence_rows([sentence("the"), long, sentence("is")], tokenizer, LABELS)

    assert len(rows) > 5
    assert all(len(row.ids) == len(row.words) == len(row.labels) <= MAX_TOKENS for row in rows)
    words = [word for row in rows if row.sentence == 1 for word in row.words if word != IGNORED]
    assert list(range(150)) == words
    assert [0, 2] == [rows[0].sentence, rows[-1].sentence]


def test_a_word_without_a_piece(tiny, tmp_path):
    """A control character has no piece in BERT's tokenizer: it is O, and nothing stops."""
    file = conll(tmp_path, "\u200b/B-DOC factura/B-DOC", *SENTENCES)
    task = prepare(file, resolve(str(tiny.folder("bert"))), CONFIG, evaluation=file)

    predicted = task.predict(task.model)
    assert [len(line.words) for line in read_conll(file)] == [len(tags) for tags in predicted]


@pytest.mark.parametrize("config", [CONFIG, TrainingConfig(batch_size=16, class_weights="balanced", focal_gamma=2.0)])
def test_any_cut_gives_the_same_loss(tiny, tmp_path, config):
    """Sums over labelled tokens, weighted or not."""
    task = prepare(conll(tmp_path, *SENTENCES), resolve(str(tiny.folder("bert"))), config)

    assert_splits_agree(task, 5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "lora_rank"), [("bert", None), ("xlm-roberta", None), ("bert", 8), ("mpnet", 8)], ids=str
)
def test_it_learns_and_others_load_it(tiny, tmp_path, family, lora_rank):
    """From untrained to most entities right; transformers then loads the folder and finds the same."""
    config = TrainingConfig(batch_size=16, lora_rank=lora_rank)
    base = resolve(str(tiny.folder(family)))
    task = prepare(conll(tmp_path, *SENTENCES), base, config)
    before = task.evaluate(task.model.eval()).get("f1", 0.0)

    fit(task, steps=60 if lora_rank is None else 150, learning_rate=3e-3 if lora_rank is None else 1e-2)
    task.publish(task.model, tmp_path / "out", {"command": "test", "config": config.as_dict()})

    assert before + 0.3 < task.evaluate(task.model)["f1"]
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "out")
    assert list(LABELS) == [model.config.id2label[number] for number in range(len(LABELS))]
    batch = task.collate([0, 1])
    with torch.no_grad():
        inputs = {name: value for name, value in batch.items() if name not in ("labels", "weight")}
        torch.testing.assert_close(model(**inputs).logits, task.model(**inputs).logits, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_the_pipeline_finds_entities(tiny, tmp_path):
    """transformers' own pipeline, from the folder alone."""
    task = prepare(conll(tmp_path, *SENTENCES), resolve(str(tiny.folder("bert"))), CONFIG)
    fit(task)
    task.publish(task.model, tmp_path / "out", {})

    entities = pipeline("ner", model=str(tmp_path / "out"), aggregation_strategy="first")(
        "la factura 403 is due 68 euros"
    )

    assert [("DOC", "factura 403"), ("SUM", "68 euros")] == [
        (entity["entity_group"], entity["word"]) for entity in entities
    ]


@pytest.mark.slow
def test_what_is_published(tiny, tmp_path):
    """safetensors, the base's tokenizer byte for byte, a card with the scores, and no path of this machine."""
    base = resolve(str(tiny.folder("bert")))
    task = prepare(conll(tmp_path, *SENTENCES), base, CONFIG)
    fit(task)

    task.publish(task.model, tmp_path / "out", {"command": "python -m backend.training ner"})

    written = {file.name for file in (tmp_path / "out").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md"} <= written
    assert (base.folder / "tokenizer.json").read_bytes() == (tmp_path / "out" / "tokenizer.json").read_bytes()
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "python -m backend.training ner" in card
    assert f"| f1 | {task.evaluate(task.model)['f1']:.4f} |" in card
    assert str(base.folder.parent) not in card + (tmp_path / "out" / "config.json").read_text(encoding="utf-8")
    assert AutoTokenizer.from_pretrained(tmp_path / "out")("la factura").input_ids


def test_a_published_model_is_a_base_again(tiny, tmp_path):
    """With the same labels or others: the encoder is kept, the head is new where it must be."""
    base = resolve(str(tiny.folder("bert")))
    first = prepare(conll(tmp_path, *SENTENCES), base, CONFIG)
    first.publish(first.model, tmp_path / "out", {})
    other = conll(tmp_path, "la/B-ART factura/O", *["the/B-ART invoice/O"] * 9, name="other.conll")

    second = prepare(other, resolve(str(tmp_path / "out")), CONFIG)

    assert ("O", "B-ART", "I-ART") == second.labels
    tensors = [
        dict(task.model.named_parameters())["bert.encoder.layer.1.output.dense.weight"] for task in (first, second)
    ]
    torch.testing.assert_close(*tensors)


def test_the_head_comes_from_the_seed(tiny, tmp_path):
    """Same seed, same start; the global random numbers are left alone."""
    file, base = conll(tmp_path, *SENTENCES), resolve(str(tiny.folder("bert")))
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)

    heads = [
        dict(prepare(file, base, TrainingConfig(seed=seed)).model.named_parameters())["classifier.weight"]
        for seed in (5, 5, 6)
    ]

    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])
    assert expected == torch.rand(1)


def test_types_to_learn_and_to_score(tiny, tmp_path):
    """Other kinds become O on both sides, so a set is scored on what it shares."""
    train = conll(tmp_path, *SENTENCES)
    dev = conll(tmp_path, "la/B-LAW factura/B-DOC", name="dev.conll")

    task = prepare(train, resolve(str(tiny.folder("bert"))), CONFIG, evaluation=dev, options=NerOptions(types=["DOC"]))

    assert ("O", "B-DOC", "I-DOC") == task.labels


def test_an_unknown_label_at_evaluation(tiny, tmp_path):
    """Named with file and line; a folder's dev file counts as given."""
    conll(tmp_path, *SENTENCES)
    conll(tmp_path, "la/O factura/B-DOC", "the/O law/B-LAW", name="es_dev.conll")

    with pytest.raises(BadData, match=r"es_dev\.conll:4: .*'LAW'.*it has DOC, SUM"):
        prepare(tmp_path, resolve(str(tiny.folder("bert"))), CONFIG)


def test_data_without_entities(tiny, tmp_path):
    """All O is nothing to learn."""
    with pytest.raises(BadData, match="every tag is O"):
        prepare(conll(tmp_path, *["la/O factura/O"] * 20), resolve(str(tiny.folder("bert"))), CONFIG)


def test_without_evaluation_sentences(tiny, tmp_path):
    """Too few to hold any back: no measures, and a card that says so."""
    task = prepare(conll(tmp_path, "la/O factura/B-DOC"), resolve(str(tiny.folder("bert"))), CONFIG)

    task.publish(task.model, tmp_path / "out", {})

    assert {} == task.evaluate(task.model)
    assert "Nothing was measured" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_a_base_with_absent_tensors_is_refused(tiny, tmp_path, copy_of):
    """transformers would fill them with random numbers and train on."""
    from safetensors.torch import load_file, save_file  # only this test breaks weights

    folder = copy_of(tiny.folder("bert"))
    tensors = load_file(folder / "model.safetensors")
    del tensors["encoder.layer.1.attention.self.key.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(ModelUnavailable, match=r"lacks the encoder's tensors.*key"):
        prepare(conll(tmp_path, *SENTENCES), resolve(str(folder)), CONFIG)


def test_the_config_says_what_it_is(tiny, tmp_path):
    """Labels both ways, and weights in float32."""
    task = prepare(conll(tmp_path, *SENTENCES), resolve(str(tiny.folder("distilbert"))), CONFIG)
    task.publish(task.model, tmp_path / "out", {})

    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert {label: number for number, label in enumerate(LABELS)} == config["label2id"]
    assert ["DistilBertForTokenClassification"] == config["architectures"]
    assert "float32" == config["dtype"]


def test_the_encoders_dropout_can_be_set(tiny, tmp_path):
    """In every layer of the encoder and the head, adapters aside; unset it is the base's own."""
    file, base = conll(tmp_path, *SENTENCES), resolve(str(tiny.folder("bert")))

    def dropouts(share: float | None) -> set[float]:
        model = prepare(file, base, CONFIG, options=NerOptions(encoder_dropout=share)).model
        return {module.p for module in model.modules() if isinstance(module, nn.Dropout)}

    assert {0.0} == dropouts(0.0)
    assert {0.1} == dropouts(None)
    with pytest.raises(BadSettings, match="--encoder-dropout=1: a share, from 0 to below 1"):
        NerOptions(encoder_dropout=1.0)
