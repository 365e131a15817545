"""An image model that looks at nothing, so that only HTTP is tested."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from backend.errors import InvalidField, WrongMediaType
from backend.files.stored_file import StoredFile
from backend.images.classification import ClassifiedPage, ImageClassification, PageChoice
from backend.lanes.inference import Urgency
from backend.text.classification import ClassifiedText, Prediction
from tests.api.text_fakes import FakeService

NAMES = ("owner/page-kinds", "page-kinds")
LABELS = ("form", "invoice")


def _loaded() -> Any:
    framing = SimpleNamespace(size=(224, 160))
    spec = SimpleNamespace(
        labels=LABELS, source="owner/page-kinds", revision="abc", preprocessing=SimpleNamespace(framing=framing)
    )
    return SimpleNamespace(
        name=NAMES[0],
        names=NAMES,
        spec=spec,
        created_s=1.5,
        placement=SimpleNamespace(device="cpu"),
        choice=SimpleNamespace(dtype="fp32", runtime="torch"),
    )


@dataclass
class FakeImages(FakeService):
    """The page's number decides the class; a file of zeros is no image. Without a model where ``names`` is empty."""

    names: tuple[str, ...] = NAMES

    @property
    def engines(self) -> Any:
        return SimpleNamespace(model=_loaded()) if self.names else None

    def require(self) -> Any:
        if not self.names:
            raise InvalidField("file: no image can be classified here: IMAGE_MODEL is not set", param="file")
        return self.engines

    async def classify(
        self,
        upload: StoredFile,
        choice: PageChoice | None = None,
        urgency: Urgency | None = None,
        *,
        top_k: int | None = None,
        min_score: float | None = None,
    ) -> ImageClassification:
        self.require()
        choice = choice or PageChoice()
        await self.enter(upload.content(), choice, urgency, top_k, min_score)
        if not any(upload.content()):
            raise WrongMediaType("file: it looks like nothing at all", param="file")
        numbers = [int(number) for number in (choice.pages or "1").split(",")]
        return ImageClassification(tuple(_classified(number, top_k) for number in numbers), NAMES[0], False, 0.25, 0.5)


def _classified(number: int, top_k: int | None) -> ClassifiedPage:
    labels = LABELS if number % 2 else LABELS[::-1]
    predictions = tuple(Prediction(label, score) for label, score in zip(labels, (0.75, 0.25), strict=True))[:top_k]
    classes = ClassifiedText(predictions, labels[0], 0.75, 0, truncated=False)
    return ClassifiedPage(number, classes, "the file is cut off" if number == 3 else "")
