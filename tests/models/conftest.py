"""Small models and the bundled one, each loaded once a session."""

from __future__ import annotations

from tests.tiny_models import copy_of, tiny

__all__ = ["copy_of", "tiny"]
