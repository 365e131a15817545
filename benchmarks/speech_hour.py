"""A long file made of clips: whether every clip's words come back in order, in the right place, and at what cost."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers import OURS, ours, running
from benchmarks.speech_clips import LONGEST_PART_S, SPOKEN, Clip, assemble, clips, order
from benchmarks.speech_peers import Heard
from benchmarks.speech_quality import FOLDER, LIMITS, heard_by_us
from benchmarks.speech_scores import found_by_clip, lost, misplaced, score

LANGUAGE = "es"  # of the clips, and told: a reader that hears one language a file is not at fault for another
_SENTENCE_S = 3.0  # clips from this length on, of which something must come back


def measure(data: Path, work: Path, seconds: float) -> dict[str, Any]:
    """The service on a file of this length, and on each of its clips alone."""
    spoken = [clip for clip in clips(data / FOLDER) if clip.kind in SPOKEN and clip.language == LANGUAGE]
    parts = [clip for clip in spoken if _SENTENCE_S <= clip.seconds <= LONGEST_PART_S]
    file = work / "long.flac"
    placed = assemble(order(parts, seconds), file)
    with running(ours(work / "state", **LIMITS), work) as server:
        alone = heard_by_us(server.port, server.pid, [(clip.file, LANGUAGE) for clip in parts])
        [heard] = heard_by_us(server.port, server.pid, [(file, LANGUAGE)])
    readings = dict(zip((clip.file for clip in parts), alone, strict=True))
    row = _row(heard, readings, [one.clip for one in placed], placed)
    return {"hour": {"seconds": placed[-1].end_s, "clips": len(placed), "readers": {OURS: row}}}


def _row(heard: Heard, alone: dict[Path, Heard], told: Sequence[Clip], placed: Sequence[Any]) -> dict[str, Any]:
    shares = found_by_clip(heard.text, [clip.text for clip in told])
    best = [found_by_clip(alone[clip.file].text, [clip.text])[0] for clip in told]
    missing = lost(shares, best)
    for number in missing:
        print(f"lost: {told[number].file.name} at {placed[number].start_s:.1f} s", file=sys.stderr)
    return {
        "wer": score(heard.text, " ".join(clip.text for clip in told)).wer,
        "wer_alone": sum(score(alone[clip.file].text, clip.text).edits for clip in told)
        / max(1, sum(score("", clip.text).words for clip in told)),
        "lost": len(missing),
        "lost_at": [[told[number].file.name, placed[number].start_s] for number in missing],
        "misplaced": misplaced(heard.segments, placed),
        "seconds": heard.seconds,
        "cpu_s": heard.cpu_s,
    }
