"""Summaries of the text's own sentences, and those that a model writes."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from backend.errors import CallerGone, DeadlineExceeded, FinanciaError, InvalidField, ModelPending
from backend.lanes.inference import Urgency
from backend.serving.pending_models import PendingModel, PendingModels
from backend.summaries.records import SummaryOptions
from backend.summaries.writers import Written, reading_of
from tests.summaries.conftest import Summaries
from tests.tiny_generators import TinyGenerators

Make = Callable[..., Summaries]
TEXT = (
    "QUARTERLY REPORT OF THE BOARD\n\n"
    "Revenue of the group rose by 12 percent to 310 million euros in the third quarter. "
    "This increase came from higher prices for steel in the north of Spain. "
    "The board proposes a dividend of 0.45 euros a share for the year.\n\n"
    "Total 1.284,50 1.061,57 222,93\n\n"
    "Net debt of the group fell to 90 million euros after the sale of the port terminal. "
    "However, the cost of energy remains the largest risk for the coming year."
)
WRITES = SummaryOptions("model", max_tokens=12)


async def test_an_extract(make_summaries: Make) -> None:
    """Whole sentences of the text, in its order, at their places; no heading, no row."""
    result = await make_summaries().service.summarize(TEXT, SummaryOptions(sentences=4))
    summary = result.summary

    assert ("extractive", False, 1.0) == (summary.method, summary.generated, summary.coverage)
    assert 4 == len(summary.sentences)
    assert [TEXT[each.start : each.end] for each in summary.sentences] == [each.text for each in summary.sentences]
    assert sorted(each.start for each in summary.sentences) == [each.start for each in summary.sentences]
    assert summary.text == " ".join(each.text for each in summary.sentences)
    assert all("QUARTERLY" not in each.text and "1.061" not in each.text for each in summary.sentences)
    assert result.tokens > 50
    assert "en" == summary.language.code


@pytest.mark.parametrize("options", [SummaryOptions(sentences=count) for count in (1, 2, 3, 5)])
async def test_no_dangling_reference(make_summaries: Make, options: SummaryOptions) -> None:
    """ "This increase" and "However" come after the sentence they refer to, or not at all."""
    text = (await make_summaries().service.summarize(TEXT, options)).summary.text

    assert "This increase" not in text or "third quarter. This increase" in text
    assert "However" not in text or "port terminal. However" in text


async def test_tokens_limit_an_extract(make_summaries: Make) -> None:
    """Counted by the embedding model; a text without a sentence that fits has an empty summary."""
    bench = make_summaries()
    text = (await bench.service.summarize(TEXT, SummaryOptions(max_tokens=40))).summary.text
    nothing = (await bench.service.summarize(TEXT, SummaryOptions(max_tokens=8))).summary

    [tokens] = bench.stack.catalog.embedding().tokenizer.encodings([text], add_special_tokens=False)
    assert 15 < len(tokens) <= 40
    assert ("", ()) == (nothing.text, nothing.sentences)
    assert ["(raise max_tokens)"] == [warning[-18:] for warning in nothing.warnings]


@pytest.mark.parametrize("text", ["", "   \n", "Total 1,284.50", "🙂"])
async def test_a_text_without_sentences(make_summaries: Make, text: str) -> None:
    """An empty summary that says why, not an error."""
    summary = (await make_summaries().service.summarize(text, SummaryOptions())).summary

    assert "" == summary.text
    assert ["text: empty"] == [warning.partition(",")[0] for warning in summary.warnings]


async def test_options_of_a_writer_are_named(make_summaries: Make) -> None:
    """Where the text's own sentences are asked for."""
    options = SummaryOptions(sentences=1, min_tokens=5, beams=2)
    [warning] = (await make_summaries().service.summarize(TEXT, options)).summary.warnings

    assert warning.startswith("min_tokens, beams: not used")


async def test_what_pages_repeat(make_summaries: Make) -> None:
    """A closing line of two pages is in no summary."""
    closing = "The committee reviewed the calendar of work and agreed to keep the meetings."
    text = f"{TEXT}\n{closing}\n\f{TEXT.replace('1', '7').replace('0', '8')}\n{closing}"

    assert closing not in (await make_summaries().service.summarize(text, SummaryOptions(sentences=9))).summary.text


