"""Recordings are transcribed whole and in order, a few pieces at a time, and what was not said is told."""

import asyncio
import re
import time

import pytest

from backend.errors import DeadlineExceeded, InferenceFailed, InvalidField, NotInstalled, Overloaded, WrongMediaType
from backend.files.file_types import FileType
from backend.files.speech_records import SAMPLE_RATE, SpokenLanguage
from backend.files.stored_file import StoredFile
from backend.lanes.inference import Urgency
from backend.lanes.work_queue import Priority
from backend.speech.records import TranscriptionOptions
from backend.speech.transcription import TranscriptionService
from tests.fakes import TEST_TIMEOUT_S
from tests.speech.conftest import ENGLISH, PIECES_AT_ONCE, SpeechFixture, said, words


async def test_segments_have_the_times_of_the_file(speech: SpeechFixture) -> None:
    """A piece's times count from its beginning, those of a transcript from the file's."""
    result = await speech.transcribe((0, 2.0), (100, 1.0), (0, 3.0), (200, 0.5), (0, 1.0), with_words=True)
    transcript = result.transcript

    assert [(2.0, 3.0, "W100."), (6.0, 6.5, "W200.")] == [
        (part.start_s, part.end_s, part.text) for part in transcript.segments
    ]
    assert [("W100.", 2.0, 3.0, 0.5, False)] == [tuple(word) for word in transcript.segments[0].words]
    assert (7.5, 1.5, ("es", 0.9), "", "whisper-test") == (
        transcript.duration_s,
        transcript.speech_s,
        tuple(transcript.language),
        transcript.why,
        transcript.model,
    )
    assert result.lane_s > 0
    assert [2] == [len(file.info.sha256) // 32 for file in speech.readers.opened]
    assert all(file.is_closed and not file.is_cancelled for file in speech.readers.opened)


async def test_a_long_recording_loses_no_word(speech: SpeechFixture) -> None:
    """Whatever slices it is decoded in: every word comes once, in order."""
    result = await speech.transcribe((0, 0.3), *words(700))

    assert said(*range(100, 800)) == result.transcript.text
    assert len(speech.readers.slices) > 10
    assert 30.0 >= max(len(piece.samples) for piece in speech.whisper.pieces) / SAMPLE_RATE


async def test_segments_are_told_as_soon_as_they_are_final(speech: SpeechFixture) -> None:
    """Each once and in order; how long the file is comes with its end."""
    await speech.transcribe(*words(200))
    segments = [segment for event in speech.events for segment in event.segments]

    assert said(*range(100, 300)) == " ".join(segment.text for segment in segments)
    assert sorted(event.done_s for event in speech.events) == [event.done_s for event in speech.events]
    assert (None, 200.0) == (speech.events[0].total_s, speech.events[-1].total_s)
    assert 200.0 == speech.events[-1].done_s
    assert all(event.language == ("es", 0.9) for event in speech.events)


async def test_a_sentence_is_one_segment(speech: SpeechFixture) -> None:
    """It goes on after a short pause, and ends at a long one."""
    speech.whisper.unended = {100, 300, 400}
    pauses = ((0, 0.5), (0, 0.5), (0, 1.5), (0, 0.5))
    said_s = [part for level, pause in zip((100, 200, 300, 400), pauses, strict=True) for part in ((level, 1.0), pause)]
    result = await speech.transcribe(*said_s, (500, 1.0), with_words=True)

    assert [(0.0, 2.5, "W100 W200."), (3.0, 4.0, "W300"), (5.5, 8.0, "W400 W500.")] == [
        (segment.start_s, segment.end_s, segment.text) for segment in result.transcript.segments
    ]
    assert [2, 1, 2] == [len(segment.words) for segment in result.transcript.segments]


async def test_a_sentence_goes_on_in_the_next_piece(speech: SpeechFixture) -> None:
    """It is told when it has ended, and until then nothing counts as told from its beginning on."""
    sentences = [range(first, first + 7) for first in range(100, 191, 7)]
    speech.whisper.unended = {level for sentence in sentences for level in sentence[:-1]}
    result = await speech.transcribe(*words(91))
    segments = result.transcript.segments
    border_s = next(len(piece.samples) for piece in speech.whisper.pieces if piece.samples[0] == 100) / SAMPLE_RATE

    assert [" ".join(f"W{level}" for level in sentence) + "." for sentence in sentences] == [
        segment.text for segment in segments
    ]
    assert any(segment.start_s < border_s - 1 < border_s < segment.end_s - 1 for segment in segments)
    assert segments == tuple(segment for event in speech.events for segment in event.segments)
    for index, event in enumerate(speech.events):
        assert all(one.start_s >= event.done_s for later in speech.events[index + 1 :] for one in later.segments)


async def test_what_the_file_says_it_lasts_is_told(speech: SpeechFixture) -> None:
    """For whoever waits, long before its end was decoded; a lie only as far as its bytes allow."""
    speech.readers.declared_s = 0.02
    await speech.transcribe(*words(200))
    expected = [event.expected_s for event in speech.events if event.total_s is None]

    assert expected
    assert {0.02} == set(expected)


async def test_few_pieces_wait_at_a_time(speech: SpeechFixture) -> None:
    """An hour does not flood the queue, and is not in memory at once."""
    speech.whisper.gate.clear()
    task = asyncio.create_task(speech.transcribe(*words(400)))
    await asyncio.to_thread(speech.whisper.entered.wait, TEST_TIMEOUT_S)
    for _ in range(50):
        await asyncio.sleep(0)
    on_lanes = sum(map(len, speech.whisper.batches))
    waiting, decoded = speech.lanes.status().queued_jobs, len(speech.readers.slices)
    speech.whisper.gate.set()
    result = await task

    assert PIECES_AT_ONCE >= waiting + on_lanes > 0
    assert 5 > decoded
    assert said(*range(100, 500)) == result.transcript.text


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param([(0, 3.0)], "the recording is silent", id="digital-silence"),
        pytest.param([(0, 0.0)], "the recording has no sound in it", id="no-sample"),
    ],
)
async def test_silence_says_why_it_is_empty(
    speech: SpeechFixture, parts: list[tuple[int, float]], expected: str
) -> None:
    """The model is not asked: of silence it would make words."""
    result = await speech.transcribe(*parts)

    assert ("", expected) == (result.transcript.text, result.transcript.why)
    assert (None, 0.0) == result.transcript.language
    assert [] == speech.whisper.pieces


