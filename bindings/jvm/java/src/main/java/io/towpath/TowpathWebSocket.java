package io.towpath;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.lang.ref.Cleaner;
import java.net.ProtocolException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.atomic.AtomicInteger;
import okhttp3.Call;
import okhttp3.Cookie;
import okhttp3.EventListener;
import okhttp3.Headers;
import okhttp3.Interceptor;
import okhttp3.OkHttpClient;
import okhttp3.Protocol;
import okhttp3.Request;
import okhttp3.Response;
import okhttp3.ResponseBody;
import okhttp3.WebSocket;
import okhttp3.WebSocketListener;
import okio.ByteString;

/**
 * One WebSocket. A task of the client's executor has it opened by a call of OkHttp, so that the client's interceptors see
 * the handshake. From then on, whenever it goes on, a task looks what there is and calls the listener; there is one such
 * task at a time, and none while nothing happens.
 */
final class TowpathWebSocket implements WebSocket {
  /** As in OkHttp: what would be more closes it. */
  private static final long MOST_QUEUED = 16 * 1024 * 1024;

  private static final int MOST_REASON = 123;
  private static final int GOING_AWAY = 1001;
  private static final int MOST_REDIRECTS = 20;

  private final OkHttpClient client;
  private final TowpathEngine engine;
  private final Request request;
  private final Call call;
  private final WebSocketListener listener;
  private final Executor executor;

  /** How often there was something to look at since the task began: it ends when it has seen all. */
  private final AtomicInteger looks = new AtomicInteger();

  // What threads share, under this object's monitor.
  private final Queue<Outgoing> queue = new ArrayDeque<>();
  private long queued;
  private Close closing;
  /** Nothing more is sent. */
  private boolean isDone;

  private boolean isCanceled;
  /** The handshake that {@link #number} stands for was answered as it must be. */
  private boolean isAgreed;

  /** What the listener is to be told of first. */
  private Response opened;

  private boolean isOpen;
  private boolean isOver;
  private long number;
  private long token;
  private Cleaner.Cleanable cleanable;

  private record Outgoing(boolean isText, byte[] bytes) {}

  private record Close(int code, byte[] reason) {}

  TowpathWebSocket(OkHttpClient client, TowpathEngine engine, Request request, WebSocketListener listener) {
    this.client = client;
    this.engine = engine;
    this.request = request;
    this.listener = listener;
    executor = client.dispatcher().executorService();
    // What OkHttp's interceptors see of one, but for the key, which is the library's.
    call =
        client.newCall(
            request
                .newBuilder()
                .tag(TowpathWebSocket.class, this)
                .header("Upgrade", "websocket")
                .header("Connection", "Upgrade")
                .header("Sec-WebSocket-Version", "13")
                .build());
  }

  private static Runnable free(long number) {
    return () -> Native.socketFree(number);
  }

  void open() {
    // Not by this thread: who opens it does not have it yet.
    execute(this::connect);
  }

  private void connect() {
    try {
      if (request.header("Sec-WebSocket-Extensions") != null) {
        throw new ProtocolException("Request header not permitted: 'Sec-WebSocket-Extensions'");
      }
      Response response = call.execute();
      if (response.code() != 101) {
        response.close();
        String said = response.code() + (response.message().isEmpty() ? "" : " " + response.message());
        fail(new ProtocolException("Expected HTTP 101 response but was '" + said + "'"), response);
      } else if (begins(response)) {
        look();
      } else {
        fail(new IOException("Web Socket exchange missing: bad interceptor?"), response);
      }
    } catch (IOException | RuntimeException error) {
      fail(error, null);
    }
  }

  private synchronized boolean begins(Response response) {
    opened = isAgreed ? response : null;
    isOpen = isAgreed;
    return isAgreed;
  }

