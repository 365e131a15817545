"""Small models, each made once a session."""

from __future__ import annotations

from tests.tiny_models import copy_of, tiny
from tests.tiny_scorers import scorers
from tests.tiny_taggers import taggers

__all__ = ["copy_of", "scorers", "taggers", "tiny"]
