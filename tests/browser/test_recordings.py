"""The way from a recording to its transcript on the page, and from a word to its sound."""

import json
from pathlib import Path

import pytest

from backend.files.speech_records import Segment, SpokenWord
from backend.speech.subtitles import srt, webvtt
from tests.browser.chrome import Chrome, Tab, open_tab
from tests.browser.fake_hearing import LENGTH_S, SPOKEN, FakeHearing, minutes, tone, whole
from tests.browser.fake_job_service import FakeJobService, problem
from tests.browser.fake_library import FakeLibrary, StoredDocument
from tests.browser.test_access import require_legible, require_names

pytestmark = pytest.mark.chromium
ENDED = "document.querySelector('#heard-facts')?.hidden === false"
TEXT = "[...document.querySelectorAll('#segments p')].map(one => one.textContent)"


async def test_a_recording_is_transcribed(tab: Tab, hearing: FakeHearing, service: FakeJobService, sound: Path) -> None:
    """Text, language, length and model are shown; the seconds of words are asked for, as a stream; it is kept."""
    await tab.choose_file(sound)
    await tab.wait_for(f"{ENDED} && location.hash === '#document=file-job-1'")

    assert [text for _, _, text in SPOKEN] == await tab.run(TEXT)
    facts = await tab.text("#heard-facts")
    for words in ("Spanish", "93% sure", "Also spoken", "English", "8 sec", "6 sec", "whisper-base"):
        assert words in facts
    assert "llamada.wav" == await tab.text("#file-name")
    assert (await tab.text("#file-facts")).startswith("0:08 · ")
    [form] = hearing.forms
    assert tone() == form.pop("content")
    asked = {"stream": "true", "response_format": "verbose_json", "timestamp_granularities[]": "word"}
    assert {**asked, "name": "llamada.wav"} == form
    [kept] = service.forms
    assert ("llamada.wav", "true") == (kept["name"], kept["store"])
    assert "Done: 0:08 transcribed." == await tab.run("document.querySelector('#status').textContent")


async def test_the_transcript_grows(tab: Tab, hearing: FakeHearing, sound: Path) -> None:
    """Each segment is there as soon as it is told, with how far the work is; another language is named."""
    hearing.step_by_step = True
    await tab.drop_file(sound)
    await tab.wait_for("document.querySelector('#progress-text').innerText === 'Waiting for the first words'")
    hearing.step()
    await tab.wait_for("document.querySelectorAll('#segments li').length === 1")
    assert "Transcribing: 0:02 of 0:08" == await tab.text("#progress-text")
    assert 2.65 / LENGTH_S == pytest.approx(await tab.run("document.querySelector('#progress').value"))
    for _ in range(len(SPOKEN)):
        hearing.step()
    await tab.wait_for(ENDED)

    badges = "[...document.querySelectorAll('#segments li')].map(one => one.querySelector('.badge')?.innerText ?? '')"
    assert ["", "", "English"] == await tab.run(badges)
    assert await tab.run("document.querySelector('#progress-box').hidden && document.querySelector('#cancel').hidden")


async def test_a_word_is_heard_and_marked(tab: Tab, sound: Path) -> None:
    """A click on a word plays from its seconds; the word that is spoken is marked, and no other."""
    await tab.choose_file(sound)
    await tab.wait_for(ENDED)
    await tab.wait_for("document.querySelector('audio').readyState > 0")
    await tab.click("#segments li:nth-child(2) .word:nth-of-type(3)")
    await tab.wait_for("!document.querySelector('audio').paused && document.querySelector('.word.spoken')")

    assert 3.4 <= await tab.run("document.querySelector('audio').currentTime")
    await tab.wait_for("document.querySelector('.word.spoken')?.textContent === 'favor.'")
    assert 1 == await tab.run("document.querySelectorAll('.word.spoken').length")
    await tab.run("document.querySelector('audio').pause()")
    for time, word in ((0.5, "La"), (5.1, "Thank"), (7.9, "")):
        await tab.run(f"document.querySelector('audio').currentTime = {time}")
        await tab.wait_for(f"(document.querySelector('.word.spoken')?.textContent ?? '') === '{word}'")
    unsure = "[...document.querySelectorAll('.word.unsure')].map(one => one.textContent)"
    assert ["marzo.", "favor.", "tomorrow."] == await tab.run(unsure)


