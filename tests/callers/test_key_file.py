"""The keys file: what it may say, and that every fault is told by its place and no key repeated."""

from datetime import UTC, datetime

import pytest

from backend.callers.callers import KeyRing, Quotas, key_digest, owner_digest, read_key_ring
from backend.callers.key_file import MAX_TENANTS, is_key_file, parse_key_file
from backend.errors import BadSettings

DEFAULTS = Quotas(requests_per_minute=10, jobs=2)
HASH = key_digest(b"one").hex()
TENANT = f'[tenants.team]\nkeys = [{{ sha256 = "{HASH}" }}]\n'


def parsed(content: str | bytes, others: KeyRing | None = None) -> KeyRing:
    data = content if isinstance(content, bytes) else content.encode()
    return parse_key_file(data, "keys.toml", others or KeyRing({}), DEFAULTS)


def test_the_whole_of_it():
    """Quotas of its own in place of the defaults; keys with less than the tenant's role; the earlier expiry."""
    ring = parsed(
        f"""
        [tenants.team]
        role = "user"
        expires = 2030-01-01
        quota = {{ requests_per_minute = 600, stored_bytes = 5_000_000 }}
        note = "ours"
        [[tenants.team.keys]]
        sha256 = "{HASH}"
        [[tenants.team.keys]]
        sha256 = "{key_digest(b"two").hex()}"
        role = "read"
        expires = 2027-06-30T18:00:00+02:00
        """
    )
    one, two = ring.find(b"one"), ring.find(b"two")

    assert ("team", owner_digest("name", "team")) == (one.name, one.owner)
    assert one.owner == two.owner
    assert (600, 2, 5_000_000) == (one.quotas.requests_per_minute, one.quotas.jobs, one.quotas.stored_bytes)
    assert ["user", "read"] == [one.role, two.role]
    assert datetime(2030, 1, 1, tzinfo=UTC).timestamp() == one.expires_s
    assert datetime(2027, 6, 30, 16, tzinfo=UTC).timestamp() == two.expires_s
    assert ["requests_per_minute in the keys file", "QUOTA_JOBS"] == [
        one.quotas.setting(name) for name in ("requests_per_minute", "jobs")
    ]
    assert None is ring.find(b"three")
    assert 1 == len(ring.callers)


def test_what_a_named_key_owned_stays_its_own():
    """Who moves from `API_KEYS=team=one` into a file keeps jobs, files and classifiers."""
    assert read_key_ring(("team=one",)).callers[0].owner == parsed(TENANT).callers[0].owner


def test_admins():
    """They have no quotas unless the file sets some; those of ADMIN_KEYS hold beside them."""
    others = read_key_ring((), ("root=secret",))
    ring = parsed(f'[tenants.ops]\nrole = "admin"\nkeys = [{{ sha256 = "{HASH}" }}]', others)

    assert [("ops", True), ("root", True)] == [(caller.name, caller.is_admin) for caller in ring.callers]
    assert Quotas() == ring.callers[0].quotas


