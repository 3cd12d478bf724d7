//! Other people's servers, and what they say they understood.

use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};

use crate::common::{PATIENCE, Scratch, until};

/// A server of another project, running.
pub(crate) struct Origin {
    pub(crate) name: &'static str,
    /// The `address` of an endpoint in front of it.
    pub(crate) endpoint: String,
    child: Option<Child>,
    heard: Arc<(Mutex<Heard>, Condvar)>,
    _scratch: Scratch,
}

/// A request's head as the server parsed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeadLine {
    /// Who sent it to the proxy.
    pub(crate) client: String,
    pub(crate) id: String,
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) length: String,
    pub(crate) coding: String,
}

/// Everything a server said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    pub(crate) heads: Vec<HeadLine>,
    /// Bytes of the bodies that came to their end, by id; none where the server does not count.
    pub(crate) whole: HashMap<String, Option<u64>>,
    /// Bytes that were no request.
    pub(crate) refused: usize,
    targets: BTreeSet<String>,
    port: Option<u16>,
}

impl Origin {
    /// nginx with its request buffering, so that it answers whole requests only.
    pub(crate) fn nginx() -> Option<Self> {
        let nginx = peer("nginx")?;
        let scratch = Scratch::new();
        let (front, back) = (scratch.path("front"), scratch.path("back"));
        let root = scratch.path("");
        let config = include_str!("nginx.conf")
            .replace("ROOT/", &root.display().to_string())
            .replace("FRONT", &front.display().to_string())
            .replace("BACK", &back.display().to_string());
        let config = scratch.write("nginx.conf", &config);
        let mut command = Command::new(nginx);
        command.arg("-p").arg(&root).arg("-c").arg(config).arg("-e").arg("/dev/null");
        let endpoint = format!("{{ pipe: {{ path: {} }} }}", front.display());
        let origin = Self::start("nginx", command, endpoint, scratch);
        until("nginx listens", || front.exists() && back.exists());
        Some(origin)
    }

    /// Node's `http`.
    pub(crate) fn node() -> Option<Self> {
        let node = tool("node")?;
        let mut command = Command::new(node);
        command.arg("--max-http-header-size=131072").arg(scripts().join("node.mjs"));
        Some(Self::start("node", command, String::new(), Scratch::new()).with_port())
    }

    /// Go's `net/http`.
    pub(crate) fn go() -> Option<Self> {
        let go = tool("go")?;
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-origin");
        let built = Command::new(go)
            .args(["build", "-o"])
            .arg(&program)
            .arg(scripts().join("go/main.go"))
            .status();
        assert!(built.unwrap().success(), "the Go origin compiles");
        Some(Self::start("go", Command::new(program), String::new(), Scratch::new()).with_port())
    }

    fn start(name: &'static str, mut command: Command, endpoint: String, scratch: Scratch) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let heard = Arc::new((Mutex::new(Heard::default()), Condvar::new()));
        let listener = Arc::clone(&heard);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                listener.0.lock().unwrap().take(&line);
                listener.1.notify_all();
            }
        });
        Self { name, endpoint, child: Some(child), heard, _scratch: scratch }
    }

    /// A server within the test, on this port of the loopback, that says its lines by a function.
    #[allow(dead_code, reason = "not every test has one")]
    pub(crate) fn within(name: &'static str, port: u16) -> (Self, impl Fn(&str) + Clone + Send) {
        let heard = Arc::new((Mutex::new(Heard::default()), Condvar::new()));
        let listener = Arc::clone(&heard);
        let say = move |line: &str| {
            listener.0.lock().unwrap().take(line);
            listener.1.notify_all();
        };
        say(&format!("listening {port}"));
        let origin =
            Self { name, endpoint: String::new(), child: None, heard, _scratch: Scratch::new() };
        (origin.with_port(), say)
    }

    fn with_port(mut self) -> Self {
        until("the origin listens", || self.heard.0.lock().unwrap().port.is_some());
        let port = self.heard.0.lock().unwrap().port.unwrap();
        self.endpoint =
            format!("{{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}");
        self
    }

    /// Waits until a request for this target was heard, and everything that was said before.
    pub(crate) fn hear(&self, target: &str) {
        let heard = self.heard.0.lock().unwrap();
        let wanted = |heard: &mut Heard| !heard.targets.contains(target);
        let (heard, late) = self.heard.1.wait_timeout_while(heard, PATIENCE, wanted).unwrap();
        drop(heard);
        assert!(!late.timed_out(), "{} never got {target}", self.name);
    }

    /// All that was said.
    pub(crate) fn heard(&self) -> Heard {
        self.heard.0.lock().unwrap().clone()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Heard {
    fn take(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["listening", port] => self.port = port.parse().ok(),
            ["head", client, id, method, target, length, coding] => {
                self.head([client, id, method, target, length, coding]);
            }
            ["whole", id, bytes] => {
                self.whole.insert(id.into(), Some(bytes.parse().unwrap()));
            }
            // nginx says all at once, when it is done with a request.
            ["said", "-", "-", ..] => self.refused += 1,
            ["said", client, id, method, target, length, coding, status] => {
                // With a proxy's own fields it was a request; what it then cannot read is the body.
                if !matches!(status, "400" | "408" | "499") {
                    self.whole.insert(id.into(), None);
                }
                self.head([client, id, method, target, length, coding]);
            }
            ["refused"] => self.refused += 1,
            _ => panic!("what does it mean: {line}"),
        }
    }

    fn head(&mut self, [client, id, method, target, length, coding]: [&str; 6]) {
        self.targets.insert(target.into());
        self.heads.push(HeadLine {
            client: client.into(),
            id: id.into(),
            method: method.into(),
            target: target.into(),
            length: length.into(),
            coding: coding.into(),
        });
    }
}

/// A program that `cargo xtask peers` installed.
pub(crate) fn peer(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("TOWPATH_PEERS");
    let program = folder.map(|folder| Path::new(&folder).join(name)).filter(|path| path.exists());
    if program.is_none() {
        missing(name, "`cargo xtask peers` installs it, and TOWPATH_PEERS says where");
    }
    program
}

/// A program of this machine.
pub(crate) fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|it| it.exists());
    if found.is_none() {
        missing(name, "it is not in PATH");
    }
    found
}

fn missing(name: &str, why: &str) {
    assert!(std::env::var_os("CI").is_none(), "no {name}: {why}");
    eprintln!("left out, there is no {name}: {why}");
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/origins")
}
