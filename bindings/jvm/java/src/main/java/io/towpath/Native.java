package io.towpath;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Locale;

/**
 * The native half: {@code bindings/jvm/src/lib.rs}. Numbers stand for its objects; those that use them keep them
 * alive.
 */
final class Native {
  static final long NO_BODY = -2;

  static {
    load();
  }

  private Native() {}

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

  /** The library of the artifact, or the one that the property {@code towpath.library} names. */
  private static void load() {
    String named = System.getProperty("towpath.library");
    if (named != null) {
      System.load(named);
      return;
    }
    String system = System.getProperty("os.name").toLowerCase(Locale.ROOT);
    String platform = system + "-" + System.getProperty("os.arch").replace("x86_64", "amd64");
    try (InputStream library = Native.class.getResourceAsStream("native/" + platform + "/libtowpath_jvm.so")) {
      if (library == null) {
        throw new UnsatisfiedLinkError("towpath has no native library for " + platform);
      }
      Path file = Files.createTempFile("towpath", ".so");
      Files.copy(library, file, StandardCopyOption.REPLACE_EXISTING);
      System.load(file.toString());
      // It stays loaded without its name.
      Files.delete(file);
    } catch (IOException error) {
      throw new UncheckedIOException("the native library of towpath cannot be unpacked", error);
    }
  }
}
