"""The command that makes keys and checks keys files."""

import io
from pathlib import Path

import pytest

from backend import keys
from backend.callers.callers import KeyRing, Quotas, key_digest
from backend.callers.key_file import read_key_file


def made(capsys: pytest.CaptureFixture[str], path: Path, *arguments: str) -> str:
    """Append a new key's table to the file, as a shell does; returns the key."""
    assert 0 == keys.main(["new", *arguments])
    output = capsys.readouterr()
    with path.open("a") as file:
        file.write(output.out)
    key = output.err.splitlines()[0]
    assert key not in output.out
    return key


def test_new_keys_make_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """What it prints is a file that the service reads: tenants, further keys, roles and expiry."""
    path = tmp_path / "keys.toml"
    one = made(capsys, path, "shop.es")
    admin = made(capsys, path, "ops", "--role", "admin")
    reader = made(capsys, path, "shop.es", "--add", "--role", "read", "--expires", "2031-01-01")
    ring = read_key_file(path, KeyRing({}), Quotas())
    callers = [ring.find(key.encode()) for key in (one, admin, reader)]

    assert [("shop.es", "user"), ("ops", "admin"), ("shop.es", "read")] == [
        (caller.name, caller.role) for caller in callers if caller is not None
    ]
    assert callers[2] is not None
    assert 1_924_992_000.0 == callers[2].expires_s
    assert 3 == len({one, admin, reader})
    assert 0 == keys.main(["check", str(path)])
    assert "2 tenants with 3 keys" in capsys.readouterr().out


def test_hash(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Of a line of standard input; one that could be guessed from its hash is refused."""
    for key in ("a-key-of-many-characters", "guessed1"):
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{key}\n"))
        code, output = keys.main(["hash"]), capsys.readouterr()

        assert (0 if len(key) > 20 else 2) == code
        assert (f"{key_digest(key.encode()).hex()}\n" if len(key) > 20 else "") == output.out
        assert key not in output.err


def test_faults(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """One a line; a name that cannot be one makes no key."""
    path = tmp_path / "keys.toml"
    path.write_text("[tenants.a]\nkeys = 5\n[tenants.b]\nkeys = 5\n")
    codes = [keys.main(["check", str(path)]), keys.main(["check", str(tmp_path / "no")]), keys.main(["new", "a b"])]

    assert [1, 1, 2] == codes
    assert 4 == len(capsys.readouterr().err.splitlines())
