"""Limits on time, as httpx and requests have them."""

from functools import lru_cache

from . import _errors, _towpath

# What is said where there is no limit: a year, in s.
_NONE_S = 365.0 * 86_400


@lru_cache(maxsize=256)
def options(
    connect: float | None,
    read: float | None,
    retries: int | None = None,
    priority: str = "normal",
    turn: float | None = None,
    http_versions: str = "negotiated",
    proxy: _towpath.Proxies | None = None,
) -> _towpath.Options:
    """A connection within `connect` s, then a response that begins within `read` s, with all repetitions, and no gap in
    it of more than that; before all that its turn within `turn` s. None is no limit.
    """
    connect = _NONE_S if connect is None else connect
    read = _NONE_S if read is None else read
    return _towpath.Options(
        connect=connect,
        answer=read,
        # The caller's word counts, not what the engine has learned of the server.
        first_byte=2 * read,
        gap=read,
        retries=retries,
        priority=priority,
        turn_timeout=turn,
        http_versions=http_versions,
        proxy=proxy,
    )


def proxies(word: str | None) -> _towpath.Proxies | None:
    """The proxy with this URL, or those that the environment has now."""
    if word is None:
        return None
    try:
        return _towpath.Proxies(word)
    except _towpath.Failure as failure:
        raise _errors.error(failure) from None
