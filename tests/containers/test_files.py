"""Dockerfiles, Compose files and what the images are made of: true to the service and to each other. Starts nothing."""

import difflib
import os
import re
import socket
import subprocess
import sys
import threading
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from backend import __version__
from backend.config import Settings
from backend.device.facts import torch_wheels
from backend.lanes.batcher import LANE_EXIT_S
from backend.processes.http_server import GRACE_S
from tests.containers.engine import BACKEND, REDIS, ROOT
from tests.http_server import serving
from tools import lock_image

FILES = {"cpu": "docker-compose.yml", "gpu": "docker-compose.gpu.yml"}
IMAGES = {"cpu": "Dockerfile.backend", "gpu": "Dockerfile.backend.gpu"}
COMPOSE: dict[str, dict[str, Any]] = {
    kind: yaml.safe_load((ROOT / file).read_text(encoding="utf-8")) for kind, file in FILES.items()
}
TEXTS = {kind: (ROOT / file).read_text(encoding="utf-8") for kind, file in IMAGES.items()}
BOTH = pytest.mark.parametrize("kind", FILES)
FOLDER = ROOT / "deploy" / "image"
_USER = "10001:10001"


def backend(kind: str) -> dict[str, Any]:
    service: dict[str, Any] = COMPOSE[kind]["services"]["backend"]
    return service


def instructions(kind: str) -> list[str]:
    """The Dockerfile's, each in one line, without comments."""
    text = re.sub(r"^#.*\n", "", TEXTS[kind], flags=re.MULTILINE)
    return [line.strip() for line in re.sub(r"\\\n\s*", "", text).splitlines() if line.strip()]


def environment(kind: str) -> dict[str, str]:
    """ENV of the last stage."""
    pairs = " ".join(line[4:] for line in instructions(kind) if line.startswith("ENV "))
    return dict(pair.split("=", 1) for pair in re.findall(r"\S+=\S+", pairs))


@BOTH
def test_names_and_versions(kind: str):
    """Those that ./deploy-gpu.sh, Kubernetes and Prometheus know."""
    name = {"cpu": "financia-backend", "gpu": "financia-backend-gpu"}[kind]
    targets = yaml.safe_load((ROOT / f"deploy/prometheus/targets/{kind}.yml").read_text(encoding="utf-8"))

    assert f"{name}:{__version__}" == backend(kind)["image"]
    assert name.replace("-", "_") == backend(kind)["container_name"]
    assert [{"targets": [f"{backend(kind)['container_name']}:8000"]}] == targets
    assert f"ARG VERSION={__version__}" in instructions(kind)
    assert IMAGES[kind] == backend(kind)["build"]["dockerfile"]
    assert (BACKEND, REDIS) == (backend("cpu")["container_name"], COMPOSE[kind]["services"]["redis"]["container_name"])


@BOTH
def test_every_setting_reaches_the_service(kind: str):
    """From outside by its own name, or from backend/.env; but where it listens, what it keeps, and a host's folder."""
    names = set(names_of("settings"))
    settings = {name.upper() for name in Settings.model_fields}
    libraries = {"HF_TOKEN", "HF_HUB_OFFLINE", "HF_ENDPOINT", "PYTORCH_CUDA_ALLOC_CONF"}
    fixed = {"HOST", "PORT", "STATE_DIR"}
    given = backend(kind)["environment"]

    assert settings | libraries == names | fixed | {"TESSDATA_PREFIX"}, "make docs"
    assert fixed | {"HF_HOME"} | ({"USE_GPU"} if kind == "cpu" else set()) == set(given)
    assert all(value and "${" not in value for value in given.values()), (
        f"a name in `environment` of {FILES[kind]} hides its value in backend/.env: `make docs` writes "
        "deploy/compose/settings.env, a default belongs into deploy/compose"
    )
    assert set(defaults(kind)) <= names


