"""Owns the import name of the project and its version; the folders beside it are links to the top of the repository."""

from __future__ import annotations

__version__: str


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Every process of the project imports this package first, and few ask for the version.
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    try:
        return version("ringmq")
    except PackageNotFoundError:  # a source folder that was never installed can be imported, too
        return "0+unknown"
