"""The model card: everything that is known is in it, what is not known is said, and the hub can read it."""

from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from backend.training.metrics import ClassScore, Report
from backend.training.model_card import Card, DataSource, data_source, render_card, stated_licence, versions, write_card
from backend.training.records import TrainingConfig

REPORT = Report(
    scores={"accuracy": 0.875, "macro_f1": 2 / 3},
    undefined={"f1[form]": "no evaluation example of it"},
    per_class=(ClassScore("invoice", 1.0, 0.5, 2 / 3, 4), ClassScore("form", None, None, None, 0)),
    labels=("invoice", "form"),
    confusion=((2, 2), (0, 0)),
)
CARD = Card(
    name="papers",
    task="document-images",
    summary="Tells kinds of papers.",
    base="some/base",
    base_revision="abc123",
    base_licence="cc-by-4.0",
    pipeline_tag="image-classification",
    labels=("invoice", "form"),
    data=[DataSource("scans", "training", 40, "CC-BY-4.0", "an archive")],
    report=REPORT,
    limits=["Never saw a photograph."],
    notes={"command": ["python", "-m", "backend.training", "--data", "my scans"], "config": {"epochs": 3}, "steps": 12},
)


def test_a_card_says_everything(tmp_path: Path):
    """Data with licence, command, settings, scores by class, confusions, limits, base and versions."""
    text = write_card(tmp_path, CARD).read_text(encoding="utf-8")

    for line in (
        "| scans | training | 40 | CC-BY-4.0 | an archive |",
        "python -m backend.training --data 'my scans'",
        "| epochs | 3 |",
        "| steps | 12 |",
        "| macro_f1 | 0.6667 |",
        "| invoice | 1.0000 | 0.5000 | 0.6667 | 4 |",
        "| form | - | - | - | 0 |",
        "| invoice | form | 2 |",
        "- f1[form] is not defined: no evaluation example of it.",
        "Base model: some/base at revision `abc123` (cc-by-4.0).",
        "- Never saw a photograph.",
        f"| torch | {versions()['torch']} |",
    ):
        assert line in text


def test_sets_stand_beside_one_another():
    """Each measure of each set, and each class it has; one set alone is the table above it already."""
    other = Report(scores={"accuracy": 0.5}, per_class=(ClassScore("form", 1.0, 1.0, 1.0, 2),))
    text = render_card(replace(CARD, by_set={"en_dev": REPORT, "es_dev": other}))

    assert "| set | accuracy | macro_f1 | F1 invoice | F1 form |" in text
    assert "| en_dev | 0.8750 | 0.6667 | 0.6667 | - |" in text
    assert "| es_dev | 0.5000 | - | - | 1.0000 |" in text
    assert "Scores of each set" not in render_card(replace(CARD, by_set={"en_dev": REPORT}))


def test_the_hub_reads_the_front_matter(tmp_path: Path):
    """Base, licence, task and scores are where the hub's tools look for them."""
    facts = ModelCard.load(write_card(tmp_path, CARD)).data

    assert ("some/base", "cc-by-4.0", "transformers") == (facts.base_model, facts.license, facts.library_name)
    assert "image-classification" == facts.pipeline_tag
    assert [("accuracy", 0.875), ("macro_f1", 0.666667)] == [
        (result.metric_type, result.metric_value) for result in facts.eval_results
    ]


def test_licences_that_differ_are_not_made_one():
    """A model of two licences has neither; its card says where to look."""
    mixed = Card("m", "ner", "s", base="b", base_licence="MIT", data=[DataSource("d", "training", 1, "CC-BY-4.0")])

    assert "license: other" in render_card(mixed)


def test_a_base_of_unknown_licence_is_not_given_the_data_s():
    """Free data do not free a base model."""
    text = render_card(Card("m", "ner", "s", base="b", data=[DataSource("d", "training", 1, "CC-BY-4.0")]))

    assert "license: other" in text
    assert "The licence of b is not stated" in text


def test_missing_facts_are_listed_as_limits():
    """No licence, no base and no evaluation are facts a reader needs."""
    text = render_card(Card("m", "ner", "s", data=[DataSource("secret", "training", 1)]))

    assert "The licence of secret is not stated" in text
    assert "Trained from random weights." in text
    assert "Not measured: there were no evaluation examples." in text
    assert "Nothing was measured" in text


def test_table_cells_are_escaped():
    """Bars and line breaks of a label or a licence do not break the table."""
    text = render_card(Card("m", "ner", "s", data=[DataSource("d", "training", 1, "one | two\nthree")]))

    assert "one \\| two three" in text


def test_a_whole_configuration_is_written():
    """Every setting of a run, nested ones as JSON."""
    text = render_card(Card("m", "ner", "s", notes={"config": TrainingConfig(learning_rate=3e-5).as_dict()}))

    assert "| learning_rate | 3e-05 |" in text
    assert '"growth_interval": 2000' in text
    assert "| max_steps | null |" in text


SOURCE = "# A set\n\n## Source\n\nsome archive\n\n## Licence\n\nCC-BY-4.0\n\n## Notes\n\nnone\n"


@pytest.mark.parametrize("inside", ["", "train", "train/invoice"])
def test_licence_and_source_come_from_the_data(tmp_path: Path, inside: str):
    """SOURCE.md is found beside the data and above it; a file's is its folder's."""
    folder = tmp_path / "scans"
    (folder / inside).mkdir(parents=True, exist_ok=True)
    (folder / "SOURCE.md").write_text(SOURCE, encoding="utf-8")
    file = folder / inside / "list.tsv"
    file.write_text("x", encoding="utf-8")

    for path in (file, folder / inside):
        found = data_source(path, role="training", examples=3)
        assert ("CC-BY-4.0", "some archive", 3) == (found.licence, found.source, found.examples)
        assert path.name == found.name


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        pytest.param("---\nlanguage: en\nlicense: apache-2.0\n---\n# A model\n", "apache-2.0", id="stated"),
        pytest.param("---\nlanguage: en\n---\nlicense: mit\n", "", id="beside-the-front-matter"),
        pytest.param("# A model\n", "", id="no-front-matter"),
        pytest.param("---\n: [\n---\n", "", id="broken"),
        pytest.param(None, "", id="no-card"),
    ],
)
def test_the_licence_of_a_base(tmp_path: Path, card: str | None, expected: str):
    """From the card in its folder, and nowhere else."""
    if card is not None:
        (tmp_path / "README.md").write_text(card, encoding="utf-8")

    assert expected == stated_licence(tmp_path)


def test_data_without_a_source(tmp_path: Path):
    """Unknown licence and source stay empty."""
    found = data_source(tmp_path / "gone.tsv", role="training", examples=0)

    assert ("gone.tsv", "", "") == (found.name, found.licence, found.source)
