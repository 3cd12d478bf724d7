//! How many requests may be under way to one origin and in all, and the order in which the others wait.
//!
//! Arrives: requests that begin and end, what is to be said of those that wait, moments. Leaves: requests whose turn it
//! is, each once, in the order in which they came; and those whose time was over before.
//!
//! What a request waits here counts to its limit on the whole, and to one of its own.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use towpath_engine::local::message::{CallId, Command, Layer, Open, Origin};

use crate::{Error, Failed};

/// The turns of all origins.
pub(crate) struct Turns {
    /// Requests of one origin.
    most: usize,
    /// Requests of all of them.
    most_in_all: usize,
    /// Requests that may wait, of all origins.
    most_waiting: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queues: HashMap<Origin, Queue>,
    known: HashMap<CallId, Known>,
    under_way: usize,
    waiting: usize,
    /// How many have waited: who comes first has a lower number.
    waited: u64,
    /// When the timer runs that ends those whose time is over.
    look: Option<Instant>,
}

struct Known {
    origin: Origin,
    waits: bool,
}

#[derive(Default)]
struct Queue {
    under_way: usize,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    number: u64,
    open: Box<Open>,
    /// What was said since: pieces of its body, and the body's end.
    said: Vec<Command>,
    since: Instant,
    /// When it is too late.
    due: Option<Instant>,
    why: Failed,
}

/// What becomes of a request that begins.
pub(crate) enum Entered {
    /// It is sent now.
    Turn(Box<Open>),
    /// It waits; the timer is to run then, unless it does so anyway.
    Waits(Option<Instant>),
    /// Too many wait.
    Full,
}

/// Requests that come to nothing, and why.
pub(crate) type Lost = Vec<(CallId, Error)>;

impl Turns {
    /// So many to one origin, and in all; 0 is no limit. None where there is neither.
    pub(crate) fn new(most: usize, most_in_all: usize, most_waiting: usize) -> Option<Self> {
        let limit = |most: usize| if most == 0 { usize::MAX } else { most };
        let (is_limited, state) = (most > 0 || most_in_all > 0, Mutex::default());
        let (most, most_in_all) = (limit(most), limit(most_in_all));
        is_limited.then_some(Self { most, most_in_all, most_waiting, state })
    }

    /// A request begins.
    pub(crate) fn enter(&self, open: Box<Open>, limit: Option<Duration>, now: Instant) -> Entered {
        let mut state = self.state();
        let (id, origin) = (open.call, open.origin.clone());
        let state = &mut *state;
        let queue = state.queues.entry(origin.clone()).or_default();
        // Who waits goes first, also where there is room: a turn is handed on while this is locked.
        if queue.under_way < self.most && state.under_way < self.most_in_all {
            queue.under_way += 1;
            state.under_way += 1;
            state.known.insert(id, Known { origin, waits: false });
            return Entered::Turn(open);
        }
        if state.waiting >= self.most_waiting {
            state.forget_unused(&origin);
            return Entered::Full;
        }
        let (due, why) = due(open.options.total, limit, now);
        let said = Vec::new();
        state.waited += 1;
        let number = state.waited;
        queue.waiting.push_back(Waiting { number, open, said, since: now, due, why });
        state.known.insert(id, Known { origin, waits: true });
        state.waiting += 1;
        Entered::Waits(state.look_at(due))
    }

    /// Something is said of a request: handed back where it is to be told the engine.
    pub(crate) fn say(&self, id: CallId, command: Command) -> Option<Command> {
        let mut state = self.state();
        match state.find(id) {
            Some(waiting) => {
                waiting.said.push(command);
                None
            }
            None => Some(command),
        }
    }

    /// A request that waits is given up: whether it did.
    pub(crate) fn withdraw(&self, id: CallId) -> bool {
        let mut state = self.state();
        let waits = state.find(id).is_some();
        if waits {
            state.remove(id);
        }
        waits
    }

