//! How long a connection may be silent before the network forgets it, learned network by network.
//!
//! Arrives: what became of connections after silences, with the time. Leaves: how long to be silent before the next
//! heartbeat.
//!
//! Address translators (NATs) forget a silent connection after a time that is not announced; RFC 5382 §5 asks for two
//! hours, and many give minutes. The longest silence that is survived is searched for: doubled until one is not, then
//! halved between the two until they are close. Whatever comes over a connection after a silence is evidence, not only
//! an answered heartbeat.
//!
//! A silence that was not survived shortens the next one at once, and is believed when it, or a shorter one, is not
//! survived either: the connection may have ended for reasons of its own. It is no evidence at all unless the server
//! was reached anew soon, on the same network. What was found is used less a margin, and questioned after some days.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::Instant;

/// Within which bounds to learn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// No heartbeat comes sooner: 1 s to `longest`, default 45 s.
    pub shortest: Duration,
    /// The first silence on a network that nothing is known of: `shortest` to `longest`, default 210 s.
    pub first: Duration,
    /// No silence is longer: `shortest` to 1 day, default 600 s.
    pub longest: Duration,
    /// No silence is longer while a user looks on, so that a dead link is found sooner: default 210 s.
    pub foreground: Duration,
    /// By how much less than the longest silence survived is used in the end; at most an eighth of it. Default 20 s.
    pub margin: Duration,
    /// How close the longest survived and the shortest not survived come; at most an eighth of the latter. Default 30
    /// s, at least 1 s.
    pub resolution: Duration,
    /// After what time the shortest silence that was not survived is tried once more: default 7 days.
    pub relearn: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            shortest: Duration::from_secs(45),
            first: Duration::from_secs(210),
            longest: Duration::from_secs(600),
            foreground: Duration::from_secs(210),
            margin: Duration::from_secs(20),
            resolution: Duration::from_secs(30),
            relearn: Duration::from_secs(7 * 24 * 3600),
        }
    }
}

/// What is learned of silences.
#[derive(Debug)]
pub struct Heartbeat {
    settings: Settings,
    network: Arc<str>,
    networks: HashMap<Arc<str>, Facts>,
    in_foreground: bool,
    /// A silence after which the connection was found dead, and when: evidence if the server is reached anew.
    lost: Option<(Duration, Instant)>,
}

/// What is known of silences on one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The longest that was survived, shorter than `failed`; zero when none is known.
    pub survived: Duration,
    /// The shortest that was not.
    pub failed: Option<Duration>,
    /// How often it was not; it is believed from 2 on.
    pub failures: u32,
    /// The shortest that was not survived before that.
    pub above: Option<Duration>,
    /// Since the search has ended: when what was found is questioned.
    pub question_at: Option<Instant>,
    /// When anything was learned.
    pub updated: Instant,
}

/// One network of what was learned: what [`Heartbeat::save`] gives and [`Heartbeat::restore`] takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Its label.
    pub network: Arc<str>,
    /// As in [`Facts`].
    pub survived: Duration,
    /// As in [`Facts`].
    pub failed: Option<Duration>,
    /// How long ago the search ended, if it has.
    pub settled: Option<Duration>,
}

