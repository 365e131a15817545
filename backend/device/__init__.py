"""Devices: what the machine has, which device to use, its memory. Gives the names of GPU guides (``lazy_exports``)."""

from typing import TYPE_CHECKING

from backend.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from backend.gpu_toolkit import *  # noqa: F403

__getattr__, __dir__, __all__ = lazy_exports(__name__)  # the table is the list
