//! ghz, which calls gRPC.
//!
//! It calls no method that is not described to it, so it is told of one that takes and gives a message without fields:
//! what is encoded of such a message is empty, and what a server answers is kept as fields that are not known.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::rate_of;
use crate::address::Address;
use crate::load::{Plan, Protocol};

/// What makes it do as the plan says, but for the description of the method.
pub(super) fn arguments(plan: &Plan) -> Result<Vec<String>, String> {
    if plan.protocol != Protocol::Http2 || !plan.request.is_grpc() {
        return Err("ghz calls methods of gRPC and sends nothing else".to_owned());
    }
    if plan.request.body != EMPTY_MESSAGE {
        return Err("ghz is told of a message without fields: only an empty one is sent".to_owned());
    }
    let Address::Tcp(address) = &plan.target.address else {
        return Err("ghz is run over TCP".to_owned());
    };
    if plan.target.is_tls {
        return Err("ghz is run without TLS".to_owned());
    }
    let method = Method::of(&plan.target.path)?;
    let (seconds, count) = (plan.duration.as_secs().max(1), plan.connections);
    let calls = count * plan.in_flight;
    let mut words = format!(
        "--insecure --format json --duration {seconds}s --duration-stop wait --connections {count} --concurrency \
         {calls}"
    );
    match rate_of(plan) {
        Some(rate) if rate.fract() != 0.0 => return Err("ghz has a whole rate".to_owned()),
        Some(rate) => words += &format!(" --rps {rate}"),
        None => {}
    }
    words += &format!(" --authority {} --call {} {address}", plan.target.authority, method.full());
    Ok(words.split(' ').map(str::to_owned).collect())
}

/// A message of no bytes with what stands before each.
const EMPTY_MESSAGE: [u8; 5] = [0; 5];

/// A method as its path names it: `/package.Service/Method`.
struct Method<'a> {
    package: Option<&'a str>,
    service: &'a str,
    method: &'a str,
}

impl<'a> Method<'a> {
    fn of(path: &'a str) -> Result<Self, String> {
        let whole = path.strip_prefix('/').unwrap_or(path);
        let parts = whole.split_once('/').filter(|(service, method)| {
            is_identifier(method) && service.split('.').all(is_identifier)
        });
        let (service, method) =
            parts.ok_or_else(|| format!("ghz cannot be told of a method '{whole}'"))?;
        let (package, service) = match service.rsplit_once('.') {
            Some((package, service)) => (Some(package), service),
            None => (None, service),
        };
        Ok(Self { package, service, method })
    }

    fn full(&self) -> String {
        let package = self.package.map(|package| format!("{package}.")).unwrap_or_default();
        format!("{package}{}.{}", self.service, self.method)
    }

    /// What describes it, in Protocol Buffers' language.
    fn description(&self) -> String {
        let Self { service, method, .. } = self;
        let package =
            self.package.map(|package| format!("package {package};\n")).unwrap_or_default();
        // No service has a name that is longer than its own.
        let message = format!("{service}Message");
        format!(
            "syntax = \"proto3\";\n{package}message {message} {{}}\nservice {service} {{\n  \
             rpc {method}({message}) returns ({message});\n}}\n"
        )
    }
}

fn is_identifier(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The description of a plan's method in a folder of its own, which goes with it.
pub(super) struct Description {
    folder: PathBuf,
}

impl Description {
    pub(super) fn write(plan: &Plan) -> io::Result<Self> {
        static WRITTEN: AtomicUsize = AtomicUsize::new(0);
        let text = Method::of(&plan.target.path).map_err(io::Error::other)?.description();
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let name = format!("towpath-lab-ghz-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // Where another process has made it, nothing is written.
        fs::create_dir(&folder)?;
        let description = Self { folder };
        fs::write(description.file(), text)?;
        Ok(description)
    }

    pub(super) fn file(&self) -> PathBuf {
        self.folder.join("method.proto")
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        // What cannot be removed is left in the folder for such files.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::load::Arrivals;

    fn plan(url: &str) -> Plan {
        let mut plan = Plan::new(url.parse().unwrap());
        (plan.protocol, plan.connections, plan.in_flight) = (Protocol::Http2, 2, 3);
        plan.duration = Duration::from_secs(4);
        plan.request.make_grpc();
        plan
    }

    #[test]
    fn it_calls_what_the_plan_calls() {
        let mut plan = plan("http://localhost:50051/a.b.C/D");
        let words = |plan: &Plan| arguments(plan).map(|words| words.join(" "));
        let Address::Tcp(address) = plan.target.address.clone() else { panic!("not TCP") };
        let wanted = format!(
            "--insecure --format json --duration 4s --duration-stop wait --connections 2 --concurrency 6 --authority \
             localhost:50051 --call a.b.C.D {address}"
        );
        assert_eq!(words(&plan).unwrap(), wanted);
        plan.arrivals = Arrivals::Paced { rate: 2000.0 };
        assert!(words(&plan).unwrap().contains(" --concurrency 6 --rps 2000 "));
        plan.arrivals = Arrivals::Paced { rate: 0.5 };
        assert_eq!(words(&plan).unwrap_err(), "ghz has a whole rate");
    }

    #[test]
    fn what_it_cannot_do_is_refused() {
        let of = |change: fn(&mut Plan)| {
            let mut plan = plan("http://127.0.0.1:1/a.B/C");
            change(&mut plan);
            arguments(&plan).map(|_| ())
        };
        assert_eq!(of(|_| ()), Ok(()));
        assert!(of(|plan| plan.protocol = Protocol::Http1).is_err());
        assert!(of(|plan| plan.request.headers.clear()).is_err());
        assert!(of(|plan| plan.request.body.push(1)).is_err());
        assert!(of(|plan| plan.target.is_tls = true).is_err());
        for path in ["/", "/a.B", "/a..B/C", "/a.B/C/D", "/a.B/C-D", "/a.B/1", "/a b.B/C"] {
            let mut plan = plan("http://127.0.0.1:1/");
            plan.target.path = path.to_owned();
            assert!(arguments(&plan).is_err(), "{path}");
        }
    }

    #[test]
    fn a_method_is_described_as_long_as_it_is_called() {
        let description = Description::write(&plan("http://127.0.0.1:1/a.b.C/D")).unwrap();
        let (folder, text) =
            (description.folder.clone(), fs::read_to_string(description.file()).unwrap());
        assert_eq!(
            text,
            "syntax = \"proto3\";\npackage a.b;\nmessage CMessage {}\nservice C {\n  rpc D(CMessage) returns \
             (CMessage);\n}\n"
        );
        drop(description);
        assert!(!folder.exists());
        assert!(!Method::of("/C/D").unwrap().description().contains("package"));
    }
}
