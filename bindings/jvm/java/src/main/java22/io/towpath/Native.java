package io.towpath;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;

/**
 * The native half by the Foreign Function and Memory API: {@code bindings/jvm/src/ffm.rs}. On JDK 22 and later it stands
 * in the place of the class of this name that uses JNI, and has the same methods.
 */
final class Native {
  static final long NO_BODY = -2;

  private static final int ENGINE_START = 0;
  private static final int ENGINE_FREE = 1;
  private static final int NETWORK_CHANGED = 2;
  private static final int EXCHANGE_START = 3;
  private static final int WRITE = 4;
  private static final int FINISH = 5;
  private static final int HEAD = 6;
  private static final int READ = 7;
  private static final int TRAILERS = 8;
  private static final int REPORT = 9;
  private static final int CANCEL = 10;
  private static final int EXCHANGE_FREE = 11;
  private static final int HUB_START = 12;
  private static final int HUB_TAKE = 13;
  private static final int HUB_RING = 14;
  private static final int SOCKET_START = 15;
  private static final int SOCKET_OPENED = 16;
  private static final int SOCKET_SEND = 17;
  private static final int SOCKET_RECEIVE = 18;
  private static final int SOCKET_WAITING = 19;
  private static final int SOCKET_CLOSE = 20;
  private static final int SOCKET_CANCEL = 21;
  private static final int SOCKET_FREE = 22;

  private static final long NOTHING = -1;
  private static final long FAILED = -2;

  // Where things are in a frame.
  private static final int MOST_NUMBERS = 9;
  private static final long FIRST = 72;
  private static final long SECOND = 88;
  private static final long ANSWER = 104;
  private static final long ANSWER_LENGTH = 112;
  private static final long OWNER = 120;
  private static final long FRAME_BYTES = 128;

  private static final MethodHandle CALL;
  private static final MethodHandle FREE;

  static {
    Path file = Library.unpack();
    SymbolLookup library = SymbolLookup.libraryLookup(file, Arena.global());
    Library.discard(file);
    Linker linker = Linker.nativeLinker();
    CALL =
        linker.downcallHandle(
            library.find("towpath_jvm_call").orElseThrow(),
            FunctionDescriptor.of(ValueLayout.JAVA_LONG, ValueLayout.JAVA_INT, ValueLayout.ADDRESS));
    FREE =
        linker.downcallHandle(
            library.find("towpath_jvm_free").orElseThrow(), FunctionDescriptor.ofVoid(ValueLayout.JAVA_LONG));
  }

  private Native() {}

  static String how() {
    return "FFM";
  }

  /** One call: what it says, and what it is answered. */
  private static final class Frame implements AutoCloseable {
    private final Arena arena = Arena.ofConfined();
    private final MemorySegment memory = arena.allocate(FRAME_BYTES, 8);

    Frame(long... numbers) {
      assert numbers.length <= MOST_NUMBERS;
      MemorySegment.copy(numbers, 0, memory, ValueLayout.JAVA_LONG, 0, numbers.length);
    }

    Frame first(byte[] bytes, int offset, int length) {
      return lay(FIRST, bytes, offset, length);
    }

    Frame first(byte[] bytes) {
      return bytes == null ? this : lay(FIRST, bytes, 0, bytes.length);
    }

    Frame second(byte[] bytes) {
      return bytes == null ? this : lay(SECOND, bytes, 0, bytes.length);
    }

    private Frame lay(long at, byte[] bytes, int offset, int length) {
      MemorySegment copy = arena.allocate(Math.max(length, 1));
      MemorySegment.copy(bytes, offset, copy, ValueLayout.JAVA_BYTE, 0, length);
      memory.set(ValueLayout.ADDRESS, at, copy);
      memory.set(ValueLayout.JAVA_LONG, at + 8, length);
      return this;
    }

    /** Calls the method: its answer's number. */
    long call(int method) throws Failure {
      long number;
      try {
        number = (long) CALL.invokeExact(method, memory);
      } catch (Throwable error) {
        throw new IllegalStateException(error);
      }
      if (number == FAILED) {
        throw new Failure(new String(take(), StandardCharsets.UTF_8));
      }
      return number;
    }

    /** Calls a method that does not fail. */
    long calm(int method) {
      try {
        return call(method);
      } catch (Failure failure) {
        throw new IllegalStateException(failure);
      }
    }

    /** Calls a method that answers bytes, or null. */
    byte[] bytes(int method) throws Failure {
      return call(method) == NOTHING ? null : take();
    }

    byte[] calmBytes(int method) {
      calm(method);
      return take();
    }

    private MemorySegment answer() {
      long length = memory.get(ValueLayout.JAVA_LONG, ANSWER_LENGTH);
      return memory.get(ValueLayout.ADDRESS, ANSWER).reinterpret(length);
    }

    private byte[] take() {
      return answer().toArray(ValueLayout.JAVA_BYTE);
    }

