package io.towpath;

import java.io.IOException;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.List;
import okhttp3.Interceptor;
import okhttp3.Request;
import okhttp3.Response;

/**
 * What a network interceptor is called with. As in OkHttp it goes on exactly once, to the same host and port, and changes
 * no setting of the call; unlike there it has no connection: the engine chooses one only later.
 */
final class NetworkChain implements InvocationHandler {
  /** Asks the server itself. */
  interface Server {
    Response ask(Request request) throws IOException;
  }

  private final Interceptor.Chain call;
  private final List<Interceptor> interceptors;
  private final int index;
  private final Request request;
  private final Server server;
  private int calls;

  private NetworkChain(
      Interceptor.Chain call, List<Interceptor> interceptors, int index, Request request, Server server) {
    this.call = call;
    this.interceptors = interceptors;
    this.index = index;
    this.request = request;
    this.server = server;
  }

  /** Sends a request through the interceptors, of which the first sees it first. */
  static Response proceed(Interceptor.Chain call, List<Interceptor> interceptors, Request request, Server server)
      throws IOException {
    return at(call, interceptors, 0, request, server);
  }

  private static Response at(
      Interceptor.Chain call, List<Interceptor> interceptors, int index, Request request, Server server)
      throws IOException {
    if (index == interceptors.size()) {
      return server.ask(request);
    }
    NetworkChain chain = new NetworkChain(call, interceptors, index, request, server);
    Class<?>[] type = {Interceptor.Chain.class};
    Object proxy = Proxy.newProxyInstance(NetworkChain.class.getClassLoader(), type, chain);
    Response response = interceptors.get(index).intercept((Interceptor.Chain) proxy);
    chain.check(chain.calls == 1, "call proceed() exactly once");
    return response;
  }

  private Response proceed(Request next) throws IOException {
    calls++;
    check(calls == 1, "call proceed() exactly once");
    boolean same = next.url().host().equals(request.url().host()) && next.url().port() == request.url().port();
    check(same, "retain the same host and port");
    return at(call, interceptors, index + 1, next, server);
  }

  private void check(boolean holds, String must) {
    if (!holds) {
      throw new IllegalStateException("network interceptor " + interceptors.get(index) + " must " + must);
    }
  }

  @Override
  public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
    switch (method.getName()) {
      case "request":
        return request;
      case "connection":
        return null;
      case "proceed":
        return proceed((Request) arguments[0]);
      default:
        check(method.getReturnType() != Interceptor.Chain.class, "not change the call's settings");
        try {
          return method.invoke(call, arguments);
        } catch (InvocationTargetException error) {
          throw error.getCause();
        }
    }
  }
}