    /// A request has ended, or did not come to the engine: the next has its turn, and is handed to `send`.
    pub(crate) fn leave(
        &self,
        id: CallId,
        now: Instant,
        mut send: impl FnMut(Command) -> Result<(), Error>,
    ) -> Lost {
        let mut lost = Lost::new();
        let mut state = self.state();
        let state = &mut *state;
        let Some(Known { origin, waits: false }) = state.known.remove(&id) else { return lost };
        let Some(queue) = state.queues.get_mut(&origin) else { return lost };
        queue.under_way -= 1;
        state.under_way -= 1;
        while let Some(origin) = self.next(state, &origin) {
            let Some(queue) = state.queues.get_mut(&origin) else { break };
            let Some(next) = queue.waiting.pop_front() else { break };
            state.waiting -= 1;
            let id = next.open.call;
            // Under the lock, so that nothing that is said overtakes it.
            match next.begin(now).and_then(|commands| commands.into_iter().try_for_each(&mut send))
            {
                Ok(()) => {
                    queue.under_way += 1;
                    state.under_way += 1;
                    state.known.insert(id, Known { origin, waits: false });
                }
                Err(error) => {
                    state.known.remove(&id);
                    state.forget_unused(&origin);
                    lost.push((id, error));
                }
            }
        }
        state.forget_unused(&origin);
        lost
    }

    /// The origin whose turn it is, now that a request to this one has ended: who came first.
    fn next(&self, state: &State, freed: &Origin) -> Option<Origin> {
        let has_room = |queue: &Queue| queue.under_way < self.most && !queue.waiting.is_empty();
        if state.under_way >= self.most_in_all {
            return None;
        }
        if self.most_in_all == usize::MAX {
            // No other has waited for it.
            return state.queues.get(freed).is_some_and(has_room).then(|| freed.clone());
        }
        let ready = state.queues.iter().filter(|(_, queue)| has_room(queue));
        let first = ready.min_by_key(|(_, queue)| queue.waiting.front().map(|it| it.number));
        first.map(|(origin, _)| origin.clone())
    }

    /// Those whose time is over while they wait; and when to look again.
    pub(crate) fn look(&self, now: Instant) -> (Lost, Option<Instant>) {
        let mut state = self.state();
        state.look = None;
        let waiting = || state.queues.values().flat_map(|queue| &queue.waiting);
        let late = waiting().filter(|it| it.due.is_some_and(|due| due <= now));
        let lost: Lost = late.map(|it| (it.open.call, it.why.into())).collect();
        let next = waiting().filter_map(|it| it.due).filter(|due| *due > now).min();
        lost.iter().for_each(|(id, _)| state.remove(*id));
        (lost, state.look_at(next))
    }

    /// The engine is gone.
    pub(crate) fn clear(&self) {
        let before = std::mem::take(&mut *self.state());
        drop(before);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn find(&mut self, id: CallId) -> Option<&mut Waiting> {
        let known = self.known.get(&id).filter(|known| known.waits)?;
        let queue = self.queues.get_mut(&known.origin)?;
        queue.waiting.iter_mut().find(|waiting| waiting.open.call == id)
    }

    /// Takes one out that waits.
    fn remove(&mut self, id: CallId) {
        let Some(known) = self.known.remove(&id) else { return };
        let Some(queue) = self.queues.get_mut(&known.origin) else { return };
        let before = queue.waiting.len();
        queue.waiting.retain(|waiting| waiting.open.call != id);
        self.waiting -= before - queue.waiting.len();
        self.forget_unused(&known.origin);
    }

    fn forget_unused(&mut self, origin: &Origin) {
        let queue = self.queues.get(origin);
        if queue.is_some_and(|queue| queue.under_way == 0 && queue.waiting.is_empty()) {
            self.queues.remove(origin);
        }
    }

    /// What the timer has to be set to, where it is to run earlier than it would.
    fn look_at(&mut self, due: Option<Instant>) -> Option<Instant> {
        let due = due?;
        if self.look.is_some_and(|look| look <= due) {
            return None;
        }
        self.look = Some(due);
        Some(due)
    }
}

impl Waiting {
    /// What the engine is told, now that it is its turn.
    fn begin(mut self, now: Instant) -> Result<Vec<Command>, Error> {
        if self.due.is_some_and(|due| due <= now) {
            return Err(self.why.into());
        }
        let waited = now.saturating_duration_since(self.since);
        if let Some(total) = &mut self.open.options.total {
            *total = total.saturating_sub(waited).max(Duration::from_millis(1));
        }
        let mut commands = vec![Command::Open(self.open)];
        commands.append(&mut self.said);
        Ok(commands)
    }
}

/// When a request has waited for too long, and what it fails with then.
fn due(
    total: Option<Duration>,
    limit: Option<Duration>,
    now: Instant,
) -> (Option<Instant>, Failed) {
    let total = (total, Failed::TimedOut(Layer::Total));
    let limits = [total, (limit, Failed::Overflow)];
    let limits = limits.into_iter().filter_map(|(limit, why)| Some((limit?, why)));
    match limits.min_by_key(|(limit, _)| *limit) {
        Some((limit, why)) => (now.checked_add(limit), why),
        None => (None, total.1),
    }
}

#[cfg(test)]
mod tests {
    use towpath_engine::local::message::{Options, Transport};
    use towpath_proto::head::Head;

