"""Tiny Whisper models for these tests."""

from tests.tiny_whispers import tiny_whispers

__all__ = ["tiny_whispers"]
