//! `towpath xds dump`: asks a control plane for what a proxy with this bootstrap would ask for, and writes it down.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use towpath_config::{Base, Options, Prints, Resources, Source, Sources};
use towpath_engine::snapshot::Snapshot;
use towpath_engine::stats::Registry;

use super::recording::{Timed, header};
use crate::discovery::{self, Ask, Reach, Setup, Step};
use crate::dns::Watcher;
use crate::serve::dns_clusters;

/// What `xds dump` was told.
#[derive(Clone, Debug, Args)]
pub struct Dump {
    /// The bootstrap: YAML or JSON
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Go on until interrupted
    #[arg(long)]
    follow: bool,
    /// End after so many seconds, whatever has come
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    patience: u64,
    /// The node's id, before that of the bootstrap
    #[arg(long, value_name = "ID")]
    service_node: Option<String>,
    /// The node's cluster, before that of the bootstrap
    #[arg(long, value_name = "CLUSTER")]
    service_cluster: Option<String>,
}

impl Dump {
    pub(super) fn run(&self) -> Result<ExitCode, String> {
        let source = Source::read(&self.file).map_err(|error| error.to_string())?;
        let sources = Sources::file(source);
        let options = Options {
            node_id: self.service_node.clone(),
            node_cluster: self.service_cluster.clone(),
            ..Options::default()
        };
        let loaded = towpath_config::load(&sources, &options).map_err(|error| error.to_string())?;
        let discovery = loaded.bootstrap.discovery;
        let discovery = discovery.ok_or("the bootstrap asks no control plane for anything")?;
        let shown = Resources::new(sources.clone(), options.clone());
        let shown = shown.map_err(|error| error.to_string())?.bootstrap();
        let failed = |error: std::io::Error| format!("{}: {error}", self.output.display());
        let mut file = BufWriter::new(File::create(&self.output).map_err(failed)?);
        file.write_all(header(&shown).as_bytes()).and_then(|()| file.flush()).map_err(failed)?;
        let registry = Arc::new(Registry::new());
        let (asks, asked) = mpsc::unbounded_channel();
        let (recorder, steps) = mpsc::unbounded_channel();
        let (_overrider, overrides) = mpsc::unbounded_channel();
        let recorder = Some(recorder);
        let setup = Setup {
            sources,
            options,
            discovery,
            registry: registry.clone(),
            asks,
            overrides,
            recorder,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        LocalSet::new().block_on(&runtime, async move {
            let (updates, _unread) = mpsc::unbounded_channel();
            let dns = Watcher::start(dns_clusters(&loaded.snapshot), &registry, &updates);
            dns.warmed(NAMES_BOUND).await;
            let dry = Dry { snapshot: Arc::new(loaded.snapshot), prints: loaded.prints, dns, registry };
            let mut writer = Writer { file, steps, began: Instant::now(), count: 0 };
            tokio::select! {
                () = discovery::serve(setup) => Err("it could not begin".to_owned()),
                () = dry.answer(asked, !self.follow) => Ok(()),
                outcome = writer.write() => outcome,
                _ = tokio::signal::ctrl_c() => Ok(()),
                () = tokio::time::sleep(Duration::from_secs(self.patience)), if !self.follow => {
                    let text = format!("not all came in {} s; what came is in the file", self.patience);
                    Err(text)
                }
            }?;
            writer.write_rest().map_err(failed)?;
            // Where standard output is closed nothing can be told.
            let _ = writeln!(std::io::stdout(), "{} updates", writer.count);
            Ok(ExitCode::SUCCESS)
        })
    }
}

/// In the place of the control thread: nothing is opened, and all that is offered would serve.
struct Dry {
    snapshot: Arc<Snapshot>,
    prints: Prints,
    dns: Watcher,
    registry: Arc<Registry>,
}

impl Dry {
    /// Ends some time after a proxy could serve, if it is to end.
    async fn answer(mut self, mut asks: mpsc::UnboundedReceiver<Ask>, ends: bool) {
        let mut serves = false;
        loop {
            let quiet = tokio::time::sleep(QUIET);
            let ask = tokio::select! {
                ask = asks.recv() => ask,
                () = quiet, if serves && ends => return,
            };
            match ask {
                None => return,
                Some(Ask::Reach { cluster, teller }) => {
                    let id = self.snapshot.cluster_id(&cluster);
                    let found = id.and_then(|id| Some((id, self.snapshot.cluster(id)?)));
                    let reach = found.map_or_else(Reach::default, |(id, cluster)| Reach {
                        cluster: Some(Arc::clone(cluster)),
                        endpoints: self
                            .dns
                            .endpoints(id)
                            .unwrap_or_else(|| Arc::clone(&cluster.endpoints)),
                    });
                    // Where an answer is not waited for any longer, all ends.
                    let _ = teller.send(reach);
                }
                Some(Ask::Base(teller)) => {
                    let (snapshot, prints) = (Arc::clone(&self.snapshot), self.prints.clone());
                    let _ = teller.send(Base { snapshot, prints, free: Vec::new() });
                }
                Some(Ask::Snapshot(teller)) => {
                    let _ = teller.send(Arc::clone(&self.snapshot));
                }
                Some(Ask::Patch { patch, teller }) => {
                    let after = patch.apply(&self.snapshot, &mut self.prints);
                    self.snapshot = Arc::new(after);
                    let _ = teller.send(());
                }
                Some(Ask::Follow { clusters, teller }) => {
                    self.dns.update(clusters, &self.registry);
                    self.dns.warmed(NAMES_BOUND).await;
                    let _ = teller.send(());
                }
                // Nothing is opened.
                Some(Ask::TryToOpen { teller, .. }) => {
                    let _ = teller.send(Vec::new());
                }
                Some(Ask::Serve { built, teller }) => {
                    (self.snapshot, self.prints) = (Arc::new(built.snapshot), built.prints);
                    serves = true;
                    let _ = teller.send(Vec::new());
                }
                Some(Ask::State(_) | Ask::Shown(..) | Ask::Version(..) | Ask::Printer(_)) => {}
            }
        }
    }
}

struct Writer {
    file: BufWriter<File>,
    steps: mpsc::UnboundedReceiver<Step>,
    began: Instant,
    count: usize,
}

impl Writer {
    /// Each line is out before the next update is waited for.
    async fn write(&mut self) -> Result<(), String> {
        while let Some(step) = self.steps.recv().await {
            self.one(step).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn write_rest(&mut self) -> std::io::Result<()> {
        while let Ok(step) = self.steps.try_recv() {
            self.one(step)?;
        }
        Ok(())
    }

    fn one(&mut self, step: Step) -> std::io::Result<()> {
        let at_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let timed = Timed { at_ms, step };
        self.count += 1;
        self.file.write_all(timed.line().as_bytes())?;
        self.file.flush()
    }
}

/// How long names are looked up before the control plane is asked.
const NAMES_BOUND: Duration = Duration::from_secs(5);
/// Nothing for so long after a proxy could serve is the end.
const QUIET: Duration = Duration::from_secs(1);
