"""A package's names come from its modules when they are asked for."""

from __future__ import annotations

from collections import abc

import pytest

from backend.lazy_names import lazy_names


def test_names_are_found_and_told():
    """Those of the table and those that the package has by itself."""
    find, names = lazy_names("collections", {"Sized": "abc"})

    assert find("Sized") is abc.Sized
    assert {"Sized", "OrderedDict"} <= set(names())


def test_an_unknown_name():
    """As in any module."""
    find, _ = lazy_names("collections", {"Sized": "abc"})

    with pytest.raises(AttributeError, match="module 'collections' has no attribute 'Sizde'"):
        find("Sizde")