@pytest.mark.parametrize("content", [b"\xef\xbb\xbf" + TENANT.encode(), TENANT.replace("\n", "\r\n").encode()])
def test_files_of_windows(content: bytes):
    """A byte order mark and CRLF are no fault."""
    assert 1 == len(parsed(content))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        pytest.param("", "no key at all", id="empty"),
        pytest.param("[tenants]\n", "no key at all", id="no-tenants"),
        pytest.param("[tenants.team]\nkeys = []\n", "no key at all", id="all-shut-out"),
        pytest.param("[tenants.team\n", "no TOML: .*line 1", id="no-toml"),
        pytest.param(b"\xff\xfe", "byte 0 is no UTF-8", id="utf-16"),
        pytest.param("tenants = 5", "must be tables", id="tenants-no-table"),
        pytest.param("[tenants]\nteam = 5", "tenants.team: must be a table", id="tenant-no-table"),
        pytest.param(TENANT + "[other]\n", "other: no such field; there are tenants", id="unknown-table"),
        pytest.param(TENANT + "quotas = {}", "tenants.team.quotas: no such field", id="misspelt"),
        pytest.param(
            TENANT + "quota = { token_per_minute = 5 }", "quota.token_per_minute: no such", id="misspelt-quota"
        ),
        pytest.param(TENANT + "quota = { jobs = 0 }", "quota.jobs: must be a whole number from 1", id="zero"),
        pytest.param(TENANT + "quota = { jobs = true }", "quota.jobs: must be a whole", id="bool"),
        pytest.param(TENANT + "quota = { jobs = 1.5 }", "quota.jobs: must be a whole", id="float"),
        pytest.param(TENANT + "quota = 5", "tenants.team.quota: must be a table", id="quota-no-table"),
        pytest.param(TENANT + 'role = "root"', "role: must be one of read, user, admin", id="role"),
        pytest.param(TENANT + 'expires = "2027-06-30"', "expires: must be a date without quotes", id="quoted-date"),
        pytest.param(TENANT + "expires = 2027-06-30T18:00:00", "a time without offset", id="no-offset"),
        pytest.param("[tenants.team]\nrole = 'user'", "tenants.team.keys: absent", id="no-keys"),
        pytest.param("[tenants.team]\nkeys = ['hush']", r"keys\[1\]: must be a table", id="key-no-table"),
        pytest.param("[tenants.team]\nkeys = [{sha256='hush'}]", r"keys\[1\].sha256: must be 64", id="plain-key"),
        pytest.param(f"[tenants.team]\nkeys = [{{ sha256 = '{HASH.upper()}' }}]", "lower case", id="upper-case"),
        pytest.param(TENANT + TENANT.replace("team", "two"), "its key is that of tenants.team.keys", id="same-key"),
        pytest.param(TENANT.replace("team", "key-1"), "no name of a tenant", id="given-name"),
        pytest.param(TENANT.replace("team", '"a b"'), "no name of a tenant", id="bad-name"),
        pytest.param(
            f"[tenants.team]\nkeys = [{{ sha256 = '{HASH}', role = 'admin' }}]",
            "may more than its tenant",
            id="more-role",
        ),
    ],
)
def test_faults(content: str | bytes, told: str):
    """Each is told by its place, and stops the whole file."""
    with pytest.raises(BadSettings, match=told) as caught:
        parsed(content)

    assert "hush" not in str(caught.value)
    assert all(fault.startswith("keys.toml: ") for fault in caught.value.faults)


def test_names_and_keys_of_admins_are_taken():
    """A caller is named in one place, and a key stands for one."""
    with pytest.raises(BadSettings) as caught:
        parsed(TENANT, read_key_ring((), ("team=one",)))

    assert 2 == len(caught.value.faults)
    assert all("ADMIN_KEYS" in fault for fault in caught.value.faults)


def test_many_faults_are_counted():
    """The first twenty are told."""
    with pytest.raises(BadSettings) as caught:
        parsed("\n".join(f"[tenants.t{number}]\nkeys = 5" for number in range(50)))

    assert 21 == len(caught.value.faults)
    assert caught.value.faults[-1].endswith("and 30 more faults")


def test_too_many_tenants():
    """The limit is told."""
    with pytest.raises(BadSettings, match="10001 are over the limit of 10000"):
        parsed("\n".join(f"[tenants.t{number}]" for number in range(MAX_TENANTS + 1)))


@pytest.mark.parametrize(
    ("entry", "is_one"),
    [("/etc/keys.toml", True), ("keys.toml", True), ("team=a.toml", False), ("a-key", False), ("keys.json", False)],
)
def test_what_is_a_file(entry: str, is_one: bool):
    """The name's end decides; an entry with a name is a key whatever it ends in."""
    assert is_one == is_key_file(entry)
