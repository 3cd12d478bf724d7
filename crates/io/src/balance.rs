//! A listener's connections, spread over shards by how many each has (Envoy's `exact_balance`).
//!
//! The kernel spreads connections by a hash of their addresses, so that of a few long ones many may come to one shard.
//! Here the shard that accepts a connection asks whose it is to be, and hands it over to another one by a command. One
//! lock is taken where a connection begins and where it ends, and by a busy shard ten times a second.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use socket2::Socket;
use towpath_proto::{Address, Instant, ListenerId};

/// What the shards of one listener have.
#[derive(Debug)]
pub(crate) struct Group(Mutex<Vec<Member>>);

#[derive(Debug, Default)]
struct Member {
    /// Connections that it has, and those on their way to it.
    open: u32,
    /// Thousandths of the time that it was busy lately, and when that was said.
    busy: u32,
    said: Instant,
    give: Option<Give>,
}

/// Hands a connection over to a shard; back if that is gone.
pub(crate) struct Give(Box<dyn Fn(Accepted) -> Result<(), Accepted> + Send>);

/// An accepted connection that no machine knows of yet.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) listener: ListenerId,
    /// Who counts it, where connections are balanced.
    pub(crate) group: Option<Arc<Group>>,
    pub(crate) socket: Socket,
    pub(crate) local: Address,
    pub(crate) peer: Address,
    pub(crate) original: Option<SocketAddr>,
}

impl Group {
    pub(crate) fn new(shards: usize) -> Self {
        Self(Mutex::new((0..shards).map(|_| Member::default()).collect()))
    }

    /// A shard takes connections from here on.
    pub(crate) fn join(&self, shard: usize, give: Give) {
        if let Some(member) = self.lock().get_mut(shard) {
            member.give = Some(give);
        }
    }

    /// A shard takes none any more.
    pub(crate) fn leave(&self, shard: usize) {
        if let Some(member) = self.lock().get_mut(shard) {
            member.give = None;
        }
    }

    /// Counts a connection for the shard that is to have it: the one with the fewest, of several the one that was less
    /// busy, of several of these the `own` one, which accepted it. Given back if it is this one.
    pub(crate) fn place(&self, own: usize, accepted: Accepted, now: Instant) -> Option<Accepted> {
        let mut members = self.lock();
        let rank = |(shard, member): &(usize, &Member)| {
            (member.open, member.busy_tenths(now), *shard != own, *shard)
        };
        let takes = members.iter().enumerate().filter(|(_, member)| member.give.is_some());
        let chosen = takes.min_by_key(rank).map_or(own, |(shard, _)| shard);
        let mut kept = Some(accepted);
        if chosen != own
            && let Some(member) = members.get_mut(chosen)
            && let Some(give) = &member.give
        {
            kept = kept.and_then(|accepted| give.0(accepted).err());
            match kept {
                None => member.open += 1,
                Some(_) => member.give = None,
            }
        }
        if kept.is_some()
            && let Some(member) = members.get_mut(own)
        {
            member.open += 1;
        }
        kept
    }

    /// A connection of a shard is over.
    pub(crate) fn ended(&self, shard: usize) {
        if let Some(member) = self.lock().get_mut(shard) {
            member.open = member.open.saturating_sub(1);
        }
    }

    /// Of late a shard was busy for so many thousandths of the time.
    pub(crate) fn say_busy(&self, shard: usize, thousandths: u32, now: Instant) {
        if let Some(member) = self.lock().get_mut(shard) {
            (member.busy, member.said) = (thousandths, now);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Member>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    /// In steps that chance does not cross all the time. A shard that sleeps says nothing.
    fn busy_tenths(&self, now: Instant) -> u32 {
        if now.since(self.said) < FORGOTTEN_AFTER { self.busy / 100 } else { 0 }
    }
}

impl Give {
    pub(crate) fn new(give: impl Fn(Accepted) -> Result<(), Accepted> + Send + 'static) -> Self {
        Self(Box::new(give))
    }
}

impl fmt::Debug for Give {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Give(..)")
    }
}

/// How much of the time a shard is busy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Busy {
    since: Instant,
    spent: Duration,
}

impl Busy {
    /// A turn took from `begun` to `now`; how many thousandths of the time the last ones took together, told now and
    /// then.
    pub(crate) fn note(&mut self, begun: Instant, now: Instant) -> Option<u32> {
        self.spent += now.since(begun);
        let whole = now.since(self.since);
        if whole < TOLD_EVERY {
            return None;
        }
        let spent = std::mem::take(&mut self.spent).min(whole);
        self.since = now;
        u32::try_from(spent.as_nanos() * 1000 / whole.as_nanos()).ok()
    }
}

const TOLD_EVERY: Duration = Duration::from_millis(100);
const FORGOTTEN_AFTER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    fn accepted() -> Accepted {
        let socket = Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let (local, peer) = (Address::unspecified(), Address::unspecified());
        Accepted { listener: ListenerId(0), group: None, socket, local, peer, original: None }
    }

    fn group(shards: usize) -> (Group, Vec<Receiver<Accepted>>) {
        let group = Group::new(shards);
        let took = (0..shards).map(|shard| {
            let (give, took) = channel();
            group.join(shard, Give::new(move |one| give.send(one).map_err(|error| error.0)));
            took
        });
        let took = took.collect();
        (group, took)
    }

    /// Who gets so many connections that the first shard accepts.
    fn places(
        group: &Group,
        took: &[Receiver<Accepted>],
        count: usize,
        now: Instant,
    ) -> Vec<usize> {
        let place = |_| {
            let kept = group.place(0, accepted(), now).is_some();
            let given = took.iter().position(|took| took.try_recv().is_ok());
            assert_ne!(kept, given.is_some(), "to one of them");
            given.unwrap_or(0)
        };
        (0..count).map(place).collect()
    }

    #[test]
    fn the_shard_with_the_fewest_connections_gets_the_next() {
        let (group, took) = group(3);
        let now = Instant::from_nanos(1);
        assert_eq!(places(&group, &took, 7, now), [0, 1, 2, 0, 1, 2, 0]);
        (0..2).for_each(|_| group.ended(2));
        assert_eq!(places(&group, &took, 3, now), [2, 2, 1]);
    }

    #[test]
    fn of_equals_the_one_that_is_less_busy_gets_it() {
        let (group, took) = group(2);
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        group.say_busy(0, 950, at(5));
        assert_eq!(places(&group, &took, 2, at(5)), [1, 0]);
        assert_eq!(places(&group, &took, 2, at(7)), [0, 1], "what was said long ago is forgotten");
    }

    #[test]
    fn a_shard_that_is_gone_gets_none() {
        let (group, mut took) = group(3);
        let now = Instant::from_nanos(1);
        drop(took.remove(1));
        group.leave(2);
        let kept = (0..4).filter(|_| group.place(0, accepted(), now).is_some()).count();
        assert_eq!(kept, 4);
    }

    #[test]
    fn how_busy_a_shard_is_comes_from_the_length_of_its_turns() {
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let mut busy = Busy { since: at(1000), spent: Duration::ZERO };
        assert_eq!(busy.note(at(1010), at(1040)), None);
        assert_eq!(busy.note(at(1080), at(1100)), Some(500));
        assert_eq!(busy.note(at(2090), at(2100)), Some(10));
    }
}
