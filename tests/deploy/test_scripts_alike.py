"""deploy-gpu.sh and deploy-gpu.ps1 offer the same, say the same and call the same; both are sound as scripts."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.conftest import absent
from tests.deploy.powershell import Beyond, Script, faults

ROOT = Path(__file__).resolve().parents[2]
BASH = (ROOT / "deploy-gpu.sh").read_text(encoding="utf-8")
POWERSHELL = (ROOT / "deploy-gpu.ps1").read_text(encoding="utf-8")  # newlines as everywhere, whatever the checkout has
OPTIONS = re.findall(r"^            --([a-z-]+)(?: \| -h)?\)", BASH, re.MULTILINE)
QUOTED = re.compile(r"'([^']*)'|\"((?:[^\"\\`]|[\\`].)*)\"", re.DOTALL)


def spelled(option: str) -> str:
    """PowerShell's way: dry-run is DryRun."""
    return "".join(part.capitalize() for part in option.split("-"))


def in_powershell(text: str) -> str:
    """A text of the bash script as the other one has to say it."""
    for option in OPTIONS:
        text = re.sub(rf"(?<![\w-])--{option}(?![\w-])", f"-{spelled(option)}", text)
    return text.replace("./deploy-gpu.sh", r".\deploy-gpu.ps1")


def help_of(source: str, start: str, end: str) -> list[str]:
    """The lines of the help, spaces folded."""
    text = source.partition(start)[2].partition(end)[0]
    return [" ".join(line.split()) for line in text.strip().splitlines()]


BASH_HELP = ("<<'TEXT'\n", "\nTEXT\n")
POWERSHELL_HELP = ("@'\n", "\n'@\n")


def code_of(source: str, help_text: tuple[str, str]) -> str:
    """The script without its help and its comments."""
    before, _, rest = source.partition(help_text[0])
    kept = before + rest.partition(help_text[1])[2]
    return re.sub(r"(?m)^\s*#.*$|(?<= )# .*$", "", kept)


def sentences(code: str) -> set[str]:
    """What a person may read: quoted texts of two words or more, variables not counted."""
    texts = [single or double for single, double in QUOTED.findall(code)]
    bare = {text: re.sub(r"\$\{[^}]*\}|\$\w+", "", text) for text in texts}
    return {text for text, words in bare.items() if re.search(r"[A-Za-z]{2,}.* .*[A-Za-z]{2,}", words, re.DOTALL)}


def flags(code: str) -> set[str]:
    """The options of other programs."""
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+(?:=[a-z_,]+)?", code))


BASH_CODE, POWERSHELL_CODE = code_of(BASH, BASH_HELP), code_of(POWERSHELL, POWERSHELL_HELP)
# Said by one of them only, because only one of them can meet it.
ONLY_BASH = {
    "this script does not run in a shell of Windows",
    "Use deploy-gpu.ps1 in PowerShell, or this script inside WSL 2.",
}
# Each shell's own way to say the same: the report, the first request, and templates, which have a test of their own.
OWN_WORDS = re.compile(r"import json|health\.|model\.|application/json|The invoice|\{\{|\{0,4\}|grep -F")


def test_the_options_are_the_same():
    """Same names, in the spelling of each shell."""
    parameters = re.findall(r"^    \[(?:switch|string)\]\$(\w+)", POWERSHELL, re.MULTILINE)

    assert {spelled(option) for option in OPTIONS} == set(parameters)
    assert len(OPTIONS) == len(set(OPTIONS)) == 10


def test_the_help_is_the_same():
    """Line by line, exit codes and environment included."""
    assert [in_powershell(line) for line in help_of(BASH, *BASH_HELP)] == help_of(POWERSHELL, *POWERSHELL_HELP)


def test_the_messages_are_the_same():
    """Every sentence of one is a sentence of the other."""
    ours = {in_powershell(text) for text in sentences(BASH_CODE) - ONLY_BASH}
    theirs = sentences(POWERSHELL_CODE)

    assert len(ours & theirs) > 50
    assert [] == sorted(text for text in ours - theirs if not OWN_WORDS.search(text))
    assert [] == sorted(text for text in theirs - ours if not OWN_WORDS.search(text))