@BOTH
def test_what_goes_before_what(kind: str):
    """Compose takes the later file: our defaults, backend/.env where it is, then the names that are set outside."""
    ours, theirs, outside = backend(kind)["env_file"]

    assert {"path": f"deploy/compose/{kind}.env"} == ours
    assert {"path": "backend/.env", "required": False} == theirs
    assert {"path": "deploy/compose/settings.env"} == outside
    assert (ROOT / "deploy/compose/settings.env").read_bytes().endswith(b"\n"), "the last name would not be one"


def names_of(file: str) -> list[str]:
    """The names that stand alone in one of deploy/compose."""
    lines = (ROOT / f"deploy/compose/{file}.env").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def defaults(kind: str) -> dict[str, str]:
    """What a Compose file sets where nobody else does."""
    return dict(line.split("=", 1) for line in names_of(kind))


@BOTH
def test_what_the_files_give_is_right(kind: str, monkeypatch: pytest.MonkeyPatch):
    """With nothing set outside, image and Compose file together are a valid configuration."""
    for name, value in {**environment(kind), **defaults(kind), **backend(kind)["environment"]}.items():
        monkeypatch.setenv(name, value)

    settings = Settings()

    assert ("0.0.0.0", 8000, kind == "gpu") == (settings.host, settings.port, settings.use_gpu)
    assert "redis://redis:6379/0" == settings.redis_url
    assert 4 * settings.cache_ttl_s == settings.job_ttl_s
    assert "bundled" == settings.model_profile, "what answers on a laptop answers on a card"


@BOTH
def test_what_is_written_lies_on_volumes(kind: str):
    """STATE_DIR, HF_HOME and /tmp, by image and Compose file alike; the rest cannot be written."""
    mounts = {Path(volume.split(":")[1]) for volume in backend(kind)["volumes"]}
    written = {Path(environment(kind)[name]) for name in ("STATE_DIR", "HF_HOME")}
    made = " ".join(instructions(kind))

    assert mounts == written == {Path(backend(kind)["environment"][name]) for name in ("STATE_DIR", "HF_HOME")}
    assert all(f" {folder}" in made.partition("install -d -o 10001 -g 10001")[2] for folder in written)
    assert "/tmp" == environment(kind)["HOME"]
    assert backend(kind)["tmpfs"][0].startswith("/tmp:")
    assert not [line for line in instructions(kind) if line.startswith("VOLUME")]


@BOTH
def test_every_service_is_bounded(kind: str):
    """Rights, memory, processes, logs, restarts and a health check; only the monitoring and PostgreSQL are profiles."""
    for name, service in COMPOSE[kind]["services"].items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["restart"] == "unless-stopped", name
        assert service["logging"]["options"] == {"max-size": "10m", "max-file": "5"}, name
        assert service["healthcheck"]["test"][0].startswith("CMD"), name
        assert service["mem_limit"], name
        assert service["pids_limit"] > 0, name
        assert ("profiles" in service) == (name in {"prometheus", "grafana", "postgres"}), name
    assert backend(kind)["depends_on"] == {"redis": {"condition": "service_healthy"}}


@BOTH
def test_redis_drops_vectors_before_jobs_and_never_the_queue(kind: str):
    """What expires soonest goes first, keys of the queue do not expire, and memory is left beside what it keeps."""
    redis = COMPOSE[kind]["services"]["redis"]
    vector_s = float(defaults(kind)["CACHE_TTL_S"])
    kept, limit = (_default_mib(text) for text in (redis["command"], redis["mem_limit"]))

    assert "--maxmemory-policy volatile-ttl" in redis["command"]
    assert 4 * vector_s <= Settings.model_fields["job_ttl_s"].default
    assert Settings.model_fields["limit_job_bytes"].default < kept * 2**20
    assert 1.25 * kept <= limit


def _default_mib(text: str) -> int:
    size, unit = re.search(r":-(\d+)([mg])b?\}", text).groups()
    return int(size) * {"m": 1, "g": 1024}[unit]


