package io.towpath;

import java.io.IOException;
import okhttp3.HttpUrl;
import okhttp3.Interceptor;
import okhttp3.Request;
import okhttp3.RequestBody;
import okhttp3.Response;

/** What a response asks for: another place, or a name (RFC 9110 §15.4, §11.6). */
final class FollowUp {
  private FollowUp() {}

  /** The next request; null if the response is the app's. */
  static Request of(Interceptor.Chain chain, Response response) throws IOException {
    return switch (response.code()) {
      case 300, 301, 302, 303, 307, 308 -> redirect(chain, response);
      case 401 -> chain.getAuthenticator().authenticate(null, response);
      default -> null;
    };
  }

  private static Request redirect(Interceptor.Chain chain, Response response) {
    String location = response.header("Location");
    if (!chain.getFollowRedirects() || location == null) {
      return null;
    }
    Request request = response.request();
    HttpUrl from = request.url();
    HttpUrl to = from.resolve(location);
    if (to == null || !to.scheme().equals(from.scheme()) && !chain.getFollowSslRedirects()) {
      return null;
    }
    Request.Builder next = request.newBuilder().url(to);
    String method = request.method();
    if (!method.equals("GET") && !method.equals("HEAD") && changesMethod(response.code(), method)) {
      next.method("GET", (RequestBody) null);
      next.removeHeader("Transfer-Encoding").removeHeader("Content-Length").removeHeader("Content-Type");
    }
    boolean same = to.host().equals(from.host()) && to.port() == from.port() && to.scheme().equals(from.scheme());
    if (!same) {
      next.removeHeader("Authorization");
      next.removeHeader("Cookie");
    }
    return next.build();
  }

  /** 303 makes a GET of all; 301 and 302 of what has a body, as browsers do; 307 and 308 of nothing. */
  private static boolean changesMethod(int code, String method) {
    boolean keeps = code == 307 || code == 308 || method.equals("PROPFIND");
    return !keeps && (code == 303 || method.equals("POST") || method.equals("PUT") || method.equals("PATCH"));
  }
}
