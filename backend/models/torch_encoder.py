"""An encoder executed by torch through transformers: any architecture, any device."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel

from backend.errors import ModelUnavailable
from backend.models.checkpoint_tensors import read_tensors
from backend.models.encoder import Ids, TokenBatch, Vectors, pack
from backend.models.readout import QueuedResults, Readout
from backend.models.spec import ModelSpec, Pooling, TokenTypes
from backend.models.torch_models import DTYPES, LOAD_ERRORS, load_pretrained, require_tensors
from backend.models.torch_readout import DeviceHeads, queued
from backend.models.torch_transfers import send, transfers_of

# Families whose models take a mask of four dimensions as it is (transformers, masking_utils.py: the early exit of
# _preprocess_mask_arguments). Added to the scores, it fits scaled-dot-product and eager attention alike.
_READY_MASKS = frozenset({"bert", "camembert", "distilbert", "electra", "mpnet", "roberta", "xlm-roberta"})


class TorchEncoder:
    """The model as transformers runs it: padded, with scaled-dot-product attention."""

    runtime = "torch"
    padding_cost = 1.0

    def __init__(self, spec: ModelSpec, *, dtype: str, device: str, threads: int) -> None:
        """Load the weights onto ``device``. Raises: ModelUnavailable when transformers cannot."""
        self.dtype = dtype
        self._device = opened(device, threads)
        model = _load(spec, DTYPES[dtype])
        self._model = model.eval().to(self._device)
        # MPS keeps a compiled graph for every shape and never frees one (pytorch#132596).
        self._length_multiple = 64 if self._device.type == "mps" else 1
        self._padding_id = int(getattr(model.config, "pad_token_id", None) or 0)
        self._typed = spec.token_types is not TokenTypes.NONE
        self._takes_ready_mask = spec.shape.family in _READY_MASKS
        self._transfers, self._heads = transfers_of(self._device), DeviceHeads(self._device)

    def prepare(self, ids: Sequence[Ids]) -> TokenBatch:
        """Pack; lengths are rounded on Apple's GPUs only."""
        return pack(ids, length_multiple=self._length_multiple)

    @torch.inference_mode()
    def forward(self, batch: TokenBatch) -> Tensor:
        """(batch, longest, width); on CUDA the work is only queued when this returns."""
        return self._run(batch)[0]

    def _run(self, batch: TokenBatch) -> tuple[Tensor, Tensor, Tensor]:
        """The output, the texts' lengths and each row's slot."""
        shape = batch.scatter.shape
        real = batch.mask[:, 0, 0, :] == 0
        parts = [np.where(real, batch.ids[batch.scatter], self._padding_id)]
        if self._typed:
            parts.append(np.where(real, batch.types[batch.scatter], 0))
        sent = send(self._transfers, self._device, [batch.lengths, batch.gather, *parts])
        lengths, gather, ids, *types = (part.long() for part in sent)
        inputs = {"token_type_ids": types[0].view(shape)} if types else {}
        mask = self._mask(batch, lengths)
        output: Tensor = self._model(input_ids=ids.view(shape), attention_mask=mask, **inputs).last_hidden_state
        return output, lengths, gather

    def _mask(self, batch: TokenBatch, lengths: Tensor) -> Tensor | None:
        """None for texts of one length, else what is added to the scores: (batch, 1, 1, longest), in the model's dtype.

        transformers would ask the device whether a mask of ones and zeros hides anything, and wait for the answer.
        Families that are not known to take a ready mask get one of ones and zeros: (batch, longest).
        """
        longest = batch.scatter.shape[1]
        if int(batch.lengths.min()) == longest:
            return None
        padding = _padding(lengths, longest)
        if not self._takes_ready_mask:
            return (~padding).long()
        dtype = DTYPES[self.dtype]
        mask = torch.zeros(padding.shape, dtype=dtype, device=self._device)
        return mask.masked_fill_(padding, torch.finfo(dtype).min)[:, None, None, :]

    @torch.inference_mode()
    def queue(self, batch: TokenBatch, readout: Readout) -> QueuedResults:
        """The readout of a batch; the host waits for the device only in the results' ``wait``."""
        output, lengths, gather = self._run(batch)
        values, sizes = self._heads.compute(
            readout,
            rows=lambda: output.flatten(0, 1).index_select(0, gather),
            pooled=lambda pooling: _pool(output, lengths, pooling),
        )
        return queued(batch, readout, values, sizes, self._transfers)

    @torch.inference_mode()
    def hidden(self, output: Tensor, batch: TokenBatch) -> Vectors:
        rows = torch.from_numpy(batch.gather).to(self._device)
        return numpy_of(output.flatten(0, 1).index_select(0, rows))

    @torch.inference_mode()
    def pooled(self, output: Tensor, batch: TokenBatch, pooling: Pooling) -> Vectors:
        """(batch, width), summed in float32 on the device."""
        return numpy_of(_pool(output, torch.from_numpy(batch.lengths).to(self._device), pooling))


