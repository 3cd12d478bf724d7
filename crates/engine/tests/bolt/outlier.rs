//! What a server's answers and lost connections say of it: outlier detection counts them as it counts HTTP's.

use std::time::Duration;

use towpath_engine::message::{FromWorker, Message};
use towpath_engine::snapshot::health::{Comparison, OutlierDetection, Rule, Run};

use super::{Ask, Habits, Setting, Story};

#[test]
fn busy_servers_and_lost_calls_are_told_to_the_monitor() {
    let busy = Habits { busy_every: 1, ..Habits::default() };
    let cut = Habits { cut_every: 1, ..Habits::default() };
    for (habits, counts) in [(busy, true), (cut, true), (Habits::default(), false)] {
        let mut story = Story::new(1, Setting { outliers: Some(outliers()), ..Setting::default() });
        story.origins(1, habits);
        story.client((0..6).map(|number| Ask::new(&format!("call{number}"), 10)).collect());
        story.run(Duration::from_secs(20));
        let said = story.world.take_messages(story.worker);
        let runs = said.iter().filter_map(|(_, message)| match message {
            Message::From(FromWorker::ErrorStreak { run, .. }) => Some(*run),
            _ => None,
        });
        let runs: Vec<Run> = runs.collect();
        assert_eq!(runs.contains(&Run::Errors), counts, "{habits:?} {runs:?}");
        assert_eq!(runs.contains(&Run::Gateway), counts, "{habits:?} {runs:?}");
    }
}

fn outliers() -> OutlierDetection {
    let rule = Rule { threshold: 3, enforcing: 100 };
    OutlierDetection {
        errors: rule,
        gateway: rule,
        local: rule,
        split: false,
        interval: Duration::from_secs(1),
        base_time: Duration::from_secs(1),
        max_time: Duration::from_secs(1),
        jitter: Duration::ZERO,
        max_percent: 100,
        always_one: false,
        returns_when_checked: true,
        detects_degraded: false,
        comparison: Comparison::default(),
    }
}
