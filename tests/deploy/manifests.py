"""Manifests as kustomize puts them together: by our reading of its language, and by the real programs beside it."""

import copy
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import absent
from tests.deploy.promql import DEPLOY

FOLDER = DEPLOY / "kubernetes"
GUIDE = DEPLOY.parent / "docs" / "kubernetes.md"
OLDEST, NEWEST = "1.27", "1.37"  # autoscaling/v2 and the probes' fields are older; the newest that the validator knows
CHOICES = ("base", "gpu", "hpa", "keda", "hub", "monitoring")

Manifest = dict[str, Any]


def load(file: Path) -> list[Manifest]:
    """Every document of a file."""
    return list(yaml.safe_load_all(file.read_text(encoding="utf-8")))


def ours(folder: Path) -> list[Manifest]:
    """What `kustomize build` makes of a folder, for as much of its language as ours use."""
    [wish] = load(folder / "kustomization.yaml")
    assert set(wish) <= {"apiVersion", "kind", "resources", "patches", "images"}, "teach this function the new field"
    manifests: list[Manifest] = []
    for name in wish["resources"]:
        found = folder / name
        manifests += ours(found) if found.is_dir() else load(found)
    for patch in wish.get("patches", ()):
        [change] = load(folder / patch["path"])
        [index] = [at for at, one in enumerate(manifests) if identity(one) == identity(change)]
        if change.get("$patch") == "delete":
            del manifests[index]
        else:
            manifests[index] = merged(manifests[index], change)
    return [with_images(one, wish.get("images", ())) for one in manifests]


def merged(base: Any, change: Any) -> Any:
    """A strategic merge: maps by key, lists of things with names by name, everything else is replaced."""
    if isinstance(base, dict) and isinstance(change, dict):
        both = {key: merged(base[key], change[key]) for key in base.keys() & change.keys()}
        return {**base, **change, **both}
    if isinstance(base, list) and isinstance(change, list) and all(map(_is_named, [*base, *change])):
        changes = {one["name"]: one for one in change}
        kept = [merged(one, changes.pop(one["name"], {})) for one in base]
        return [*kept, *changes.values()]
    return copy.deepcopy(change)


def _is_named(item: Any) -> bool:
    return isinstance(item, dict) and "name" in item


def with_images(manifest: Manifest, wishes: Iterable[Manifest]) -> Manifest:
    """The manifest with the images of its containers renamed."""
    found = copy.deepcopy(manifest)
    for container in found.get("spec", {}).get("template", {}).get("spec", {}).get("containers", ()):
        for wish in wishes:
            if container["image"].rpartition(":")[0] == wish["name"]:
                container["image"] = f"{wish['newName']}:{wish['newTag']}"
                break
    return found


def identity(manifest: Manifest) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


def the(manifests: Iterable[Manifest], kind: str) -> Manifest:
    """The only one of a kind."""
    [found] = [manifest for manifest in manifests if manifest["kind"] == kind]
    return found


def pod(manifests: Iterable[Manifest]) -> Manifest:
    spec: Manifest = the(manifests, "Deployment")["spec"]["template"]["spec"]
    return spec


def container(manifests: Iterable[Manifest]) -> Manifest:
    [found] = pod(manifests)["containers"]
    return dict(found)


def theirs(program: str) -> Callable[[Path], list[Manifest]]:
    """The same by the real program."""
    command = ["kustomize", "build"] if program == "kustomize" else ["kubectl", "kustomize"]

    def build(folder: Path) -> list[Manifest]:
        made = subprocess.run([*command, str(folder)], capture_output=True, text=True, check=True)
        return list(yaml.safe_load_all(made.stdout))

    return build


def has_kustomize(program: str) -> bool:
    """Whether there is one that is young enough; kubectl before 1.21 brings a kustomize of another language."""
    if shutil.which(program) is None:
        return False
    if program == "kustomize":
        return True
    told = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True, text=True, check=False)
    return bool(re.search(r'"kustomizeVersion": "v5', told.stdout))


# Ours always; the real ones beside it where they are installed, to keep ours honest. Nothing is skipped without them.
BUILDERS = {"ours": ours} | {name: theirs(name) for name in ("kustomize", "kubectl") if has_kustomize(name)}
BUILT = pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)


def faults_of(manifest: Manifest, version: str) -> str:
    """Why a manifest is none for this version of Kubernetes, or ""; a field it does not know is a fault too."""
    if find_spec("kubernetes_validate") is None:
        absent("kubernetes-validate is not installed (make install-dev installs it)")
    import kubernetes_validate  # 20 MB of schemas, for these tests alone

    try:
        kubernetes_validate.validate(manifest, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return str(error)
    return ""
