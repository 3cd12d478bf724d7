"""The examples of the documentation do what they say."""

from __future__ import annotations

import pathlib
import re

import pytest
from server import Server

ROOT = pathlib.Path(__file__).parents[3]
EXAMPLES = [
    pytest.param(example, id=f"{page.name}-{number}")
    for page in (ROOT / "README.md", ROOT / "docs/client-python.md", ROOT / "bindings/python/README.md")
    for number, example in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S))
    if "import " in example
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(example: str, server: Server) -> None:
    code = re.sub(r"https://example\.org/?(?=[\"'])", f"{server.url}/hello", example)
    code = code.replace("wss://example.org", server.url.replace("http", "ws"))
    exec(compile(code.replace("https://example.org", server.url), "example", "exec"), {})


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5
