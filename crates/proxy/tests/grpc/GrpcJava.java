import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientInterceptors;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.ClientResponseObserver;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.StreamObserver;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

/**
 * gRPC's interoperability cases with grpc-java as the client, as
 * https://github.com/grpc/grpc/blob/master/doc/interop-test-descriptions.md has them: calls grpc.testing.TestService at
 * an address, and prints the name of each case that went well.
 */
class GrpcJava {
    private static final int[] SENT = {27182, 8, 1828, 45904};
    private static final int[] WANTED = {31415, 9, 2653, 58979};
    private static Channel channel;

    public static void main(String[] arguments) throws Exception {
        var managed = Grpc.newChannelBuilder(arguments[0], InsecureChannelCredentials.create())
                .maxInboundMessageSize(8 << 20).build();
        channel = managed;
        emptyUnary();
        largeUnary(channel);
        clientStreaming();
        serverStreaming();
        pingPong();
        emptyStream();
        timeoutOnSleepingServer();
        cancelAfterBegin();
        cancelAfterFirstResponse();
        status("status_code_and_message", "test status message");
        status("special_status_message",
                "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \ud83d\ude08\t\n");
        customMetadata();
        unimplemented("unimplemented_method", "grpc.testing.TestService/UnimplementedCall");
        unimplemented("unimplemented_service", "grpc.testing.UnimplementedService/UnimplementedCall");
        managed.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
        System.exit(0);
    }

    private static void emptyUnary() {
        check(unary(channel, "EmptyCall", new byte[0]).length == 0);
        passed("empty_unary");
    }

    private static void largeUnary(Channel channel) throws IOException {
        var response = unary(channel, "UnaryCall", join(number(2, 314159), bytes(3, payload(271828))));
        check(size(response) == 314159);
        if (channel == GrpcJava.channel) passed("large_unary");
    }

    private static void clientStreaming() throws Exception {
        var heard = new Heard();
        var call = channel.newCall(method("StreamingInputCall", MethodType.CLIENT_STREAMING), options());
        var requests = ClientCalls.asyncClientStreamingCall(call, heard);
        for (int size : SENT) requests.onNext(bytes(1, payload(size)));
        requests.onCompleted();
        check(Arrays.equals(heard.next(), number(1, 74922)));
        heard.ended();
        passed("client_streaming");
    }

    private static void serverStreaming() throws Exception {
        var request = new byte[0];
        for (int size : WANTED) request = join(request, bytes(2, number(1, size)));
        var call = method("StreamingOutputCall", MethodType.SERVER_STREAMING);
        var responses = ClientCalls.blockingServerStreamingCall(channel, call, options(), request);
        for (int size : WANTED) check(size(responses.next()) == size);
        check(!responses.hasNext());
        passed("server_streaming");
    }

    private static void pingPong() throws Exception {
        var heard = new Heard();
        var requests = duplex(heard, options());
        for (int turn = 0; turn < 4; turn++) {
            requests.onNext(join(bytes(2, number(1, WANTED[turn])), bytes(3, payload(SENT[turn]))));
            check(size(heard.next()) == WANTED[turn]);
        }
        requests.onCompleted();
        heard.ended();
        passed("ping_pong");
    }

    private static void emptyStream() throws Exception {
        var heard = new Heard();
        duplex(heard, options()).onCompleted();
        heard.ended();
        passed("empty_stream");
    }

    private static void timeoutOnSleepingServer() throws Exception {
        var heard = new Heard();
        var requests = duplex(heard, CallOptions.DEFAULT.withDeadlineAfter(1, TimeUnit.MILLISECONDS));
        try {
            requests.onNext(bytes(3, payload(27182)));
        } catch (IllegalStateException over) {
            // It was over before.
        }
        heard.failed(Status.Code.DEADLINE_EXCEEDED);
        passed("timeout_on_sleeping_server");
    }

