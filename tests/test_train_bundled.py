"""The sets of the bundled models are cut the same way each time, and scores are printed from files alone."""

from pathlib import Path

import pytest

from backend.models.model_files import resolve
from backend.training.data.conll import Sentence, read_conll
from backend.training.tasks.ner import prepare
from tests.tiny_models import tiny
from tests.training.tasks.tagged_sentences import CASED, CONFIG, conll
from tools import score_ner, train_bundled
from tools.train_bundled import MADE, RUNS, Part, Run, cut

__all__ = ["tiny"]
FILE = "en_all_train.conll"


@pytest.fixture
def sets(tmp_path: Path) -> Path:
    """Two sets of ten sentences, "0" to "9"."""
    for name in ("ner_one", "ner_two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "SOURCE.md").write_text(f"## Licence\n\n{name}\n", encoding="utf-8")
        rows = "\n\n\n".join(f"{number}\tB-PER\nsaid\tO" for number in range(10))
        (tmp_path / name / "en_all_train.conll").write_text(f"{rows}\n\n", encoding="utf-8")
    return tmp_path


def first_words(file: Path) -> str:
    """Of each sentence, joined."""
    return "".join(block.partition("\t")[0].strip() for block in file.read_text(encoding="utf-8").split("\n\n"))


def sentences_below(folder: Path) -> list[Sentence]:
    """Of all CoNLL files there, if any."""
    return [sentence for file in folder.glob("*.conll") for sentence in read_conll(file)]


def test_cut(sets: Path, tmp_path: Path):
    """Every third one, twice, the end of the file for evaluation; licences come along; a second time is the same."""
    parts = [
        Part("ner_one", "en_all_train", every=3),
        Part("ner_two", "en_all_train", every=3, times=2, held_out=0.3),
        Part("ner_one", "en_all_train", every=3),
    ]
    for _ in range(2):
        folders = cut(parts, sets, tmp_path / "work")

    assert [tmp_path / "work" / "ner_one", tmp_path / "work" / "ner_two"] == folders
    assert "0369" == first_words(folders[0] / "en_all_train.conll")
    assert "036036" == first_words(folders[1] / "en_all_train.conll")
    assert "789" == first_words(folders[1] / "en_all_dev.conll")
    assert not (folders[0] / "en_all_dev.conll").exists()
    assert "ner_two" in (folders[1] / "SOURCE.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_recipe_is_about_files_that_are_there(data_dir: Path, tmp_path: Path):
    """Every part of the bundled tagger, where the shared data lies; no sentence is on both sides of a cut."""
    folders = [folder for run in RUNS for folder in cut(run.parts, data_dir, tmp_path / run.name)]

    for folder in folders:
        for held in folder.glob("*_dev.conll"):
            learnt = folder / held.name.replace("_dev", "_train")
            if not learnt.is_file():
                continue
            blocks = [set(file.read_text(encoding="utf-8").strip().split("\n\n")) for file in (held, learnt)]
            long = {block for block in blocks[0] if block.count("\n") >= 20}
            assert len(long & blocks[1]) <= 0.02 * max(1, len(long)), held


def test_a_bundled_model_is_put_in_place(sets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each run goes on from the one before; of the last what serving reads is put there, of a failed one nothing."""
    place, work, bases, codes = tmp_path / "bundled", tmp_path / "work", [], iter([0, 0, 0, 1])
    runs = (
        Run("one", (Part("ner_one", "en_all_train"),), ("--halfway",), made=7),
        Run("two", (Part("ner_two", "en_all_train", every=2, first=1, bare_every=3),), ()),
    )

    def training(arguments: list[str]) -> int:
        made = Path(arguments[-1])
        made.mkdir(parents=True)
        bases.append(arguments[arguments.index("--base") + 1] if "--base" in arguments else "")
        for name in (*train_bundled.ADAPTER, "train.jsonl"):
            (made / name).write_text("new", encoding="utf-8")
        return next(codes)

    for name, value in (("RUNS", runs), ("train", training), ("BUNDLED_ADAPTERS", place)):
        monkeypatch.setattr(train_bundled, name, value)
    command = ["ner", "--data", str(sets), "--work", str(work)]

    assert 0 == train_bundled.main(command)
    assert ["bundled-full", str(work / "one")] == bases
    assert [7, 0] == [len(sentences_below(work / "data" / name / MADE)) for name in ("one", "two")]
    assert sorted(train_bundled.ADAPTER) == sorted(file.name for file in (place / "ner").iterdir())
    card = (place / "ner" / "README.md").read_text(encoding="utf-8")
    assert "| ner_one/en_all_train | all | 1 | - |" in card
    assert "| one of 2, from the second on; of those without a name one of 3 | 1 | - |" in card
    assert 1 == card.count("7 sentences of `tools/made_names.py`")
    (place / "ner" / "README.md").write_text("old", encoding="utf-8")
    assert 1 == train_bundled.main(command)
    assert "old" == (place / "ner" / "README.md").read_text(encoding="utf-8")


def test_runs_take_turns(sets: Path, tmp_path: Path):
    """Two runs that begin at other sentences see none twice."""
    seen = [
        first_words(cut([Part("ner_one", "en_all_train", every=2, first=first)], sets, tmp_path / "work")[0] / FILE)
        for first in (0, 1)
    ]

    assert ["02468", "13579"] == seen


def test_bare_sentences(tmp_path: Path):
    """Of those without a name some are left out; those with one stay, and so does the order."""
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "SOURCE.md").write_text("", encoding="utf-8")
    rows = [f"{number}\t{'B-PER' if number % 4 == 0 else 'B-DATE' if number % 4 == 1 else 'O'}" for number in range(8)]
    (tmp_path / "set" / "es_train.conll").write_text("\n\n".join(rows), encoding="utf-8")

    [folder] = cut([Part("set", "es_train", bare_every=3)], tmp_path, tmp_path / "work")
    assert "0145" == first_words(folder / "es_train.conll")


def test_score_ner(tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A row a file; a model that is not there is told."""
    file = conll(tmp_path, *CASED)
    task = prepare(file, resolve(str(tiny.folder("bert"))), CONFIG)
    task.publish(task.model, tmp_path / "out", {})

    assert 0 == score_ner.main([str(tmp_path / "out"), str(file), "--types", "DOC"])
    assert "| train | " in capsys.readouterr().out
    assert 1 == score_ner.main([str(tmp_path / "absent"), str(file)])
    assert "does not exist" in capsys.readouterr().err
