use super::*;

fn at(milliseconds: f64) -> Instant {
    Instant::from_nanos((milliseconds * 1e6) as u64)
}

fn path(conditions: Conditions) -> Path {
    Path::new(conditions, Timeline::default(), Direction::Up, 1)
}

fn delivered(verdict: Verdict) -> Option<Instant> {
    match verdict {
        Verdict::Deliver { at, .. } => Some(at),
        Verdict::Lost | Verdict::QueueFull | Verdict::Managed | Verdict::Outage => None,
    }
}

#[test]
fn a_perfect_link_delivers_at_once() {
    assert_eq!(
        path(Conditions::default()).send(1500, at(3.0)),
        Verdict::Deliver { at: at(3.0), again: None, is_marked: false }
    );
}

#[test]
fn losses_have_their_share_and_the_same_numbers_for_all_arms() {
    for share in [0.01, 0.05, 0.3] {
        let lost = |seed| -> Vec<u64> {
            let conditions = Conditions { loss: Loss::Bernoulli(share), ..Conditions::default() };
            let mut path = Path::new(conditions, Timeline::default(), Direction::Down, seed);
            (0..100_000)
                .filter(|number| path.send(100 + number % 7, at(*number as f64)) == Verdict::Lost)
                .collect()
        };
        let first = lost(7);
        let deviation = (share * (1.0 - share) * 100_000.0f64).sqrt();
        assert!(
            (first.len() as f64 - share * 100_000.0).abs() < 4.0 * deviation,
            "{}",
            first.len()
        );
        assert_eq!(first, lost(7));
        assert_ne!(first, lost(8));
    }
}

#[test]
fn bursts_have_the_length_and_share_that_were_asked_for() {
    let loss = Loss::bursts(0.05, 8.0);
    assert!((loss.share() - 0.05).abs() < 1e-9);
    let mut path = path(Conditions { loss, ..Conditions::default() });
    let outcome: Vec<bool> =
        (0..200_000).map(|_| path.send(100, Instant::ZERO) == Verdict::Lost).collect();
    let lost = outcome.iter().filter(|lost| **lost).count();
    let bursts = outcome.windows(2).filter(|pair| !pair[0] && pair[1]).count();
    assert!((lost as f64 / 10_000.0 - 1.0).abs() < 0.1, "{lost}");
    assert!((lost as f64 / bursts as f64 / 8.0 - 1.0).abs() < 0.1, "{lost} in {bursts}");
    assert_eq!(Loss::bursts(0.0, 8.0), Loss::None);
}

#[test]
fn a_rate_spaces_packets_and_its_queue_has_a_limit() {
    let rate = Rate::BitsPerSecond(12_000_000.0);
    let mut path = path(Conditions {
        rate,
        queue_bytes: Some(3000),
        delay: Duration::from_millis(5),
        ..Conditions::default()
    });
    let verdicts: Vec<Option<Instant>> =
        (0..4).map(|_| delivered(path.send(1500, Instant::ZERO))).collect();
    assert_eq!(verdicts, [Some(at(6.0)), Some(at(7.0)), None, None]);
    assert_eq!(path.queued_bytes(at(1.0)), 1500);
    assert_eq!(delivered(path.send(1500, at(1.0))), Some(at(8.0)));
    assert_eq!(path.queued_bytes(at(100.0)), 0);
    // Zero bytes of queue still let a packet through when the wire is free.
    let mut path = Path::new(
        Conditions {
            rate: Rate::BitsPerSecond(12e6),
            queue_bytes: Some(0),
            ..Conditions::default()
        },
        Timeline::default(),
        Direction::Up,
        1,
    );
    assert_eq!(delivered(path.send(1500, Instant::ZERO)), Some(at(1.0)));
    assert_eq!(path.send(1, at(0.5)), Verdict::QueueFull);
}

