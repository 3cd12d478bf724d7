//! What a case came to with each of the two, made comparable, and what differs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use regex::{Captures, Regex};

use crate::case::{Case, Difference, Suite};
use crate::client::{self, Heard};
use crate::curl;
use crate::oauth;
use crate::openssl;
use crate::peer::Peer;
use crate::session;

/// How long log lines, counters and upstreams may take to agree after the client is done.
const SETTLES: Duration = Duration::from_millis(1500);

/// Runs a case against both; what differs without being declared, for a reader.
pub(crate) fn differences(
    case: &Case,
    suite: &Suite,
    envoy: &mut Peer,
    towpath: &mut Peer,
) -> String {
    for peer in [&*envoy, &*towpath] {
        peer.upstreams.begin(&case.upstream);
    }
    let talk = |peer: &Peer| match (case.openssl.is_empty(), case.curl.is_empty()) {
        (false, _) => openssl::talk(peer.address(&case.to), case, &peer.folder),
        (true, false) => curl::talk(peer.address(&case.to), case),
        (true, true) => {
            let case = session::filled(case, &peer.ports);
            client::talk(peer.address(&case.to), &case, &peer.folder)
        }
    };
    let heard = std::thread::scope(|scope| {
        let theirs = scope.spawn(|| talk(envoy));
        let ours = talk(towpath);
        [theirs.join().unwrap(), ours]
    });
    let declared: Vec<&Difference> = case.differs.iter().chain(&suite.differs).collect();
    let start = Instant::now();
    loop {
        let names = towpath.names();
        let seen =
            [Seen::of(case, &heard[0], envoy, &names), Seen::of(case, &heard[1], towpath, &names)];
        let logs =
            case.logs.unwrap_or_else(|| if case.to == "admin" { 0 } else { finals(&heard[0]) });
        let mut report = compare(&seen[0].lines, &seen[1].lines, &declared, case);
        for (who, seen) in [("envoy", &seen[0]), ("towpath", &seen[1])] {
            if seen.logs != logs {
                let _ =
                    writeln!(report, "  {who} wrote {} log lines, {logs} are expected", seen.logs);
            }
        }
        if report.is_empty() || start.elapsed() > SETTLES {
            for (peer, seen) in [envoy, towpath].into_iter().zip(seen) {
                (peer.before, peer.logged) = (seen.stats, seen.log_end);
            }
            return report;
        }
        std::thread::sleep(Duration::from_millis(15));
    }
}

/// Counters that moved in Envoy and that Towpath does not have.
pub(crate) fn not_kept(envoy: &mut Peer, towpath: &mut Peer) -> Vec<String> {
    let ours = towpath.names();
    let theirs = envoy.stats().into_iter().filter(|(_, value)| *value != 0);
    let mut names: Vec<String> =
        theirs.map(|(name, _)| name).filter(|name| !ours.contains(name)).collect();
    for name in &mut names {
        *name = last_two(name).to_owned();
    }
    names.sort();
    names.dedup();
    names
}

/// `http.main.downstream_rq_total` without what is named by the configuration.
fn last_two(name: &str) -> &str {
    name.splitn(3, '.').nth(2).unwrap_or(name)
}

/// Everything that can be seen of a case with one proxy.
struct Seen {
    lines: Vec<String>,
    logs: usize,
    stats: BTreeMap<String, i64>,
    log_end: usize,
}

impl Seen {
    fn of(case: &Case, heard: &Heard, peer: &Peer, names: &BTreeSet<String>) -> Self {
        let mut lines =
            if case.to == "admin" { admin_lines(case, heard) } else { heard.lines.clone() };
        lines.extend(peer.upstreams.seen());
        let (log, log_end) = peer.log();
        lines.extend(log.iter().map(|line| format!("log: {line}")));
        let stats = peer.stats();
        for name in names {
            let moved = stats.get(name).unwrap_or(&0) - peer.before.get(name).unwrap_or(&0);
            if moved != 0 {
                lines.push(format!("stat: {name} {moved:+}"));
            }
        }
        let ignored = case.ignore.as_deref().map(|pattern| Regex::new(pattern).unwrap());
        lines.retain(|line| !ignored.as_ref().is_some_and(|ignored| ignored.is_match(line)));
        let lines = lines.iter().map(|line| normalized(line, &peer.ports)).collect();
        Self { lines, logs: log.len(), stats, log_end }
    }
}

