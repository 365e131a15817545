"""An encoder executed by torch through transformers: any architecture, any device."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoConfig, AutoModel

from backend.errors import ModelUnavailable
from backend.models.checkpoint_tensors import read_tensors
from backend.models.encoder import Ids, TokenBatch, Vectors, pack
from backend.models.spec import ModelSpec, Pooling, TokenTypes

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class TorchEncoder:
    """The model as transformers runs it: padded, with scaled-dot-product attention."""

    runtime = "torch"
    padding_cost = 1.0

    def __init__(self, spec: ModelSpec, *, dtype: str, device: str, threads: int) -> None:
        """Load the weights onto ``device``. Raises: ModelUnavailable when transformers cannot."""
        self.dtype = dtype
        self._device = torch.device(device)
        if self._device.type == "cpu":
            torch.set_num_threads(threads)
        model = _load(spec, _DTYPES[dtype])
        self._model = model.eval().to(self._device)
        # MPS keeps a compiled graph for every shape and never frees one (pytorch#132596).
        self._length_multiple = 64 if self._device.type == "mps" else 1
        self._padding_id = int(getattr(model.config, "pad_token_id", None) or 0)
        self._typed = spec.token_types is not TokenTypes.NONE

    def prepare(self, ids: Sequence[Ids]) -> TokenBatch:
        """Pack; lengths are rounded on Apple's GPUs only."""
        return pack(ids, length_multiple=self._length_multiple)

    @torch.inference_mode()
    def forward(self, batch: TokenBatch) -> Tensor:
        """(batch, longest, width); on CUDA the work is only queued when this returns."""
        real = batch.mask[:, 0, 0, :] == 0
        padded = np.where(real, batch.ids[batch.scatter], self._padding_id)
        ids = torch.from_numpy(padded).to(self._device, non_blocking=True)
        mask = torch.from_numpy(real.astype(np.int64)).to(self._device, non_blocking=True)
        types = {}
        if self._typed:
            padded = np.where(real, batch.types[batch.scatter], 0)
            types["token_type_ids"] = torch.from_numpy(padded).to(self._device, non_blocking=True)
        hidden: Tensor = self._model(input_ids=ids, attention_mask=mask, **types).last_hidden_state
        return hidden

    @torch.inference_mode()
    def hidden(self, output: Tensor, batch: TokenBatch) -> Vectors:
        rows = torch.from_numpy(batch.gather).to(self._device)
        return _numpy(output.flatten(0, 1).index_select(0, rows))

    @torch.inference_mode()
    def pooled(self, output: Tensor, batch: TokenBatch, pooling: Pooling) -> Vectors:
        """(batch, width), summed in float32 on the device."""
        lengths = torch.from_numpy(batch.lengths).to(self._device)
        if pooling is Pooling.CLS:
            return _numpy(output[:, 0])
        if pooling is Pooling.LAST:
            return _numpy(output[torch.arange(len(output), device=self._device), lengths - 1])
        padding = torch.arange(output.shape[1], device=self._device) >= lengths[:, None]
        if pooling is Pooling.MAX:
            return _numpy(output.float().masked_fill(padding[:, :, None], -torch.inf).amax(1))
        sums = output.float().masked_fill(padding[:, :, None], 0.0).sum(1)
        return _numpy(sums / lengths[:, None])


def _load(spec: ModelSpec, dtype: torch.dtype) -> Any:
    try:
        model, absent = _plain(spec, dtype) if spec.adapter is None else _adapted(spec, spec.adapter, dtype)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelUnavailable(f"transformers cannot load {spec.folder}: {error}") from error
    absent = sorted(name for name in absent if "pooler" not in name)  # the pooler is not used
    if absent:  # transformers has filled them with random numbers
        raise ModelUnavailable(f"{spec.folder} lacks the tensors {', '.join(absent[:5])}")
    return model


def _plain(spec: ModelSpec, dtype: torch.dtype) -> tuple[Any, Collection[str]]:
    """The model, and the tensors that its checkpoint lacks."""
    model, report = AutoModel.from_pretrained(
        spec.folder,
        dtype=dtype,
        local_files_only=True,
        use_safetensors=True,
        trust_remote_code=False,
        output_loading_info=True,
    )
    return model, report["missing_keys"]


def _adapted(spec: ModelSpec, adapter: Path, dtype: torch.dtype) -> tuple[Any, Collection[str]]:
    """The same for a model whose adapter is merged while loading."""
    config = AutoConfig.from_pretrained(adapter, local_files_only=True, trust_remote_code=False)
    model: Any = AutoModel.from_config(config)  # type: ignore[no-untyped-call]
    prefix = f"{model.base_model_prefix}."
    tensors = {name.removeprefix(prefix): value for name, value in read_tensors(spec).items()}
    known = model.state_dict()
    state = {name: torch.from_numpy(value.astype(np.float32)) for name, value in tensors.items() if name in known}
    return model.to(dtype), model.load_state_dict(state, strict=False).missing_keys


def _numpy(tensor: Tensor) -> Vectors:
    array: Any = tensor.float().cpu().numpy()
    return np.ascontiguousarray(array, dtype=np.float32)