#[test]
fn jitter_keeps_the_order_and_reordering_breaks_it() {
    let shaking = Conditions {
        delay: Duration::from_millis(10),
        jitter: Duration::from_millis(5),
        ..Conditions::default()
    };
    let mut steady = path(shaking.clone());
    let arrivals: Vec<Instant> =
        (0..1000).filter_map(|n| delivered(steady.send(100, at(f64::from(n) * 0.1)))).collect();
    assert!(arrivals.is_sorted());
    assert!(arrivals.iter().enumerate().all(|(n, it)| *it >= at(n as f64 * 0.1 + 10.0)));
    let mut mixed = path(Conditions { reorder: 0.1, duplicate: 0.1, ..shaking });
    let verdicts: Vec<Verdict> =
        (0..1000).map(|n| mixed.send(100, at(f64::from(n) * 0.1))).collect();
    let doubles =
        verdicts.iter().filter(|it| matches!(it, Verdict::Deliver { again: Some(_), .. })).count();
    let arrivals: Vec<Instant> = verdicts.into_iter().filter_map(delivered).collect();
    let overtaken = arrivals.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert!(
        (60..=140).contains(&doubles) && (60..=140).contains(&overtaken),
        "{doubles} {overtaken}"
    );
}

#[test]
fn outages_and_changes_happen_on_time_and_shift_no_later_decision() {
    let conditions = Conditions { loss: Loss::bursts(0.2, 3.0), ..Conditions::default() };
    let timeline =
        Timeline::default().with_outage(Duration::from_millis(10), Duration::from_millis(5));
    let mut with = Path::new(conditions.clone(), timeline, Direction::Up, 1);
    let mut without = path(conditions);
    for n in 0..1000 {
        let (a, b) = (with.send(100, at(f64::from(n))), without.send(100, at(f64::from(n))));
        assert_eq!(a == Verdict::Outage, (10..15).contains(&n));
        assert!(a == Verdict::Outage || a == b);
    }
    let slow = Conditions { delay: Duration::from_millis(7), ..Conditions::default() };
    let change = Change { at: at(4.0), down: Conditions::default(), up: slow };
    let mut path =
        Path::new(Conditions::default(), Timeline::default().with_change(change), Direction::Up, 1);
    assert_eq!(delivered(path.send(1, at(3.9))), Some(at(3.9)));
    assert_eq!(delivered(path.send(1, at(4.0))), Some(at(11.0)));
}

#[test]
fn traces_deliver_at_their_opportunities_and_repeat() {
    let trace = Trace::parse("# mahimahi\n2\n2\n5\n10\n").unwrap();
    assert!((trace.mean_bits_per_second() - 4.0 * 12_000.0 / 0.01).abs() < 1.0);
    let mut path = path(Conditions {
        rate: Rate::Trace(Arc::new(trace)),
        queue_bytes: Some(100_000),
        ..Conditions::default()
    });
    let arrivals: Vec<Option<Instant>> =
        (0..6).map(|_| delivered(path.send(1500, Instant::ZERO))).collect();
    assert_eq!(arrivals, [2.0, 2.0, 5.0, 10.0, 12.0, 12.0].map(|ms| Some(at(ms))));
    // Two small packets share an opportunity; a missed one is gone.
    assert_eq!(delivered(path.send(700, at(21.0))), Some(at(22.0)));
    assert_eq!(delivered(path.send(800, at(21.5))), Some(at(22.0)));
    assert_eq!(delivered(path.send(1, at(24.0))), Some(at(25.0)));
    assert_eq!(Trace::parse(""), Err(TraceError::Empty));
    assert_eq!(Trace::parse("0\n"), Err(TraceError::Empty));
    assert_eq!(Trace::parse("3\n2\n"), Err(TraceError::Backwards(2)));
    assert_eq!(Trace::parse("x\n"), Err(TraceError::NotANumber(1)));
}

#[test]
fn made_up_traces_have_the_mean_that_was_asked_for() {
    let trace = Trace::synthetic_cellular(5e6, Duration::from_secs(600), 3);
    let mean = trace.mean_bits_per_second();
    assert!((mean / 5e6 - 1.0).abs() < 0.2, "{mean}");
    assert_eq!(trace, Trace::synthetic_cellular(5e6, Duration::from_secs(600), 3));
}