async def test_the_keyboard_plays_passages(tab: Tab, sound: Path) -> None:
    """The time of each passage is a button with a name."""
    await tab.choose_file(sound)
    await tab.wait_for(ENDED)
    await tab.run("document.querySelector('#segments li:nth-child(3) .time').focus()")
    await tab.press("Enter")
    await tab.wait_for("document.querySelector('audio').currentTime >= 5")

    assert "Listen from 0:05" == await tab.run("document.activeElement.ariaLabel")
    assert {"Recording", "Transcript"} <= {node["name"] for node in await tab.accessible()}


async def test_files_to_save(tab: Tab, sound: Path) -> None:
    """Text, SRT and WebVTT are saved under the recording's name, without asking the service again."""
    await tab.choose_file(sound)
    await tab.wait_for(ENDED)
    await tab.run(
        """(() => {
            window.saved = {};
            const urls = new Map();
            const make = URL.createObjectURL;
            URL.createObjectURL = (blob) => { const url = make(blob); urls.set(url, blob); return url; };
            HTMLAnchorElement.prototype.click = async function () {
                window.saved[this.download] = await urls.get(this.href).text();
            };
        })()"""
    )
    for ending in ("txt", "srt", "vtt"):
        await tab.click(f"[data-ending={ending}]")
    await tab.wait_for("Object.keys(window.saved).length === 3")

    saved = await tab.run("window.saved")
    assert " ".join(text for _, _, text in SPOKEN) + "\n" == saved["llamada.txt"]
    assert saved["llamada.srt"].startswith("1\n00:00:00,400 --> 00:00:02,650\n")
    assert saved["llamada.vtt"].startswith("WEBVTT\n\n00:00:00.400 --> 00:00:02.650\n")


def _short_ones(start_s: float) -> list[Segment]:
    """Phrases with little time or none after them, one that leaves a word over, and words without spaces."""
    segments, at_s = [], start_s
    rows = [("Sí.", 0.3, 0.1), ("Claro que sí, hombre.", 0.8, 0.0), ("No.", 0.2, 3.0), ("Deprisa, " * 9, 2.5, 0.2)]
    for text, length_s, pause_s in [*rows, ("Cuando llegamos " * 5 + "a casa", 5.0, 0.4), *rows]:
        segments.append(Segment(at_s, at_s + length_s, text.strip()))
        at_s += length_s + pause_s
    signs = "今天我们来谈谈天气。明天会下雨、也许不会,谁知道呢\uff1f" * 2
    words = tuple(
        SpokenWord(sign, at_s + 0.2 * place, at_s + 0.2 * (place + 1), 0.9, is_joined=place > 0)
        for place, sign in enumerate(signs)
    )
    return [*segments, Segment(at_s, words[-1].end_s, signs, words)]


async def test_subtitles_are_cut_as_the_service_cuts_them(tab: Tab) -> None:
    """The same segments give the same files as with response_format=srt and vtt."""
    texts = (
        "La factura, que vence el treinta y uno de marzo, se paga por transferencia. Después ya no hay descuento.",
        "A --> B & <c> " + "palabra " * 30,
        "漢字" * 40,
        "Supercalifragilisticoespialidoso" * 3 + " y fin.",
        "Sí.",
    )
    segments = []
    for number, text in enumerate(texts):
        start, pieces = number * 20.0, text.split()
        each = 15.0 / len(pieces)
        words = tuple(
            SpokenWord(word, start + place * each, start + (place + 1) * each, 0.9) for place, word in enumerate(pieces)
        )
        segments.append(Segment(start, start + 15.0, text.strip(), words if number % 2 else ()))
    segments += _short_ones(120.0)
    events = [
        {
            "start": one.start_s, "end": one.end_s, "delta": f" {one.text}",
            "words": [{"word": word.text, "start": word.start_s, "end": word.end_s} for word in one.words],
        }
        for one in segments
    ]  # fmt: skip
    made = await tab.run(
        f"import('/page/subtitles.js').then(({{srt, vtt}}) => [srt({json.dumps(events)}), vtt({json.dumps(events)})])"
    )

    assert [srt(segments), webvtt(segments)] == made


