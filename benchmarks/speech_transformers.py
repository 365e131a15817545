"""Whisper's weights from CTranslate2's file as a model of transformers, so that its pipeline can be a peer."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

_DTYPES: Mapping[int, type[np.generic]] = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}
_HEADS, _WIDE = 8, 2048  # of Whisper base
_NORMS = (("gamma", "weight"), ("beta", "bias"))


def tensors(file: Path) -> dict[str, NDArray[Any]]:
    """The variables of a model.bin, by name; names that share one are there once each."""
    content = memoryview(file.read_bytes())
    place = 0

    def number(form: str) -> int:
        nonlocal place
        [told] = struct.unpack_from(form, content, place)
        place += struct.calcsize(form)
        return int(told)

    def text() -> str:
        nonlocal place
        length = number("<H")
        place += length
        return bytes(content[place - length : place]).rstrip(b"\0").decode()

    number("<I"), text(), number("<I")  # version of the format, name and revision of the model's kind
    found: dict[str, NDArray[Any]] = {}
    for _ in range(number("<I")):
        name, shape = text(), [number("<I") for _ in range(number("<B"))]
        dtype, length = _DTYPES[number("<B")], number("<I")
        found[name] = np.frombuffer(content[place : place + length], dtype).reshape(shape)
        place += length
    for _ in range(number("<I")):
        alias = text()
        found[alias] = found[text()]
    return found


def state(found: Mapping[str, NDArray[Any]]) -> dict[str, torch.Tensor]:
    """The same weights under transformers' names, in float32."""
    return {name: torch.from_numpy(value.astype(np.float32)) for name, value in _renamed(found)}


def _renamed(found: Mapping[str, NDArray[Any]]) -> Iterator[tuple[str, NDArray[Any]]]:
    for conv in ("conv1", "conv2"):
        for part in ("weight", "bias"):
            yield f"model.encoder.{conv}.{part}", found[f"encoder/{conv}/{part}"]
    yield "model.decoder.embed_tokens.weight", found["decoder/embeddings/weight"]
    yield "proj_out.weight", found["decoder/embeddings/weight"]
    for side in ("encoder", "decoder"):
        yield f"model.{side}.embed_positions.weight", found[f"{side}/position_encodings/encodings"]
        yield from _norm(found, f"{side}/layer_norm", f"model.{side}.layer_norm")
        for layer in sorted(_numbers(found, side)):
            yield from _layer(found, f"{side}/layer_{layer}", f"model.{side}.layers.{layer}")


def _layer(found: Mapping[str, NDArray[Any]], old: str, new: str) -> Iterator[tuple[str, NDArray[Any]]]:
    yield from _norm(found, f"{old}/self_attention/layer_norm", f"{new}.self_attn_layer_norm")
    yield from _fused(found, f"{old}/self_attention/linear_0", f"{new}.self_attn", "qkv")
    yield from _fused(found, f"{old}/self_attention/linear_1", f"{new}.self_attn", "o")
    if f"{old}/attention/linear_0/weight" in found:
        yield from _norm(found, f"{old}/attention/layer_norm", f"{new}.encoder_attn_layer_norm")
        for linear, parts in (("linear_0", "q"), ("linear_1", "kv"), ("linear_2", "o")):
            yield from _fused(found, f"{old}/attention/{linear}", f"{new}.encoder_attn", parts)
    yield from _norm(found, f"{old}/ffn/layer_norm", f"{new}.final_layer_norm")
    for number in (0, 1):
        for part in ("weight", "bias"):
            yield f"{new}.fc{number + 1}.{part}", found[f"{old}/ffn/linear_{number}/{part}"]


def _norm(found: Mapping[str, NDArray[Any]], old: str, new: str) -> Iterator[tuple[str, NDArray[Any]]]:
    return ((f"{new}.{part}", found[f"{old}/{name}"]) for name, part in _NORMS)


