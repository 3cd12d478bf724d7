package io.towpath;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.ProtocolException;
import java.net.Proxy;
import java.net.ProxySelector;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import okhttp3.Cache;
import okhttp3.Call;
import okhttp3.CertificatePinner;
import okhttp3.Cookie;
import okhttp3.CookieJar;
import okhttp3.Dns;
import okhttp3.EventListener;
import okhttp3.Headers;
import okhttp3.HttpUrl;
import okhttp3.Interceptor;
import okhttp3.MediaType;
import okhttp3.OkHttpClient;
import okhttp3.Protocol;
import okhttp3.Request;
import okhttp3.RequestBody;
import okhttp3.Response;
import okhttp3.ResponseBody;
import okio.Buffer;
import okio.BufferedSource;
import okio.ForwardingSource;
import okio.GzipSource;
import okio.Okio;
import okio.Source;

/**
 * Sends what a client of OkHttp asks for by an engine of Towpath: {@code new
 * OkHttpClient.Builder().addInterceptor(new TowpathInterceptor(engine))}, as the last interceptor, because those
 * behind it are not called, nor are the client's network interceptors: {@link #callFactory} has them called. Timeouts,
 * redirects, cookies, the authenticator, cancellation and events are those of the client. What of the client's settings
 * cannot be honoured (a proxy, a cache, certificate pins, a Dns of its own) fails each call instead of being passed over.
 */
public final class TowpathInterceptor implements Interceptor {
  private static final int MOST_FOLLOW_UPS = 20;
  private static final long MOST_UNREAD = 65536;

  private final TowpathEngine engine;
  private final List<Interceptor> network;

  /** Requests go by this engine, which may serve any number of clients. */
  public TowpathInterceptor(TowpathEngine engine) {
    this(engine, List.of());
  }

  /**
   * The same, with interceptors that are called as OkHttp calls network interceptors: for each request to a server, those
   * of redirects among them, with what is sent and with what came. {@code Chain.connection} is null.
   */
  public TowpathInterceptor(TowpathEngine engine, List<? extends Interceptor> network) {
    this.engine = engine;
    this.network = List.copyOf(network);
  }

  /** A client with the settings and interceptors of another, whose requests go by this engine. */
  public static Call.Factory callFactory(OkHttpClient client, TowpathEngine engine) {
    OkHttpClient.Builder builder = client.newBuilder();
    builder.networkInterceptors().clear();
    return builder.addInterceptor(new TowpathInterceptor(engine, client.networkInterceptors())).build();
  }

  /**
   * What happened to a request as JSON, once its response's body was read; empty before, and for responses of others.
   */
  public static String report(Response response) {
    Response inner = response.networkResponse();
    Exchange exchange = inner == null ? null : inner.request().tag(Exchange.class);
    return exchange == null ? "" : exchange.report();
  }

  @Override
  public Response intercept(Chain chain) throws IOException {
    TowpathWebSocket socket = chain.request().tag(TowpathWebSocket.class);
    if (socket != null) {
      return socket.handshake(chain);
    }
    Current current = new Current();
    chain.call().addEventListener(current);
    Request request = chain.request();
    Response prior = null;
    for (int followUps = 0; ; followUps++) {
      Response response = exchange(chain, request, prior, current);
      Request next = FollowUp.of(chain, response);
      if (next == null || next.body() != null && next.body().isOneShot()) {
        return response;
      }
      if (followUps == MOST_FOLLOW_UPS) {
        response.close();
        throw new ProtocolException("Too many follow-up requests: " + (followUps + 1));
      }
      drain(response);
      prior = response.newBuilder().body(ResponseBody.EMPTY).build();
      request = next;
    }
  }

  private Response exchange(Chain chain, Request request, Response prior, Current current) throws IOException {
    refuse(
        request.url(),
        chain.getCache(),
        chain.getCertificatePinner(),
        chain.getDns(),
        chain.getProxy(),
        chain.getProxySelector());
    boolean transparent = request.header("Accept-Encoding") == null && request.header("Range") == null;
    Request sent = complete(request, chain.getCookieJar(), transparent);
    Response came;
    try {
      came = NetworkChain.proceed(chain, network, sent, next -> ask(chain, next, current));
    } catch (IOException | RuntimeException error) {
      // Of an interceptor, whose request may be under way.
      current.cancel();
      throw error;
    }
    List<Cookie> cookies = Cookie.parseAll(request.url(), came.headers());
    if (!cookies.isEmpty()) {
      chain.getCookieJar().saveFromResponse(request.url(), cookies);
    }
    return opened(came, request, prior, transparent);
  }