impl Heartbeat {
    /// Nothing is known. Settings outside of their ranges are brought into them.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings: settings.checked(),
            network: Arc::from(""),
            networks: HashMap::new(),
            in_foreground: false,
            lost: None,
        }
    }

    /// From here on the network of this name is used. What a change of networks has ended is no evidence.
    pub fn set_network(&mut self, label: &str) {
        self.lost = None;
        if *self.network != *label {
            self.network = Arc::from(label);
        }
    }

    /// Whether a user looks on.
    pub const fn set_foreground(&mut self, in_foreground: bool) {
        self.in_foreground = in_foreground;
    }

    /// After how long a silence to send a heartbeat.
    #[must_use]
    pub fn interval(&self, now: Instant) -> Duration {
        let settings = &self.settings;
        let wanted = self.facts().map_or(settings.first, |facts| facts.next(settings, now));
        if !self.in_foreground {
            return wanted;
        }
        // Nothing is tried out before a user's eyes.
        let known = self.facts().map_or(settings.first, |facts| facts.safe(settings));
        wanted.min(settings.foreground.min(known).max(settings.shortest))
    }

    /// Something came from the peer on a connection that had been silent for so long.
    pub fn survived(&mut self, silence: Duration, now: Instant) {
        // Nothing is concluded from what every network survives.
        if silence < self.settings.shortest {
            return;
        }
        let settings = self.settings;
        let silence = silence.min(settings.longest);
        self.entry(now).survived(silence, &settings, now);
    }

    /// A connection was found dead after a silence: a heartbeat was not answered, or the connection ended.
    pub const fn lost(&mut self, silence: Duration, now: Instant) {
        self.lost = Some((silence, now));
    }

    /// The server was reached anew. What was found before is believed to be the silence's fault, if that was not long
    /// ago.
    pub fn reached(&mut self, now: Instant) {
        let Some((silence, at)) = self.lost.take() else { return };
        if now - at <= SOON && silence >= self.settings.shortest {
            let settings = self.settings;
            let silence = silence.min(settings.longest);
            self.entry(now).failed(silence, &settings, now);
        }
    }

    /// What is known of the present network.
    #[must_use]
    pub fn facts(&self) -> Option<&Facts> {
        self.networks.get(&self.network)
    }

    /// Everything, for a file. Of a failure that is not believed yet nothing is said.
    #[must_use]
    pub fn save(&self, now: Instant) -> Vec<Saved> {
        let saved = |(network, facts)| Saved::of(network, facts, &self.settings, now);
        let mut all: Vec<Saved> = self.networks.iter().map(saved).collect();
        all.sort_by(|a, b| a.network.cmp(&b.network));
        all
    }

    /// The same of the present network; nothing when nothing is known of it.
    #[must_use]
    pub fn saved(&self, now: Instant) -> Option<Saved> {
        Some(Saved::of(&self.network, self.facts()?, &self.settings, now))
    }

    /// Takes what was saved; what is known already stays.
    pub fn restore(&mut self, saved: impl IntoIterator<Item = Saved>, now: Instant) {
        for one in saved {
            if self.networks.len() >= MOST_NETWORKS {
                return;
            }
            let longest = self.settings.longest;
            let failed = one.failed.filter(|failed| *failed > one.survived && *failed <= longest);
            let question_in = one.settled.map(|age| self.settings.relearn.saturating_sub(age));
            let facts = Facts {
                survived: one.survived.min(longest),
                failed,
                failures: failed.map_or(0, |_| BELIEVED),
                above: None,
                question_at: question_in.map(|time| now + time),
                updated: now,
            };
            self.networks.entry(one.network).or_insert(facts);
        }
    }

    fn entry(&mut self, now: Instant) -> &mut Facts {
        if !self.networks.contains_key(&self.network) && self.networks.len() >= MOST_NETWORKS {
            self.forget_oldest();
        }
        let facts = self.networks.entry(Arc::clone(&self.network)).or_insert_with(Facts::none);
        facts.updated = now;
        facts
    }

    fn forget_oldest(&mut self) {
        let by_age = |a: &(&Arc<str>, &Facts), b: &(&Arc<str>, &Facts)| {
            (a.1.updated, a.0).cmp(&(b.1.updated, b.0))
        };
        let oldest = self.networks.iter().min_by(by_age).map(|(network, _)| Arc::clone(network));
        if let Some(network) = oldest {
            self.networks.remove(&network);
        }
    }
}

impl Saved {
    fn of(network: &Arc<str>, facts: &Facts, settings: &Settings, now: Instant) -> Self {
        Self {
            network: Arc::clone(network),
            survived: facts.survived,
            failed: facts.failed.filter(|_| facts.failures >= BELIEVED),
            settled: facts.question_at.map(|at| settings.relearn.saturating_sub(at - now)),
        }
    }
}

impl Facts {
    const fn none() -> Self {
        Self {
            survived: Duration::ZERO,
            failed: None,
            failures: 0,
            above: None,
            question_at: None,
            updated: Instant::ZERO,
        }
    }

    fn survived(&mut self, silence: Duration, settings: &Settings, now: Instant) {
        self.survived = self.survived.max(silence);
        if self.failed.is_some_and(|failed| failed <= silence) {
            // It had other reasons, or the network has become better.
            self.failed = self.above.take().filter(|above| *above > silence);
            self.failures = self.failed.map_or(0, |_| 1);
        }
        self.settle(settings, now);
    }

    fn failed(&mut self, silence: Duration, settings: &Settings, now: Instant) {
        match self.failed {
            Some(failed) if silence.abs_diff(failed) < TOLERANCE => self.failures += 1,
            Some(failed) if silence > failed => {}
            before => {
                self.above = before;
                self.failed = Some(silence);
                self.failures = 1;
            }
        }
        let failed = self.failed.unwrap_or(silence);
        if self.survived >= failed {
            // Once it did survive that: perhaps the network is another now. It is searched for from below.
            self.survived = Duration::ZERO;
        }
        self.settle(settings, now);
    }

