//! What the client library costs the program that it is in: bytes on the disk, time to the first byte, memory, idle
//! wake-ups.
//!
//! The library is built in each of the ways of `docs/client-c.md` and weighed; a program in C uses the one that an app
//! gets (`--profile small`) against an origin in this process. Figures
//! and goals are printed side by side. Times are those of this machine in this minute: the best of them is what the
//! library takes where nothing else wants the processors.

use std::fmt;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::shell::{Result, cargo, output, root, run as run_command, target};

/// Stripped, with TLS.
const GOAL_BYTES: u64 = 2_500_000;
const GOAL_FIRST_BYTE_US: u64 = 5_000;
const GOAL_KIB: u64 = 4_096;
const RUNS: usize = 20;
const REQUESTS: u32 = 1000;
const IDLE_MS: u32 = 2000;

/// One run of `cost.c`, in the order of its output.
struct Cost {
    before: Resident,
    first: Resident,
    many: Resident,
    start_us: u64,
    first_byte_us: u64,
    idle_wakeups: u64,
}

struct Resident {
    all_kib: u64,
    anonymous_kib: u64,
}

/// What was weighed or measured, and at most what it may be.
pub(crate) struct Figure {
    pub(crate) what: String,
    pub(crate) value: u64,
    pub(crate) unit: &'static str,
    pub(crate) goal: Option<u64>,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, value, unit, goal } = self;
        write!(f, "{what:<44} {value:>10} {unit}")?;
        match goal {
            Some(goal) if value > goal => write!(f, " (goal {goal}) MISSED"),
            Some(goal) => write!(f, " (goal {goal})"),
            None => Ok(()),
        }
    }
}

/// A way to build the library.
struct Build {
    name: &'static str,
    profile: &'static str,
    /// Below `target`, so that ways with different flags do not undo each other's work.
    folder: &'static str,
    c_flags: &'static str,
    link_flags: &'static [&'static str],
    /// It is the one that is to be small, whatever it gives up.
    has_goal: bool,
}

const RELEASE: Build = Build {
    name: "release",
    profile: "release",
    folder: "",
    c_flags: "",
    link_flags: &[],
    has_goal: false,
};
const SMALL: Build = Build { name: "small", profile: "small", ..RELEASE };
/// Gives up decoding, speed in handshakes and systems older than 2022 for size.
const SMALLEST: Build = Build {
    name: "smallest",
    profile: "smallest",
    folder: "smallest",
    c_flags: "-fno-asynchronous-unwind-tables -DOPENSSL_SMALL -DMY_ASSEMBLER_IS_TOO_OLD_FOR_ADX_AVX2 \
              -DMY_ASSEMBLER_IS_TOO_OLD_FOR_512AVX",
    link_flags: &["-Clink-arg=-Wl,-z,pack-relative-relocs", "-Clink-arg=-Wl,-O2"],
    has_goal: true,
};

impl Build {
    /// Builds both libraries and answers where they are.
    fn build(&self) -> Result<PathBuf> {
        let mut command = cargo();
        // Named here, because beside a Rust library there is no link-time optimisation for the others.
        command.args(["rustc", "--quiet", "--package", "towpath-c"]);
        command.args(["--crate-type", "cdylib,staticlib", "--profile", self.profile]);
        let folder = target().join(self.folder);
        command.arg("--target-dir").arg(&folder);
        if !self.c_flags.is_empty() {
            command.env("CFLAGS", self.c_flags);
        }
        if self.has_goal {
            command.arg("--no-default-features");
        }
        run_command(command.args(["--", "-Cstrip=symbols"]).args(self.link_flags))?;
        Ok(folder.join(self.profile))
    }

    /// What an app has more with it, as a library of its own and in the program; and where it was built.
    fn weigh(&self) -> Result<(PathBuf, [Figure; 2])> {
        let built = self.build()?;
        let shared = fs::metadata(built.join("libtowpath_c.so"))?.len();
        let folder = built.join("cost");
        fs::create_dir_all(&folder)?;
        let archive = built.join("libtowpath_c.a").display().to_string();
        let linked = compile(&folder, "inside", &[&[archive.as_str()], STATIC].concat())?;
        let program = fs::metadata(linked)?.len();
        let figure = |what: &str, bytes: u64, goal| Figure {
            what: format!("{what}, {}", self.name),
            value: bytes,
            unit: "B",
            goal,
        };
        let goal = self.has_goal.then_some(GOAL_BYTES);
        let figures = [
            figure("shared library", shared, goal),
            figure("program with it inside", program, None),
        ];
        Ok((built, figures))
    }
}

/// What a program is linked with that has the library inside.
const STATIC: &[&str] = &["-Wl,--gc-sections", "-s", "-lgcc_s", "-lpthread", "-lm", "-ldl"];

pub(crate) fn run(_words: &[String]) -> Result<()> {
    measure()?.iter().for_each(|figure| println!("{figure}"));
    Ok(())
}