  /** Opens it, as the last of the interceptors; the thread waits, as OkHttp's does. */
  Response handshake(Interceptor.Chain chain) throws IOException {
    chain
        .call()
        .addEventListener(
            new EventListener() {
              @Override
              public void canceled(Call call) {
                cancel();
              }
            });
    Request next = chain.request();
    for (int followUps = 0; ; followUps++) {
      begin(chain, next);
      Response response = agreed(next);
      next = response.code() == 401 ? chain.getAuthenticator().authenticate(null, response) : null;
      if (next == null || followUps == MOST_REDIRECTS) {
        return response;
      }
    }
  }

  private synchronized void begin(Interceptor.Chain chain, Request asked) throws IOException {
    // An interceptor may ask twice.
    release();
    TowpathInterceptor.refuse(
        asked.url(),
        chain.getCache(),
        chain.getCertificatePinner(),
        chain.getDns(),
        chain.getProxy(),
        chain.getProxySelector());
    if (isCanceled) {
      throw new IOException("Canceled");
    }
    byte[] head = Exchange.lines(TowpathInterceptor.complete(asked, chain.getCookieJar(), false));
    token = SocketHub.ONLY.add(this);
    synchronized (engine) {
      number =
          Native.socketStart(
              engine.number(),
              SocketHub.ONLY.number(),
              token,
              head,
              chain.connectTimeoutMillis(),
              chain.readTimeoutMillis(),
              chain.getRetryOnConnectionFailure() ? -1 : 0,
              chain.getFollowRedirects() ? MOST_REDIRECTS : 0,
              client.pingIntervalMillis(),
              client.webSocketCloseTimeout());
    }
    cleanable = TowpathEngine.CLEANER.register(this, free(number));
  }

  /** The server's answer, once it is here. */
  private synchronized Response agreed(Request asked) throws IOException {
    try {
      byte[] head = null;
      while (number != 0 && (head = Native.socketOpened(number)) == null) {
        wait();
      }
      if (head == null) {
        throw new IOException("Canceled");
      }
      isAgreed = true;
      Headers headers = TowpathInterceptor.headers(new String(head, StandardCharsets.UTF_8).split("\n"));
      List<Cookie> cookies = Cookie.parseAll(asked.url(), headers);
      if (!cookies.isEmpty()) {
        client.cookieJar().saveFromResponse(asked.url(), cookies);
      }
      return response(asked, 101, headers);
    } catch (Failure failure) {
      if (failure.status() > 0) {
        return response(asked, failure.status(), Headers.EMPTY);
      }
      throw failure.known();
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("interrupted");
    }
  }

  /** Something may have happened. */
  void look() {
    synchronized (this) {
      if (!isOpen) {
        // Its handshake waits.
        notifyAll();
        return;
      }
    }
    if (looks.getAndIncrement() == 0) {
      execute(this::work);
    }
  }

  private void execute(Runnable task) {
    try {
      executor.execute(task);
    } catch (RejectedExecutionException error) {
      // The client's executor was shut down: its listener can be told no more.
      cancel();
      end();
    }
  }

  private void work() {
    int seen = looks.get();
    do {
      try {
        step();
      } catch (Failure failure) {
        fail(failure.known(), null);
      } catch (RuntimeException thrown) {
        // The listener's: as in OkHttp it ends the connection.
        cancel();
        fail(thrown, null);
      }
      seen = looks.addAndGet(-seen);
    } while (seen != 0);
  }

  /** Whatever there is to do and to tell, until there is nothing. */
  private void step() throws Failure {
    Response first = takeOpened();
    if (first != null) {
      listener.onOpen(this, first);
    }
    flush();
    byte[] came;
    while ((came = receive()) != null) {
      switch (came[0]) {
        case 't' -> listener.onMessage(this, new String(came, 1, came.length - 1, StandardCharsets.UTF_8));
        case 'b' -> listener.onMessage(this, ByteString.of(came, 1, came.length - 1));
        default -> {
          closed(came);
          return;
        }
      }
    }
  }

