// Jetty's server of HTTP/2: prints the port on which it serves until its input ends.

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;
import org.eclipse.jetty.http.HttpFields;
import org.eclipse.jetty.http2.server.HTTP2CServerConnectionFactory;
import org.eclipse.jetty.io.Content;
import org.eclipse.jetty.server.Handler;
import org.eclipse.jetty.server.HttpConfiguration;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.Response;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.util.Callback;
import org.eclipse.jetty.util.IteratingNestedCallback;

final class Jetty extends Handler.Abstract {
    /** Each byte of a body tells where it stands. */
    static ByteBuffer pattern(long from, int length) {
        byte[] bytes = new byte[length];
        for (int at = 0; at < length; at++) bytes[at] = (byte) ((from + at) % 251);
        return ByteBuffer.wrap(bytes);
    }

    public static void main(String[] words) throws Exception {
        Server server = new Server();
        ServerConnector connector = new ServerConnector(server, new HTTP2CServerConnectionFactory(new HttpConfiguration()));
        connector.setHost("127.0.0.1");
        server.addConnector(connector);
        server.setHandler(new Jetty());
        server.start();
        System.out.println(connector.getLocalPort());
        // The test that started it has gone.
        System.in.transferTo(java.io.OutputStream.nullOutputStream());
        System.exit(0);
    }

    @Override
    public boolean handle(Request request, Response response, Callback callback) throws Exception {
        String[] path = Request.getPathInContext(request).split("/");
        response.setStatus(200);
        switch (path[1]) {
            case "download" -> send(response, Long.parseLong(path[2]), callback);
            case "endless" -> send(response, Long.MAX_VALUE, callback);
            case "upload" -> {
                long length = read(request);
                response.write(true, StandardCharsets.UTF_8.encode(Long.toString(length)), callback);
            }
            // The head is out before anything has come.
            case "echo" -> response.write(false, ByteBuffer.allocate(0), Callback.from(
                    () -> Content.copy(request, response, callback), callback::failed));
            case "trailers" -> {
                HttpFields.Mutable trailers = HttpFields.build();
                response.setTrailersSupplier(() -> trailers);
                trailers.put("x-sum", "4");
                response.write(true, StandardCharsets.UTF_8.encode("body"), callback);
            }
            case "reset" -> response.write(false, pattern(0, 1000), Callback.from(
                    () -> callback.failed(new Exception("as asked")), callback::failed));
            default -> Response.writeError(request, response, callback, 404);
        }
        return true;
    }

    /** Sends so many bytes, a piece at a time, as they are taken. */
    private static void send(Response response, long bytes, Callback callback) {
        new IteratingNestedCallback(callback) {
            private long sent;
            private boolean ended;

            @Override
            protected Action process() {
                if (ended) return Action.SUCCEEDED;
                int length = (int) Math.min(50_200, bytes - sent);
                ByteBuffer piece = pattern(sent, length);
                sent += length;
                ended = sent == bytes;
                response.write(ended, piece, this);
                return Action.SCHEDULED;
            }
        }.iterate();
    }

    /** How much came; another byte than it should be ends the request. */
    private static long read(Request request) throws Exception {
        long total = 0;
        while (true) {
            Content.Chunk chunk = request.read();
            if (chunk == null) {
                CompletableFuture<Void> more = new CompletableFuture<>();
                request.demand(() -> more.complete(null));
                more.get();
                continue;
            }
            if (Content.Chunk.isFailure(chunk)) throw new Exception(chunk.getFailure());
            ByteBuffer bytes = chunk.getByteBuffer();
            int length = bytes.remaining();
            if (!bytes.equals(pattern(total, length))) throw new Exception("another byte behind " + total);
            total += length;
            chunk.release();
            if (chunk.isLast()) return total;
        }
    }
}
