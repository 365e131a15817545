"""backend/.env and .env as deploy_gpu.py reads them: what they decide, what goes before, what Compose is told."""

import pytest

from tests.deploy.machine import Machine, deploy, deploy_gpu

FILE = "backend/.env"
MACHINE = Machine(
    cards=("0, GPU-h, NVIDIA H100 80GB HBM3, 9.0", "1, GPU-a, NVIDIA A100-SXM4-80GB, 8.0"),
    files={FILE: "PRECISION=bf16\n"},
)


def with_file(text: str, **environment: str) -> Machine:
    return MACHINE.but(files={FILE: text}, environment=environment)


@pytest.mark.parametrize(
    ("text", "environment", "compose_file"),
    [
        pytest.param("USE_GPU=false\n", {}, "docker-compose.yml", id="the-file-alone"),
        pytest.param("USE_GPU=false\n", {"USE_GPU": "true"}, "docker-compose.gpu.yml", id="the-environment-goes-first"),
        pytest.param("DEVICE=cpu\n", {}, "docker-compose.yml", id="device"),
        pytest.param("# USE_GPU=false\n", {}, "docker-compose.gpu.yml", id="a-comment"),
        pytest.param('export USE_GPU="false" # for now\n', {}, "docker-compose.yml", id="as-shells-write-it"),
    ],
)
def test_the_file_decides_where_the_environment_does_not(text: str, environment: dict[str, str], compose_file: str):
    outcome = deploy(with_file(text, **environment), "--dry-run")

    assert 0 == outcome.code, outcome.err
    assert f"docker compose --env-file backend/.env -f {compose_file} up --detach" in outcome.commands


def test_options_go_before_the_file():
    """--gpu N names a card by UUID; a number in DEVICE would count the cards of the container."""
    by_number = deploy(with_file("DEVICE=cuda:1\nCUDA_VISIBLE_DEVICES=1\nPORT=8001\n"), "--dry-run", "--gpu", "0")
    on_cpu = deploy(with_file("DEVICE=cuda:1\n"), "--dry-run", "--cpu", "--port", "9000")

    assert {"CUDA_VISIBLE_DEVICES": "GPU-h", "DEVICE": "cuda", "PORT": "8001"}.items() <= by_number.given.items()
    assert {"DEVICE": "cpu", "USE_GPU": "false", "PORT": "9000"}.items() <= on_cpu.given.items()
    assert any("-f docker-compose.yml" in command for command in on_cpu.commands)


@pytest.mark.parametrize("text", ["USE_GPU=true\n", "DEVICE=cuda:0\n", "DEVICE=cuda\n"])
def test_a_gpu_that_the_file_demands(text: str):
    """Without one nothing is built: exit code 4, as by the environment."""
    outcome = deploy(with_file(text).but(smi="absent"))

    assert 4 == outcome.code
    assert [] == outcome.commands


def test_a_torch_build_by_the_file():
    outcome = deploy(with_file("TORCH_INDEX_URL=https://mirror.example/whl/cu126\n"), "--dry-run")

    assert "https://mirror.example/whl/cu126" == outcome.given["TORCH_INDEX_URL"]


@pytest.mark.parametrize(
    ("files", "told"),
    [
        pytest.param({}, "docker compose -f", id="none"),
        pytest.param({".env": "PORT=1\n"}, "docker compose -f", id="compose-reads-its-own"),
        pytest.param({FILE: "PORT=1\n"}, "docker compose --env-file backend/.env -f", id="ours"),
        pytest.param(
            {FILE: "PORT=1\n", ".env": "PORT=2\n"},
            "docker compose --env-file backend/.env --env-file .env -f",
            id="both-and-the-later-wins",
        ),
    ],
)
def test_what_compose_is_told(files: dict[str, str], told: str):
    """Told of a file it no longer reads .env by itself; every command gets the same, so that ports agree."""
    outcome = deploy(MACHINE.but(files=files))
    commands = [call for call in outcome.calls if call.startswith("docker compose") and "version" not in call]
    down = deploy(MACHINE.but(files=files), "--down")

    assert 0 == outcome.code, outcome.err
    assert commands
    assert all(command.startswith(f"{told} docker-compose") for command in [*commands, *down.commands])
    assert files.get(".env", files.get(FILE, "PORT=")).strip() == f"PORT={outcome.given.get('PORT', '')}"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=1", "1"),
        ("  A = 1  ", "1"),
        ("A=", ""),
        ("A=# nothing", ""),
        ("A=a#b", "a#b"),
        ("A='a # b' # c", "a # b"),
        ('A="a b"', "a b"),
        ("A=redis://:p%40ss@redis:6379/0?x=1", "redis://:p%40ss@redis:6379/0?x=1"),
        ("A=1\r", "1"),
    ],
)
def test_values(line: str, value: str):
    assert {"A": value} == deploy_gpu.read_env_file(f"# B=2\n{line}\n\nnonsense\n")


@pytest.mark.parametrize(
    ("value", "is_told"),
    [
        pytest.param("ana:pa$word", True, id="compose-takes-a-name"),
        pytest.param('"pa$word"', True, id="in-double-quotes-too"),
        pytest.param("${HOME}/models", True, id="whoever-reads-it"),
        pytest.param("'${HOME}/models'", True, id="the-service-replaces-it-in-single-quotes"),
        pytest.param("'ana:pa$word' # as it stands", False, id="in-single-quotes"),
        pytest.param("password # $5", False, id="in-a-comment"),
        pytest.param("password", False, id="none"),
    ],
)
def test_a_dollar_that_compose_may_replace_is_told(value: str, is_told: bool):
    """By the setting's name: its value may be a key."""
    outcome = deploy(with_file(f"API_KEYS={value}\n# ADMIN_KEYS=a$b\n"), "--dry-run")

    assert 0 == outcome.code
    assert is_told == ("backend/.env: Compose may replace the $ in API_KEYS: " in outcome.err)
    assert not any(part in outcome.err for part in ("pa$", "${HOME}", "$5"))
    assert "ADMIN_KEYS" not in outcome.err