    use super::*;

    fn open(id: u64, origin: u16, total: Option<Duration>) -> Box<Open> {
        let origin = Origin { host: "host".into(), port: origin, transport: Transport::Plain };
        let options = Options { total, ..Options::default() };
        let (request, body) = (Head::default(), bytes::Bytes::new());
        Box::new(Open { call: CallId(id), request, body, end: true, origin, options })
    }

    /// What a reference that keeps plain lists would have under way, and waiting, in each of three origins.
    #[derive(Default)]
    struct Plain {
        under_way: [Vec<u64>; 3],
        waiting: [VecDeque<u64>; 3],
    }

    #[test]
    fn any_order_of_calls_keeps_to_the_limit_and_to_the_order() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut chance = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let now = Instant::now();
        for in_all in [0, 3, 1] {
            let turns = Turns::new(2, in_all, 5).unwrap();
            let in_all = if in_all == 0 { usize::MAX } else { in_all };
            keeps_to(&turns, in_all, &mut chance, now);
        }
    }

    fn keeps_to(turns: &Turns, in_all: usize, chance: &mut impl FnMut(u64) -> u64, now: Instant) {
        let (mut plain, mut next) = (Plain::default(), 0);
        for _ in 0..20_000 {
            let at = chance(3) as usize;
            let all: usize = plain.waiting.iter().map(VecDeque::len).sum();
            let known: Vec<u64> =
                plain.under_way[at].iter().chain(&plain.waiting[at]).copied().collect();
            match chance(4) {
                0 | 1 => {
                    next += 1;
                    let entered = turns.enter(open(next, at as u16, None), None, now);
                    let under_way: usize = plain.under_way.iter().map(Vec::len).sum();
                    if plain.under_way[at].len() < 2 && under_way < in_all {
                        assert!(matches!(entered, Entered::Turn(open) if open.call.0 == next));
                        plain.under_way[at].push(next);
                    } else if all < 5 {
                        assert!(matches!(entered, Entered::Waits(None)));
                        plain.waiting[at].push_back(next);
                    } else {
                        assert!(matches!(entered, Entered::Full));
                    }
                }
                2 if !plain.under_way[at].is_empty() => {
                    let which = chance(plain.under_way[at].len() as u64) as usize;
                    let id = plain.under_way[at].remove(which);
                    let mut sent = Vec::new();
                    let lost = turns.leave(CallId(id), now, |command| {
                        if let Command::Open(open) = command {
                            sent.push(open.call.0);
                        }
                        Ok(())
                    });
                    // Who came first of those whose origin has room; numbers tell.
                    let ready = (0..3).filter(|at| plain.under_way[*at].len() < 2);
                    let first =
                        ready.filter_map(|at| Some((*plain.waiting[at].front()?, at))).min();
                    let turn: Vec<u64> = first.iter().map(|(id, _)| *id).collect();
                    assert!(lost.is_empty() && sent == turn);
                    if let Some((id, at)) = first {
                        plain.waiting[at].pop_front();
                        plain.under_way[at].push(id);
                    }
                }
                3 if !known.is_empty() => {
                    let id = known[chance(known.len() as u64) as usize];
                    let waits = plain.waiting[at].contains(&id);
                    let said = turns.say(CallId(id), Command::End { call: CallId(id) });
                    assert_eq!(said.is_none(), waits);
                    assert_eq!(turns.withdraw(CallId(id)), waits);
                    plain.waiting[at].retain(|it| *it != id);
                }
                _ => assert!(!turns.withdraw(CallId(next + 1))),
            }
            let state = turns.state();
            let under_way: usize = plain.under_way.iter().map(Vec::len).sum();
            let waiting: usize = plain.waiting.iter().map(VecDeque::len).sum();
            assert_eq!((state.known.len(), state.waiting), (under_way + waiting, waiting));
            assert_eq!(state.under_way, under_way);
            let used =
                (0..3).filter(|at| plain.under_way[*at].len() + plain.waiting[*at].len() > 0);
            assert_eq!(state.queues.len(), used.count());
        }
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        assert!(Turns::new(0, 0, 9).is_none());
        let (turns, now) = (Turns::new(0, 1, 9).unwrap(), Instant::now());
        assert!(matches!(turns.enter(open(1, 1, None), None, now), Entered::Turn(_)));
        for id in 2..5 {
            let entered = turns.enter(open(id, id as u16, None), None, now);
            assert!(matches!(entered, Entered::Waits(None)));
        }
        // Those of a sender that fails give their turn on, to whatever origin they went.
        let mut sent = Vec::new();
        let lost = turns.leave(CallId(1), now, |command| {
            let Command::Open(open) = command else { return Ok(()) };
            if open.call.0 < 4 {
                return Err(Error::Stopped);
            }
            sent.push(open.call.0);
            Ok(())
        });
        assert_eq!((lost.len(), sent), (2, vec![4]));
        assert_eq!(turns.state().queues.len(), 1);
    }