async def test_an_equal_request_is_answered_from_the_cache(speech: SpeechFixture) -> None:
    """With everything, and one event; other options make another transcript."""
    first = await speech.transcribe(*words(30), name="same", with_words=True)
    pieces, told = len(speech.whisper.pieces), len(speech.events)
    again = await speech.transcribe(*words(30), name="same", with_words=True)
    from_cache = speech.events[told:]
    await speech.transcribe(*words(30), name="same", with_words=True, language="es")

    assert 0.0 == again.lane_s
    assert first.transcript == again.transcript
    assert [first.transcript.segments] == [event.segments for event in from_cache]
    assert len(speech.whisper.pieces) > pieces
    assert 2 == len(speech.readers.opened)


async def test_pieces_that_were_heard_are_not_heard_again(speech: SpeechFixture) -> None:
    """Whoever tries again after a deadline or a restart goes on where it ended."""
    await speech.transcribe(*words(100), name="one")
    pieces = len(speech.whisper.pieces)
    result = await speech.transcribe(*words(100), name="other")

    assert pieces == len(speech.whisper.pieces)
    assert result.lane_s > 0
    assert said(*range(100, 200)) == result.transcript.text


async def test_words_that_are_asked_for_later_are_aligned_alone(speech: SpeechFixture) -> None:
    """Subtitles after the text: the model writes no text twice, and the words are those of a first request."""
    text = await speech.transcribe(*words(60), name="same")
    decoded = len(speech.whisper.pieces)
    later = await speech.transcribe(name="same", with_words=True)
    aligned = speech.whisper.pieces[decoded:]
    await speech.transcribe(name="copy", with_words=True)

    assert decoded == len(aligned) == len(speech.whisper.pieces) - decoded
    assert all(piece.written is not None for piece in aligned)
    assert [segment.text for segment in text.transcript.segments] == [part.text for part in later.transcript.segments]
    assert said(*range(100, 160)) == " ".join(word.text for part in later.transcript.segments for word in part.words)


