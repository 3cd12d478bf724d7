package io.towpath;

import java.io.IOException;
import java.time.Duration;
import java.time.Instant;
import okhttp3.OkHttpClient;
import okhttp3.Request;
import okhttp3.Response;

/**
 * Gets a URL, however long there is no network, and prints when its answer was there: {@code cargo xtask bindings
 * outage}.
 */
final class Fetch {
  private Fetch() {}

  public static void main(String[] words) throws IOException {
    OkHttpClient patient =
        new OkHttpClient.Builder().connectTimeout(Duration.ZERO).readTimeout(Duration.ZERO).build();
    try (TowpathEngine engine = TowpathEngine.create()) {
      Request request = new Request.Builder().url(words[0]).build();
      try (Response response = TowpathInterceptor.callFactory(patient, engine).newCall(request).execute()) {
        response.body().string();
        Instant now = Instant.now();
        System.out.printf("%d.%09d%n", now.getEpochSecond(), now.getNano());
      }
    }
  }
}
