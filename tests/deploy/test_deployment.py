"""What deploy_gpu.py does once it has decided: build, start, wait, report, and say what went wrong."""

import pytest

from tests.deploy.machine import READY, STATE, Answer, Machine, deploy

MACHINE = Machine(cards=("0, GPU-h, NVIDIA H100 80GB HBM3, 9.0",))
NOT_READY = Answer('{"title":"Not ready","detail":"lane 0 is starting","reasons":[]}', code=503)
SILENT = Answer()
THERE = "docker container inspect financia_backend"


def test_build_start_wait_and_report():
    """In this order, on the GPU, and the last lines say where it is and how to use it."""
    outcome = deploy(MACHINE)
    ran = [call for call in outcome.calls if call.startswith(("docker compose -f", "GET"))]

    assert 0 == outcome.code, outcome.err
    assert [
        "docker compose -f docker-compose.gpu.yml build",
        "docker compose -f docker-compose.gpu.yml up --detach",
        "GET http://127.0.0.1:8000/health/ready",
        "GET http://127.0.0.1:8000/health",
    ] == ran[:4]
    assert "    device    cuda:0: automatic choice\n" in outcome.out
    assert "    model     all-MiniLM-L6-v2 (embeddings): torch bfloat16\n" in outcome.out
    assert "ready: http://127.0.0.1:8000" in outcome.out
    assert "curl http://127.0.0.1:8000/v1/embeddings" in outcome.out
    assert "" == outcome.err


def test_waiting_shows_progress():
    """Each new reason once, with the seconds so far; not a line a poll."""
    answers = {READY: [SILENT, SILENT, NOT_READY, NOT_READY, Answer("{}", code=200)]}
    outcome = deploy(MACHINE.but(answers=answers))

    assert 0 == outcome.code
    assert 1 == outcome.out.count("starting: loading models")
    assert 1 == outcome.out.count("lane 0 is starting")
    assert 4 == outcome.calls.count("sleep 2")


def test_the_port_is_the_one_that_docker_gave():
    """Whatever chose it: --port, PORT, a .env file, or the Compose file."""
    answers = {"docker port *": Answer("0.0.0.0:8123\n[::]:8123\n")}
    outcome = deploy(MACHINE.but(answers=answers), "--port", "8123")

    assert "8123" == outcome.given["PORT"]
    assert "ready: http://127.0.0.1:8123\n" in outcome.out


def test_the_programs_see_what_was_given():
    """The variables reach docker compose, not only the screen."""
    outcome = deploy(MACHINE, "--gpu", "0", "--port", "9000")
    saw = dict(zip((call for call in outcome.calls if not call.startswith("sleep")), outcome.saw, strict=True))

    for command in ("build", "up --detach"):
        seen = saw[f"docker compose -f docker-compose.gpu.yml {command}"]
        assert "https://download.pytorch.org/whl/cu130 true GPU-h 9000 " == seen


def test_monitoring_is_a_profile():
    """Prometheus and Grafana start with the service and are listed with it."""
    outcome = deploy(MACHINE, "--monitoring")

    assert "docker compose -f docker-compose.gpu.yml --profile monitoring up --detach" in outcome.calls
    assert "docker compose -f docker-compose.gpu.yml --profile monitoring ps" in outcome.calls


@pytest.mark.parametrize(
    ("options", "other", "file"),
    [
        pytest.param((), "financia_backend", "docker-compose.yml", id="gpu-replaces-cpu"),
        pytest.param(("--cpu",), "financia_backend_gpu", "docker-compose.gpu.yml", id="cpu-replaces-gpu"),
    ],
)
def test_the_other_service_is_stopped_first(options: tuple[str, ...], other: str, file: str):
    """Both listen on the same port, so only one runs."""
    answers = {f"docker container inspect {other}": Answer("[]")}
    outcome = deploy(MACHINE.but(answers=answers), *options)

    assert 0 == outcome.code
    assert f"docker compose -f {file} --profile monitoring down" == outcome.commands[0]
    assert outcome.commands[1].endswith(" build")


