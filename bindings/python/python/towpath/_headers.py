"""The fields of a response."""

from collections.abc import Iterable, Iterator, Mapping


class Headers(Mapping[str, str]):
    """Fields by name, whatever its case: values of the same name are joined by commas (RFC 9110 §5.2). `raw` has them
    as they came."""

    __slots__ = ("raw", "_values")

    def __init__(self, raw: Iterable[tuple[bytes, bytes]]) -> None:
        self.raw = list(raw)
        self._values: dict[str, list[str]] = {}
        for name, value in self.raw:
            self._values.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))

    def __getitem__(self, name: str) -> str:
        return ", ".join(self._values[name.lower()])

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def get_list(self, name: str) -> list[str]:
        """All values of this name, apart: `set-cookie` cannot be joined."""
        return list(self._values.get(name.lower(), ()))

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Headers({self.raw!r})"
