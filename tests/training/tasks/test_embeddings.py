"""The embeddings task: all objectives, chunking, publishing for every runtime."""

import json

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from backend.errors import BadData, BadSettings
from backend.models.model_files import resolve
from backend.models.onnx_encoder import OnnxEncoder
from backend.models.spec import Pooling
from backend.models.torch_encoder import TorchEncoder
from backend.training.records import TrainingConfig
from backend.training.tasks.classifier_head import encode, frozen_vectors
from backend.training.tasks.embeddings import prepare
from tests.models.test_parity import assert_same, run
from tests.tiny_models import FAMILIES, PROMPTS, tokenizer_of
from tests.training.tasks.task_checks import assert_splits_agree, fit

CONFIG = TrainingConfig(batch_size=16)
NAMES = ("invoice", "total", "factura", "importe", "euros", "query", "zürich", "ñandú")
PAIRS = [(f"the {name} {number}", f"{number} de {name} due") for name in NAMES for number in range(4)]
TEXTS = ("the invoice 3", "2 de euros due", "a", "query " * 80)


def tsv(folder, header: str, rows, name: str = "train.tsv"):
    file = folder / name
    lines = [header, *("\t".join(str(value) for value in row) for row in rows)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def pairs(folder):
    return tsv(folder, "anchor\tpositive", PAIRS)


def scored(folder):
    rows = [
        (f"the {name} {number}", f"la {other_name} {number}", 5.0 if name == other_name else 1.0 * (number % 2))
        for name in NAMES[:4]
        for other_name in NAMES[:4]
        for number in range(3)
    ]
    return tsv(folder, "sentence1\tsentence2\tscore", rows)


def triplets(folder):
    rows = [(*pair, PAIRS[(place + 9) % len(PAIRS)][1]) for place, pair in enumerate(PAIRS)]
    return tsv(folder, "anchor\tpositive\tnegative", rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "objective", "goal"),
    [
        pytest.param(pairs, "multiple_negatives", "mrr@10", id="pairs"),
        pytest.param(triplets, "multiple_negatives", "mrr@10", id="triplets-among-all"),
        pytest.param(triplets, "triplet", "triplet_accuracy", id="triplets"),
        pytest.param(scored, "cosent", "spearman", id="scores-in-order"),
        pytest.param(scored, "cosine", "spearman", id="scores-as-cosines"),
    ],
)
def test_every_objective_learns(tiny, tmp_path, data, objective, goal):
    """The measure that the objective is for rises."""
    file = data(tmp_path)
    task = prepare(file, resolve(str(tiny.folder("bert"))), CONFIG, evaluation=file, objective=objective)
    before = task.evaluate(task.model.eval())[goal]

    fit(task)

    assert task.evaluate(task.model)[goal] > before + 0.02 or task.evaluate(task.model)[goal] > 0.99
    assert task.splittable == (objective in ("triplet", "cosine"))


@pytest.mark.parametrize(("data", "objective"), [(pairs, "multiple_negatives"), (scored, "cosent")])
def test_chunks_change_nothing(tiny, tmp_path, data, objective):
    """Loss and gradients of a whole batch, whatever runs at once; also after the loop asked for less."""
    task = prepare(data(tmp_path), resolve(str(tiny.folder("bert"))), CONFIG, objective=objective)
    task.model.eval()

    def run_once():
        part = task.loss(task.model, task.collate(range(10)))
        part.total.backward()
        gradient = torch.cat(
            [parameter.grad.flatten() for parameter in task.model.parameters() if parameter.grad is not None]
        )
        task.model.zero_grad()
        return part.total.item(), part.weight, gradient

    total, weight, expected = run_once()
    for items in (5, 1):
        task.limit_chunk(items)
        again, same, gradient = run_once()
        assert 10 == weight == same
        assert total == pytest.approx(again, rel=1e-4)
        torch.testing.assert_close(gradient, expected, atol=1e-3 * expected.abs().max().item(), rtol=1e-2)