/// Responses that end a request.
fn finals(heard: &Heard) -> usize {
    heard
        .messages
        .iter()
        .filter(|message| message.status() >= 200 || message.status() == 101)
        .count()
}

/// The answer of an admin endpoint, line by line or by the shape of its JSON.
fn admin_lines(case: &Case, heard: &Heard) -> Vec<String> {
    let mut lines = Vec::new();
    for message in &heard.messages {
        lines.push(message.start.clone());
        lines.extend(message.field("content-type").map(|kind| format!("content-type: {kind}")));
        let body = String::from_utf8_lossy(&message.body);
        let json: Option<serde_json::Value> = serde_json::from_str(&body).ok();
        if case.shape {
            let value = json.unwrap();
            let mut shape = BTreeSet::new();
            keys(&value, "", &mut shape);
            lines.extend(shape);
        } else {
            // Envoy's maps come in any order.
            let sorted = json.map(|mut value| {
                value.sort_all_objects();
                serde_json::to_string_pretty(&value).unwrap()
            });
            lines.extend(
                sorted.as_deref().unwrap_or(&body).lines().map(|line| format!("body: {line}")),
            );
        }
    }
    lines
}

fn keys(value: &serde_json::Value, path: &str, into: &mut BTreeSet<String>) {
    use serde_json::Value;
    match value {
        Value::Object(entries) => {
            entries.iter().for_each(|(key, value)| keys(value, &format!("{path}.{key}"), into))
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, &format!("{path}[]"), into)),
        Value::String(_) => drop(into.insert(format!("{path}: string"))),
        Value::Number(_) => drop(into.insert(format!("{path}: number"))),
        Value::Bool(_) => drop(into.insert(format!("{path}: boolean"))),
        Value::Null => drop(into.insert(format!("{path}: null"))),
    }
}

/// A line with what must differ taken out; the README has the table.
fn normalized(line: &str, ports: &BTreeMap<u16, String>) -> String {
    static PORT: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"127\.0\.0\.1([:_])(\d+)").unwrap());
    static PLAIN: LazyLock<[(Regex, &str); 8]> = LazyLock::new(|| {
        [
            (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<uuid>"),
            (r"\b\w{3}, \d{2} \w{3} \d{4} \d{2}:\d{2}:\d{2} GMT", "<date>"),
            (r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{3})?Z", "<time>"),
            (r"(?i)(x-envoy-upstream-service-time:) \d+", "$1 <ms>"),
            (
                r"(upstream [2-9]: x-envoy-expected-rq-timeout-ms:) (?:1[45]\d{3}|2[3-8]\d\d)",
                "$1 <what is left>",
            ),
            (r"\bsession [0-9a-f]{64}\b", "session <id>"),
            (r"(PROXY TCP4 127.0.0.1 127.0.0.1) \d+ \d+", "$1 <port> <port>"),
            (r#"(log: \[<time>\] ".*" \d+ \S+ \d+ \d+) \d+ (\d+|-) "#, "$1 <ms> <ms> "),
        ]
        .map(|(pattern, with)| (Regex::new(pattern).unwrap(), with))
    });
    let line = session::shown(line);
    let line = oauth::shown(&line);
    let line = PORT.replace_all(&line, |found: &Captures<'_>| {
        let port = found[2].parse().ok().and_then(|port: u16| ports.get(&port));
        format!("127.0.0.1{}<{}>", &found[1], port.map_or("port", String::as_str))
    });
    static FORWARDED: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(x-forwarded-port:) (\d+)$").unwrap());
    let line = FORWARDED.replace(&line, |found: &Captures<'_>| {
        let port: Option<&String> = found[2].parse().ok().and_then(|port: u16| ports.get(&port));
        format!("{} {}", &found[1], port.map_or(&found[2], String::as_str))
    });
    static NAMED: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"((?:\.test|::1\]):|x-port: )(\d{4,5})\b").unwrap());
    let line = NAMED.replace_all(&line, |found: &Captures<'_>| {
        let port: Option<&String> = found[2].parse().ok().and_then(|port: u16| ports.get(&port));
        format!("{}{}", &found[1], port.map_or(&found[2], String::as_str))
    });
    static LOGGED: LazyLock<Regex> = LazyLock::new(|| Regex::new(r" (\d{4,5})\b").unwrap());
    let mut line = drawn_ids(&line).into_owned();
    if line.starts_with("log: ") {
        let named = |found: &Captures<'_>| {
            let port = found[1].parse().ok().and_then(|port: u16| ports.get(&port));
            port.map_or_else(|| found[0].to_owned(), |port| format!(" <{port}>"))
        };
        line = LOGGED.replace_all(&line, named).into_owned();
    }
    for (pattern, with) in PLAIN.iter() {
        line = pattern.replace_all(&line, *with).into_owned();
    }
    line
}