    @Override
    public void close() {
      long owner = memory.get(ValueLayout.JAVA_LONG, OWNER);
      arena.close();
      if (owner != 0) {
        try {
          FREE.invokeExact(owner);
        } catch (Throwable error) {
          throw new IllegalStateException(error);
        }
      }
    }
  }

  static long engineStart(byte[] roots, int maxConnections, int maxCalls, int maxCallsPerOrigin, int windowBytes) {
    try (Frame frame = new Frame(maxConnections, maxCalls, maxCallsPerOrigin, windowBytes)) {
      return frame.first(roots).call(ENGINE_START);
    } catch (Failure failure) {
      throw Native.<RuntimeException>unchecked(failure);
    }
  }

  /** As JNI throws it: whatever the method says of itself. */
  @SuppressWarnings("unchecked")
  private static <T extends Throwable> T unchecked(Throwable error) throws T {
    throw (T) error;
  }

  static void engineFree(long engine) {
    calm(ENGINE_FREE, engine);
  }

  static void networkChanged(long engine, byte[] label, boolean mobile, boolean online) {
    try (Frame frame = new Frame(engine, mobile ? 1 : 0, online ? 1 : 0)) {
      frame.first(label).call(NETWORK_CHANGED);
    } catch (Failure failure) {
      throw Native.<RuntimeException>unchecked(failure);
    }
  }

  static long exchangeStart(
      long engine, byte[] head, byte[] body, long length, int connectMs, int readMs, int retries) throws Failure {
    try (Frame frame = new Frame(engine, length, connectMs, readMs, retries)) {
      return frame.first(head).second(body).call(EXCHANGE_START);
    }
  }

  static boolean write(long exchange, byte[] bytes, int offset, int length) throws Failure {
    try (Frame frame = new Frame(exchange)) {
      return frame.first(bytes, offset, length).call(WRITE) != 0;
    }
  }

  static void finish(long exchange) throws Failure {
    try (Frame frame = new Frame(exchange)) {
      frame.call(FINISH);
    }
  }

  static byte[] head(long exchange) throws Failure {
    try (Frame frame = new Frame(exchange)) {
      return frame.bytes(HEAD);
    }
  }

  static int read(long exchange, byte[] bytes, int length) throws Failure {
    try (Frame frame = new Frame(exchange, length)) {
      int read = (int) frame.call(READ);
      if (read > 0) {
        MemorySegment.copy(frame.answer(), ValueLayout.JAVA_BYTE, 0, bytes, 0, read);
      }
      return read;
    }
  }

  static byte[] trailers(long exchange) {
    return calmBytes(TRAILERS, exchange);
  }

  static byte[] report(long exchange) {
    return calmBytes(REPORT, exchange);
  }

  static void cancel(long exchange) {
    calm(CANCEL, exchange);
  }

  static void exchangeFree(long exchange) {
    calm(EXCHANGE_FREE, exchange);
  }

  static long hubStart() {
    return calm(HUB_START);
  }

  static byte[] hubTake(long hub) {
    return calmBytes(HUB_TAKE, hub);
  }

  static void hubRing(long hub) {
    calm(HUB_RING, hub);
  }

  static long socketStart(
      long engine,
      long hub,
      long token,
      byte[] head,
      int connectMs,
      int readMs,
      int retries,
      int redirects,
      int pingMs,
      int closeMs)
      throws Failure {
    try (Frame frame =
        new Frame(engine, hub, token, connectMs, readMs, retries, redirects, pingMs, closeMs)) {
      return frame.first(head).call(SOCKET_START);
    }
  }

  static byte[] socketOpened(long socket) throws Failure {
    try (Frame frame = new Frame(socket)) {
      return frame.bytes(SOCKET_OPENED);
    }
  }

  static boolean socketSend(long socket, boolean isText, byte[] bytes) throws Failure {
    try (Frame frame = new Frame(socket, isText ? 1 : 0)) {
      return frame.first(bytes).call(SOCKET_SEND) != 0;
    }
  }

  static byte[] socketReceive(long socket) throws Failure {
    try (Frame frame = new Frame(socket)) {
      return frame.bytes(SOCKET_RECEIVE);
    }
  }

  static long socketWaiting(long socket) {
    return calm(SOCKET_WAITING, socket);
  }

  static void socketClose(long socket, int code, byte[] reason) throws Failure {
    try (Frame frame = new Frame(socket, code)) {
      frame.first(reason).call(SOCKET_CLOSE);
    }
  }

  static void socketCancel(long socket) {
    calm(SOCKET_CANCEL, socket);
  }

  static void socketFree(long socket) {
    calm(SOCKET_FREE, socket);
  }

  private static long calm(int method, long... numbers) {
    try (Frame frame = new Frame(numbers)) {
      return frame.calm(method);
    }
  }

  private static byte[] calmBytes(int method, long... numbers) {
    try (Frame frame = new Frame(numbers)) {
      return frame.calmBytes(method);
    }
  }
}
