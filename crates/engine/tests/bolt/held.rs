//! What one client's calls may hold.

use std::time::Duration;

use towpath_proto::bolt::Status;

use super::{Ask, Ending, Habits, Setting, Story};

#[test]
fn a_client_whose_calls_are_too_long_together_is_read_as_they_are_answered() {
    for (max_held, most) in [(16 << 20, 40), (5000, 5)] {
        let mut story = Story::new(1, Setting { max_held, ..Setting::default() });
        story.origins(1, Habits { delay: Duration::from_millis(50), ..Habits::default() });
        let endings =
            story.client((0..40).map(|at| Ask::new(&format!("call{at}"), 1000)).collect());
        let mut peak = 0;
        for _ in 0..3000 {
            story.run(Duration::from_millis(1));
            peak = peak.max(story.number("http.rpc.downstream_rq_active"));
        }
        assert_eq!(endings.borrow().len(), 40);
        assert!(endings.borrow().values().all(|it| *it == Ending::Answered(Status::SUCCESS)));
        assert!(peak <= most && peak > most / 2, "{peak} with {max_held}");
    }
}