def _fused(found: Mapping[str, NDArray[Any]], old: str, new: str, parts: str) -> Iterator[tuple[str, NDArray[Any]]]:
    """Projections that CTranslate2 keeps as one, apart. Keys have no bias in Whisper, and zeros here."""
    for name in ("weight", "bias"):
        for letter, value in zip(parts, np.split(found[f"{old}/{name}"], len(parts)), strict=True):
            if (letter, name) != ("k", "bias"):
                yield f"{new}.{'out' if letter == 'o' else letter}_proj.{name}", value


def pipeline_of(folder: Path, beams: int) -> Callable[[str, str | None], dict[str, Any]]:
    """transformers' pipeline for speech on these weights, in float32.

    Args:
        folder: what faster-whisper reads.
    """
    from transformers import (  # each peer's process pays for its own libraries alone
        AutomaticSpeechRecognitionPipeline,
        WhisperConfig,
        WhisperFeatureExtractor,
        WhisperForConditionalGeneration,
        WhisperTokenizer,
    )

    found = tensors(folder / "model.bin")
    told = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    vocabulary, width = found["decoder/embeddings/weight"].shape
    layers = {side: 1 + max(_numbers(found, side)) for side in ("encoder", "decoder")}
    config = WhisperConfig(
        vocab_size=vocabulary, d_model=width,
        encoder_layers=layers["encoder"], decoder_layers=layers["decoder"],
        encoder_attention_heads=_HEADS, decoder_attention_heads=_HEADS,
        encoder_ffn_dim=_WIDE, decoder_ffn_dim=_WIDE,
    )  # fmt: skip
    model: Any = WhisperForConditionalGeneration(config)
    model.eval()
    missing, unexpected = model.load_state_dict(state(found), strict=False)
    if unexpected or set(missing) - {"proj_out.weight"}:
        raise ValueError(f"{folder}: the weights do not fit: {missing} are missing, {unexpected} are too many")
    tokenizer: Any = WhisperTokenizer(tokenizer_file=str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens(
        {"additional_special_tokens": [tokenizer.convert_ids_to_tokens(number) for number in told["lang_ids"]]}
    )
    _tell(model.generation_config, told, tokenizer)
    features: Any = WhisperFeatureExtractor
    speech: Any = AutomaticSpeechRecognitionPipeline(
        model=model, tokenizer=tokenizer, feature_extractor=features(), device=torch.device("cpu")
    )

    def hear(file: str, language: str | None) -> dict[str, Any]:
        from benchmarks.speech_clips import RATE, samples  # decoded as for the others: transformers wants ffmpeg

        sound = samples(Path(file)).astype(np.float32) / 32768
        options = {"num_beams": beams, "task": "transcribe"} | ({"language": language} if language else {})
        heard: dict[str, Any] = speech(
            {"raw": sound, "sampling_rate": RATE}, return_timestamps=True, return_language=True, generate_kwargs=options
        )
        return heard

    return hear


def _numbers(found: Mapping[str, Any], side: str) -> set[int]:
    """Of a side's layers."""
    return {int(told[1]) for name in found if (told := re.match(rf"{side}/layer_(\d+)/", name))}


def _tell(settings: Any, told: Mapping[str, Any], tokenizer: Any) -> None:
    """What openai/whisper-base's generation_config.json says, from CTranslate2's config.json and the vocabulary."""
    number = tokenizer.convert_tokens_to_ids
    languages = {token: number(token) for token in map(tokenizer.convert_ids_to_tokens, told["lang_ids"])}
    wanted = {
        "is_multilingual": True,
        "lang_to_id": languages,
        "task_to_id": {"transcribe": number("<|transcribe|>"), "translate": number("<|translate|>")},
        "no_timestamps_token_id": number("<|notimestamps|>"),
        "prev_sot_token_id": number("<|startofprev|>"),
        "decoder_start_token_id": number("<|startoftranscript|>"),
        "eos_token_id": number("<|endoftext|>"),
        "pad_token_id": number("<|endoftext|>"),
        "bos_token_id": number("<|endoftext|>"),
        "suppress_tokens": told["suppress_ids"],
        "begin_suppress_tokens": told["suppress_ids_begin"],
        "max_initial_timestamp_index": 50,
        "max_length": 448,
        "return_timestamps": False,
    }
    for name, value in wanted.items():  # `update` leaves out what only Whisper has
        setattr(settings, name, value)
