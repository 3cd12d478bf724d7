package io.towpath;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Locale;
import okhttp3.OkHttpClient;
import okhttp3.Request;
import okhttp3.Response;

/**
 * The same requests through OkHttp and through OkHttp with the engine below, in turns: CPU of all threads of the
 * process but the server's, which is a process of its own, requests a second, resident memory, and time from the
 * client's making to the first body. A process for each of them and each round; medians, and the range of the ratio
 * over the rounds.
 *
 * <p>Run by {@code cargo xtask bindings jvm bench [--quick]}.
 */
final class Compare {
  private static final String[] FIGURES = {
    "CPU, µs a request", "requests/s", "resident, KiB", "start to first body, ms"
  };

  private Compare() {}

  public static void main(String[] words) throws Exception {
    switch (words.length == 0 ? "" : words[0]) {
      case "serve" -> serve();
      case "measure" -> measure(words[1], words[2], Integer.parseInt(words[3]), Integer.parseInt(words[4]));
      case "", "--quick" -> compare(words.length > 0);
      default -> throw new IllegalArgumentException("usage: Compare [--quick]");
    }
  }

  private static void compare(boolean quick) throws Exception {
    int rounds = quick ? 3 : 7;
    Process server = start("serve");
    try {
      String url = new String(server.getInputStream().readNBytes(32), StandardCharsets.US_ASCII).trim();
      int processors = Runtime.getRuntime().availableProcessors();
      System.out.printf("%d processors, Java %s, %d rounds%n", processors, Runtime.version().feature(), rounds);
      System.out.printf("towpath, okhttp, and their ratio: median, and range over the rounds%n%n");
      for (int size : new int[] {13, 1_000_000}) {
        int requests = (quick ? 2000 : 10_000) / (size > 1000 ? 20 : 1);
        System.out.printf("one after the other, %d B, %d requests%n", size, requests);
        print(rounds(url, size, requests, rounds));
      }
    } finally {
      server.destroy();
    }
  }

  private static double[][][] rounds(String url, int size, int requests, int rounds) throws Exception {
    double[][][] measured = new double[2][rounds][];
    for (int round = 0; round < rounds; round++) {
      for (int turn = 0; turn < 2; turn++) {
        int which = (round + turn) % 2;
        String subject = which == 0 ? "towpath" : "okhttp";
        Process process = start("measure", subject, url, Integer.toString(size), Integer.toString(requests));
        String printed = new String(process.getInputStream().readAllBytes(), StandardCharsets.US_ASCII).trim();
        if (process.waitFor() != 0) {
          throw new IOException(subject + " failed");
        }
        measured[which][round] = Arrays.stream(printed.split(" ")).mapToDouble(Double::parseDouble).toArray();
      }
    }
    return measured;
  }

  private static void print(double[][][] measured) {
    int rounds = measured[0].length;
    for (int figure = 0; figure < FIGURES.length; figure++) {
      double[][] sorted = new double[3][rounds];
      for (int round = 0; round < rounds; round++) {
        sorted[0][round] = measured[0][round][figure];
        sorted[1][round] = measured[1][round][figure];
        sorted[2][round] = sorted[0][round] / sorted[1][round];
      }
      for (double[] each : sorted) {
        Arrays.sort(each);
      }
      double[] ratio = sorted[2];
      System.out.printf(
          "  %-24s %10.1f %10.1f   ratio %.2f (%.2f to %.2f)%n",
          FIGURES[figure],
          sorted[0][rounds / 2],
          sorted[1][rounds / 2],
          ratio[rounds / 2],
          ratio[0],
          ratio[rounds - 1]);
    }
  }

  private static Process start(String... words) throws IOException {
    String program = System.getProperty("java.home") + "/bin/java";
    String[] java = {program, "-Xmx256m", "-cp", System.getProperty("java.class.path")};
    String[] command = Arrays.copyOf(java, java.length + 1 + words.length);
    command[java.length] = Compare.class.getName();
    System.arraycopy(words, 0, command, java.length + 1, words.length);
    return new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
  }

  private static void measure(String subject, String url, int size, int requests) throws IOException {
    long began = System.nanoTime();
    OkHttpClient.Builder builder = new OkHttpClient.Builder();
    if (subject.equals("towpath")) {
      builder.addInterceptor(new TowpathInterceptor(TowpathEngine.create()));
    }
    OkHttpClient client = builder.build();
    Request request = new Request.Builder().url(url + "/" + size).build();
    get(client, request, size);
    double startMs = (System.nanoTime() - began) / 1e6;
    // What the JVM compiles is compiled then.
    for (int warm = 0; warm < requests; warm++) {
      get(client, request, size);
    }
    long cpu = cpuNs();
    long begin = System.nanoTime();
    for (int number = 0; number < requests; number++) {
      get(client, request, size);
    }
    double took = System.nanoTime() - begin;
    double cpuUs = (cpuNs() - cpu) / 1e3 / requests;
    System.out.printf(Locale.ROOT, "%f %f %d %f%n", cpuUs, requests / took * 1e9, residentKib(), startMs);
    System.exit(0);
  }

  private static void get(OkHttpClient client, Request request, int size) throws IOException {
    try (Response response = client.newCall(request).execute()) {
      if (response.body().bytes().length != size) {
        throw new IOException("the body is not whole");
      }
    }
  }

  private static long cpuNs() throws IOException {
    long total = 0;
    try (DirectoryStream<Path> tasks = Files.newDirectoryStream(Path.of("/proc/self/task"))) {
      for (Path task : tasks) {
        total += Long.parseLong(Files.readString(task.resolve("schedstat")).split(" ")[0]);
      }
    }
    return total;
  }

  private static long residentKib() throws IOException {
    return Long.parseLong(Files.readString(Path.of("/proc/self/statm")).split(" ")[1]) * 4;
  }

  /** Answers every path {@code /N} with N bytes; prints its URL, filled up with blanks to 32 bytes. */
  private static void serve() throws IOException {
    try (ServerSocket listener = new ServerSocket(0)) {
      System.out.printf("%-32s", "http://127.0.0.1:" + listener.getLocalPort());
      System.out.flush();
      while (true) {
        Socket socket = listener.accept();
        socket.setTcpNoDelay(true);
        Thread thread = new Thread(() -> answer(socket));
        thread.setDaemon(true);
        thread.start();
      }
    }
  }

  private static void answer(Socket socket) {
    byte[] buffer = new byte[4096];
    int filled = 0;
    try (socket) {
      InputStream in = socket.getInputStream();
      OutputStream out = socket.getOutputStream();
      for (int read; (read = in.read(buffer, filled, buffer.length - filled)) > 0; ) {
        filled += read;
        String text = new String(buffer, 0, filled, StandardCharsets.ISO_8859_1);
        if (text.endsWith("\r\n\r\n")) {
          int size = Integer.parseInt(text.substring(text.indexOf('/') + 1, text.indexOf(" HTTP")));
          byte[] head = ("HTTP/1.1 200 OK\r\ncontent-length: " + size + "\r\n\r\n").getBytes(StandardCharsets.US_ASCII);
          byte[] whole = Arrays.copyOf(head, head.length + size);
          out.write(whole);
          filled = 0;
        }
      }
    } catch (IOException error) {
      // The client is gone.
    }
  }
}
