import com.alipay.remoting.*;
import com.alipay.remoting.exception.*;
import com.alipay.remoting.rpc.*;
import com.alipay.remoting.rpc.exception.*;
import com.alipay.remoting.rpc.protocol.*;
import com.alipay.remoting.serialization.*;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;

/**
 * A server and a client of sofa-bolt: `server PORT`, `client ADDRESS…`, `echo ADDRESS…`, `loss ADDRESS`, `leave
 * ADDRESS`, `named ADDRESS METHOD…`.
 */
public class Peer {
    static RpcServer server;

    public static void main(String[] words) throws Exception {
        // Other threads would keep the process.
        Thread.currentThread().setUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            System.exit(1);
        });
        SerializerManager.addSerializer(11, new AsTheyAre());
        switch (words[0]) {
            case "server" -> serve(Integer.parseInt(words[1]));
            case "client" -> {
                for (int at = 1; at < words.length; at++) new Client(words[at]).all();
                System.out.println("done");
                System.exit(0);
            }
            case "echo" -> {
                for (int at = 1; at < words.length; at++) new Client(words[at]).echoes();
                System.out.println("done");
                System.exit(0);
            }
            case "loss" -> {
                for (int at = 1; at < words.length; at++) new Client(words[at]).loss();
                System.exit(0);
            }
            case "leave" -> new Client(words[1]).leave();
            case "named" -> {
                CustomSerializerManager.registerCustomSerializer(byte[].class.getName(), new Named());
                for (int at = 2; at < words.length; at++) new Client(words[1]).named(words[at]);
                System.exit(0);
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    static void serve(int port) throws Exception {
        server = new RpcServer("127.0.0.1", port);
        server.registerUserProcessor(new Words());
        server.registerUserProcessor(new OneAtATime());
        server.registerUserProcessor(new Echo());
        server.startup();
        System.out.println("listening");
        Thread.currentThread().join();
    }

    /** Text, by Hessian. */
    static class Words extends SyncUserProcessor<String> {
        final AtomicInteger oneways = new AtomicInteger();

        @Override public Object handleRequest(BizContext context, String word) throws Exception {
            if (word.startsWith("sleep:")) Thread.sleep(Long.parseLong(word.substring(6)));
            if (word.equals("throw")) throw new IllegalStateException("as asked");
            if (word.equals("oneway")) return oneways.incrementAndGet();
            if (word.equals("count")) return String.valueOf(oneways.getAndSet(0));
            if (word.equals("ask back")) return askBack(context);
            return word;
        }

        /** What becomes of a call of ours to the client that calls us. */
        static String askBack(BizContext context) throws InterruptedException {
            try {
                return "answered " + server.invokeSync(context.getConnection(), "whose is this?", 3000);
            } catch (RemotingException error) {
                return error.getClass().getSimpleName() + " " + error.getMessage();
            }
        }

        @Override public String interest() { return String.class.getName(); }
    }

    /** Numbers, one at a time: a call that comes meanwhile is told that the server is busy. */
    static class OneAtATime extends SyncUserProcessor<Integer> {
        final Executor executor =
            new ThreadPoolExecutor(1, 1, 1, TimeUnit.MINUTES, new SynchronousQueue<>());

        @Override public Object handleRequest(BizContext context, Integer ms) throws Exception {
            Thread.sleep(ms);
            return ms;
        }

        @Override public String interest() { return Integer.class.getName(); }

        @Override public Executor getExecutor() { return executor; }
    }

    /** Bytes, as a load generator sends them. */
    static class Echo extends SyncUserProcessor<byte[]> {
        @Override public Object handleRequest(BizContext context, byte[] bytes) { return bytes; }

        @Override public String interest() { return "towpath.Bytes"; }
    }

    static class AsTheyAre implements Serializer {
        @Override public byte[] serialize(Object bytes) { return (byte[]) bytes; }

        @SuppressWarnings("unchecked")
        @Override public <T> T deserialize(byte[] bytes, String type) { return (T) bytes; }
    }

    /** Says in the header block what is called, as SOFARPC does. */
    static class Named extends DefaultCustomSerializer {
        @Override public <T extends RequestCommand> boolean serializeHeader(T request, InvokeContext context) {
            Map<String, String> block = Map.of("service", "com.example.Orders:1.0", "sofa_head_method_name", context.get("method"));
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            block.forEach((key, value) -> {
                for (String text : List.of(key, value)) {
                    out.writeBytes(ByteBuffer.allocate(4).putInt(text.length()).array());
                    out.writeBytes(text.getBytes(StandardCharsets.ISO_8859_1));
                }
            });
            ((RpcRequestCommand) request).setHeader(out.toByteArray());
            return true;
        }
    }

    static class Client {
        final String address;
        final RpcClient client = new RpcClient();

        Client(String address) {
            this.address = address;
            client.enableReconnectSwitch();
            client.startup();
        }

        void all() throws Exception {
            echoes();
            oneway();
            timeout();
            exception();
            busy();
            askedBack();
        }

        /** What a server can answer that knows nothing of Hessian. */
        void echoes() throws Exception {
            sync();
            large();
            many();
            future();
            callback();
            heartbeat();
        }

        Object ask(Object request, int timeout) throws Exception {
            return client.invokeSync(address, request, timeout);
        }

        void check(String what, Object wanted, Object got) {
            if (!Objects.equals(wanted, got))
                throw new AssertionError(address + ": " + what + ": " + got + " where " + wanted + " was wanted");
        }

        void passed(String what) { System.out.println("passed " + what + " " + address); }

        void sync() throws Exception {
            for (int at = 0; at < 200; at++) check("sync", "echo " + at, ask("echo " + at, 3000));
            passed("sync");
        }

        void large() throws Exception {
            String text = "0123456789".repeat(100_000);
            check("large", text, ask(text, 10000));
            passed("large");
        }

        void many() throws Exception {
            ExecutorService threads = Executors.newFixedThreadPool(8);
            List<Future<?>> all = new ArrayList<>();
            for (int thread = 0; thread < 8; thread++) {
                int number = thread;
                all.add(threads.submit(() -> {
                    for (int at = 0; at < 500; at++) {
                        String word = "echo " + number + " " + at;
                        check("many", word, ask(word, 10000));
                    }
                    return null;
                }));
            }
            for (Future<?> one : all) one.get();
            threads.shutdown();
            passed("many");
        }

        void oneway() throws Exception {
            ask("count", 3000);
            for (int at = 0; at < 10; at++) client.oneway(address, "oneway");
            Thread.sleep(300);
            check("oneway", "10", ask("count", 3000));
            passed("oneway");
        }

        void future() throws Exception {
            List<RpcResponseFuture> all = new ArrayList<>();
            for (int at = 0; at < 50; at++) all.add(client.invokeWithFuture(address, "future " + at, 5000));
            for (int at = 0; at < 50; at++) check("future", "future " + at, all.get(at).get(5000));
            passed("future");
        }

        void callback() throws Exception {
            Set<Object> got = ConcurrentHashMap.newKeySet();
            CountDownLatch latch = new CountDownLatch(50);
            for (int at = 0; at < 50; at++) {
                client.invokeWithCallback(address, "callback " + at, new InvokeCallback() {
                    @Override public void onResponse(Object result) { got.add(result); latch.countDown(); }

                    @Override public void onException(Throwable error) { got.add(error); latch.countDown(); }

                    @Override public Executor getExecutor() { return null; }
                }, 5000);
            }
            latch.await(10, TimeUnit.SECONDS);
            for (int at = 0; at < 50; at++) check("callback", true, got.contains("callback " + at));
            passed("callback");
        }

        void timeout() throws Exception {
            String outcome = "answered";
            try {
                ask("sleep:1500", 300);
            } catch (InvokeTimeoutException expected) {
                outcome = "timeout";
            }
            check("timeout", "timeout", outcome);
            // The late answer must not reach another call.
            for (int at = 0; at < 20; at++) {
                check("after the timeout", "echo " + at, ask("echo " + at, 3000));
                Thread.sleep(100);
            }
            passed("timeout");
        }

        void exception() throws Exception {
            String outcome = "answered";
            try {
                ask("throw", 3000);
            } catch (InvokeServerException expected) {
                outcome = "exception";
            }
            check("exception", "exception", outcome);
            passed("exception");
        }

        void busy() throws Exception {
            ExecutorService threads = Executors.newFixedThreadPool(3);
            List<Future<String>> all = new ArrayList<>();
            for (int at = 0; at < 3; at++) {
                all.add(threads.submit(() -> {
                    try {
                        return String.valueOf(ask(400, 5000));
                    } catch (InvokeServerBusyException expected) {
                        return "busy";
                    }
                }));
            }
            List<String> outcomes = new ArrayList<>();
            for (Future<String> one : all) outcomes.add(one.get());
            Collections.sort(outcomes);
            check("busy", List.of("400", "busy", "busy"), outcomes);
            threads.shutdown();
            passed("busy");
        }

        /** The server asks its client, which is the proxy: it has no processor, and says so. */
        void askedBack() throws Exception {
            String told = (String) ask("ask back", 5000);
            check("asked back: " + told, true, told.contains("NO_PROCESSOR") || told.contains("Processor"));
            passed("asked back");
        }

        void heartbeat() throws Exception {
            Connection before = client.getConnection(address, 3000);
            Thread.sleep(2500);
            check("heartbeat", "still", ask("still", 3000));
            check("heartbeat keeps the connection", before, client.getConnection(address, 3000));
            passed("heartbeat");
        }

        void loss() throws Exception {
            check("before", "echo", ask("echo", 3000));
            System.out.println("waiting");
            long start = System.nanoTime();
            String outcome = "answered";
            try {
                ask("sleep:20000", 15000);
            } catch (RemotingException error) {
                outcome = error.getClass().getSimpleName();
            }
            System.out.println("lost " + outcome + " " + (System.nanoTime() - start) / 1_000_000);
            // Another server comes in its place.
            long end = System.nanoTime() + 30_000_000_000L;
            while (!outcome.equals("back") && System.nanoTime() < end) {
                try {
                    outcome = (String) ask("back", 3000);
                } catch (RemotingException error) {
                    Thread.sleep(50);
                }
            }
            check("after the loss", "back", outcome);
            System.out.println("back");
        }

        /** Ends, with its process, while it waits for answers. */
        void leave() throws Exception {
            for (int at = 0; at < 5; at++) client.invokeWithFuture(address, "sleep:5000", 20000);
            System.out.println("waiting");
            Thread.currentThread().join();
        }

        /** Calls a method with bytes and says what it gets. */
        void named(String method) throws Exception {
            InvokeContext context = new InvokeContext();
            context.put(InvokeContext.BOLT_CUSTOM_SERIALIZER, (byte) 11);
            context.put("method", method);
            String outcome;
            try {
                byte[] bytes = (byte[]) client.invokeSync(address, ("asked " + method).getBytes(), context, 5000);
                outcome = bytes == null ? "answered nothing" : "answered " + new String(bytes);
            } catch (RemotingException error) {
                outcome = error.getClass().getSimpleName();
            }
            System.out.println("named " + method + " " + outcome);
        }
    }
}
