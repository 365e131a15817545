"""Small encoders with fixed random weights, of every family served, written as sentence-transformers writes them.

Folders are made once a session and never changed by a test: one that wants a broken model copies the folder first.
"""

import functools
import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from backend.device.plan.placement import Placement
from backend.models import tokenizer
from backend.models.encoder import Encoder
from backend.models.model_files import resolve
from backend.models.runtimes import Candidate, load_encoder
from backend.models.spec import ModelSpec
from backend.models.tokenizer import TextTokenizer

FAMILIES = ("bert", "mpnet", "xlm-roberta", "distilbert", "roberta")
MAX_TOKENS = 48  # of the sentence-transformers folders; the position tables hold 64
WIDTH = 32
PROMPTS = {"query": "query: ", "document": ""}
_TABLE = 64
_WORDS = ("the", "invoice", "total", "factura", "importe", "is", "due", "la", "de", "query", "euros", "ñandú", "zürich")
_LETTERS = "abcdefghijklmnopqrstuvwxyzáéíóúñü0123456789.,:;¿?¡!'-€"
_MARKS = {"bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>", "pad_token": "<pad>"}

_CLASSES = {  # the family's name in transformers' classes
    "albert": "Albert",
    "bert": "Bert",
    "camembert": "Camembert",
    "deberta": "Deberta",
    "deberta-v2": "DebertaV2",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "modernbert": "ModernBert",
    "mpnet": "MPNet",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
}


class TinyModels:
    """Makes folders on demand and keeps them for the session."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.folder = functools.cache(self._make)
        self.plain = functools.cache(self._plain)

    def _plain(self, family: str = "bert", **config: Any) -> Path:
        """A folder as transformers writes it: config, weights and tokenizer, nothing of sentence-transformers."""
        folder = Path(tempfile.mkdtemp(dir=self._root, prefix=f"{family}-"))
        tokenizer, marks = _tokenizer(family)
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=_TABLE, **marks)
        fast.save_pretrained(folder)
        small_model("Model", family, fast, 20260101, **config).save_pretrained(folder)
        return folder

    def _make(
        self,
        family: str = "bert",
        pooling: str = "mean",
        *,
        normalize: bool = True,
        prompts: bool = False,
        **config: Any,
    ) -> Path:
        """A folder as sentence-transformers writes it."""
        transformer = Transformer(str(self.plain(family, **config)), max_seq_length=MAX_TOKENS)
        modules: list[Any] = [transformer, Pooling(WIDTH, pooling_mode=pooling)]
        modules += [Normalize()] if normalize else []
        whole = SentenceTransformer(modules=modules, prompts=PROMPTS if prompts else None, device="cpu")
        folder = Path(tempfile.mkdtemp(dir=self._root, prefix=f"{family}-{pooling}-"))
        whole.save(str(folder), create_model_card=False)
        return folder


@pytest.fixture(scope="session")
def tiny() -> Iterator[TinyModels]:
    """Small models of every family: ``tiny.folder("mpnet", "cls")``, ``tiny.plain("bert")``."""
    with tempfile.TemporaryDirectory(prefix="tiny-") as root:
        yield _tiny(Path(root))


@functools.cache
def _tiny(root: Path) -> TinyModels:
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)  # it talks about its defaults
    transformers.utils.logging.disable_progress_bar()
    return TinyModels(root)


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[Path], Path]:
    """A model folder of the test's own, to break: ``copy_of(tiny.folder("bert"))``."""

    def copy(folder: Path) -> Path:
        return Path(shutil.copytree(folder, tmp_path / "model"))

    return copy


def placement(*, lanes: int = 2, threads: int = 1, device: str = "cpu") -> Placement:
    """Two lanes of one thread unless the test says otherwise."""
    return Placement(device, lanes, threads, 1, ("chosen by the test",))


@functools.cache
def spec_of(source: str | Path) -> ModelSpec:
    return resolve(str(source))


@functools.cache
def tokenizer_of(source: str | Path) -> TextTokenizer:
    return tokenizer.tokenizer_of(spec_of(source))


