"""Looks at the first page of a document that is read, where an image model takes part in its classes."""

from __future__ import annotations

from dataclasses import dataclass

from backend.documents.page_classes import ImagePart, same_label
from backend.documents.recordings import is_recording
from backend.documents.records import DocumentOptions
from backend.errors import InferenceFailed, TooLarge, Unavailable, UnreadableFile
from backend.files.file_types import FileType
from backend.files.pages import Document
from backend.files.stored_file import StoredFile
from backend.images.classification import ImageClassificationService
from backend.images.page_choice import ClassifiedPage, PageChoice
from backend.lanes.inference import Urgency

_PAGE_ERRORS = (UnreadableFile, TooLarge, InferenceFailed, Unavailable)  # the text has its classes all the same


@dataclass(frozen=True, slots=True)
class DocumentImages:
    """The image model, and the file of one document."""

    service: ImageClassificationService
    upload: StoredFile

    async def look(self, document: Document, options: DocumentOptions, urgency: Urgency) -> ImagePart | None:
        """The classes of the first page that was read; None for what is no paper: an invoice in XML has no picture.

        Raises: Overloaded, DeadlineExceeded; what concerns this page alone is told in the result.
        """
        if not document.pages or document.kind == FileType.XML:
            return None
        engines, first = self.service.require(), document.pages[0]
        choice = PageChoice(str(first.number), options.password, first.rotation)
        page: ClassifiedPage | None = None
        fault = ""
        try:
            page = (await self.service.classify(self.upload, choice, urgency)).pages[0]
        except _PAGE_ERRORS as error:
            fault = str(error)
        return ImagePart(first.number, engines.model.name, page, fault)


def images_for(
    service: ImageClassificationService | None, upload: StoredFile, options: DocumentOptions
) -> DocumentImages | None:
    """What looks at a document; None where classes are of its text alone.

    That is where there is no image model, and where a classifier of texts was asked for by name, or labels of which the
    image model knows none.
    """
    if service is None or service.engines is None or "classes" not in options.features or is_recording(upload):
        return None
    if options.classifier is not None and options.classifier not in service.names:
        return None
    known = set(map(same_label, service.labels))
    if options.labels and known.isdisjoint(map(same_label, options.labels)):
        return None
    return DocumentImages(service, upload)
