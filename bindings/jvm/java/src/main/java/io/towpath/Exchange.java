package io.towpath;

import java.io.IOException;
import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.nio.charset.StandardCharsets;
import okhttp3.Headers;
import okhttp3.Interceptor;
import okhttp3.Request;
import okhttp3.RequestBody;
import okio.Buffer;
import okio.BufferedSink;
import okio.Okio;
import okio.Sink;
import okio.Source;
import okio.Timeout;

/** One request and its response. Its calls block; {@link #cancel} ends them, from any thread. */
final class Exchange implements Source, Sink {
  /** Bodies up to here are sent with the request, so that it can be repeated as a whole. */
  private static final long WHOLE_BYTES = 65536;

  private final long number;
  private final byte[] bytes = new byte[16384];
  private final Cleaner.Cleanable cleanable;

  private Exchange(long number) {
    this.number = number;
    cleanable = TowpathEngine.CLEANER.register(this, free(number));
  }

  private static Runnable free(long number) {
    return () -> Native.exchangeFree(number);
  }

  /** Sends a request; a body that is not sent with it is to follow by {@link #send}. */
  static Exchange start(TowpathEngine engine, Request request, Interceptor.Chain limits) throws IOException {
    RequestBody body = request.body();
    byte[] whole = null;
    long length = Native.NO_BODY;
    if (body != null) {
      length = body.contentLength();
      if (isWhole(body)) {
        Buffer buffer = new Buffer();
        body.writeTo(buffer);
        whole = buffer.readByteArray();
      }
    }
    synchronized (engine) {
      return new Exchange(
          Native.exchangeStart(
              engine.number(),
              lines(request),
              whole,
              length,
              limits.connectTimeoutMillis(),
              limits.readTimeoutMillis(),
              limits.getRetryOnConnectionFailure() ? -1 : 0));
    }
  }

  static boolean isWhole(RequestBody body) throws IOException {
    long length = body.contentLength();
    return length >= 0 && length <= WHOLE_BYTES && !body.isOneShot() && !body.isDuplex();
  }

  /** Method, URL and fields, a line each. */
  static byte[] lines(Request request) {
    StringBuilder lines = new StringBuilder(request.method()).append('\n').append(request.url());
    Headers headers = request.headers();
    for (int index = 0; index < headers.size(); index++) {
      lines.append('\n').append(headers.name(index)).append(':').append(headers.value(index));
    }
    return lines.toString().getBytes(StandardCharsets.UTF_8);
  }

  /** Sends the body, as far as the server wants it. */
  long send(RequestBody body) throws IOException {
    try (CountingSink counting = new CountingSink(this); BufferedSink sink = Okio.buffer(counting)) {
      body.writeTo(sink);
      sink.flush();
      Native.finish(number);
      return counting.count;
    } finally {
      Reference.reachabilityFence(this);
    }
  }

  /** The response's status and fields, a line each. */
  String head() throws IOException {
    try {
      return new String(Native.head(number), StandardCharsets.UTF_8);
    } finally {
      Reference.reachabilityFence(this);
    }
  }

  @Override
  public long read(Buffer sink, long byteCount) throws IOException {
    try {
      int read = Native.read(number, bytes, (int) Math.min(byteCount, bytes.length));
      if (read > 0) {
        sink.write(bytes, 0, read);
      }
      return read;
    } catch (Failure failure) {
      throw failure.known();
    } finally {
      Reference.reachabilityFence(this);
    }
  }

  @Override
  public void write(Buffer source, long byteCount) throws IOException {
    long left = byteCount;
    try {
      while (left > 0) {
        int read = source.read(bytes, 0, (int) Math.min(left, bytes.length));
        left -= read;
        if (!Native.write(number, bytes, 0, read)) {
          // The server has answered, or is gone: the head tells which.
          source.skip(left);
          return;
        }
      }
    } finally {
      Reference.reachabilityFence(this);
    }
  }

  /** The fields after the body, a line each. */
  String trailers() {
    try {
      return new String(Native.trailers(number), StandardCharsets.UTF_8);
    } finally {
      Reference.reachabilityFence(this);
    }
  }

  /** What happened to the request as JSON; empty before it is over. */
  String report() {
    try {
      return new String(Native.report(number), StandardCharsets.UTF_8);
    } finally {
      Reference.reachabilityFence(this);
    }
  }

  void cancel() {
    try {
      Native.cancel(number);
    } finally {
      Reference.reachabilityFence(this);
    }
  }

  @Override
  public void flush() {}

  @Override
  public Timeout timeout() {
    return Timeout.NONE;
  }

  /** The response's end, for who reads it: the request is given up if there is more of it. */
  @Override
  public void close() {
    cancel();
  }

  private static final class CountingSink extends okio.ForwardingSink {
    private long count;

    CountingSink(Sink to) {
      super(to);
    }

    @Override
    public void write(Buffer source, long byteCount) throws IOException {
      count += byteCount;
      super.write(source, byteCount);
    }

    @Override
    public void close() {
      // The response is still to come.
    }
  }
}
