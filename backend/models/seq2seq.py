"""A sequence-to-sequence model executed by torch through transformers: writes token ids from token ids."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, LogitsProcessor, LogitsProcessorList
from transformers import StoppingCriteria as Criterion
from transformers import StoppingCriteriaList as Criteria

from backend.errors import CallerGone, FinanciaError, InferenceFailed, ModelUnavailable
from backend.models.encoder import Ids
from backend.models.generation import Generation
from backend.models.spec import ModelSpec
from backend.models.torch_models import DTYPES, load_pretrained, require_tensors

_NO_REPEATED_WORDS = 3  # tokens in a row that a model does not write twice, unless its own settings say otherwise
# Settings of a model for summaries that are ours or the request's: lengths, and how many beams.
_OURS = frozenset({"max_length", "min_length", "num_beams", "prefix"})


class TorchSeq2Seq:
    """The model as transformers' ``generate`` runs it: padded, greedy or by beams. Each call belongs to its caller."""

    runtime = "torch"
    padding_cost = 1.0

    def __init__(self, spec: ModelSpec, *, dtype: str, device: str, threads: int) -> None:
        """Load the weights onto ``device``. Raises: ModelUnavailable when transformers cannot."""
        self.dtype = dtype
        self._name = spec.name
        self._device = torch.device(device)
        if self._device.type == "cpu":
            torch.set_num_threads(threads)
        self._model = _load(spec, DTYPES[dtype]).eval().to(self._device)
        # generate() fills what a call leaves unset from the model's own settings: a forced end, for one.
        self._settings = self._model.generation_config = _settings(self._model, spec)

    @torch.inference_mode()
    def generate(self, tasks: Sequence[Generation]) -> list[Ids | FinanciaError]:
        """What the model writes for each task, without special tokens at the start or end of the row.

        Tasks run together; each ends at its own length, its own deadline, or when nobody waits for it any more.
        """
        results: dict[int, Ids | FinanciaError] = {}
        for beams in sorted({task.beams for task in tasks}):
            places = [place for place, task in enumerate(tasks) if task.beams == beams]
            results |= zip(places, self._together([tasks[place] for place in places], beams), strict=True)
        return [results[place] for place in range(len(tasks))]

    def _together(self, tasks: Sequence[Generation], beams: int) -> list[Ids | FinanciaError]:
        longest, padding = max(len(task.ids) for task in tasks), int(self._settings.pad_token_id)
        ids = np.full((len(tasks), longest), padding, np.int64)
        mask = np.zeros((len(tasks), longest), np.int64)
        for row, task in enumerate(tasks):
            ids[row, : len(task.ids)], mask[row, : len(task.ids)] = task.ids, 1
        settings = copy.deepcopy(self._settings)
        settings.num_beams, settings.max_new_tokens = beams, max(task.max_tokens for task in tasks)
        watch = _Watch(tasks, self._ends())
        written = self._model.generate(
            input_ids=torch.from_numpy(ids).to(self._device),
            attention_mask=torch.from_numpy(mask).to(self._device),
            generation_config=settings,
            logits_processor=LogitsProcessorList([watch]),
            stopping_criteria=Criteria([_Stop(watch)]),
        )
        rows = written[:, 1:].cpu().numpy()  # the first is where the decoder starts
        return [self._result(watch, row, task, ids) for row, (task, ids) in enumerate(zip(tasks, rows, strict=True))]

    def _result(self, watch: _Watch, row: int, task: Generation, ids: Ids) -> Ids | FinanciaError:
        if row in watch.abandoned:
            return CallerGone("nobody waits for this summary any more, or its time is over")
        if row in watch.broken:
            return InferenceFailed(
                f"{self._name} gave numbers that are not finite in {self.dtype}; set PRECISION=fp32 for it"
            )
        ends = np.flatnonzero(np.isin(ids, self._ends()))
        return np.ascontiguousarray(ids[: ends[0] if len(ends) else task.max_tokens])

    def _ends(self) -> list[int]:
        end = self._settings.eos_token_id
        return [int(token) for token in (end if isinstance(end, list) else [end])]


class _Watch(LogitsProcessor):
    """Keeps each row from ending before its least length, and notes rows whose numbers are not finite."""

    def __init__(self, tasks: Sequence[Generation], ends: Sequence[int]) -> None:
        self.tasks = tasks
        self.broken: set[int] = set()
        self.abandoned: set[int] = set()
        self._ends = list(ends)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Shapes: input_ids (rows, length so far), scores (rows, vocabulary); a task has as many rows as beams."""
        beams, length = len(scores) // len(self.tasks), input_ids.shape[1] - 1
        faults = torch.isnan(scores).any(dim=-1)
        if faults.any():
            self.broken |= {int(row) // beams for row in faults.nonzero().flatten()}
            scores = torch.where(faults[:, None], torch.zeros_like(scores), scores)
        short = [row for row in range(len(scores)) if length < self.tasks[row // beams].min_tokens]
        if short:
            scores = scores.clone()
            for end in self._ends:
                scores[short, end] = -torch.inf
        return scores


class _Stop(Criterion):
    """Ends rows at their own length, and those that nobody waits for."""

    def __init__(self, watch: _Watch) -> None:
        self._watch = watch

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:  # noqa: ARG002 - transformers' argument
        """Shapes: input_ids (rows, length so far) -> (rows) whether each ends here."""
        tasks, length = self._watch.tasks, input_ids.shape[1] - 1
        self._watch.abandoned |= {row for row, task in enumerate(tasks) if not task.is_wanted()}
        gone = self._watch.abandoned | self._watch.broken
        ended = [row in gone or length >= task.max_tokens for row, task in enumerate(tasks)]
        rows = len(input_ids) // len(tasks)
        return torch.tensor(np.repeat(ended, rows), device=input_ids.device)


def _load(spec: ModelSpec, dtype: torch.dtype) -> Any:
    model, report = load_pretrained(AutoModelForSeq2SeqLM, spec.folder, dtype)
    require_tensors(spec.folder, report["missing_keys"])
    return model


def _settings(model: Any, spec: ModelSpec) -> Any:
    """The model's own settings of generation, those for summaries over them, without any length."""
    settings = copy.deepcopy(model.generation_config)
    special = (spec.config.get("task_specific_params") or {}).get("summarization") or {}
    for name, value in special.items():
        if name not in _OURS and hasattr(settings, name):
            setattr(settings, name, value)
    settings.max_length = settings.min_new_tokens = settings.forced_eos_token_id = None
    settings.min_length, settings.do_sample, settings.num_return_sequences = 0, False, 1
    settings.no_repeat_ngram_size = settings.no_repeat_ngram_size or _NO_REPEATED_WORDS
    if settings.eos_token_id is None:
        raise ModelUnavailable(f"{spec.name}: neither generation_config.json nor config.json has an eos_token_id")
    if settings.pad_token_id is None:
        end = settings.eos_token_id
        settings.pad_token_id = end[0] if isinstance(end, list) else end
    return settings
