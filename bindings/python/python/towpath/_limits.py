"""Limits on time, as httpx and requests have them."""

from functools import lru_cache

from . import _towpath

# What is said where there is no limit: a year, in s.
_NONE_S = 365.0 * 86_400


@lru_cache(maxsize=256)
def options(
    connect: float | None, read: float | None, retries: int | None = None, priority: str = "normal"
) -> _towpath.Options:
    """A connection within `connect` s; and between any two signs of life of the server, its first included, no more
    than `read` s. None is no limit. A request that may be repeated is, after `read` s of silence, until `connect` and
    `read` together have passed.
    """
    answer = _NONE_S if connect is None or read is None else connect + read
    silence = _NONE_S if read is None else read
    return _towpath.Options(
        answer=answer, connect=connect, first_byte=silence, gap=silence, retries=retries, priority=priority
    )
