"""One mixed-precision loop, its tasks and its doors. Nothing that serves imports this.

The names that training guides use: ``from backend.training import MixedPrecisionTrainer, IntegratedGPUTrainingSystem``.
Each is imported when it is first asked for, so that asking for a record does not load accelerate.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backend.training.doors import MixedPrecisionTrainer as MixedPrecisionTrainer
    from backend.training.loop import train as train
    from backend.training.lora import add_lora as add_lora
    from backend.training.losses import classification_loss as classification_loss
    from backend.training.records import LossPart as LossPart
    from backend.training.records import MixedPrecisionConfig as MixedPrecisionConfig
    from backend.training.records import Task as Task
    from backend.training.records import TrainingConfig as TrainingConfig
    from backend.training.records import TrainingResult as TrainingResult
    from backend.training.schedules import make_schedule as make_schedule
    from backend.training.system import IntegratedGPUTrainingSystem as IntegratedGPUTrainingSystem

_HOMES = {  # name -> the module it lives in
    "IntegratedGPUTrainingSystem": "system",
    "LossPart": "records",
    "MixedPrecisionConfig": "records",
    "MixedPrecisionTrainer": "doors",
    "Task": "records",
    "TrainingConfig": "records",
    "TrainingResult": "records",
    "add_lora": "lora",
    "classification_loss": "losses",
    "make_schedule": "schedules",
    "train": "loop",
}
__all__ = sorted(_HOMES)  # noqa: PLE0605  # the table is the list


def __getattr__(name: str) -> object:
    """The name from its module, imported now."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """The names, imported or not."""
    return sorted({*globals(), *_HOMES})
