use super::*;

fn ms(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number], 80))
}

fn plenty() -> Rate {
    Rate::new(1_000, 1_000)
}

/// Runs a race through which nothing answers, and tells when each attempt began.
struct Silence {
    race: Race,
    probes: Rate,
    number: u64,
    starts: Vec<(u64, SocketAddr, Why)>,
    most: usize,
}

impl Silence {
    fn new(candidates: &[u8]) -> Self {
        let mut race = Race::new(Options::default());
        race.set_candidates(candidates.iter().map(|&number| address(number)).collect());
        Self { race, probes: plenty(), number: 0, starts: Vec::new(), most: 0 }
    }

    fn run(&mut self, from: u64, to: u64) {
        for at in from..to {
            self.step(at, 1);
        }
    }

    fn step(&mut self, at: u64, wanted: usize) {
        let random = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        while let Some(order) = self.race.poll(wanted, random, &mut self.probes, ms(at)) {
            if let Order::Start { address, why } = order {
                self.race.started(self.number, address, ms(at));
                self.starts.push((at, address, why));
                self.number += 1;
            }
            self.most = self.most.max(self.race.running());
        }
    }
}

#[test]
fn the_first_round_is_staggered_and_then_the_prober_goes_on() {
    let mut silence = Silence::new(&[1, 2]);
    silence.run(0, 30_000);
    let starts = &silence.starts;
    assert_eq!(starts[0], (0, address(1), Why::Wanted));
    assert_eq!(starts[1], (250, address(2), Why::Slow));
    assert!(starts[2..].iter().all(|start| start.2 == Why::Probe));
    for pair in starts[1..].windows(2) {
        let gap = pair[1].0 - pair[0].0;
        assert!((200..=250).contains(&gap), "{pair:?}");
        assert_ne!(pair[0].1, pair[1].1, "candidates take turns");
    }
    assert!(silence.most <= 6, "attempts under way stay few: {}", silence.most);
}

#[test]
fn one_candidate_is_tried_again_too() {
    let mut silence = Silence::new(&[1]);
    silence.run(0, 3_000);
    assert!(silence.starts.len() >= 6, "{:?}", silence.starts);
    assert!(silence.starts.iter().all(|start| start.1 == address(1)));
}

#[test]
fn a_failure_starts_the_next_at_once_and_a_round_of_them_ends_it() {
    let mut silence = Silence::new(&[1, 2]);
    silence.step(0, 1);
    assert_eq!(silence.race.failed(0, Failure::Refused, ms(10)), Some(address(1)));
    assert_eq!(silence.race.outlook(), Outlook::Open);
    silence.step(10, 1);
    assert_eq!(silence.starts[1], (10, address(2), Why::Failed));
    silence.race.failed(1, Failure::Refused, ms(20));
    assert_eq!(silence.race.outlook(), Outlook::Refused(Failure::Refused));
    silence.run(20, 200);
    assert_eq!(silence.starts.len(), 2, "no storm of attempts: {:?}", silence.starts);
}

#[test]
fn a_missing_route_is_asked_for_again_at_the_prober_s_pace() {
    let mut silence = Silence::new(&[1]);
    for at in 0..5_000 {
        silence.step(at, 1);
        let last = silence.number - 1;
        silence.race.failed(last, Failure::Unreachable, ms(at));
    }
    assert_eq!(silence.race.outlook(), Outlook::Open);
    assert!((19..=26).contains(&silence.starts.len()), "{}", silence.starts.len());
}

#[test]
fn nothing_begins_without_a_network_and_at_once_with_one() {
    let mut silence = Silence::new(&[1]);
    silence.race.set_online(false);
    silence.run(0, 5_000);
    assert_eq!(silence.starts, []);
    assert_eq!(silence.race.deadline(1, &silence.probes, ms(5_000)), None);
    silence.race.set_online(true);
    silence.step(5_000, 1);
    assert_eq!(silence.starts, [(5_000, address(1), Why::Online)]);
}

#[test]
fn nothing_begins_when_no_request_waits_but_losers_finish() {
    let mut silence = Silence::new(&[1, 2]);
    silence.run(0, 300);
    assert_eq!(silence.race.succeeded(1, ms(300)), Some((address(2), Duration::from_millis(50))));
    for at in 300..9_000 {
        silence.step(at, 0);
    }
    assert_eq!(silence.starts.len(), 2);
    assert_eq!(silence.race.running(), 1, "the loser may still finish");
    assert!(silence.race.succeeded(0, ms(9_000)).is_some());
}

#[test]
fn each_waiting_request_gets_an_attempt_up_to_the_limit() {
    let mut silence = Silence::new(&[1, 2]);
    silence.step(0, 20);
    assert_eq!(silence.starts.len(), 6);
    assert!(silence.starts.iter().all(|start| start.1 == address(1)));
}

#[test]
fn attempts_are_given_up_to_make_room_for_fresh_ones() {
    let mut race = Race::new(Options { extra_attempts: 1, ..Options::default() });
    race.set_candidates(vec![address(1)]);
    let mut probes = plenty();
    let mut cancelled = Vec::new();
    let mut number = 0;
    for at in 0..10_001 {
        while let Some(order) = race.poll(1, 0, &mut probes, ms(at)) {
            match order {
                Order::Start { address, .. } => {
                    race.started(number, address, ms(at));
                    number += 1;
                }
                Order::Cancel(old) => cancelled.push((old, at)),
            }
        }
    }
    assert!(cancelled.len() > 10 && race.running() <= 2, "{cancelled:?}");
}