def ends(code: str, call: str) -> set[tuple[str, str]]:
    """(exit code, message) of every deliberate end."""
    found = re.findall(rf"\b{call} (\d) (?:'([^']*)'|\"((?:[^\"\\`]|[\\`].)*)\")", code)
    return {(number, in_powershell(single or double)) for number, single, double in found}


def test_the_exit_codes_are_the_same():
    """Every fault ends both scripts with the same code."""
    only_bash = {("3", in_powershell(text)) for text in ONLY_BASH}
    by_variable = {("3", "$fault"), ("3", "$found.fault")}

    ours, theirs = ends(BASH_CODE, "fail") - only_bash - by_variable, ends(POWERSHELL_CODE, "Stop-Deploy") - by_variable
    assert len(theirs) >= 20
    assert ours == theirs


def test_other_programs_are_called_alike():
    """The same options of docker, compose, nvidia-smi and curl; the same templates."""
    templates = [set(re.findall(r"\{\{.*\}\}", code)) for code in (BASH_CODE, POWERSHELL_CODE)]

    own = {f"--{option}" for option in OPTIONS}
    assert flags(BASH_CODE) - own == flags(POWERSHELL_CODE) - own
    assert templates[0] == templates[1]


def test_the_names_are_the_same():
    """Files, containers, index, port, and the variables given to Compose."""
    constants = Script(POWERSHELL).constants
    for name in ("CPU_FILE", "CPU_CONTAINER", "GPU_FILE", "GPU_CONTAINER"):
        assert f"{name}={constants[name.lower()]}" in BASH
    assert f"readonly INDEX={constants['index_root']}\n" in BASH
    assert f"readonly CONTAINER_PORT={constants['container_port']}\n" in BASH
    given = set(re.findall(r"\bgive ([A-Z_]+)", BASH_CODE))
    assert given == set(re.findall(r"Set-Given '([A-Z_]+)'", POWERSHELL_CODE))
    assert {"TORCH_INDEX_URL", "USE_GPU", "CUDA_VISIBLE_DEVICES", "PORT"} < given


@pytest.mark.parametrize(
    ("file", "container"),
    [("docker-compose.yml", "financia_backend"), ("docker-compose.gpu.yml", "financia_backend_gpu")],
)
def test_the_compose_files_know_the_names(file: str, container: str):
    """The container is called so, listens on the port that is asked for, and every variable given to it is read."""
    compose = (ROOT / file).read_text(encoding="utf-8")
    names = (
        ("TORCH_INDEX_URL", "USE_GPU", "CUDA_VISIBLE_DEVICES", "PORT") if "gpu" in file else ("TORCH_INDEX_URL", "PORT")
    )

    assert re.search(rf"^    container_name: {container}$", compose, re.MULTILINE)
    assert "monitoring" in compose
    assert re.search(r":8000\b", compose)
    for name in names:
        passed_on = re.search(rf"^ +{name}:$", compose, re.MULTILINE)  # without a value: the environment's own, if any
        assert passed_on or f"${{{name}" in compose, f"{file} does not read {name}"


def test_powershell_is_grammatical():
    """The whole script parses; a broken one would not."""
    assert faults(POWERSHELL) == []
    assert faults(POWERSHELL.replace("foreach ($card in ", "foreach ($card of ")) != []


def test_powershell_is_plain_ascii():
    """Windows PowerShell reads a script without a byte order mark in the machine's own code page."""
    assert POWERSHELL.isascii()


@pytest.mark.parametrize(
    "newer",
    [
        pytest.param(r" \?\? |\?\?=", id="null-coalescing"),
        pytest.param(r"\) \? .* : ", id="ternary"),
        pytest.param(r"\) (&&|\|\|) ", id="chains"),
        pytest.param(r"\bforeach-object -parallel", id="parallel"),
        pytest.param(r"-AsHashtable|-SkipHttpErrorCheck", id="parameters-of-7"),
    ],
)
def test_powershell_5_1_knows_it(newer: str):
    """Nothing that came with PowerShell 7: Windows brings 5.1."""
    assert re.search(newer, POWERSHELL_CODE, re.IGNORECASE) is None


