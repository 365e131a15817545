"""The HTTP workers of a service process: starts them, restarts those that die, and asks them all.

Each has a socket of its own on the port, and reaches the service by a Unix socket.

The kernel spreads new connections over the sockets by a hash of the addresses (SO_REUSEPORT). From one socket that all
share, the worker that wakes first takes everything that waits: of 32 connections made at once one worker got 30.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from backend.abandoned import end_tasks
from backend.bootstrap.metering import Metering
from backend.callers.callers import KeyRing
from backend.config import Settings
from backend.errors import SetupError
from backend.lanes.batcher import Batcher
from backend.lanes.engine import Engine
from backend.models.tokenizer import TextTokenizer
from backend.processes.remote_batcher import RemoteEngine
from backend.processes.shared_page import SharedPage
from backend.processes.work_messages import Keys, Models, Signal, Start
from backend.processes.worker_process import WorkerProcess
from backend.serving.catalog import Catalog, LoadedModel
from backend.supervision import Supervisor
from backend.telemetry import Snapshot, Telemetry, add_snapshots, log_event, without_gauges

_log = logging.getLogger(__name__)
START_S = 120.0  # for all of them to listen: a vocabulary of 250,000 pieces takes seconds on a busy machine
MODELS_S = START_S  # for a worker to take the models of a swap, also one that is starting
_ON_THE_WAY_S = 5.0  # from a request's choice of a model to its items in the queue; for so long two models are held
SAMPLES_S = 2.0  # for a worker to tell its metrics; its last ones count where it does not
_BACKOFF_S = (0.1, 10.0)  # before a worker that died is started again; each pause is twice the one before
_STABLE_S = 30.0  # a worker that lived so long starts again at once
PING_S = 1.0  # between two questions to each worker whether its event loop runs
_MAX_UNANSWERED = (
    10  # then it is killed; counted, not timed: a service that was stopped itself kills nobody when it goes on
)
_EXTRA_S = 5.0  # beyond LIMIT_DRAIN_S, until a worker that does not end is killed
_PREFIX = "financia-http-"
_SOCKET = "service.sock"
_PATH_BYTES = 103  # of a Unix socket's path on macOS; Linux takes 107
SHORT = ("/tmp", "/dev/shm")  # noqa: S108 - the folder in it is this user's alone
_SETTLED_S = 60.0  # a younger socket may be about to listen


class EngineTable:
    """Numbers that are never given twice. An engine stays until no worker names it any more."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.engines: dict[int, Engine] = {}
        self._versions: dict[int, tuple[int, ...]] = {}  # the engines of each version
        self._version = 0
        self._next = 1

    def describe(self) -> Models:
        """The models that serve now, under a new version."""
        self._version += 1
        before = set(self.engines)
        loaded = tuple(self._described(model) for model in self._catalog.models())
        self._versions[self._version] = tuple(set(self.engines) - before)
        return Models(self._version, loaded, self._catalog.pending.models())

    def forget_before(self, version: int) -> None:
        """All workers name engines of this version or later ones."""
        for old in [number for number in self._versions if number < version]:
            for engine_id in self._versions.pop(old):
                del self.engines[engine_id]

    def _described(self, model: LoadedModel) -> LoadedModel:
        return replace(
            model,
            engine=self._add(model.engine),
            token_engine=self._add(model.token_engine),
            tokenizer=cast("TextTokenizer", None),  # each worker reads its own
            residents=(),
            after_start=None,
        )

    def _add(self, engine: Engine) -> RemoteEngine:
        engine_id, self._next = self._next, self._next + 1
        self.engines[engine_id] = engine
        return RemoteEngine(engine_id, engine.name, engine.budget, engine.padding_cost, engine.launch_cost)


