//! The kernel's scheduling joins our threads in one file. Takes root and tracefs.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the run")]

mod support;

use std::fs::File;
use std::time::Duration;

use support::{Judge, scratch, text, turn};
use towpath_trace::file::{merge, stat};
use towpath_trace::kernel::KernelRecording;
use towpath_trace::{Category, Options, span};

#[test]
fn a_span_that_sleeps_is_seen_asleep() {
    let _turn = turn();
    let kernel = match KernelRecording::start(4096) {
        Ok(kernel) => kernel,
        Err(why) => return eprintln!("SKIPPED: no kernel recording: {why}"),
    };
    let recording = Options::new().start().unwrap();
    let work = || {
        let _span = span!(Category::APP, "asleep");
        std::thread::sleep(Duration::from_millis(20));
    };
    std::thread::Builder::new().name("sleeper".to_owned()).spawn(work).unwrap().join().unwrap();
    let (ours, theirs, both) =
        (scratch("ours.pftrace"), scratch("theirs.pftrace"), scratch("joined.pftrace"));
    recording.stop().write_perfetto(File::create(&ours).unwrap()).unwrap();
    kernel.stop(File::create(&theirs).unwrap()).unwrap();
    assert_eq!(merge(&[&ours, &theirs], &both).unwrap().moved_ns, [0, 0]);
    // Started, asleep, woken, ended: a machine with nothing else to do has little more than these.
    assert!(stat(&[&both]).unwrap().kernel >= 4);
    let Some(judge) = Judge::of(&both) else { return };
    // Some kernels leave out switches to threads of the host; that they are missing is not ours to mend.
    let answers = judge.all(&[
        "select name from stats where severity in ('error', 'data_loss') and value > 0
         and name != 'mismatched_sched_switch_tids'",
        "select max(min(st.ts + st.dur, s.ts + s.dur) - max(st.ts, s.ts)) between 19000000 and s.dur
         from slice s join thread_track t on s.track_id = t.id join thread_state st using (utid)
         where s.name = 'asleep' and st.state = 'S'",
        "select count(*) > 0 from thread_state join thread using (utid) where thread.name = 'sleeper' and state = \
         'Running'",
    ]);
    assert!(answers[0].is_empty(), "{:?}", answers[0]);
    assert_eq!(text(&answers[1]), [["1"]], "asleep for the time it asked for, within the span");
    assert_eq!(text(&answers[2]), [["1"]]);
}
