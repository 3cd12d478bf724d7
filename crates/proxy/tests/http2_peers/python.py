"""Python's HTTP/2: `serve` is hypercorn, which prints the port on which it serves until its input ends; `call ADDRESS`
is httpx with h2, which asks what is there and prints the name of each story that went well. What httpx gives up it
does not reset: that story it has not."""

import asyncio
import socket
import sys

import httpx


def pattern(start, length):
    """Each byte of a body tells where it stands."""
    cycle = bytes(range(251))
    start %= 251
    return (cycle * (length // 251 + 2))[start : start + length]


async def application(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError(scope["type"])
    head = {"type": "http.response.start", "status": 200, "headers": []}

    async def say(body, more=False):
        await send({"type": "http.response.body", "body": body, "more_body": more})

    _, name, *bytes_ = scope["path"].split("/")
    if name in ("upload", "echo"):
        if name == "echo":
            await send(head)
        total, more = 0, True
        while more:
            message = await receive()
            body, more = message.get("body", b""), message.get("more_body", False)
            assert body == pattern(total, len(body)) or name == "echo"
            total += len(body)
            if name == "echo":
                await say(body, more)
        if name == "upload":
            await send(head)
            await say(str(total).encode())
        return
    if name == "trailers":
        await send(head | {"trailers": True})
        await say(b"body")
        await send({"type": "http.response.trailers", "headers": [(b"x-sum", b"4")]})
        return
    await send(head)
    total, at = int(bytes_[0]) if name == "download" else 2**30, 0
    while at < total:
        piece = pattern(at, min(50_000, total - at))
        await say(piece, True)
        at += len(piece)
    await say(b"")


def serve():
    from hypercorn.asyncio import serve as hypercorn
    from hypercorn.config import Config

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    config = Config()
    config.bind, config.errorlog = [f"fd://{listener.fileno()}"], None
    gone = lambda: asyncio.to_thread(sys.stdin.read)
    asyncio.run(hypercorn(application, config, shutdown_trigger=gone))


async def call(address):
    async with httpx.AsyncClient(http1=False, http2=True, base_url=f"http://{address}", timeout=20) as client:

        async def download(bytes_):
            response = await client.get(f"/download/{bytes_}")
            assert (response.status_code, response.http_version) == (200, "HTTP/2")
            assert response.content == pattern(0, bytes_)

        async def upload(bytes_):
            response = await client.post("/upload", content=pattern(0, bytes_))
            assert (response.status_code, response.text) == (200, str(bytes_))

        sizes = [0, 1, 16_384, 16_385, 1_000_000]
        for bytes_ in sizes:
            await download(bytes_)
        print("downloads")
        for bytes_ in sizes:
            await upload(bytes_)
        print("uploads")
        try:
            response = await client.get("/reset")
            raise AssertionError("it ended as if it were whole")
        except httpx.RemoteProtocolError:
            await download(10)
        print("resets")
        await asyncio.gather(*(do(turn * 1000) for turn in range(100) for do in (download, upload)))
        print("many_at_once")


if sys.argv[1] == "serve":
    serve()
else:
    asyncio.run(call(sys.argv[2]))