#[test]
fn every_profile_has_a_name_of_its_own_and_can_carry_a_packet() {
    for profile in PROFILES {
        assert_eq!(PROFILES.iter().filter(|other| other.name == profile.name).count(), 1);
        for conditions in [profile.down(), profile.up()] {
            let mut path = path(conditions);
            assert!(
                (0..200).any(|n| delivered(path.send(1500, at(f64::from(n) * 1000.0))).is_some()),
                "{}",
                profile.name
            );
        }
    }
    assert_eq!(Profile::find("3G").map(|profile| profile.name), Some("3g"));
    assert_eq!(Profile::find("5g-dreams"), None);
}

/// A sender that is `percent` faster than the link, for `seconds`: what became of its packets, and how long each waited
/// in milliseconds.
fn overload(
    conditions: Conditions,
    percent: f64,
    seconds: f64,
    is_ect: bool,
) -> Vec<(Verdict, f64)> {
    let mut path = path(Conditions {
        rate: Rate::BitsPerSecond(10e6),
        queue_bytes: Some(1 << 30),
        ..conditions
    });
    // 1500 bytes take 1.2 ms.
    let gap = 1.2 / (1.0 + percent / 100.0);
    (0..(seconds * 1000.0 / gap) as u64)
        .map(|number| {
            let now = at(number as f64 * gap);
            let verdict = path.send_packet(1500, is_ect, now);
            let waited =
                delivered(verdict).map_or(0.0, |it| it.since(now).as_secs_f64() * 1e3 - 1.2);
            (verdict, waited)
        })
        .collect()
}

fn dropped(all: &[(Verdict, f64)]) -> usize {
    all.iter().filter(|(verdict, _)| *verdict == Verdict::Managed).count()
}

/// The longest and the mean wait of the last half.
fn waits(all: &[(Verdict, f64)]) -> (f64, f64) {
    let late: Vec<f64> = all[all.len() / 2..]
        .iter()
        .filter(|(verdict, _)| delivered(*verdict).is_some())
        .map(|(_, waited)| *waited)
        .collect();
    (late.iter().copied().fold(0.0, f64::max), late.iter().sum::<f64>() / late.len() as f64)
}

#[test]
fn codel_leaves_short_queues_alone_and_drains_standing_ones() {
    let codel = Conditions { aqm: Aqm::CODEL, ..Conditions::default() };
    // A burst that is gone within the interval of 100 ms.
    let mut burst = path(Conditions {
        rate: Rate::BitsPerSecond(10e6),
        aqm: Aqm::CODEL,
        ..Conditions::default()
    });
    assert!((0..60).all(|_| delivered(burst.send(1500, at(0.0))).is_some()));
    // A sender that is a tenth too fast and does not listen: the law drops more and more often.
    let managed = overload(codel, 10.0, 60.0, false);
    let unmanaged = overload(Conditions::default(), 10.0, 60.0, false);
    assert_eq!(dropped(&unmanaged), 0);
    assert!(waits(&unmanaged).0 > 5000.0, "{:?}", waits(&unmanaged));
    assert!(waits(&managed).0 < waits(&unmanaged).0 / 4.0, "{:?}", waits(&managed));
    // Each packet waits 0.109 ms longer than the one before: one that leaves after 55 ms is the first to wait for 5 ms,
    // and the one that leaves 100 ms later, and came after 141, is dropped.
    let first = managed.iter().position(|(verdict, _)| *verdict == Verdict::Managed).unwrap();
    let first_ms = first as f64 * 1.2 / 1.1;
    assert!((138.0..146.0).contains(&first_ms), "{first_ms}");
}

#[test]
fn codel_drops_by_its_law() {
    let all = overload(Conditions { aqm: Aqm::CODEL, ..Conditions::default() }, 100.0, 2.0, false);
    // In the queue's own time, gaps between drops are 100 ms, then 100/√2, 100/√3, …
    let mut leaves = Vec::new();
    let mut free_at = 0.0_f64;
    for (number, (verdict, _)) in all.iter().enumerate() {
        let turn = free_at.max(number as f64 * 0.6);
        match verdict {
            Verdict::Managed => leaves.push(turn),
            Verdict::Deliver { .. } | Verdict::Lost | Verdict::QueueFull | Verdict::Outage => {
                free_at = turn + 1.2;
            }
        }
    }
    let gaps: Vec<f64> = leaves.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (at, gap) in gaps.iter().take(10).enumerate() {
        let law = 100.0 / ((at + 1) as f64).sqrt();
        assert!((gap - law).abs() <= 1.3, "gap {at} is {gap}, not {law}: {gaps:?}");
    }
}

