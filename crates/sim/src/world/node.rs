//! One machine's place in the world: its ids, what it waits for, and what it promised.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use towpath_proto::{AttemptId, ConnectionId, Input, Instant, ListenerId, Machine, QueryId};

use super::stream::EndId;

/// A machine of any type, that can still be asked for its own.
pub(super) trait AnyMachine<T>: Machine<Message = T> {
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<M: Machine + 'static> AnyMachine<M::Message> for M {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

pub(super) struct Node<T> {
    /// Away only while its round runs.
    pub(super) machine: Option<Box<dyn AnyMachine<T>>>,
    pub(super) address: IpAddr,
    pub(super) inbox: Vec<Cause<T>>,
    /// The earliest wake-up that is scheduled.
    pub(super) wake_at: Option<Instant>,
    pub(super) deadline: Instant,
    pub(super) frozen_until: Instant,
    pub(super) dead: bool,
    pub(super) messages: VecDeque<(Instant, T)>,
    pub(super) touched: Vec<EndId>,
    pub(super) unsent_bytes: usize,
    pub(super) peak_unsent_bytes: usize,
    pub(super) promises: Promises,
    slots: Vec<Slot>,
    free: Vec<u32>,
}

/// Why a node wakes.
pub(super) enum Cause<T> {
    Told(Input<T>),
    Accepted(EndId),
    Connected(AttemptId, EndId),
    Readable(EndId),
    Writable(EndId),
}

/// What the contract asks of a machine and can only be seen over time.
#[derive(Default)]
pub(super) struct Promises {
    /// Connections that the machine itself closed.
    pub(super) closed: BTreeSet<ConnectionId>,
    pub(super) attempts: BTreeSet<AttemptId>,
    /// Attempts that are still to be answered.
    pub(super) pending: BTreeMap<AttemptId, ()>,
    pub(super) queries: BTreeSet<QueryId>,
    pub(super) listeners: BTreeSet<ListenerId>,
    /// Who waits in those that are left alone.
    pub(super) held: BTreeMap<ListenerId, Vec<EndId>>,
    /// Rounds in a row that ended with a deadline in the past.
    pub(super) late_waits: u32,
}

struct Slot {
    generation: u32,
    end: Option<EndId>,
}

impl<T> Node<T> {
    pub(super) fn new(machine: Box<dyn AnyMachine<T>>, address: IpAddr) -> Self {
        Self {
            machine: Some(machine),
            address,
            inbox: Vec::new(),
            wake_at: None,
            deadline: Instant::FAR_FUTURE,
            frozen_until: Instant::ZERO,
            dead: false,
            messages: VecDeque::new(),
            touched: Vec::new(),
            unsent_bytes: 0,
            peak_unsent_bytes: 0,
            promises: Promises::default(),
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Names an end. Slots are used again at once, so that a machine that mixes up generations is caught.
    pub(super) fn name(&mut self, end: EndId) -> ConnectionId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, end: None });
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let slot = &mut self.slots[index as usize];
        slot.end = Some(end);
        ConnectionId::new(index, slot.generation)
    }

    pub(super) fn forget(&mut self, id: ConnectionId) {
        let Some(slot) = self.slots.get_mut(id.slot()) else {
            return;
        };
        if slot.generation == id.generation() && slot.end.take().is_some() {
            slot.generation += 1;
            self.free.push(u32::try_from(id.slot()).unwrap_or(u32::MAX));
        }
    }

    /// The end that the machine means, if it is alive.
    pub(super) fn end(&self, id: ConnectionId) -> Option<EndId> {
        let slot = self.slots.get(id.slot())?;
        if slot.generation == id.generation() { slot.end } else { None }
    }

    /// Whether the machine was ever told of this id.
    pub(super) fn knows(&self, id: ConnectionId) -> bool {
        self.slots.get(id.slot()).is_some_and(|slot| {
            id.generation() < slot.generation
                || (id.generation() == slot.generation && slot.end.is_some())
        })
    }

    pub(super) fn connections(&self) -> impl Iterator<Item = EndId> {
        self.slots.iter().filter_map(|slot| slot.end)
    }
}
