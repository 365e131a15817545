"""The gradient scaler of float16: torch's own, between a floor and a ceiling, and patient with a single bad step."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch.amp.grad_scaler import _refresh_per_optimizer_state  # until torch offers a way to forget a step

from backend.training.records import MixedPrecisionConfig


class ClampedScaler(torch.amp.GradScaler):
    """Scales the loss so that float16's small gradients do not vanish.

    torch's has neither floor nor ceiling: thirty bad steps take it from 65536 to 6e-05, where every gradient is lost
    (research/gpu_training.md E3). Here the scale stays within ``min_scale`` and ``max_scale``, and falls only at the
    ``hysteresis``-th bad step in a row, as in Megatron-LM; each further one in the same row lowers it again.

    Args:
        device: kind of the device, "cuda", "cpu" or "mps".
    """

    def __init__(self, device: str, config: MixedPrecisionConfig) -> None:
        super().__init__(
            device,
            init_scale=config.initial_scale,
            growth_factor=config.growth_factor,
            backoff_factor=config.backoff_factor,
            growth_interval=config.growth_interval,
        )
        self._min, self._max, self._hysteresis = config.min_scale, config.max_scale, config.hysteresis
        self._bad_in_row = 0

    @property
    def at_floor(self) -> bool:
        """Whether the scale cannot fall any further."""
        return bool(self.get_scale() <= self._min)

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """After each step, taken or not: grow, stay or fall. Waits for the device."""
        if self._enabled and new_scale is None and self._bears_it():
            self.forget_step()
            return
        super().update(new_scale)
        if self._enabled and self._scale is not None:
            self._scale.clamp_(self._min, self._max)

    def forget_step(self) -> None:
        """The step at hand will not be taken: it ran out of memory midway, and is run again from its beginning.

        Without this the next ``unscale_`` raises, for it was called already.
        """
        self._per_optimizer_states = defaultdict(_refresh_per_optimizer_state)

    def state_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**super().state_dict(), "bad_in_row": self._bad_in_row}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        super().load_state_dict(state_dict)
        self._bad_in_row = int(state_dict["bad_in_row"])

    def _bears_it(self) -> bool:
        """Whether the step was bad, and not yet one too many."""
        states = self._per_optimizer_states.values()
        bad = any(found.item() for state in states for found in state["found_inf_per_device"].values())
        self._bad_in_row = self._bad_in_row + 1 if bad else 0
        if not 0 < self._bad_in_row < self._hysteresis:
            return False
        if self._growth_tracker is not None:
            self._growth_tracker.zero_()
        return True