async def test_a_job_of_a_recording_survives_a_reload(tab: Tab, service: FakeJobService) -> None:
    """Its transcript is shown, minute by minute and counted as such; no frames of pages, and files to save."""
    service.earlier, service.data, service.step_by_step = "hearing.mp3", minutes(why="half of it was eaten"), True
    await tab.reload(to_hash="#job=job-1")
    await tab.wait_for("document.querySelector('#file-name')?.innerText === 'hearing.mp3'")
    await service.read_page()
    await tab.wait_for("document.querySelectorAll('#segments li').length === 1")
    await tab.wait_for("document.querySelector('#progress-text').innerText === 'Transcribing: minute 2 of 2'")
    assert await tab.run("document.querySelector('#result').hidden && document.querySelector('audio').hidden")
    await service.read_page()
    await service.finish()
    await tab.wait_for(ENDED)

    assert [text for _, _, text in SPOKEN] == await tab.run(TEXT)
    assert ["0:00", "1:03", "1:05"] == await tab.run(
        "[...document.querySelectorAll('#segments .time')].map(one => one.innerText)"
    )
    assert await tab.run("document.querySelector('#result').hidden")
    assert await tab.run("document.querySelector('[data-ending=srt]').checkVisibility()")
    await tab.click("[data-language=es]")
    facts = await tab.text("#heard-facts")
    for words in ("Inglés", "Quizá falte algo.", "whisper-base"):
        assert words in facts
    assert "half of it" not in facts  # unless one asks for it


async def test_a_long_recording_is_a_job(
    tab: Tab, service: FakeJobService, hearing: FakeHearing, tmp_path: Path
) -> None:
    """It goes on when the page is closed, and is played from its words as a short one."""
    service.data = minutes()
    long = tmp_path / "hearing.wav"
    long.write_bytes(tone(times=125))
    await tab.run("document.querySelector('#options').elements.engine.value = 'tesseract'")
    await tab.choose_file(long)
    await tab.wait_for(ENDED)

    assert [] == hearing.forms
    [form] = service.forms
    assert ("hearing.wav", False) == (form["name"], "engine" in form)
    assert "#document=file-job-1" == await tab.run("location.hash")
    assert [text for _, _, text in SPOKEN] == await tab.run(TEXT)
    assert not await tab.run("document.querySelector('audio').hidden")


async def test_a_page_closed_while_a_recording_is_heard(
    tab: Tab, hearing: FakeHearing, service: FakeJobService, sound: Path
) -> None:
    """It is a job as soon as it is sent, so its address brings back what was heard meanwhile."""
    hearing.step_by_step, service.step_by_step, service.data = True, True, minutes()
    await tab.choose_file(sound)
    await tab.wait_for("location.hash === '#document=file-job-1'")
    assert 0 == await tab.run("document.querySelectorAll('#segments li').length")
    await tab.reload(to_hash="#document=file-job-1")
    await service.read_page()
    await service.read_page()
    await service.finish()
    await tab.wait_for(ENDED)

    assert [text for _, _, text in SPOKEN] == await tab.run(TEXT)
    assert 1 == len(service.forms)


async def test_cancelling_keeps_what_was_heard(
    tab: Tab, hearing: FakeHearing, service: FakeJobService, sound: Path
) -> None:
    """The work ends at once, nothing is stored, the text so far stays and can be saved; the file can be sent again."""
    hearing.step_by_step = service.step_by_step = True
    await tab.choose_file(sound)
    hearing.step()
    await tab.wait_for("document.querySelectorAll('#segments li').length === 1 && location.hash")
    await tab.click("#cancel")
    await tab.wait_for(f"{ENDED} && location.hash === ''")

    assert ["file-job-1"] == service.deleted_documents
    assert "Cancelled. What was heard until then is shown." == await tab.text("#notices")
    assert await tab.run("document.querySelector('[data-ending=srt]').checkVisibility()")
    hearing.step_by_step = False
    await tab.click("#again")
    await tab.wait_for("document.querySelectorAll('#segments li').length === 3")
    assert 2 == len(hearing.forms)


async def test_a_broken_stream_begins_again(tab: Tab, hearing: FakeHearing, sound: Path) -> None:
    """After a broken line and after a time limit the same request goes on; nothing is shown twice."""
    late = {"message": "too late", "code": "deadline_exceeded", "status": 504, "retryable": True}
    hearing.ends, hearing.cuts = [{"error": late}], 1
    await tab.choose_file(sound)
    await tab.wait_for("document.querySelector('[data-kind=wait] button')")
    await tab.click("[data-kind=wait] button")
    await tab.wait_for(ENDED)

    assert [text for _, _, text in SPOKEN] == await tab.run(TEXT)
    assert 3 == len(hearing.forms)


