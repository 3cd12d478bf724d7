import com.alipay.sofa.rpc.api.future.SofaResponseFuture;
import com.alipay.sofa.rpc.config.*;
import com.alipay.sofa.rpc.core.exception.*;
import com.alipay.sofa.rpc.core.invoke.SofaResponseCallback;
import com.alipay.sofa.rpc.core.request.RequestBase;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;

/** A server and a client of SOFARPC over Bolt: `server PORT`, `client ADDRESS`. */
public class Rpc {
    public interface Words {
        String echo(String word);

        String sleep(String word, int ms);

        String fail(String why);

        int countOneways();

        void oneway();

        /** No server has it: the proxy has no host for it. */
        String nowhere(String word);
    }

    public static void main(String[] words) throws Exception {
        // Other threads would keep the process.
        Thread.currentThread().setUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            System.exit(1);
        });
        // SOFARPC finds interfaces by name there.
        Thread.currentThread().setContextClassLoader(Rpc.class.getClassLoader());
        switch (words[0]) {
            case "server" -> serve(Integer.parseInt(words[1]));
            case "client" -> {
                new Client(words[1]).all();
                System.out.println("done");
                System.exit(0);
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    static void serve(int port) throws Exception {
        ServerConfig server = new ServerConfig()
            .setProtocol("bolt").setBoundHost("127.0.0.1").setHost("127.0.0.1").setPort(port).setDaemon(false);
        new ProviderConfig<Words>()
            .setInterfaceId(Words.class.getName()).setRef(new Answers()).setServer(server).setRegister(false).export();
        System.out.println("listening");
        Thread.currentThread().join();
    }

    public static class Answers implements Words {
        final AtomicInteger oneways = new AtomicInteger();

        @Override public String echo(String word) { return word; }

        @Override public String sleep(String word, int ms) {
            try {
                Thread.sleep(ms);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
            return word;
        }

        @Override public String fail(String why) { throw new IllegalStateException(why); }

        @Override public int countOneways() { return oneways.get(); }

        @Override public void oneway() { oneways.incrementAndGet(); }

        @Override public String nowhere(String word) { return "was served"; }
    }

    static class Client {
        final String address;
        final Words sync, future, callback, oneway;
        final BlockingQueue<Object> called = new LinkedBlockingQueue<>();

        Client(String address) {
            this.address = address;
            sync = by("sync", 5000);
            future = by("future", 5000);
            callback = by("callback", 5000);
            oneway = by("oneway", 5000);
        }

        Words by(String kind, int timeout) {
            return new ConsumerConfig<Words>()
                .setInterfaceId(Words.class.getName()).setProtocol("bolt").setProxy("jdk")
                .setDirectUrl("bolt://" + address).setRegister(false).setRepeatedReferLimit(-1).setInvokeType(kind).setTimeout(timeout)
                .setOnReturn(new SofaResponseCallback<Object>() {
                    @Override public void onAppResponse(Object answer, String method, RequestBase request) { called.add(answer); }

                    @Override public void onAppException(Throwable error, String method, RequestBase request) { called.add(error); }

                    @Override public void onSofaException(SofaRpcException error, String method, RequestBase request) { called.add(error); }
                })
                .refer();
        }

        void all() throws Exception {
            for (int at = 0; at < 100; at++) check("sync", "echo " + at, sync.echo("echo " + at));
            passed("sync");
            String text = "0123456789".repeat(50_000);
            check("large", text, sync.echo(text));
            passed("large");
            for (int at = 0; at < 20; at++) {
                future.echo("future " + at);
                check("future", "future " + at, SofaResponseFuture.getResponse(5000, true));
            }
            passed("future");
            Set<Object> wanted = new HashSet<>(), got = new HashSet<>();
            for (int at = 0; at < 20; at++) {
                wanted.add("callback " + at);
                callback.echo("callback " + at);
            }
            for (int at = 0; at < 20; at++) got.add(called.poll(10, TimeUnit.SECONDS));
            check("callback", wanted, got);
            passed("callback");
            int before = sync.countOneways();
            for (int at = 0; at < 10; at++) oneway.oneway();
            for (int turn = 0; turn < 100 && sync.countOneways() < before + 10; turn++) Thread.sleep(50);
            check("oneway", before + 10, sync.countOneways());
            passed("oneway");
            check("exception", "IllegalStateException as asked", outcome(() -> sync.fail("as asked")));
            passed("exception");
            check("timeout", "SofaTimeOutException", outcome(() -> by("sync", 300).sleep("late", 2000)).split(" ")[0]);
            check("after the timeout", "echo", sync.echo("echo"));
            passed("timeout");
            System.out.println("nowhere " + outcome(() -> sync.nowhere("word")));
        }

        String outcome(Callable<Object> call) {
            try {
                return "answered " + call.call();
            } catch (Exception error) {
                return error.getClass().getSimpleName() + " " + error.getMessage();
            }
        }

        void check(String what, Object wanted, Object got) {
            if (!Objects.equals(wanted, got))
                throw new AssertionError(address + ": " + what + ": " + got + " where " + wanted + " was wanted");
        }

        void passed(String what) { System.out.println("passed " + what); }
    }
}
