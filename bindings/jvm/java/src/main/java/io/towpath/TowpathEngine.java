package io.towpath;

import java.lang.ref.Cleaner;
import java.nio.charset.StandardCharsets;

/**
 * One native thread that carries any number of requests: it races connections, repeats what may be repeated, and
 * resumes responses that break off. It ends when it is closed, or collected, and the last request on it has ended.
 * Any thread may use it.
 */
public final class TowpathEngine implements AutoCloseable {
  static final Cleaner CLEANER = Cleaner.create();

  private final long number;
  private final Cleaner.Cleanable cleanable;
  private boolean closed;

  private TowpathEngine(Builder builder) {
    number =
        Native.engineStart(
            builder.roots,
            builder.maxConnections,
            builder.maxCalls,
            builder.maxRequestsPerHost,
            builder.windowBytes);
    cleanable = CLEANER.register(this, free(number));
  }

  /** An engine with default settings. */
  public static TowpathEngine create() {
    return new Builder().build();
  }

  // Not in the constructor: what is run at the end must not know the engine.
  private static Runnable free(long number) {
    return () -> Native.engineFree(number);
  }

  /**
   * Says what network there is, in place of what the kernel tells: {@code label} is a name by which it is known
   * again.
   */
  public synchronized void networkChanged(String label, boolean mobile, boolean online) {
    Native.networkChanged(number(), label.getBytes(StandardCharsets.UTF_8), mobile, online);
  }

  /** Its number; the caller holds this object's monitor while it is used. */
  long number() {
    if (closed) {
      throw new IllegalStateException("the engine was closed");
    }
    return number;
  }

  /** Takes no more requests. Those that are under way go on, and its thread ends with the last of them. */
  @Override
  public synchronized void close() {
    closed = true;
    cleanable.clean();
  }

  /** How to start an engine. */
  public static final class Builder {
    private byte[] roots;
    private int maxConnections = -1;
    private int maxCalls = -1;
    private int maxRequestsPerHost = -1;
    private int windowBytes = -1;

    /** Believes those that these certificates (PEM) have signed, and not the platform's. */
    public Builder roots(String pem) {
      roots = pem.getBytes(StandardCharsets.UTF_8);
      return this;
    }

    /** Connections to one origin: 16 by default. */
    public Builder maxConnections(int connections) {
      maxConnections = connections;
      return this;
    }

    /** Requests under way: 1024 by default; one more fails. */
    public Builder maxCalls(int calls) {
      maxCalls = calls;
      return this;
    }

    /**
     * Requests under way to one origin; more wait in order. Unlike that of OkHttp's dispatcher it counts calls that are
     * executed as well, and holds for all clients of the engine. No limit by default.
     */
    public Builder maxRequestsPerHost(int requests) {
      maxRequestsPerHost = requests;
      return this;
    }

    /** Bytes of either body that may wait: 262144 by default. */
    public Builder windowBytes(int bytes) {
      windowBytes = bytes;
      return this;
    }

    /** Starts it. */
    public TowpathEngine build() {
      return new TowpathEngine(this);
    }
  }
}
