"""Accuracy of the memory prediction of a batch, for three encoders, several lengths and batch sizes.

    python -m benchmarks.memory                    # predicted from two small batches, against a dry run of each batch
    python -m benchmarks.memory --device cuda:0    # and against the allocator's peak on the GPU

No weights are needed: the encoders are made from their configurations. Bytes are those above the weights.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModel

from backend.device.memory.probe import CudaMeter, measure, predict
from backend.device.memory.release import release
from backend.device.memory.trial_run import dry_run
from backend.errors import DoesNotFit
from benchmarks.machine import facts

RESULT = Path(__file__).parent / "results" / "memory.json"
ENCODERS: dict[str, dict[str, Any]] = {
    "MiniLM-L6": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
    "base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
    "large": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
}
LENGTHS = (128, 512, 2048)
COUNTS = (1, 4, 16, 64)
_DTYPES = {"cpu": torch.float32}


def main() -> None:
    """Measure, print a row per batch, and write the result."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="cpu", help="cpu, or a card such as cuda:0")
    device = options.parse_args().device
    rows = [row for name in ENCODERS for row in rows_of(name, device)]
    RESULT.write_text(json.dumps({**facts(), "device": _name(device), "rows": rows}, indent=1) + "\n")
    for row in rows:
        print(*row.values(), sep="\t")


def rows_of(name: str, device: str, lengths: Sequence[int] = LENGTHS) -> Iterator[dict[str, Any]]:
    """A row for each length and count of one encoder."""
    dtype = _DTYPES.get(device, torch.bfloat16)
    config = AutoConfig.for_model("bert", max_position_embeddings=max(lengths), **ENCODERS[name])

    def make_model() -> torch.nn.Module:
        model: torch.nn.Module = AutoModel.from_config(config, dtype=dtype)  # type: ignore[no-untyped-call]
        return model.eval()

    predicted = predict(make_model, _inputs, lengths, safety=1.0)
    assert predicted is not None, "the dry run of a BERT failed"
    _, dry_run_bytes = dry_run(make_model, _inputs, list(product(lengths, COUNTS)))
    measured = _measured(make_model, device, lengths) if device != "cpu" else {}
    for length, count in product(lengths, COUNTS):
        yield {
            "encoder": name,
            "length": length,
            "count": count,
            "weights_bytes": predicted.weights_bytes,
            "foreseen_bytes": predicted.table.peak_bytes(length, count),
            "dry_run_bytes": dry_run_bytes[length, count],
            "measured_bytes": measured.get((length, count)),
        }


def _measured(make_model: Any, device: str, lengths: Sequence[int]) -> dict[tuple[int, int], int | None]:
    """The allocator's peak of each batch on the GPU; None where it does not fit."""
    model, meter = make_model().to(device), CudaMeter(device)
    peaks: dict[tuple[int, int], int | None] = {}

    @torch.inference_mode()
    def run(count: int, length: int) -> None:
        model(**{name: ids.to(device) for name, ids in _inputs(count, length).items()})

    for length, count in product(lengths, COUNTS):
        try:
            peaks[length, count] = measure(run, meter, [length], counts=(count,), safety=1.0).peak_bytes(length, count)
        except DoesNotFit:
            peaks[length, count] = None
    release(device)
    return peaks


def _inputs(count: int, length: int) -> dict[str, torch.Tensor]:
    ids = torch.ones(count, length, dtype=torch.long)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _name(device: str) -> str:
    return device if device == "cpu" else torch.cuda.get_device_name(device)


if __name__ == "__main__":
    main()