async def test_nothing_was_said(tab: Tab, hearing: FakeHearing, sound: Path) -> None:
    """An empty transcript has its reason in the reader's language; what the model made up is listed."""
    why = "what the model wrote was not said: a phantom; nobody speaks in the recording: there are other sounds"
    dropped = [{"start": 2.0, "end": 4.0, "text": "Thanks for watching!", "why": "a phantom"}]
    hearing.segments, hearing.done = 0, whole(0, why=why, dropped=dropped)
    await tab.choose_file(sound)
    await tab.wait_for(ENDED)

    assert "No words were heard." == await tab.text("#segments")
    facts = await tab.run("document.querySelector('#heard-facts').textContent")
    for words in (
        "Nobody speaks in it",
        "was probably not said, and is left out",
        "Left out: 1 passage",
        "Thanks for watching!",
    ):
        assert words in facts
    assert not await tab.run("Boolean(document.querySelector('[data-ending]'))")
    await tab.click("[data-language=es]")
    assert "Nadie habla" in await tab.text("#heard-facts")


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        ((422, "unreadable_file"), ("The recording is broken", "La grabación está rota")),
        ((413, "too_large"), ("The recording is over a limit", "La grabación supera un límite")),
        ((415, "wrong_media_type"), ("This is no recording", "No es una grabación")),
        ((504, "deadline_exceeded"), ("It took longer than allowed", "Ha tardado más de lo permitido")),
    ],
)
async def test_errors_in_words(
    tab: Tab, hearing: FakeHearing, sound: Path, refusal: tuple[int, str], words: tuple[str, str]
) -> None:
    """Refusals speak of recordings, in the language of the page, beside what the service said."""
    hearing.refusals.append(problem(*refusal, "details"))
    await tab.choose_file(sound)
    await tab.wait_for("document.querySelector('[role=alert]')")

    assert words[0] in await tab.text("[role=alert]")
    await tab.click("[data-language=es]")
    assert words[1] in await tab.text("[role=alert]")
    assert await tab.run("document.querySelector('#heard').hidden && !document.querySelector('#again').hidden")


async def test_no_speech_model(tab: Tab, hearing: FakeHearing, sound: Path) -> None:
    """Where none is installed the page says so at once, instead of waiting for a busy service."""
    hearing.installed = False
    await tab.choose_file(sound)
    await tab.wait_for("document.querySelector('[role=alert]')")

    assert "no speech model is installed" in await tab.text("[role=alert]")
    assert [] == hearing.forms


async def test_the_key_is_asked_for(chrome: Chrome, url: str, service: FakeJobService, sound: Path) -> None:
    """A service with keys gets one before the recording is sent."""
    service.key = "right-key"
    async with open_tab(chrome) as tab:
        await tab.open(url)
        await tab.choose_file(sound)
        await tab.wait_for("document.querySelector('#secret').open")
        await tab.type("right-key")
        await tab.press("Enter")
        await tab.wait_for(ENDED)


async def test_the_microphone(tab: Tab, hearing: FakeHearing) -> None:
    """What is recorded becomes a file with the day in its name; it is sent, heard, and can be played from a word."""
    await tab.click("#record")
    await tab.wait_for("document.querySelector('#recording-time').innerText === '0:02'")
    assert await tab.run("document.activeElement.id") == "record-stop"
    await tab.click("#record-stop")
    await tab.wait_for(ENDED)

    [form] = hearing.forms
    assert form["name"].startswith("Recording 20")
    assert form["name"].endswith(".webm")
    assert form["content"].startswith(b"\x1a\x45\xdf\xa3")  # EBML, WebM's container
    await tab.wait_for("Number.isFinite(document.querySelector('audio').duration)")
    await tab.click("#segments .word:nth-of-type(2)")
    await tab.wait_for("document.querySelector('.word.spoken')?.textContent === 'factura'")


async def test_a_recording_is_discarded(tab: Tab, hearing: FakeHearing) -> None:
    """Nothing is sent, and the microphone is free again."""
    await tab.click("#record")
    await tab.wait_for("!document.querySelector('#recorder').hidden")
    await tab.click("#record-drop")
    await tab.wait_for("document.querySelector('#recorder').hidden")

    assert "record" == await tab.run("document.activeElement.id")
    assert [] == hearing.forms


async def test_a_microphone_that_is_not_allowed(tab: Tab) -> None:
    """The page says what to do; where browsers have no microphone there is no button."""
    for name, words in (("NotAllowedError", "does not allow the microphone"), ("NotFoundError", "No microphone")):
        await tab.run(
            f"navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException('', '{name}')); undefined"
        )
        await tab.click("#record")
        await tab.wait_for(f"document.querySelector('#intake-notices').innerText.includes('{words}')")


