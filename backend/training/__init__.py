"""One mixed-precision loop, its tasks and its doors. Nothing that serves imports this.

The names that training guides use: ``from backend.training import MixedPrecisionTrainer, IntegratedGPUTrainingSystem``.
Each is imported when it is first asked for, so that asking for a record does not load accelerate.
"""

from typing import TYPE_CHECKING

from backend.lazy_names import lazy_names

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
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
