//! The numbers of streams that a peer begins: small, so that what belongs to a stream stands in a flat table.

/// Numbers that are given out and taken back, the last one first.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    free: Vec<u32>,
    used: u32,
}

impl Numbers {
    /// A number that no stream has. At most as many are ever used as there are streams at once.
    pub(crate) fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.used += 1;
            self.used - 1
        })
    }

    /// Its stream is over.
    pub(crate) fn give(&mut self, number: u32) {
        self.free.push(number);
    }

    /// How many streams have one.
    pub(crate) fn taken(&self) -> usize {
        self.used as usize - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_streams_have_the_same_number_and_no_number_is_larger_than_it_must_be() {
        let mut numbers = Numbers::default();
        let (one, two) = (numbers.take(), numbers.take());
        assert_ne!(one, two);
        numbers.give(one);
        assert_eq!((numbers.taken(), numbers.take()), (1, one));
        let mut others: Vec<u32> = (0..100).map(|_| numbers.take()).collect();
        others.sort_unstable();
        assert_eq!(others, (2..102).collect::<Vec<u32>>());
        assert_eq!(numbers.taken(), 102);
    }
}
