"""Lazy re-exports of a package: each name is imported on first access (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_exports(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Build the ``__getattr__`` and ``__dir__`` of ``package``.

    Args:
        modules: exported name -> dotted name of the module that defines it.
    """

    def get_attribute(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return get_attribute, list_names
