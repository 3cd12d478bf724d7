//! Each answer carries the mark of its own call, in many small worlds: clients check that as they read, and count.
//!
//! `cargo xtask marks CALLS` runs it with more calls; without, it is short.

use super::*;

const CLIENTS: usize = 10;
const EACH: usize = 400;
const SHORT: u64 = 20_000;

#[test]
fn no_answer_is_lost_or_crossed_in_many_worlds() {
    let calls = std::env::var("TOWPATH_CALLS").map_or(SHORT, |calls| calls.parse().unwrap());
    let (mut total, mut answered, mut failed, mut ended) = (0, 0, 0, 0);
    for_each_seed(calls.div_ceil((CLIENTS * EACH) as u64), |seed| {
        let setting = Setting { timeout_ms: 2000, hosts: 3, ..Setting::default() };
        let mut story = Story::new(seed, setting);
        // In most worlds only the servers fail: where the network does, few calls come through.
        story.world.set_faults(match seed % 8 {
            0 => Faults::harsh(),
            1 => Faults::lively(),
            _ => Faults::none(),
        });
        let habits = Habits { shuffle: true, drop_every: 499, cut_every: 997, ..Habits::default() };
        let origins = story.origins(3, habits);
        let endings = story.clients(CLIENTS, EACH);
        story.run(Duration::from_secs(4000));
        story.check(&endings, &origins, CLIENTS * EACH);
        for ending in endings.borrow().values() {
            total += 1;
            match ending {
                Ending::Answered(Status::SUCCESS) => answered += 1,
                Ending::Answered(_) => failed += 1,
                // The network took its client's own connection.
                Ending::Lost => ended += 1,
                Ending::Sent => unreachable!("all of them want an answer"),
            }
        }
    });
    println!(
        "{total} simulated calls: {answered} answered, {failed} told of an error, {ended} without their client's \
         connection; 0 lost, 0 crossed"
    );
    assert!(answered > 0, "of {total}");
}