@pytest.mark.parametrize(("data", "objective"), [(scored, "cosine"), (triplets, "triplet")])
def test_any_cut_gives_the_same_loss(tiny, tmp_path, data, objective):
    """For objectives without in-batch negatives."""
    task = prepare(data(tmp_path), resolve(str(tiny.folder("bert"))), CONFIG, objective=objective)

    assert_splits_agree(task, 5)


def test_copies_are_no_negatives(tiny, tmp_path):
    """Two rows with the same positive do not push it away from each other's anchor."""
    rows = [("the invoice", "la factura"), ("total", "la factura")]
    task = prepare(tsv(tmp_path, "anchor\tpositive", rows), resolve(str(tiny.folder("bert"))), CONFIG, held_out=0)

    assert 0.0 == pytest.approx(task.loss(task.model.eval(), task.collate([0, 1])).total.item(), abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("lora_rank", [None, 4], ids=["full", "lora"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_folder_gives_the_trained_vectors(tiny, tmp_path, family, lora_rank):
    """The trained model, our encoders on torch and ONNX Runtime, and sentence-transformers agree on every text."""
    config = TrainingConfig(batch_size=16, lora_rank=lora_rank)
    task = prepare(pairs(tmp_path), resolve(str(tiny.folder(family))), config)
    fit(task, steps=3)

    task.publish(task.model, tmp_path / "out", {"command": "test"})

    spec = resolve(str(tmp_path / "out"))
    ids = [tokens.ids for tokens in tokenizer_of(tmp_path / "out").encode(TEXTS)]
    expected = encode(task.model, ids, task._pad_id)
    for encoder in (
        OnnxEncoder(spec, dtype="fp32", threads=1),
        TorchEncoder(spec, dtype="fp32", device="cpu", threads=1),
    ):
        assert_same(expected, run(encoder, ids, spec.pooling))
    reference = SentenceTransformer(str(tmp_path / "out"), device="cpu", local_files_only=True)
    assert_same(expected, reference.encode(list(TEXTS)))
    assert 48 == spec.max_tokens == reference.max_seq_length


@pytest.mark.slow
@pytest.mark.parametrize("normalize", [True, False], ids=["normalized", "raw"])
@pytest.mark.parametrize("pooling", [str(one) for one in Pooling])
def test_pooling_prompts_and_normalisation_are_kept(tiny, tmp_path, pooling, normalize):
    """What the base says of itself, the published folder says too, and means the same by it."""
    base = resolve(str(tiny.folder("bert", pooling, normalize=normalize, prompts=True)))
    task = prepare(pairs(tmp_path), base, CONFIG)

    task.publish(task.model, tmp_path / "out", {})

    spec = resolve(str(tmp_path / "out"))
    assert (base.pooling, base.normalize, base.max_tokens) == (spec.pooling, spec.normalize, spec.max_tokens)
    assert PROMPTS == spec.prompts
    np.testing.assert_allclose(frozen_vectors(spec, TEXTS)[0], frozen_vectors(base, TEXTS)[0], atol=1e-4)


def test_prompts_of_queries_and_documents(tiny, tmp_path):
    """The first text of a pair is the query, where the base tells them apart; scored texts are all alike."""
    base = resolve(str(tiny.folder("bert", prompts=True)))
    tokenizer = tokenizer_of(base.folder)

    task = prepare(pairs(tmp_path), base, CONFIG, held_out=0)
    alike = prepare(scored(tmp_path), base, CONFIG, held_out=0)

    expected = [tokenizer.encode([PAIRS[0][0]], prompt=PROMPTS["query"])[0].ids, tokenizer.encode([PAIRS[0][1]])[0].ids]
    for ids, found in zip(expected, task._ids[0], strict=True):
        np.testing.assert_array_equal(ids, found)
    np.testing.assert_array_equal(tokenizer.encode([alike.data.train[0].texts[0]])[0].ids, alike._ids[0][0])


@pytest.mark.slow
@pytest.mark.parametrize("width", [32, 48], ids=["same-width", "wider"])
def test_distillation_from_a_teacher(tiny, tmp_path, width):
    """The student comes to give the teacher's vectors for both languages; a wider teacher keeps its neighbourhoods."""
    wide = {"hidden_size": width} if width != 32 else {}
    teacher = resolve(str(tiny.plain("mpnet", **wide)))
    file = tsv(tmp_path, "en\tes", PAIRS)
    task = prepare(file, resolve(str(tiny.folder("bert"))), CONFIG, teacher=teacher, evaluation=file)
    before = task.loss(task.model.eval(), task.collate(range(16))).total.item()

    fit(task)

    assert task.loss(task.model, task.collate(range(16))).total.item() < before / 2
    assert task.splittable
    assert_splits_agree(task, 5)
    task.publish(task.model, tmp_path / "out", {})
    assert teacher.name in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_invalid_teachers(tiny, tmp_path):
    """A narrower teacher, or one for another objective, is refused with the reason."""
    base, file = resolve(str(tiny.folder("bert"))), tsv(tmp_path, "en\tes", PAIRS)

    with pytest.raises(BadSettings, match="its vectors are 16 wide, the base's 32"):
        prepare(file, base, CONFIG, teacher=resolve(str(tiny.plain("bert", hidden_size=16))))
    with pytest.raises(BadSettings, match="distillation needs one"):
        prepare(file, base, CONFIG, objective="distillation")
    with pytest.raises(BadSettings, match="a teacher goes with distillation"):
        prepare(file, base, CONFIG, objective="multiple_negatives", teacher=base)


def test_data_that_an_objective_cannot_use(tiny, tmp_path):
    """Kinds are not mixed, and scores must differ."""
    base = resolve(str(tiny.folder("bert")))

    with pytest.raises(BadData, match="2 texts an example without a score; cosent cannot use it"):
        prepare(pairs(tmp_path), base, CONFIG, objective="cosent")
    same = [(f"a {number}", "b", 1.0) for number in range(4)]
    file = tsv(tmp_path, "sentence1\tsentence2\tscore", same, name="same.tsv")
    with pytest.raises(BadData, match=r"all 4 scores are 1\.0; there is no order to learn"):
        prepare(file, base, CONFIG)
    (tmp_path / "mixed").mkdir()
    tsv(tmp_path / "mixed", "anchor\tpositive", PAIRS, name="a.tsv")
    tsv(tmp_path / "mixed", "sentence1\tsentence2\tscore", [("a", "b", 1.0)], name="b.tsv")
    with pytest.raises(BadData, match="mixes pairs, scored pairs and triplets"):
        prepare(tmp_path / "mixed", base, CONFIG)
    with pytest.raises(BadData, match=r"b\.tsv:2: the evaluation data is of another kind"):
        prepare(pairs(tmp_path), base, CONFIG, evaluation=tmp_path / "mixed" / "b.tsv")


def test_queries_and_a_corpus(tiny, tmp_path):
    """A retrieval set is learnt from and measured; a query may have several right texts."""
    for part, rows in (
        ("queries", [{"id": f"q{number}", "text": f"the {name}"} for number, name in enumerate(NAMES)]),
        ("corpus", [{"id": f"d{number}", "text": f"la {NAMES[number // 2]} {number}"} for number in range(16)]),
    ):
        lines = [json.dumps(row) for row in rows]
        (tmp_path / f"en_{part}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    qrels = [(f"q{number // 2}", f"d{number}", 1) for number in range(16)]
    tsv(tmp_path, "query_id\tdoc_id\trel", qrels, name="qrels.tsv")

    task = prepare(tmp_path, resolve(str(tiny.folder("bert"))), CONFIG, held_out=0.25)

    assert [12, 4] == [len(task.data.train), len(task.data.evaluation)]
    assert {"mrr@10", "recall@1", "ndcg@10"} <= task.evaluate(task.model.eval()).keys()