#[test]
fn the_prober_begins_sooner_where_connects_are_known_to_be_quick() {
    let mut silence = Silence::new(&[1]);
    silence.race.set_stagger(Duration::from_millis(120));
    silence.run(0, 3_000);
    let gaps: Vec<u64> = silence.starts.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert!((96..=120).contains(&gaps[0]) && (192..=240).contains(&gaps[1]), "{gaps:?}");
    assert!(gaps[2..].iter().all(|gap| (200..=250).contains(gap)), "{gaps:?}");
}

#[test]
fn an_attempt_of_the_race_before_is_waited_for_only_as_long_as_it_may_answer() {
    let mut silence = Silence::new(&[1]);
    silence.race.set_stagger(Duration::from_millis(120));
    silence.run(0, 200);
    assert_eq!(silence.starts.len(), 2);
    assert!(silence.race.succeeded(1, ms(200)).is_some());
    // The first is overdue, so the next request begins its own.
    silence.race.renew(ms(210));
    silence.step(210, 1);
    assert_eq!(silence.starts[2], (210, address(1), Why::Wanted));
    // That one may still answer, so the request after it waits for it.
    silence.race.renew(ms(260));
    silence.step(260, 1);
    assert_eq!(silence.starts.len(), 3);
    silence.run(261, 340);
    assert_eq!(silence.starts.len(), 4, "{:?}", silence.starts);
}

#[test]
fn an_attempt_that_is_too_old_is_given_up() {
    let mut race = Race::new(Options::default());
    race.set_candidates(vec![address(1)]);
    let mut probes = plenty();
    assert!(matches!(race.poll(1, 0, &mut probes, ms(0)), Some(Order::Start { .. })));
    race.started(7, address(1), ms(0));
    assert_eq!(race.poll(0, 0, &mut probes, ms(9_999)), None);
    assert_eq!(race.deadline(0, &probes, ms(0)), Some(ms(10_000)));
    assert_eq!(race.poll(0, 0, &mut probes, ms(10_000)), Some(Order::Cancel(7)));
}

#[test]
fn ages_of_attempts_are_spread() {
    let mut silence = Silence::new(&[1]);
    silence.run(0, 9_900);
    let ages: Vec<Duration> =
        silence.race.running.iter().map(|running| ms(9_900) - running.since).collect();
    assert!(ages[0] > Duration::from_secs(9) && ages.len() == 6, "{ages:?}");
    let step = silence.race.options.step;
    assert!(ages[1..].windows(2).all(|pair| pair[0] <= pair[1] * 4 + step), "{ages:?}");
}

#[test]
fn progress_holds_the_prober_back() {
    let mut silence = Silence::new(&[1]);
    silence.step(0, 1);
    for at in (0..4_000).step_by(100) {
        silence.race.moved(ms(at));
        silence.step(at, 1);
    }
    assert_eq!(silence.starts.len(), 1);
}

#[test]
fn races_share_one_rate_of_probes() {
    let mut probes = Rate::new(2, 4);
    let mut races: Vec<Race> = (0..20)
        .map(|number| {
            let mut race = Race::new(Options::default());
            race.set_candidates(vec![address(number)]);
            race
        })
        .collect();
    let mut begun = 0;
    for at in 0..10_000 {
        for race in &mut races {
            while let Some(order) = race.poll(1, 7, &mut probes, ms(at)) {
                if let Order::Start { address, why } = order {
                    race.started(begun, address, ms(at));
                    begun += 1;
                    let _ = why;
                }
            }
        }
    }
    // One first attempt each, then the burst and two a second.
    assert!((40..=46).contains(&begun), "{begun}");
}

#[test]
fn families_take_turns_beginning_with_the_first() {
    let six = |number: u16| SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, number], 80));
    let mixed = [six(1), six(2), six(3), address(1), address(2)];
    assert_eq!(interleave(&mixed), [six(1), address(1), six(2), address(2), six(3)]);
    assert_eq!(interleave(&[address(1), six(1)]), [address(1), six(1)]);
    assert_eq!(interleave(&[]), []);
}

#[test]
fn the_deadline_is_never_later_than_the_next_start() {
    let mut silence = Silence::new(&[1, 2, 3]);
    let mut at = ms(0);
    for _ in 0..50 {
        silence.step(u64::try_from((at - Instant::ZERO).as_millis()).unwrap(), 1);
        let next = silence.race.deadline(1, &silence.probes, at).unwrap();
        assert!(next > at && next - at <= Duration::from_millis(500), "{:?}", next - at);
        at = ms(u64::try_from((next - Instant::ZERO).as_micros().div_ceil(1000)).unwrap());
    }
    assert!(silence.starts.len() >= 40);
}

#[test]
fn a_failure_at_an_address_of_yesterday_is_not_the_last_word() {
    let mut silence = Silence::new(&[1]);
    silence.step(0, 1);
    silence.race.set_candidates(vec![address(2)]);
    silence.race.failed(0, Failure::Denied, ms(10));
    assert_eq!(silence.race.outlook(), Outlook::Open);
    silence.step(10, 1);
    assert_eq!(silence.starts[1].1, address(2));
    silence.race.failed(1, Failure::Denied, ms(20));
    assert_eq!(silence.race.outlook(), Outlook::Refused(Failure::Denied));
}
