package io.towpath;

import okhttp3.EventListener;
import okhttp3.OkHttpClient;
import okhttp3.Request;
import okhttp3.WebSocket;
import okhttp3.WebSocketListener;

/**
 * WebSockets by an engine of Towpath, for listeners of OkHttp: {@code new TowpathWebSockets(client,
 * engine).newWebSocket(request, listener)}. Of the client they have the timeouts, redirects, cookies, the authenticator,
 * the interval of pings (without one the library's own) and the dispatcher's executor, on which listeners are called.
 * As in OkHttp its interceptors see the handshake, its network interceptors and its EventListener do not. What cannot be
 * honoured fails as it does with {@link TowpathInterceptor}.
 */
public final class TowpathWebSockets implements WebSocket.Factory {
  private final OkHttpClient client;
  private final TowpathEngine engine;

  /** WebSockets with the settings and interceptors of this client, by this engine. */
  public TowpathWebSockets(OkHttpClient client, TowpathEngine engine) {
    OkHttpClient.Builder builder = client.newBuilder().eventListener(EventListener.NONE);
    builder.networkInterceptors().clear();
    this.client = builder.addInterceptor(new TowpathInterceptor(engine)).build();
    this.engine = engine;
  }

  @Override
  public WebSocket newWebSocket(Request request, WebSocketListener listener) {
    TowpathWebSocket socket = new TowpathWebSocket(client, engine, request, listener);
    socket.open();
    return socket;
  }
}
