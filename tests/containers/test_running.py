"""The CPU image and docker-compose.yml for real: built, started, asked, hurt, and well again.

Run by `make test-containers`; needs Docker, or podman as root.
"""

import io
import os
from typing import Any

import pytest
import yaml
from PIL import Image, ImageDraw, ImageFont

from tests.containers.engine import BACKEND, CPU_INDEX, ENV_FILE, REDIS, ROOT, Stack, run, until

# The first test also waits for the build.
pytestmark = [pytest.mark.containers, pytest.mark.timeout(2400)]

TEXTS = {
    "es": "La factura 2024/017 de Aceros del Norte, S.A. vence el 12 de marzo de 2024.",
    "en": "The landlord shall return the deposit within thirty days of the end of the lease.",
}


def scanned_page(*lines: str) -> bytes:
    """A PNG of A5 at 150 dpi with these lines of print."""
    paper = Image.new("L", (874, 1240), 255)
    pen, font = ImageDraw.Draw(paper), ImageFont.load_default(28)
    for row, line in enumerate(lines):
        pen.text((80, 100 + 70 * row), line, 0, font)
    written = io.BytesIO()
    paper.save(written, "PNG")
    return written.getvalue()


def test_everything_becomes_healthy(stack: Stack):
    """By the health checks that the Compose file gives each container."""
    for container in (BACKEND, REDIS, "financia_prometheus"):
        until(lambda name=container: stack.is_healthy(name), within_s=90, what=f"{container} is healthy")


def test_texts_are_answered(stack: Stack):
    """Vectors, entities and classes from the bundled models, with no hub behind them."""
    vectors = stack.post("/v1/embeddings", {"input": list(TEXTS.values())})["data"]
    entities = stack.post("/v1/entities", {"input": f"{TEXTS['es']} NIF A58818501, 1.284,50 €"})
    classes = stack.post("/v1/classify", {"input": [TEXTS["en"]], "labels": ["contract", "recipe", "weather"]})

    assert [384, 384] == [len(vector["embedding"]) for vector in vectors]
    assert all(abs(sum(x * x for x in vector["embedding"]) - 1) < 1e-3 for vector in vectors)
    assert "A58818501" in str(entities)
    assert "contract" == classes["data"][0]["prediction"]


def test_a_scanned_page_is_read(stack: Stack):
    """In Spanish and English, by Tesseract in the image; a job of it is kept in Redis and answers with the same."""
    page = scanned_page(
        "Factura 2024-017 de Aceros del Norte", "IBAN ES91 2100 0418 4502 0005 1332", "Payment due in May"
    )
    told = stack.upload("/v1/documents", page)
    job = stack.upload("/v1/jobs", page)
    until(lambda: stack.get(f"/v1/jobs/{job['id']}")["status"] == "succeeded", within_s=60, what="the job is done")

    assert "Factura 2024-017 de Aceros del Norte" in told["text"]
    assert "Payment due in May" in told["text"]
    assert ["ocr"] == [one["source"] for one in told["pages"]]
    assert "ES9121000418450200051332" in [entity["value"] for entity in told["entities"]]
    assert told["text"] == stack.get(f"/v1/jobs/{job['id']}")["result"]["text"]
    assert stack.redis("--scan", "--pattern", f"financia:job:{job['id']}*")
    assert stack.metric("financia_readers_started_total") >= 1
    assert 0 == stack.metric('financia_readers_ended_total{reason="died"}')


def test_vectors_are_kept_in_redis(stack: Stack):
    """Written in the background, under our prefix, with a time to live, in a Redis whose memory is bounded."""
    before = len(stack.kept_vectors())
    stack.vector("A text that only this test has.")

    until(lambda: len(stack.kept_vectors()) > before, within_s=20, what="Redis has one vector more")
    key = stack.kept_vectors()[0]
    assert int(stack.redis("ttl", key)) > 0
    assert int(stack.redis("strlen", key)) >= 384 * 2
    assert "volatile-ttl" in stack.redis("config", "get", "maxmemory-policy")
    assert "1073741824" in stack.redis("config", "get", "maxmemory")


