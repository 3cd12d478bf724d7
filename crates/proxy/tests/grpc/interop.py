"""gRPC's own interoperability cases, both ends by Python's grpcio: the client calls the server through a proxy.

Each case is as https://github.com/grpc/grpc/blob/master/doc/interop-test-descriptions.md has it, with the messages of
grpc.testing.TestService. Prints the server's port, reads the proxy's address, and prints a line for each case that went
well.
"""

import sys
import threading
import time
from concurrent import futures

import grpc

CASES = []
SERVICE = "/grpc.testing.TestService/"
INITIAL, TRAILING = "x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin"
PATIENCE = 20


def case(function):
    CASES.append(function)
    return function


# Protocol Buffers, as far as these messages need them: numbers and what has a length.


def varint(value):
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)


def message(**fields):
    """`f3=b"..."` is field 3; a list is a repeated field."""
    octets = b""
    for name, values in fields.items():
        for value in values if isinstance(values, list) else [values]:
            number = int(name[1:])
            if isinstance(value, int):
                octets += varint(number << 3) + varint(value)
            else:
                octets += varint(number << 3 | 2) + varint(len(value)) + value
    return octets


def parsed(octets):
    """The values of each field in a list."""
    fields, at = {}, 0

    def number():
        nonlocal at
        value, shift = 0, 0
        while True:
            octet = octets[at]
            at += 1
            value |= (octet & 0x7F) << shift
            shift += 7
            if octet < 0x80:
                return value

    while at < len(octets):
        key = number()
        value = number()
        if key & 7 == 2:
            value, at = octets[at : at + value], at + value
        fields.setdefault(key >> 3, []).append(value)
    return fields


def payload(size):
    return message(f2=bytes(size))


def size_of(response):
    """Of the payload in a response's first field."""
    return len(parsed(parsed(response)[1][0]).get(2, [b""])[0])


# The server.


def echo_metadata(context):
    told = dict(context.invocation_metadata())
    if INITIAL in told:
        context.send_initial_metadata(((INITIAL, told[INITIAL]),))
    if TRAILING in told:
        context.set_trailing_metadata(((TRAILING, told[TRAILING]),))


def echo_status(request, context):
    for status in request.get(7, []):
        status = parsed(status)
        context.set_code(next(code for code in grpc.StatusCode if code.value[0] == status[1][0]))
        context.set_details(status[2][0].decode())
        return True
    return False


def empty_call(request, context):
    assert request == b""
    return b""


def unary_call(octets, context):
    echo_metadata(context)
    request = parsed(octets)
    if echo_status(request, context):
        return b""
    return message(f1=payload(request.get(2, [0])[0]))


def streaming_input_call(requests, context):
    total = sum(size_of(request) for request in requests)
    return message(f1=total)


def responses_to(request):
    for parameters in request.get(2, []):
        parameters = parsed(parameters)
        time.sleep(parameters.get(2, [0])[0] / 1e6)
        yield message(f1=payload(parameters[1][0]))


def streaming_output_call(octets, context):
    yield from responses_to(parsed(octets))


def full_duplex_call(requests, context):
    echo_metadata(context)
    for octets in requests:
        request = parsed(octets)
        if echo_status(request, context):
            return
        yield from responses_to(request)


HANDLERS = {
    "EmptyCall": grpc.unary_unary_rpc_method_handler(empty_call),
    "UnaryCall": grpc.unary_unary_rpc_method_handler(unary_call),
    "StreamingInputCall": grpc.stream_unary_rpc_method_handler(streaming_input_call),
    "StreamingOutputCall": grpc.unary_stream_rpc_method_handler(streaming_output_call),
    "FullDuplexCall": grpc.stream_stream_rpc_method_handler(full_duplex_call),
}


# The client.


def wanted(*sizes, **others):
    return message(f2=[message(f1=size) for size in sizes], **others)


def ends_with(code, call):
    try:
        call()
    except grpc.RpcError as error:
        assert error.code() == code, error
        return error
    raise AssertionError("it went well")


@case
def empty_unary(channel):
    assert channel.unary_unary(SERVICE + "EmptyCall")(b"", timeout=PATIENCE) == b""


@case
def large_unary(channel):
    request = message(f2=314159, f3=payload(271828))
    response = channel.unary_unary(SERVICE + "UnaryCall")(request, timeout=PATIENCE)
    assert size_of(response) == 314159


@case
def client_streaming(channel):
    requests = [message(f1=payload(size)) for size in (27182, 8, 1828, 45904)]
    call = channel.stream_unary(SERVICE + "StreamingInputCall")
    assert parsed(call(iter(requests), timeout=PATIENCE)) == {1: [74922]}


@case
def server_streaming(channel):
    sizes = [31415, 9, 2653, 58979]
    responses = channel.unary_stream(SERVICE + "StreamingOutputCall")(wanted(*sizes), timeout=PATIENCE)
    assert [size_of(response) for response in responses] == sizes


