"""Which pip arguments bring the right build of torch: PyPI's needs gigabytes of CUDA, a CPU needs none of it.

    python tools/torch_index.py auto|pypi|URL

Prints the arguments (or nothing) on standard output and the reason on standard error. In this order:

1. A URL is used as it is; ``pypi`` adds nothing.
2. ``auto`` adds nothing where PyPI's build is the CPU build (not Linux), or where pip was given wheels of its own
   (PIP_NO_INDEX, PIP_FIND_LINKS).
3. ``auto`` adds nothing where an NVIDIA driver answers: PyPI's build with CUDA is the right one.
4. ``auto`` adds PyTorch's index of CPU builds if it answers, and goes on without it if it does not.

Only the standard library: this runs before anything is installed.
"""

import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Mapping

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
_ANSWER_WITHIN_S = 3.0  # one small page; pip itself would retry five times for each of a hundred packages
_OWN_WHEELS = ("PIP_NO_INDEX", "PIP_FIND_LINKS")


def choose(
    wish: str,
    *,
    platform: str,
    environment: Mapping[str, str],
    has_nvidia: Callable[[], bool],
    answers: Callable[[str], bool],
) -> tuple[list[str], str]:
    """The pip arguments for torch, and why."""
    if wish not in {"auto", "pypi"}:
        return ["--extra-index-url", wish], f"torch from {wish}, as TORCH_INDEX_URL says"
    if wish == "pypi":
        return [], "torch from the configured indexes, as TORCH_INDEX_URL=pypi says"
    if not platform.startswith("linux"):
        return [], "torch from the configured indexes: their build is the CPU build on this platform"
    if own := [name for name in _OWN_WHEELS if environment.get(name)]:
        return [], f"torch from where {own[0]} points"
    if has_nvidia():
        return [], "torch with CUDA from the configured indexes: an NVIDIA driver answers (about 3 GB)"
    if answers(CPU_INDEX):
        return ["--extra-index-url", CPU_INDEX], f"CPU build of torch from {CPU_INDEX}"
    return [], (
        f"{CPU_INDEX} does not answer; torch comes from the configured indexes, and PyPI's build brings about 3 GB of "
        "CUDA (set TORCH_INDEX_URL to a mirror of CPU builds, or PIP_FIND_LINKS to a folder with the wheel)"
    )


def nvidia_driver_answers() -> bool:
    """True where ``nvidia-smi`` lists a card."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listed.returncode == 0 and b"GPU" in listed.stdout


def index_answers(url: str) -> bool:
    """True where the index has a page for torch; proxies of the environment are used."""
    try:
        with urllib.request.urlopen(f"{url}/torch/", timeout=_ANSWER_WITHIN_S) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def main() -> None:
    """Print the arguments for the wish on the command line."""
    arguments, reason = choose(
        sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] else "auto",
        platform=sys.platform,
        environment=os.environ,
        has_nvidia=nvidia_driver_answers,
        answers=index_answers,
    )
    print(f"==> {reason}", file=sys.stderr)
    print(" ".join(arguments))


if __name__ == "__main__":
    main()
