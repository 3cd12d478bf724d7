package io.towpath;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.HashMap;
import java.util.Map;

/**
 * One thread for all WebSockets, which waits until some of them go on and tells those. It begins with the first and ends
 * with the last.
 */
final class SocketHub {
  static final SocketHub ONLY = new SocketHub();

  /** It stays as long as the process. */
  private final long number = Native.hubStart();

  private final Map<Long, TowpathWebSocket> open = new HashMap<>();
  private long tokens;
  private boolean runs;

  private SocketHub() {}

  long number() {
    return number;
  }

  /** From here on it is told, and not collected. The answer is its token. */
  synchronized long add(TowpathWebSocket socket) {
    open.put(++tokens, socket);
    if (!runs) {
      runs = true;
      Thread thread = new Thread(this::run, "towpath sockets");
      thread.setDaemon(true);
      thread.start();
    }
    return tokens;
  }

  synchronized void remove(long token) {
    open.remove(token);
    if (open.isEmpty()) {
      Native.hubRing(number);
    }
  }

  private void run() {
    while (goesOn()) {
      ByteBuffer ready = ByteBuffer.wrap(Native.hubTake(number)).order(ByteOrder.LITTLE_ENDIAN);
      while (ready.hasRemaining()) {
        TowpathWebSocket socket = find(ready.getLong());
        if (socket != null) {
          socket.look();
        }
      }
    }
  }

  private synchronized boolean goesOn() {
    runs = !open.isEmpty();
    return runs;
  }

  private synchronized TowpathWebSocket find(long token) {
    return open.get(token);
  }
}
