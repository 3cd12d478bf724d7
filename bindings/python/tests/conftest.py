"""Servers on loopback for the tests, and what is left behind when one ends."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator

import pytest
from server import Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture(autouse=True)
def no_descriptors_left() -> Iterator[None]:
    """Descriptors that a test opens are closed when it has ended and its objects are gone."""
    gc.collect()
    before = _descriptors()
    yield
    gc.collect()
    end = time.monotonic() + 5
    # The server, in this process too, closes its connections when it hears that they have ended.
    while _descriptors() > before + 4:
        assert time.monotonic() < end, f"{_descriptors()} descriptors, {before} before"
        time.sleep(0.01)


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