def test_every_function_of_powershell_is_there():
    """A misspelt name would only show when its line is reached."""
    script = Script(POWERSHELL)
    known = {"get-command", "get-content", "write-host", "out-host", "foreach-object", "select-object", "start-sleep"}
    known |= {"push-location", "pop-location", "remove-item", "convertfrom-json", "set-strictmode", "uname", "docker"}
    called = set(
        re.findall(r"(?:^|[\s({|;=@])([A-Z][a-z]+-[A-Z][A-Za-z0-9]+)\b", re.sub(QUOTED, "''", POWERSHELL_CODE))
    )

    assert {name.lower() for name in called} <= known | set(script.functions)
    assert set(script.functions) <= {name.lower() for name in called}


def test_bash_is_sound():
    """shellcheck finds nothing."""
    if shutil.which("shellcheck") is None:
        absent("shellcheck is not installed (tools/system_packages.sh installs it)")
    done = subprocess.run(["shellcheck", "deploy-gpu.sh"], check=False, cwd=ROOT, capture_output=True, text=True)

    assert "" == done.stdout


@pytest.mark.parametrize(
    "newer",
    [
        pytest.param(r"declare -A|local -A", id="associative-arrays"),
        pytest.param(r"\b(mapfile|readarray)\b", id="mapfile"),
        pytest.param(r"\$\{\w+(,,|\^\^|@[QULu])\}", id="case-of-letters"),
        pytest.param(r"local -n|declare -n", id="references"),
        pytest.param(r"\|&|&>>|;;&", id="operators"),
    ],
)
def test_bash_3_2_knows_it(newer: str):
    """Nothing that came with bash 4: macOS brings 3.2."""
    assert re.search(newer, BASH_CODE) is None


def test_bash_may_be_run():
    """The file has the bit, so that ./deploy-gpu.sh works from a clone."""
    assert (ROOT / "deploy-gpu.sh").stat().st_mode & 0o111


def run(*lines: str) -> object:
    """What the function F of these lines puts out."""
    return Script("function F {\n" + "\n".join(lines) + "\n}").call("F")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(["return @(1)"], 1, id="an-array-of-one-is-that-one"),
        pytest.param(["return @(@(1) + 2)"], [1, 2], id="more-stay-an-array"),
        pytest.param(["$a = 'x'", 'return "${a}: $A"'], "x: x", id="names-ignore-case"),
        pytest.param(["return 'CPU' -eq 'cpu'"], True, id="texts-too"),
        pytest.param(["return @('a', 'b') -contains 'B'"], None, id="a-comma-is-not-known"),
        pytest.param(["$a = @()", "$b = $a", "$b += 1", "return $a.Count"], 0, id="arrays-grow-by-copy"),
        pytest.param(["$h = @{ a = 1 }", "$g = $h", "$g.a = 2", "return $h.A"], 2, id="hash-tables-are-shared"),
        pytest.param(["$h = @{ a = 1 }", "return $h.b"], None, id="a-missing-key-is-an-error"),
        pytest.param(["return 'a,b' -split ','"], ["a", "b"], id="split"),
        pytest.param(["if (-not '') { return 1 } else { return 2 }"], 1, id="an-empty-text-is-false"),
        pytest.param(["if ('0') { return 1 }"], 1, id="any-other-is-true"),
        pytest.param(["return 5 -lt '10'"], True, id="the-right-side-becomes-a-number"),
        pytest.param(["Get-Date"], None, id="no-foreign-commands"),
        pytest.param(["while ($true) { }"], None, id="no-other-statements"),
        pytest.param(["$a = 1", 'return "$a: x"'], None, id="a-colon-after-a-name"),
    ],
)
def test_the_little_powershell(lines: Iterable[str], expected: object):
    """What `powershell.py` runs, it runs as PowerShell does (its help: about_Return, about_Arrays)."""
    if expected is None:
        with pytest.raises((Beyond, KeyError)):
            run(*lines)
    else:
        assert expected == run(*lines)