async def test_a_text_that_is_asked_for_after_its_words_is_known(speech: SpeechFixture) -> None:
    """And is the one that a first request without words gets."""
    await speech.transcribe(*words(60), name="same", with_words=True)
    decoded = len(speech.whisper.pieces)
    text = await speech.transcribe(name="same")

    assert decoded == len(speech.whisper.pieces)
    assert not any(part.words for part in text.transcript.segments)
    assert said(*range(100, 160)) == text.transcript.text


async def test_equal_requests_share_their_work(speech: SpeechFixture) -> None:
    """The second joins the first, and hears everything too."""
    speech.whisper.gate.clear()
    first = asyncio.create_task(speech.transcribe(*words(40), name="same"))
    await asyncio.to_thread(speech.whisper.entered.wait, TEST_TIMEOUT_S)
    second = asyncio.create_task(speech.transcribe(name="same"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    speech.whisper.gate.set()
    result = await second

    assert said(*range(100, 140)) == result.transcript.text
    assert 1 == len(speech.readers.opened)
    assert not speech.readers.opened[0].is_cancelled


async def test_a_caller_that_leaves_ends_the_work(speech: SpeechFixture) -> None:
    """Nobody waits: the reader process is told, and what waits for a lane is dropped."""
    speech.whisper.gate.clear()
    task = asyncio.create_task(speech.transcribe(*words(400)))
    await asyncio.to_thread(speech.whisper.entered.wait, TEST_TIMEOUT_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    speech.whisper.gate.set()

    assert [(True, True)] == [(file.is_cancelled, file.is_closed) for file in speech.readers.opened]
    assert 0.0 == speech.service.backlog.left


async def test_two_languages_in_one_file(speech: SpeechFixture) -> None:
    """Each piece has its own where it is sure; most of the speech decides for the file."""
    result = await speech.transcribe(*words(30), (0, 3.0), *words(10, ENGLISH))
    languages = {segment.language for segment in result.transcript.segments[:30]}

    assert ({"es"}, {"en"}) == (languages, {segment.language for segment in result.transcript.segments[30:]})
    assert ("es", 0.9) == tuple(result.transcript.language)


async def test_languages_that_share_a_piece_are_heard_apart(speech: SpeechFixture) -> None:
    """The model writes one language: of both at once it would translate one, or make nonsense of it.

    Each part is in the language that its windows tell, also where the part as a whole would be taken for another.
    """
    apart_s = 0.2
    speech.whisper.scores = {ENGLISH: SpokenLanguage("es", 0.87)}
    result = await speech.transcribe(
        *words(8), (0, apart_s), *words(6, ENGLISH), (0, apart_s), *words(4, 300), with_words=True
    )
    segments = result.transcript.segments
    firsts = {segment.text: segment.start_s for segment in segments}

    assert said(*range(100, 108), *range(ENGLISH, ENGLISH + 6), *range(300, 304)) == result.transcript.text
    assert ["es"] * 8 + ["en"] * 6 + ["es"] * 4 == [segment.language for segment in segments]
    assert (0.0, 8.2, 14.4) == (firsts[said(100)], firsts[said(ENGLISH)], firsts[said(300)])
    assert ("es", 0.9) == tuple(result.transcript.language)


async def test_languages_are_heard_apart_from_the_cache_too(speech: SpeechFixture) -> None:
    """What is kept of a piece tells its languages."""
    parts = [*words(4), *words(4, ENGLISH)]
    first = await speech.transcribe(*parts, name="one")
    pieces = len(speech.whisper.pieces)
    again = await speech.transcribe(*parts, name="other")

    assert pieces == len(speech.whisper.pieces)
    assert first.transcript.segments == again.transcript.segments
    assert {"es", "en"} == {segment.language for segment in again.transcript.segments}


async def test_a_doubtful_piece_is_heard_in_the_language_of_the_file(speech: SpeechFixture) -> None:
    """Also the first one, before the language was known."""
    speech.whisper.scores = {50: SpokenLanguage("de", 0.4), 300: SpokenLanguage("en", 0.5)}
    result = await speech.transcribe((50, 1.0), (0, 3.0), *words(40), (0, 3.0), (300, 1.0))

    assert {"es"} == {segment.language for segment in result.transcript.segments}
    assert 2 == speech.telemetry.total("speech_retries_total")
    assert "es" == result.transcript.language.code
    assert 0.9 > result.transcript.language.score > 0.8


async def test_a_language_that_nobody_is_sure_of_is_unknown(speech: SpeechFixture) -> None:
    """With its score: under one half silence and noise have scores like that."""
    speech.whisper.scores = {100: SpokenLanguage("cy", 0.32)}
    result = await speech.transcribe((100, 2.0))

    assert (None, 0.32) == tuple(result.transcript.language)
    assert said(100) == result.transcript.text


async def test_the_language_that_was_asked_for_is_taken(speech: SpeechFixture) -> None:
    """With the prompt's tokens, in every piece."""
    result = await speech.transcribe((100, 1.0), (0, 3.0), (200, 1.0), language="de", prompt="AB", task="translate")

    assert ("de", 1.0) == tuple(result.transcript.language)
    assert [("de", (65, 66), "translate", 2)] * 2 == [
        (piece.options.language, piece.options.prompt, piece.options.task, piece.options.beams)
        for piece in speech.whisper.pieces
    ]


async def test_a_doubtful_text_is_heard_again(speech: SpeechFixture) -> None:
    """With the context of half a minute, as the hallucination filter says."""
    speech.whisper.doubted = {200}
    result = await speech.transcribe((100, 1.0), (0, 3.0), (200, 1.0))

    assert said(100, 200) == result.transcript.text
    assert [False, False, True] == sorted(piece.options.whole_window for piece in speech.whisper.pieces)
    assert 1 == speech.telemetry.total("speech_retries_total")


async def test_what_nobody_said_is_listed(speech: SpeechFixture) -> None:
    """A phrase that the model writes on noise is no segment; an empty transcript says so."""
    speech.whisper.phantoms = {200: "Thanks for watching!"}
    result = await speech.transcribe((200, 1.0))
    [dropped] = result.transcript.dropped

    assert ("", "Thanks for watching!", 0.0, 1.0) == (
        result.transcript.text,
        dropped.text,
        dropped.start_s,
        dropped.end_s,
    )
    assert dropped.why in result.transcript.why
    assert 1 == speech.telemetry.total("speech_dropped_total")


async def test_speech_of_which_no_words_were_made_is_told(speech: SpeechFixture) -> None:
    """Also where the rest of the recording has its text."""
    speech.whisper.skipped = {200}
    result = await speech.transcribe((100, 1.0), (0, 0.5), (200, 4.0), (0, 0.5), (300, 1.0))
    [dropped] = result.transcript.dropped

    assert said(100, 300) == result.transcript.text
    assert (1.5, 5.5, "") == (dropped.start_s, dropped.end_s, dropped.text)
    assert "of 4.0 s in which somebody may speak the model made no words" == result.transcript.why


async def test_a_cut_amid_speech_is_told(speech: SpeechFixture) -> None:
    """The segments on both sides of it say so, and no other; nothing is lost between them."""
    monologue = [(100, 20.0), (1, 0.2), (200, 20.0)]
    result = await speech.transcribe((50, 1.0), (0, 3.0), *monologue, (0, 3.0), (300, 1.0))
    segments = result.transcript.segments

    assert [False, True, True, False] == [segment.is_cut for segment in segments]
    assert segments[1].end_s == segments[2].start_s
    assert (4.0, 44.2) == (segments[1].start_s, segments[2].end_s)
    assert [100, 200] == [int(word) for word in re.findall(r"W(\d{3})", segments[1].text + segments[2].text)]


async def test_a_piece_that_fails_costs_itself_alone(speech: SpeechFixture) -> None:
    """The others are transcribed, the answer says what is missing, and it is not kept."""
    speech.whisper.failing = {200}
    first = await speech.transcribe((100, 1.0), (0, 3.0), (200, 1.0), (0, 3.0), (300, 1.0), name="same")
    speech.whisper.failing = set()
    again = await speech.transcribe(name="same")

    assert said(100, 300) == first.transcript.text
    assert "could not be transcribed" in first.transcript.why
    assert [(4.0, 5.0)] == [(lost.start_s, lost.end_s) for lost in first.transcript.dropped]
    assert said(100, 200, 300) == again.transcript.text
    assert again.lane_s > 0


async def test_a_recording_that_fails_whole_is_an_error(speech: SpeechFixture) -> None:
    """No empty transcript for a fault of the service."""
    speech.whisper.failing = {100}
    with pytest.raises(InferenceFailed):
        await speech.transcribe((100, 1.0))


async def test_a_damaged_end_is_told(speech: SpeechFixture) -> None:
    """What was decoded is transcribed."""
    speech.readers.incomplete = "from 1 s on the file is damaged"
    result = await speech.transcribe((100, 1.0))

    assert (said(100), "from 1 s on the file is damaged") == (result.transcript.text, result.transcript.why)


async def test_a_deadline_tells_how_far_it_came(speech: SpeechFixture) -> None:
    """And what to do: a job has more time."""
    speech.whisper.gate.clear()
    with pytest.raises(DeadlineExceeded, match=r"0( of 1)? seconds of the recording .*POST /v1/jobs"):
        await speech.transcribe((100, 1.0), urgency=Urgency(deadline_s=time.monotonic() + 0.05))

    assert [(True, True)] == [(file.is_cancelled, file.is_closed) for file in speech.readers.opened]


async def test_what_would_be_late_is_refused_before_it_is_decoded(speech: SpeechFixture) -> None:
    """With the time to wait, from the measured speed."""
    for _ in range(8):
        speech.service.backlog.measured(60.0, 60.0)
    ahead = speech.service.backlog.admit(1000.0, Priority.INTERACTIVE, time.monotonic() + 10_000)
    speech.readers.declared_s = 20.0
    with pytest.raises(Overloaded, match="1000 seconds of other recordings") as refused:
        await speech.transcribe((100, 20.0), urgency=Urgency(deadline_s=time.monotonic() + 60))
    ahead.close()
    result = await speech.transcribe((100, 20.0))

    assert refused.value.retry_after_s == 60.0
    assert [(0, 30.0)] == speech.readers.slices[:1]
    assert said(100) == result.transcript.text


async def test_files_without_sound_and_unknown_languages_are_refused(speech: SpeechFixture) -> None:
    """Before any work."""
    stored = StoredFile.of(b"%PDF-1.7\n", speech.readers.limits)
    with pytest.raises(WrongMediaType, match="/v1/documents"):
        await speech.service.transcribe(stored, TranscriptionOptions())
    with pytest.raises(InvalidField, match="'xx' is not one of de, en, es"):
        await speech.transcribe((100, 1.0), language="xx")

    assert [] == speech.readers.opened


async def test_without_a_model_it_says_what_to_install(speech: SpeechFixture) -> None:
    """Of this file alone: nothing tries again, and nothing else ends."""
    service = TranscriptionService(
        speech.readers,  # type: ignore[arg-type]
        None,
        speech.service._cache,
        speech.telemetry,
        why_none="install it",
    )
    stored = StoredFile.of(b"RIFF\x24\x00\x00\x00WAVEfmt ", speech.readers.limits)
    with pytest.raises(NotInstalled, match="install it") as refused:
        await service.transcribe(stored, TranscriptionOptions())
    with pytest.raises(NotInstalled, match="install it"):
        service.check_kind(FileType.AUDIO)
    service.check_kind(FileType.PDF)
    service.close()

    assert not refused.value.retryable
    assert ((), {"model": None, "why": "install it"}) == (service.names, service.report())


async def test_at_rest_the_memory_is_given_back(speech: SpeechFixture) -> None:
    """Once nothing is transcribed any more."""
    await speech.transcribe((100, 1.0))
    async with asyncio.timeout(TEST_TIMEOUT_S):
        await speech.released.wait()


async def test_background_work_waits_for_room(speech: SpeechFixture) -> None:
    """A job's piece that the queue refuses for now is tried again."""
    speech.whisper.gate.clear()
    task = asyncio.create_task(speech.transcribe(*words(60), urgency=Urgency(Priority.BULK, time.monotonic() + 60)))
    await asyncio.to_thread(speech.whisper.entered.wait, TEST_TIMEOUT_S)
    room = speech.lanes.limit_tokens - speech.lanes.status().queued_tokens
    filler = speech.lanes.submit(speech.whisper, [None, None], [room // 2, room // 2])
    for item in filler:
        item.abandon()
    speech.whisper.gate.set()
    result = await task

    assert said(*range(100, 160)) == result.transcript.text