  /** Sends a request as it is. */
  private Response ask(Chain chain, Request sent, Current current) throws IOException {
    Call call = chain.call();
    EventListener events = chain.getEventListener();
    long sentAt = System.currentTimeMillis();
    Exchange exchange = null;
    try {
      events.requestHeadersStart(call);
      exchange = Exchange.start(engine, sent, chain);
      current.set(exchange, call);
      events.requestHeadersEnd(call, sent);
      send(exchange, sent.body(), call, events);
      events.responseHeadersStart(call);
      Response response = response(exchange, sent, sentAt, call, events);
      events.responseHeadersEnd(call, response);
      return response;
    } catch (Failure failure) {
      IOException known = failure.known();
      if (exchange != null) {
        Timeline.tell(exchange.report(), sent, call, events);
      }
      events.requestFailed(call, known);
      throw known;
    }
  }

  private static void send(Exchange exchange, RequestBody body, Call call, EventListener events) throws IOException {
    if (body == null) {
      return;
    }
    events.requestBodyStart(call);
    long count = Exchange.isWhole(body) ? body.contentLength() : exchange.send(body);
    events.requestBodyEnd(call, count);
  }

  /** The request as it is sent. */
  static Request complete(Request request, CookieJar jar, boolean transparent) {
    Request.Builder sent = request.newBuilder();
    RequestBody body = request.body();
    if (body != null && body.contentType() != null) {
      sent.header("Content-Type", body.contentType().toString());
    }
    if (transparent) {
      sent.header("Accept-Encoding", "gzip");
    }
    List<Cookie> cookies = jar.loadForRequest(request.url());
    if (!cookies.isEmpty()) {
      List<String> pairs = new ArrayList<>();
      cookies.forEach(cookie -> pairs.add(cookie.name() + "=" + cookie.value()));
      sent.header("Cookie", String.join("; ", pairs));
    }
    if (request.header("User-Agent") == null) {
      sent.header("User-Agent", "towpath/0.1");
    }
    return sent.build();
  }

  /** The response as it comes. */
  private static Response response(Exchange exchange, Request sent, long sentAt, Call call, EventListener events)
      throws IOException {
    String[] lines = exchange.head().split("\n");
    Headers headers = headers(lines);
    return new Response.Builder()
        .request(sent.newBuilder().tag(Exchange.class, exchange).build())
        .protocol(Protocol.HTTP_1_1)
        .code(Integer.parseInt(lines[0]))
        .message("")
        .headers(headers)
        .sentRequestAtMillis(sentAt)
        .receivedResponseAtMillis(System.currentTimeMillis())
        .body(new Body(headers, new Told(exchange, sent, call, events)))
        .trailers(() -> headers(exchange.trailers().split("\n")))
        .build();
  }

  /** The response as the app gets it. */
  private static Response opened(Response came, Request request, Response prior, boolean transparent) {
    Headers headers = came.headers();
    ResponseBody body = came.body();
    boolean bodiless = request.method().equals("HEAD");
    if (transparent && "gzip".equalsIgnoreCase(headers.get("Content-Encoding")) && !bodiless) {
      headers = headers.newBuilder().removeAll("Content-Encoding").removeAll("Content-Length").build();
      body = new Body(headers, new GzipSource(body.source()));
    }
    return came.newBuilder()
        .request(request)
        .headers(headers)
        .networkResponse(came.newBuilder().body(ResponseBody.EMPTY).build())
        .priorResponse(prior)
        .body(body)
        .build();
  }

  /** The fields of a head's lines, behind the first. */
  static Headers headers(String[] lines) {
    Headers.Builder headers = new Headers.Builder();
    for (int line = 1; line < lines.length; line++) {
      int colon = lines[line].indexOf(':');
      headers.addUnsafeNonAscii(lines[line].substring(0, colon), lines[line].substring(colon + 1));
    }
    return headers.build();
  }