async def test_no_microphone_without_a_secure_context(chrome: Chrome, url: str) -> None:
    """Plain HTTP from another machine: no button, and nothing breaks."""
    async with open_tab(chrome) as tab:
        hide = "Object.defineProperty(window, 'isSecureContext', {value: false})"
        await tab.send("Page.addScriptToEvaluateOnNewDocument", source=hide)
        await tab.open(url)

        assert await tab.run("document.querySelector('#record').hidden")
        assert [] == tab.faults


CALL = "La factura vence mañana.\n\nLlame a María por la tarde.\n\nElla paga el zafiro azul."


@pytest.fixture
async def call(tab: Tab, url: str, library: FakeLibrary) -> Tab:
    """A collection with a recording in which a word was searched."""
    library.make_store("Llamadas", {"llamada.wav": StoredDocument(text=CALL, recording=tone())})
    await tab.open(f"{url}#library")
    await tab.reload()
    await tab.wait_for("document.querySelector('.file-row')")
    await tab.run("document.querySelector('#query').value = 'María'")
    await tab.run("document.querySelector('#search').requestSubmit()")
    await tab.wait_for("document.querySelectorAll('#hit-body .spoken-passage').length === 3")
    return tab


async def test_a_hit_in_a_recording(call: Tab, library: FakeLibrary) -> None:
    """It opens in the transcript at its seconds; the recording is fetched and played when the reader asks for it."""
    assert "llamada.wav, at 0:01" == await call.text("#hit-title")
    assert "At 0:01" in await call.text(".hit-place")
    assert ["María"] == await call.run("[...document.querySelectorAll('#hit-body .found')].map(one => one.innerText)")
    assert "Llame a María por la tarde." in await call.text("#hit-body .passage-text")
    assert [] == library.downloads
    assert [] == [address for address in call.requests if "/pages/" in address]

    await call.click(".hit-open")
    await call.wait_for("document.querySelector('#hit-body .word.spoken')?.innerText === 'tarde.'")
    await call.run("document.querySelector('#hit-body audio').pause()")
    await call.click("#hit-body li:nth-child(3) .word:nth-of-type(4)")
    await call.wait_for("document.querySelector('#hit-body .word.spoken')?.innerText === 'zafiro'")
    assert ["llamada.wav"] == library.downloads


async def test_a_hit_stops_when_it_is_closed(call: Tab) -> None:
    """Nobody hears what cannot be stopped; the second time nothing is fetched again."""
    await call.click("#hit-play")
    await call.wait_for("document.querySelector('#hit-body audio:not([hidden])')?.paused === false")
    await call.run("window.playing = document.querySelector('#hit-body audio')")
    await call.click("#hit-close")
    await call.wait_for("window.playing.paused")
    await call.click(".hit-open")
    await call.wait_for("!window.playing.paused && window.playing.isConnected")
    await call.click("#to-document")
    await call.wait_for("window.playing.paused")


async def test_a_recording_that_is_gone(call: Tab, library: FakeLibrary) -> None:
    """The transcript stays, and the error is told."""
    library.guard = lambda request: problem(404, "not_found", "no such file")
    await call.click("#hit-play")
    await call.wait_for("document.querySelector('#library-notices [role=alert]')")

    assert "Llame a María" in await call.text("#hit-body")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width_px", [360, 1280])
async def test_recordings_are_legible(
    tab: Tab, hearing: FakeHearing, sound: Path, width_px: int, *, dark: bool
) -> None:
    """Contrast, sizes of targets, width of the window and names, at the start, while recording and at the end."""
    dropped = [{"start": 2.0, "end": 4.0, "text": "Thanks for watching!", "why": "a phantom"}]
    hearing.done = whole(why="from 6 s on the file is damaged", dropped=dropped)
    await tab.show(width_px=width_px, dark=dark)
    await require_legible(tab)
    await tab.click("#record")
    await tab.wait_for("!document.querySelector('#recorder').hidden")
    await require_legible(tab)
    await require_names(tab)
    await tab.click("#record-drop")
    await tab.choose_file(sound)
    await tab.wait_for(ENDED)
    await tab.click(".dropped summary")
    await tab.click("#segments .word")
    await tab.wait_for("document.querySelector('.word.spoken')")
    await tab.run("document.querySelector('audio').pause()")

    await require_legible(tab, 20)
    await require_names(tab)


async def test_a_hit_is_legible(call: Tab) -> None:
    """The same of a hit in a recording, at both widths."""
    for width_px in (360, 1280):
        await call.show(width_px=width_px)
        await call.run("document.querySelector('.hit-open').click()")
        await call.wait_for("document.querySelector('#hit-body .spoken')")
        await require_legible(call)
        await call.press("Escape")
    await require_names(call)
