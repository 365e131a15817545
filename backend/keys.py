"""Makes API keys and checks keys files. The service knows hashes of keys only, so a key is shown once: here.

python -m backend.keys new billing >> keys.toml    # the key itself goes to the terminal, its hash into the file
python -m backend.keys hash                        # reads a key that exists, from the terminal or standard input
python -m backend.keys check keys.toml             # every fault, as the service would refuse it
"""

from __future__ import annotations

import argparse
import getpass
import secrets
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from backend.callers.callers import NAME_RULE, KeyRing, Quotas, is_name, key_digest
from backend.callers.key_file import read_key_file
from backend.errors import BadSettings

PREFIX = "financia_"  # so that scanners of repositories can tell one
_KEY_BYTES = 32  # 256 random bits, which is why SHA-256 is enough (services/callers.key_digest)
_MIN_CHARS = 20  # of a key from elsewhere; a shorter one could be guessed from its hash


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        done: int = options.run(options)
    except BadSettings as error:
        sys.stderr.write("\n".join(error.faults) + "\n")
        return 1
    return done


def _new(options: argparse.Namespace) -> int:
    if not is_name(options.name):
        sys.stderr.write(f"NAME: '{options.name}' cannot be one; write {NAME_RULE}\n")
        return 2
    key = PREFIX + secrets.token_urlsafe(_KEY_BYTES)
    sys.stderr.write(f"{key}\n^ the key of '{options.name}'; it is shown once, and kept nowhere\n")
    name = f'"{options.name}"' if "." in options.name else options.name
    lines = [] if options.add else [f"[tenants.{name}]", f'role = "{options.role}"', ""]
    lines += [f"[[tenants.{name}.keys]]", f'sha256 = "{key_digest(key.encode()).hex()}"']
    if options.add and options.role != "user":
        lines.append(f'role = "{options.role}"')
    if options.expires is not None:
        lines.append(f"expires = {options.expires.isoformat()}")
    sys.stdout.write("\n".join(("", *lines)) + "\n")
    return 0


def _hash(_options: argparse.Namespace) -> int:
    key = (getpass.getpass("key: ") if sys.stdin.isatty() else sys.stdin.readline()).strip()
    if len(key) < _MIN_CHARS:
        sys.stderr.write(
            f"the key has {len(key)} characters, at least {_MIN_CHARS} are needed: a shorter one can be guessed from "
            "its hash; make one with python -m backend.keys new NAME\n"
        )
        return 2
    sys.stdout.write(f"{key_digest(key.encode()).hex()}\n")
    return 0


def _check(options: argparse.Namespace) -> int:
    ring = read_key_file(options.file, KeyRing({}), Quotas())
    sys.stdout.write(f"{options.file}: {len(ring.callers)} tenants with {len(ring)} keys\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m backend.keys", description="Make API keys and check keys files (docs/keys.md)."
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    new = actions.add_parser("new", help="make a key; its table for the keys file goes to standard output")
    new.add_argument("name", metavar="NAME", help="of the tenant")
    new.add_argument("--role", choices=("read", "user", "admin"), default="user")
    new.add_argument("--expires", type=date.fromisoformat, metavar="DATE", help="refuse it from this day (UTC) on")
    new.add_argument("--add", action="store_true", help="a further key of a tenant that is in the file")
    new.set_defaults(run=_new)
    hashing = actions.add_parser(
        "hash", help="the hash of a key that exists; read from standard input, never an argument"
    )
    hashing.set_defaults(run=_hash)
    check = actions.add_parser("check", help="read a keys file as the service would")
    check.add_argument("file", type=Path)
    check.set_defaults(run=_check)
    return parser


if __name__ == "__main__":
    sys.exit(main())