def test_the_process_may_do_little(stack: Stack):
    """Its own user, no capability, no way to new ones, and a root file system that cannot be written."""
    status = stack.inside(BACKEND, "cat", "/proc/self/status").stdout
    told = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    refused = stack.inside(BACKEND, "touch", "/app/backend/new")

    assert "10001" == stack.inside(BACKEND, "id", "-u").stdout.strip()
    assert {"10001"} == set(told["Uid"].split()) == set(told["Gid"].split())
    assert 0 == int(told["CapEff"], 16) == int(told["CapBnd"], 16)
    assert "1" == told["NoNewPrivs"]
    assert refused.returncode != 0
    assert "Read-only file system" in refused.stderr
    assert "Read-only file system" in stack.plain("exec", "--user", "0", BACKEND, "touch", "/usr/new").stderr


def test_volumes_and_tmp_can_be_written(stack: Stack):
    """By that user; and the service files what it measures once it rests."""
    for folder in ("/var/lib/financia/state", "/var/lib/financia/models", "/tmp"):
        written = stack.inside(BACKEND, "sh", "-c", f"touch {folder}/probe && rm {folder}/probe")
        assert written.returncode == 0, written.stderr

    def filed() -> bool:
        return "tuning.json" in stack.inside(BACKEND, "ls", "/var/lib/financia/state").stdout

    until(filed, within_s=300, what="tuning.json is there")


def test_what_is_in_the_image(stack: Stack):
    """Tesseract's program and unpacked data, tini as the first process, `sleep` for Kubernetes, no CUDA, and no pip."""
    names = "from importlib.metadata import distributions as d; print(*sorted(x.metadata['Name'] for x in d()))"
    packages = stack.inside(BACKEND, "python", "-c", names).stdout.split()

    data = stack.inside(BACKEND, "sh", "-c", "cd /opt/venv/share/financia/models/tessdata-* && ls").stdout.split()
    assert {"eng.traineddata", "spa.traineddata", "cat.traineddata"} <= set(data)
    assert "tesseract" in stack.inside(BACKEND, "tesseract", "--version").stdout
    assert "tini" == stack.inside(BACKEND, "cat", "/proc/1/comm").stdout.strip()
    assert stack.inside(BACKEND, "sleep", "0").returncode == 0
    assert "torch" in packages
    assert ["nvidia-ml-py"] == [name for name in packages if name.lower().startswith(("nvidia", "cuda", "triton"))]
    assert "pip" not in packages


@pytest.mark.parametrize("command", [("-m", "backend.check_gpu"), ("check_gpu.py",)], ids=["script", "documented"])
def test_the_check_up_runs_inside(stack: Stack, command: tuple[str, ...]):
    """As ./deploy-gpu.sh --check and docs/gpu.md call it; no card is no failure of an image without CUDA."""
    done = stack.inside(BACKEND, "python", *command)

    assert done.returncode in {0, 1}, done.stdout + done.stderr
    assert "torch" in done.stdout


def test_settings_come_from_the_file_and_the_environment_goes_before_it(stack: Stack):
    """backend/.env reaches the container, over the Compose file's own defaults; what is fixed there stays."""
    told = "CACHE_TTL_S=77\nLIMIT_INPUTS=88\nLIMIT_LABELS=99\nUSE_GPU=true\nPORT=1\nSTATE_DIR=/nowhere\n"
    asked = ("cache_ttl_s", "limit_inputs", "limit_labels", "use_gpu", "port", "redis_url", "state_dir")
    program = f"from backend.config import Settings; s = Settings(); print([str(getattr(s, n)) for n in {asked}])"
    ENV_FILE.write_text(told, encoding="utf-8")
    try:
        command = ("run", "--rm", "--no-deps", "--entrypoint", "python", "backend", "-c", program)
        done = stack.compose(*command, outside={"LIMIT_LABELS": "11"})
    finally:
        ENV_FILE.unlink()

    expected = ["77.0", "88", "11", "False", "8000", "redis://redis:6379/0", "/var/lib/financia/state"]
    assert str(expected) == done.stdout.strip().splitlines()[-1]


def test_only_this_machine_reaches_the_ports(stack: Stack):
    """Published on the loopback address; Redis not at all."""
    ports = stack.said("port", BACKEND).splitlines() + stack.said("port", "financia_prometheus").splitlines()

    assert {"127.0.0.1"} == {line.rpartition("> ")[2].rpartition(":")[0] for line in ports}
    assert "" == stack.said("port", REDIS)


