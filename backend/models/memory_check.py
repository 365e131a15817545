"""Whether a model will fit a device, said before a byte of it is loaded."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from backend.device.memory.device_memory import Books, headroom_bytes, read_books
from backend.device.memory.probe import FitReport, Prediction, predict, will_it_fit
from backend.device.plan.placement import Placement
from backend.errors import ModelUnavailable
from backend.models.spec import ModelSpec


def foresee(spec: ModelSpec, dtype: str) -> Prediction | None:
    """What the model will need in ``dtype`` by a dry run of its configuration; None where that cannot be said."""
    return _foresee(spec.folder, spec.sha256, spec.max_tokens, dtype)


@lru_cache(maxsize=32)  # a model that comes back from idling is the one that was foreseen at the start
def _foresee(folder: Path, _sha256: str, max_tokens: int, dtype: str) -> Prediction | None:
    import torch  # this module is imported at every start, the dry run belongs to devices that torch serves
    from transformers import AutoConfig, AutoModel

    names = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

    def make_model() -> torch.nn.Module:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        model: torch.nn.Module = AutoModel.from_config(config, dtype=names[dtype])  # type: ignore[no-untyped-call]
        return model.eval()

    def make_inputs(count: int, length: int) -> dict[str, Any]:
        ids = torch.ones(count, length, dtype=torch.long)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    return predict(make_model, make_inputs, [max_tokens])


def check_fit(spec: ModelSpec, dtype: str, placement: Placement, books: Books | None = None) -> FitReport | None:
    """Refuse a model whose weights and one text of full length are more than the device has free.

    Returns: the report, or None where nothing could be foreseen: then loading tells.

    Raises: ModelUnavailable with the numbers and what to change.
    """
    prediction = foresee(spec, dtype)
    if prediction is None:
        return None
    now = books or read_books(placement.device)
    free_bytes = headroom_bytes(now.stats, now.free_bytes, placement.memory_bytes or now.ceiling_bytes)
    report = will_it_fit(prediction, free_bytes, spec.max_tokens, 1)
    if not report.fits:
        raise ModelUnavailable(
            f"{spec.name} in {dtype} does not fit {placement.device}: {report.message}. Free the device of its other "
            "users, raise GPU_MEMORY_FRACTION, choose a smaller model (EMBEDDING_MODEL), or set DEVICE=cpu"
        )
    return report
