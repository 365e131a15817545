"""ALTO, parsed and checked against the rules of its schema."""

import pytest
from hypothesis import given
from lxml import etree

from backend.documents.formats.ocr_xml import NAMESPACE, stream_alto
from backend.files.pages import Document
from tests.files.drawn import document_of, documents, page_of

N = f"{{{NAMESPACE}}}"
# From alto-4-4.xsd, as far as we write it: element -> children in order, and attributes required, allowed.
SCHEMA = {
    "alto": (["Description", "Layout"], set(), {"SCHEMAVERSION"}),
    "Description": (["MeasurementUnit", "sourceImageInformation", "Processing"], set(), set()),
    "MeasurementUnit": ([], set(), set()),
    "sourceImageInformation": (["fileIdentifier"], set(), set()),
    "fileIdentifier": ([], set(), set()),
    "Processing": (["processingCategory", "processingSoftware"], {"ID"}, set()),
    "processingCategory": ([], set(), set()),
    "processingSoftware": (["softwareName"], set(), set()),
    "softwareName": ([], set(), set()),
    "Layout": (["Page"], set(), set()),
    "Page": (["PrintSpace"], {"ID", "PHYSICAL_IMG_NR"}, {"WIDTH", "HEIGHT", "PROCESSINGREFS", "PC", "LANG"}),
    "PrintSpace": (["TextBlock"], set(), {"HPOS", "VPOS", "WIDTH", "HEIGHT"}),
    "TextBlock": (["TextLine"], {"ID"}, {"HPOS", "VPOS", "WIDTH", "HEIGHT"}),
    "TextLine": (["String", "SP"], set(), {"ID", "HPOS", "VPOS", "WIDTH", "HEIGHT", "BASEDIRECTION"}),
    "String": ([], {"CONTENT"}, {"ID", "HPOS", "VPOS", "WIDTH", "HEIGHT", "WC"}),
    "SP": ([], set(), set()),
}


def read(document: Document):
    return etree.fromstring(b"".join(stream_alto(document)))


def area(element, factor: float = 1.0) -> list[float]:
    left, top, width, height = (float(element.get(name)) / factor for name in ("HPOS", "VPOS", "WIDTH", "HEIGHT"))
    return [left, top, left + width, top + height]


def check(element) -> None:
    """Check an element against the schema: its children and their order, attributes and numbers."""
    name = etree.QName(element).localname
    order, required, allowed = SCHEMA[name]
    children = [etree.QName(child).localname for child in element]
    attributes = {key for key in element.attrib if not key.startswith("{")}
    assert set(children) <= set(order)
    assert required <= attributes <= required | allowed
    if name == "TextLine":  # a String, then a String or an SP and a String, and so on
        assert children[::2] == ["String"] * ((len(children) + 1) // 2)
        assert children[1::2] == ["SP"] * (len(children) // 2)
        assert len(children) % 2
    else:
        assert [order.index(child) for child in children] == sorted(order.index(child) for child in children)
    for key in attributes & {"WC", "PC"}:
        assert 0 <= float(element.get(key)) <= 1
    for child in element:
        check(child)


@pytest.mark.slow
@given(documents())
def test_the_schema_is_kept(document):
    """Elements, order, attributes, unique ids and valid references."""
    root = read(document)

    check(root)
    ids = [element.get("ID") for element in root.iter() if element.get("ID")]
    assert sorted(set(ids)) == sorted(ids)
    assert {element.get("PROCESSINGREFS") for element in root.iter(f"{N}Page")} - {None} <= set(ids)
    assert all(len(block) for block in root.iter(f"{N}TextBlock"))
    assert root.find(f"{N}Layout/{N}Page") is not None


@pytest.mark.slow
@given(documents())
def test_words_and_boxes_come_back(document):
    """Words in order, boxes to a hundredth of 1/1200 inch."""
    for page, written in zip(document.pages, read(document).iter(f"{N}Page"), strict=False):
        strings = list(written.iter(f"{N}String"))
        assert [word.text for word in page.words] == [element.get("CONTENT") for element in strings]
        for word, element in zip(page.words, strings, strict=True):
            assert [*word.box] == pytest.approx(area(element, 1200 / 72), abs=0.002)


def test_an_image_is_told_in_pixels():
    root = read(document_of(page_of([[["Sí", "שלום"]]], language="es", confidence=1.0), kind="tiff"))

    assert "pixel" == root.findtext(f"{N}Description/{N}MeasurementUnit")
    [page] = root.iter(f"{N}Page")
    assert {"WIDTH": "595", "HEIGHT": "842", "PC": "1", "LANG": "es"}.items() <= dict(page.attrib).items()
    assert [20, 20, 32, 29.6] == pytest.approx(area(next(root.iter(f"{N}String"))))


def test_a_pdf_is_told_in_fractions_of_an_inch():
    root = read(document_of(page_of([[["Sí"]]])))

    assert "inch1200" == root.findtext(f"{N}Description/{N}MeasurementUnit")