@BOTH
def test_ports_are_on_this_machine_only(kind: str):
    """Unless BIND_ADDRESS says otherwise; Redis has none."""
    services = COMPOSE[kind]["services"]
    ports = {name: port for name, service in services.items() for port in service.get("ports", ())}

    assert {"backend", "prometheus", "grafana"} == set(ports)
    assert all(port.startswith("${BIND_ADDRESS:-127.0.0.1}:${") for port in ports.values())
    assert "${BIND_ADDRESS:-127.0.0.1}:${PORT:-8000}:8000" == ports["backend"]


@BOTH
def test_a_stop_has_its_time(kind: str):
    """The grace, open requests, and the jobs they left."""
    drain_s = Settings.model_fields["limit_drain_s"].default
    grace_s = int(backend(kind)["stop_grace_period"].removesuffix("s"))

    assert grace_s > GRACE_S + 2 * drain_s + 1 + LANE_EXIT_S


@BOTH
def test_what_is_mounted_exists(kind: str):
    """A path that is not there becomes an empty folder without a word."""
    services = COMPOSE[kind]["services"]
    mounts = [
        mount.split(":")
        for service in services.values()
        for mount in service["volumes" if "volumes" in service else "tmpfs"]
    ]
    files = [mount for mount in mounts if mount[0].startswith("./")]
    named = {mount[0] for mount in mounts if mount[0][0] not in "./"}

    assert len(files) == 5
    assert all((ROOT / source).exists() and rights == ["ro"] for source, _, *rights in files)
    assert named == set(COMPOSE[kind]["volumes"])
    assert [f"./deploy/prometheus/targets/{kind}.yml"] == [source for source, *_ in files if "targets" in source]


@BOTH
def test_compose_2_24_can_read_them(kind: str):
    """The oldest that ./deploy-gpu.sh takes; later ones brought these."""
    text = (ROOT / FILES[kind]).read_text(encoding="utf-8")

    assert not {"name", "include", "configs", "secrets", "models"} & set(COMPOSE[kind])
    assert not re.search(r"^\s+(format|pull_policy|attach|post_start|pre_stop|gpus|provider):", text, re.MULTILINE)