  private void closed(byte[] came) {
    int code = ByteBuffer.wrap(came).order(ByteOrder.LITTLE_ENDIAN).getShort(1) & 0xffff;
    String reason = new String(came, 3, came.length - 3, StandardCharsets.UTF_8);
    if (end()) {
      listener.onClosing(this, code, reason);
      // The library has answered it.
      listener.onClosed(this, code, reason);
    }
  }

  private void fail(Throwable error, Response response) {
    if (end()) {
      listener.onFailure(this, error, response);
    }
  }

  /** Nothing comes after this. Whether it was so before. */
  private synchronized boolean end() {
    if (isOver) {
      return false;
    }
    isOver = true;
    queue.clear();
    release();
    return true;
  }

  /** Lets go of what is open, or being opened. */
  private synchronized void release() {
    if (token != 0) {
      SocketHub.ONLY.remove(token);
    }
    if (cleanable != null) {
      cleanable.clean();
    }
    isAgreed = false;
    cleanable = null;
    token = 0;
    number = 0;
    notifyAll();
  }

  private synchronized Response takeOpened() {
    Response first = opened;
    opened = null;
    return first;
  }

  private static Response response(Request asked, int status, Headers headers) {
    return new Response.Builder()
        .request(asked)
        .protocol(Protocol.HTTP_1_1)
        .code(status)
        .message("")
        .headers(headers)
        .body(ResponseBody.EMPTY)
        .build();
  }

  private synchronized byte[] receive() throws Failure {
    return isOpen && !isOver ? Native.socketReceive(number) : null;
  }

  /** Hands over what there is room for, and the close behind it. */
  private synchronized void flush() {
    if (!isOpen || isOver || isDone) {
      return;
    }
    try {
      for (Outgoing next = queue.peek(); next != null; next = queue.peek()) {
        if (!Native.socketSend(number, next.isText, next.bytes)) {
          return;
        }
        queue.remove();
        queued -= next.bytes.length;
      }
      if (closing != null) {
        isDone = true;
        Native.socketClose(number, closing.code, closing.reason);
      }
    } catch (Failure failure) {
      // It is closed, or broken: what came before is told first, and then that.
      isDone = true;
      queue.clear();
      queued = 0;
    }
  }

  private synchronized boolean send(boolean isText, byte[] bytes) {
    if (isOver || isCanceled || closing != null) {
      return false;
    }
    if (queueSize() + bytes.length > MOST_QUEUED) {
      close(GOING_AWAY, null);
      return false;
    }
    queue.add(new Outgoing(isText, bytes));
    queued += bytes.length;
    flush();
    return true;
  }

  @Override
  public boolean send(String text) {
    return send(true, text.getBytes(StandardCharsets.UTF_8));
  }

  @Override
  public boolean send(ByteString bytes) {
    return send(false, bytes.toByteArray());
  }

  @Override
  public synchronized boolean close(int code, String reason) {
    if (code < 1000 || code >= 5000) {
      throw new IllegalArgumentException("Code must be in range [1000,5000): " + code);
    }
    if (code >= 1004 && code <= 1006 || code >= 1015 && code <= 2999) {
      throw new IllegalArgumentException("Code " + code + " is reserved and may not be used.");
    }
    byte[] words = reason == null ? new byte[0] : reason.getBytes(StandardCharsets.UTF_8);
    if (words.length > MOST_REASON) {
      throw new IllegalArgumentException("reason.size() > " + MOST_REASON + ": " + reason);
    }
    if (isOver || isCanceled || closing != null) {
      return false;
    }
    closing = new Close(code, words);
    flush();
    return true;
  }

  @Override
  public void cancel() {
    synchronized (this) {
      isCanceled = true;
      if (number != 0 && !isOver) {
        Native.socketCancel(number);
      }
    }
    call.cancel();
  }

  @Override
  public synchronized long queueSize() {
    return isOver ? 0 : queued + (number == 0 ? 0 : Native.socketWaiting(number));
  }

  @Override
  public Request request() {
    return request;
  }
}
