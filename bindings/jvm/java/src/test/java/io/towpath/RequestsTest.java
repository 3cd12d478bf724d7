package io.towpath;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.ConnectException;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import javax.net.ssl.SSLHandshakeException;
import mockwebserver3.MockResponse;
import mockwebserver3.MockWebServer;
import mockwebserver3.SocketEffect;
import okhttp3.Call;
import okhttp3.Callback;
import okhttp3.MediaType;
import okhttp3.OkHttpClient;
import okhttp3.Request;
import okhttp3.RequestBody;
import okhttp3.Response;
import okhttp3.tls.HandshakeCertificates;
import okhttp3.tls.HeldCertificate;
import okio.Buffer;
import okio.BufferedSink;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Requests of OkHttp's clients by an engine, against OkHttp's MockWebServer. */
@Timeout(60)
class RequestsTest {
  private final TowpathEngine engine = TowpathEngine.create();
  private final MockWebServer server = new MockWebServer();
  private OkHttpClient client;

  @BeforeEach
  void start() throws IOException {
    server.start();
    client = new OkHttpClient.Builder().addInterceptor(new TowpathInterceptor(engine)).build();
  }

  @AfterEach
  void stop() {
    server.close();
    engine.close();
  }

  private Request.Builder to(String path) {
    return new Request.Builder().url(server.url(path));
  }

  private static MockResponse ok(String body) {
    return new MockResponse.Builder().body(body).build();
  }

  @Test
  void aResponseIsWhole() throws Exception {
    server.enqueue(new MockResponse.Builder().addHeader("Content-Type", "text/plain").body("hello").build());
    try (Response response = client.newCall(to("/a?b=c").build()).execute()) {
      assertEquals(200, response.code());
      assertEquals("hello", response.body().string());
      assertEquals("text/plain", response.body().contentType().toString());
      assertTrue(TowpathInterceptor.report(response).contains("\"status\":200"));
    }
    assertEquals("/a?b=c", server.takeRequest().getTarget());
  }

  @Test
  void requestsToAHostWaitForOneAnother() throws Exception {
    BlockingQueue<String> came = new LinkedBlockingQueue<>();
    Semaphore go = new Semaphore(0);
    server.setDispatcher(
        new mockwebserver3.Dispatcher() {
          @Override
          public MockResponse dispatch(mockwebserver3.RecordedRequest request) throws InterruptedException {
            came.add(request.getTarget());
            go.acquire();
            return ok("done");
          }
        });
    try (TowpathEngine narrow = new TowpathEngine.Builder().maxRequestsPerHost(2).build()) {
      Call.Factory calls = TowpathInterceptor.callFactory(new OkHttpClient(), narrow);
      List<CompletableFuture<String>> answers = new ArrayList<>();
      List<Call> made = new ArrayList<>();
      for (int number = 0; number < 5; number++) {
        Call call = calls.newCall(to("/" + number).build());
        made.add(call);
        answers.add(
            CompletableFuture.supplyAsync(
                () -> {
                  try (Response response = call.execute()) {
                    return response.body().string();
                  } catch (IOException error) {
                    return error.getMessage();
                  }
                },
                task -> new Thread(task).start()));
        Thread.sleep(50);
      }
      assertEquals(Set.of("/0", "/1"), Set.of(came.take(), came.take()));
      assertNull(came.poll(200, TimeUnit.MILLISECONDS));
      made.get(2).cancel();
      assertEquals("Canceled", answers.get(2).get(5, TimeUnit.SECONDS));
      assertNull(came.poll(100, TimeUnit.MILLISECONDS));
      go.release();
      assertEquals("/3", came.poll(5, TimeUnit.SECONDS));
      go.release(3);
      assertEquals("/4", came.poll(5, TimeUnit.SECONDS));
      for (int number : new int[] {0, 1, 3, 4}) {
        assertEquals("done", answers.get(number).get(5, TimeUnit.SECONDS));
      }
    }
  }

