"""What is likely wrong with a filter: names that no file has, and values of a type that an attribute never has."""

from __future__ import annotations

from collections.abc import Iterator

from backend.search.filters import Comparison, Filter, keys_of
from backend.search.records import Scalar
from backend.search.storage import SearchStorage

_ATTRIBUTES_READ = 1_000  # names of a store's attributes that a filter is compared with
_ATTRIBUTES_NAMED = 10  # in a warning


async def filter_warnings(storage: SearchStorage, store_id: str, where: Filter | None) -> tuple[str, ...]:
    """One for each attribute of the filter that no file has, or that has values of other types only."""
    if where is None:
        return ()
    keys = tuple(dict.fromkeys(keys_of(where)))
    known = await storage.attribute_keys(store_id, _ATTRIBUTES_READ)
    unknown = [key for key in keys if key not in known]
    kinds = await storage.attribute_types(store_id, [key for key in keys if key in known])
    if len(known) == _ATTRIBUTES_READ:  # there may be more, behind these
        unknown = [key for key in unknown if key < known[-1]]
    named = ", ".join(known[:_ATTRIBUTES_NAMED]) + (", …" if len(known) > _ATTRIBUTES_NAMED else "")
    there = f"they have {named}" if known else "they have none"
    warnings = [f"filters: no file of this store has the attribute '{key:.64}'; {there}" for key in unknown]
    for key, held in kinds.items():
        asked = {_type(value) for comparison in _comparisons(where, key) for value in _values(comparison)}
        if held and (strange := sorted(asked - held)):
            warnings.append(
                f"filters: '{key:.64}' holds {' and '.join(sorted(held))} in this store, and is compared with "
                f"{' and '.join(strange)}, which no value equals"
            )
    return tuple(warnings)


def _comparisons(where: Filter, key: str) -> Iterator[Comparison]:
    if not isinstance(where, Comparison):
        for part in where.filters:
            yield from _comparisons(part, key)
    elif where.key == key:
        yield where


def _values(comparison: Comparison) -> tuple[Scalar, ...]:
    return comparison.value if isinstance(comparison.value, tuple) else (comparison.value,)


def _type(value: Scalar) -> str:
    return "texts" if isinstance(value, str) else "booleans" if isinstance(value, bool) else "numbers"