@pytest.mark.parametrize(
    ("method", "setting"),
    [("model", "SUMMARY_MODEL"), ("api", "SUMMARY_URL"), ("abstractive", "SUMMARY_MODEL or SUMMARY_URL")],
)
async def test_nobody_who_writes(make_summaries: Make, method: Any, setting: str) -> None:
    """The error names the setting."""
    bench = make_summaries()

    with pytest.raises(InvalidField, match=setting):
        bench.service.check(SummaryOptions(method))
    with pytest.raises(InvalidField, match="own sentences"):
        await bench.service.summarize(TEXT, SummaryOptions(method))


async def test_a_model_that_the_hub_does_not_give_yet(make_summaries: Make) -> None:
    """503 with when to come back, not "not configured"."""
    bench = make_summaries()
    bench.stack.catalog.pending = PendingModels(
        [PendingModel("summaries", "owner/t5", ("owner/t5", "t5"), "ConnectError", None)]
    )

    with pytest.raises(ModelPending, match="ConnectError"):
        bench.service.check(SummaryOptions("model"))


@pytest.mark.parametrize("family", ["t5", "bart"])
async def test_a_model_writes(make_summaries: Make, generators: TinyGenerators, family: str) -> None:
    """Marked as generated, by its name; each sentence with what it rests on, or unsupported."""
    bench = make_summaries(generators.folder(family))
    result = await bench.service.summarize(TEXT, WRITES)
    summary = result.summary

    assert ("model", True, generators.folder(family).name) == (summary.method, summary.generated, summary.model)
    assert summary.text
    assert summary.written
    assert () == summary.sentences
    assert all(each.unsupported == bool(each.why) for each in summary.written)
    assert result.tokens > summary.tokens > 12
    assert 0 < summary.coverage < 1  # the tiny model reads 64 tokens


async def test_requests_share_a_batch(make_summaries: Make, generators: TinyGenerators) -> None:
    """Those that come while the lane is busy run together, each with its own lengths; the results are those alone."""
    bench = make_summaries(generators.folder("t5"))
    wishes = [replace(WRITES, max_tokens=8 + number) for number in range(4)]
    together = await asyncio.gather(*(bench.service.summarize(TEXT, wish) for wish in wishes))
    alone = [await bench.service.summarize(TEXT, wish) for wish in wishes]

    assert [result.summary.text for result in alone] == [result.summary.text for result in together]
    assert any(len(batch) > 1 for batch in bench.engine.batches)


async def test_a_caller_that_leaves_frees_the_lane(make_summaries: Make, generators: TinyGenerators) -> None:
    """The next summary is written although two thousand tokens were to come."""
    bench = make_summaries(generators.folder("t5"))
    long = SummaryOptions("model", max_tokens=2000, min_tokens=2000)
    leaving = asyncio.create_task(bench.service.summarize(TEXT, long))
    async with asyncio.timeout(60):
        while not bench.engine.batches:  # noqa: ASYNC110 - the lane has no event to wait for
            await asyncio.sleep(0.01)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        started_s = time.monotonic()
        result = await bench.service.summarize(TEXT, WRITES)

    assert result.summary.text
    assert time.monotonic() - started_s < 20  # two thousand tokens take longer on any machine of ours
    assert 2 == len(bench.engine.batches)


async def test_the_deadline_ends_the_writing(make_summaries: Make, generators: TinyGenerators) -> None:
    """The caller gets its error in time, and the lane is free again."""
    bench = make_summaries(generators.folder("bart"))
    await bench.service.summarize(TEXT, WRITES)  # everything is warm
    long = SummaryOptions("model", max_tokens=240, min_tokens=240, beams=4)
    with pytest.raises(DeadlineExceeded):
        await bench.service.summarize(TEXT, long, urgency=Urgency(deadline_s=time.monotonic() + 0.3))
    async with asyncio.timeout(30):
        again = await bench.service.summarize(TEXT, WRITES)

    assert again.summary.text