class HttpWorkers:
    """All workers of one service. Belongs to the loop's thread."""

    def __init__(
        self,
        settings: Settings,
        batcher: Batcher,
        catalog: Catalog,
        telemetry: Telemetry,
        metering: Metering,
        *,
        supervisor: Supervisor,
    ) -> None:
        self._settings, self._batcher, self._telemetry, self._metering = settings, batcher, telemetry, metering
        self._supervisor = supervisor
        self._table = EngineTable(catalog)
        owners = [caller.owner for caller in metering.keys.ring.callers]
        self.page = SharedPage.create(settings, owners)
        self._keys = Keys(metering.keys.ring, self.page.owners)
        metering.keys.before_replace(self._announce_keys)
        self._folder = create_folder()
        self._port = ListeningPort(settings)
        self._workers: list[WorkerProcess | None] = [None] * settings.server_processes
        self._keepers: list[asyncio.Task[None]] = []
        self._models = self._table.describe()
        self._departed: Snapshot = []  # what the workers that ended had counted when they last told
        self._changed = asyncio.Event()
        self._asked = 0
        self._stop = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self._failure: SetupError | None = None  # of the start
        telemetry.http_workers.set_function(lambda: len(self._ready()))

    @property
    def service_path(self) -> str:
        """The Unix socket that this process serves its own workers on."""
        return str(socket_in(self._folder))

    async def start(self) -> None:
        """Start all workers and wait until they listen. Raises: SetupError."""
        host, port = self._port.open()
        for index in range(len(self._workers)):
            self._keepers.append(self._supervisor.keep("keep_http_workers", partial(self._keep, index)))
        self._watcher = self._supervisor.keep("watch_http_workers", self._watch)
        try:
            async with asyncio.timeout(START_S):
                while len(self._ready()) < len(self._workers):
                    if self._failure is not None:
                        raise self._failure
                    await self._wait_for_change()
        except TimeoutError as error:
            raise SetupError(f"the HTTP workers did not listen within {START_S:.0f} s; see the log") from error
        address = f"[{host}]" if ":" in host else host
        logging.getLogger("uvicorn.error").info("Uvicorn running on http://%s:%d (Press CTRL+C to quit)", address, port)
        log_event(_log, logging.INFO, "HTTP workers listen", workers=len(self._workers), port=port)

    async def drain(self) -> None:
        """Have all workers finish what they accepted, and wait for their end; one that hangs is killed."""
        self._stop.set()
        self._port.close()
        for worker in self._living():
            worker.send(Signal.DRAIN)
        if not self._keepers:
            return
        _, late = await asyncio.wait(self._keepers, timeout=self._settings.limit_drain_s + _EXTRA_S)
        if late:
            log_event(_log, logging.ERROR, "HTTP workers were killed", workers=len(late), reason="they did not end")
            self._kill()
            await asyncio.wait(late)

    async def close(self) -> None:
        """Kill what still lives, and remove the socket."""
        self._stop.set()
        self._kill()
        await end_tasks(*self._keepers, self._watcher)
        self._port.close()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def announce_models(self) -> None:
        """Have all workers serve the models of the catalog, and wait until they do; one that hangs is killed."""
        models = self._models = self._table.describe()
        for worker in self._living():
            worker.send(models)
        try:
            async with asyncio.timeout(MODELS_S):
                while self._behind(models):
                    await self._wait_for_change()
        except TimeoutError:
            for worker in self._behind(models):  # its next one begins with these models
                log_event(_log, logging.ERROR, "an HTTP worker was killed", pid=worker.pid, reason="took no models")
                worker.kill()
        # Requests that picked their model before may still tokenise, or ask the cache.
        asyncio.get_running_loop().call_later(_ON_THE_WAY_S, self._table.forget_before, models.version)

    def _announce_keys(self, ring: KeyRing) -> None:
        """Have this process and all workers know the callers of a ring, before any of them has to."""
        self.page.add_owners(caller.owner for caller in ring.callers)
        self._keys = Keys(ring, self.page.owners)
        for worker in self._living():
            worker.send(self._keys)

    async def snapshots(self) -> list[Snapshot]:
        """The metrics of all workers, also of those that ended, so that no counter falls."""
        self._asked += 1
        asked = [asyncio.create_task(worker.samples(self._asked)) for worker in self._living()]
        if asked:
            _, late = await asyncio.wait(asked, timeout=SAMPLES_S)
            for task in late:
                task.cancel()
        return [self._departed, *(worker.last_samples for worker in self._living())]

    def degraded(self) -> list[str]:
        """A sentence where workers are missing."""
        missing = len(self._workers) - len(self._ready())
        if not missing or self._stop.is_set():
            return []
        return [f"{missing} of {len(self._workers)} HTTP workers are not there; they are being started again"]

    def report(self) -> dict[str, Any]:
        """For GET /v1/system."""
        pids = [worker.pid for worker in self._living()]
        return {"processes": {"http_workers": len(self._workers), "ready": len(self._ready()), "pids": pids}}

    async def _keep(self, index: int) -> None:
        """Start the worker of this slot, again and again."""
        pause_s, most_s = _BACKOFF_S
        while not self._stop.is_set():
            worker = WorkerProcess(
                self._batcher,
                self._table.engines,
                self._changed.set,
                on_usage=self._metering.ledger.merge,
                tracer=self._telemetry.tracer,
            )
            try:
                code = await self._run(index, worker)
            except BaseException:
                worker.kill()
                raise
            finally:
                self._workers[index] = None
                self.page.clear(index + 1)
                self._departed = add_snapshots(self._departed, without_gauges(worker.last_samples))
            if self._stop.is_set():
                break
            self._note_end(index, worker, code)
            pause_s = _BACKOFF_S[0] if worker.lived_s() > _STABLE_S else min(2 * pause_s, most_s)
            await asyncio.sleep(pause_s)
        self._changed.set()

    async def _run(self, index: int, worker: WorkerProcess) -> int | str:
        """Until the worker ends: its exit code, or why there is none."""
        try:
            with self._port.socket_of_worker() as listener:
                await worker.spawn(listener, self.page.descriptor)
            self._workers[index] = worker  # in one step with its models: a swap waits for it, or it begins with them
            if self._stop.is_set():
                worker.kill()  # it has accepted nothing
            else:
                worker.begin(Start(self._settings, index, self.service_path, self._models, self._keys))
            return await worker.ended()
        except (SetupError, OSError) as error:
            return str(error)

    async def _watch(self) -> None:
        """Kill workers whose event loop does not run, or which never listen; their slots get new ones."""
        while not self._stop.is_set():
            for worker in self._living():
                if worker.unanswered_pings >= _MAX_UNANSWERED or (not worker.is_ready and worker.lived_s() > START_S):
                    log_event(
                        _log, logging.ERROR, "an HTTP worker was killed", pid=worker.pid, reason="does not answer"
                    )
                    worker.kill()
                elif worker.is_ready:
                    worker.ping()
            await asyncio.sleep(PING_S)

    def _note_end(self, index: int, worker: WorkerProcess, code: int | str) -> None:
        if worker.pid:
            self._telemetry.http_worker_restarts_total.inc()
            log_event(_log, logging.ERROR, "an HTTP worker ended", worker=index, pid=worker.pid, code=code)
        else:
            log_event(_log, logging.ERROR, "an HTTP worker could not be started", worker=index, reason=code)
        if not worker.was_ready:
            self._failure = SetupError(f"an HTTP worker ended before it listened ({code}); the log above says why")
        self._changed.set()

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _kill(self) -> None:
        for worker in self._living():
            worker.kill()

    def _behind(self, models: Models) -> list[WorkerProcess]:
        return [worker for worker in self._living() if worker.models_version < models.version]

    def _ready(self) -> list[WorkerProcess]:
        return [worker for worker in self._living() if worker.is_ready]

    def _living(self) -> list[WorkerProcess]:
        return [worker for worker in self._workers if worker is not None]


