"""A server on loopback that does what it is told by the path, and counts what it sees.

Paths: `/hello`; `/echo` sends back what comes, as it comes; `/bytes/N`; `/chunks/N` with pauses of 10 ms and a
trailer; `/slow/S` begins after S seconds; `/stall/N` stops after N bytes; `/cut/N` closes after N bytes of more;
`/early` answers 413 before it has read; `/status/N`; `/redirect/PATH`; `/gzip`; `/cookies`; `/fields` sends back the
request's fields; `/garbage` is not HTTP; `/pour` sends for ever.

As a WebSocket: `/chat` and `/chat/echo` send messages back; `/chat/close/CODE/REASON` closes after the first message,
`/chat/break` hangs up then; `/chat/lasting/N` does so in its first N lives, then echoes; `/chat/late/S` opens after S
seconds; `/chat/silent` says nothing more, and takes nothing for 2 s; `/chat/pour` sends for ever; `/chat/fault` is not
WebSocket; `/chat/refuse/N` answers N.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import json
import socket
import ssl
import struct
import threading
from collections import Counter


class Proxy:
    """Answers what it is asked to forward by itself, refuses tunnels, and keeps the heads of all requests."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.heads: list[bytes] = []
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def lines(self) -> list[str]:
        return [head.split(b"\r\n")[0].decode() for head in self.heads]

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as reader:
            while line := reader.readline():
                head = line
                while line not in (b"\r\n", b""):
                    line = reader.readline()
                    head += line
                self.heads.append(head)
                answer = b"403 No" if head.startswith(b"CONNECT ") else b"200 OK"
                connection.sendall(b"HTTP/1.1 " + answer + b"\r\ncontent-length: 7\r\n\r\nproxied")

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


