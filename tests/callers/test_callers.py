"""Callers: keys with and without names, who owns what, and keys that are exchanged."""

import pytest

from backend.callers.callers import ANYBODY, KeyRing, Quotas, owner_digest, read_key_ring, split_entry
from backend.errors import BadSettings


def found(ring: KeyRing, key: str) -> tuple[str, str] | None:
    caller = ring.find(key.encode())
    return None if caller is None else (caller.name, caller.role)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        pytest.param("team=s3cret", ("team", "s3cret"), id="named"),
        pytest.param("s3cret", ("", "s3cret"), id="a-key-alone"),
        pytest.param("sk:live:1", ("", "sk:live:1"), id="a-colon-is-part-of-a-key"),
        pytest.param("Zm9vYg==", ("", "Zm9vYg=="), id="base64-ends-in-equals-signs"),
        pytest.param("Zm9vYmE=", ("", "Zm9vYmE="), id="base64-with-one"),
        pytest.param("team=Zm9vYg==", ("team", "Zm9vYg=="), id="named-base64"),
        pytest.param("team=a=b", ("team", "a=b"), id="a-named-key-may-hold-one"),
    ],
)
def test_split_entry(entry: str, expected: tuple[str, str]):
    """The first equals sign ends the name, unless nothing but such signs follow."""
    assert expected == split_entry(entry)


def test_names():
    """A key without a name gets one by its place, never by what it is; admins have names of their own."""
    ring = read_key_ring(("team=one", "two", "clé"), ("three", "ops=four"))

    assert ("team", "user") == found(ring, "one")
    assert ("key-2", "user") == found(ring, "two")
    assert ("key-3", "user") == found(ring, "clé")
    assert ("admin-1", "admin") == found(ring, "three")
    assert ("ops", "admin") == found(ring, "four")
    assert [None] * 4 == [found(ring, key) for key in ("", "on", "one ", "team=one")]
    assert ["team", "key-2", "key-3", "admin-1", "ops"] == [caller.name for caller in ring.callers]


def test_a_ring_without_keys():
    """It is false: no key is asked for."""
    assert not read_key_ring(())
    assert read_key_ring((), ("admin",))


def test_what_a_caller_owns_stays_its_own():
    """By its name, though its key changes; without a name by its key, though its place in the list changes."""
    before = read_key_ring(("team=old", "alone", "other"))
    after = read_key_ring(("new-one", "other", "alone", "team=new"))
    owners = [ring.find(key).owner for ring, key in ((before, b"old"), (after, b"new"))]  # type: ignore[union-attr]

    assert owners[0] == owners[1]
    assert before.find(b"alone").owner == after.find(b"alone").owner  # type: ignore[union-attr]
    assert 4 == len({caller.owner for caller in after.callers})


def test_jobs_of_earlier_versions():
    """They are owned by the digest of the key, and without keys by that of nothing."""
    assert owner_digest("alone") == read_key_ring(("alone",)).callers[0].owner
    assert owner_digest("") == ANYBODY.owner


def test_a_name_is_no_key():
    """Who takes another's key for a name owns nothing of theirs."""
    key, name = read_key_ring(("team", "team=x")).callers

    assert key.owner != name.owner


def test_two_keys_of_one_name():
    """While a key is exchanged, old and new stand for one caller, with one quota."""
    ring = read_key_ring(("team=old", "team=new"), quotas=Quotas(jobs=2))

    assert ring.find(b"old") is not None
    assert ring.find(b"old") == ring.find(b"new")
    assert 1 == len(ring.callers)


def test_who_may_change_what():
    """A caller what is its own; an admin anything; where there are no keys anybody anything."""
    team, other = read_key_ring(("team=one", "two")).callers
    [admin] = read_key_ring((), ("ops=three",)).callers

    assert [True, False, False] == [team.may_change(owner) for owner in (team.owner, other.owner, None)]
    assert [True] * 3 == [admin.may_change(owner) for owner in (team.owner, other.owner, None)]
    assert [True] * 3 == [ANYBODY.may_change(owner) for owner in (team.owner, other.owner, None)]
    assert [False, True, False] == [caller.is_admin for caller in (team, admin, ANYBODY)]


def test_faults_are_all_told():
    """Every bad entry of both lists at once, none of them repeated."""
    with pytest.raises(BadSettings) as caught:
        read_key_ring(("hush", "hush", "a b=hush2"), ("hush",))

    assert 3 == len(caught.value.faults)
    assert "hush" not in str(caught.value)