def opened(device: str, threads: int) -> torch.device:
    """The device, with torch's settings for the whole process that vectors depend on.

    On a card small products may be split and their parts summed in half precision: not for vectors that must not depend
    on how many texts run with theirs.
    """
    if device == "cpu":
        torch.set_num_threads(threads)
    else:
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    return torch.device(device)


def _pool(output: Tensor, lengths: Tensor, pooling: Pooling) -> Tensor:
    """Shapes: output (batch, longest, width), lengths (batch) -> (batch, width) float32."""
    if pooling is Pooling.CLS:
        return output[:, 0].float()
    if pooling is Pooling.LAST:
        return output[torch.arange(len(output), device=output.device), lengths - 1].float()
    padding = _padding(lengths, output.shape[1])
    if pooling is Pooling.MAX:
        return output.float().masked_fill(padding[:, :, None], -torch.inf).amax(1)
    sums = output.float().masked_fill(padding[:, :, None], 0.0).sum(1)
    return sums / lengths[:, None]


def _padding(lengths: Tensor, longest: int) -> Tensor:
    """Which slots belong to no token: (batch) -> (batch, longest) bool."""
    return torch.arange(longest, device=lengths.device) >= lengths[:, None]


def _load(spec: ModelSpec, dtype: torch.dtype) -> Any:
    if spec.adapter is None:
        model, report = load_pretrained(AutoModel, spec.folder, dtype)
        absent: Collection[str] = report["missing_keys"]
    else:
        try:
            model, absent = _adapted(spec, spec.adapter, dtype)
        except LOAD_ERRORS as error:
            raise ModelUnavailable(f"transformers cannot load {spec.folder}: {error}") from error
    require_tensors(spec.folder, (name for name in absent if "pooler" not in name))  # the pooler is not used
    return model


def _adapted(spec: ModelSpec, adapter: Path, dtype: torch.dtype) -> tuple[Any, Collection[str]]:
    """The model with its adapter merged while loading, and the tensors that its checkpoint lacks."""
    config = AutoConfig.from_pretrained(adapter, local_files_only=True, trust_remote_code=False)
    model: Any = AutoModel.from_config(config)  # type: ignore[no-untyped-call]
    prefix = f"{model.base_model_prefix}."
    tensors = {name.removeprefix(prefix): value for name, value in read_tensors(spec).items()}
    known = model.state_dict()
    state = {name: torch.from_numpy(value.astype(np.float32)) for name, value in tensors.items() if name in known}
    return model.to(dtype), model.load_state_dict(state, strict=False).missing_keys


def numpy_of(tensor: Tensor) -> Vectors:
    """A float32 copy on the host. Waits for the device."""
    array: Any = tensor.float().cpu().numpy()
    return np.ascontiguousarray(array, dtype=np.float32)