class Pipe:
    """Requests that are sent one at a time."""

    def __init__(self):
        self.changed = threading.Condition()
        self.waiting = []

    def put(self, request):
        with self.changed:
            self.waiting.append(request)
            self.changed.notify()

    def __iter__(self):
        return self

    def __next__(self):
        with self.changed:
            self.changed.wait_for(lambda: self.waiting, PATIENCE)
            request = self.waiting.pop(0) if self.waiting else None
        if request is None:
            raise StopIteration
        return request


@case
def ping_pong(channel):
    pipe = Pipe()
    responses = channel.stream_stream(SERVICE + "FullDuplexCall")(pipe, timeout=PATIENCE)
    for wants, sends in ((31415, 27182), (9, 8), (2653, 1828), (58979, 45904)):
        pipe.put(wanted(wants, f3=payload(sends)))
        assert size_of(next(responses)) == wants
    pipe.put(None)
    assert list(responses) == []


@case
def empty_stream(channel):
    responses = channel.stream_stream(SERVICE + "FullDuplexCall")(iter([]), timeout=PATIENCE)
    assert list(responses) == []


@case
def timeout_on_sleeping_server(channel):
    pipe = Pipe()
    responses = channel.stream_stream(SERVICE + "FullDuplexCall")(pipe, timeout=0.001)
    pipe.put(message(f3=payload(27182)))
    ends_with(grpc.StatusCode.DEADLINE_EXCEEDED, lambda: next(responses))
    pipe.put(None)


@case
def cancel_after_begin(channel):
    pipe = Pipe()
    call = channel.stream_unary(SERVICE + "StreamingInputCall").future(pipe, timeout=PATIENCE)
    assert call.cancel()
    assert call.cancelled() and call.code() == grpc.StatusCode.CANCELLED
    pipe.put(None)


@case
def cancel_after_first_response(channel):
    pipe = Pipe()
    responses = channel.stream_stream(SERVICE + "FullDuplexCall")(pipe, timeout=PATIENCE)
    pipe.put(wanted(31415, f3=payload(27182)))
    assert size_of(next(responses)) == 31415
    responses.cancel()
    ends_with(grpc.StatusCode.CANCELLED, lambda: next(responses))
    pipe.put(None)


def both_kinds_end_with(channel, code, text):
    status = message(f1=code.value[0], f2=text.encode())
    call = channel.unary_unary(SERVICE + "UnaryCall")
    assert ends_with(code, lambda: call(message(f7=status), timeout=PATIENCE)).details() == text
    call = channel.stream_stream(SERVICE + "FullDuplexCall")
    responses = call(iter([message(f7=status)]), timeout=PATIENCE)
    assert ends_with(code, lambda: next(responses)).details() == text


@case
def status_code_and_message(channel):
    both_kinds_end_with(channel, grpc.StatusCode.UNKNOWN, "test status message")


@case
def special_status_message(channel):
    text = "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608\t\n"
    both_kinds_end_with(channel, grpc.StatusCode.UNKNOWN, text)


@case
def custom_metadata(channel):
    metadata = ((INITIAL, "test_initial_metadata_value"), (TRAILING, b"\xab\xab\xab"))
    call = channel.unary_unary(SERVICE + "UnaryCall")
    request = message(f2=314159, f3=payload(271828))
    response, told = call.with_call(request, metadata=metadata, timeout=PATIENCE)
    assert size_of(response) == 314159
    call = channel.stream_stream(SERVICE + "FullDuplexCall")
    responses = call(iter([wanted(314159, f3=payload(271828))]), metadata=metadata, timeout=PATIENCE)
    assert [size_of(response) for response in responses] == [314159]
    for told in (told, responses):
        assert metadata[0] in [tuple(one) for one in told.initial_metadata()]
        assert metadata[1] in [tuple(one) for one in told.trailing_metadata()]


@case
def unimplemented_method(channel):
    call = channel.unary_unary(SERVICE + "UnimplementedCall")
    ends_with(grpc.StatusCode.UNIMPLEMENTED, lambda: call(b"", timeout=PATIENCE))


@case
def unimplemented_service(channel):
    call = channel.unary_unary("/grpc.testing.UnimplementedService/UnimplementedCall")
    ends_with(grpc.StatusCode.UNIMPLEMENTED, lambda: call(b"", timeout=PATIENCE))


def main():
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16))
    serves = grpc.unary_unary_rpc_method_handler(lambda request, context: b"\x08\x01")
    services = {SERVICE.strip("/"): HANDLERS, "grpc.health.v1.Health": {"Check": serves}}
    handlers = [grpc.method_handlers_generic_handler(name, methods) for name, methods in services.items()]
    server.add_generic_rpc_handlers(handlers)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    address = sys.stdin.readline().strip()
    with grpc.insecure_channel(address) as channel:
        for one in CASES:
            one(channel)
            print(one.__name__, flush=True)
    server.stop(None)


main()
