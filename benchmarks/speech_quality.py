"""Speech quality: word errors by set, languages, and files in which nobody speaks, by this service and its peers."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.peers import OURS, ours, running
from benchmarks.speech_client import transcribe
from benchmarks.speech_clips import NO_SPEECH, Clip, clips, spread_over
from benchmarks.speech_peers import PEERS, Heard, cached
from benchmarks.speech_scores import TimedText, WordScore, score, total

FOLDER = "speech"  # in the folder of data sets
QUICK_CLIPS = 16
LIMITS = {"LIMIT_REQUEST_S": "3600", "LIMIT_TRANSCRIPTION_S": "3600", "LIMIT_QUEUE_TOKENS": "100000000"}


def measure(data: Path, work: Path, *, is_quick: bool = False) -> dict[str, Any]:
    """Every clip, once with its language told and once without, by each reader."""
    every = clips(data / FOLDER)
    chosen = spread_over(every, QUICK_CLIPS) if is_quick else every
    told = [(clip.file, clip.told_language) for clip in chosen]
    found = [(clip.file, None) for clip in chosen]
    readings = {name: (cached(name, told), cached(name, found)) for name in PEERS}
    with running(ours(work / "state", **LIMITS), work) as server:
        readings[OURS] = (heard_by_us(server.port, server.pid, told), heard_by_us(server.port, server.pid, found))
    return as_json(chosen, readings)


def heard_by_us(port: int, pid: int, asked: Sequence[tuple[Path, str | None]]) -> list[Heard]:
    """Files sent one after the other, in the form that a peer's readings have."""
    heard = []
    for file, language in asked:
        used_s = cpu_seconds(pid)
        fields = {"language": language} if language else {}
        answer = transcribe(port, file, model="whisper-1", response_format="verbose_json", **fields)
        content = answer.content
        segments = tuple(TimedText(one["text"], one["start"], one["end"]) for one in content.get("segments") or ())
        cpu_s = cpu_seconds(pid) - used_s
        heard.append(Heard(content["text"], code_of(content.get("language")), answer.seconds, cpu_s, segments))
        print(f"{file.name}: {answer.seconds:.2f} s, {cpu_s:.2f} CPU s: {content['text'][:60]}", file=sys.stderr)
    return heard


_NAMES = {"spanish": "es", "english": "en", "german": "de", "french": "fr", "italian": "it", "portuguese": "pt"}


def code_of(language: str | None) -> str | None:
    """OpenAI answers with a language's English name; a code stays as it is."""
    return _NAMES.get(language, language) if language else None


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process and its children that live."""
    process = psutil.Process(pid)
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def as_json(chosen: Sequence[Clip], readings: Mapping[str, tuple[list[Heard], list[Heard]]]) -> dict[str, Any]:
    """The quality part of the result file."""
    sets = dict.fromkeys(clip.set for clip in sorted(chosen, key=lambda clip: (clip.set[:2] != "es", clip.set)))
    rows = [_set_row(name, chosen, readings) for name in sets if name]
    spoken = [number for number, clip in enumerate(chosen) if clip.kind != NO_SPEECH]
    empty = [number for number, clip in enumerate(chosen) if clip.kind == NO_SPEECH]
    known = [number for number in spoken if chosen[number].told_language]
    audio_s = sum(clip.seconds for clip in chosen)
    return {
        "sets": rows,
        "languages": {
            name: {"right": sum(found[n].language == chosen[n].language for n in known), "of": len(known)}
            for name, (_, found) in readings.items()
        },
        "no_speech": {
            name: {
                "empty": sum(not found[n].text.strip() for n in empty),
                "of": len(empty),
                "invented": [found[n].text for n in empty if found[n].text.strip()],
                "cpu_s": sum(found[n].cpu_s for n in empty),
            }
            for name, (_, found) in readings.items()
        },
        "cost": {
            name: {
                "audio_s": audio_s,
                "seconds": sum(heard.seconds for heard in told),
                "cpu_s": sum(heard.cpu_s for heard in told),
            }
            for name, (told, _) in readings.items()
        },
    }


def _set_row(
    name: str, chosen: Sequence[Clip], readings: Mapping[str, tuple[list[Heard], list[Heard]]]
) -> dict[str, Any]:
    numbers = [number for number, clip in enumerate(chosen) if clip.set == name]

    def errors(heard: Sequence[Heard]) -> WordScore:
        return total(score(heard[number].text, chosen[number].text) for number in numbers)

    scores = {reader: (errors(told), errors(found)) for reader, (told, found) in readings.items()}
    return {
        "set": name,
        "clips": len(numbers),
        "words": total(score("", chosen[number].text) for number in numbers).words,
        "edits": {reader: told.edits for reader, (told, _) in scores.items()},
        "wer": {reader: told.wer for reader, (told, _) in scores.items()},
        "wer_language_found": {reader: found.wer for reader, (_, found) in scores.items()},
    }
