"""SRT and WebVTT: lines and seconds of a cue, cuts at words, what has a meaning in each format."""

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.files.speech_records import Segment, SpokenLanguage, SpokenWord, Transcript, gap, joined, width
from backend.speech.subtitles import CUE_LINES, CUE_S, LINE_CHARS, MIN_CUE_MS, MS_PER_CHAR, Cue, cues, srt, webvtt


def spoken(text: str, start_s: float = 0.0, each_s: float = 0.5) -> Segment:
    """A segment with times of its words."""
    words = tuple(
        SpokenWord(word, start_s + index * each_s, start_s + (index + 1) * each_s, 0.9)
        for index, word in enumerate(text.split())
    )
    return Segment(start_s, start_s + len(words) * each_s, text, words)


def test_srt() -> None:
    """Numbers, commas in the times, an empty line after each."""
    segments = [Segment(0.0, 1.5, "Hola."), Segment(3661.25, 3662.0, "Adiós.")]

    assert "1\n00:00:00,000 --> 00:00:01,500\nHola.\n\n2\n01:01:01,250 --> 01:01:02,250\nAdiós.\n\n" == srt(segments)


def test_words_without_spaces() -> None:
    """A cue has the text that was decoded, also where one word is longer than a line."""
    words = tuple(
        SpokenWord(text, at, at + 1.0, 0.9, is_joined=at > 0) for at, text in enumerate(["東京", "です", "。"])
    )

    assert [("東京です。",)] == [cue.lines for cue in cues([Segment(0.0, 3.0, "東京です。", words)])]
    assert [("a" * LINE_CHARS, "a" * 8)] == [cue.lines for cue in cues([Segment(0.0, 3.0, "a" * 50)])]


def test_webvtt_escapes() -> None:
    """Tags and arrows are text."""
    written = webvtt([Segment(0.0, 1.0, "a <b> & c --> d")])

    assert "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\na &lt;b&gt; &amp; c --&gt; d\n\n" == written


def test_srt_has_no_second_arrow() -> None:
    """A player would take it for times."""
    assert 1 == srt([Segment(0.0, 1.0, "a --> b")]).count("-->")


def test_over_99_hours() -> None:
    """Hours take as many digits as they need."""
    assert "100:00:01.000 --> 100:00:02.000" in webvtt([Segment(360_001.0, 360_002.0, "x")])


def test_nothing_said() -> None:
    """An empty transcript is a valid file."""
    assert ("", "WEBVTT\n\n") == (srt([]), webvtt([]))
    assert "" == srt([Segment(0.0, 1.0, "")])


def test_a_long_sentence_is_cut_at_its_clause() -> None:
    """The first cue ends with a clause, and its end is the last word's own."""
    text = "Esta es la primera frase de todas, y esta es la segunda que es mucho más larga que la primera y sigue."
    first, second = cues([spoken(text, each_s=0.25)])

    assert ("Esta es la primera frase de todas,",) == first.lines
    assert (0, 1750) == (first.start_ms, first.end_ms)
    assert 1750 == second.start_ms


def test_two_lines_are_about_equal() -> None:
    """Not one full line and a word alone."""
    [cue] = cues([spoken("uno dos tres cuatro cinco seis siete ocho nueve", each_s=0.1)])

    assert ("uno dos tres cuatro cinco", "seis siete ocho nueve") == cue.lines


def test_slow_words_end_a_cue() -> None:
    """No cue lasts over seven seconds, not even of one word."""
    lengths = [cue.end_ms - cue.start_ms for cue in cues([spoken("uno dos tres", each_s=5.0), spoken("largo", 60, 20)])]

    assert max(lengths) <= CUE_S * 1000


def test_without_words_time_is_shared_out() -> None:
    """By characters, from the segment's beginning to its end."""
    found = list(cues([Segment(10.0, 20.0, "palabra " * 20)]))

    assert len(found) > 1
    assert (10_000, 20_000) == (found[0].start_ms, found[-1].end_ms)


def test_a_word_without_spaces() -> None:
    """It is cut at the line's length."""
    found = list(cues([Segment(0.0, 2.0, "x" * 100)]))

    assert "x" * 100 == "".join("".join(cue.lines) for cue in found)


def lengths(found: list[Cue]) -> list[float]:
    return [(cue.end_ms - cue.start_ms) / 1000 for cue in found]


def test_the_end_of_a_phrase_is_not_torn_from_it() -> None:
    """What does not fit a cue goes with half of it, not alone for a blink."""
    text = "Cuando llegamos a la estación ya era de noche, y el último tren hacia la costa había salido ya"
    found = list(cues([spoken(text, each_s=0.25)]))

    assert [("Cuando llegamos a la estación ya era", "de noche,")] != [cue.lines for cue in found[:1]]
    assert 2 == len(found)
    assert min(lengths(found)) >= 1.5
    assert text == " ".join(line for cue in found for line in cue.lines)


