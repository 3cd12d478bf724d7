import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientInterceptors;
import io.grpc.ClientStreamTracer;
import io.grpc.Context;
import io.grpc.ForwardingServerCall.SimpleForwardingServerCall;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.InsecureServerCredentials;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.ServerServiceDefinition;
import io.grpc.ServerStreamTracer;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.ClientResponseObserver;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.ServerCalls;
import io.grpc.stub.StreamObserver;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

/**
 * gRPC's interoperability cases by grpc-java, as
 * https://github.com/grpc/grpc/blob/master/doc/interop-test-descriptions.md has them.
 *
 * <p>{@code ADDRESS [compressed]} calls grpc.testing.TestService at an address, and prints the name of each case that
 * went well; those of compressed messages come last, where they are wanted. {@code serve} is that service: prints the
 * port on which it serves until its input ends.
 */
class GrpcJava {
    private static final int[] SENT = {27182, 8, 1828, 45904};
    private static final int[] WANTED = {31415, 9, 2653, 58979};
    private static Channel channel;

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("serve")) {
            Service.serve();
            return;
        }
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
        if (List.of(arguments).contains("compressed")) {
            clientCompressedUnary();
            serverCompressedUnary();
            clientCompressedStreaming();
            serverCompressedStreaming();
        }
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

    private static void clientCompressedUnary() throws IOException {
        var as = method("UnaryCall", MethodType.UNARY);
        var sized = join(number(2, 314159), bytes(3, payload(271828)));
        var expects = join(sized, bytes(8, number(1, 1)));
        // A server that does not look would pass what follows.
        var told = fails(() -> ClientCalls.blockingUnaryCall(channel, as, options(), expects));
        check(told.getCode() == Status.Code.INVALID_ARGUMENT);
        var compressed = options().withCompression("gzip");
        check(size(ClientCalls.blockingUnaryCall(channel, as, compressed, expects)) == 314159);
        var plain = join(sized, bytes(8, new byte[0]));
        check(size(ClientCalls.blockingUnaryCall(channel, as, options(), plain)) == 314159);
        passed("client_compressed_unary");
    }

    private static void serverCompressedUnary() throws IOException {
        var as = method("UnaryCall", MethodType.UNARY);
        for (boolean wanted : new boolean[] {true, false}) {
            var coded = new Coded();
            var request = join(number(2, 314159), bytes(3, payload(271828)), bytes(6, flag(wanted)));
            check(size(ClientCalls.blockingUnaryCall(channel, as, coded.seen(), request)) == 314159);
            check(List.copyOf(coded.messages).equals(List.of(wanted)));
        }
        passed("server_compressed_unary");
    }

    private static void clientCompressedStreaming() throws Exception {
        var probe = new Heard();
        var requests = compressing(probe);
        requests.setMessageCompression(false);
        requests.onNext(join(bytes(1, payload(27182)), bytes(2, flag(true))));
        requests.onCompleted();
        probe.failed(Status.Code.INVALID_ARGUMENT);
        var heard = new Heard();
        requests = compressing(heard);
        requests.setMessageCompression(true);
        requests.onNext(join(bytes(1, payload(27182)), bytes(2, flag(true))));
        requests.setMessageCompression(false);
        requests.onNext(join(bytes(1, payload(45904)), bytes(2, flag(false))));
        requests.onCompleted();
        check(Arrays.equals(heard.next(), number(1, 73086)));
        heard.ended();
        passed("client_compressed_streaming");
    }

    private static ClientCallStreamObserver<byte[]> compressing(Heard heard) {
        var as = method("StreamingInputCall", MethodType.CLIENT_STREAMING);
        var call = channel.newCall(as, options().withCompression("gzip"));
        return (ClientCallStreamObserver<byte[]>) ClientCalls.asyncClientStreamingCall(call, heard);
    }

    private static void serverCompressedStreaming() throws IOException {
        var request = join(
                bytes(2, join(number(1, 31415), bytes(3, flag(true)))),
                bytes(2, join(number(1, 92653), bytes(3, flag(false)))));
        var coded = new Coded();
        var as = method("StreamingOutputCall", MethodType.SERVER_STREAMING);
        var responses = ClientCalls.blockingServerStreamingCall(channel, as, coded.seen(), request);
        check(size(responses.next()) == 31415);
        check(size(responses.next()) == 92653);
        check(!responses.hasNext());
        check(List.copyOf(coded.messages).equals(List.of(true, false)));
        passed("server_compressed_streaming");
    }

    // What calls are made of.

    /** Which messages of a call came compressed. */
    private static class Coded extends ClientStreamTracer.Factory {
        final Queue<Boolean> messages = new ConcurrentLinkedQueue<>();

        CallOptions seen() {
            return options().withStreamTracerFactory(this);
        }

        @Override
        public ClientStreamTracer newClientStreamTracer(ClientStreamTracer.StreamInfo info, Metadata headers) {
            return new ClientStreamTracer() {
                @Override
                public void inboundMessageRead(int number, long onWire, long uncompressed) {
                    // Of a compressed one it is not known.
                    messages.add(uncompressed < 0);
                }
            };
        }
    }

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

    static MethodDescriptor<byte[], byte[]> method(String name, MethodType type) {
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

    static class Octets implements MethodDescriptor.Marshaller<byte[]> {
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

    static byte[] number(int field, int value) {
        return join(varint(field << 3), varint(value));
    }

    static byte[] bytes(int field, byte[] value) {
        return join(varint(field << 3 | 2), varint(value.length), value);
    }

    static byte[] payload(int size) {
        return bytes(2, new byte[size]);
    }

    private static byte[] flag(boolean is) {
        return is ? number(1, 1) : new byte[0];
    }

    /** What a message has of a field, in the order in which it came: bytes, or a number. */
    static List<Object> fields(byte[] message, int field) {
        var found = new ArrayList<Object>();
        var stream = new ByteArrayInputStream(message);
        try {
            while (stream.available() > 0) {
                int tag = varint(stream);
                int value = varint(stream);
                Object one = (tag & 7) == 2 ? stream.readNBytes(value) : (Object) value;
                if (tag >> 3 == field) found.add(one);
            }
        } catch (IOException error) {
            throw new AssertionError(error);
        }
        return found;
    }

    static int number(byte[] message, int field) {
        return fields(message, field).stream().mapToInt(one -> (Integer) one).findFirst().orElse(0);
    }

    /** What a `BoolValue` says; null where there is none. */
    static Boolean flag(byte[] message, int field) {
        return fields(message, field).stream().map(one -> number((byte[]) one, 1) == 1).findFirst().orElse(null);
    }

    /** The bytes of the payload in the first field. */
    static int size(byte[] message) {
        var body = fields(message, 1).stream().flatMap(one -> fields((byte[]) one, 2).stream());
        return body.mapToInt(one -> ((byte[]) one).length).findFirst().orElse(0);
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

    static byte[] join(byte[]... parts) {
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

/** The service that the cases call. */
class Service implements ServerInterceptor {
    private static final Metadata.Key<String> FIRST =
            Metadata.Key.of("x-grpc-test-echo-initial", Metadata.ASCII_STRING_MARSHALLER);
    private static final Metadata.Key<byte[]> LAST =
            Metadata.Key.of("x-grpc-test-echo-trailing-bin", Metadata.BINARY_BYTE_MARSHALLER);
    /** Which messages of a call came compressed, in order. */
    private static final Context.Key<Queue<Boolean>> COMPRESSED = Context.key("compressed");

    static void serve() throws Exception {
        var service = ServerServiceDefinition.builder("grpc.testing.TestService")
                .addMethod(GrpcJava.method("EmptyCall", MethodType.UNARY),
                        ServerCalls.asyncUnaryCall(Service::emptyCall))
                .addMethod(GrpcJava.method("UnaryCall", MethodType.UNARY),
                        ServerCalls.asyncUnaryCall(Service::unaryCall))
                .addMethod(GrpcJava.method("StreamingInputCall", MethodType.CLIENT_STREAMING),
                        ServerCalls.asyncClientStreamingCall(Service::streamingInputCall))
                .addMethod(GrpcJava.method("StreamingOutputCall", MethodType.SERVER_STREAMING),
                        ServerCalls.asyncServerStreamingCall(Service::streamingOutputCall))
                .addMethod(GrpcJava.method("FullDuplexCall", MethodType.BIDI_STREAMING),
                        ServerCalls.asyncBidiStreamingCall(Service::fullDuplexCall))
                .build();
        var server = Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
                .maxInboundMessageSize(8 << 20).addService(service).intercept(new Service())
                .addStreamTracerFactory(new Tracers()).build().start();
        System.out.println(server.getPort());
        // The test that started it has gone.
        System.in.transferTo(java.io.OutputStream.nullOutputStream());
        System.exit(0);
    }

    private static void emptyCall(byte[] request, StreamObserver<byte[]> responses) {
        responses.onNext(new byte[0]);
        responses.onCompleted();
    }

    private static void unaryCall(byte[] request, StreamObserver<byte[]> responses) {
        if (!came(GrpcJava.flag(request, 8), responses) || told(request, responses)) return;
        var flag = GrpcJava.flag(request, 6);
        if (flag != null) ((ServerCallStreamObserver<byte[]>) responses).setCompression("gzip");
        respond(GrpcJava.number(request, 2), flag, responses);
        responses.onCompleted();
    }

    private static StreamObserver<byte[]> streamingInputCall(StreamObserver<byte[]> responses) {
        return new Requests(responses) {
            private int total;

            void next(byte[] request) {
                total += GrpcJava.size(request);
                over = !came(GrpcJava.flag(request, 2), responses);
            }

            void completed() {
                responses.onNext(GrpcJava.number(1, total));
                responses.onCompleted();
            }
        };
    }

    private static void streamingOutputCall(byte[] request, StreamObserver<byte[]> responses) {
        // What is not to be compressed is not, whatever the call could have.
        ((ServerCallStreamObserver<byte[]>) responses).setCompression("gzip");
        respond(request, responses);
        responses.onCompleted();
    }

    private static StreamObserver<byte[]> fullDuplexCall(StreamObserver<byte[]> responses) {
        return new Requests(responses) {
            void next(byte[] request) {
                over = told(request, responses);
                if (!over) respond(request, responses);
            }

            void completed() {
                responses.onCompleted();
            }
        };
    }

    private static void respond(byte[] request, StreamObserver<byte[]> responses) {
        for (Object parameters : GrpcJava.fields(request, 2)) {
            var one = (byte[]) parameters;
            respond(GrpcJava.number(one, 1), GrpcJava.flag(one, 3), responses);
        }
    }

    private static void respond(int size, Boolean compressed, StreamObserver<byte[]> responses) {
        var call = (ServerCallStreamObserver<byte[]>) responses;
        call.setMessageCompression(Boolean.TRUE.equals(compressed));
        call.onNext(GrpcJava.bytes(1, GrpcJava.payload(size)));
    }

    /** Whether a message came as it says; refuses it otherwise. */
    private static boolean came(Boolean expected, StreamObserver<byte[]> responses) {
        boolean compressed = COMPRESSED.get().remove();
        if (expected == null || expected == compressed) return true;
        var why = "expected compressed: " + expected + ", was: " + compressed;
        responses.onError(Status.INVALID_ARGUMENT.withDescription(why).asRuntimeException());
        return false;
    }

    /** Whether a request wants a status, which ends the call. */
    private static boolean told(byte[] request, StreamObserver<byte[]> responses) {
        for (Object wanted : GrpcJava.fields(request, 7)) {
            var status = Status.fromCodeValue(GrpcJava.number((byte[]) wanted, 1));
            var text = new String((byte[]) GrpcJava.fields((byte[]) wanted, 2).get(0), StandardCharsets.UTF_8);
            responses.onError(status.withDescription(text).asRuntimeException());
            return true;
        }
        return false;
    }

    /** Says the metadata of a call again, before and behind its messages. */
    @Override
    public <Q, S> ServerCall.Listener<Q> interceptCall(
            ServerCall<Q, S> call, Metadata told, ServerCallHandler<Q, S> next) {
        return next.startCall(new SimpleForwardingServerCall<Q, S>(call) {
            @Override
            public void sendHeaders(Metadata headers) {
                if (told.containsKey(FIRST)) headers.put(FIRST, told.get(FIRST));
                super.sendHeaders(headers);
            }

            @Override
            public void close(Status status, Metadata trailers) {
                if (told.containsKey(LAST)) trailers.put(LAST, told.get(LAST));
                super.close(status, trailers);
            }
        }, told);
    }

    /** Requests until one of them has ended the call. */
    private abstract static class Requests implements StreamObserver<byte[]> {
        final StreamObserver<byte[]> responses;
        boolean over;

        Requests(StreamObserver<byte[]> responses) {
            this.responses = responses;
        }

        abstract void next(byte[] request);

        abstract void completed();

        public void onNext(byte[] request) {
            if (!over) next(request);
        }

        public void onError(Throwable failure) {
            over = true;
        }

        public void onCompleted() {
            if (!over) completed();
        }
    }

    /** Notes of each message of a call whether it came compressed. */
    private static class Tracers extends ServerStreamTracer.Factory {
        @Override
        public ServerStreamTracer newServerStreamTracer(String method, Metadata headers) {
            var compressed = new ConcurrentLinkedQueue<Boolean>();
            return new ServerStreamTracer() {
                @Override
                public Context filterContext(Context context) {
                    return context.withValue(COMPRESSED, compressed);
                }

                @Override
                public void inboundMessageRead(int number, long onWire, long uncompressed) {
                    // Of a compressed one it is not known.
                    compressed.add(uncompressed < 0);
                }
            };
        }
    }
}
