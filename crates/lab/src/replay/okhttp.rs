//! OkHttp as a control: a small Java program that Java compiles as it runs it.

use std::io;
use std::path::PathBuf;
use std::process::Command;

/// What the Java program is asked to do.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) url: String,
    /// Successes after which it ends.
    pub(super) successes: u32,
    /// Milliseconds from one start to the next; 0 is at once after the answer.
    pub(super) interval_ms: u64,
    /// Milliseconds after which connecting, and a whole call, is given up.
    pub(super) timeout_ms: u64,
    /// Bytes to post; 0 is a GET.
    pub(super) body: usize,
    /// A new connection for each request.
    pub(super) is_fresh: bool,
    /// Milliseconds after which it ends in any case.
    pub(super) budget_ms: u64,
    /// Whether it prints `ready` and waits for a line before it begins.
    pub(super) waits: bool,
}

/// The compiled program, in a folder that goes with it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Compiled {
    class_path: String,
    directory: PathBuf,
}

impl Compiled {
    /// Compiles the program, for the class path of OkHttp's jars.
    pub(super) fn new(class_path: Option<&str>) -> Result<Self, String> {
        let class_path = class_path
            .ok_or("its jars were not found; set TOWPATH_OKHTTP to their class path")?
            .to_owned();
        let directory =
            std::env::temp_dir().join(format!("towpath-lab-okhttp-{}", std::process::id()));
        let compiled = Self { class_path, directory };
        compiled.compile().map_err(|error| error.to_string())?;
        Ok(compiled)
    }

    fn compile(&self) -> io::Result<()> {
        std::fs::create_dir_all(&self.directory)?;
        let source = self.directory.join("Client.java");
        std::fs::write(&source, SOURCE)?;
        let output = Command::new("javac")
            .args(["-cp", &self.class_path, "-d"])
            .args([&self.directory, &source])
            .output()
            .map_err(|error| io::Error::new(error.kind(), format!("cannot run javac: {error}")))?;
        if output.status.success() {
            return Ok(());
        }
        Err(io::Error::other(format!("javac: {}", String::from_utf8_lossy(&output.stderr).trim())))
    }

    /// The command that carries `task` out.
    pub(super) fn command(&self, task: &Task) -> Vec<String> {
        let path = format!("{}:{}", self.directory.display(), self.class_path);
        let flag = |is: bool| u8::from(is).to_string();
        let mut words: Vec<String> =
            ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", &path, "Client", &task.url]
                .map(str::to_owned)
                .into();
        words.extend([
            task.successes.to_string(),
            task.interval_ms.to_string(),
            task.timeout_ms.to_string(),
            task.body.to_string(),
            flag(task.is_fresh),
            task.budget_ms.to_string(),
            flag(task.waits),
        ]);
        words
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        // It lies in the system's folder for such things; the system removes it in time.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Prints a line for each attempt: `ok` or `fail`, and its milliseconds.
const SOURCE: &str = r#"
import java.util.concurrent.TimeUnit;
import okhttp3.*;

public class Client {
    public static void main(String[] a) throws Exception {
        String url = a[0];
        int successes = Integer.parseInt(a[1]);
        long interval = Long.parseLong(a[2]);
        long timeout = Long.parseLong(a[3]);
        int size = Integer.parseInt(a[4]);
        boolean fresh = a[5].equals("1");
        long budget = Long.parseLong(a[6]);
        OkHttpClient client = new OkHttpClient.Builder()
            .connectTimeout(timeout, TimeUnit.MILLISECONDS)
            .readTimeout(timeout, TimeUnit.MILLISECONDS)
            .writeTimeout(timeout, TimeUnit.MILLISECONDS)
            .build();
        Request.Builder builder = new Request.Builder().url(url);
        if (size > 0) builder.post(RequestBody.create(new byte[size], MediaType.parse("text/plain")));
        Request request = builder.build();
        if (a[7].equals("1")) {
            System.out.println("ready");
            System.out.flush();
            System.in.read();
        }
        long begin = System.nanoTime();
        int done = 0;
        for (long number = 0; done < successes && (System.nanoTime() - begin) / 1000000 < budget; number++) {
            if (fresh) client.connectionPool().evictAll();
            long wait = begin / 1000000 + number * interval - System.nanoTime() / 1000000;
            if (interval > 0 && wait > 0) Thread.sleep(wait);
            long start = System.nanoTime();
            String outcome = "fail";
            try (Response response = client.newCall(request).execute()) {
                response.body().bytes();
                if (response.isSuccessful()) { outcome = "ok"; done++; }
            } catch (java.io.IOException e) { }
            System.out.println(outcome + " " + (System.nanoTime() - start) / 1e6);
            System.out.flush();
        }
        System.exit(0);
    }
}
"#;
