"""A server that is away, comes back, hangs, is unfit, or is asked by several replicas at once."""

import asyncio
import logging
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from backend.errors import BadSettings, SetupError, StorageCorrupt, Unavailable
from backend.files.limits import FileLimits
from backend.search.postgres import schema
from backend.search.postgres.connections import ConnectionLimits
from backend.search.postgres.storage import PostgresSearchStorage
from backend.search.records import KeywordQuery, ListRange
from tests.fakes import TEST_TIMEOUT_S, ManualClock
from tests.search.postgres.server import PASSWORD, PASSWORD_IN_URL, PostgresServer
from tests.search.samples import ENCODER, LEASE_S, add_indexed, current, indexed, store_file, unit_vectors, upload
from tests.search.samples import vector_store as new_store
from tests.tcp_proxy import TcpProxy

QUICK = ConnectionLimits(connections=3, connect_s=0.5, command_s=0.5)
Open = Callable[[], Awaitable[PostgresSearchStorage]]


@asynccontextmanager
async def opened(
    url: str, limits: ConnectionLimits = QUICK
) -> AsyncIterator[tuple[PostgresSearchStorage, ManualClock]]:
    """A storage whose clock the test moves, past the second in which nobody tries again."""
    clock = ManualClock()
    storage = PostgresSearchStorage(url, FileLimits(), connections=limits, clock=clock)
    await storage.start()
    yield storage, clock
    await storage.close()


async def test_the_server_comes_after_the_service(start_postgres: Callable[..., PostgresServer]):
    """The start goes on without it, calls are refused at once, and it is used when it is there."""
    server = start_postgres()
    url = await server.create_database("late")
    server.stop()
    async with opened(url) as (storage, clock):
        with pytest.raises(Unavailable, match="SEARCH_URL"):
            await storage.files("ana", ListRange())
        assert storage.report()["reached"] is False

        server.start()
        clock.advance(2.0)

        assert [] == await storage.files("ana", ListRange())
        assert storage.report()["reached"] is True


async def test_a_crash_of_the_server_loses_nothing(start_postgres: Callable[..., PostgresServer]):
    """Calls raise Unavailable while it is away; afterwards all is there, without a restart of ours."""
    server = start_postgres()
    async with opened(await server.create_database("crash")) as (storage, clock):
        await storage.add_store(new_store())
        await add_indexed(storage, "file-1", ["alpha", "beta"])
        store = await current(storage)
        server.stop(signal.SIGQUIT)
        for _ in range(3):
            with pytest.raises(Unavailable):
                await storage.nearest(store, unit_vectors(1)[0], None, 10)
            clock.advance(2.0)
        server.start()

        assert 2 == len(await storage.nearest(store, unit_vectors(1)[0], None, 10))
        assert 1 == len(await storage.matching(store, KeywordQuery(("alpha",)), None, 10))


async def test_a_server_that_hangs_costs_a_bounded_time(
    postgres_proxy: TcpProxy, postgres_server: PostgresServer, postgres_url: str
):
    """Neither a connection nor a command waits for ever, and others are refused at once meanwhile."""
    url = postgres_server.url(postgres_url.rpartition("/")[2], port=postgres_proxy.port)
    async with opened(url) as (storage, clock):
        await storage.files("ana", ListRange())
        postgres_proxy.open.clear()
        began_s = time.monotonic()
        calls = [storage.files("ana", ListRange()) for _ in range(10)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        took_s = time.monotonic() - began_s
        postgres_proxy.open.set()
        postgres_proxy.cut()
        clock.advance(2.0)

        assert {Unavailable} == {type(answer) for answer in answers}
        assert took_s < 10.0
        assert [] == await storage.files("ana", ListRange())


async def test_a_finish_that_breaks_off_stores_nothing(
    postgres_proxy: TcpProxy, postgres_server: PostgresServer, postgres_url: str, open_storage: Open
):
    """The connection is lost at each answer in turn: the file is claimed again, and then stored once."""
    url = postgres_server.url(postgres_url.rpartition("/")[2], port=postgres_proxy.port)
    other = await open_storage()
    await other.add_store(new_store())
    await upload(other, "file-1")
    await other.attach([store_file("file-1")])
    async with opened(url, ConnectionLimits(connections=1, connect_s=5.0, command_s=5.0)) as (storage, clock):
        claim = await storage.claim(ENCODER, LEASE_S)
        assert claim is not None
        for answers in range(4):
            await storage.waiting()  # a connection is there
            postgres_proxy.cut_after = answers
            with pytest.raises(Unavailable):
                await storage.finish(claim, indexed(["alpha"]))
            clock.advance(2.0)

            assert 0 == (await current(other)).chunks
        assert await storage.finish(claim, indexed(["alpha"]))
    assert 1 == (await current(other)).chunks


async def test_connections_are_bounded(postgres_server: PostgresServer, postgres_url: str):
    """Further calls wait for one."""
    async with opened(postgres_url, ConnectionLimits(connections=3)) as (storage, _):
        await asyncio.gather(*(storage.files("ana", ListRange()) for _ in range(40)))
        admin = await postgres_server.connect()
        count = await admin.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND application_name = 'financia'",
            postgres_url.rpartition("/")[2],
        )
        await admin.close()

        assert 1 <= count <= 3