  @Test
  void bodiesOfAnySizeAreSent() throws Exception {
    for (int size : new int[] {0, 1, 65536, 65537, 5_000_000}) {
      server.enqueue(ok("done"));
      RequestBody body = RequestBody.create(new byte[size], MediaType.get("application/octet-stream"));
      try (Response response = client.newCall(to("/").post(body).build()).execute()) {
        assertEquals("done", response.body().string());
      }
      var seen = server.takeRequest();
      assertEquals(size, seen.getBody().size());
      assertEquals(Integer.toString(size), seen.getHeaders().get("Content-Length"));
    }
  }

  @Test
  void aBodyOfUnknownLengthIsSentInChunks() throws Exception {
    server.enqueue(ok("done"));
    RequestBody body =
        new RequestBody() {
          @Override
          public MediaType contentType() {
            return null;
          }

          @Override
          public void writeTo(BufferedSink sink) throws IOException {
            for (int piece = 0; piece < 30; piece++) {
              sink.write(new byte[100_000]).flush();
            }
          }
        };
    client.newCall(to("/").put(body).build()).execute().close();
    var seen = server.takeRequest();
    assertEquals(3_000_000, seen.getBody().size());
    assertEquals("chunked", seen.getHeaders().get("Transfer-Encoding"));
  }

  @Test
  void aBodyThatFailsGivesTheRequestUp() throws Exception {
    RequestBody body =
        new RequestBody() {
          @Override
          public MediaType contentType() {
            return null;
          }

          @Override
          public void writeTo(BufferedSink sink) throws IOException {
            sink.writeUtf8("some").flush();
            throw new IOException("mine");
          }
        };
    IOException error = assertThrows(IOException.class, () -> client.newCall(to("/").post(body).build()).execute());
    assertEquals("mine", error.getMessage());
    server.enqueue(ok("next"));
    assertEquals("next", client.newCall(to("/").build()).execute().body().string());
  }

  /** What the app does not read stays with the server: it cannot send much more than the windows hold. */
  @Test
  void whatIsNotReadStaysWithTheServer() throws Exception {
    AtomicLong sent = new AtomicLong();
    try (ServerSocket pouring = new ServerSocket(0)) {
      Thread pours = new Thread(() -> pour(pouring, sent));
      pours.start();
      Request request = new Request.Builder().url("http://127.0.0.1:" + pouring.getLocalPort() + "/").build();
      try (Response response = client.newCall(request).execute()) {
        assertEquals(1, response.body().source().read(new byte[1]));
        long before = settled(sent);
        assertTrue(before < 12 << 20, before + " bytes");
        response.body().source().skip(before + (8 << 20));
        assertTrue(settled(sent) > before);
      }
      pours.join();
    }
  }

  private static void pour(ServerSocket pouring, AtomicLong sent) {
    try (Socket socket = pouring.accept()) {
      socket.getInputStream().read(new byte[4096]);
      socket.getOutputStream().write("HTTP/1.1 200 OK\r\n\r\n".getBytes(StandardCharsets.US_ASCII));
      for (byte[] piece = new byte[65536]; ; sent.addAndGet(piece.length)) {
        socket.getOutputStream().write(piece);
      }
    } catch (IOException closed) {
      // The app has read enough.
    }
  }

  /** A count that has not changed for 0.1 s. */
  private static long settled(AtomicLong count) throws InterruptedException {
    long was = -1;
    while (was != count.get()) {
      was = count.get();
      Thread.sleep(100);
    }
    return was;
  }

  @Test
  void aLargeResponseIsReadInPieces() throws Exception {
    Buffer large = new Buffer().write(new byte[20_000_000]);
    server.enqueue(new MockResponse.Builder().body(large).build());
    try (Response response = client.newCall(to("/").build()).execute()) {
      long count = 0;
      byte[] bytes = new byte[100_000];
      for (int read; (read = response.body().source().read(bytes)) >= 0; ) {
        count += read;
      }
      assertEquals(20_000_000, count);
    }
  }

