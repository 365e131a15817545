"""Takes from a worker process what a file that takes it over could use: other files, the network, other processes.

Landlock bounds which files it opens, a seccomp filter which system calls it makes. Neither needs a privilege, and both
hold under Docker's default profile. Where the kernel has none the process runs without, and says so.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

_PROJECT_PACKAGE = Path(__file__).resolve().parents[1]
# What libraries open when they are first used: shared libraries, fonts, codecs, the number of cores.
_SYSTEM_PATHS = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/sys/devices/system/cpu")
_SYSTEM_FILES = ("/proc/cpuinfo", "/proc/meminfo", "/dev/urandom", "/dev/zero")

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = (1 << bit for bit in range(4))
_FS_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}  # ABI of landlock: how many rights on files it knows
_TCP_RIGHTS, _SCOPES = 0b11, 0b11  # bind and connect (ABI 4); abstract sockets and signals (ABI 6)

_SET_NO_NEW_PRIVILEGES, _SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _REFUSE, _ABSENT = 0x7FFF0000, 0x00050000 | 1, 0x00050000 | 38  # EPERM; ENOSYS
_CALL_AT, _ARCHITECTURE_AT, _ARGUMENT_AT = 0, 4, 16  # in struct seccomp_data, little-endian
_X32_BIT, _CLONE_THREAD = 0x40000000, 0x10000
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}  # the kernel's number; column in the tables
# Numbers on x86_64 and aarch64; None where it does not exist
_REFUSED: dict[str, tuple[int | None, int]] = {
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "accept": (43, 202), "accept4": (288, 242), "io_uring_setup": (425, 425),
    "execve": (59, 221), "execveat": (322, 281), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "process_madvise": (440, 440), "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "kcmp": (312, 272), "memfd_create": (319, 279), "shmget": (29, 194),
    "shmat": (30, 196), "msgget": (68, 186), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "mount": (165, 40), "umount2": (166, 39), "unshare": (272, 97), "setns": (308, 268),
    "open_by_handle_at": (304, 265), "ioprio_set": (251, 30), "setpriority": (141, 140),
    "move_pages": (279, 239), "migrate_pages": (256, 238),
}  # fmt: skip
_FORKS: dict[str, tuple[int | None, int | None]] = {"fork": (57, None), "vfork": (58, None)}
_OWN_PROCESS_ONLY = {"kill": (62, 129), "tgkill": (234, 131), "prlimit64": (302, 261), "sched_setaffinity": (203, 122),
                     "sched_setscheduler": (144, 119), "sched_setparam": (142, 118)}  # fmt: skip
_CLONE, _CLONE3 = (56, 220), 435


def confine() -> dict[str, str]:
    """Confine this process, for good: call it before it starts a thread.

    Returns: for GET /v1/system, what bounds its ``files`` and its ``system_calls``, or why nothing does.
    """
    if sys.platform != "linux":
        return dict.fromkeys(
            ("files", "system_calls"), f"not confined: {sys.platform} has neither landlock nor seccomp"
        )
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_SET_NO_NEW_PRIVILEGES, *map(ctypes.c_ulong, (1, 0, 0, 0)))  # what both ask of the unprivileged
    confined = {}
    for what, confine_part in (("files", _confine_files), ("system_calls", _confine_system_calls)):
        try:
            confined[what] = confine_part(libc)
        except OSError as error:
            confined[what] = f"not confined: {error.strerror}"
    return confined


def _confine_files(libc: ctypes.CDLL) -> str:
    abi = _checked(libc.syscall(_CREATE_RULESET, None, 0, 1), "landlock: the kernel has none")
    rights = (1 << _FS_RIGHTS[max(known for known in _FS_RIGHTS if known <= abi)]) - 1
    fields = (rights, _TCP_RIGHTS if abi >= 4 else 0, _SCOPES if abi >= 6 else 0)
    attributes = struct.pack("=QQQ", *fields)[: 24 if abi >= 6 else 16 if abi >= 4 else 8]
    ruleset = _checked(libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0), "landlock: no ruleset")
    try:
        for path in _readable_paths():
            _allow(libc, ruleset, path, _READ_FILE | _EXECUTE | (_READ_DIR if Path(path).is_dir() else 0))
        _allow(libc, ruleset, os.devnull, _READ_FILE | _WRITE_FILE)
        _checked(libc.syscall(_RESTRICT_SELF, ruleset, 0), "landlock: not allowed here")
    finally:
        os.close(ruleset)
    return f"landlock {abi}"


def _readable_paths() -> Iterator[str]:
    """Where its code lies: never the project's folder, which may hold a .env, stored files or whatever lies beside."""
    yield from filter(os.path.exists, (*_SYSTEM_PATHS, *_SYSTEM_FILES, sys.prefix, sys.base_prefix))
    yield str(_PROJECT_PACKAGE / "files")
    for entry in filter(os.path.exists, sys.path):
        if not Path(entry, _PROJECT_PACKAGE.name).is_dir():
            yield entry


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("=Qi", rights, fd)
        _checked(libc.syscall(_ADD_RULE, ruleset, 1, rule, 0), f"landlock: no rule for {path}")
    finally:
        os.close(fd)


def _confine_system_calls(libc: ctypes.CDLL) -> str:
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        raise OSError(0, f"the numbers of system calls on {machine} are not known here")
    program = b"".join(_filter(*_ARCHITECTURES[machine]))
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    mode, argument = ctypes.c_ulong(_MODE_FILTER), ctypes.c_char_p(header)
    _checked(libc.prctl(_SET_SECCOMP, mode, argument, 0, 0), "seccomp: not allowed here")
    return "seccomp"


def _filter(architecture: int, column: int) -> Iterator[bytes]:
    """The filter as instructions of classic BPF: for a call that is refused two, to compare and to return."""

    def numbers(table: Iterable[tuple[int | None, ...]]) -> Iterator[int]:
        return (call[column] for call in table if call[column] is not None)  # type: ignore[misc]

    yield from (_step(_LOAD, _ARCHITECTURE_AT), _step(_EQUAL, architecture, 1, 0), _step(_RETURN, _REFUSE))
    yield from (_step(_LOAD, _CALL_AT), _step(_AT_LEAST, _X32_BIT, 0, 1), _step(_RETURN, _REFUSE))
    for number in numbers((*_REFUSED.values(), *_FORKS.values())):
        yield from (_step(_EQUAL, number, 0, 1), _step(_RETURN, _REFUSE))
    yield from (_step(_EQUAL, _CLONE3, 0, 1), _step(_RETURN, _ABSENT))  # its flags lie in memory; libraries then clone
    yield from (_step(_EQUAL, _CLONE[column], 0, 4), _step(_LOAD, _ARGUMENT_AT), _step(_ANY_BIT, _CLONE_THREAD, 1, 0))
    yield from (_step(_RETURN, _REFUSE), _step(_RETURN, _ALLOW))
    for number in numbers(_OWN_PROCESS_ONLY.values()):
        yield from (_step(_EQUAL, number, 0, 5), _step(_LOAD, _ARGUMENT_AT), _step(_EQUAL, 0, 2, 0))
        yield from (_step(_EQUAL, os.getpid(), 1, 0), _step(_RETURN, _REFUSE), _step(_RETURN, _ALLOW))
    yield _step(_RETURN, _ALLOW)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """One instruction; the jumps are how many instructions to leave out."""
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _checked(result: int, failure: str) -> int:
    """Raises: OSError that says what failed, and why."""
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{failure} ({os.strerror(ctypes.get_errno())})")
    return result
