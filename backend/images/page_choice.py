"""Records of classifying pages by their pictures."""

from __future__ import annotations

from dataclasses import dataclass

from backend.text.classification import ClassifiedText


@dataclass(frozen=True, slots=True)
class PageChoice:
    """Which pages of a file are looked at, and how to open it."""

    pages: str = ""  # "1-3,7"; empty: the first
    password: str | None = None
    turn: int = 0  # degrees clockwise that set the page upright, after /Rotate or the EXIF orientation


@dataclass(frozen=True, slots=True)
class ClassifiedPage:
    """The predictions for one page; their tokens are 0."""

    number: int  # from 1, in the file
    classes: ClassifiedText
    incomplete: str = ""  # a sentence on what could not be read of it


@dataclass(frozen=True, slots=True)
class ImageClassification:
    """The predictions for each page, in the order of the file."""

    pages: tuple[ClassifiedPage, ...]
    model: str
    multi_label: bool
    decode_s: float = 0.0  # opening the file and framing pages, or waiting for a worker; 0 from the cache
    lane_s: float = 0.0  # waiting for a lane, and on it