  @Test
  void trailersComeAfterTheBody() throws Exception {
    server.enqueue(
        new MockResponse.Builder().chunkedBody("body", 2).trailers(okhttp3.Headers.of("X-Sum", "7")).build());
    try (Response response = client.newCall(to("/").build()).execute()) {
      response.body().string();
      assertEquals("7", response.trailers().get("x-sum"));
    }
  }

  @Test
  void errorsAreThoseOfOkHttp() throws Exception {
    assertThrows(UnknownHostException.class, () -> get("http://nothing.invalid/"));
    assertThrows(ConnectException.class, () -> get("http://127.0.0.1:1/"));
    server.enqueue(new MockResponse.Builder().headersDelay(20, TimeUnit.SECONDS).build());
    OkHttpClient hasty = client.newBuilder().readTimeout(Duration.ofMillis(200)).build();
    assertThrows(SocketTimeoutException.class, () -> hasty.newCall(to("/").build()).execute());
    server.enqueue(new MockResponse.Builder().headersDelay(20, TimeUnit.SECONDS).build());
    OkHttpClient limited = client.newBuilder().callTimeout(Duration.ofMillis(200)).build();
    var timeout = assertThrows(InterruptedIOException.class, () -> limited.newCall(to("/").build()).execute());
    assertEquals("timeout", timeout.getMessage());
  }

  private void get(String url) throws IOException {
    client.newCall(new Request.Builder().url(url).build()).execute().close();
  }

  @Test
  void aBodyThatBreaksOffIsAnError() throws Exception {
    server.enqueue(
        new MockResponse.Builder()
            .body(new Buffer().write(new byte[100_000]))
            .onResponseBody(new SocketEffect.CloseSocket())
            .build());
    try (Response response = client.newCall(to("/").build()).execute()) {
      assertThrows(IOException.class, () -> response.body().bytes());
    }
  }

  @Test
  void certificatesAreChecked() throws Exception {
    HeldCertificate held = new HeldCertificate.Builder().addSubjectAlternativeName("localhost").build();
    HandshakeCertificates certificates = new HandshakeCertificates.Builder().heldCertificate(held).build();
    try (MockWebServer secure = new MockWebServer()) {
      secure.useHttps(certificates.sslSocketFactory());
      secure.setProtocols(List.of(okhttp3.Protocol.HTTP_1_1));
      secure.start();
      String url = "https://localhost:" + secure.getPort() + "/";
      assertThrows(SSLHandshakeException.class, () -> get(url));
      HeldCertificate root = new HeldCertificate.Builder().certificateAuthority(0).build();
      HeldCertificate leaf =
          new HeldCertificate.Builder().addSubjectAlternativeName("localhost").signedBy(root).build();
      try (MockWebServer signed = new MockWebServer();
          TowpathEngine trusting = new TowpathEngine.Builder().roots(root.certificatePem()).build()) {
        signed.useHttps(new HandshakeCertificates.Builder().heldCertificate(leaf).build().sslSocketFactory());
        signed.setProtocols(List.of(okhttp3.Protocol.HTTP_1_1));
        signed.start();
        signed.enqueue(ok("secret"));
        Call.Factory factory = TowpathInterceptor.callFactory(new OkHttpClient(), trusting);
        Request request = new Request.Builder().url("https://localhost:" + signed.getPort() + "/").build();
        try (Response response = factory.newCall(request).execute()) {
          assertEquals("secret", response.body().string());
        }
      }
    }
  }

  @Test
  void manyCallsAtOnce() throws Exception {
    client.dispatcher().setMaxRequestsPerHost(64);
    List<CompletableFuture<String>> bodies = new ArrayList<>();
    for (int number = 0; number < 200; number++) {
      server.enqueue(ok("hello"));
      bodies.add(enqueue(to("/" + number).build()));
    }
    for (CompletableFuture<String> body : bodies) {
      assertEquals("hello", body.get(30, TimeUnit.SECONDS));
    }
  }

