"""Tiny models, and one thread to train them: with more, a busy machine made one run take thirty times as long."""

from collections.abc import Iterator

import pytest
import torch

from tests.tiny_models import copy_of, tiny

__all__ = ["copy_of", "tiny"]


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
