//! What names were answered with, network by network: for origins that have not asked yet, in this life or the next.
//!
//! Arrives: the resolver's answers, with the label of the network that they came on. Leaves: addresses to begin with
//! while a new question is under way. A failure takes nothing away: the resolver may be what is broken.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::Instant;

/// The latest answers.
#[derive(Debug, Default)]
pub struct Answers {
    known: HashMap<Key, Answer>,
}

/// A network's label and a name.
type Key = (Arc<str>, Arc<str>);

#[derive(Debug)]
struct Answer {
    addresses: Vec<IpAddr>,
    /// When it came here, and how old it was then.
    since: Instant,
    age: Duration,
}

/// One answer of a saved memory: what [`Answers::save`] gives and [`Answers::restore`] takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedAnswer {
    /// The network's label.
    pub network: Arc<str>,
    /// The name.
    pub name: Arc<str>,
    /// Its addresses, the best first.
    pub addresses: Vec<IpAddr>,
    /// How long ago the resolver said so.
    pub age: Duration,
}

impl Answers {
    /// The resolver answered.
    pub fn learn(
        &mut self,
        network: &Arc<str>,
        name: &Arc<str>,
        addresses: &[IpAddr],
        now: Instant,
    ) {
        let addresses: Vec<IpAddr> = addresses.iter().take(MOST_ADDRESSES).copied().collect();
        let answer = Answer { addresses, since: now, age: Duration::ZERO };
        self.put((Arc::clone(network), Arc::clone(name)), answer, now);
    }

    /// What a name was answered with on a network, if that is not too long ago.
    #[must_use]
    pub fn addresses(&self, network: &Arc<str>, name: &Arc<str>, now: Instant) -> &[IpAddr] {
        let answer = self.known.get(&(Arc::clone(network), Arc::clone(name)));
        let usable = answer.filter(|answer| answer.age(now) <= OLDEST);
        usable.map(|answer| answer.addresses.as_slice()).unwrap_or_default()
    }

    /// Everything that is not too old, for a file.
    #[must_use]
    pub fn save(&self, now: Instant) -> Vec<SavedAnswer> {
        let all = self.known.iter().map(|((network, name), answer)| SavedAnswer {
            network: Arc::clone(network),
            name: Arc::clone(name),
            addresses: answer.addresses.clone(),
            age: answer.age(now),
        });
        let mut all: Vec<SavedAnswer> = all.filter(|one| one.age <= OLDEST).collect();
        all.sort_by(|a, b| (&a.network, &a.name).cmp(&(&b.network, &b.name)));
        all
    }

    /// Takes what was saved; what is known already stays.
    pub fn restore(&mut self, saved: impl IntoIterator<Item = SavedAnswer>, now: Instant) {
        for one in saved {
            let key = (one.network, one.name);
            if one.age <= OLDEST && !self.known.contains_key(&key) {
                let answer = Answer { addresses: one.addresses, since: now, age: one.age };
                self.put(key, answer, now);
            }
        }
    }

    /// The oldest gives way to one more.
    fn put(&mut self, key: Key, answer: Answer, now: Instant) {
        if !self.known.contains_key(&key) && self.known.len() >= MOST_ANSWERS {
            let oldest = self.known.iter().max_by_key(|(key, answer)| (answer.age(now), *key));
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.known.remove(&oldest);
            }
        }
        self.known.insert(key, answer);
    }
}

impl Answer {
    fn age(&self, now: Instant) -> Duration {
        self.age + (now - self.since)
    }
}

/// Answers that are remembered, of all networks.
pub const MOST_ANSWERS: usize = 256;
/// Addresses of one answer that are remembered.
pub const MOST_ADDRESSES: usize = 8;
/// An address may be another host's after so long.
const OLDEST: Duration = Duration::from_secs(3 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(s)
    }

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn text(text: &str) -> Arc<str> {
        text.into()
    }

    #[test]
    fn an_answer_belongs_to_its_network() {
        let mut answers = Answers::default();
        let (home, train, name) = (text("home"), text("train"), text("host"));
        answers.learn(&home, &name, &[ip(1), ip(2)], at(0));
        assert_eq!(answers.addresses(&home, &name, at(1)), [ip(1), ip(2)]);
        assert!(answers.addresses(&train, &name, at(1)).is_empty());
        answers.learn(&home, &name, &[ip(3)], at(2));
        assert_eq!(answers.addresses(&home, &name, at(2)), [ip(3)], "the last word");
    }

    #[test]
    fn what_was_saved_comes_back_older_and_ends() {
        let mut answers = Answers::default();
        let (home, name) = (text("home"), text("host"));
        answers.learn(&home, &name, &[ip(1); 20], at(0));
        let saved = answers.save(at(60));
        assert_eq!((saved[0].age, saved[0].addresses.len()), (Duration::from_secs(60), 8));
        let mut next = Answers::default();
        next.restore(saved.clone(), at(0));
        let left = OLDEST.as_secs() - 60;
        assert_eq!(next.addresses(&home, &name, at(left)).len(), 8);
        assert!(next.addresses(&home, &name, at(left + 1)).is_empty());
        assert_eq!(next.save(at(left + 1)), []);
        next.learn(&home, &name, &[ip(2)], at(5));
        next.restore(saved, at(5));
        assert_eq!(next.addresses(&home, &name, at(5)), [ip(2)], "what is known stays");
    }

    #[test]
    fn the_oldest_is_forgotten_at_the_limit() {
        let mut answers = Answers::default();
        let name = |number: usize| text(&format!("host{number}"));
        for number in 0..=MOST_ANSWERS {
            answers.learn(&text(""), &name(number), &[ip(1)], at(number as u64));
        }
        let later = at(MOST_ANSWERS as u64);
        assert_eq!(answers.save(later).len(), MOST_ANSWERS);
        assert!(answers.addresses(&text(""), &name(0), later).is_empty());
        assert_eq!(answers.addresses(&text(""), &name(1), later), [ip(1)]);
    }
}