async def test_replicas_start_at_once(open_storage: Open):
    """One makes the tables, the others wait for it and use them."""
    storages = await asyncio.gather(*(open_storage() for _ in range(5)))
    await storages[0].add_store(new_store())

    assert [1] * 5 == [len(await storage.stores("ana", ListRange())) for storage in storages]


async def test_tables_of_the_first_release(
    open_storage: Open, postgres_server: PostgresServer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    """Are brought up to date; a store that is there answers, its terms made anew."""
    with monkeypatch.context() as patch:
        patch.setattr(schema, "_MIGRATIONS", schema._MIGRATIONS[:1])
        await open_storage()
    connection = await postgres_server.connect(postgres_url.rpartition("/")[2])
    await connection.execute("SET search_path TO financia")
    await connection.execute(
        "INSERT INTO stores (id, owner, name, description, metadata, created_s, last_active_s) "
        "VALUES ('vs_1', 'ana', '', '', '{}', 1, 1)"
    )
    storage = await open_storage()
    await add_indexed(storage, "file-1", ["alpha"])
    await connection.execute("UPDATE store_files SET terms_version = DEFAULT")  # as a replica of that release writes
    await connection.execute("DELETE FROM postings")

    assert 1 == len(await storage.matching(await current(storage), KeywordQuery(("alpha",)), None, 10))
    assert len(schema._MIGRATIONS) == await connection.fetchval("SELECT version FROM schema_version")
    await connection.close()


async def test_deleted_rows_are_vacuumed_soon(start_postgres: Callable[..., PostgresServer]):
    """A server waits by default until a fifth of a table is dead, two million of ten million postings: here 1 %."""
    server = start_postgres()
    url = await server.create_database("vacuumed")
    connection = await server.connect("vacuumed")
    await connection.execute("ALTER SYSTEM SET autovacuum_naptime = '1s'")
    await connection.execute("SELECT pg_reload_conf()")
    async with opened(url, ConnectionLimits()):
        await connection.execute(
            "INSERT INTO financia.postings SELECT i % 100, 1, 'term' || i, 'x' FROM generate_series(1, 20000) i"
        )
        await connection.execute("SELECT pg_stat_force_next_flush()")  # else the inserts are told of after it
        await connection.execute("VACUUM ANALYZE financia.postings")
        await connection.execute("DELETE FROM financia.postings WHERE file < 10")
        async with asyncio.timeout(TEST_TIMEOUT_S):
            while await connection.fetchval(  # noqa: ASYNC110 - the server's own processes do it
                "SELECT n_tup_del = 0 OR n_dead_tup > 0 FROM pg_stat_all_tables "
                "WHERE relid = 'financia.postings'::regclass"
            ):
                await asyncio.sleep(0.2)
    await connection.close()


async def test_replicas_never_claim_the_same_file(open_storage: Open):
    """Each file goes to one of them, and its result counts once."""
    storages = [await open_storage() for _ in range(3)]
    await storages[0].add_store(new_store())
    for number in range(9):
        await upload(storages[0], f"file-{number}")
    await storages[0].attach([store_file(f"file-{number}") for number in range(9)])

    async def work(storage: PostgresSearchStorage) -> list[str]:
        done = []
        while claim := await storage.claim(ENCODER, LEASE_S):
            assert await storage.finish(claim, indexed(["alpha"]))
            done.append(claim.file.file_id)
        return done

    done = await asyncio.gather(*map(work, storages))

    assert [f"file-{number}" for number in range(9)] == sorted(file for files in done for file in files)
    assert 9 == (await current(storages[0])).chunks


async def test_damaged_bytes_are_never_given_out(
    storage: PostgresSearchStorage, postgres_server: PostgresServer, postgres_url: str
):
    """A file whose bytes in the database were changed is refused by its name."""
    await upload(storage, "file-1", b"12345")
    connection = await postgres_server.connect(postgres_url.rpartition("/")[2])
    await connection.execute("UPDATE financia.file_parts SET content = '12346'")
    await connection.close()

    with pytest.raises(StorageCorrupt, match="file-1"):
        await storage.content("file-1")


async def test_a_server_without_halfvec(postgres_url: str, monkeypatch: pytest.MonkeyPatch):
    """Before pgvector 0.7 vectors are kept in float32; a later server goes on with them."""
    monkeypatch.setattr(schema, "_HALFVEC_SINCE", (99, 0))
    async with opened(postgres_url) as (storage, _):
        await storage.add_store(new_store())
        await add_indexed(storage, "file-1", ["alpha"])
    monkeypatch.undo()
    async with opened(postgres_url) as (storage, _):
        (hit,) = await storage.nearest(await current(storage), unit_vectors(1)[0], None, 10)

        assert "vector" == storage.report()["vectors"]
        assert 1.0 == pytest.approx(hit.score, abs=1e-6)


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("redis://localhost/0", id="another-scheme"),
        pytest.param("postgresql://user:secret@host:port/database", id="no-port"),
        pytest.param("postgresql://user:sec/ret@host/database", id="a-slash-in-the-password"),
        pytest.param("postgresql://user:sec#secret@host/database", id="a-hash-in-the-password"),
        pytest.param("postgresql://user:se?cret@host/database", id="a-question-mark-in-the-password"),
    ],
)
def test_bad_addresses(url: str):
    """Refused before anything is asked, without quoting the password."""
    with pytest.raises(BadSettings, match="SEARCH_URL") as caught:
        PostgresSearchStorage(url, FileLimits())

    assert "secret" not in str(caught.value)
    assert "sec" not in str(caught.value).replace("percent-encoded", "")