  private CompletableFuture<String> enqueue(Request request) {
    CompletableFuture<String> body = new CompletableFuture<>();
    client
        .newCall(request)
        .enqueue(
            new Callback() {
              @Override
              public void onFailure(Call call, IOException error) {
                body.completeExceptionally(error);
              }

              @Override
              public void onResponse(Call call, Response response) throws IOException {
                try (response) {
                  body.complete(response.body().string());
                }
              }
            });
    return body;
  }

  @Test
  void aClosedEngineSaysSo() {
    engine.close();
    engine.close();
    assertThrows(IllegalStateException.class, () -> client.newCall(to("/").build()).execute());
  }

  /** Calls that are given up at any moment, responses that nothing closes, engines that are closed under way. */
  @Test
  void nothingBreaksUnderRandomCancellation() throws Exception {
    long seed = Long.getLong("towpath.seed", System.nanoTime());
    System.out.println("towpath.seed=" + seed);
    server.setDispatcher(new RandomDispatcher());
    ExecutorService threads = Executors.newFixedThreadPool(8);
    List<Future<?>> work = new ArrayList<>();
    for (int thread = 0; thread < 8; thread++) {
      Random chance = new Random(seed + thread);
      work.add(threads.submit(() -> giveUpAtRandom(chance, threads)));
    }
    for (Future<?> each : work) {
      try {
        each.get(50, TimeUnit.SECONDS);
      } catch (ExecutionException error) {
        throw new AssertionError("seed " + seed, error);
      }
    }
    threads.shutdownNow();
    server.setDispatcher(new AfterDispatcher());
    assertEquals("after", client.newCall(to("/").build()).execute().body().string());
  }

  private void giveUpAtRandom(Random chance, ExecutorService threads) {
    for (int round = 0; round < 60; round++) {
      boolean own = chance.nextInt(6) == 0;
      TowpathEngine used = own ? TowpathEngine.create() : engine;
      Call.Factory factory = TowpathInterceptor.callFactory(client.newBuilder().build(), used);
      if (own) {
        factory = new OkHttpClient.Builder().addInterceptor(new TowpathInterceptor(used)).build();
      }
      RequestBody body = chance.nextBoolean() ? null : RequestBody.create(new byte[chance.nextInt(200_000)]);
      Request request = to("/").method(body == null ? "GET" : "POST", body).build();
      Call call = factory.newCall(request);
      int delay = chance.nextInt(6);
      Thread canceller =
          new Thread(
              () -> {
                try {
                  Thread.sleep(delay);
                } catch (InterruptedException error) {
                  return;
                }
                call.cancel();
                if (own) {
                  used.close();
                }
              });
      canceller.start();
      try {
        Response response = call.execute();
        byte[] bytes = new byte[5000];
        for (int piece = chance.nextInt(20); piece > 0 && response.body().source().read(bytes) >= 0; piece--) {}
        if (chance.nextBoolean()) {
          response.close();
        }
      } catch (IOException | IllegalStateException expected) {
        assertInstanceOf(Exception.class, expected);
      }
      if (chance.nextInt(20) == 0) {
        System.gc();
      }
    }
  }

  /** Answers each request alike: one that was given up may reach the server late, and would take an answer off a queue. */
  private static final class AfterDispatcher extends mockwebserver3.Dispatcher {
    @Override
    public MockResponse dispatch(mockwebserver3.RecordedRequest request) {
      return ok("after");
    }
  }

  private static final class RandomDispatcher extends mockwebserver3.Dispatcher {
    private final Random chance = new Random(1);

    @Override
    public synchronized MockResponse dispatch(mockwebserver3.RecordedRequest request) {
      return switch (chance.nextInt(4)) {
        case 0 -> ok("hello");
        case 1 -> new MockResponse.Builder().body(new Buffer().write(new byte[300_000])).build();
        case 2 -> new MockResponse.Builder().headersDelay(5, TimeUnit.MILLISECONDS).build();
        default -> new MockResponse.Builder().chunkedBody(new Buffer().write(new byte[50_000]), 1000).build();
      };
    }
  }
}
