package io.towpath;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import okhttp3.OkHttpClient;
import okhttp3.Request;
import okhttp3.Response;

/**
 * Gets a URL, however long there is no network, and prints when its answer was there: {@code cargo xtask bindings
 * outage}.
 */
final class Fetch {
  private Fetch() {}

  public static void main(String[] words) throws IOException {
    // An app has loaded its classes when the network returns: another engine asks this process itself before.
    try (ServerSocket self = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      Thread thread = new Thread(() -> answer(self));
      thread.setDaemon(true);
      thread.start();
      get("http://127.0.0.1:" + self.getLocalPort() + "/");
    }
    System.out.println(get(words[0]));
  }

  /** When the answer was there. */
  private static String get(String url) throws IOException {
    OkHttpClient patient =
        new OkHttpClient.Builder().connectTimeout(Duration.ZERO).readTimeout(Duration.ZERO).build();
    try (TowpathEngine engine = TowpathEngine.create()) {
      Request request = new Request.Builder().url(url).build();
      try (Response response = TowpathInterceptor.callFactory(patient, engine).newCall(request).execute()) {
        response.body().string();
        Instant now = Instant.now();
        return String.format("%d.%09d", now.getEpochSecond(), now.getNano());
      }
    }
  }

  private static void answer(ServerSocket server) {
    try (Socket socket = server.accept()) {
      int lineEnds = 0;
      while (lineEnds < 4) {
        int read = socket.getInputStream().read();
        lineEnds = read == '\r' || read == '\n' ? lineEnds + 1 : 0;
      }
      String answer = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
      socket.getOutputStream().write(answer.getBytes(StandardCharsets.US_ASCII));
    } catch (IOException error) {
      // The request fails, and says so.
    }
  }
}