async def test_a_short_text_is_read_whole(make_summaries: Make, generators: TinyGenerators) -> None:
    """A text that fits the model is not cut to an extract."""
    bench = make_summaries(generators.folder("t5"))
    text = "The invoice is due. La factura: 100 euros."

    assert 1.0 == (await bench.service.summarize(text, WRITES)).summary.coverage


async def test_what_is_read_of_a_long_text(make_summaries: Make) -> None:
    """The best sentences that fit, in their order; each at its place."""
    bench = make_summaries()
    extract = (await bench.service.summarize(TEXT, SummaryOptions(sentences=4))).summary.sentences

    class Reader(FakeWriter):
        most_read_tokens = 30

        def count_tokens(self, texts: Any) -> list[int]:
            return [len(text.split()) for text in texts]

    reading = await reading_of(TEXT, extract, Reader())

    kept = sorted(extract, key=lambda sentence: -sentence.score)[: len(reading.places)]
    assert sum(len(text.split()) + 1 for text in reading.sentences) <= 30
    assert [(each.start, each.end) for each in sorted(kept, key=lambda each: each.start)] == list(reading.places)
    assert reading.text == " ".join(reading.sentences)
    assert 0 < reading.coverage < 1


class FakeWriter:
    """Answers ``text``, or raises ``error``."""

    method = "api"
    name = "fake"
    most_read_tokens = 1000

    def __init__(self, text: str = "", error: FinanciaError | None = None) -> None:
        self.text, self.error = text, error
        self.readings: list[Any] = []

    def count_tokens(self, texts: Any) -> list[int]:
        return [len(text) // 4 for text in texts]

    async def write(self, reading: Any, *_: Any) -> Written:
        self.readings.append(reading)
        if self.error is not None:
            raise self.error
        return Written(self.text, "fake-1", 7)


async def test_what_written_sentences_rest_on(make_summaries: Make) -> None:
    """The nearest sentences with their places; what is invented and changed figures are unsupported."""
    writer = FakeWriter(
        "The group's revenue rose 12 percent to 310 million euros in the third quarter. "
        "Penguins are flightless birds of the southern seas. "
        "Net debt of the group fell to 70 million euros after it sold the port terminal."
    )
    summary = (await make_summaries(chat=writer).service.summarize(TEXT, SummaryOptions("api"))).summary
    rose, invented, changed = summary.written

    assert ("api", "fake-1", 7, True) == (summary.method, summary.model, summary.tokens, summary.generated)
    assert "Revenue of the group" in rose.based_on[0].text
    assert TEXT[rose.based_on[0].start : rose.based_on[0].end] == rose.based_on[0].text
    assert rose.based_on[0].cosine > 0.8
    assert [False, True, True] == [each.unsupported for each in summary.written]
    assert ((), "no sentence of the text is near it") == (invented.based_on, invented.why)
    assert "Net debt" in changed.based_on[0].text
    assert changed.why.startswith("70")


async def test_sentences_limit_what_is_written(make_summaries: Make) -> None:
    """Those after them are dropped: models do not count."""
    writer = FakeWriter("Revenue rose in the third quarter. Net debt fell. Energy is a risk.")
    result = await make_summaries(chat=writer).service.summarize(TEXT, SummaryOptions("abstractive", sentences=2))

    assert "Revenue rose in the third quarter. Net debt fell." == result.summary.text


async def test_an_error_of_the_writer_is_the_answer(make_summaries: Make) -> None:
    """No extract takes the place of what was asked for."""
    bench = make_summaries(chat=FakeWriter(error=CallerGone("gone")))

    with pytest.raises(CallerGone):
        await bench.service.summarize(TEXT, SummaryOptions("api"))


async def test_a_long_form_is_read_from_its_beginning(make_summaries: Make) -> None:
    """A text without whole sentences has no extract."""

    class Reader(FakeWriter):
        most_read_tokens = 20

        def count_tokens(self, texts: Any) -> list[int]:
            return [len(text.split()) for text in texts]

    reading = await reading_of("\n\n".join(f"Row {number}: 12" for number in range(50)), (), Reader())

    assert ("Row 0: 12", 5) == (reading.sentences[0], len(reading.sentences))
