//! Which streams a connection carries: the one place that leads from a mux's numbers to streams.

use crate::ids::StreamIndex;

/// The streams of a connection, by the numbers under which its mux knows them.
///
/// Muxes give out small numbers and use them again, so that this is a table as long as there were ever streams at once.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    /// The stream with number 0: HTTP/1, opaque bytes and the app have no other.
    first: Option<StreamIndex>,
    others: Vec<Option<StreamIndex>>,
    count: u32,
}

impl Carried {
    /// A stream comes under a number that no other has.
    pub(crate) fn bind(&mut self, number: u32, stream: StreamIndex) {
        let slot = match number.checked_sub(1) {
            None => &mut self.first,
            Some(at) => {
                let at = at as usize;
                if at >= self.others.len() {
                    self.others.resize(at + 1, None);
                }
                &mut self.others[at]
            }
        };
        debug_assert_eq!(*slot, None, "one stream for each number");
        self.count += u32::from(slot.replace(stream).is_none());
    }

    /// A stream leaves.
    pub(crate) fn unbind(&mut self, number: u32) {
        let slot = match number.checked_sub(1) {
            None => Some(&mut self.first),
            Some(at) => self.others.get_mut(at as usize),
        };
        self.count -= u32::from(slot.and_then(Option::take).is_some());
    }

    pub(crate) fn get(&self, number: u32) -> Option<StreamIndex> {
        match number.checked_sub(1) {
            None => self.first,
            Some(at) => *self.others.get(at as usize)?,
        }
    }

    /// A number that no stream has.
    pub(crate) fn unused(&self) -> u32 {
        let mut slots = std::iter::once(&self.first).chain(&self.others);
        let unused = slots.position(Option::is_none).unwrap_or(self.others.len() + 1);
        u32::try_from(unused).unwrap_or(u32::MAX)
    }

    /// The stream of a connection that carries one at a time.
    pub(crate) fn only(&self) -> Option<StreamIndex> {
        self.first
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn len(&self) -> u32 {
        self.count
    }

    /// All streams, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = StreamIndex> {
        self.first.into_iter().chain(self.others.iter().copied().flatten())
    }

    /// The same as a copy: what is done for one may end another.
    pub(crate) fn all(&self) -> Vec<StreamIndex> {
        self.iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_leads_to_its_stream_until_that_leaves() {
        let mut carried = Carried::default();
        for number in [0, 7, 3] {
            carried.bind(number, StreamIndex(100 + number));
        }
        assert_eq!(carried.get(7), Some(StreamIndex(107)));
        assert_eq!((carried.get(1), carried.get(9)), (None, None));
        assert_eq!(carried.all(), [100, 103, 107].map(StreamIndex));
        assert_eq!((carried.unused(), Carried::default().unused()), (1, 0));
        carried.unbind(7);
        carried.unbind(7);
        carried.unbind(99);
        assert_eq!((carried.get(7), carried.len()), (None, 2));
        carried.unbind(0);
        carried.unbind(3);
        assert!(carried.is_empty() && carried.only().is_none());
    }
}
