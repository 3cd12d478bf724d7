package io.towpath;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import javax.net.ssl.SSLHandshakeException;
import mockwebserver3.MockResponse;
import mockwebserver3.MockWebServer;
import mockwebserver3.RecordedRequest;
import okhttp3.Cookie;
import okhttp3.CookieJar;
import okhttp3.HttpUrl;
import okhttp3.OkHttpClient;
import okhttp3.Request;
import okhttp3.Response;
import okhttp3.WebSocket;
import okhttp3.WebSocketListener;
import okhttp3.tls.HandshakeCertificates;
import okhttp3.tls.HeldCertificate;
import okio.ByteString;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** WebSockets of OkHttp's listeners by an engine, against OkHttp's MockWebServer. */
@Timeout(60)
class WebSocketsTest {
  private static final Set<String> OURS = Set.of("io.towpath.SocketHub", "io.towpath.TowpathWebSocket");

  private final TowpathEngine engine = TowpathEngine.create();
  private final MockWebServer server = new MockWebServer();
  private final OkHttpClient client = new OkHttpClient();
  private final Told told = new Told();

  @BeforeEach
  void start() throws IOException {
    server.start();
  }

  @AfterEach
  void stop() {
    server.close();
    engine.close();
    client.dispatcher().executorService().shutdown();
  }

  private Request.Builder to(String path) {
    return new Request.Builder().url(server.url(path));
  }

  private WebSocket open(OkHttpClient with) {
    return new TowpathWebSockets(with, engine).newWebSocket(to("/chat").build(), told);
  }

  private static MockResponse chat(WebSocketListener listener) {
    return new MockResponse.Builder().webSocketUpgrade(listener).build();
  }

  @Test
  void messagesOfBothKindsComeBackAndACloseEndsIt() throws Exception {
    server.enqueue(chat(new Echo()));
    WebSocket socket = open(client);
    assertEquals("open 101", told.next());
    List<String> texts = List.of("", "hello", "ä€😀".repeat(1000), "x".repeat(300_000));
    for (String text : texts) {
      assertTrue(socket.send(text));
      assertEquals("text " + text, told.next());
      assertTrue(socket.send(ByteString.encodeUtf8(text)));
      assertEquals("bytes " + text, told.next());
    }
    assertEquals("/chat", socket.request().url().encodedPath());
    assertTrue(socket.close(4000, "enough"));
    assertFalse(socket.close(4000, "twice"));
    assertFalse(socket.send("more"));
    assertEquals("closing 4000 enough", told.next());
    assertEquals("closed 4000 enough", told.next());
    assertEquals(0, socket.queueSize());
    told.hasNoMore();
  }

  @Test
  void whatIsSentBeforeItIsOpenLeavesInOrder() throws Exception {
    server.enqueue(chat(new Echo()).newBuilder().headersDelay(200, TimeUnit.MILLISECONDS).build());
    WebSocket socket = open(client);
    for (int number = 0; number < 100; number++) {
      assertTrue(socket.send(Integer.toString(number)));
    }
    assertTrue(socket.queueSize() >= 190, "all of them wait");
    assertTrue(socket.close(1000, null));
    assertEquals("open 101", told.next());
    for (int number = 0; number < 100; number++) {
      assertEquals("text " + number, told.next());
    }
    assertEquals("closing 1000 ", told.next());
    assertEquals("closed 1000 ", told.next());
  }

  @Test
  void theServerCloses() throws Exception {
    server.enqueue(
        chat(
            new Echo() {
              @Override
              public void onMessage(WebSocket socket, String text) {
                socket.send("last");
                socket.close(1011, "no more");
              }
            }));
    WebSocket socket = open(client);
    assertTrue(socket.send("go"));
    assertEquals(List.of("open 101", "text last", "closing 1011 no more", "closed 1011 no more"), told.next(4));
    assertFalse(socket.send("more"));
    assertFalse(socket.close(1000, null));
    told.hasNoMore();
  }

