package io.towpath;

import java.nio.file.Path;

/**
 * The native half by JNI: {@code bindings/jvm/src/lib.rs}. Numbers stand for its objects; those that use them keep them
 * alive. On JDK 22 and later the class of this name in {@code java22} stands in its place.
 */
final class Native {
  static final long NO_BODY = -2;

  static {
    Path file = Library.unpack();
    System.load(file.toString());
    Library.discard(file);
  }

  private Native() {}

  /** How it is called. */
  static String how() {
    return "JNI";
  }

  static native long engineStart(
      byte[] roots, int maxConnections, int maxCalls, int maxCallsPerOrigin, int windowBytes);

  static native void engineFree(long engine);

  static native void networkChanged(long engine, byte[] label, boolean mobile, boolean online);

  static native long exchangeStart(
      long engine, byte[] head, byte[] body, long length, int connectMs, int readMs, int retries) throws Failure;

  static native boolean write(long exchange, byte[] bytes, int offset, int length) throws Failure;

  static native void finish(long exchange) throws Failure;

  static native byte[] head(long exchange) throws Failure;

  static native int read(long exchange, byte[] bytes, int length) throws Failure;

  static native byte[] trailers(long exchange);

  static native byte[] report(long exchange);

  static native void cancel(long exchange);

  static native void exchangeFree(long exchange);

  static native long hubStart();

  static native byte[] hubTake(long hub);

  static native void hubRing(long hub);

  static native long socketStart(
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
      throws Failure;

  static native byte[] socketOpened(long socket) throws Failure;

  static native boolean socketSend(long socket, boolean isText, byte[] bytes) throws Failure;

  static native byte[] socketReceive(long socket) throws Failure;

  static native long socketWaiting(long socket);

  static native void socketClose(long socket, int code, byte[] reason) throws Failure;

  static native void socketCancel(long socket);

  static native void socketFree(long socket);
}
