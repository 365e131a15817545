"""Writes a CycloneDX list of what each container image holds (SBOM), and checks its licences.

    python -m tools.sbom                  build/sbom/financia-backend.cdx.json and -gpu.cdx.json   (`make sbom`)
    python -m tools.sbom --licences       only print each package with its licence, and check them

Packages, versions and checksums are those of deploy/image/*.txt; licences are those that the installed packages of the
same version name, and licences.toml where their words are no SPDX expression. Shared libraries that wheels carry, and
models and files for browsers that packages and this repository carry, are components too. What Debian's base image and
apt bring is not in the list: a scanner of finished images (syft, trivy) reads that from the image.

A licence that nobody decided on ends with exit code 1 before anything is written.
"""

from __future__ import annotations

import argparse
import base64
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from backend import __version__
from backend.models.bundled_encoders.recipes import PACKED_FILE
from backend.models.model_files import sha256_of
from tools.lock_image import FOLDER, ROOT, canonical, checksums, pins

if TYPE_CHECKING:
    from cyclonedx.model.component import Component

OUTPUT = ROOT / "build" / "sbom"
BUNDLED = ROOT / "backend" / "models" / "bundled"
BROWSER_FILES = ROOT / "backend" / "api" / "swagger_ui"
# Image -> its lists of packages, as its Dockerfile installs them with its defaults; torch's list of a build is used
# where `make lock` could write it.
IMAGES = {
    "financia-backend": ("serve", "torch-cpu"),
    "financia-backend-gpu": ("serve", "train", "torch-cu129", "onnxruntime-cu12-x86_64"),
}
REPLACED = {"onnxruntime-gpu": "onnxruntime"}  # package -> the one of serve.txt that it takes the place of

_TABLES = tomllib.loads(Path(__file__).with_name("licences.toml").read_text(encoding="utf-8"))
ALLOWED: frozenset[str] = frozenset(_TABLES["allowed"])
ACCEPTED: dict[str, str] = _TABLES["accepted"]
LICENCES: dict[str, str] = _TABLES["packages"]
LIBRARIES: dict[str, str] = _TABLES["libraries"]
MODELS: dict[str, str] = _TABLES["models"]
TESSDATA_VERSION = "4.1.0"  # of tessdata_fast
SWAGGER_UI = ("swagger-ui-dist", "5.35.0")  # the npm package whose files /docs shows
_MODEL_SUFFIXES = frozenset({".onnx", ".part1", ".part2", ".safetensors"})
_LIBRARY = re.compile(
    r"(?:\.libs/|^torch/lib/(?=libgomp))(?P<name>lib\w+?(?:-[a-z]*[g-z][a-z]*)*)(?:-r0)?(?:-[0-9a-f.]+)*\.so"
)


@dataclass(frozen=True, slots=True)
class Part:
    """A package, a library in it, or a model."""

    name: str
    version: str  # "" where nobody says
    licence: str  # an SPDX expression, or "" where it is not known
    kind: str = "package"  # or "library", "model"
    sha256: frozenset[str] = frozenset()  # of each processor's wheel, or of the file
    parts: tuple[Part, ...] = field(default=())


def packages_of(image: str) -> tuple[dict[str, str], dict[str, set[str]], list[str]]:
    """Versions and checksums of an image's packages, and what is missing from the list, in sentences."""
    versions: dict[str, str] = {}
    hashes: dict[str, set[str]] = {}
    missing: list[str] = []
    for file in IMAGES[image]:
        list_file = FOLDER / f"{file}.txt"
        if not list_file.exists():
            list_file = FOLDER / "torch.txt"
            missing.append(
                f"{file}.txt is not there (make lock): no checksum of torch, nor the CUDA packages it brings"
            )
        text = list_file.read_text(encoding="utf-8")
        versions |= pins(text)
        hashes |= checksums(text)
    for package in REPLACED.keys() & versions.keys():
        del versions[REPLACED[package]]
    return versions, hashes, missing


def parts_of(image: str) -> list[Part]:
    """Packages by name, then what this repository brings: files for browsers, and models."""
    versions, hashes, _ = packages_of(image)
    packages = [_package(name, versions[name], frozenset(hashes.get(name, ()))) for name in sorted(versions)]
    return [*packages, _swagger_ui(), *_bundled_models()]


@cache  # both images hold most of them, and torch alone lists thousands of files
def _package(name: str, version: str, sha256: frozenset[str]) -> Part:
    try:
        installed = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return Part(name, version, _by_table(name), sha256=sha256)
    # torch's own version carries its build, which no licence depends on.
    same = installed.version.partition("+")[0] == version
    licence = _by_table(name) or (_said_by(installed) if same else "")
    return Part(name, version, licence, sha256=sha256, parts=tuple(_carried(name, installed)))


def _by_table(name: str) -> str:
    if name.startswith("nvidia-") and name not in LICENCES:
        return "LicenseRef-NVIDIA-CUDA-EULA"
    return LICENCES.get(name, "")


def _said_by(installed: metadata.Distribution) -> str:
    """The licence that metadata name as an expression (PEP 639), or in the old field where that holds SPDX names."""
    told = installed.metadata
    words = next((told[name] for name in ("License-Expression", "License") if name in told), "")
    return words if "License-Expression" in told or set(licences_in(words)) <= ALLOWED else ""


