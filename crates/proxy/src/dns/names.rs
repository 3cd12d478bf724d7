//! Names that requests choose: each [`Cache`] at work.
//!
//! Workers' questions and snapshots arrive, news of names leave. Every cache has a task of its own on the control
//! thread, and no more questions under way than names.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use towpath_engine::names::{Act, Answer, Cache, NameFault, NameNews, NameQuestion};
use towpath_engine::snapshot::names::DnsCache;
use towpath_engine::stats::Registry;
use towpath_proto::Instant;

use super::resolver::{self, Resolvers};
use crate::server_stats::CONTROL;

/// All DNS caches. Must be made and used inside a `LocalSet`; dropping it ends their tasks.
#[derive(Debug)]
pub struct Names {
    running: RefCell<HashMap<Arc<str>, Running>>,
    registry: Arc<Registry>,
    news: mpsc::UnboundedSender<NameNews>,
}

#[derive(Debug)]
struct Running {
    orders: mpsc::UnboundedSender<Order>,
    config: Arc<DnsCache>,
    /// Ends with it.
    _task: JoinSet<()>,
}

#[derive(Debug)]
enum Order {
    /// A worker wants to know a name.
    Want(Arc<str>),
    Reconfigure(Arc<DnsCache>),
}

impl Names {
    /// None yet. What becomes of names goes to `news`.
    #[must_use]
    pub fn new(registry: Arc<Registry>, news: mpsc::UnboundedSender<NameNews>) -> Self {
        Self { running: RefCell::default(), registry, news }
    }

    /// Has these caches and no others; those that it has already keep their names.
    pub fn update(&self, configs: &[Arc<DnsCache>]) {
        let mut running = self.running.borrow_mut();
        running.retain(|name, _| configs.iter().any(|config| config.name == *name));
        for config in configs {
            match running.get_mut(&config.name) {
                Some(known) if known.config == *config => {}
                Some(known) => {
                    known.config = Arc::clone(config);
                    // A task that has ended has no use for it.
                    let _ = known.orders.send(Order::Reconfigure(Arc::clone(config)));
                }
                None => {
                    let (orders, receiver) = mpsc::unbounded_channel();
                    let mut task = JoinSet::new();
                    let (registry, news) = (Arc::clone(&self.registry), self.news.clone());
                    task.spawn_local(run(Arc::clone(config), registry, receiver, news));
                    let config = Arc::clone(config);
                    let name = Arc::clone(&config.name);
                    running.insert(name, Running { orders, config, _task: task });
                }
            }
        }
    }

    /// A worker wants to know a name.
    pub fn ask(&self, question: NameQuestion) {
        if let Some(known) = self.running.borrow().get(&question.cache) {
            // A task that has ended has no use for it.
            let _ = known.orders.send(Order::Want(question.host));
        }
    }
}

/// An answer, and what it answers.
type Answered = (Arc<str>, u64, Answer);

async fn run(
    mut config: Arc<DnsCache>,
    registry: Arc<Registry>,
    mut orders: mpsc::UnboundedReceiver<Order>,
    news: mpsc::UnboundedSender<NameNews>,
) {
    let epoch = tokio::time::Instant::now();
    let now = || Instant::from_nanos(u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let resolvers = Rc::new(RefCell::new(Resolvers::default()));
    let mut lookups: JoinSet<Answered> = JoinSet::new();
    let mut cache = Cache::new(Arc::clone(&config), &registry, CONTROL, now(), unix_ms());
    loop {
        while let Some(act) = cache.take_act() {
            match act {
                Act::Query { query, host, name } => {
                    let (config, resolvers) = (Arc::clone(&config), Rc::clone(&resolvers));
                    lookups.spawn_local(look_up(config, resolvers, query, host, name));
                }
                // The receiver is gone only when the process ends.
                Act::Tell(told) => drop(news.send(told)),
            }
        }
        let due = cache.next().map(|due| epoch + (due - Instant::ZERO));
        tokio::select! {
            order = orders.recv() => match order {
                Some(Order::Want(host)) => cache.want(&host, now(), unix_ms()),
                Some(Order::Reconfigure(other)) => {
                    config = Arc::clone(&other);
                    cache.reconfigure(other, now(), unix_ms());
                }
                None => return,
            },
            Some(Ok((host, query, answer))) = lookups.join_next() => {
                cache.answer(&host, query, answer, now(), unix_ms(), crate::random());
            }
            () = sleep_until(due), if due.is_some() => {
                cache.advance(now(), unix_ms(), crate::random());
            }
        }
    }
}

async fn sleep_until(due: Option<tokio::time::Instant>) {
    if let Some(due) = due {
        tokio::time::sleep_until(due).await;
    }
}

async fn look_up(
    config: Arc<DnsCache>,
    resolvers: Rc<RefCell<Resolvers>>,
    query: u64,
    host: Arc<str>,
    name: Box<str>,
) -> Answered {
    let resolver = resolvers.borrow_mut().find(&config.resolver, config.family);
    let Ok(resolver) = resolver else { return (host, query, Answer::Fault(NameFault::Failed)) };
    let asked = resolver::look_up_fault(&resolver, &name);
    let answer = match config.query_timeout {
        // The cache has given it up then.
        Some(timeout) => {
            tokio::time::timeout(timeout, asked).await.unwrap_or(Answer::Fault(NameFault::TimedOut))
        }
        None => asked.await,
    };
    (host, query, answer)
}

fn unix_ms() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