    #[test]
    fn what_was_said_follows_and_what_cannot_be_sent_gives_its_turn_on() {
        let (turns, now) = (Turns::new(1, 0, 9).unwrap(), Instant::now());
        for id in 1..=3 {
            turns.enter(open(id, 1, None), None, now);
            turns.say(CallId(id), Command::End { call: CallId(id) });
        }
        let mut told = Vec::new();
        let lost = turns.leave(CallId(1), now, |command| {
            if let Command::Open(open) = &command {
                if open.call == CallId(2) {
                    return Err(Error::Stopped);
                }
                told.push(("open", open.call.0));
            }
            if let Command::End { call } = &command {
                told.push(("end", call.0));
            }
            Ok(())
        });
        assert_eq!(lost, [(CallId(2), Error::Stopped)]);
        assert_eq!(told, [("open", 3), ("end", 3)]);
        assert!(turns.leave(CallId(3), now, |_| Ok(())).is_empty());
        assert!(turns.leave(CallId(3), now, |_| Ok(())).is_empty(), "a turn is given back once");
        assert!(turns.state().queues.is_empty() && turns.state().known.is_empty());
    }

    #[test]
    fn limits_on_time_hold_while_it_waits_and_what_is_left_of_them_after() {
        let (turns, now) = (Turns::new(1, 0, 9).unwrap(), Instant::now());
        let s = Duration::from_secs;
        assert!(matches!(turns.enter(open(1, 1, Some(s(9))), None, now), Entered::Turn(_)));
        for (id, total, look) in [(2, 5, Some(5)), (3, 7, None), (4, 3, Some(3)), (5, 9, None)] {
            let Entered::Waits(when) = turns.enter(open(id, 1, Some(s(total))), None, now) else {
                panic!("{id} does not wait");
            };
            assert_eq!(when, look.map(|look| now + s(look)));
        }
        let (lost, next) = turns.look(now + s(3));
        assert_eq!(lost, [(CallId(4), Failed::TimedOut(Layer::Total).into())]);
        assert_eq!(next, Some(now + s(5)));
        turns.enter(open(6, 1, Some(s(9))), Some(s(4)), now);
        let (lost, next) = turns.look(now + s(4));
        assert_eq!(lost, [(CallId(6), Failed::Overflow.into())]);
        assert_eq!(next, Some(now + s(5)));
        let mut left = Vec::new();
        // Its time is over, though the timer has not run.
        let lost = turns.leave(CallId(1), now + s(6), |command| {
            if let Command::Open(open) = command {
                left.push((open.call.0, open.options.total));
            }
            Ok(())
        });
        assert_eq!(lost, [(CallId(2), Failed::TimedOut(Layer::Total).into())]);
        assert_eq!(left, [(3, Some(s(1)))]);
    }
}