def _carried(package: str, installed: metadata.Distribution) -> Iterator[Part]:
    libraries = {match["name"] for file in installed.files or () if (match := _LIBRARY.search(str(file)))}
    for name in sorted(libraries):
        yield Part(name, "", LIBRARIES.get(name, ""), kind="library")
    for file in installed.files or ():
        is_model = file.suffix in _MODEL_SUFFIXES or file.name == PACKED_FILE
        if package in MODELS and is_model and file.hash is not None:
            digest = base64.urlsafe_b64decode(f"{file.hash.value}==").hex()
            yield Part(file.name, installed.version, MODELS[package], kind="model", sha256=frozenset({digest}))


def _bundled_models() -> list[Part]:
    trained = [(file, file.parent.name, __version__) for file in sorted(BUNDLED.glob("*/*.safetensors"))]
    tesseract = [(file, file.name, TESSDATA_VERSION) for file in sorted(BUNDLED.glob("tessdata/*.xz"))]
    return [
        Part(name, version, licence, kind="model", sha256=frozenset({sha256_of(file)}))
        for licence, files in (("LicenseRef-see-model-card", trained), ("Apache-2.0", tesseract))
        for file, name, version in files
    ]


def _swagger_ui() -> Part:
    files = sorted(BROWSER_FILES.glob("swagger-ui*.js")) + sorted(BROWSER_FILES.glob("swagger-ui*.css"))
    name, version = SWAGGER_UI
    return Part(name, version, "Apache-2.0", kind="library", sha256=frozenset(sha256_of(file) for file in files))


def licences_in(expression: str) -> list[str]:
    """The licences of an SPDX expression; with OR too each must be allowed, so that the choice stays open."""
    return [word.strip() for word in re.split(r"\s+(?:AND|OR)\s+|[()]", expression) if word.strip()]


def faults(parts: Iterable[Part], *, inside: str = "") -> list[str]:
    """What is wrong with the licences, a sentence each."""
    found: list[str] = []
    for part in parts:
        where = f"{part.name} {part.version}".strip() + (f" in {inside}" if inside else "")
        if not part.licence:
            table = "libraries" if part.kind == "library" else "packages"
            found.append(
                f"{where}: its licence is not known; read it in the package and add it to [{table}] of licences.toml"
            )
        refused = sorted(one for one in {*licences_in(part.licence)} - ALLOWED if not _is_accepted(part, one))
        advice = "is not allowed; do without, or decide in licences.toml"
        found += [f"{where}: {licence} {advice}" for licence in refused]
        found += faults(part.parts, inside=part.name)
    return found


def _is_accepted(part: Part, licence: str) -> bool:
    named = {"LicenseRef-NVIDIA-CUDA-EULA": "nvidia", "LicenseRef-see-model-card": "bundled model"}.get(
        licence, part.name
    )
    return ACCEPTED.get(named, "").startswith(f"{licence};")


def document(image: str, parts: Iterable[Part]) -> str:
    """The CycloneDX 1.6 document in JSON, valid by its schema."""
    from cyclonedx.model import Property
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output.json import JsonV1Dot6

    bom = Bom(components=[_component(part, image) for part in parts])
    root = Component(name=image, version=__version__, type=ComponentType.CONTAINER, bom_ref=image)
    bom.metadata.component = root
    bom.register_dependency(root, bom.components)
    missing = [*packages_of(image)[2], "Debian's packages are not in this list: scan the image for them"]
    bom.metadata.properties.update(Property(name="financia:missing", value=what) for what in missing)
    told: str = JsonV1Dot6(bom).output_as_string(indent=2)
    return told


def _component(part: Part, inside: str) -> Component:
    # Here and in document: a tool for developers, which only this command needs.
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
    from packageurl import PackageURL

    where = f"{inside}/{part.name}"
    # A licence of one's own is a name; an expression may hold what SPDX lists alone.
    own = part.licence.startswith("LicenseRef-")
    licence = DisjunctiveLicense(name=part.licence) if own else LicenseExpression(part.licence)
    return Component(
        name=part.name,
        version=part.version or None,
        type=ComponentType.MACHINE_LEARNING_MODEL if part.kind == "model" else ComponentType.LIBRARY,
        bom_ref=where,
        purl=PackageURL("pypi", name=canonical(part.name), version=part.version) if part.kind == "package" else None,
        licenses=[licence],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=one) for one in sorted(part.sha256)],
        components=[_component(one, where) for one in part.parts],
    )


def main() -> None:
    """Check the licences of both images, then write their documents."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--licences", action="store_true", help="only print and check the licences; writes nothing")
    only_licences = parser.parse_args().licences
    found = {image: parts_of(image) for image in IMAGES}
    if wrong := sorted({fault for parts in found.values() for fault in faults(parts)}):
        sys.exit("\n".join(wrong))
    for image, parts in found.items():
        if only_licences:
            print(f"{image}:", *(f"  {line}" for line in lines(parts)), sep="\n")
            continue
        OUTPUT.mkdir(parents=True, exist_ok=True)
        file = OUTPUT / f"{image}.cdx.json"
        file.write_text(document(image, parts), encoding="utf-8")
        print(f"{file.relative_to(ROOT)}: {len(parts)} components", *packages_of(image)[2], sep="\n  ")


def lines(parts: Iterable[Part], indent: str = "") -> Iterator[str]:
    """A line for each part and what it carries; what was accepted by name says why."""
    for part in parts:
        why = f" ({ACCEPTED[part.name].partition('; ')[2]})" if part.name in ACCEPTED else ""
        yield f"{indent}{part.name} {part.version}".rstrip() + f": {part.licence}{why}"
        yield from lines(part.parts, indent + "    ")


if __name__ == "__main__":
    main()
