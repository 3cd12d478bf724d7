//! What the kernel says of the network becomes what an app would say; and what else in the library wants to know.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use towpath_engine::local::message::NetworkChange;
use towpath_io::network::{DefaultRoute, Picture, Stop, Watcher, Woken};

use crate::call::Shared;
use crate::{Error, NetworkKind};

/// The changes that the engine was told of.
#[derive(Default)]
pub(crate) struct Network {
    changes: AtomicU64,
    listeners: Mutex<Vec<Listener>>,
    latest: Mutex<Option<NetworkChange>>,
    app_tells: AtomicBool,
}

/// Called after each change; false when it need not be any more. It must not block.
type Listener = Box<dyn Fn(&NetworkChange) -> bool + Send>;

impl Network {
    /// The engine has been told of a change.
    pub(crate) fn changed(&self, change: &NetworkChange) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        *self.latest() = Some(change.clone());
        listeners.retain(|listener| listener(change));
    }

    /// The app's own word is better than the kernel's, unless it asked for that.
    pub(crate) fn leave_to_app(&self) {
        self.app_tells.store(true, Ordering::Release);
    }

    /// How many there were.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// What the engine was last told, if anything.
    pub(crate) fn latest(&self) -> MutexGuard<'_, Option<NetworkChange>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn listen(&self, listener: impl Fn(&NetworkChange) -> bool + Send + 'static) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.push(Box::new(listener));
    }
}

/// What of the kernel's word is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Belief {
    All,
    /// That something changed, as long as the app says nothing; not that there is no network: what looks like none
    /// may be one of link-local addresses, or a tunnel that the kernel does not show.
    Changes,
}

/// A thread that sleeps until the kernel tells of a change.
pub(crate) struct Watching {
    _stop: Stop,
}

impl Watching {
    /// Tells the engine what there is, and from then on what becomes of it.
    pub(crate) fn start(shared: Arc<Shared>, belief: Belief) -> io::Result<Self> {
        let (watcher, stop) = Watcher::open()?;
        let mut state = NetworkState::of(&watcher.picture()?, belief);
        let _ = shared.network_changed(state.change());
        let watch = move || {
            while let Ok(Woken::Changed) = watcher.wait() {
                if belief == Belief::Changes && shared.network.app_tells.load(Ordering::Acquire) {
                    return;
                }
                // What cannot be read now is read after the next change.
                let Ok(picture) = watcher.picture() else { continue };
                let new = NetworkState::of(&picture, belief);
                let told = if new.differs_from(&state) {
                    shared.network_changed(new.change())
                } else {
                    Ok(())
                };
                match told {
                    Ok(()) => state = new,
                    Err(Error::Stopped) => return,
                    // It has no room for messages: it is told with the next change.
                    Err(_) => {}
                }
            }
        };
        std::thread::Builder::new().name("towpath-network".to_owned()).spawn(watch)?;
        Ok(Self { _stop: stop })
    }
}

/// What an app needs to know of a picture.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NetworkState {
    label: String,
    kind: NetworkKind,
    online: bool,
    /// Those of its interface, which connections are bound to.
    addresses: Vec<IpAddr>,
}

impl NetworkState {
    fn of(picture: &Picture, belief: Belief) -> Self {
        let name = |index: u32| {
            let link = picture.links.iter().find(|link| link.index == index);
            link.filter(|link| link.running && !link.loopback).map(|link| link.name.as_str())
        };
        let usable = |route: &&DefaultRoute| name(route.link).is_some();
        // The IPv4 router is there in most networks, and does not change its address as IPv6 routers do.
        let route = picture.routes.iter().filter(usable).min_by_key(|r| (r.six, r.metric, r.link));
        let addresses = picture.addresses.iter().filter(|address| name(address.link).is_some());
        let mut numbered: Vec<(u32, IpAddr)> =
            addresses.map(|address| (address.link, address.ip)).collect();
        numbered.sort_unstable();
        let link = route.map(|route| route.link).or_else(|| numbered.first().map(|one| one.0));
        let interface = link.and_then(name).unwrap_or_default();
        let label = match route.and_then(|route| route.gateway) {
            Some(gateway) => format!("{interface} {gateway}"),
            None => interface.to_owned(),
        };
        Self {
            kind: kind(interface),
            label,
            online: link.is_some() || belief == Belief::Changes,
            addresses: numbered.iter().filter(|one| Some(one.0) == link).map(|one| one.1).collect(),
        }
    }

