import com.sun.net.httpserver.HttpsConfigurator;
import com.sun.net.httpserver.HttpsExchange;
import com.sun.net.httpserver.HttpsParameters;
import com.sun.net.httpserver.HttpsServer;
import java.io.FileInputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.concurrent.Executors;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.TrustManagerFactory;

/** As peer.py, with certificate and key in one file of PKCS #12 in the place of the certificate. */
class Peer {
    public static void main(String[] words) throws Exception {
        int first = words.length - 4;
        var password = "changeit".toCharArray();
        var own = KeyStore.getInstance("PKCS12");
        own.load(new FileInputStream(words[first]), password);
        var keys = KeyManagerFactory.getInstance("SunX509");
        keys.init(own, password);
        var roots = KeyStore.getInstance("PKCS12");
        roots.load(null, null);
        var root = CertificateFactory.getInstance("X.509").generateCertificate(new FileInputStream(words[first + 2]));
        roots.setCertificateEntry("root", root);
        var trust = TrustManagerFactory.getInstance("PKIX");
        trust.init(roots);
        var tls = SSLContext.getInstance("TLS");
        tls.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
        String[] version = {words[first + 3]};
        if (words[0].equals("serve")) serve(tls, version);
        else call(tls, version, words[1]);
        System.exit(0);
    }

    private static void serve(SSLContext tls, String[] version) throws Exception {
        var server = HttpsServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.setHttpsConfigurator(new HttpsConfigurator(tls) {
            @Override
            public void configure(HttpsParameters parameters) {
                SSLParameters wanted = tls.getDefaultSSLParameters();
                wanted.setProtocols(version);
                wanted.setNeedClientAuth(true);
                parameters.setSSLParameters(wanted);
            }
        });
        server.createContext("/", exchange -> {
            long length = exchange.getRequestBody().transferTo(java.io.OutputStream.nullOutputStream());
            var session = ((HttpsExchange) exchange).getSSLSession();
            var client = (X509Certificate) session.getPeerCertificates()[0];
            var name = client.getSubjectX500Principal().getName().replaceFirst("^.*CN=([^,]*).*$", "$1");
            byte[] said = (length + " " + name + " " + session.getProtocol()).getBytes();
            exchange.sendResponseHeaders(200, said.length);
            exchange.getResponseBody().write(said);
            exchange.close();
        });
        server.setExecutor(Executors.newCachedThreadPool());
        server.start();
        System.out.println(server.getAddress().getPort());
        while (System.in.read() >= 0) {}
    }

    private static void call(SSLContext tls, String[] version, String address) throws Exception {
        for (int requests : new int[] {3, 1}) {
            var parameters = new SSLParameters();
            parameters.setProtocols(version);
            var client = HttpClient.newBuilder().sslContext(tls).sslParameters(parameters)
                .version(HttpClient.Version.HTTP_1_1).build();
            String said = "";
            for (int turn = 0; turn < requests; turn++) {
                var request = HttpRequest.newBuilder(URI.create("https://" + address + "/"))
                    .POST(HttpRequest.BodyPublishers.ofByteArray(new byte[300_000])).build();
                var answer = client.send(request, HttpResponse.BodyHandlers.ofString());
                if (answer.statusCode() != 200 || !answer.body().startsWith("300000 ")) {
                    throw new AssertionError(answer.statusCode() + " " + answer.body());
                }
                said = answer.sslSession().get().getProtocol();
            }
            System.out.println(said);
        }
    }
}