/// Builds, weighs and runs the library.
pub(crate) fn measure() -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    figures.extend(RELEASE.weigh()?.1);
    figures.extend(SMALLEST.weigh()?.1);
    let (built, weights) = SMALL.weigh()?;
    figures.extend(weights);
    let folder = built.join("cost");
    let named = folder.join("libtowpath_c.so.1");
    fs::copy(built.join("libtowpath_c.so"), &named)?;
    let empty = compile(&folder, "empty", &["-DEMPTY"])?;
    let rpath = format!("-Wl,-rpath,{}", folder.display());
    let cost = compile(&folder, "cost", &[&named.display().to_string(), &rpath])?;
    let empty = numbers(&output(&mut Command::new(empty))?)?;
    let [empty_all_kib, _] = empty[..] else { return Err("cost.c says something else".into()) };
    let url = format!("http://{}/", origin()?);
    let mut runs = Vec::new();
    for number in 0..RUNS {
        // One of them is enough for what takes long.
        let (count, idle_ms) = if number == 0 { (REQUESTS, IDLE_MS) } else { (1, 0) };
        let words = [url.clone(), count.to_string(), idle_ms.to_string()];
        runs.push(Cost::parse(&output(Command::new(&cost).args(words))?)?);
    }
    figures.extend(costs(&runs, empty_all_kib));
    Ok(figures)
}

fn costs(runs: &[Cost], empty_all_kib: u64) -> Vec<Figure> {
    let mut figures = Vec::new();
    let mut add = |what: String, value, unit, goal| {
        figures.push(Figure { what, value, unit, goal });
    };
    type Of = fn(&Cost) -> u64;
    let times: [(&str, Of, _); 2] = [
        ("engine start", |run| run.start_us, None),
        ("start to first byte", |run| run.first_byte_us, Some(GOAL_FIRST_BYTE_US)),
    ];
    for (what, of, goal) in times {
        let mut all: Vec<u64> = runs.iter().map(of).collect();
        all.sort_unstable();
        add(format!("{what}, best of {RUNS} processes"), all[0], "µs", None);
        add(format!("{what}, median"), all[all.len() / 2], "µs", goal);
        add(format!("{what}, worst"), all[all.len() - 1], "µs", None);
    }
    let Some(Cost { before, first, many, idle_wakeups, .. }) = runs.first() else { return figures };
    add("resident, empty process".to_owned(), empty_all_kib, "KiB", None);
    for (when, resident) in
        [("library loaded", before), ("after 1 request", first), ("after 1000", many)]
    {
        let added_kib = resident.all_kib.saturating_sub(empty_all_kib);
        add(format!("resident, added, {when}"), added_kib, "KiB", Some(GOAL_KIB));
        add(format!("of it not of files, {when}"), resident.anonymous_kib, "KiB", None);
    }
    add(format!("idle wake-ups in {IDLE_MS} ms"), *idle_wakeups, "", Some(0));
    figures
}

fn compile(folder: &Path, name: &str, words: &[&str]) -> Result<PathBuf> {
    let program = folder.join(name);
    let include = format!("-I{}", root().join("bindings/c").display());
    run_command(
        Command::new("cc")
            .args(["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O2", &include, "-o"])
            .arg(&program)
            .arg(root().join("xtask/src/sizes/cost.c"))
            .args(words),
    )?;
    Ok(program)
}

impl Cost {
    fn parse(text: &str) -> Result<Self> {
        let all = numbers(text)?;
        let &[a, b, c, d, e, f, start_us, first_byte_us, idle_wakeups] = &all[..] else {
            return Err(format!("cost.c says {text:?}").into());
        };
        let resident = |all_kib, anonymous_kib| Resident { all_kib, anonymous_kib };
        let (before, first, many) = (resident(a, b), resident(c, d), resident(e, f));
        Ok(Self { before, first, many, start_us, first_byte_us, idle_wakeups })
    }
}

fn numbers(text: &str) -> Result<Vec<u64>> {
    let all = text.split_whitespace().map(str::parse).collect::<std::result::Result<_, _>>();
    all.map_err(|_| format!("cost.c says {text:?}").into())
}

/// Answers every request with five bytes, as long as this process lives.
fn origin() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
    Ok(address)
}

fn serve(mut stream: TcpStream) {
    let mut head = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(bytes @ 1..) = stream.read(&mut piece) {
        head.extend_from_slice(&piece[..bytes]);
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
            if stream.write_all(answer).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_program_is_read() {
        let cost = Cost::parse(" 1 2 3 4 5 6 7 8 9\n").unwrap();
        assert_eq!((cost.before.all_kib, cost.many.anonymous_kib), (1, 6));
        assert_eq!((cost.start_us, cost.first_byte_us, cost.idle_wakeups), (7, 8, 9));
        assert!(Cost::parse("1 2 3").is_err());
        assert!(Cost::parse("x").is_err());
    }
}
