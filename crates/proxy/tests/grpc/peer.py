"""A server and a client of gRPC, Python's own: the client calls the server through a proxy.

Prints the server's port, reads the proxy's address, and prints a line for each story that went well.
"""

import sys
import threading
import time
from concurrent import futures

import grpc

STORIES = []
seen = {"cancelled": threading.Event(), "failures": 0, "remaining": None}


def story(function):
    STORIES.append(function)
    return function


class Calls(grpc.GenericRpcHandler):
    """Messages are bytes."""

    def service(self, details):
        name = details.method.rsplit("/", 1)[1]
        if details.method == "/grpc.health.v1.Health/Check":
            return grpc.unary_unary_rpc_method_handler(lambda request, context: b"\x08\x01")
        kinds = {
            "echo": grpc.unary_unary_rpc_method_handler,
            "fail": grpc.unary_unary_rpc_method_handler,
            "slow": grpc.unary_unary_rpc_method_handler,
            "flaky": grpc.unary_unary_rpc_method_handler,
            "remaining": grpc.unary_unary_rpc_method_handler,
            "many": grpc.unary_stream_rpc_method_handler,
            "endless": grpc.unary_stream_rpc_method_handler,
            "joined": grpc.stream_unary_rpc_method_handler,
            "each": grpc.stream_stream_rpc_method_handler,
        }
        return kinds[name](globals()[name]) if name in kinds else None


def echo(request, context):
    context.send_initial_metadata((("x-first", "1"),))
    context.set_trailing_metadata((("x-last", "2"), ("x-last-bin", b"\x00\xff")))
    return request


def fail(request, context):
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "50 % of \u00e9\n")


def slow(request, context):
    time.sleep(2)
    return request


def flaky(request, context):
    seen["failures"] += 1
    if seen["failures"] < 3:
        context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
    return request


def remaining(request, context):
    left = context.time_remaining()
    return b"none" if left is None or left > 1e6 else str(left).encode()


def many(request, context):
    for number in range(100):
        yield request * number


def endless(request, context):
    context.add_callback(seen["cancelled"].set)
    while context.is_active():
        yield b"x" * 1000


def joined(requests, context):
    return b",".join(requests)


def each(requests, context):
    for request in requests:
        yield request[::-1]


def status_of(call):
    try:
        call()
    except grpc.RpcError as error:
        return error.code(), error.details()
    return grpc.StatusCode.OK, ""


@story
def unary(channel):
    call = channel.unary_unary("/test.Calls/echo")
    answer, told = call.with_call(b"hello", timeout=10)
    assert answer == b"hello"
    assert ("x-first", "1") in told.initial_metadata()
    trailers = dict(told.trailing_metadata())
    assert (trailers["x-last"], trailers["x-last-bin"]) == ("2", b"\x00\xff"), trailers
    assert call(b"", timeout=10) == b""
    large = b"0123456789" * 300_000
    assert call(large, timeout=20) == large


@story
def statuses(channel):
    call = channel.unary_unary("/test.Calls/fail")
    code, text = status_of(lambda: call(b"", timeout=10))
    assert (code, text) == (grpc.StatusCode.FAILED_PRECONDITION, "50 % of \u00e9\n"), (code, text)
    call = channel.unary_unary("/test.Calls/missing")
    assert status_of(lambda: call(b"", timeout=10))[0] == grpc.StatusCode.UNIMPLEMENTED
    call = channel.unary_unary("/closed.Calls/echo")
    assert status_of(lambda: call(b"", timeout=10))[0] == grpc.StatusCode.UNAVAILABLE
    call = channel.unary_unary("/none.Calls/echo")
    assert status_of(lambda: call(b"", timeout=10))[0] == grpc.StatusCode.UNIMPLEMENTED


@story
def streams(channel):
    answers = channel.unary_stream("/test.Calls/many")(b"ab", timeout=20)
    assert [len(answer) for answer in answers] == [2 * number for number in range(100)]
    pieces = [str(number).encode() for number in range(200)]
    assert channel.stream_unary("/test.Calls/joined")(iter(pieces), timeout=20) == b",".join(pieces)
    answers = channel.stream_stream("/test.Calls/each")(iter(pieces), timeout=20)
    assert list(answers) == [piece[::-1] for piece in pieces]


@story
def to_and_fro(channel):
    """Each message is sent when the answer to the one before is here."""
    turns = [threading.Event() for _ in range(20)]

    def messages():
        for number, turn in enumerate(turns):
            assert turn.wait(10)
            yield str(number).encode()

    turns[0].set()
    answers = channel.stream_stream("/test.Calls/each")(messages(), timeout=20)
    for number, answer in enumerate(answers):
        assert answer == str(number).encode()[::-1]
        if number + 1 < len(turns):
            turns[number + 1].set()


@story
def many_at_once(channel):
    call = channel.unary_unary("/test.Calls/echo")
    asked = [(str(number).encode() * 1000) for number in range(200)]
    answers = [call.future(one, timeout=20) for one in asked]
    assert [answer.result() for answer in answers] == asked


@story
def deadlines(channel):
    call = channel.unary_unary("/test.Calls/slow")
    assert status_of(lambda: call(b"", timeout=0.3))[0] == grpc.StatusCode.DEADLINE_EXCEEDED
    call = channel.unary_unary("/test.Calls/remaining")
    left = float(call(b"", timeout=5))
    # grpcio rounds its own time up.
    assert 3 < left < 5.5, left
    # The route gives half a second at most, and the client much more.
    call = channel.unary_unary("/short.Calls/remaining")
    left = float(call(b"", timeout=60))
    assert left <= 0.5, left
    call = channel.unary_unary("/short.Calls/slow")
    assert status_of(lambda: call(b"", timeout=60))[0] == grpc.StatusCode.DEADLINE_EXCEEDED


@story
def cancellation(channel):
    answers = channel.unary_stream("/test.Calls/endless")(b"", timeout=20)
    assert len(next(answers)) == 1000
    answers.cancel()
    assert seen["cancelled"].wait(10), "the server hears of it"


@story
def retries(channel):
    assert channel.unary_unary("/retried.Calls/flaky")(b"again", timeout=10) == b"again"
    assert seen["failures"] == 3


def main():
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16))
    server.add_generic_rpc_handlers((Calls(),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    address = sys.stdin.readline().strip()
    with grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", -1)]) as channel:
        for one in STORIES:
            one(channel)
            print(one.__name__, flush=True)
    server.stop(None)


main()