  @Test
  void cancelEndsItAtOnce() throws Exception {
    server.enqueue(chat(new Echo()));
    WebSocket socket = open(client);
    assertEquals("open 101", told.next());
    socket.cancel();
    socket.cancel();
    assertEquals("failure IOException Canceled 0", told.next());
    assertFalse(socket.send("more"));
    server.enqueue(chat(new Echo()).newBuilder().headersDelay(20, TimeUnit.SECONDS).build());
    WebSocket early = open(client);
    early.cancel();
    assertEquals("failure IOException Canceled 0", told.next());
    told.hasNoMore();
  }

  @Test
  void aHandshakeIsRefused() throws Exception {
    server.enqueue(new MockResponse.Builder().code(403).body("no").build());
    open(client);
    assertEquals("failure ProtocolException Expected HTTP 101 response but was '403' 403", told.next());
    server.enqueue(new MockResponse.Builder().body("hello").build());
    open(client);
    assertEquals("failure ProtocolException Expected HTTP 101 response but was '200' 200", told.next());
    new TowpathWebSockets(client, engine)
        .newWebSocket(new Request.Builder().url("ws://127.0.0.1:1/").build(), told);
    assertTrue(told.next().startsWith("failure ConnectException "));
    Request own = to("/").header("Sec-WebSocket-Extensions", "x").build();
    new TowpathWebSockets(client, engine).newWebSocket(own, told);
    assertTrue(told.next().startsWith("failure ProtocolException Request header not permitted"));
    open(client.newBuilder().dns(host -> List.of()).build());
    assertTrue(told.next().contains("a Dns of its own"));
    TowpathEngine closed = TowpathEngine.create();
    closed.close();
    new TowpathWebSockets(client, closed).newWebSocket(to("/").build(), told);
    assertTrue(told.next().startsWith("failure IllegalStateException"));
  }

  @Test
  void codesAndReasonsAreOkHttps() throws Exception {
    server.enqueue(chat(new Echo()));
    WebSocket socket = open(client);
    assertEquals("open 101", told.next());
    for (int code : new int[] {0, 999, 1004, 1005, 1006, 1015, 2999, 5000}) {
      assertThrows(IllegalArgumentException.class, () -> socket.close(code, null));
    }
    assertThrows(IllegalArgumentException.class, () -> socket.close(1000, "x".repeat(124)));
    assertTrue(socket.close(3000, "x".repeat(123)));
    assertEquals("closing 3000 " + "x".repeat(123), told.next());
  }

  @Test
  void moreThan16MibDoNotWait() throws Exception {
    try (Silent silent = new Silent()) {
      OkHttpClient quick = client.newBuilder().webSocketCloseTimeout(Duration.ofMillis(200)).build();
      WebSocket socket = new TowpathWebSockets(quick, engine).newWebSocket(silent.request(), told);
      assertEquals("open 101", told.next());
      ByteString piece = ByteString.of(new byte[1 << 20]);
      int sent = 0;
      while (socket.send(piece)) {
        sent++;
        assertTrue(sent < 64, "it never ends");
        assertTrue(socket.queueSize() <= 16 << 20);
      }
      assertTrue(sent >= 16, "only " + sent);
      // It is closed behind what waits, which never leaves.
      assertFalse(socket.send("more"));
      assertFalse(socket.close(1000, null));
      socket.cancel();
      assertEquals("failure IOException Canceled 0", told.next());
    }
  }

  @Test
  void whatWaitsLeavesWhenThereIsRoom() throws Exception {
    server.enqueue(chat(new Echo()));
    WebSocket socket = open(client);
    assertEquals("open 101", told.next());
    int count = 100;
    for (int number = 0; number < count; number++) {
      while (socket.queueSize() > 8 << 20) {
        Thread.sleep(1);
      }
      assertTrue(socket.send(number + "x".repeat(200_000)));
    }
    for (int number = 0; number < count; number++) {
      assertTrue(told.next().startsWith("text " + number + "x"));
    }
    assertEquals(0, socket.queueSize());
    socket.cancel();
  }

