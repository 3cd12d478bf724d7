package io.towpath;

import java.io.EOFException;
import java.io.IOException;
import java.io.Serial;
import java.net.ConnectException;
import java.net.ProtocolException;
import java.net.SocketTimeoutException;
import java.net.UnknownHostException;
import javax.net.ssl.SSLHandshakeException;

/** What the native half throws: the kind of the failure, and what happened. */
final class Failure extends IOException {
  @Serial private static final long serialVersionUID = 1;

  private final String kind;

  /** Called by the native half: the kind is what stands before the first line break. */
  Failure(String kindAndText) {
    super(kindAndText.substring(kindAndText.indexOf('\n') + 1));
    this.kind = kindAndText.substring(0, kindAndText.indexOf('\n'));
  }

  /** What the server has answered instead of what was wanted; 0 where that is not why. */
  int status() {
    return kind.startsWith("status ") ? Integer.parseInt(kind.substring("status ".length())) : 0;
  }

  /** The exception that OkHttp's callers know, caused by this one. */
  IOException known() {
    String text = getMessage();
    if (status() > 0) {
      ProtocolException refused = new ProtocolException("Expected HTTP 101 response but was '" + status() + "'");
      refused.initCause(this);
      return refused;
    }
    IOException known =
        switch (kind) {
          case "resolve" -> new UnknownHostException(text);
          case "connect", "offline" -> new ConnectException(text);
          case "connect timeout", "read timeout", "write timeout", "total timeout" -> new SocketTimeoutException(text);
          case "tls", "tls settings" -> new SSLHandshakeException(text);
          case "protocol", "redirect", "token", "upload", "url", "websocket" -> new ProtocolException(text);
          case "disconnected" -> new EOFException(text);
          // OkHttp's own word.
          case "cancelled" -> new IOException("Canceled");
          default -> new IOException(kind + ": " + text);
        };
    known.initCause(this);
    return known;
  }
}
