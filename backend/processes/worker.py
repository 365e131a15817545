"""An HTTP worker: answers clients, tokenises and caches; the service process, its parent, computes.

python -m backend.processes.worker CHANNEL WRITES READS PAGE LISTENER    # file descriptors; started by http_workers
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import uvloop

from backend.api.app import create_app
from backend.api.request_context import ApiLimits
from backend.api.request_context import Services as ApiServices
from backend.bootstrap.metering import Metering, worker_metering
from backend.bootstrap.services import api_options, limits_of, start_cache, text_limits
from backend.bootstrap.tracing import open_telemetry
from backend.callers.callers import KeyRing
from backend.callers.quotas import Meters
from backend.callers.usage import Slice, UsageReporter
from backend.config import Settings, publish
from backend.errors import ModelUnavailable
from backend.lanes.cache.store import VectorCache
from backend.lanes.inference import Inference
from backend.lanes.memory_keeper import IdleTrim
from backend.lanes.text_work import TextWork
from backend.models.fingerprint import tokenizer_digest
from backend.models.tokenizer import tokenizer_of
from backend.processes.channel import Channel, Kind, Message, RingReader, RingWriter, map_memory
from backend.processes.forward import ForwardingApp, ServiceConnections
from backend.processes.http_server import DrainingServer, server_config, tune_interpreter
from backend.processes.remote_batcher import RemoteBatcher
from backend.processes.shared_page import SharedPage
from backend.processes.work_messages import (
    AskSamples,
    Keys,
    Models,
    ModelsTaken,
    Samples,
    Signal,
    Start,
    UsageReport,
    read_control,
    write_control,
)
from backend.serving.catalog import Catalog, LoadedModel
from backend.serving.pending_models import PendingModels
from backend.supervision import Supervisor
from backend.telemetry import Telemetry, configure_logging, log_event
from backend.text.embeddings import EmbeddingService
from backend.text.entities import EntityService
from backend.text.neutral_vectors import NeutralVectors
from backend.text.similarity import SimilarityService

_log = logging.getLogger("backend")
EXIT_ORPHANED = 4  # the service process is gone
# The routes that use nothing but these services. All others are the service process's.
LOCAL_ROUTES = frozenset(
    ("POST", path)
    for path in (
        "/v1/embeddings", "/v1/entities", "/v1/similarity", "/v1/embed", "/v2/embed", "/embed", "/similarity",
        "/tokenize", "/embeddings",
    )
)  # fmt: skip


class HttpWorker:
    """The life of a worker: connect, learn what to serve, serve until told to stop or left alone."""

    def __init__(self, sock: socket.socket, writes: int, reads: int, page: int, listener: socket.socket) -> None:
        self._page, self._listener = page, listener
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[Start] = self._loop.create_future()
        self._batcher: RemoteBatcher | None = None
        self._server: DrainingServer | None = None
        self._services: WorkerServices | None = None
        self._new_keys: Keys | None = None  # that came before there were services
        self._built = asyncio.Event()  # the services are there
        self._taking_models = asyncio.Lock()  # in the order they came
        self._model_updates: set[asyncio.Task[None]] = set()
        self._is_orphaned = False
        writer, reader = RingWriter(map_memory(writes)), RingReader(map_memory(reads))
        self._channel = Channel(sock, writer, reader, on_message=self._take, on_close=self._lose_service)
        for descriptor in (writes, reads):
            os.close(descriptor)

    async def run(self) -> int:
        """Serve; returns the exit code."""
        self._channel.start(self._loop)
        start = await self._started
        settings = start.settings
        configure_logging(settings.log_level, settings.log_format)
        publish(settings, "")
        self._batcher = RemoteBatcher(settings.limit_queue_tokens)
        self._batcher.connect(self._channel)
        services = await build_worker_services(settings, start.models, self._batcher, start.keys.ring)
        self._shared = SharedPage.open(self._page, settings, start.index + 1, start.keys.owners)
        self._shared.share(services.text_work, services.metering)
        self._usage = UsageReporter(services.metering.ledger, self._report_usage)
        self._services = services
        if self._new_keys is not None:
            self._take_keys(services, self._new_keys)
        self._built.set()
        connections = ServiceConnections(start.service_path)
        options = api_options(settings, services.metering.keys)
        app = create_app(services.for_api(), options)
        forwarding = ForwardingApp(
            app, LOCAL_ROUTES, connections, cors_origins=settings.cors_origins, tracer=services.telemetry.tracer
        )
        config = server_config(
            forwarding, settings, services.telemetry, options.traffic, processes=settings.server_processes
        )
        self._server = server = DrainingServer(config, app, _Announcer(self._channel))
        services.telemetry.connections.set_function(lambda: len(server.server_state.connections))
        tune_interpreter()
        await server.serve(sockets=[self._listener])
        connections.close()
        self._usage.flush()
        await services.close()
        self._channel.close()
        return EXIT_ORPHANED if self._is_orphaned else 0

    def _take(self, message: Message) -> None:
        if message.kind is Kind.CONTROL:
            self._obey(read_control(message))
        elif self._batcher is not None:
            self._batcher.take(message)

    def _obey(self, record: object) -> None:
        if isinstance(record, Start):
            self._started.set_result(record)
        elif record is Signal.PING:
            self._channel.send(*write_control(Signal.PONG))
        elif record is Signal.DRAIN:
            if self._server is None:  # nothing was accepted yet
                os._exit(0)
            self._server.stop()
        elif isinstance(record, AskSamples) and self._services is not None:
            samples = Samples(record.number, self._services.telemetry.snapshot())
            self._channel.send(*write_control(samples))
        elif isinstance(record, Keys):
            if self._services is None:
                self._new_keys = record
            else:
                self._take_keys(self._services, record)
        elif isinstance(record, Models):
            task = self._loop.create_task(self._take_models(record))
            self._model_updates.add(task)
            task.add_done_callback(self._model_updates.discard)

    def _take_keys(self, services: WorkerServices, keys: Keys) -> None:
        self._shared.add_owners(keys.owners)
        services.metering.keys.replace(keys.ring)

    def _report_usage(self, slices: tuple[Slice, ...]) -> None:
        self._channel.send(*write_control(UsageReport(slices)))

    async def _take_models(self, models: Models) -> None:
        """One that cannot be taken ends this worker: its next one reads what is there now."""
        await self._built.wait()
        try:
            async with self._taking_models:
                if self._services is not None:
                    await self._services.take_models(models)
        except BaseException:
            if self._server is not None:
                self._server.stop()
            raise
        self._channel.send(*write_control(ModelsTaken(models.version)))

    def _lose_service(self) -> None:
        """Everything that computes is gone: end at once, so that the port is free for the next service."""
        log_event(_log, logging.CRITICAL, "the service process is gone")
        self._is_orphaned = True
        if self._batcher is not None:
            self._batcher.disconnect("the service process is gone; ask another replica")
        if self._server is None:
            os._exit(EXIT_ORPHANED)
        self._server.force_exit = True
        self._server.stop()


class _Announcer:
    """Tells the service process once this one accepts connections."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def start(self) -> None:
        self._channel.send(*write_control(Signal.READY))

    async def drain(self) -> None: ...


