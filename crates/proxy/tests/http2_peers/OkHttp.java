import java.io.IOException;
import java.util.List;
import java.util.concurrent.TimeUnit;
import okhttp3.MediaType;
import okhttp3.OkHttpClient;
import okhttp3.Protocol;
import okhttp3.Request;
import okhttp3.RequestBody;

/** OkHttp, which speaks HTTP/2 by prior knowledge: asks at an address, and prints each story that went well. */
class OkHttp {
    private static final OkHttpClient CLIENT = new OkHttpClient.Builder()
            .protocols(List.of(Protocol.H2_PRIOR_KNOWLEDGE)).callTimeout(20, TimeUnit.SECONDS).build();

    public static void main(String[] arguments) throws Exception {
        var address = arguments[0];
        int[] sizes = {0, 1, 16_384, 16_385, 3_000_000};
        for (int bytes : sizes) download(address, bytes);
        System.out.println("downloads");
        for (int bytes : sizes) {
            var body = RequestBody.create(pattern(bytes), MediaType.get("application/octet-stream"));
            try (var response = CLIENT.newCall(to(address, "/upload").post(body).build()).execute()) {
                var said = response.body().string();
                if (!said.equals(String.valueOf(bytes))) throw new AssertionError(response + said);
            }
        }
        System.out.println("uploads");
        try (var response = CLIENT.newCall(to(address, "/trailers").build()).execute()) {
            if (!response.body().string().equals("body") || !"4".equals(response.trailers().get("x-sum"))) {
                throw new AssertionError(response);
            }
        }
        System.out.println("trailers");
        try (var response = CLIENT.newCall(to(address, "/reset").build()).execute()) {
            response.body().bytes();
            throw new AssertionError("it ended as if it were whole");
        } catch (IOException reset) {
            download(address, 10);
        }
        System.out.println("resets");
        for (int turn = 0; turn < 10; turn++) {
            try (var response = CLIENT.newCall(to(address, "/endless").build()).execute()) {
                response.body().source().skip(100_000);
            }
        }
        download(address, 10);
        System.out.println("gives_up");
        var threads = new Thread[20];
        var failed = new java.util.concurrent.atomic.AtomicReference<Throwable>();
        for (int at = 0; at < threads.length; at++) {
            threads[at] = new Thread(() -> {
                for (int turn = 0; turn < 10; turn++) {
                    try {
                        download(address, turn * 10_000);
                    } catch (Throwable problem) {
                        failed.set(problem);
                    }
                }
            });
            threads[at].start();
        }
        for (var thread : threads) thread.join();
        if (failed.get() != null) throw new AssertionError(failed.get());
        System.out.println("many_at_once");
        System.exit(0);
    }

    private static Request.Builder to(String address, String path) {
        return new Request.Builder().url("http://" + address + path);
    }

    private static void download(String address, int bytes) throws IOException {
        try (var response = CLIENT.newCall(to(address, "/download/" + bytes).build()).execute()) {
            var body = response.body().bytes();
            if (response.code() != 200 || !java.util.Arrays.equals(body, pattern(bytes))) {
                throw new AssertionError(response + ": " + body.length);
            }
        }
    }

    /** Each byte of a body tells where it stands. */
    private static byte[] pattern(int length) {
        var bytes = new byte[length];
        for (int at = 0; at < length; at++) bytes[at] = (byte) (at % 251);
        return bytes;
    }
}