  /** Settings that would be passed over otherwise. */
  static void refuse(
      HttpUrl url, Cache cache, CertificatePinner pinner, Dns dns, Proxy chosen, ProxySelector selector)
      throws IOException {
    String refused = null;
    if (cache != null) {
      refused = "a cache";
    } else if (!pinner.getPins().isEmpty()) {
      refused = "certificate pins";
    } else if (dns != Dns.SYSTEM) {
      refused = "a Dns of its own";
    } else if (chosen != null && chosen.type() != Proxy.Type.DIRECT) {
      refused = "a proxy";
    } else if (chosen == null) {
      for (Proxy proxy : selector.select(url.uri())) {
        refused = proxy.type() == Proxy.Type.DIRECT ? refused : "a proxy";
      }
    }
    if (refused != null) {
      throw new IOException("towpath cannot honour what the client is set to use: " + refused);
    }
  }

  /** A connection can be used again once its response was read, if that is short. */
  private static void drain(Response response) {
    try (response) {
      response.body().source().request(MOST_UNREAD);
    } catch (IOException error) {
      // It is not used again, then.
    }
  }

  /** The exchange that is under way, to be given up when its call is. */
  private static final class Current extends EventListener {
    private final AtomicReference<Exchange> exchange = new AtomicReference<>();

    void set(Exchange next, Call call) {
      exchange.set(next);
      if (call.isCanceled()) {
        next.cancel();
      }
    }

    void cancel() {
      Exchange current = exchange.get();
      if (current != null) {
        current.cancel();
      }
    }

    @Override
    public void canceled(Call call) {
      cancel();
    }
  }

  /** A response's body, whose end is told. */
  private static final class Told extends ForwardingSource {
    private final Exchange exchange;
    private final Request request;
    private final Call call;
    private final EventListener events;
    private long count = -1;
    private boolean ended;

    Told(Exchange exchange, Request request, Call call, EventListener events) {
      super(exchange);
      this.exchange = exchange;
      this.request = request;
      this.call = call;
      this.events = events;
    }

    @Override
    public long read(Buffer sink, long byteCount) throws IOException {
      if (count < 0) {
        count = 0;
        events.responseBodyStart(call);
      }
      try {
        long read = super.read(sink, byteCount);
        count += Math.max(read, 0);
        if (read < 0 && !ended) {
          ended = true;
          events.responseBodyEnd(call, count);
          Timeline.tell(exchange.report(), request, call, events);
        }
        return read;
      } catch (IOException error) {
        if (!ended) {
          ended = true;
          events.responseFailed(call, error);
          Timeline.tell(exchange.report(), request, call, events);
        }
        throw error;
      }
    }
  }

  private static final class Body extends ResponseBody {
    private final String type;
    private final long length;
    private final BufferedSource source;

    Body(Headers headers, Source source) {
      String length = headers.get("Content-Length");
      this.type = headers.get("Content-Type");
      this.length = length == null ? -1 : Long.parseLong(length);
      this.source = Okio.buffer(source);
    }

    @Override
    public MediaType contentType() {
      return type == null ? null : MediaType.parse(type);
    }

    @Override
    public long contentLength() {
      return length;
    }

    @Override
    public BufferedSource source() {
      return source;
    }
  }

  /** The engine's connection attempts, told as OkHttp's when the request is over. */
  private static final class Timeline {
    private static final Pattern ATTEMPT =
        Pattern.compile("\\{\"address\":\"(.+?):(\\d+)\",\"why\":.+?,\"outcome\":(null|\"(?:[^\"\\\\]|\\\\.)*\")\\}");

    static void tell(String report, Request request, Call call, EventListener events) {
      HttpUrl url = request.url();
      if (report.contains("\"asked_ms\"")) {
        events.dnsStart(call, url.host());
        events.dnsEnd(call, url.host(), List.of());
      }
      Matcher attempts = ATTEMPT.matcher(report);
      while (attempts.find()) {
        String host = attempts.group(1).replaceAll("[\\[\\]]", "");
        InetSocketAddress address = new InetSocketAddress(host, Integer.parseInt(attempts.group(2)));
        events.connectStart(call, address, Proxy.NO_PROXY);
        String outcome = attempts.group(3);
        if (outcome.equals("\"connected\"")) {
          events.connectEnd(call, address, Proxy.NO_PROXY, Protocol.HTTP_1_1);
        } else {
          events.connectFailed(call, address, Proxy.NO_PROXY, null, new IOException(outcome));
        }
      }
    }
  }
}