def create_folder() -> Path:
    """A new folder, once those of service processes that were killed are gone.

    It is in TMPDIR, or in a folder of a shorter name where a socket's path would be too long for the system.

    Raises: SetupError where no folder can be made.
    """
    faults = []
    for parent in dict.fromkeys((tempfile.gettempdir(), *SHORT)):
        path_bytes = len(os.fsencode(socket_in(Path(parent, f"{_PREFIX}12345678"))))  # as many as mkdtemp adds
        if path_bytes > _PATH_BYTES:
            faults.append(f"{parent}: {path_bytes} bytes")
            continue
        try:
            return _create_in(Path(parent))
        except OSError as error:
            faults.append(f"{parent}: {error.strerror or error}")
    raise SetupError(
        "SERVER_PROCESSES needs a folder for a Unix socket, whose path may have "
        f"{_PATH_BYTES} bytes ({'; '.join(faults)}); set TMPDIR to a short path that may be written to"
    )


def _create_in(parent: Path) -> Path:
    for folder in parent.glob(f"{_PREFIX}*"):
        if _is_left_over(folder / _SOCKET):
            shutil.rmtree(folder, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))


def socket_in(folder: Path) -> Path:
    """The path of the socket."""
    return folder / _SOCKET


def _is_left_over(path: Path) -> bool:
    """Whether nobody listens there any more."""
    try:
        if time.time() - path.stat().st_mtime < _SETTLED_S:  # noqa: TID251 - a file's time is the wall clock's
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)  # one whose queue is full listens
            probe.connect(str(path))
    except ConnectionRefusedError:
        return True
    except OSError:  # it is another user's, has gone meanwhile, or is no socket
        return False
    return False


class ListeningPort:
    """HOST and PORT, held for this service from ``open`` to ``close``."""

    def __init__(self, settings: Settings) -> None:
        self._host, self._port = settings.host, settings.port
        self._holders: list[socket.socket] = []
        self._family = socket.AF_INET
        self._address: Any = ()  # as getaddrinfo has it

    def open(self) -> tuple[str, int]:
        """Take the port; the address, with the number that the kernel chose for port 0. Raises: SetupError."""
        try:
            self._family, kind, protocol, _, address = socket.getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            with socket.socket(self._family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self._bind(probe, address)  # fails where anybody listens
                self._address = probe.getsockname()
            self._claim()
            self._holders.append(self.socket_of_worker())  # never listens; holds the port while no worker does
        except OSError as error:
            self.close()
            reason = (error.strerror or str(error)).lower()
            raise SetupError(
                f"HOST={self._host} PORT={self._port} cannot be listened on: {reason}; choose others"
            ) from error
        return str(self._address[0]), int(self._address[1])

    def socket_of_worker(self) -> socket.socket:
        """A bound socket for one worker to listen on. Raises: OSError."""
        made = socket.socket(self._family, socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._bind(made, self._address)
        except OSError:
            made.close()
            raise
        return made

    def close(self) -> None:
        """Leave the port to the workers that still have a socket, and to others once those end."""
        for holder in self._holders:
            holder.close()
        self._holders.clear()

    def _claim(self) -> None:
        """Keep another service from joining these sockets: SO_REUSEPORT alone admits every process of this user."""
        claim = socket.socket(socket.AF_UNIX)
        self._holders.append(claim)
        claim.bind("\0financia-inference {} {}".format(*self._address[:2]))  # as ports, of one network namespace

    def _bind(self, made: socket.socket, address: Any) -> None:
        if self._family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # as with one process
        made.bind(address)
