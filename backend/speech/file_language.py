"""Which language a recording is in, from what its pieces were taken for. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from backend.files.speech_records import SpokenLanguage

SURE = 0.7  # from which a piece may be in another language than the rest of its file
SETTLED_S = 20.0  # of speech, from which the language of a file is taken; its first sentence may be a greeting
KNOWN = 0.5  # below it a file's language is unknown: silence and noise score 0.2 to 0.6 (measured, Whisper base)


@dataclass(slots=True)
class LanguageTally:
    """Scores of languages over pieces, weighted by seconds of speech."""

    _scored_s: dict[str, float] = field(default_factory=dict)  # score x seconds
    _spoken_s: dict[str, float] = field(default_factory=dict)

    @property
    def spoken_s(self) -> float:
        return sum(self._spoken_s.values())

    def add(self, own: SpokenLanguage, taken: str | None, seconds: float) -> None:
        """Count a piece.

        Args:
            own: what it was taken for by itself.
            taken: the language that its text was written in. Where that is another one, its score counts nothing.
        """
        if taken is None:
            return
        self._spoken_s[taken] = self._spoken_s.get(taken, 0.0) + seconds
        score = own.score if own.code == taken else 0.0
        self._scored_s[taken] = self._scored_s.get(taken, 0.0) + score * seconds

    def move(self, before: str | None, taken: str, seconds: float) -> None:
        """Count a piece whose text was written anew in another language, which its own score does not speak for."""
        if before is not None:
            share = seconds / self._spoken_s[before]
            self._spoken_s[before] -= seconds
            self._scored_s[before] -= share * self._scored_s[before]
        self.add(SpokenLanguage(None, 0.0), taken, seconds)

    @property
    def is_settled(self) -> bool:
        """Whether enough was decoded to tell the language of the file."""
        return self.spoken_s >= SETTLED_S

    @property
    def likely(self) -> str | None:
        """The language of most of the speech so far, for pieces that do not tell themselves."""
        return max(self._scored_s, key=self._scored_s.__getitem__, default=None)

    def found(self) -> SpokenLanguage:
        """The language of most of the speech with its mean score; without a code where that is too low."""
        code = self.likely
        if code is None or not self._spoken_s[code]:
            return SpokenLanguage(None, 0.0)
        score = round(self._scored_s[code] / self._spoken_s[code], 4)
        return SpokenLanguage(code if score >= KNOWN else None, score)


def is_doubtful(own: SpokenLanguage, likely: str | None) -> bool:
    """Whether a piece should be decoded again in the language of the rest of its file."""
    return likely is not None and own.code != likely and own.score < SURE