async def test_secrets_are_not_told(postgres_url: str, caplog: pytest.LogCaptureFixture):
    """Neither report, nor errors, nor logs hold the password, right or wrong."""
    caplog.set_level(logging.DEBUG)
    told = []
    for url in (postgres_url, postgres_url.replace(PASSWORD_IN_URL, "wrong-secret")):
        async with opened(url) as (storage, _):
            told.append(str(storage.report()) + repr(storage.__dict__.get("_postgres")))
            try:
                await storage.files("ana", ListRange())
            except Unavailable as error:
                told.append(str(error))
    told += [f"{record.getMessage()} {record.__dict__}" for record in caplog.records]

    assert "does not answer (InvalidPasswordError)" in "".join(told)
    for secret in (PASSWORD, PASSWORD_IN_URL, "wrong-secret"):
        assert secret not in "".join(told)


class TestUnfit:
    async def test_an_encoding_that_cannot_hold_all(self, postgres_server: PostgresServer):
        """The start is stopped, and the message says how to make a database."""
        url = await postgres_server.create_database("ascii", "ENCODING 'SQL_ASCII' TEMPLATE template0")
        storage = PostgresSearchStorage(url, FileLimits())

        with pytest.raises(SetupError, match="ENCODING 'UTF8'"):
            await storage.start()
        await storage.close()

    async def test_a_user_without_rights(self, postgres_server: PostgresServer):
        """The message says what a superuser must run."""
        await postgres_server.create_database("owned_by_another")
        admin = await postgres_server.connect()
        await admin.execute("CREATE ROLE nobody_much LOGIN PASSWORD 'x'")
        await admin.close()
        storage = PostgresSearchStorage(
            f"postgresql://nobody_much:x@127.0.0.1:{postgres_server.port}/owned_by_another", FileLimits()
        )

        with pytest.raises(SetupError, match="CREATE EXTENSION vector"):
            await storage.start()
        await storage.close()

    async def test_tables_of_a_later_release(
        self, postgres_server: PostgresServer, postgres_url: str, open_storage: Open
    ):
        """Nothing is read or changed."""
        await (await open_storage()).close()
        connection = await postgres_server.connect(postgres_url.rpartition("/")[2])
        await connection.execute("UPDATE financia.schema_version SET version = 99")
        await connection.close()

        with pytest.raises(SetupError, match="version 99"):
            await open_storage()

    async def test_an_old_server(self):
        """Twelve is refused with what to do."""
        connection = SimpleNamespace(get_server_version=lambda: SimpleNamespace(major=12))

        with pytest.raises(SetupError, match="PostgreSQL 12; 13 is the oldest"):
            await schema.prepare(connection, "host/database")

    async def test_a_server_without_pgvector(self):
        """The message names the package to install."""

        async def nothing(*_: object) -> None:
            return None

        connection = SimpleNamespace(fetchrow=nothing, fetchval=nothing)

        with pytest.raises(SetupError, match="postgresql-16-pgvector"):
            await schema._extension(connection, "host/database", 16)

    async def test_tables_that_were_dropped(
        self, storage: PostgresSearchStorage, postgres_server: PostgresServer, postgres_url: str
    ):
        """One call is refused; the next makes them anew."""
        await storage.swept()  # its call is not the one
        connection = await postgres_server.connect(postgres_url.rpartition("/")[2])
        await connection.execute("DROP SCHEMA financia CASCADE")
        await connection.close()

        with pytest.raises(Unavailable):
            await storage.files("ana", ListRange())
        assert [] == await storage.files("ana", ListRange())
