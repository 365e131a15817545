"""Fine-tuning: one mixed-precision training loop, its tasks and its command line. Serving never imports this.

Gives the names of training guides (``lazy_exports``).
"""

from typing import TYPE_CHECKING

from backend.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from backend.gpu_toolkit import *  # noqa: F403

__getattr__, __dir__, __all__ = lazy_exports(__name__)  # the table is the list