#[test]
fn pie_keeps_the_wait_near_its_target() {
    let pie = Conditions { aqm: Aqm::PIE, ..Conditions::default() };
    let all = overload(pie.clone(), 20.0, 60.0, false);
    let (longest, mean) = waits(&all);
    assert!((5.0..30.0).contains(&mean) && longest < 80.0, "{mean} {longest}");
    // A sixth has to go, and a queue that is never long loses nothing.
    let share = dropped(&all[all.len() / 2..]) as f64 / (all.len() / 2) as f64;
    assert!((share - 1.0 / 6.0).abs() < 0.02, "{share}");
    assert_eq!(dropped(&overload(pie, -10.0, 60.0, false)), 0);
}

#[test]
fn marks_take_the_place_of_drops_for_those_who_understand_them() {
    let is_marked = |verdict: &Verdict| matches!(verdict, Verdict::Deliver { is_marked: true, .. });
    for aqm in [Aqm::CODEL, Aqm::PIE] {
        let conditions = Conditions { aqm, ecn: true, ..Conditions::default() };
        let marked = overload(conditions.clone(), 2.0, 10.0, true);
        assert!(marked.iter().any(|(verdict, _)| is_marked(verdict)), "{aqm:?}");
        let deaf = overload(conditions, 2.0, 10.0, false);
        assert!(
            !deaf.iter().any(|(verdict, _)| is_marked(verdict)) && dropped(&deaf) > 0,
            "{aqm:?}"
        );
        let off = overload(Conditions { aqm, ..Conditions::default() }, 2.0, 10.0, true);
        assert!(!off.iter().any(|(verdict, _)| is_marked(verdict)) && dropped(&off) > 0, "{aqm:?}");
    }
    let codel = overload(
        Conditions { aqm: Aqm::CODEL, ecn: true, ..Conditions::default() },
        2.0,
        10.0,
        true,
    );
    assert_eq!(dropped(&codel), 0, "CoDel drops nothing that it may mark");
}

#[test]
fn jitter_that_reorders_is_spread_evenly_and_the_other_keeps_the_order() {
    let conditions = |jitter_reorders| Conditions {
        delay: Duration::from_millis(10),
        jitter: Duration::from_millis(30),
        jitter_reorders,
        ..Conditions::default()
    };
    let travelled = |jitter_reorders| -> (f64, usize) {
        let mut path = path(conditions(jitter_reorders));
        let sent: Vec<(Instant, Instant)> = (0..20_000)
            .map(|number| at(f64::from(number) * 2.0))
            .map(|now| (now, delivered(path.send(100, now)).unwrap()))
            .collect();
        let mean =
            sent.iter().map(|(now, at)| at.since(*now).as_secs_f64() * 1e3).sum::<f64>() / 20_000.0;
        (mean, sent.windows(2).filter(|pair| pair[1].1 < pair[0].1).count())
    };
    let (even, overtaken) = travelled(true);
    assert!((even - 25.0).abs() < 0.3 && overtaken > 5000, "{even} {overtaken}");
    let (longer, none) = travelled(false);
    assert!(longer > 30.0 && none == 0, "{longer}");
}

#[test]
fn conditions_change_while_packets_are_on_their_way() {
    let mut path = path(Conditions { rate: Rate::BitsPerSecond(1.2e6), ..Conditions::default() });
    assert_eq!(delivered(path.send(1500, at(0.0))), Some(at(10.0)));
    let faster = Conditions {
        rate: Rate::BitsPerSecond(12e6),
        delay: Duration::from_millis(5),
        ..Conditions::default()
    };
    path.change(faster.clone());
    assert_eq!(path.conditions(), &faster);
    assert_eq!(delivered(path.send(1500, at(20.0))), Some(at(26.0)));
    path.break_off(at(30.0), Duration::from_millis(10));
    assert_eq!(path.send(1500, at(35.0)), Verdict::Outage);
    assert!(delivered(path.send(1500, at(40.0))).is_some());
}
