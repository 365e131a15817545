"""Records of summaries: what is asked for, and a summary with where each sentence comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from backend.lanes.inference import Timing
from backend.text.analysis import KeySentence
from backend.text.language import Language

RequestedMethod = Literal["extractive", "abstractive", "model", "api"]
Method = Literal["extractive", "model", "api"]
DEFAULT_SENTENCES = 3
DEFAULT_TOKENS = 128  # of a summary that is written


@dataclass(frozen=True, slots=True)
class SummaryOptions:
    """How to summarise a text."""

    method: RequestedMethod = "extractive"  # abstractive: by SUMMARY_MODEL where one is set, else by SUMMARY_URL
    sentences: int | None = None  # at most; None: 3 of an extract that has no max_tokens, else any number
    max_tokens: int | None = None  # of the model that writes it; of an extract, of the embedding model
    min_tokens: int = 0  # of one that SUMMARY_MODEL writes
    beams: int = 1  # of SUMMARY_MODEL; 1: greedy


@dataclass(frozen=True, slots=True)
class Source:
    """A sentence of the text that a written one rests on: ``caller_text[start:end]``, line breaks as spaces."""

    text: str
    start: int
    end: int
    cosine: float  # of the two sentences' vectors


@dataclass(frozen=True, slots=True)
class WrittenSentence:
    """A sentence that a model wrote."""

    text: str
    based_on: tuple[Source, ...]  # nearest first; empty where none is near
    unsupported: bool  # no sentence is near, or one of its numbers is in none of them
    why: str  # why it is unsupported; else empty


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary, and how it was made. It has sentences of the text, or written ones."""

    method: Method
    model: str  # the embedding model that selected, or the model that wrote
    text: str
    language: Language | None
    sentences: tuple[KeySentence, ...] = ()  # of an extract, in the order of the text
    written: tuple[WrittenSentence, ...] = ()
    coverage: float = 1.0  # share of the text's characters that were read to make it
    warnings: tuple[str, ...] = ()  # why it is empty, which options it does not use
    tokens: int = 0  # read and written by the model that wrote it; those of the embedding model are the analysis's

    @property
    def generated(self) -> bool:
        """Whether a model wrote it: then it may say what the text does not."""
        return self.method != "extractive"


@dataclass(frozen=True, slots=True)
class SummaryResult:
    """A summary of one text."""

    summary: Summary
    tokens: int  # of all models
    timing: Timing