class Server:
    """Runs on a thread of its own; `cert` is a PEM file with certificate and key."""

    def __init__(self, cert: str | None = None) -> None:
        self._cert = cert
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)
        self.port = 0
        self.seen: Counter[str] = Counter()
        self.open = 0
        self.poured = 0
        self.closes: list[bytes] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        scheme, host = ("http", "127.0.0.1") if self._cert is None else ("https", "localhost")
        return f"{scheme}://{host}:{self.port}"

    def __enter__(self) -> Server:
        self._thread.start()
        self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(10)

    def _stop(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except asyncio.CancelledError:
            pass
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        context = None
        if self._cert is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self._cert)
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, ssl=context, backlog=512)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        async with server:
            await server.serve_forever()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            while await self._exchange(reader, writer):
                pass
        except (asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        line = await reader.readline()
        if not line:
            return False
        method, path, _ = line.decode().split()
        fields: list[tuple[str, str]] = []
        while (line := await reader.readline()) != b"\r\n":
            name, _, value = line.decode("latin-1").partition(":")
            fields.append((name.lower(), value.strip()))
        known = dict(fields)
        _, word, *words = path.partition("?")[0].split("/")
        self.seen[word] += 1
        if word == "chat" and known.get("upgrade") == "websocket":
            await self._chat(words, known, reader, writer)
            return False
        body = _pieces(reader, known)
        answer = getattr(self, f"_do_{word}", None)
        if word in ("echo", "early"):
            return bool(await answer(writer, words, body, reader))
        data = b"".join([piece async for piece in body])
        if answer is not None:
            return bool(await answer(writer, words, body, reader))
        status, extra, content = _plain(method, path, word, words, fields, data)
        head = [f"HTTP/1.1 {status} Reason", *extra, f"content-length: {len(content)}", "", ""]
        writer.write("\r\n".join(head).encode() + (b"" if method == "HEAD" else content))
        await writer.drain()
        return True

    async def _chat(
        self,
        words: list[str],
        fields: dict[str, str],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        what, *words = words or ["echo"]
        self.seen[what] += 1
        life = self.seen[what]
        if what == "refuse":
            writer.write(b"HTTP/1.1 %d No\r\ncontent-length: 0\r\n\r\n" % int(words[0]))
            return
        if what == "late" and await _pause(reader, float(words[0])):
            return
        digest = hashlib.sha1(fields["sec-websocket-key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11")
        head = ["HTTP/1.1 101 Now", "upgrade: websocket", "connection: upgrade"]
        head.append(f"sec-websocket-accept: {base64.b64encode(digest.digest()).decode()}")
        if "sec-websocket-protocol" in fields:
            head.append(f"sec-websocket-protocol: {fields['sec-websocket-protocol'].split(',')[0]}")
        writer.write("\r\n".join([*head, "", ""]).encode())
        if what == "fault":
            writer.write(b"\xff\xff\xff\xff")
        if what == "silent":
            await asyncio.sleep(2)
            while await reader.read(65536):
                pass
            return
        if what == "pour":
            self.poured = 0
            while True:
                writer.write(_frame(2, bytes(65536)))
                await writer.drain()
                self.poured += 65536
        while True:
            opcode, payload = await _read_frame(reader)
            if opcode == 8:
                self.closes.append(payload)
                writer.write(_frame(8, payload))
                await writer.drain()
                return
            if opcode == 9:
                writer.write(_frame(10, payload))
            if opcode not in (1, 2):
                continue
            if what == "close":
                writer.write(_frame(8, struct.pack("!H", int(words[0])) + words[1].encode()))
                await writer.drain()
                await _read_frame(reader)
                return
            if what == "break" or (what == "lasting" and life <= int(words[0])):
                return
            writer.write(_frame(opcode, payload))
            await writer.drain()

    async def _do_echo(self, writer, words, body, reader):  # type: ignore[no-untyped-def]
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        async for piece in body:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _do_chunks(self, writer, words, body, reader):  # type: ignore[no-untyped-def]
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for number in range(int(words[0])):
            piece = b"piece %d\n" % number
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(0.01)
        writer.write(b"0\r\nx-sum: 7\r\n\r\n")
        return True

    async def _do_slow(self, writer, words, body, reader):  # type: ignore[no-untyped-def]
        if await _pause(reader, float(words[0])):
            return False
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate")
        return True

    async def _do_stall(self, writer, words, body, reader):  # type: ignore[no-untyped-def]
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n" + b"x" * int(words[0]))
        await writer.drain()
        await _pause(reader, 30)
        return False

    async def _do_cut(self, writer, words, body, reader):  # type: ignore[no-untyped-def]
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n" + b"x" * int(words[0]))
        await writer.drain()
        return False

    async def _do_early(self, writer, words, body, reader):  # type: ignore[no-untyped-def]
        writer.write(b"HTTP/1.1 413 No\r\ncontent-length: 3\r\nconnection: close\r\n\r\nbig")
        await writer.drain()
        await _pause(reader, 0.2)
        return False

    async def _do_garbage(self, writer, words, body, reader):  # type: ignore[no-untyped-def]
        writer.write(b"220 mail.example ESMTP\r\n")
        await writer.drain()
        return False

    async def _do_pour(self, writer, words, body, reader):  # type: ignore[no-untyped-def]
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        self.poured = 0
        piece = bytes(65536)
        while True:
            writer.write(piece)
            await writer.drain()
            self.poured += len(piece)


def _frame(opcode: int, payload: bytes) -> bytes:
    length = len(payload)
    if length < 126:
        return bytes([0x80 | opcode, length]) + payload
    if length < 65536:
        return bytes([0x80 | opcode, 126]) + struct.pack("!H", length) + payload
    return bytes([0x80 | opcode, 127]) + struct.pack("!Q", length) + payload


async def _read_frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """A message or a control frame of the client's: its frames are joined."""
    opcode, whole = 0, b""
    while True:
        first, second = await reader.readexactly(2)
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack("!H", await reader.readexactly(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", await reader.readexactly(8))
        key = await reader.readexactly(4)
        masked = await reader.readexactly(length)
        keys = (key * (length // 4 + 1))[:length]
        payload = (int.from_bytes(masked, "big") ^ int.from_bytes(keys, "big")).to_bytes(length, "big")
        if first & 0x0F >= 8:
            return first & 0x0F, payload
        opcode, whole = first & 0x0F or opcode, whole + payload
        if first & 0x80:
            return opcode, whole


async def _pause(reader: asyncio.StreamReader, seconds: float) -> bool:
    """Waits so long, and no longer than the client does: whether that has closed the connection."""
    try:
        await asyncio.wait_for(reader.read(1), seconds)
    except asyncio.TimeoutError:
        return False
    return True


def _plain(method, path, word, words, fields, data):  # type: ignore[no-untyped-def]
    if word == "hello":
        return 200, ["content-type: text/plain"], b"hello"
    if word == "bytes":
        return 200, [], bytes(int(words[0]))
    if word == "status":
        return int(words[0]), [], b""
    if word == "redirect":
        return 302, [f"location: /{'/'.join(words)}"], b"over there"
    if word == "gzip":
        return 200, ["content-encoding: gzip", "content-type: text/plain"], gzip.compress(b"squeezed" * 100)
    if word == "cookies":
        return 200, ["set-cookie: a=1; Path=/", "set-cookie: b=2; Path=/"], b""
    if word == "fields":
        known = {"method": method, "path": path, "body": data.decode("latin-1"), "fields": fields}
        return 200, ["content-type: application/json"], json.dumps(known).encode()
    return 404, [], b"nothing here"


async def _pieces(reader: asyncio.StreamReader, fields: dict[str, str]):  # type: ignore[no-untyped-def]
    if fields.get("transfer-encoding") == "chunked":
        while length := int(await reader.readline(), 16):
            yield await reader.readexactly(length)
            await reader.readline()
        await reader.readline()
        return
    left = int(fields.get("content-length", 0))
    while left:
        piece = await reader.read(min(left, 65536))
        if not piece:
            return
        left -= len(piece)
        yield piece
