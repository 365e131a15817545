"""Loaded models over engines that answer, hang or fail: the fixtures of texts."""

from tests.text.conftest import build, copy_of, scorers, taggers, tiny

__all__ = ["build", "copy_of", "scorers", "taggers", "tiny"]
