package io.towpath;

import okhttp3.OkHttpClient;
import okhttp3.Request;
import okhttp3.WebSocket;
import okhttp3.WebSocketListener;

/**
 * WebSockets by an engine of Towpath, for listeners of OkHttp: {@code new TowpathWebSockets(client,
 * engine).newWebSocket(request, listener)}. Of the client they have the timeouts, redirects, cookies, the interval of
 * pings (without one the library's own) and the dispatcher's executor, on which listeners are called; its interceptors
 * are not called. What cannot be honoured fails as it does with {@link TowpathInterceptor}.
 */
public final class TowpathWebSockets implements WebSocket.Factory {
  private final OkHttpClient client;
  private final TowpathEngine engine;

  /** WebSockets with the settings of this client, by this engine. */
  public TowpathWebSockets(OkHttpClient client, TowpathEngine engine) {
    this.client = client;
    this.engine = engine;
  }

  @Override
  public WebSocket newWebSocket(Request request, WebSocketListener listener) {
    TowpathWebSocket socket = new TowpathWebSocket(client, request, listener);
    socket.open(engine);
    return socket;
  }
}