@functools.cache
def encoder_of(source: str | Path, runtime: str, dtype: str, device: str = "cpu") -> Encoder:
    """A model on a runtime, loaded once a session."""
    return load_encoder(spec_of(source), Candidate(runtime, dtype), placement(device=device))


@functools.cache
def reference_of(source: str | Path) -> SentenceTransformer:
    """The same model in sentence-transformers, float32 on the CPU."""
    return SentenceTransformer(str(spec_of(source).folder), device="cpu", local_files_only=True)


def rewrite(file: Path, **changes: Any) -> None:
    """Change fields of a JSON file; a field set to ``...`` is removed."""
    content = json.loads(file.read_text(encoding="utf-8")) | changes
    file.write_text(json.dumps({name: value for name, value in content.items() if value is not ...}), encoding="utf-8")


def small_model(
    head: str,
    family: str,
    fast: PreTrainedTokenizerFast,
    seed: int,
    *,
    labels: Sequence[str] = (),
    std: Callable[[str], float] = lambda name: 0.3,
    **config: Any,
) -> Any:
    """A model with fixed random weights.

    Args:
        head: how transformers ends the class's name: "Model", "ForTokenClassification".
        std: of the weights of that name.
    """
    sizes: dict[str, Any] = {"vocab_size": len(fast), "max_position_embeddings": _TABLE + 2}
    sizes["pad_token_id"] = fast.pad_token_id
    if family == "distilbert":
        sizes |= {"dim": WIDTH, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}
    else:
        sizes |= {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    if labels:
        sizes |= {"id2label": dict(enumerate(labels)), "label2id": {name: index for index, name in enumerate(labels)}}
    made = getattr(transformers, f"{_CLASSES[family]}Config")(**sizes | config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = getattr(transformers, f"{_CLASSES[family]}{head}")(made)
        for name, weights in model.named_parameters():  # biases and gains too: one that is read wrongly must show
            gain = "norm" in name.lower() and name.endswith("weight")
            torch.nn.init.normal_(weights, mean=1.0 if gain else 0.0, std=std(name))
    return model.eval()


def _tokenizer(family: str) -> tuple[Tokenizer, dict[str, str]]:
    """A fast tokenizer of the family's kind, and its special tokens by transformers' names."""
    if family in ("bert", "distilbert"):
        marks = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
        return _word_piece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], marks), {**marks, "mask_token": "[MASK]"}
    if family == "mpnet":
        marks = {**_MARKS, "unk_token": "[UNK]"}
        return _word_piece(["<s>", "<pad>", "</s>", "[UNK]", "<mask>"], marks), {**marks, "mask_token": "<mask>"}
    marks = {**_MARKS, "unk_token": "<unk>", "mask_token": "<mask>"}
    return (_unigram() if family == "xlm-roberta" else _byte_bpe()), marks


def _word_piece(specials: list[str], marks: dict[str, str]) -> Tokenizer:
    pieces = [*specials, *_WORDS, *_LETTERS, *(f"##{letter}" for letter in _LETTERS)]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=marks["unk_token"]))
    tokenizer.normalizer = normalizers.BertNormalizer(strip_accents=False, lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return _templated(tokenizer, marks["cls_token"], marks["sep_token"])


def _unigram() -> Tokenizer:
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "▁", *(f"▁{word}" for word in _WORDS), *_LETTERS]
    scored = [(piece, 0.0 if piece.startswith("<") else -float(1 + len(piece) % 3)) for piece in dict.fromkeys(pieces)]
    tokenizer = Tokenizer(models.Unigram([*scored, ("<mask>", 0.0)], unk_id=3, byte_fallback=False))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return _templated(tokenizer, "<s>", "</s>")


def _byte_bpe() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("Ġ", "i"), ("a", "l"), ("o", "r")]
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *alphabet, *("".join(merge) for merge in merges), "<mask>"]
    tokenizer = Tokenizer(models.BPE({piece: number for number, piece in enumerate(pieces)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _templated(tokenizer, "<s>", "</s>")


def _templated(tokenizer: Tokenizer, first: str, last: str) -> Tokenizer:
    numbers = [(mark, tokenizer.token_to_id(mark)) for mark in (first, last)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}", pair=f"{first} $A {last} $B {last}", special_tokens=numbers
    )
    return tokenizer