  @Test
  void limitsOnTimeAreThoseOfTheHandshake() throws Exception {
    OkHttpClient quick = client.newBuilder().readTimeout(Duration.ofMillis(300)).build();
    server.enqueue(chat(new Echo()));
    WebSocket socket = open(quick);
    assertEquals("open 101", told.next());
    Thread.sleep(1000);
    assertTrue(socket.send("still there"));
    assertEquals("text still there", told.next());
    socket.close(1000, null);
    assertEquals(List.of("closing 1000 ", "closed 1000 "), told.next(2));
    server.enqueue(chat(new Echo()).newBuilder().headersDelay(20, TimeUnit.SECONDS).build());
    open(quick);
    assertTrue(told.next().startsWith("failure SocketTimeoutException"));
  }

  @Test
  void aSilentServerIsFoundByPings() throws Exception {
    try (Silent silent = new Silent()) {
      OkHttpClient asks = client.newBuilder().pingInterval(Duration.ofMillis(100)).build();
      new TowpathWebSockets(asks, engine).newWebSocket(silent.request(), told);
      assertEquals("open 101", told.next());
      assertTrue(told.next().startsWith("failure SocketTimeoutException"));
    }
  }

  @Test
  void fieldsSubprotocolsAndCookiesAreThoseOfTheRequestAndTheClient() throws Exception {
    List<Cookie> kept = new ArrayList<>();
    CookieJar jar =
        new CookieJar() {
          @Override
          public void saveFromResponse(HttpUrl url, List<Cookie> cookies) {
            kept.addAll(cookies);
          }

          @Override
          public List<Cookie> loadForRequest(HttpUrl url) {
            return List.of(new Cookie.Builder().name("a").value("1").domain(url.host()).build());
          }
        };
    server.enqueue(
        chat(new Echo())
            .newBuilder()
            .addHeader("Sec-WebSocket-Protocol", "v2")
            .addHeader("Set-Cookie", "b=2")
            .build());
    Request request =
        to("/chat?x=y").header("X-Mine", "yes").header("Sec-WebSocket-Protocol", "v1, v2").build();
    OkHttpClient with = client.newBuilder().cookieJar(jar).build();
    WebSocket socket = new TowpathWebSockets(with, engine).newWebSocket(request, told);
    assertEquals("open 101", told.next());
    assertEquals("v2", told.response.header("Sec-WebSocket-Protocol"));
    assertEquals("websocket", told.response.header("Upgrade"));
    assertEquals(request.url(), told.response.request().url());
    assertEquals("yes", told.response.request().header("X-Mine"));
    assertEquals(request, socket.request());
    assertEquals("b", kept.get(0).name());
    RecordedRequest seen = server.takeRequest();
    assertEquals("/chat?x=y", seen.getTarget());
    assertEquals("v1, v2", seen.getHeaders().get("Sec-WebSocket-Protocol"));
    assertEquals("a=1", seen.getHeaders().get("Cookie"));
    assertEquals(List.of("yes"), seen.getHeaders().values("X-Mine"));
    socket.cancel();
  }

  @Test
  void redirectsAreFollowedWhereTheClientDoes() throws Exception {
    MockResponse elsewhere = new MockResponse.Builder().code(302).addHeader("Location", "/there").build();
    server.enqueue(elsewhere);
    server.enqueue(chat(new Echo()));
    WebSocket socket = open(client);
    assertEquals("open 101", told.next());
    socket.cancel();
    assertTrue(told.next().startsWith("failure"));
    server.enqueue(elsewhere);
    open(client.newBuilder().followRedirects(false).build());
    assertTrue(told.next().endsWith("'302' 302"));
  }

  @Test
  void itIsSpokenUnderTls() throws Exception {
    HeldCertificate held = new HeldCertificate.Builder().addSubjectAlternativeName("localhost").build();
    HandshakeCertificates certificates =
        new HandshakeCertificates.Builder().heldCertificate(held).addTrustedCertificate(held.certificate()).build();
    try (MockWebServer secure = new MockWebServer();
        TowpathEngine trusting = new TowpathEngine.Builder().roots(held.certificatePem()).build()) {
      secure.useHttps(certificates.sslSocketFactory());
      secure.start();
      secure.enqueue(chat(new Echo()));
      String url = "wss://localhost:" + secure.getPort() + "/";
      Request request = new Request.Builder().url(url).build();
      WebSocket socket = new TowpathWebSockets(client, trusting).newWebSocket(request, told);
      assertTrue(socket.send("secret"));
      assertEquals(List.of("open 101", "text secret"), told.next(2));
      socket.cancel();
      assertTrue(told.next().startsWith("failure IOException"));
      new TowpathWebSockets(client, engine).newWebSocket(request, told);
      assertTrue(told.next().startsWith("failure " + SSLHandshakeException.class.getSimpleName()));
    }
  }