@pytest.mark.parametrize(
    ("answers", "code", "says"),
    [
        pytest.param({"docker compose * build": Answer(code=17)}, 1, "the image could not be built", id="build"),
        pytest.param({"docker compose * up --detach": Answer(code=1)}, 1, "Port taken: --port N", id="start"),
        pytest.param(
            {READY: SILENT, STATE: Answer("restarting 1 2 false\n")},
            5,
            "(exit code 2): a setting, the device",
            id="set-up",
        ),
        pytest.param({READY: SILENT, STATE: Answer("exited 0 3 false\n")}, 5, "docs/gpu.md#gpu-lost", id="device-lost"),
        pytest.param(
            {READY: SILENT, STATE: Answer("exited 0 137 true\n")}, 5, "Raise its memory limit", id="out-of-memory"
        ),
        pytest.param(
            {READY: SILENT, STATE: Answer("exited 0 1 false\n")}, 5, "ended (exit code 1)", id="any-other-end"
        ),
        pytest.param({READY: SILENT, STATE: Answer("running 1 0 false\n")}, 5, "ended", id="restarted-since"),
        pytest.param({READY: SILENT, STATE: Answer(code=1)}, 5, "the container ended", id="removed"),
    ],
)
def test_what_goes_wrong(answers: dict[str, Answer], code: int, says: str):
    """The reason, what to do, and the container's log where there is one."""
    outcome = deploy(MACHINE.but(answers=answers))

    assert code == outcome.code
    assert says in outcome.err
    assert (code == 5) == ("the service's log" in outcome.out)


def test_restarts_of_an_earlier_life_do_not_count():
    """A container that `up` left as it is may have restarted months ago."""
    answers = {
        "docker inspect *RestartCount}} *": Answer("3\n"),
        STATE: Answer("running 3 0 false\n"),
        READY: [NOT_READY, Answer("{}", code=200)],
    }
    outcome = deploy(MACHINE.but(answers={STATE: answers[STATE], **answers}))

    assert 0 == outcome.code, outcome.err


def test_waiting_ends():
    """--wait S; the last reason is repeated, and the service is left running."""
    outcome = deploy(MACHINE.but(answers={READY: NOT_READY}), "--wait", "0")

    assert 5 == outcome.code
    assert "not ready after 0 s: lane 0 is starting" in outcome.err
    assert not [call for call in outcome.calls if " down" in call]


def test_an_unreadable_report_is_no_failure():
    """The service is ready: that its report cannot be shown is a warning."""
    outcome = deploy(MACHINE.but(answers={"GET *health": Answer("{", code=200)}))

    assert 0 == outcome.code
    assert "the report of /health could not be read" in outcome.err


@pytest.mark.parametrize("code", [0, 1, 2])
@pytest.mark.parametrize("container", ["financia_backend_gpu", "financia_backend"])
def test_check_ends_as_the_check_up_does(container: str, code: int):
    """Inside whichever container is there; 0 good, 1 degraded, 2 unusable."""
    answers = {
        f"docker container inspect {container}": Answer("[]"),
        "docker exec *": Answer("Check of this machine\n", code=code),
    }
    outcome = deploy(MACHINE.but(answers=answers), "--check")

    assert code == outcome.code
    assert f"docker exec {container} python -m backend.check_gpu" == outcome.calls[-1]
    assert "Check of this machine" in outcome.out


def test_logs_follows():
    outcome = deploy(MACHINE.but(answers={THERE: Answer("[]")}), "--logs")

    assert 0 == outcome.code
    assert "docker logs --follow --tail 200 financia_backend" == outcome.calls[-1]


@pytest.mark.parametrize("option", ["--logs", "--check"])
def test_nothing_to_look_at(option: str):
    outcome = deploy(MACHINE, option)

    assert 1 == outcome.code
    assert "Start it: ./deploy-gpu.sh" in outcome.err


def test_down_stops_both_and_keeps_volumes():
    """Whichever runs, with its monitoring; data stays."""
    outcome = deploy(MACHINE, "--down")

    assert 0 == outcome.code
    assert [
        "docker compose -f docker-compose.gpu.yml --profile monitoring down",
        "docker compose -f docker-compose.yml --profile monitoring down",
    ] == outcome.commands
    assert not [call for call in outcome.calls if "--volumes" in call or " -v" in call]


def test_help_needs_nothing():
    """Every exit code and option is in it; no program is called."""
    outcome = deploy(MACHINE, "--help")

    assert 0 == outcome.code
    assert () == outcome.calls
    for option in (
        "--cpu",
        "--gpu N",
        "--port N",
        "--monitoring",
        "--wait S",
        "--check",
        "--logs",
        "--down",
        "--dry-run",
    ):
        assert f"  {option} " in outcome.out
    for code in range(6):
        assert f"{code} " in outcome.out.partition("Exit codes:")[2]
