"""What happens when a client cannot be had: nothing is left out in silence."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def cannot(why: str) -> NoReturn:
    """In CI, which installs what is needed, a failure. Elsewhere the test is left out, and the summary says why."""
    if os.environ.get("CI"):
        pytest.fail(why, pytrace=False)
    pytest.skip(why)