  @Test
  void aListenerThatThrowsEndsIt() throws Exception {
    server.enqueue(chat(new Echo()));
    Told throwing =
        new Told() {
          @Override
          public void onMessage(WebSocket socket, String text) {
            throw new IllegalStateException("mine");
          }
        };
    WebSocket socket = new TowpathWebSockets(client, engine).newWebSocket(to("/").build(), throwing);
    assertTrue(socket.send("a"));
    assertEquals(List.of("open 101", "failure IllegalStateException mine 0"), throwing.next(2));
    throwing.hasNoMore();
  }

  @Test
  void aListenerThatIsSlowKeepsTheServerBackAndNobodyElse() throws Exception {
    AtomicInteger sent = new AtomicInteger();
    server.enqueue(
        chat(
            new Echo() {
              @Override
              public void onOpen(WebSocket socket, Response response) {
                Thread pours =
                    new Thread(
                        () -> {
                          ByteString piece = ByteString.of(new byte[1 << 16]);
                          while (sent.get() < 1600 && socket.send(piece)) {
                            sent.incrementAndGet();
                            while (socket.queueSize() > 1 << 20) {
                              Thread.onSpinWait();
                            }
                          }
                        });
                pours.setDaemon(true);
                pours.start();
              }
            }));
    BlockingQueue<Integer> permits = new LinkedBlockingQueue<>();
    Told slow =
        new Told() {
          @Override
          public void onMessage(WebSocket socket, ByteString bytes) {
            try {
              permits.take();
            } catch (InterruptedException error) {
              throw new IllegalStateException(error);
            }
            told.add("piece");
          }
        };
    WebSocket socket = new TowpathWebSockets(client, engine).newWebSocket(to("/").build(), slow);
    assertEquals("open 101", slow.next());
    int was = -1;
    while (was != sent.get()) {
      was = sent.get();
      Thread.sleep(300);
    }
    assertTrue(was < 400, was + " pieces are on their way to a listener that takes none");
    server.enqueue(chat(new Echo()));
    WebSocket other = open(client);
    other.send("at once");
    assertEquals(List.of("open 101", "text at once"), told.next(2));
    other.cancel();
    IntStream.range(0, 1600).forEach(permits::add);
    for (int piece = 0; piece < 1600; piece++) {
      assertEquals("piece", slow.next());
    }
    socket.cancel();
  }

  @Test
  void noThreadForASocket() throws Exception {
    int count = 40;
    TowpathEngine wide = new TowpathEngine.Builder().maxConnections(count).build();
    List<WebSocket> sockets = new ArrayList<>();
    for (int index = 0; index < count; index++) {
      server.enqueue(chat(new Echo()));
      sockets.add(new TowpathWebSockets(client, wide).newWebSocket(to("/").build(), told));
    }
    for (int index = 0; index < count; index++) {
      assertEquals("open 101", told.next());
    }
    Thread.sleep(200);
    long busy =
        Thread.getAllStackTraces().values().stream()
            .filter(stack -> Arrays.stream(stack).anyMatch(at -> OURS.contains(at.getClassName())))
            .count();
    assertEquals(1, busy, "the hub's");
    sockets.forEach(WebSocket::cancel);
    for (int index = 0; index < count; index++) {
      assertTrue(told.next().startsWith("failure IOException Canceled"));
    }
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
    while (Thread.getAllStackTraces().keySet().stream().anyMatch(thread -> thread.getName().equals("towpath sockets"))) {
      assertTrue(System.nanoTime() < end, "the hub's thread ends with the last socket");
      Thread.sleep(5);
    }
    wide.close();
  }