    private static void cancelAfterBegin() throws Exception {
        var heard = new Heard();
        var call = channel.newCall(method("StreamingInputCall", MethodType.CLIENT_STREAMING), options());
        ClientCalls.asyncClientStreamingCall(call, heard);
        heard.cancel();
        heard.failed(Status.Code.CANCELLED);
        passed("cancel_after_begin");
    }

    private static void cancelAfterFirstResponse() throws Exception {
        var heard = new Heard();
        duplex(heard, options()).onNext(join(bytes(2, number(1, 31415)), bytes(3, payload(27182))));
        check(size(heard.next()) == 31415);
        heard.cancel();
        heard.failed(Status.Code.CANCELLED);
        passed("cancel_after_first_response");
    }

    private static void status(String name, String text) throws Exception {
        var wanted = bytes(7, join(number(1, 2), bytes(2, text.getBytes(StandardCharsets.UTF_8))));
        var told = fails(() -> unary(channel, "UnaryCall", wanted));
        check(told.getCode() == Status.Code.UNKNOWN && told.getDescription().equals(text));
        var heard = new Heard();
        var requests = duplex(heard, options());
        requests.onNext(wanted);
        requests.onCompleted();
        check(heard.failed(Status.Code.UNKNOWN).getDescription().equals(text));
        passed(name);
    }

    private static void customMetadata() throws Exception {
        var first = Metadata.Key.of("x-grpc-test-echo-initial", Metadata.ASCII_STRING_MARSHALLER);
        var last = Metadata.Key.of("x-grpc-test-echo-trailing-bin", Metadata.BINARY_BYTE_MARSHALLER);
        byte[] octets = {(byte) 0xab, (byte) 0xab, (byte) 0xab};
        var sent = new Metadata();
        sent.put(first, "test_initial_metadata_value");
        sent.put(last, octets);
        var heads = new AtomicReference<Metadata>();
        var trailers = new AtomicReference<Metadata>();
        var told = ClientInterceptors.intercept(channel, MetadataUtils.newAttachHeadersInterceptor(sent),
                MetadataUtils.newCaptureMetadataInterceptor(heads, trailers));
        largeUnary(told);
        check(heads.get().get(first).equals("test_initial_metadata_value"));
        check(Arrays.equals(trailers.get().get(last), octets));
        var request = join(bytes(2, number(1, 314159)), bytes(3, payload(271828)));
        var heard = new Heard();
        var call = told.newCall(method("FullDuplexCall", MethodType.BIDI_STREAMING), options());
        var requests = ClientCalls.asyncBidiStreamingCall(call, heard);
        requests.onNext(request);
        requests.onCompleted();
        check(size(heard.next()) == 314159);
        heard.ended();
        check(heads.get().get(first).equals("test_initial_metadata_value"));
        check(Arrays.equals(trailers.get().get(last), octets));
        passed("custom_metadata");
    }

    private static void unimplemented(String name, String method) {
        var call = described(method, MethodType.UNARY);
        var told = fails(() -> ClientCalls.blockingUnaryCall(channel, call, options(), new byte[0]));
        check(told.getCode() == Status.Code.UNIMPLEMENTED);
        passed(name);
    }

    // What calls are made of.

    private static byte[] unary(Channel channel, String method, byte[] request) {
        return ClientCalls.blockingUnaryCall(channel, method(method, MethodType.UNARY), options(), request);
    }

    private static StreamObserver<byte[]> duplex(Heard heard, CallOptions options) {
        var call = channel.newCall(method("FullDuplexCall", MethodType.BIDI_STREAMING), options);
        return ClientCalls.asyncBidiStreamingCall(call, heard);
    }

    private static CallOptions options() {
        return CallOptions.DEFAULT.withDeadlineAfter(20, TimeUnit.SECONDS);
    }

    private static MethodDescriptor<byte[], byte[]> method(String name, MethodType type) {
        return described("grpc.testing.TestService/" + name, type);
    }

