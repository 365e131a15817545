"""What one caller may keep, and the checks of it that a storage makes in the transaction that adds something."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from backend.errors import QuotaExceeded, TooLarge
from backend.search.records import Attributes, Scalar, StoredUsage

_ADVICE = "Delete what is not needed any more."
_WAITING_RETRY_S = 30.0  # a file takes from some milliseconds to minutes
_BYTES_RETRY_S = 60.0  # nothing frees them but the caller, and the expiry of vector stores
_VALUE_BYTES = 8  # of a number or a flag
_RECORD_BYTES = 6  # of a chunk among the postings of a term
_BATCH_ADVICE = "Add fewer files at a time."


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """Each field is the setting LIMIT_<NAME>; of one key, or of everybody together where there are no keys."""

    stored_files: int = 10_000
    stored_bytes: int = 20 * 2**30
    stored_chunks: int = 1_000_000
    vector_stores: int = 1_000
    waiting_files: int = 10_000  # files of vector stores that are not indexed yet
    owner_bytes: int | None = None  # one owner's quota, in place of stored_bytes

    def of_owner(self, quota_bytes: int | None) -> SearchLimits:
        """The same for an owner with a quota of bytes."""
        return self if quota_bytes is None else replace(self, owner_bytes=quota_bytes)


def attributes_bytes(attributes: Attributes, found: Mapping[str, Sequence[Scalar]]) -> int:
    """What the attributes of a file of a store count."""
    values = [*attributes.items(), *((name, value) for name, values in found.items() for value in values)]
    return sum(_utf8(name) + (_utf8(value) if isinstance(value, str) else _VALUE_BYTES) for name, value in values)


def postings_bytes(terms: Iterable[str]) -> int:
    """What the postings of a chunk count."""
    return sum(_utf8(term) + _RECORD_BYTES for term in set(terms))


def _utf8(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def check_kept_file(usage: StoredUsage, limits: SearchLimits) -> None:
    """Raises: TooLarge, QuotaExceeded where an owner has too many files or bytes, with the file that is added."""
    if usage.files > limits.stored_files:
        raise TooLarge("stored files", usage.files, limits.stored_files, "LIMIT_STORED_FILES", advice=_ADVICE)
    check_bytes(usage.bytes, limits)


def check_kept_store(usage: StoredUsage, limits: SearchLimits) -> None:
    """Raises: TooLarge where an owner has too many vector stores, the one that is added included."""
    if usage.stores > limits.vector_stores:
        raise TooLarge("vector stores", usage.stores, limits.vector_stores, "LIMIT_VECTOR_STORES", advice=_ADVICE)


def check_room_to_index(usage: StoredUsage, limits: SearchLimits) -> None:
    """Raises: TooLarge, QuotaExceeded where an owner has no room for a chunk, before files come to a vector store."""
    if usage.chunks >= limits.stored_chunks:
        what, setting = "chunks in all vector stores", "LIMIT_STORED_CHUNKS"
        raise TooLarge(what, usage.chunks, limits.stored_chunks, setting, advice=_ADVICE)
    check_bytes(usage.bytes + 1, limits)


def check_bytes(kept: int, limits: SearchLimits) -> None:
    """Raises: TooLarge, QuotaExceeded where an owner keeps more bytes than it may."""
    if limits.owner_bytes is not None:
        if kept > limits.owner_bytes:
            message = (
                f"stored bytes: with this one, {kept} of this key would be kept, its quota is {limits.owner_bytes} "
                "(stored_bytes in the keys file); try again when files are deleted, or a vector store has expired"
            )
            raise QuotaExceeded("stored_bytes", message, _BYTES_RETRY_S)
    elif kept > limits.stored_bytes:
        raise TooLarge("stored bytes", kept, limits.stored_bytes, "LIMIT_STORED_BYTES", advice=_ADVICE)


def check_waiting_files(waiting: int, added: int, limits: SearchLimits) -> None:
    """Raises: TooLarge for more files at once than may wait; QuotaExceeded where they would be too many with others.

    Args:
        waiting: an owner's files that are not indexed yet, those that are added included.
    """
    if added > limits.waiting_files:
        what, setting = "files to be indexed", "LIMIT_WAITING_FILES"
        raise TooLarge(what, added, limits.waiting_files, setting, advice=_BATCH_ADVICE, param="file_ids")
    if waiting > limits.waiting_files:
        message = (
            f"files: {waiting - added} wait to be indexed, and {added} more would be over the limit of "
            f"{limits.waiting_files} (LIMIT_WAITING_FILES); try again when some are indexed, or take some out of their "
            "vector stores"
        )
        raise QuotaExceeded("waiting_files", message, _WAITING_RETRY_S)
