//! Which coding a response gets where several filters of a chain could compress it (RFC 9110 §12.5.3).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::direction::Direction;
use crate::filter::coding::Coding;

/// The compressors of a stream, and what they have chosen.
#[derive(Debug, Default)]
pub(super) struct Choice {
    compressors: RefCell<Vec<Candidate>>,
    made: Cell<Option<Decision>>,
}

/// A filter that could compress.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) coding: Coding,
    /// `choose_first`.
    pub(super) goes_first: bool,
    /// What it does with responses.
    pub(super) response: Rc<Direction>,
}

/// What `accept-encoding` comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The client names this coding.
    Named(Coding),
    /// The client takes any.
    Any(Coding),
    Identity,
    /// It takes none that there is, or says nothing that can be read.
    Invalid,
}

/// What a client says of a coding.
#[derive(Clone, Copy, Debug)]
struct Wish<'a> {
    name: &'a [u8],
    weight: f32,
}

impl Choice {
    /// Another filter of the chain, in its order.
    pub(super) fn add(&self, candidate: Candidate) {
        self.compressors.borrow_mut().push(candidate);
    }

    /// The first filter to ask decides for all.
    pub(super) fn decide(&self, accept: &[u8], media_type: Option<&[u8]>) -> Decision {
        if let Some(made) = self.made.get() {
            return made;
        }
        let decision = decide(&self.compressors.borrow(), accept, media_type);
        self.made.set(Some(decision));
        decision
    }
}

fn decide(compressors: &[Candidate], accept: &[u8], media_type: Option<&[u8]>) -> Decision {
    let mut there: Vec<&Candidate> = Vec::new();
    for candidate in compressors {
        // Of several with one coding the first counts.
        let is_new = there.iter().all(|other| other.coding != candidate.coding);
        if is_new && candidate.response.takes_type(media_type) {
            there.push(candidate);
        }
    }
    let wishes: Vec<Wish<'_>> = accept.split(|&byte| byte == b',').filter_map(wish).collect();
    let is_refused = |candidate: &Candidate| {
        wishes.iter().any(|wish| wish.weight == 0.0 && wish.names(candidate.coding))
    };
    there.retain(|candidate| !is_refused(candidate));
    if wishes.is_empty() || there.is_empty() {
        return Decision::Invalid;
    }
    let mut best = Decision::Invalid;
    let mut weight = 0.0;
    for wish in &wishes {
        let named = there.iter().find(|candidate| wish.names(candidate.coding));
        let (decision, goes_first) = match (wish.name, named) {
            (_, Some(candidate)) => (Decision::Named(candidate.coding), candidate.goes_first),
            (b"identity", None) => (Decision::Identity, false),
            (b"*", None) => (Decision::Any(there[0].coding), false),
            (_, None) => continue,
        };
        if wish.weight > weight || (wish.weight == weight && goes_first) {
            (best, weight) = (decision, wish.weight);
        }
    }
    best
}

impl Wish<'_> {
    fn names(&self, coding: Coding) -> bool {
        self.name == coding.name().as_bytes()
    }
}

/// A member of the list; none where it is empty, or its weight is no number.
fn wish(member: &[u8]) -> Option<Wish<'_>> {
    if member.is_empty() {
        return None;
    }
    let (name, parameter) = cut(member, b';');
    let parameter = parameter.map(|parameter| cut(parameter, b'='));
    let weight = match parameter {
        Some((key, Some(value))) if key.trim_ascii().eq_ignore_ascii_case(b"q") => {
            std::str::from_utf8(value.trim_ascii()).ok()?.parse().ok()?
        }
        _ => 1.0,
    };
    Some(Wish { name: name.trim_ascii(), weight })
}

fn cut(text: &[u8], at: u8) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(at, text) {
        Some(position) => (&text[..position], Some(&text[position + 1..])),
        None => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::coding::Coding::{Brotli, Gzip, Zstd};

    fn chain(codings: &[(Coding, bool)]) -> Vec<Candidate> {
        let candidate = |&(coding, goes_first)| {
            let response = Rc::new(Direction::default());
            Candidate { coding, goes_first, response }
        };
        codings.iter().map(candidate).collect()
    }

    #[test]
    fn the_greatest_weight_wins_and_of_equals_the_first() {
        let chain = chain(&[(Brotli, false), (Gzip, false)]);
        let cases: [(&str, Decision); 16] = [
            ("gzip", Decision::Named(Gzip)),
            ("br, gzip", Decision::Named(Brotli)),
            ("gzip, br", Decision::Named(Gzip)),
            ("gzip;q=0.5, br;q=0.6", Decision::Named(Brotli)),
            ("gzip ; Q=0.5 ,br;q= 0.4", Decision::Named(Gzip)),
            ("gzip;level=9", Decision::Named(Gzip)),
            ("gzip;q=0, *", Decision::Any(Brotli)),
            ("br;q=0, *", Decision::Any(Gzip)),
            ("*;q=0.5, gzip;q=0.4", Decision::Any(Brotli)),
            ("identity", Decision::Identity),
            ("identity, gzip;q=0.9", Decision::Identity),
            ("deflate", Decision::Invalid),
            ("GZIP", Decision::Invalid),
            ("gzip;q=0, br;q=0", Decision::Invalid),
            ("gzip;q=x", Decision::Invalid),
            ("", Decision::Invalid),
        ];
        for (accept, wanted) in cases {
            assert_eq!(decide(&chain, accept.as_bytes(), None), wanted, "{accept}");
        }
    }

    #[test]
    fn one_that_goes_first_wins_among_equals() {
        let chain = chain(&[(Zstd, true), (Brotli, false), (Gzip, true)]);
        assert_eq!(decide(&chain, b"br, gzip", None), Decision::Named(Gzip));
        assert_eq!(decide(&chain, b"zstd, br, gzip", None), Decision::Named(Gzip));
        assert_eq!(decide(&chain, b"br, gzip;q=0.9", None), Decision::Named(Brotli));
    }

    #[test]
    fn the_first_to_ask_decides() {
        let choice = Choice::default();
        chain(&[(Gzip, false), (Brotli, false)]).into_iter().for_each(|it| choice.add(it));
        assert_eq!(choice.decide(b"br", None), Decision::Named(Brotli));
        assert_eq!(choice.decide(b"gzip", None), Decision::Named(Brotli));
    }

    #[test]
    fn nothing_that_a_client_says_panics() {
        let chain = chain(&[(Gzip, false)]);
        for accept in [&b"\xff;q=\xff"[..], b";;;,,=,q=", b"gzip;q=nan", b"gzip;q=inf", b"*;q=-1"] {
            decide(&chain, accept, Some(b"\xff"));
        }
        assert_eq!(decide(&chain, b"gzip;q=-1", None), Decision::Invalid);
    }
}
