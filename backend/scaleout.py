"""The service under Ray Serve: a replica is one process with one batcher, as elsewhere. The only file that knows Ray.

    python -m backend.scaleout --replicas 2        # on this machine; `make serve-ray`
    serve deploy deploy/ray/serve.yaml             # on a Ray cluster; docs/ray.md

Ray starts replicas, sends requests to them, replaces those that fail and changes their number. Everything else is the
service's own: its app is built in the replica, and its queue, limits and deadlines decide who is refused.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any

import psutil
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.api.app import InferenceApp, create_app
from backend.bootstrap.services import Services, api_options, build
from backend.config import Settings, load_settings, publish
from backend.device.facts.amx import disable_faulty_amx
from backend.device.facts.host import cpu, platform, usable_cores
from backend.device.memory.device_memory import allocator_options
from backend.errors import BadSettings, SetupError
from backend.processes.http_server import GRACE_S, tune_interpreter
from backend.processes.left_processes import end_processes, run_alone
from backend.telemetry import configure_logging, log_event

_log = logging.getLogger("backend")
NAME = "financia"  # of the application and of its one deployment
EXIT_SETUP = 2  # as backend.main: restarting does not help
EXIT_RAY_LOST = 4  # the cluster of this machine has ended: restarting is the cure
EXIT_DEVICE_LOST = 3  # as backend.main; Ray starts another replica
_GPU_SHARE = 0.9  # of a card's memory that its replicas may take together, as the service alone does
_OBJECT_STORE_BYTES = 256 * 2**20  # Ray takes 30 % of the memory otherwise, and no request goes through it
_START_ATTEMPTS = 3
_PROXY_QUESTIONS = 300  # whether it is there, one a second
_STATUS_S = 5.0  # between looks at whether Ray still lives
_DRAIN_SPARE_S = 10.0  # of Ray's own steps before and after a replica's drain
# Switches of Ray's own processes, which read them from the environment; what the user has set stays.
_SWITCHES: Mapping[str, str] = {
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",  # no second event loop between uvicorn and the app
    "RAY_SERVE_LOG_TO_STDERR": "1",  # else the service's log ends in files of Ray
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "3",  # HAProxy hears of a draining replica within a second
    "RAY_SERVE_HAPROXY_METRICS_ENABLED": "0",  # nobody reads Ray's gauges; HAProxy's own port 9101 has no switch
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # one machine: every port but HAProxy's 8404 and 9101 on 127.0.0.1
    "RAY_worker_niceness": "0",  # 15 otherwise: beside anything else on the machine, replicas would starve
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_METRICS_COLLECTION": "1",
    # Ray gives its processes 30 s to 60 s to start, and gives up: too few where others take the cores.
    "RAY_raylet_start_wait_time_s": "300",
    "RAY_gcs_server_request_timeout_seconds": "300",
    "RAY_worker_register_timeout_seconds": "300",
    "RAY_SERVE_HAPROXY_STARTUP_TIMEOUT_S": "300",
    # What Ray's own processes take of the cores: see docs/ray.md.
    "RAY_SERVE_HAPROXY_NBTHREAD": "1",  # 4 otherwise; one passes on thousands of requests a second
    "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "5000",  # ten times a second otherwise
}


@dataclass(frozen=True, slots=True)
class Scale:
    """How many replicas, and what each may use: the ``args`` of a Serve configuration file."""

    replicas: int = 2  # at the start, and never fewer
    max_replicas: int = 0  # over `replicas`: Ray changes their number by what waits
    cpus: float = 1.0  # cores of a replica: Ray counts them, the replica runs as many lanes
    gpus: float = 0.0  # cards of a replica; 0.5: two replicas share one, each with half of its memory
    queue_s: float = 2.0  # work that may wait, in seconds of a replica's measured rate, before there is one more

    def __post_init__(self) -> None:
        """Raises: BadSettings with every fault."""
        faults = []
        if self.replicas < 1:
            faults.append(f"replicas={self.replicas}: at least 1")
        if self.max_replicas and self.max_replicas < self.replicas:
            faults.append(f"max_replicas={self.max_replicas}: at least replicas, which is {self.replicas}")
        if self.cpus <= 0:
            faults.append(f"cpus={self.cpus}: over 0")
        if self.gpus < 0 or (self.gpus > 1 and self.gpus != int(self.gpus)):
            faults.append(f"gpus={self.gpus}: a part of one card (0.5), or a whole number of cards")
        if self.queue_s <= 0:
            faults.append(f"queue_s={self.queue_s}: over 0")
        if faults:
            raise BadSettings(faults)

    @classmethod
    def parse(cls, arguments: Mapping[str, Any]) -> Scale:
        """From the ``args`` of a configuration file. Raises: BadSettings."""
        kinds = {"replicas": int, "max_replicas": int, "cpus": float, "gpus": float, "queue_s": float}
        if unknown := sorted(set(arguments) - {field.name for field in fields(cls)}):
            raise BadSettings([f"{name}: unknown; known are {', '.join(kinds)}" for name in unknown])
        try:
            return cls(**{name: kinds[name](value) for name, value in arguments.items()})
        except (TypeError, ValueError) as error:
            raise BadSettings([f"args: {error}"]) from error


class QueuePolicy:
    """How many replicas there should be: one for each that is busy, and one for each ``queue_s`` of work that waits.

    Ray's controller calls it every 0.1 s, and applies delays, factors and bounds to what it says. While a replica tells
    nothing yet, Ray's own rule (requests in progress) decides. Holds no reference to this project: the class is
    pickled whole, and a controller may run where the project is not installed.
    """

    def __init__(self, queue_s: float) -> None:
        self._queue_s = queue_s

    def __call__(self, context: Any) -> tuple[float, dict[str, Any]]:
        """The wished number of replicas, as Ray calls a policy. ``context``: a ray.serve AutoscalingContext."""
        metrics = context.aggregated_metrics or {}
        running = list(context.running_replicas)
        told = [metrics.get(name, {}) for name in ("busy_ratio", "waiting_s")]
        if not running or any(replica not in values for values in told for replica in running):
            from ray.serve.autoscaling_policy import replica_queue_length_autoscaling_policy

            wished: tuple[float, dict[str, Any]] = replica_queue_length_autoscaling_policy(context)
            return wished
        busy, waiting_s = (sum(values[replica] for replica in running) for values in told)
        return busy + waiting_s / self._queue_s, {}


class Replica:
    """One replica: the service of this process, and what Ray asks of it."""

    _services: Services
    _app: InferenceApp

    async def __init__(self, settings: Settings, scale: Scale) -> None:  # type: ignore[misc]  # Ray awaits it
        """Build the services and the app. Raises: SetupError, which Ray shows in the application's status."""
        settings = settings_of_replica(settings, scale)
        configure_logging(settings.log_level)
        if reason := disable_faulty_amx(cpu()[1]):
            log_event(_log, logging.WARNING, "AMX disabled", reason=reason)
        conf = settings.pytorch_alloc_conf or ""
        publish(settings, allocator_options(conf, fraction=settings.gpu_memory_fraction, platform=platform()))
        self._services = replace(await build(settings), processes=_place)
        self._app = create_app(
            self._services, api_options(settings, self._services.metering.keys, self._services.memory)
        )
        self._loss = asyncio.create_task(self._end_with_device())
        _call_before_drain(self._begin_drain)
        tune_interpreter()

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """The app, which Ray asks for once the constructor has run; it is never pickled."""
        return OneRequestId(self._app)

    async def check_health(self) -> None:
        """Called every ten seconds: a replica that is not ready gets no requests, and is replaced after three times."""
        readiness = await self._services.health.ready()
        if not readiness.ready:
            raise RuntimeError("; ".join(readiness.reasons))

    def record_autoscaling_stats(self) -> dict[str, float]:
        """What QueuePolicy decides by. Ray averages it over half a minute."""
        return load_of(self._services)

    async def __del__(self) -> None:
        """Called once by Ray after the last request, and by Python at the end."""
        services: Services | None = self.__dict__.pop("_services", None)
        if services is not None:
            self._loss.cancel()
            await services.close()
            log_event(_log, logging.INFO, "services closed")

    def _begin_drain(self) -> None:
        """Have clients go elsewhere, hand jobs over, and end event streams, for which the drain would wait."""
        self._app.state.draining = True
        log_event(_log, logging.INFO, "draining")
        self._handover = asyncio.create_task(self._services.hand_over())
        asyncio.get_running_loop().call_later(GRACE_S, self._app.state.streams.end)

    async def _end_with_device(self) -> None:
        """End the process when its device is lost, once waiting clients have their 503."""
        await self._services.batcher.device_lost()
        self._app.state.draining = True
        await asyncio.sleep(GRACE_S)
        os._exit(EXIT_DEVICE_LOST)