    /// Whether connections of before may be of no use. What is there in addition changes nothing for them.
    fn differs_from(&self, before: &Self) -> bool {
        let gone = before.addresses.iter().any(|ip| !self.addresses.contains(ip));
        gone || (&self.label, self.online) != (&before.label, before.online)
    }

    fn change(&self) -> NetworkChange {
        NetworkChange {
            label: self.label.as_str().into(),
            kind: self.kind.into(),
            online: self.online,
            spares_loopback: true,
        }
    }
}

/// As modems' interfaces are named.
fn kind(interface: &str) -> NetworkKind {
    let mobile = ["wwan", "rmnet", "ccmni", "ppp"];
    if mobile.iter().any(|begin| interface.starts_with(begin)) {
        NetworkKind::Mobile
    } else {
        NetworkKind::Fixed
    }
}

#[cfg(test)]
mod tests {
    use towpath_io::network::{Link, LinkAddress};

    use super::*;

    fn link(index: u32, name: &str, running: bool) -> Link {
        Link { index, name: name.to_owned(), running, loopback: name == "lo" }
    }

    fn address(link: u32, last: u8) -> LinkAddress {
        LinkAddress { link, ip: [10, 0, 0, last].into() }
    }

    fn route(link: u32, last: u8, metric: u32) -> DefaultRoute {
        DefaultRoute { link, six: false, gateway: Some([10, 0, 0, last].into()), metric }
    }

    fn home() -> Picture {
        Picture {
            links: vec![link(1, "lo", true), link(2, "eth0", true), link(3, "wwan0", true)],
            addresses: vec![address(2, 2), address(3, 3)],
            routes: vec![route(3, 9, 700), route(2, 1, 100)],
        }
    }

    fn state(change: impl FnOnce(&mut Picture)) -> NetworkState {
        let mut picture = home();
        change(&mut picture);
        NetworkState::of(&picture, Belief::All)
    }

    #[test]
    fn the_label_is_the_default_route_s_interface_and_router() {
        let home = NetworkState::of(&home(), Belief::All);
        assert_eq!((home.label.as_str(), home.online), ("eth0 10.0.0.1", true));
        assert_eq!(home.kind, NetworkKind::Fixed);
        let mobile = state(|picture| picture.links[1].running = false);
        assert_eq!((mobile.label.as_str(), mobile.kind), ("wwan0 10.0.0.9", NetworkKind::Mobile));
        let six = state(|picture| {
            picture.routes.push(DefaultRoute { link: 2, six: true, gateway: None, metric: 1 });
        });
        assert_eq!(six.label, home.label);
        let local = state(|picture| picture.routes.clear());
        assert_eq!((local.label.as_str(), local.online), ("eth0", true), "only its own net");
    }

    #[test]
    fn there_is_no_network_without_route_and_address() {
        let routed = state(|picture| picture.addresses.clear());
        assert!(routed.online);
        let none = state(|picture| {
            picture.addresses.clear();
            picture.routes.clear();
        });
        assert_eq!((none.label.as_str(), none.online), ("", false));
        let down = state(|picture| {
            picture.links[1].running = false;
            picture.links[2].running = false;
        });
        assert!(!down.online);
        assert!(!NetworkState::of(&Picture::default(), Belief::All).online);
        let guessed = NetworkState::of(&Picture::default(), Belief::Changes);
        assert!(
            guessed.online && guessed.differs_from(&NetworkState::of(&home(), Belief::Changes))
        );
    }

    #[test]
    fn what_is_there_in_addition_is_no_change() {
        let home = NetworkState::of(&home(), Belief::All);
        assert!(!home.differs_from(&home));
        assert!(!state(|picture| picture.addresses.push(address(2, 7))).differs_from(&home));
        assert!(state(|picture| picture.addresses.clear()).differs_from(&home));
        assert!(!state(|picture| picture.addresses.truncate(1)).differs_from(&home), "not its own");
        assert!(state(|picture| picture.routes[1] = route(2, 8, 100)).differs_from(&home));
        assert!(!state(|picture| picture.routes.retain(|it| it.link == 2)).differs_from(&home));
    }
}
