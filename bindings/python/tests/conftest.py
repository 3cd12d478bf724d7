"""Servers on loopback for the tests, and what is left behind when one ends."""

from __future__ import annotations

import gc
import os
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
    before = len(os.listdir("/proc/self/fd"))
    yield
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 16, "connections that the server has not closed yet are few"
