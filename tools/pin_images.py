"""Pins the public images of Dockerfiles and Compose files by digest, as their registries name them today.

    python -m tools.pin_images            rewrite name:tag, or name:tag@sha256:..., with today's digest
    python -m tools.pin_images --check    only say what is not pinned or stale; exit code 1 if anything is

The tag stays beside the digest: it tells people what this is, and this tool what to ask for. The digest is the one of
the index of all processors, where an image is built for several. A registry that does not answer changes nothing: every
other image is still pinned, the line is kept, and the exit code is 2. Images that are built here are left alone.

Anonymous, standard library only. Source: OCI distribution specification 1.1, "Pulling manifests"; token requests after
Docker's registry authentication ("Bearer", realm, service, scope).
"""

import argparse
import hashlib
import http.client
import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = ("Dockerfile.backend", "Dockerfile.backend.gpu", "docker-compose.yml", "docker-compose.gpu.yml")
OURS = "financia-"
_ANSWER_WITHIN_S = 20.0
# `FROM image AS stage` and `image: image`; what follows the image stays as it is.
_LINE = re.compile(r"^(?P<before>FROM (?:--platform=\S+ )?|\s+image: )(?P<image>[^\s$]+)(?P<after>.*)$", re.MULTILINE)
# An index of all processors first: what is asked for first is what a registry with both gives.
_ACCEPT = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)


class RegistryError(Exception):
    """A registry did not answer, or did not answer with this image; the message says which and what."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image as a file names it."""

    name: str  # without tag and digest, as written: "python", "prom/prometheus", "nvcr.io/nvidia/cuda"
    tag: str
    digest: str  # "sha256:...", or "" where it is not pinned

    @property
    def pinned_text(self) -> str:
        """As it is written into a file."""
        return f"{self.name}:{self.tag}" + (f"@{self.digest}" if self.digest else "")

    @property
    def address(self) -> tuple[str, str]:
        """The registry's address and the repository there, by Docker's rules for short names."""
        host, slash, rest = self.name.partition("/")
        if not slash or not ("." in host or ":" in host or host == "localhost"):
            host, rest = "docker.io", self.name
        if host == "docker.io":
            return "https://registry-1.docker.io", rest if "/" in rest else f"library/{rest}"
        # Docker's rule too: a registry on this machine needs no TLS.
        scheme = "http" if host.partition(":")[0] in {"localhost", "127.0.0.1"} else "https"
        return f"{scheme}://{host}", rest


def parse(text: str) -> Image:
    """The parts of ``name:tag@digest``; a port of the registry is no tag.

    Raises:
        ValueError: without a tag there is nothing to ask for.
    """
    rest, _, digest = text.partition("@")
    name, colon, tag = rest.rpartition(":")
    if not colon or "/" in tag:
        raise ValueError(f"{text} has no tag: write name:tag, then its digest can be asked for")
    return Image(name, tag, digest)


def images_in(text: str) -> dict[str, Image]:
    """Text as written -> image, of a Dockerfile or Compose file: without stages, `scratch` and what is built here."""
    stages = set(re.findall(r"^FROM .* AS (\S+)", text, re.MULTILINE | re.IGNORECASE))
    written = {match["image"] for match in _LINE.finditer(text)}
    return {one: parse(one) for one in sorted(written - stages - {"scratch"}) if not one.startswith(OURS)}


def rewrite(text: str, wanted: Mapping[str, str]) -> str:
    """The file with each image (as written) replaced, and every other character as it was."""
    return _LINE.sub(lambda m: m["before"] + wanted.get(m["image"], m["image"]) + m["after"], text)


def digest_of(image: Image) -> str:
    """The digest of what the tag means now, computed from the registry's own answer.

    Raises:
        RegistryError: no answer, no such image, or an answer that is not what its digest says.
    """
    registry, repository = image.address
    url = f"{registry}/v2/{repository}/manifests/{image.tag}"
    try:
        body, told = _get(url, {"Accept": _ACCEPT})
    except (OSError, http.client.HTTPException, ValueError) as fault:  # URLError and HTTPError are OSErrors
        raise RegistryError(f"{url}: {fault}") from fault
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    if told and told != digest:
        raise RegistryError(f"{url}: the registry says {told}, but its answer is {digest}")
    return digest


def _get(url: str, headers: Mapping[str, str]) -> tuple[bytes, str]:
    """The body and the digest that the registry says it has; with a token, where the registry asks for one."""
    try:
        return _read(url, headers)
    except urllib.error.HTTPError as refused:
        if refused.code != 401:
            raise
        challenge = refused.headers.get("WWW-Authenticate", "")
    return _read(url, {**headers, "Authorization": f"Bearer {_token(challenge)}"})


def _token(challenge: str) -> str:
    scheme, _, rest = challenge.partition(" ")
    asked = dict(re.findall(r'(\w+)="([^"]*)"', rest))
    if scheme.lower() != "bearer" or "realm" not in asked:
        raise ValueError(f"a way to sign in that is not known here: {challenge!r}")
    realm = asked.pop("realm")
    body, _ = _read(f"{realm}?{urllib.parse.urlencode(asked)}", {})
    told = json.loads(body)
    return str(told.get("token") or told["access_token"])


def _read(url: str, headers: Mapping[str, str]) -> tuple[bytes, str]:
    request = urllib.request.Request(url, headers=dict(headers))
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_WITHIN_S) as answer:
            return answer.read(), answer.headers.get("Docker-Content-Digest", "")
    except urllib.error.HTTPError as refused:
        refused.close()  # its status and headers are all that is asked of it
        raise


def pin(folder: Path, *, check: bool, ask: Callable[[Image], str] = digest_of) -> int:
    """Pin the images of the files in a folder, or only say what would change; the exit code."""
    texts = {file: (folder / file).read_text(encoding="utf-8") for file in FILES}
    asked: dict[str, str] = {}  # as written -> as it should be written
    faults = 0
    for written, image in {one: image for text in texts.values() for one, image in images_in(text).items()}.items():
        try:
            asked[written] = Image(image.name, image.tag, ask(image)).pinned_text
        except RegistryError as fault:
            faults += 1
            print(f"{written}: not asked, stays as it is ({fault})", file=sys.stderr)
    stale = {written: wanted for written, wanted in asked.items() if written != wanted}
    for written, wanted in stale.items():
        print(f"{written} {'should be' if check else 'is now'} {wanted}")
    if not check:
        for file, text in texts.items():
            (folder / file).write_text(rewrite(text, stale), encoding="utf-8")
    print(f"{len(asked) - len(stale)} up to date, {len(stale)} {'stale' if check else 'changed'}, {faults} not asked")
    return 2 if faults else int(check and bool(stale))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 if something is stale")
    sys.exit(pin(ROOT, check=parser.parse_args().check))


if __name__ == "__main__":
    main()