    private static MethodDescriptor<byte[], byte[]> described(String name, MethodType type) {
        return MethodDescriptor.<byte[], byte[]>newBuilder().setType(type).setFullMethodName(name)
                .setRequestMarshaller(new Octets()).setResponseMarshaller(new Octets()).build();
    }

    private static Status fails(Runnable call) {
        try {
            call.run();
        } catch (StatusRuntimeException error) {
            return error.getStatus();
        }
        throw new AssertionError("it did not fail");
    }

    private static class Octets implements MethodDescriptor.Marshaller<byte[]> {
        public InputStream stream(byte[] octets) {
            return new ByteArrayInputStream(octets);
        }

        public byte[] parse(InputStream stream) {
            try {
                return stream.readAllBytes();
            } catch (IOException error) {
                throw new AssertionError(error);
            }
        }
    }

    /** What came of a call: messages, and how it ended. */
    private static class Heard implements ClientResponseObserver<byte[], byte[]> {
        private record One(byte[] message, Throwable failure) {}

        private final BlockingQueue<One> all = new LinkedBlockingQueue<>();
        private ClientCallStreamObserver<byte[]> requests;

        public void beforeStart(ClientCallStreamObserver<byte[]> requests) {
            this.requests = requests;
        }

        public void onNext(byte[] message) {
            all.add(new One(message, null));
        }

        public void onError(Throwable failure) {
            all.add(new One(null, failure));
        }

        public void onCompleted() {
            all.add(new One(null, null));
        }

        void cancel() {
            requests.cancel("as the case wants", null);
        }

        private One one() throws InterruptedException {
            var one = all.poll(20, TimeUnit.SECONDS);
            check(one != null);
            return one;
        }

        byte[] next() throws InterruptedException {
            var one = one();
            if (one.failure != null) throw new AssertionError(one.failure);
            check(one.message != null);
            return one.message;
        }

        void ended() throws InterruptedException {
            var one = one();
            if (one.failure != null) throw new AssertionError(one.failure);
            check(one.message == null);
        }

        Status failed(Status.Code code) throws InterruptedException {
            var one = one();
            check(one.failure != null);
            var status = Status.fromThrowable(one.failure);
            if (status.getCode() != code) throw new AssertionError(status);
            return status;
        }
    }

    // Protocol Buffers, as far as these messages need them.

    private static byte[] number(int field, int value) {
        return join(varint(field << 3), varint(value));
    }

    private static byte[] bytes(int field, byte[] value) {
        return join(varint(field << 3 | 2), varint(value.length), value);
    }

    private static byte[] payload(int size) {
        return bytes(2, new byte[size]);
    }

    /** The bytes of the payload in a response that has nothing else. */
    private static int size(byte[] response) throws IOException {
        var stream = new ByteArrayInputStream(response);
        check(stream.read() == (1 << 3 | 2));
        int left = varint(stream);
        check(left == stream.available());
        while (stream.available() > 0) {
            int tag = stream.read();
            int value = varint(stream);
            if (tag == (2 << 3 | 2)) {
                check(value == stream.available());
                return value;
            }
        }
        return 0;
    }

    private static int varint(InputStream stream) throws IOException {
        int value = 0;
        for (int shift = 0; ; shift += 7) {
            int octet = stream.read();
            value |= (octet & 0x7f) << shift;
            if (octet < 0x80) return value;
        }
    }

    private static byte[] varint(int value) {
        var octets = new ByteArrayOutputStream();
        for (; value > 0x7f; value >>>= 7) octets.write(value & 0x7f | 0x80);
        octets.write(value);
        return octets.toByteArray();
    }

    private static byte[] join(byte[]... parts) {
        var octets = new ByteArrayOutputStream();
        for (var part : parts) octets.writeBytes(part);
        return octets.toByteArray();
    }

    private static void check(boolean is) {
        if (!is) throw new AssertionError();
    }

    private static void passed(String name) {
        System.out.println(name);
    }
}
