"""Lazy re-exports of a package: each name is imported on first access (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_exports(
    package: str, modules: Mapping[str, str], refused: Mapping[str, str] | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Build the ``__getattr__`` and ``__dir__`` of ``package``.

    Args:
        modules: exported name -> dotted name of the module that defines it.
        refused: name that guides import and that is not here on purpose -> why, and what to take. Raises ImportError,
            for ``from package import name`` replaces the message of an AttributeError.
    """

    def get_attribute(name: str) -> object:
        if refused and name in refused:
            raise ImportError(f"{package} has no {name}: {refused[name]}")
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return get_attribute, list_names
