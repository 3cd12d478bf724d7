"""The same requests through httpx, requests and this library, in turns: CPU, requests a second, memory, start.

A process for each of them and each round, so that nothing of one is in another; rounds are interleaved, and what is
printed is the median of all rounds, with the ratio to what is replaced and the range of that ratio over the rounds.
CPU is what the kernel says of all threads of the process (`/proc/PID/task/*/schedstat`); the server is a process of
its own.

    compare.py [--quick] [--requests N] [--rounds N]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

# What runs, what it is compared with, and what it does.
PAIRS = [
    ("towpath.Transport", "httpx.Client", "one after the other"),
    ("towpath.AsyncTransport", "httpx.AsyncClient", "32 at a time"),
    ("towpath.Adapter", "requests.Session", "one after the other"),
    ("towpath.Client", "httpx.Client", "one after the other"),
]
AT_A_TIME = 32
BODIES = {"13 B": 13, "1 MB": 1_000_000}


def cpu_ns() -> int:
    total = 0
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/schedstat") as file:
            total += int(file.read().split()[0])
    return total


def resident_kib() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def getter(subject: str) -> tuple[Callable[[str], bytes], Callable[[], None]]:
    """A function that gets a URL's body, and one that ends the client."""
    if subject == "towpath.Client":
        import towpath

        own = towpath.Client()
        return lambda url: own.get(url).content, own.close
    if subject in ("requests.Session", "towpath.Adapter"):
        import requests

        session = requests.Session()
        if subject == "towpath.Adapter":
            import towpath

            session.mount("http://", towpath.Adapter())
        return lambda url: session.get(url).content, session.close
    import httpx

    if subject == "towpath.Transport":
        import towpath

        client = httpx.Client(transport=towpath.Transport())
    else:
        client = httpx.Client()
    return lambda url: client.get(url).content, client.close


def run_blocking(subject: str, url: str, size: int, requests: int) -> dict[str, float]:
    begin = time.monotonic()
    get, close = getter(subject)
    assert len(get(url)) == size
    started = time.monotonic() - begin
    for _ in range(min(requests, 20)):
        get(url)
    cpu, begin = cpu_ns(), time.monotonic()
    for _ in range(requests):
        assert len(get(url)) == size
    measured = figures(cpu, begin, started, requests)
    close()
    return measured


def run_async(subject: str, url: str, size: int, requests: int) -> dict[str, float]:
    async def main() -> dict[str, float]:
        import httpx

        begin = time.monotonic()
        transport: Any = None
        if subject == "towpath.AsyncTransport":
            import towpath

            transport = towpath.AsyncTransport(max_connections=AT_A_TIME)
        async with httpx.AsyncClient(transport=transport) as client:
            assert len((await client.get(url)).content) == size
            started = time.monotonic() - begin
            left = requests

            async def work() -> None:
                nonlocal left
                while left > 0:
                    left -= 1
                    assert len((await client.get(url)).content) == size

            cpu, begin = cpu_ns(), time.monotonic()
            await asyncio.gather(*(work() for _ in range(AT_A_TIME)))
            return figures(cpu, begin, started, requests)

    return asyncio.run(main())


def figures(cpu: int, begin: float, started: float, requests: int) -> dict[str, float]:
    took = time.monotonic() - begin
    return {
        "CPU, µs a request": (cpu_ns() - cpu) / requests / 1e3,
        "requests/s": requests / took,
        "resident, KiB": resident_kib(),
        "start to first body, ms": started * 1e3,
    }


class Server:
    """A process that answers every path `/N` with N bytes."""

    def __enter__(self) -> str:
        command = [sys.executable, os.path.abspath(__file__), "--serve"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


class Answers(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        self._transport, self._buffer = transport, b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            size = int(self._buffer.split(b" ", 2)[1][1:])
            self._buffer = self._buffer[end + 4 :]
            self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + bytes(size))


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Answers, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def measure(subject: str, url: str, size: int, requests: int) -> dict[str, float]:
    words = ["--subject", subject, "--url", f"{url}/{size}", "--size", str(size), "--requests", str(requests)]
    output = subprocess.run(
        [sys.executable, os.path.abspath(__file__), *words], check=True, capture_output=True, text=True
    )
    return dict(json.loads(output.stdout))


def compare(url: str, requests: int, rounds: int) -> None:
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} processors, load {load:.1f}, Python {sys.version.split()[0]}, {rounds} rounds")
    print("ratio: this library's figure by the other's, median and range over the rounds\n")
    for ours, theirs, how in PAIRS:
        for body, size in BODIES.items():
            count = max(requests * 13 // max(13, size // 40), 40)
            outcomes: dict[str, list[dict[str, float]]] = {ours: [], theirs: []}
            for round_ in range(rounds):
                for subject in (ours, theirs) if round_ % 2 else (theirs, ours):
                    outcomes[subject].append(measure(subject, url, size, count))
            print(f"{ours} and {theirs}, {how}, {body}, {count} requests")
            for name in outcomes[ours][0]:
                mine, other = ([figures[name] for figures in outcomes[subject]] for subject in (ours, theirs))
                ratios = sorted(one / another for one, another in zip(mine, other, strict=True))
                print(
                    f"  {name:24} {statistics.median(mine):10.1f} {statistics.median(other):10.1f}"
                    f"   ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
                )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--subject")
    parser.add_argument("--url")
    parser.add_argument("--size", type=int, default=0)
    words = parser.parse_args()
    if words.serve:
        asyncio.run(serve())
    elif words.subject:
        run = run_async if "Async" in words.subject else run_blocking
        print(json.dumps(run(words.subject, words.url, words.size, words.requests)))
    else:
        with Server() as url:
            compare(url, 300 if words.quick else words.requests, 3 if words.quick else words.rounds)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
