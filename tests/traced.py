"""A tracer that keeps its spans, for tests that need no collector."""

from dataclasses import dataclass, field

from backend.tracing.spans import Sampler, SamplingTracer, Span


@dataclass
class KeptSpans:
    """The tracer and what ended, in order."""

    sampler: Sampler = field(default_factory=Sampler)
    spans: list[Span] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tracer = SamplingTracer(self.sampler, self.spans.append)

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    def one(self, name: str) -> Span:
        """The only span of that name."""
        [span] = [span for span in self.spans if span.name == name]
        return span
