//! A headless Chromium, spoken to over the pipes of its debugging protocol: JSON texts that end with a zero.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

/// A running browser; it ends when this is dropped.
pub(crate) struct Browser {
    process: Child,
    folder: PathBuf,
    to: File,
    from: BufReader<File>,
    /// The tab.
    session: String,
    calls: u64,
    events: Vec<Value>,
}

/// What came of showing a page.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) address: String,
    /// Every address asked for, the page's own included.
    pub(crate) requests: Vec<String>,
    /// What the browser's console says: failed scripts, forbidden loads.
    pub(crate) complaints: Vec<String>,
    /// The value of the script that looked at the page.
    pub(crate) result: Value,
}

impl Browser {
    pub(crate) fn launch() -> Self {
        let peers = std::env::var_os("TOWPATH_PEERS").expect("cargo xtask peers says where");
        let name =
            format!("towpath-pages-{}-{:?}", std::process::id(), std::thread::current().id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let (to, from) = (folder.join("to"), folder.join("from"));
        assert!(Command::new("mkfifo").args([&to, &from]).status().unwrap().success());
        // The browser reads from descriptor 3 and writes to 4, and does not outlive a test that hangs.
        let process = Command::new("sh")
            .args(["-c", "exec timeout 120 \"$0\" \"$@\" 3<\"$TO\" 4>\"$FROM\""])
            .arg(Path::new(&peers).join("chromium"))
            .args(["--no-sandbox", "--disable-gpu", "--disable-background-networking"])
            .args(["--remote-debugging-pipe", "--window-size=1200,900"])
            .arg(format!("--user-data-dir={}", folder.display()))
            .envs([("TO", &to), ("FROM", &from)])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let to = File::options().write(true).open(to).unwrap();
        let from = BufReader::new(File::open(from).unwrap());
        let mut browser = Self {
            process,
            folder,
            to,
            from,
            session: String::new(),
            calls: 0,
            events: Vec::new(),
        };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", &attach);
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Network", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// Makes the window so wide.
    pub(crate) fn resize(&mut self, width: u32) {
        let screen =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", &screen);
    }

    /// Shows a page, waits until it is loaded, and evaluates `script` in it.
    pub(crate) fn visit(&mut self, name: &str, html: &str, script: &str) -> Visit {
        let path = self.folder.join(format!("{name}.html"));
        std::fs::write(&path, html).unwrap();
        let address = format!("file://{}", path.display());
        self.events.clear();
        self.call("Page.navigate", &json!({ "url": address }));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.receive();
            self.events.push(event);
        }
        let ask = json!({ "expression": script, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", &ask);
        assert!(answer.get("exceptionDetails").is_none(), "{name}: {answer}");
        let of = |method: &str, pointer: &str| -> Vec<String> {
            let events = self.events.iter().filter(|event| event["method"] == method);
            events.map(|it| it.pointer(pointer).map_or_else(|| it.to_string(), text)).collect()
        };
        let mut complaints =
            of("Runtime.exceptionThrown", "/params/exceptionDetails/exception/description");
        complaints.extend(of("Log.entryAdded", "/params/entry/text"));
        complaints.extend(of("Runtime.consoleAPICalled", "/params/args/0/value"));
        let requests = of("Network.requestWillBeSent", "/params/request/url");
        Visit { address, requests, complaints, result: answer["result"]["value"].clone() }
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).unwrap();
        loop {
            let answer = self.receive();
            if answer["id"] == self.calls {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    fn receive(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.from.read_until(0, &mut bytes).unwrap();
        assert_eq!(bytes.pop(), Some(0), "the browser has ended");
        serde_json::from_slice(&bytes).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // `timeout` passes its own end on.
        let pid = nix::unistd::Pid::from_raw(self.process.id() as i32);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