def test_prometheus_scrapes_and_knows_the_alerts(stack: Stack):
    """Both pages of the instance are up, and every rule of alerts.yml is loaded and can be evaluated."""
    groups = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text(encoding="utf-8"))["groups"]
    expected = sorted(rule["alert"] for group in groups for rule in group["rules"])

    def up() -> dict[str, str]:
        result = stack.prometheus("query?query=up{job=~'financia.*'}")["result"]
        return {one["metric"]["job"]: one["value"][1] for one in result}

    def rules() -> list[dict[str, Any]]:
        return [rule for group in stack.prometheus("rules")["groups"] for rule in group["rules"]]

    until(lambda: {"financia": "1", "financia-gpu": "1"} == up(), within_s=90, what="up is 1 for both jobs")
    until(lambda: all(rule["health"] != "unknown" for rule in rules()), within_s=60, what="every rule was evaluated")
    assert expected == sorted(rule["name"] for rule in rules())
    assert {"ok"} == {rule["health"] for rule in rules()}
    assert [] == [rule["name"] for rule in rules() if rule["state"] == "firing"]


def test_a_dead_redis_costs_no_request(stack: Stack):
    """Killed, it is done without; back again, it is used again."""
    stack.vector("Before Redis died.")
    stack.said("kill", REDIS)
    try:
        for number in range(5):
            assert len(stack.vector(f"Without Redis, text {number}.")) == 384
        assert stack.is_ready()
    finally:
        stack.said("start", REDIS)
    until(lambda: stack.redis("ping") == "PONG", within_s=30, what="Redis answers again")

    def written() -> bool:
        stack.vector(f"Redis is back, {stack.redis('dbsize')} {stack.redis('info', 'commandstats')[-40:]}")
        return bool(stack.kept_vectors())

    until(written, within_s=90, what="new vectors are in the new Redis")


def test_a_dead_backend_comes_back(stack: Stack):
    """Killed without a word, it is started again, knows what it had measured, and finds its vectors in Redis."""
    text = "A vector that outlives the process."
    known = len(stack.kept_vectors())
    before = stack.vector(text)
    until(lambda: len(stack.kept_vectors()) > known, within_s=20, what="the vector is in Redis")
    started = stack.metric("process_start_time_seconds")
    killed = stack.inside(BACKEND, "sh", "-c", "kill -9 $(cat /proc/1/task/1/children)")

    def another() -> bool:
        return stack.is_ready() and stack.metric("process_start_time_seconds") != started

    until(another, within_s=120, what=f"another process is ready (kill said {killed.returncode}: {killed.stderr})")
    assert before == stack.vector(text)
    assert 1 == stack.metric('financia_cache_hits_total{tier="redis"}')


def test_a_stop_is_clean(stack: Stack):
    """Within the time that the Compose file gives, with exit code 0; and it starts again."""
    stack.said("stop", BACKEND)
    code = stack.said("inspect", "--format", "{{.State.ExitCode}}", BACKEND)
    logs = stack.plain("logs", BACKEND)
    stack.said("start", BACKEND)

    assert "0" == code
    assert "services closed" in logs.stdout + logs.stderr
    stack.wait_until_ready()


def test_the_compose_files_are_read(stack: Stack):
    """By this engine's Compose, with every profile; the GPU's asks for cards."""
    for file in ("docker-compose.yml", "docker-compose.gpu.yml"):
        command = ("--env-file", os.devnull, "--file", file, "--profile", "monitoring", "config")
        done = run(*stack.engine.compose, *command)
        assert done.returncode == 0, done.stderr
        services = yaml.safe_load(done.stdout)["services"]

        assert {"backend", "redis", "prometheus", "grafana"} == set(services)
        assert ("gpu" in file) == ("nvidia" in str(services["backend"].get("deploy")))


def test_the_gpu_image_refuses_a_torch_without_cuda(stack: Stack):
    """Every step up to that check is built; the gigabytes of a CUDA build are left out here."""
    arguments = ("--file", "Dockerfile.backend.gpu", "--build-arg", f"TORCH_INDEX_URL={CPU_INDEX}")
    done = run(*stack.engine.build, *arguments, "--tag", "financia-backend-gpu:refused", ".", timeout_s=1500)

    assert done.returncode != 0
    assert "has no CUDA: see TORCH_INDEX_URL" in done.stdout + done.stderr
