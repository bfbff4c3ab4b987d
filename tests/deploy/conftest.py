"""Names the mark of the tests with several hosts: `pytest -m hosts` runs them alone, `-m "not hosts"` the others."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "hosts: several hosts on one network, which takes two minutes and needs root")