  @Test
  void socketsThatAreGivenUpAtAnyMoment() throws Exception {
    server.setDispatcher(
        new mockwebserver3.Dispatcher() {
          @Override
          public MockResponse dispatch(RecordedRequest request) {
            return chat(new Echo());
          }
        });
    TowpathEngine wide = new TowpathEngine.Builder().maxConnections(64).build();
    long seed = System.nanoTime();
    Random chance = new Random(seed);
    for (int round = 0; round < 150; round++) {
      Told each = new Told();
      WebSocket socket = new TowpathWebSockets(client, wide).newWebSocket(to("/").build(), each);
      for (int message = chance.nextInt(5); message > 0; message--) {
        socket.send(ByteString.of(new byte[chance.nextInt(100_000)]));
      }
      Thread.sleep(chance.nextInt(5));
      if (chance.nextBoolean()) {
        socket.close(1000, null);
      } else {
        socket.cancel();
      }
      socket.send("late");
      String last = each.next();
      while (!last.startsWith("closed") && !last.startsWith("failure")) {
        last = each.next();
      }
      each.hasNoMore();
    }
    wide.close();
  }

  /** A server's side that sends back what comes. */
  private static class Echo extends WebSocketListener {
    @Override
    public void onMessage(WebSocket socket, String text) {
      socket.send(text);
    }

    @Override
    public void onMessage(WebSocket socket, ByteString bytes) {
      socket.send(bytes);
    }

    @Override
    public void onClosing(WebSocket socket, int code, String reason) {
      socket.close(code, reason);
    }
  }

  /** What a listener was told. */
  private static class Told extends WebSocketListener {
    final BlockingQueue<String> told = new LinkedBlockingQueue<>();
    volatile Response response;

    String next() throws InterruptedException {
      String next = told.poll(20, TimeUnit.SECONDS);
      assertTrue(next != null, "nothing is told");
      return next;
    }

    List<String> next(int count) throws InterruptedException {
      List<String> list = new ArrayList<>();
      while (list.size() < count) {
        list.add(next());
      }
      return list;
    }

    void hasNoMore() throws InterruptedException {
      assertEquals(null, told.poll(20, TimeUnit.MILLISECONDS));
    }

    @Override
    public void onOpen(WebSocket socket, Response opened) {
      response = opened;
      told.add("open " + opened.code());
    }

    @Override
    public void onMessage(WebSocket socket, String text) {
      told.add("text " + text);
    }

    @Override
    public void onMessage(WebSocket socket, ByteString bytes) {
      told.add("bytes " + bytes.utf8());
    }

    @Override
    public void onClosing(WebSocket socket, int code, String reason) {
      told.add("closing " + code + " " + reason);
    }

    @Override
    public void onClosed(WebSocket socket, int code, String reason) {
      told.add("closed " + code + " " + reason);
    }

    @Override
    public void onFailure(WebSocket socket, Throwable why, Response refused) {
      int status = refused == null ? 0 : refused.code();
      told.add("failure " + why.getClass().getSimpleName() + " " + why.getMessage() + " " + status);
    }
  }

  /** A server that opens one WebSocket, and takes nothing from there. */
  private static final class Silent implements AutoCloseable {
    private final ServerSocket server = new ServerSocket(0);

    Silent() throws IOException {
      Thread thread = new Thread(this::serve);
      thread.setDaemon(true);
      thread.start();
    }

    Request request() {
      return new Request.Builder().url("ws://127.0.0.1:" + server.getLocalPort() + "/").build();
    }

    private void serve() {
      try (Socket socket = server.accept()) {
        InputStream in = socket.getInputStream();
        StringBuilder head = new StringBuilder();
        while (head.indexOf("\r\n\r\n") < 0) {
          head.append((char) in.read());
        }
        String name = "sec-websocket-key: ";
        int key = head.toString().toLowerCase(Locale.ROOT).indexOf(name) + name.length();
        String accept =
            ByteString.encodeUtf8(head.substring(key, head.indexOf("\r", key)) + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")
                .sha1()
                .base64();
        socket
            .getOutputStream()
            .write(
                ("HTTP/1.1 101 Now\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: "
                        + accept
                        + "\r\n\r\n")
                    .getBytes(StandardCharsets.US_ASCII));
        while (!server.isClosed()) {
          Thread.sleep(10);
        }
      } catch (IOException | InterruptedException error) {
        // The test is over.
      }
    }

    @Override
    public void close() throws IOException {
      server.close();
    }
  }
}
