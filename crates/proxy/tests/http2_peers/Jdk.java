import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.security.cert.X509Certificate;
import java.time.Duration;
import java.util.ArrayList;
import java.util.concurrent.CompletableFuture;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509ExtendedTrustManager;
import java.net.Socket;

/** The JDK's client, which speaks HTTP/2 by ALPN: asks at an address, and prints each story that went well. */
class Jdk {
    private final HttpClient client;
    private final String address;

    private Jdk(String address) throws Exception {
        var tls = SSLContext.getInstance("TLS");
        tls.init(null, new TrustManager[] {new Believer()}, null);
        this.client = HttpClient.newBuilder().sslContext(tls).version(HttpClient.Version.HTTP_2).build();
        this.address = address;
    }

    public static void main(String[] arguments) throws Exception {
        var it = new Jdk(arguments[0]);
        int[] sizes = {0, 1, 16_384, 16_385, 3_000_000};
        for (int bytes : sizes) it.download(bytes).join();
        System.out.println("downloads");
        for (int bytes : sizes) it.upload(bytes).join();
        System.out.println("uploads");
        try {
            it.client.send(it.to("/reset").build(), HttpResponse.BodyHandlers.ofByteArray());
            throw new AssertionError("it ended as if it were whole");
        } catch (java.io.IOException reset) {
            it.download(10).join();
        }
        System.out.println("resets");
        for (int turn = 0; turn < 10; turn++) {
            var handler = HttpResponse.BodyHandlers.ofInputStream();
            InputStream body = it.client.send(it.to("/endless").build(), handler).body();
            body.readNBytes(100_000);
            body.close();
        }
        it.download(10).join();
        System.out.println("gives_up");
        var all = new ArrayList<CompletableFuture<?>>();
        for (int turn = 0; turn < 100; turn++) {
            all.add(it.download(turn * 1000));
            all.add(it.upload(turn * 1000));
        }
        for (var one : all) one.join();
        System.out.println("many_at_once");
        System.exit(0);
    }

    private HttpRequest.Builder to(String path) {
        return HttpRequest.newBuilder(URI.create("https://" + address + path)).timeout(Duration.ofSeconds(20));
    }

    private CompletableFuture<?> download(int bytes) {
        return client.sendAsync(to("/download/" + bytes).build(), HttpResponse.BodyHandlers.ofByteArray())
                .thenAccept(response -> {
                    check(response);
                    if (!java.util.Arrays.equals(response.body(), pattern(bytes))) {
                        throw new AssertionError(response.body().length + " of " + bytes);
                    }
                });
    }

    private CompletableFuture<?> upload(int bytes) {
        var request = to("/upload").POST(HttpRequest.BodyPublishers.ofByteArray(pattern(bytes))).build();
        return client.sendAsync(request, HttpResponse.BodyHandlers.ofString()).thenAccept(response -> {
            check(response);
            if (!response.body().equals(String.valueOf(bytes))) throw new AssertionError(response.body());
        });
    }

    private static void check(HttpResponse<?> response) {
        if (response.statusCode() != 200 || response.version() != HttpClient.Version.HTTP_2) {
            throw new AssertionError(response + " " + response.version());
        }
    }

    /** Each byte of a body tells where it stands. */
    private static byte[] pattern(int length) {
        var bytes = new byte[length];
        for (int at = 0; at < length; at++) bytes[at] = (byte) (at % 251);
        return bytes;
    }

    /** The certificate is the test's own. */
    private static class Believer extends X509ExtendedTrustManager {
        public void checkClientTrusted(X509Certificate[] chain, String type) {}
        public void checkServerTrusted(X509Certificate[] chain, String type) {}
        public void checkClientTrusted(X509Certificate[] chain, String type, Socket socket) {}
        public void checkServerTrusted(X509Certificate[] chain, String type, Socket socket) {}
        public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine engine) {}
        public void checkServerTrusted(X509Certificate[] chain, String type, SSLEngine engine) {}
        public X509Certificate[] getAcceptedIssuers() { return new X509Certificate[0]; }
    }
}
