"""Small models, each made once a session."""

from __future__ import annotations

from tests.tiny_taggers import taggers

__all__ = ["taggers"]
