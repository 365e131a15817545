"""Fine-tuning: one mixed-precision training loop, its tasks and its command line. Serving never imports this.

The names that training guides use: ``from backend.training import MixedPrecisionTrainer, IntegratedGPUTrainingSystem``.
Each is imported at its first use, so that importing a record does not load accelerate.
"""

from typing import TYPE_CHECKING

from backend.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from backend.gpu_toolkit.mixed_precision import MixedPrecisionTrainer as MixedPrecisionTrainer
    from backend.gpu_toolkit.training_system import IntegratedGPUTrainingSystem as IntegratedGPUTrainingSystem
    from backend.training.lora import add_lora as add_lora
    from backend.training.losses import classification_loss as classification_loss
    from backend.training.records import LossPart as LossPart
    from backend.training.records import MixedPrecisionConfig as MixedPrecisionConfig
    from backend.training.records import Task as Task
    from backend.training.records import TrainingConfig as TrainingConfig
    from backend.training.records import TrainingResult as TrainingResult
    from backend.training.trainer.loop import train as train
    from backend.training.trainer.model_setup import make_schedule as make_schedule

_MODULES = {  # exported name -> the module that defines it
    "IntegratedGPUTrainingSystem": "backend.gpu_toolkit.training_system",
    "LossPart": "backend.training.records",
    "MixedPrecisionConfig": "backend.training.records",
    "MixedPrecisionTrainer": "backend.gpu_toolkit.mixed_precision",
    "Task": "backend.training.records",
    "TrainingConfig": "backend.training.records",
    "TrainingResult": "backend.training.records",
    "add_lora": "backend.training.lora",
    "classification_loss": "backend.training.losses",
    "make_schedule": "backend.training.trainer.model_setup",
    "train": "backend.training.trainer.loop",
}
__all__ = sorted(_MODULES)  # noqa: PLE0605  # the table is the list
REFUSED = {  # classes of an application in a guide
    "SignTrainer": "train(task, config) trains any model; a task makes losses of its examples (docs/training.md)",
    "SignFlowInferencePipeline": "the service runs what training wrote (docs/training.md); in a program "
    "optimize_model_for_inference of backend.device prepares any model",
}
__getattr__, __dir__ = lazy_exports(__name__, _MODULES, REFUSED)