class OneRequestId:
    """Leaves the request id to Ray, which gives each request one and writes it into the answer as well."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or Ray's question for a lifespan."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = (b"x-request-id", next((value for name, value in scope["headers"] if name == b"x-request-id"), b""))

        async def send_once(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [(name.lower(), value) for name, value in message.get("headers", ())]
                message = {**message, "headers": [header for header in headers if header != given]}
            await send(message)

        await self._app(scope, receive, send_once)


def settings_of_replica(settings: Settings, scale: Scale) -> Settings:
    """The settings of one replica: what several on one machine share is divided, and Ray chooses the cards."""
    cores = max(1, int(scale.cpus))
    share: dict[str, Any] = {"cuda_visible_devices": None, "reader_processes": settings.reader_processes or cores}
    if not scale.gpus:
        share["lanes"] = settings.lanes or cores
    elif scale.gpus < 1:
        share["gpu_memory_fraction"] = settings.gpu_memory_fraction or round(_GPU_SHARE * scale.gpus, 4)
    return settings.model_copy(update=share)


def load_of(services: Services) -> dict[str, float]:
    """How busy a replica is, and for how many seconds of work what waits would keep it so."""
    status, pages = services.batcher.status(), services.document_runtime.lanes.status()
    busy = max(each.busy / max(1, each.lanes_alive) for each in (status, pages))
    waiting_s = status.queued_tokens / status.rate_tokens_per_s if status.rate_tokens_per_s else 0.0
    return {
        "busy_ratio": float(busy),
        "queue_tokens": float(status.queued_tokens),
        "waiting_s": waiting_s if math.isfinite(waiting_s) else 0.0,
    }


def application(arguments: Mapping[str, Any]) -> Any:
    """The Serve application: what ``import_path: backend.scaleout:application`` of a configuration file names.

    Args:
        arguments: the fields of ``Scale``. Settings come from the environment of the machine that builds this.

    Raises: BadSettings.
    """
    return build_application(load_settings(), Scale.parse(arguments))


def build_application(settings: Settings, scale: Scale) -> Any:
    """One deployment with the app in it. The service itself refuses what is too much, so Ray passes everything on."""
    from ray import serve  # an optional extra
    from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

    options: dict[str, Any] = {"num_replicas": scale.replicas}
    if scale.max_replicas > scale.replicas:
        policy = AutoscalingPolicy(policy_function=QueuePolicy, policy_kwargs={"queue_s": scale.queue_s})
        options = {
            "autoscaling_config": AutoscalingConfig(
                min_replicas=scale.replicas,
                max_replicas=scale.max_replicas,
                policy=policy,
                target_ongoing_requests=32,  # of Ray's rule, where ours knows nothing yet: a batch and one that waits
                upscale_delay_s=10.0,
                downscale_delay_s=300.0,
            )
        }
    deployment = serve.deployment(serve.ingress()(Replica), name=NAME).options(
        **options,
        ray_actor_options={"num_cpus": scale.cpus, "num_gpus": scale.gpus},
        max_ongoing_requests=settings.limit_connections,
        graceful_shutdown_timeout_s=settings.limit_drain_s + _DRAIN_SPARE_S,
        graceful_shutdown_wait_loop_s=0.5,
        health_check_period_s=10.0,
        logging_config={"enable_access_log": False, "log_level": "WARNING"},
    )
    return deployment.bind(settings, scale)


def _place() -> dict[str, Any]:
    """Which replica this is, for GET /v1/system."""
    from ray import serve  # an optional extra

    context = serve.get_replica_context()
    return {"ray": {"application": context.app_name, "replica": context.replica_tag, "replicas": context.world_size}}


def _call_before_drain(begin: Callable[[], None]) -> None:
    """Have ``begin`` called when Ray begins to stop this replica: it waits for open requests before it tells anybody.

    Ray 2.60 has no public hook for this. Without it a replica with an open event stream is killed at the end of its
    drain, and its jobs wait for their claims to run out.
    """
    try:
        from ray.serve._private.replica import Replica as RayReplica  # an optional extra

        inner = RayReplica.perform_graceful_shutdown
    except (ImportError, AttributeError):
        log_event(_log, logging.WARNING, "no hook for draining", reason="this version of Ray is unknown: docs/ray.md")
        return

    async def perform_graceful_shutdown(replica: Any) -> None:
        begin()
        await inner(replica)

    RayReplica.perform_graceful_shutdown = perform_graceful_shutdown


# This machine


def main(arguments: Sequence[str] | None = None) -> int:
    """Start Ray and the application on this machine, and serve until SIGTERM or SIGINT.

    The exit code is 2 when the start failed and a restart would not help, 4 when Ray has ended.
    """
    options = _parse(arguments)
    try:
        settings = load_settings()
        configure_logging(settings.log_level)
        cpus = options.cpus or max(1, usable_cores() // options.replicas)
        scale = Scale(options.replicas, options.max_replicas, cpus, options.gpus, options.queue_s)
    except SetupError as error:
        return _refused(error)
    for name, value in {**_SWITCHES, "RAY_SERVE_ENABLE_HA_PROXY": str(int(options.proxy == "haproxy"))}.items():
        os.environ.setdefault(name, value)
    # When its head dies, Ray ends the process that started it on the spot, and leaves HAProxy on the port.
    code = run_alone(lambda: _serve_or_refuse(settings, scale))
    return code if code in (0, EXIT_SETUP) else EXIT_RAY_LOST


def _serve_or_refuse(settings: Settings, scale: Scale) -> int:
    try:
        return _serve(settings, scale)
    except SetupError as error:
        return _refused(error)


def _refused(error: SetupError) -> int:
    print(f"financia: {error}", file=sys.stderr)
    return EXIT_SETUP


def _serve(settings: Settings, scale: Scale) -> int:
    """Raises: SetupError."""
    try:
        from ray import serve  # an optional extra
    except ImportError as error:
        raise SetupError(f"Ray is not installed ({error}): make serve-ray, or pip install 'ray[serve]'") from error

    if not settings.port:
        raise BadSettings(["PORT=0: Ray's proxy needs a port by number"])
    _warn_of_what_is_not_shared(settings)
    most = max(scale.replicas, scale.max_replicas)
    _start_ray(math.ceil(most * scale.cpus))
    for number in (signal.SIGTERM, signal.SIGINT):  # after Ray has set its own
        signal.signal(number, _interrupt)
    try:
        with suppress(TimeoutError):  # Ray waits a minute for its proxy, which starts all the same
            serve.start(http_options={"host": settings.host, "port": settings.port})
        with suppress(TimeoutError):
            serve.run(build_application(settings, scale), name=NAME)
        _wait_for_proxy()
        log_event(_log, logging.INFO, f"running on http://{settings.host}:{settings.port}", replicas=scale.replicas)
        return _wait()
    except KeyboardInterrupt:
        log_event(_log, logging.INFO, "draining")
        return 0
    except RuntimeError as error:  # serve.run, with the reason of the replicas
        raise SetupError(f"the application did not start: {error}") from error
    finally:
        _stop()


def _start_ray(cpus: int) -> None:
    """Start Ray on this machine, again when it takes too long: others may take the cores. Raises: SetupError."""
    import ray  # an optional extra

    reason = ""
    for attempt in range(1, _START_ATTEMPTS + 1):
        before = set(psutil.Process().children(recursive=True))
        try:
            ray.init(num_cpus=cpus, include_dashboard=False, object_store_memory=_OBJECT_STORE_BYTES)
        except Exception as error:  # noqa: BLE001 - what Ray itself raises when its head takes too long
            reason = str(error)
            log_event(_log, logging.ERROR, "Ray did not start", attempt=attempt, reason=reason)
            ray.shutdown()
            # Beside what an attempt has left the next one would have less of the cores.
            end_processes(set(psutil.Process().children(recursive=True)) - before)
        else:
            return
    advice = "start it when the machine is less busy, or read its log in /tmp/ray/session_latest/logs"
    raise SetupError(f"Ray did not start in {_START_ATTEMPTS} attempts ({reason}): {advice}")


def _wait_for_proxy() -> None:
    """Raises: SetupError."""
    from ray import serve  # an optional extra

    never, states = threading.Event(), list[str]()
    for _ in range(_PROXY_QUESTIONS):
        states = [state.value for state in serve.status().proxies.values()]
        if set(states) == {"HEALTHY"}:
            return
        never.wait(1)
    raise SetupError(f"Ray's proxy does not answer after {_PROXY_QUESTIONS} s ({states}): is its port free?")


def _stop() -> None:
    """Drain the replicas while the proxy still sends their answers, then end Ray."""
    import ray  # an optional extra
    from ray import serve

    try:
        serve.delete(NAME)
        serve.shutdown()
    except ray.exceptions.RayError as error:
        log_event(_log, logging.ERROR, "Ray did not stop by itself", reason=str(error))
    ray.shutdown()


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _wait() -> int:
    """Until Ray is gone; a signal raises KeyboardInterrupt."""
    import ray  # an optional extra
    from ray import serve

    never = threading.Event()
    while not never.wait(_STATUS_S):
        try:
            serve.status()
        except ray.exceptions.RayError as error:
            log_event(_log, logging.ERROR, "Ray is gone", reason=str(error))
            return EXIT_RAY_LOST
    return EXIT_RAY_LOST


def _warn_of_what_is_not_shared(settings: Settings) -> None:
    if settings.redis_url is None:
        reason = "REDIS_URL is unset: a replica knows only the jobs that were sent to it, and the cache is its own"
        log_event(_log, logging.WARNING, "replicas share no jobs", reason=reason)
    if settings.search_url is None:
        reason = "SEARCH_URL is unset: one replica writes files and vector stores, the others answer 503"
        log_event(_log, logging.WARNING, "replicas share no storage for search", reason=reason)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m backend.scaleout",
        description="Serve by several replicas under Ray Serve on this machine: docs/ray.md. Settings are the same.",
    )
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--max-replicas", type=int, default=0, help="over --replicas: Ray changes their number")
    parser.add_argument(
        "--cpus", type=float, default=0.0, help="cores of a replica; unset: those of this machine, divided"
    )
    parser.add_argument("--gpus", type=float, default=0.0, help="cards of a replica; 0.5: two share one")
    parser.add_argument("--queue-s", type=float, default=2.0, help="seconds of work that may wait (autoscaling)")
    parser.add_argument("--proxy", choices=("haproxy", "python"), default="haproxy", help="what accepts requests")
    return parser.parse_args(arguments)


if __name__ == "__main__":  # by its own name: what Ray pickles must say where it is imported from
    sys.exit(importlib.import_module("backend.scaleout").main())
