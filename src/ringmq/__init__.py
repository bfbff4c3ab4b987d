"""Owns the import name of the project and its version; the folders beside it are links to the top of the repository."""

from __future__ import annotations

# Not read from the metadata of the package: that imports the parsers of mail and of archives, 1 MB in each peer.
__version__ = "0.1.0"