def test_a_short_cue_stays_on_in_the_pause() -> None:
    """For a second, or as long as its letters take; never into the next one."""
    fast = Segment(10.0, 11.0, "Cuarenta letras que alguien dijo deprisa")
    found = list(cues([Segment(0.0, 0.3, "Sí."), fast, Segment(14.0, 14.2, "No.")]))

    assert [(0, 1000), (10_000, 12_000), (14_000, 15_000)] == [(cue.start_ms, cue.end_ms) for cue in found]


def test_a_short_cue_goes_with_the_nearer_neighbour() -> None:
    """Where there is no pause to stay on in."""
    before, after = spoken("Eso fue lo que me dijeron", 0.0), spoken("Gracias por haber venido hoy", 3.7)
    found = list(cues([before, Segment(3.3, 3.6, "Bien."), after]))

    assert ["Eso fue lo que me dijeron", "Bien. Gracias por haber venido hoy"] == [" ".join(cue.lines) for cue in found]


def test_chinese_lines_are_half_as_long() -> None:
    """Its letters are twice as wide, and take twice as long to read."""
    text = "今天我们来谈谈天气。" * 5
    found = list(cues([Segment(0.0, 10.0, text)]))

    assert max(len(line) for cue in found for line in cue.lines) <= LINE_CHARS // 2
    assert text == "".join(line for cue in found for line in cue.lines)
    assert width(text) == 2 * len(text)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.floats(0.05, 0.6), st.floats(0, 3)), min_size=1, max_size=8))
def test_cues_can_be_read(rows: list[tuple[int, float, float]]) -> None:
    """One that is shorter than a second, or than its letters take, has no pause after it and fits no neighbour."""
    segments, at_s = [], 0.0
    for count, each_s, pause_s in rows:
        segments.append(spoken("palabra " * count, at_s, each_s))
        at_s = segments[-1].end_s + pause_s
    found = list(cues(segments))

    for cue, after in itertools.pairwise(found):
        needed_ms = max(MIN_CUE_MS, MS_PER_CHAR * len(" ".join(cue.lines)))
        is_short = cue.end_ms - cue.start_ms < min(needed_ms, CUE_S * 1000)
        together = len(" ".join((*cue.lines, *after.lines)))
        assert not is_short or cue.end_ms == after.start_ms
        assert not is_short or after.end_ms - cue.start_ms > CUE_S * 1000 or together > LINE_CHARS


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=300), st.floats(0, 4e5), st.floats(0, 40), st.booleans()), max_size=4))
def test_any_transcript(rows: list[tuple[str, float, float, bool]]) -> None:
    """Lines, lengths and order hold, no word is lost, and neither file has an empty line inside a cue."""
    segments = [
        spoken(text, start_s, length_s / 10) if has_words else Segment(start_s, start_s + length_s, text)
        for text, start_s, length_s, has_words in rows
    ]
    found = list(cues(segments))

    assert all(1 <= len(cue.lines) <= CUE_LINES for cue in found)
    assert all(1 <= len(line) <= LINE_CHARS for cue in found for line in cue.lines)
    assert all(0 < cue.end_ms - cue.start_ms <= CUE_S * 1000 for cue in found)
    assert all(first.end_ms <= second.start_ms for first, second in itertools.pairwise(found))
    assert len(found) == len(re.findall(r"^\d{2,}:\d\d:\d\d,\d{3} --> ", srt(segments), re.MULTILINE))


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["Hola.", "", "Adiós."], "Hola. Adiós."),
        (["你好。", "再见。"], "你好。再见。"),
        (["東京です", "カタカナ", "ok"], "東京ですカタカナ ok"),
        (["สวัสดีครับ", "ขอบคุณ"], "สวัสดีครับ ขอบคุณ"),
        (["안녕하세요", "네"], "안녕하세요 네"),
    ],
)
def test_texts_are_joined_as_their_language_writes(texts: list[str], expected: str) -> None:
    """Chinese and Japanese have no spaces between sentences; Thai has them there alone, Korean everywhere."""
    assert expected == joined(texts) == Transcript(1.0, SpokenLanguage(None, 0.0), segments_of(texts)).text
    assert "" == gap("", "x") == gap("x", "")


def segments_of(texts: list[str]) -> tuple[Segment, ...]:
    return tuple(Segment(index, index + 1, text) for index, text in enumerate(texts))


@pytest.mark.parametrize("text", ["a\n\nb", "a\r\nb", "a\x00b", "a\u2028b"])
def test_line_breaks_are_spaces(text: str) -> None:
    """They would end a cue."""
    assert "1\n00:00:00,000 --> 00:00:01,000\n" in srt([Segment(0.0, 1.0, text)])
    assert 1 == webvtt([Segment(0.0, 1.0, text, (SpokenWord(text, 0.0, 1.0, 0.9),))]).strip().count("\n\n")
