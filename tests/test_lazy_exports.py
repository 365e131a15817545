"""A package re-exports names of other modules, each imported when it is first used."""

from __future__ import annotations

from collections import abc

import pytest

from backend.lazy_exports import lazy_exports


def test_names_are_found_and_told():
    """Those of the table and those that the package has by itself."""
    find, names = lazy_exports("collections", {"Sized": "collections.abc"})

    assert find("Sized") is abc.Sized
    assert {"Sized", "OrderedDict"} <= set(names())


def test_an_unknown_name():
    """As in any module."""
    find, _ = lazy_exports("collections", {"Sized": "collections.abc"})

    with pytest.raises(AttributeError, match="module 'collections' has no attribute 'Sizde'"):
        find("Sizde")


def test_a_refused_name():
    """The reason is the message of a plain ``from … import``; the name is not told."""
    find, names = lazy_exports("collections", {}, {"OrderedSet": "take dict.fromkeys"})

    with pytest.raises(ImportError, match=r"collections has no OrderedSet: take dict\.fromkeys"):
        find("OrderedSet")
    assert "OrderedSet" not in names()