async def run(channel: int, writes: int, reads: int, page: int, listener: int) -> int:
    """Serve with the descriptors that the service process left open for this one."""
    worker = HttpWorker(socket.socket(fileno=channel), writes, reads, page, socket.socket(fileno=listener))
    return await worker.run()


def main(arguments: Sequence[str]) -> int:
    configure_logging("INFO")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the service process reads the keys file, whoever was sent the signal
    return uvloop.run(run(*map(int, arguments)))


@dataclass(frozen=True, slots=True)
class WorkerServices:
    """The services of one HTTP worker: those of ``LOCAL_ROUTES``."""

    catalog: Catalog
    inference: Inference
    embeddings: EmbeddingService
    entities: EntityService
    similarity: SimilarityService
    telemetry: Telemetry
    metering: Metering
    cache: VectorCache
    limits: ApiLimits

    @property
    def text_work(self) -> TextWork:
        return self.inference.text_work

    @property
    def meters(self) -> Meters:
        return self.metering.meters

    def for_api(self) -> ApiServices:
        """As ``create_app`` takes them; routes that need others are never reached here."""
        return cast("ApiServices", self)

    async def take_models(self, models: Models) -> None:
        """Serve these models from the next request on. Raises: ModelUnavailable where files were changed."""
        for model in await asyncio.to_thread(_with_tokenizers, models.loaded):
            self.catalog.replace(model)
        self.catalog.pending = PendingModels(models.pending)

    async def hand_over(self) -> None:
        """There is no background work to hand over."""

    async def close(self) -> None:
        """End threads and connections."""
        await self.metering.close()
        self.inference.close()
        await self.cache.close()
        await self.telemetry.tracer.close()


async def build_worker_services(
    settings: Settings, models: Models, batcher: RemoteBatcher, ring: KeyRing
) -> WorkerServices:
    """The services over models whose engines run in the service process.

    Raises: ModelUnavailable where a model's files are not those of the service process any more.
    """
    telemetry = open_telemetry(settings)
    supervisor = Supervisor(telemetry)
    loaded = await asyncio.to_thread(_with_tokenizers, models.loaded)
    catalog = Catalog(*loaded, pending=PendingModels(models.pending))
    cache = await start_cache(share_cache(settings), telemetry, supervisor)
    text_work = TextWork(telemetry, text_limits(settings), idle_trim=IdleTrim(supervisor=supervisor))
    inference = Inference(batcher, cache, telemetry, text_work)
    embeddings = EmbeddingService(catalog, inference, cache, telemetry)
    metering = worker_metering(settings, telemetry, ring)
    metering.start(supervisor)
    return WorkerServices(
        catalog=catalog,
        inference=inference,
        embeddings=embeddings,
        entities=EntityService(catalog, inference, telemetry),
        similarity=SimilarityService(embeddings, NeutralVectors(embeddings)),
        telemetry=telemetry,
        metering=metering,
        cache=cache,
        limits=limits_of(settings),
    )


def share_cache(settings: Settings) -> Settings:
    """CACHE_MEMORY_BYTES divided among the processes that have a cache: each worker and the service process."""
    processes = settings.server_processes + 1 if settings.server_processes > 1 else 1
    return settings.model_copy(update={"cache_memory_bytes": settings.cache_memory_bytes // processes})


def _with_tokenizers(loaded: Sequence[LoadedModel]) -> list[LoadedModel]:
    for spec in (model.spec for model in loaded):
        if tokenizer_digest(spec.folder / "tokenizer.json") != spec.tokenizer_sha256:
            raise ModelUnavailable(
                f"the tokenizer of {spec.name} in {spec.folder} has changed since the model was loaded; restart the "
                "service, or load it with POST /admin/models"
            )
    return [replace(model, tokenizer=tokenizer_of(model.spec)) for model in loaded]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
