"""One model onto every device of the placements: chosen and measured on the first, the same arithmetic on all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from backend.device.plan import Placement
from backend.device.profile import TunedSettings
from backend.device.records import MachineFacts
from backend.ml.embeddings import TASK as EMBEDDINGS
from backend.ml.embeddings import Pooled
from backend.ml.encoding import EncoderEngine
from backend.ml.engine import Engine
from backend.ml.ner import TASK as NER
from backend.ml.ner import Labelled
from backend.ml.replicas import Replicas
from backend.ml.rescue import Float32Rescue, NoRescue, Rescue
from backend.models.bench import warm_up
from backend.models.encoder import Encoder
from backend.models.residence import Resident
from backend.models.room import learn_room
from backend.models.runtimes import Candidate, load_encoder
from backend.models.selection import Choice, Selector, Wish
from backend.models.spec import ModelSpec
from backend.models.store import resolve
from backend.models.token_head import TokenHead, read_token_head
from backend.models.tokens import TextTokenizer
from backend.services.catalog import LoadedModel, names_of
from backend.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class Ground:
    """What models stand on."""

    facts: MachineFacts
    placements: Sequence[Placement]  # one a device; the first is where models are measured
    kept: TunedSettings
    telemetry: Telemetry


@dataclass(frozen=True, slots=True)
class ModelWish:
    """Which model, how, and by which names."""

    source: str  # "bundled", a folder, or a hub id with @revision
    wish: Wish
    aliases: Sequence[str] = ()
    task: str = EMBEDDINGS  # or NER


def load_model(ground: Ground, wished: ModelWish) -> LoadedModel:
    """Load the model for its task. Seconds; minutes where it is fetched first.

    Raises: ModelUnavailable with the reason.
    """
    spec = resolve(wished.source)
    head = read_token_head(spec) if wished.task == NER else None
    tokenizer = TextTokenizer(
        spec.folder / "tokenizer.json", max_tokens=spec.max_tokens, vocabulary_size=spec.shape.vocabulary_size
    )
    home, *others = ground.placements
    encoder, choice = Selector(ground.facts, home, ground.kept).select(spec, tokenizer, wished.wish)
    residents = [_resident(spec, choice, home, encoder), *(_resident(spec, choice, place) for place in others)]
    engines = [
        _engine(ground, spec, choice, place, resident, head=head)
        for place, resident in zip(ground.placements, residents, strict=True)
    ]
    return LoadedModel(
        spec=spec,
        tokenizer=tokenizer,
        engine=engines[0] if not others else Replicas(engines),
        placement=home,
        choice=choice,
        names=names_of(spec, wished.aliases),
        created_s=datetime.now(UTC).timestamp(),
        task=wished.task,
        residents=tuple(residents),
        labels=head.labels if head else (),
    )


def _resident(spec: ModelSpec, choice: Choice, placement: Placement, encoder: Encoder | None = None) -> Resident:
    load = partial(load_encoder, spec, Candidate(choice.runtime, choice.dtype), placement)
    loaded = encoder or load()
    warm_up(loaded, spec.max_tokens)
    return Resident(loaded, load, name=spec.name)


def _engine(
    ground: Ground, spec: ModelSpec, choice: Choice, placement: Placement, resident: Resident, *, head: TokenHead | None
) -> Engine:
    room = learn_room(resident.get(), spec, choice, placement, kept=ground.kept, platform=ground.facts.platform)
    reader = Labelled(head) if head else Pooled(spec.pooling, _rescue(spec, choice, placement, ground.telemetry))
    return EncoderEngine(NER if head else EMBEDDINGS, resident, reader, choice.budget, room)


def _rescue(spec: ModelSpec, choice: Choice, placement: Placement, telemetry: Telemetry) -> Rescue:
    if choice.dtype == "fp32":
        return NoRescue()
    load = partial(load_encoder, spec, Candidate(choice.runtime, "fp32"), placement)
    return Float32Rescue(load, EMBEDDINGS, telemetry)
