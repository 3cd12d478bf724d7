package io.towpath;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import mockwebserver3.MockResponse;
import mockwebserver3.MockWebServer;
import mockwebserver3.RecordedRequest;
import okhttp3.Call;
import okhttp3.Cookie;
import okhttp3.CookieJar;
import okhttp3.EventListener;
import okhttp3.HttpUrl;
import okhttp3.Interceptor;
import okhttp3.OkHttpClient;
import okhttp3.Protocol;
import okhttp3.Request;
import okhttp3.Response;
import okhttp3.ResponseBody;
import okhttp3.WebSocket;
import okhttp3.WebSocketListener;
import okio.Buffer;
import okio.GzipSink;
import okio.Okio;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * Interceptors of a client, in requests and WebSockets by an engine. What is the same in OkHttp is asked of OkHttp as
 * well: {@link #both}.
 */
@Timeout(60)
class InterceptorsTest {
  private final TowpathEngine engine = TowpathEngine.create();
  private final MockWebServer server = new MockWebServer();
  private final OkHttpClient plain = new OkHttpClient();

  @BeforeEach
  void start() throws IOException {
    server.start();
  }

  @AfterEach
  void stop() {
    server.close();
    engine.close();
    plain.dispatcher().executorService().shutdown();
  }

  private Request.Builder to(String path) {
    return new Request.Builder().url(server.url(path));
  }

  /** OkHttp alone, and with the engine below it. */
  private List<Call.Factory> both(OkHttpClient client) {
    return List.of(client, TowpathInterceptor.callFactory(client, engine));
  }

  private List<WebSocket.Factory> sockets(OkHttpClient client) {
    return List.of(client, new TowpathWebSockets(client, engine));
  }

  @Test
  void networkInterceptorsSeeEachRequestThatIsSent() throws IOException {
    List<String> seen = new ArrayList<>();
    OkHttpClient client =
        plain
            .newBuilder()
            .addInterceptor(
                chain -> {
                  seen.add("app " + chain.request().url().encodedPath());
                  return chain.proceed(chain.request());
                })
            .addNetworkInterceptor(
                chain -> {
                  Request request = chain.request();
                  seen.add(request.url().encodedPath() + " " + request.header("Accept-Encoding"));
                  Response response = chain.proceed(request.newBuilder().header("X-Mark", "first").build());
                  seen.add(response.code() + " " + response.header("Content-Encoding"));
                  return response;
                })
            .addNetworkInterceptor(
                chain -> {
                  seen.add("second " + chain.request().header("X-Mark"));
                  return chain.proceed(chain.request());
                })
            .build();
    List<List<String>> all = new ArrayList<>();
    for (Call.Factory factory : both(client)) {
      Buffer zipped = new Buffer();
      try (var sink = Okio.buffer(new GzipSink(zipped))) {
        sink.writeUtf8("hello");
      }
      server.enqueue(new MockResponse.Builder().code(302).setHeader("Location", "/there").build());
      server.enqueue(new MockResponse.Builder().setHeader("Content-Encoding", "gzip").body(zipped).build());
      try (Response response = factory.newCall(to("/here").build()).execute()) {
        assertEquals("hello", response.body().string());
        assertNull(response.header("Content-Encoding"));
        assertEquals("first", response.networkResponse().request().header("X-Mark"));
        assertNull(response.request().header("X-Mark"));
      }
      all.add(List.copyOf(seen));
      seen.clear();
    }
    List<String> expected =
        List.of(
            "app /here", "/here gzip", "second first", "302 null", "/there gzip", "second first", "200 gzip");
    assertEquals(List.of(expected, expected), all);
  }

  @Test
  void networkInterceptorsChangeResponsesBeforeCookiesAndRedirects() throws Exception {
    List<String> kept = new ArrayList<>();
    CookieJar jar =
        new CookieJar() {
          @Override
          public void saveFromResponse(HttpUrl url, List<Cookie> cookies) {
            cookies.forEach(cookie -> kept.add(cookie.name()));
          }

          @Override
          public List<Cookie> loadForRequest(HttpUrl url) {
            return List.of();
          }
        };
    Interceptor changes =
        chain -> {
          Response response = chain.proceed(chain.request());
          Response.Builder changed = response.newBuilder().header("Set-Cookie", "changed=1");
          return chain.request().url().encodedPath().equals("/here")
              ? changed.code(307).header("Location", "/there").build()
              : changed.build();
        };
    for (Call.Factory factory : both(plain.newBuilder().cookieJar(jar).addNetworkInterceptor(changes).build())) {
      server.enqueue(new MockResponse.Builder().setHeader("Set-Cookie", "own=1").body("one").build());
      server.enqueue(new MockResponse.Builder().body("two").build());
      try (Response response = factory.newCall(to("/here").build()).execute()) {
        assertEquals("two", response.body().string());
      }
      assertEquals(List.of("changed", "changed"), kept);
      kept.clear();
    }
  }

  @Test
  void networkInterceptorsGoOnOnceToTheSameHost() {
    List<Interceptor> wrong =
        List.of(
            chain -> answer(chain.request()),
            chain -> {
              chain.proceed(chain.request()).close();
              return chain.proceed(chain.request());
            },
            chain -> chain.proceed(new Request.Builder().url("http://elsewhere.test/").build()));
    List<String> words =
        List.of(" must call proceed() exactly once", " must call proceed() exactly once", " must retain the same host");
    for (int index = 0; index < wrong.size(); index++) {
      server.enqueue(new MockResponse.Builder().body("hello").build());
      OkHttpClient client = plain.newBuilder().addNetworkInterceptor(wrong.get(index)).build();
      for (Call.Factory factory : both(client)) {
        server.enqueue(new MockResponse.Builder().body("hello").build());
        Call call = factory.newCall(to("/").build());
        var thrown = assertThrows(IllegalStateException.class, () -> call.execute().close());
        assertTrue(thrown.getMessage().contains(words.get(index)), thrown.getMessage());
      }
    }
    OkHttpClient slower =
        plain
            .newBuilder()
            .addNetworkInterceptor(
                chain -> chain.withReadTimeout(1, TimeUnit.SECONDS).proceed(chain.request()))
            .build();
    for (Call.Factory factory : both(slower)) {
      assertThrows(IllegalStateException.class, () -> factory.newCall(to("/").build()).execute().close());
    }
  }

  @Test
  void anInterceptorThatThrowsGivesTheRequestUp() throws Exception {
    TowpathEngine narrow = new TowpathEngine.Builder().maxCalls(1).build();
    OkHttpClient client =
        plain
            .newBuilder()
            .addNetworkInterceptor(
                chain -> {
                  Response response = chain.proceed(chain.request());
                  if (response.code() == 500) {
                    throw new IOException("of the interceptor");
                  }
                  return response;
                })
            .build();
    Call.Factory factory = TowpathInterceptor.callFactory(client, narrow);
    server.enqueue(
        new MockResponse.Builder().code(500).body("x".repeat(100)).throttleBody(1, 30, TimeUnit.SECONDS).build());
    var thrown = assertThrows(IOException.class, () -> factory.newCall(to("/").build()).execute().close());
    assertEquals("of the interceptor", thrown.getMessage());
    server.enqueue(new MockResponse.Builder().body("hello").build());
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
    while (true) {
      try (Response response = factory.newCall(to("/").build()).execute()) {
        assertEquals("hello", response.body().string());
        break;
      } catch (IOException error) {
        assertTrue(System.nanoTime() < end, "its place is free again");
      }
    }
    narrow.close();
  }

  @Test
  void theHandshakeOfAWebSocketPassesTheClientsInterceptorsAlone() throws Exception {
    BlockingQueue<String> seen = new LinkedBlockingQueue<>();
    OkHttpClient client =
        plain
            .newBuilder()
            .addInterceptor(
                chain -> {
                  Request request = chain.request();
                  seen.add("asks " + request.header("Upgrade") + " " + request.header("Sec-WebSocket-Version"));
                  Response response = chain.proceed(request.newBuilder().header("X-Mark", "yes").build());
                  seen.add("has " + response.code() + " " + response.header("X-Answer"));
                  return response.newBuilder().header("X-More", "yes").build();
                })
            .addNetworkInterceptor(
                chain -> {
                  seen.add("network");
                  return chain.proceed(chain.request());
                })
            .eventListener(
                new EventListener() {
                  @Override
                  public void callStart(Call call) {
                    seen.add("event");
                  }
                })
            .build();
    for (WebSocket.Factory factory : sockets(client)) {
      server.enqueue(
          new MockResponse.Builder().webSocketUpgrade(new Polite()).addHeader("X-Answer", "yes").build());
      WebSocket socket = factory.newWebSocket(to("/chat").build(), new Opening(seen));
      for (String said : List.of("asks websocket 13", "has 101 yes", "open yes")) {
        assertEquals(said, seen.poll(20, TimeUnit.SECONDS));
      }
      assertEquals("yes", server.takeRequest().getHeaders().get("X-Mark"));
      socket.cancel();
      assertTrue(seen.poll(20, TimeUnit.SECONDS).startsWith("failure"));
      assertTrue(seen.isEmpty(), seen.toString());
    }
  }

  @Test
  void anInterceptorAnswersAWebSocketOrAsksTwice() throws Exception {
    BlockingQueue<String> told = new LinkedBlockingQueue<>();
    OkHttpClient answers = plain.newBuilder().addInterceptor(chain -> answer(chain.request())).build();
    OkHttpClient pretends =
        plain.newBuilder().addInterceptor(chain -> answer(chain.request()).newBuilder().code(101).build()).build();
    OkHttpClient repeats =
        plain
            .newBuilder()
            .addInterceptor(
                chain -> {
                  Response response = chain.proceed(chain.request());
                  if (response.code() == 503) {
                    response.close();
                    return chain.proceed(chain.request().newBuilder().url(server.url("/second")).build());
                  }
                  return response;
                })
            .build();
    OkHttpClient throwing =
        plain
            .newBuilder()
            .addInterceptor(
                chain -> {
                  chain.proceed(chain.request()).close();
                  throw new IOException("of the interceptor");
                })
            .build();
    for (int kind = 0; kind < 2; kind++) {
      sockets(answers).get(kind).newWebSocket(to("/").build(), new Opening(told));
      assertEquals("failure ProtocolException 418", told.poll(20, TimeUnit.SECONDS));
      sockets(pretends).get(kind).newWebSocket(to("/").build(), new Opening(told));
      assertTrue(told.poll(20, TimeUnit.SECONDS).startsWith("failure "));
      server.enqueue(new MockResponse.Builder().code(503).build());
      server.enqueue(new MockResponse.Builder().webSocketUpgrade(new Polite()).build());
      WebSocket socket = sockets(repeats).get(kind).newWebSocket(to("/first").build(), new Opening(told));
      assertEquals("open null", told.poll(20, TimeUnit.SECONDS));
      socket.cancel();
      assertTrue(told.poll(20, TimeUnit.SECONDS).startsWith("failure"));
    }
    server.enqueue(new MockResponse.Builder().webSocketUpgrade(new Polite()).build());
    sockets(throwing).get(1).newWebSocket(to("/").build(), new Opening(told));
    assertEquals("failure IOException 0", told.poll(20, TimeUnit.SECONDS));
  }

  @Test
  void aWebSocketHasTheClientsAuthenticatorAndCallTimeout() throws Exception {
    BlockingQueue<String> told = new LinkedBlockingQueue<>();
    OkHttpClient knows =
        plain
            .newBuilder()
            .authenticator(
                (route, response) ->
                    response.request().header("Authorization") != null
                        ? null
                        : response.request().newBuilder().header("Authorization", "secret").build())
            .build();
    for (WebSocket.Factory factory : sockets(knows)) {
      server.enqueue(new MockResponse.Builder().code(401).build());
      server.enqueue(new MockResponse.Builder().webSocketUpgrade(new Polite()).build());
      WebSocket socket = factory.newWebSocket(to("/").build(), new Opening(told));
      assertEquals("open null", told.poll(20, TimeUnit.SECONDS));
      assertNull(server.takeRequest().getHeaders().get("Authorization"));
      RecordedRequest second = server.takeRequest();
      assertEquals("secret", second.getHeaders().get("Authorization"));
      socket.cancel();
      assertTrue(told.poll(20, TimeUnit.SECONDS).startsWith("failure"));
    }
    OkHttpClient hasty = plain.newBuilder().callTimeout(300, TimeUnit.MILLISECONDS).build();
    for (WebSocket.Factory factory : sockets(hasty)) {
      server.enqueue(
          new MockResponse.Builder()
              .webSocketUpgrade(new Polite())
              .headersDelay(20, TimeUnit.SECONDS)
              .build());
      factory.newWebSocket(to("/").build(), new Opening(told));
      assertEquals("failure InterruptedIOException 0", told.poll(10, TimeUnit.SECONDS));
    }
  }

  @Test
  void anInterceptorOfTheEngineAmongTheClientsLeavesWebSocketsToTheirs() throws Exception {
    BlockingQueue<String> told = new LinkedBlockingQueue<>();
    OkHttpClient client = plain.newBuilder().addInterceptor(new TowpathInterceptor(engine)).build();
    server.enqueue(new MockResponse.Builder().webSocketUpgrade(new Polite()).build());
    WebSocket socket = new TowpathWebSockets(client, engine).newWebSocket(to("/").build(), new Opening(told));
    assertEquals("open null", told.poll(20, TimeUnit.SECONDS));
    socket.cancel();
  }

  private static Response answer(Request request) {
    return new Response.Builder()
        .request(request)
        .protocol(Protocol.HTTP_1_1)
        .code(418)
        .message("")
        .body(ResponseBody.create("own", null))
        .build();
  }

  /** A server's side that answers a close. */
  private static final class Polite extends WebSocketListener {
    @Override
    public void onClosing(WebSocket socket, int code, String reason) {
      socket.close(code, reason);
    }
  }

  /** Tells what the listener hears. */
  private static final class Opening extends WebSocketListener {
    private final BlockingQueue<String> told;

    Opening(BlockingQueue<String> told) {
      this.told = told;
    }

    @Override
    public void onOpen(WebSocket socket, Response response) {
      told.add("open " + response.header("X-More"));
    }

    @Override
    public void onFailure(WebSocket socket, Throwable why, Response response) {
      told.add("failure " + why.getClass().getSimpleName() + " " + (response == null ? 0 : response.code()));
    }
  }
}