    /// The search ends, or begins again.
    fn settle(&mut self, settings: &Settings, now: Instant) {
        let ended = match self.failed {
            None => self.survived >= settings.longest,
            Some(failed) => self.failures >= BELIEVED && self.is_close(failed, settings),
        };
        self.question_at = match self.question_at {
            _ if !ended => None,
            Some(at) if now < at => Some(at),
            // It is found, or was questioned and has held.
            Some(_) | None => Some(now + settings.relearn),
        };
    }

    fn is_close(&self, failed: Duration, settings: &Settings) -> bool {
        failed - self.below(settings).min(failed) <= settings.resolution.min(failed / 8)
    }

    /// The longest silence to build on.
    fn below(&self, settings: &Settings) -> Duration {
        self.survived.max(settings.shortest)
    }

    /// What to use when nothing is to be found out.
    fn safe(&self, settings: &Settings) -> Duration {
        let below = self.below(settings);
        (below - settings.margin.min(below / 8)).max(settings.shortest)
    }

    fn next(&self, settings: &Settings, now: Instant) -> Duration {
        if let Some(at) = self.question_at {
            let questioned = self.failed.filter(|_| now >= at);
            // The bounds may have been others when it was found.
            let questioned = questioned.map(|failed| failed.max(settings.shortest));
            return questioned.unwrap_or_else(|| self.safe(settings));
        }
        let below = self.below(settings);
        match self.failed {
            None if self.survived.is_zero() => settings.first,
            None => (below * 2).min(settings.longest),
            // Close, but not believed: once more.
            Some(failed) if self.is_close(failed, settings) => failed.max(settings.shortest),
            Some(failed) if self.survived.is_zero() => (failed / 2).max(settings.shortest),
            Some(failed) => below + (failed - below) / 2,
        }
    }
}

impl Settings {
    fn checked(mut self) -> Self {
        self.longest = self.longest.clamp(Duration::from_secs(1), Duration::from_secs(24 * 3600));
        self.shortest = self.shortest.clamp(Duration::from_secs(1), self.longest);
        self.first = self.first.clamp(self.shortest, self.longest);
        self.foreground = self.foreground.clamp(self.shortest, self.longest);
        self.resolution = self.resolution.max(Duration::from_secs(1));
        self
    }
}