/// Without the ids of traces and spans that a proxy has drawn; clients know these.
fn drawn_ids(line: &str) -> std::borrow::Cow<'_, str> {
    const KNOWN: [&str; 5] = [
        "80f198ee56343ba864fe8b2a57d3eff7",
        "80F198ee56343ba864fe8b2a57d3eff7",
        "64fe8b2a57d3eff7",
        "e457b5a2e4d86bd1",
        "05e3ac9a4f6e3b90",
    ];
    static ID: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\b(?:[0-9a-fA-F]{32}|[0-9a-f]{16})\b").unwrap());
    ID.replace_all(line, |found: &Captures<'_>| {
        let id = &found[0];
        if KNOWN.contains(&id) { id.to_owned() } else { format!("<{} digits>", id.len()) }
    })
}

/// Lines that only one has, without those that are declared; and declared ones of the case that do not occur.
fn compare(envoy: &[String], towpath: &[String], declared: &[&Difference], case: &Case) -> String {
    let (only_envoy, only_towpath) = (without(envoy, towpath), without(towpath, envoy));
    let mut report = String::new();
    type Side = fn(&Difference) -> &[String];
    let sides: [(&[&String], &str, Side); 2] = [
        (&only_envoy, "envoy", |difference| &difference.envoy),
        (&only_towpath, "towpath", |difference| &difference.towpath),
    ];
    for (only, who, side) in sides {
        let patterns: Vec<Regex> =
            declared.iter().flat_map(|one| side(one)).map(|text| whole(text)).collect();
        for line in only {
            if !patterns.iter().any(|pattern| pattern.is_match(line)) {
                let _ = writeln!(report, "  {who:>7} {line}");
            }
        }
        for pattern in case.differs.iter().flat_map(side) {
            if !only.iter().any(|line| whole(pattern).is_match(line)) {
                let _ = writeln!(report, "  declared for {who}, does not occur: {pattern}");
            }
        }
    }
    if !report.is_empty() && std::env::var_os("TOWPATH_VERBOSE").is_some() {
        let _ = writeln!(report, "  all of envoy:\n    {}", envoy.join("\n    "));
    }
    report
}

/// A pattern for whole lines; each is compiled once, which costs more than all else.
fn whole(pattern: &str) -> Regex {
    static COMPILED: LazyLock<Mutex<HashMap<String, Regex>>> = LazyLock::new(Mutex::default);
    let compile = || {
        Regex::new(&format!("^(?:{pattern})$")).unwrap_or_else(|error| panic!("{pattern}: {error}"))
    };
    COMPILED.lock().unwrap().entry(pattern.to_owned()).or_insert_with(compile).clone()
}

/// The lines of `a` that `b` does not have as often.
fn without<'a>(a: &'a [String], b: &[String]) -> Vec<&'a String> {
    let mut left: Vec<&String> = b.iter().collect();
    let mut missing = |line: &&String| match left.iter().position(|other| other == line) {
        Some(at) => {
            left.swap_remove(at);
            false
        }
        None => true,
    };
    a.iter().filter(|line| missing(line)).collect()
}
