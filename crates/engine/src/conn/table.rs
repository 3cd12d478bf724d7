//! The table of all connections, by the driver's slots.

use towpath_proto::ConnectionId;

use crate::conn::Connection;

/// All connections of a worker, by the driver's slots.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) slots: Vec<Option<Box<Connection>>>,
    pub(crate) len: usize,
    pub(crate) locals: Locals,
}

/// Table without a socket: the app's sides of its streams. Their slots are beyond those of any driver.
#[derive(Debug, Default)]
pub(crate) struct Locals {
    pub(crate) slots: Vec<Option<Box<Connection>>>,
    pub(crate) free: Vec<u32>,
    pub(crate) serial: u32,
}

pub(crate) const FIRST_LOCAL: u32 = 1 << 29;

impl Locals {
    pub(crate) fn slot(id: ConnectionId) -> usize {
        id.slot().wrapping_sub(FIRST_LOCAL as usize)
    }

    #[cold]
    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.slots.get(Self::slot(id))?.as_deref().filter(|connection| connection.id == id)
    }

    #[cold]
    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.slots.get_mut(Self::slot(id))?.as_deref_mut().filter(|connection| connection.id == id)
    }

    #[cold]
    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Box<Connection>> {
        let pool_key = self.slots.get_mut(Self::slot(id))?;
        let removed = pool_key.take_if(|connection| connection.id == id)?;
        self.free.push(u32::try_from(Self::slot(id)).unwrap_or(u32::MAX));
        Some(removed)
    }
}

impl Table {
    pub(crate) fn insert(&mut self, connection: Connection) -> &mut Connection {
        let slot = connection.id.slot();
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, || None);
        }
        let pool_key = &mut self.slots[slot];
        if pool_key.is_none() {
            self.len += 1;
        }
        pool_key.insert(Box::new(connection))
    }

    /// Adds a connection without a socket.
    pub(crate) fn insert_local(
        &mut self,
        make: impl FnOnce(ConnectionId) -> Connection,
    ) -> ConnectionId {
        let locals = &mut self.locals;
        let slot = locals.free.pop().unwrap_or_else(|| {
            locals.slots.push(None);
            u32::try_from(locals.slots.len() - 1).unwrap_or(u32::MAX)
        });
        locals.serial = locals.serial.wrapping_add(1);
        let id = ConnectionId::new(FIRST_LOCAL + slot, locals.serial);
        locals.slots[slot as usize] = Some(Box::new(make(id)));
        id
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        match self.slots.get(id.slot()) {
            Some(slot) => slot.as_deref().filter(|connection| connection.id == id),
            None => self.locals.get(id),
        }
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        match self.slots.get_mut(id.slot()) {
            Some(slot) => slot.as_deref_mut().filter(|connection| connection.id == id),
            None => self.locals.get_mut(id),
        }
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Box<Connection>> {
        let Some(pool_key) = self.slots.get_mut(id.slot()) else { return self.locals.remove(id) };
        if pool_key.as_ref().is_some_and(|connection| connection.id == id) {
            self.len -= 1;
            return pool_key.take();
        }
        None
    }

    /// The connection in a slot, whatever its generation.
    pub(crate) fn in_slot(&self, slot: usize) -> Option<&Connection> {
        self.slots.get(slot)?.as_deref()
    }

    /// All ids, for the rare walks over everything.
    pub(crate) fn ids(&self) -> Vec<ConnectionId> {
        self.slots.iter().flatten().map(|connection| connection.id).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}