/// So often a silence must not be survived.
const BELIEVED: u32 = 2;
/// So soon the server must be reached anew for a lost connection to be the silence's fault.
const SOON: Duration = Duration::from_secs(30);
/// Silences that differ by less are the same: beats are as punctual as their thread.
const TOLERANCE: Duration = Duration::from_millis(500);
/// Networks that are remembered; the one that nothing was learned of for longest is forgotten.
pub const MOST_NETWORKS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn thousands_of_timeouts_are_found_from_below_in_few_beats() {
        let settings = Settings::default();
        let mut random = Random::new(7);
        let (mut ours, mut mars) = (0, 0);
        for _ in 0..5000 {
            let timeout = between(&mut random, SHORTEST + SECOND, settings.longest * 2);
            let mut nat = Nat::new(settings, timeout);
            let beats = nat.settle();
            let found = nat.heartbeat.interval(nat.now);
            assert!(found < timeout, "{found:?} is above {timeout:?}");
            let reach = timeout.min(settings.longest);
            let close = (settings.margin + settings.resolution).min(reach / 4 + SECOND);
            assert!(reach - found <= close, "{found:?} is far below {timeout:?}");
            assert!(beats <= 12, "{beats} beats for {timeout:?}");
            // Mars has no way to find a shorter one than its first.
            if timeout > settings.first {
                let theirs = mars_beats(timeout);
                assert!(beats <= theirs + 1, "{beats} beats, not {theirs}, for {timeout:?}");
                (ours, mars) = (ours + beats, mars + theirs);
            }
        }
        assert!(ours * 2 < mars, "{ours} beats in all, not {mars}");
    }

    #[test]
    fn what_ended_for_other_reasons_does_not_deceive() {
        let settings = Settings::default();
        let mut random = Random::new(11);
        let mut far = 0;
        for _ in 0..2000 {
            let timeout = between(&mut random, SHORTEST * 2, settings.longest * 2);
            let mut nat = Nat::new(settings, timeout);
            for _ in 0..60 {
                let dies = random.below(20) == 0;
                nat.beat(dies);
            }
            (0..20).for_each(|_| nat.beat(false));
            let found = nat.heartbeat.interval(nat.now);
            assert!(found < timeout, "{found:?} is above {timeout:?}");
            far += u32::from(found < timeout.min(settings.longest) / 2);
        }
        assert!(far < 100, "{far} of 2000 are far below");
    }

    #[test]
    fn one_failure_shortens_and_two_are_believed() {
        let mut nat = Nat::new(Settings::default(), HOUR);
        nat.beat(false);
        assert_eq!(nat.interval_s(), 420);
        nat.beat(true);
        assert_eq!(nat.interval_s(), 315);
        let facts = *nat.heartbeat.facts().unwrap();
        assert_eq!((facts.failed, facts.failures), (Some(SECOND * 420), 1));
        nat.settle();
        assert_eq!(nat.interval_s(), 580, "it was refuted");
    }

    #[test]
    fn a_network_that_is_gone_is_no_evidence() {
        let mut heartbeat = Heartbeat::new(Settings::default());
        let at = |s| Instant::ZERO + SECOND * s;
        heartbeat.lost(SECOND * 210, at(210));
        heartbeat.reached(at(241));
        assert_eq!(heartbeat.facts(), None, "too late");
        heartbeat.lost(SECOND * 210, at(500));
        heartbeat.set_network("");
        heartbeat.reached(at(501));
        assert_eq!(heartbeat.facts(), None, "the network has changed");
        heartbeat.lost(SECOND * 10, at(600));
        heartbeat.reached(at(601));
        assert_eq!(heartbeat.facts(), None, "no network forgets that soon");
        heartbeat.lost(SECOND * 210, at(900));
        heartbeat.reached(at(930));
        assert_eq!(heartbeat.facts().unwrap().failures, 1);
    }

    #[test]
    fn each_network_has_its_own() {
        let mut nat = Nat::new(Settings::default(), SECOND * 100);
        nat.heartbeat.set_network("mobile");
        nat.settle();
        assert!(nat.interval_s() < 100);
        nat.heartbeat.set_network("home");
        assert_eq!(nat.interval_s(), 210);
        nat.heartbeat.set_network("mobile");
        assert!(nat.interval_s() < 100);
        for number in 0..2 * MOST_NETWORKS {
            nat.heartbeat.set_network(&number.to_string());
            nat.beat(false);
        }
        assert_eq!(nat.heartbeat.networks.len(), MOST_NETWORKS);
        nat.heartbeat.set_network("mobile");
        assert_eq!(nat.heartbeat.facts(), None, "the oldest is forgotten");
    }

    #[test]
    fn nothing_is_tried_out_in_the_foreground() {
        let mut nat = Nat::new(Settings::default(), SECOND * 3000);
        nat.heartbeat.set_foreground(true);
        for _ in 0..10 {
            assert!(nat.interval_s() <= 210);
            nat.beat(false);
        }
        nat.heartbeat.set_foreground(false);
        assert_eq!(nat.interval_s(), 420);
        nat.settle();
        nat.heartbeat.set_foreground(true);
        assert_eq!(nat.interval_s(), 210);
        let mut short = Nat::new(Settings::default(), SECOND * 100);
        short.settle();
        let learned = short.heartbeat.interval(short.now);
        short.heartbeat.set_foreground(true);
        assert_eq!(short.heartbeat.interval(short.now), learned, "what is shorter stays");
    }

    #[test]
    fn a_network_that_became_better_is_found_after_days_and_one_that_became_worse_at_once() {
        let mut nat = Nat::new(Settings::default(), SECOND * 300);
        nat.settle();
        let before = nat.interval_s();
        nat.beat(false);
        nat.timeout = SECOND * 500;
        assert_eq!(nat.interval_s(), before);
        nat.now += Settings::default().relearn;
        nat.beat(false);
        nat.settle();
        assert!((450..500).contains(&nat.interval_s()), "{}", nat.interval_s());
        nat.timeout = SECOND * 120;
        nat.beat(false);
        nat.settle();
        assert!((90..120).contains(&nat.interval_s()), "{}", nat.interval_s());
        // What has not changed costs one heartbeat to know.
        nat.now += Settings::default().relearn;
        nat.beat(false);
        assert!((90..120).contains(&nat.interval_s()), "{}", nat.interval_s());
    }

    #[test]
    fn what_is_saved_is_restored_and_questioned_in_its_time() {
        let mut nat = Nat::new(Settings::default(), SECOND * 300);
        nat.heartbeat.set_network("home");
        nat.settle();
        let learned = nat.heartbeat.interval(nat.now);
        nat.now += HOUR;
        let mut saved = nat.heartbeat.save(nat.now);
        assert_eq!((&*saved[0].network, saved[0].settled), ("home", Some(HOUR)));
        let mut other = Heartbeat::new(Settings::default());
        other.restore(saved.clone(), Instant::ZERO);
        other.set_network("home");
        assert_eq!(other.interval(Instant::ZERO), learned);
        assert_eq!(other.save(Instant::ZERO), saved);
        saved[0].settled = Some(HOUR * 24 * 30);
        let mut late = Heartbeat::new(Settings::default());
        late.restore(saved.clone(), Instant::ZERO);
        late.set_network("home");
        assert_eq!(Some(late.interval(Instant::ZERO)), saved[0].failed);
        // What no heartbeat has saved does no harm.
        saved[0].survived = HOUR * 99;
        let mut wrong = Heartbeat::new(Settings::default());
        wrong.restore(saved, Instant::ZERO);
        wrong.set_network("home");
        assert!(wrong.interval(Instant::ZERO) <= Settings::default().longest);
    }

    #[test]
    fn what_was_found_within_other_bounds_makes_no_beat_come_too_soon() {
        let mut heartbeat = Heartbeat::new(Settings::default());
        let found = Saved {
            network: Arc::from(""),
            survived: Duration::ZERO,
            failed: Some(SECOND / 1000),
            settled: Some(HOUR * 24 * 30),
        };
        heartbeat.restore([found], Instant::ZERO);
        assert_eq!(heartbeat.interval(Instant::ZERO), Settings::default().shortest);
    }

    #[test]
    fn settings_out_of_range_are_brought_into_it() {
        let settings = Settings {
            shortest: HOUR,
            first: Duration::ZERO,
            longest: SECOND,
            foreground: Duration::MAX,
            margin: Duration::MAX,
            resolution: Duration::ZERO,
            relearn: Duration::MAX,
        };
        let mut nat = Nat::new(settings, Duration::from_millis(10));
        (0..9).for_each(|_| nat.beat(false));
        assert_eq!(nat.interval_s(), 1, "no sooner, whatever it needs");
    }

    /// A network that forgets what is silent for `timeout`, and a link over it.
    struct Nat {
        heartbeat: Heartbeat,
        timeout: Duration,
        now: Instant,
    }

    impl Nat {
        fn new(settings: Settings, timeout: Duration) -> Self {
            Self { heartbeat: Heartbeat::new(settings), timeout, now: Instant::ZERO }
        }

        fn beat(&mut self, dies: bool) {
            let silence = self.heartbeat.interval(self.now);
            self.now += silence;
            if silence < self.timeout && !dies {
                self.heartbeat.survived(silence, self.now);
            } else {
                self.heartbeat.lost(silence, self.now);
                self.now += SECOND;
                self.heartbeat.reached(self.now);
            }
        }

        /// Beats until the search has ended, and how many that were.
        fn settle(&mut self) -> u32 {
            let has_ended =
                |nat: &Self| nat.heartbeat.facts().is_some_and(|facts| facts.question_at.is_some());
            let mut beats = 0;
            while !has_ended(self) {
                self.beat(false);
                beats += 1;
                assert!(beats < 100, "it does not end for {:?}", self.timeout);
            }
            beats
        }

        fn interval_s(&self) -> u64 {
            self.heartbeat.interval(self.now).as_secs()
        }
    }

    /// Mars, read in its favour: three beats at 210 s, five for each 60 s more, two that fail; none above 580 s is
    /// tried.
    fn mars_beats(timeout: Duration) -> u32 {
        let steps = (270..=580).step_by(60).take_while(|s| SECOND * *s < timeout).count();
        let fails = if timeout > SECOND * 580 { 0 } else { 2 };
        3 + 5 * u32::try_from(steps).unwrap() + fails
    }

    fn between(random: &mut Random, from: Duration, to: Duration) -> Duration {
        let range = u64::try_from((to - from).as_millis()).unwrap();
        from + Duration::from_millis(random.below(range))
    }

    const SECOND: Duration = Duration::from_secs(1);
    const SHORTEST: Duration = Duration::from_secs(45);
    const HOUR: Duration = Duration::from_secs(3600);
}
