"""Small models and the bundled one, each loaded once a session."""

from tests.tiny_models import copy_of, tiny
from tests.tiny_scorers import scorers
from tests.tiny_taggers import taggers

__all__ = ["copy_of", "scorers", "taggers", "tiny"]