def test_the_two_compose_files_differ_where_they_must():
    """Redis, PostgreSQL and the monitoring are the same but for the list of targets; the same names of services."""
    cpu, gpu = (dict(COMPOSE[kind]["services"]) for kind in FILES)
    backends = cpu.pop("backend"), gpu.pop("backend")
    for services, kind in ((cpu, "cpu"), (gpu, "gpu")):
        services["prometheus"] = yaml.safe_load(
            yaml.dump(services["prometheus"]).replace(f"targets/{kind}", "targets/x")
        )
    devices = backends[1].pop("deploy")["resources"]["reservations"]["devices"]
    differs = {name for name in backends[0] if backends[0][name] != backends[1][name]}

    assert cpu == gpu
    assert [{"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}] == devices
    assert {"shm_size"} == set(backends[1]) - set(backends[0])
    assert {"image", "container_name", "build", "env_file", "environment", "tmpfs", "mem_limit"} == differs
    assert {"USE_GPU": "true"} == dict(defaults("gpu").items() - defaults("cpu").items())
    assert set(defaults("cpu")) < set(defaults("gpu"))
    assert COMPOSE["cpu"]["volumes"] == COMPOSE["gpu"]["volumes"]


def test_the_two_images_differ_where_they_say_so():
    """Training, compiler, ONNX Runtime, the index of torch, its check and the last one, NVIDIA's toolkit, the title."""
    lines = [line for line in difflib.ndiff(instructions("cpu"), instructions("gpu")) if line[0] in "+-"]
    words = {re.sub(r"=.*", "", line[2:]) if "ARG" in line or "ENV" in line else line[2:7] for line in lines}

    shared = {"ARG WITH_TRAINING", "ARG WITH_COMPILER", "ARG TORCH_INDEX_URL", "ENV NVIDIA_VISIBLE_DEVICES", "LABEL"}
    assert shared | {"COPY ", "RUN -", "RUN /", "RUN a"} >= words
    assert {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"} == set(environment("gpu")) - set(environment("cpu"))


@BOTH
def test_arguments_of_the_build(kind: str):
    """Compose gives the Dockerfile's own defaults; the GPU's build of torch is one that exists."""
    args = backend(kind)["build"]["args"]
    declared = dict(line[4:].split("=", 1) for line in instructions(kind) if line.startswith("ARG "))
    build = declared["TORCH_INDEX_URL"].rpartition("/")[2]
    published = {f"cu{cuda.replace('.', '')}" for cuda in torch_wheels.WHEELS}

    assert {name: f"${{{name}:-{declared[name]}}}" for name in args} == args
    assert "cpu" == build if kind == "cpu" else build in published


@BOTH
def test_nobody_is_root_and_tini_is_first(kind: str):
    """In exec form, so that signals reach the service; the number is the one of Kubernetes."""
    manifest = yaml.safe_load((ROOT / "deploy/kubernetes/base/deployment.yaml").read_text(encoding="utf-8"))
    rights = manifest["spec"]["template"]["spec"]["securityContext"]

    assert f"USER {rights['runAsUser']}:{rights['runAsGroup']}" in instructions(kind)
    assert 'ENTRYPOINT ["/usr/bin/tini", "--"]' in instructions(kind)
    assert 'CMD ["python", "-m", "backend.main"]' in instructions(kind)
    assert "WORKDIR /app" in instructions(kind)


@BOTH
def test_health_checks_agree(kind: str):
    """An engine that ignores the image's takes the Compose file's."""
    [line] = [line for line in instructions(kind) if line.startswith("HEALTHCHECK")]
    check = backend(kind)["healthcheck"]

    assert ["CMD", "healthcheck"] == check["test"]
    for option, name in {
        "interval": "interval",
        "timeout": "timeout",
        "retries": "retries",
        "start-period": "start_period",
    }.items():
        assert f"--{option}={check[name]} " in line


def test_the_context_is_small():
    """Everything that is copied, and nothing else."""
    lines = [
        line for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] not in {"#", ""}
    ]
    taken = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        word
        for kind in IMAGES
        for line in instructions(kind)
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
        if not word.startswith("--")
    }

    assert "*" == lines[0]
    assert all(any(Path(path).is_relative_to(top) for top in taken) for path in copied)
    assert all(any(Path(path).is_relative_to(top) for path in copied) for top in taken)
    assert {"backend/.env", "**/__pycache__"} <= set(lines)


def test_the_images_install_what_is_pinned():
    """Every dependency of pyproject.toml is in a list, with the version of constraints.txt and a checksum."""
    pinned = lock_image.pins((ROOT / "constraints.txt").read_text(encoding="utf-8")) | lock_image.BEFORE_3_11_3
    lists = {file: (FOLDER / f"{file}.txt").read_text(encoding="utf-8") for file in ("serve", "train", "torch")}
    versions = {file: lock_image.pins(text) for file, text in lists.items()}
    serve, train = ({**versions["torch"], **versions["serve"]}, versions["train"])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = {file: {_name(wish) for wish in wishes} for file, wishes in lock_image.wishes().items()}
    wished = [*project["dependencies"], *project["optional-dependencies"]["speech"]]

    assert {_name(wish) for wish in wished} - set(serve) == set(), "make lock"
    assert asked["train"] - set(serve) - set(train) == set(), "make lock"
    assert {name: pinned.get(name) for name in {**serve, **train}} == {**serve, **train}, "make lock"
    assert not set(serve) & set(train)
    for file in ("serve", "train"):
        found = lock_image.checksums(lists[file])
        assert set(found) == set(versions[file])
        assert all(1 <= len(sums) <= len(lock_image.MACHINES) for sums in found.values())


def _name(wish: str) -> str:
    return lock_image.canonical(re.split(r"[\[<>=!~ ;]", wish)[0])


@BOTH
def test_torch_is_checked_where_its_build_has_a_list(kind: str, tmp_path: Path):
    """The Dockerfile's line, run in a shell: the build's list with checksums, else the version alone, said aloud."""
    [line] = [line for line in instructions(kind) if "/build/torch.txt" in line and line.startswith("RUN ")]
    (tmp_path / "python3").write_text('#!/bin/sh\nprintf "%s|" "$@"\n', encoding="utf-8")
    (tmp_path / "python3").chmod(0o755)
    (tmp_path / "torch-cu129.txt").touch()
    script = line.partition("/root/.cache/pip")[2].replace("/build/", f"{tmp_path}/")

    def said(url: str) -> str:
        env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TORCH_INDEX_URL": url}
        return subprocess.run(["sh", "-euc", script], env=env, capture_output=True, text=True, check=True).stdout

    for url in ("https://mirror.example/whl/cu129", "https://mirror.example/whl/cu129/"):
        assert f"--index-url|{url}|--require-hashes|--no-deps|--requirement|{tmp_path}/torch-cu129.txt|" in said(url)
    other = said("https://mirror.example/whl/cu126")
    assert "no checksums of torch's cu126 build" in other
    assert f"--index-url|https://mirror.example/whl/cu126|--requirement|{tmp_path}/torch.txt|" in other


@pytest.mark.parametrize(
    ("cuda", "machine", "lists"),
    [
        pytest.param("12.9", "x86_64", ["onnxruntime-cu12-x86_64.txt"], id="cuda-12"),
        pytest.param("12.6", "x86_64", ["onnxruntime-cu12-x86_64.txt"], id="an-older-cuda-12"),
        pytest.param("13.0", "x86_64", ["onnxruntime-cu13-x86_64.txt", "cublas-cu13.txt"], id="cuda-13"),
        pytest.param("13.2", "aarch64", ["onnxruntime-cu13-aarch64.txt", "cublas-cu13.txt"], id="cuda-13-on-arm"),
        pytest.param("12.9", "aarch64", [], id="no-wheel-for-cuda-12-on-arm"),
    ],
)
def test_packages_of_the_cuda_of_torch(tmp_path: Path, cuda: str, machine: str, lists: list[str]):
    """The Dockerfile's line, run in a shell, by the torch that is installed, whichever index it came from.

    ONNX Runtime with CUDA takes the place of the one without, where there is one; cuBLAS of CUDA 12 comes for
    CTranslate2 where torch does not bring it.
    """
    [line] = [line for line in instructions("gpu") if "onnxruntime-" in line and line.startswith("RUN ")]
    python = 'import sys, types; sys.modules["torch"] = types.SimpleNamespace(version=types.SimpleNamespace(cuda=CUDA))'
    (tmp_path / "sitecustomize.py").write_text(python.replace("CUDA", repr(cuda)), encoding="utf-8")
    for program, script in {"python3": 'printf "%s|" "$@"', "uname": f"echo {machine}"}.items():
        (tmp_path / program).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (tmp_path / program).chmod(0o755)
    script = line.partition("/root/.cache/pip")[2].replace("/build/", f"{FOLDER}/")
    script = script.replace("$(/opt/venv/bin/python ", f"$(PYTHONPATH={tmp_path} {sys.executable} ")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    said = subprocess.run(["sh", "-euc", script], env=env, capture_output=True, text=True, check=True).stdout

    assert [f"{FOLDER}/{name}" for name in lists] == re.findall(
        r"--require-hashes\|--no-deps\|--requirement\|([^|]+)", said
    )
    assert bool(lists) == ("uninstall|--yes|onnxruntime|" in said)
    assert bool(lists) != ("RapidOCR runs on the CPU" in said)


@BOTH
def test_every_build_ends_with_a_smoke_test(kind: str):
    """Of the finished layers, as the user that the service runs as, and told which image it is."""
    lines = instructions(kind)
    [test] = [line for line in lines if "smoke_test.py" in line]

    assert lines.index(f"USER {_USER}") < lines.index(test) < lines.index("EXPOSE 8000")
    assert test.endswith(f"python /build/smoke_test.py {kind}")
    assert "--mount=type=bind,source=deploy/image/smoke_test.py," in test, "it does not stay in the image"
    assert (FOLDER / "smoke_test.py").stat().st_mode & 0o004


@BOTH
def test_the_documented_check_up_is_where_an_exec_begins(kind: str):
    """docker exec … python check_gpu.py: the file stands in WORKDIR, and runs as one."""
    [link] = [line for line in instructions(kind) if "ln -s" in line]

    assert "ln -s backend/check_gpu.py /app/check_gpu.py" in link
    assert "WORKDIR /app" in instructions(kind)


@pytest.mark.slow
def test_the_check_up_starts_through_a_link(tmp_path: Path):
    """As /app/check_gpu.py in the image: its packages are found beside the file that the link names."""
    (tmp_path / "check_gpu.py").symlink_to(ROOT / "backend" / "check_gpu.py")
    command = [sys.executable, "check_gpu.py", "--as", "h200"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)

    assert 0 == done.returncode, done.stderr
    assert "H200" in done.stdout


def test_only_the_gpu_image_has_a_compiler():
    """For torch.compile, where the build argument says so; the image for CPUs has no use for one."""
    [packages] = [line for line in instructions("gpu") if "apt-get install" in line and "tini" in line]

    assert '$([ "$WITH_COMPILER" != yes ] || echo gcc libc6-dev)' in packages
    assert not [line for line in instructions("cpu") if "gcc" in line]


def test_lists_are_written_as_pip_reads_them():
    """Sorted, each checksum on its line; what was written is read back. Packages that torch pins are not taken."""
    versions = {"a-b": "1.0", "torch": "2.13.0", "c": "2"}
    report = {
        "install": [{"metadata": {"name": name}} for name in ("A_b", "torch", "nvidia-cublas", "financia-inference")]
    }
    text = lock_image.render("serve", versions, {"c": {"0" * 64}, "a-b": {"2" * 64, "1" * 64}})

    assert {"a-b"} == lock_image.needed(report, versions)
    assert {"a-b": {"1" * 64, "2" * 64}, "c": {"0" * 64}} == lock_image.checksums(text)
    assert {"a-b": "1.0", "c": "2"} == lock_image.pins(text)
    assert text.partition("aarch64.\n")[2].splitlines() == [
        "a-b==1.0 \\",
        f"    --hash=sha256:{'1' * 64} \\",
        f"    --hash=sha256:{'2' * 64}",
        "c==2 \\",
        f"    --hash=sha256:{'0' * 64}",
    ]


def check_health(host: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / "healthcheck.py")]
    environment = {**os.environ, "PORT": host.partition(":")[2]}
    return subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=30)


def test_the_health_check_tells_ready_from_not():
    """0 for 200; else 1 and the reason, which `docker inspect` shows."""
    statuses = iter([200, 503])
    with serving(lambda path, _: (next(statuses) if path == "/health/ready" else 404, {}, b"lane 0 is starting")) as at:
        ready, busy = (check_health(at) for _ in range(2))

    assert (0, "") == (ready.returncode, ready.stderr)
    assert (1, "503 lane 0 is starting\n") == (busy.returncode, busy.stderr)


def test_the_health_check_without_an_answer():
    def answer() -> None:
        with listener.accept()[0] as connection:
            connection.sendall(b"nonsense\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, daemon=True).start()
        nonsense = check_health(f"127.0.0.1:{listener.getsockname()[1]}")

    assert nonsense.returncode == 1
    assert nonsense.stderr.startswith("no answer: BadStatusLine")
    assert "Traceback" not in nonsense.stderr
