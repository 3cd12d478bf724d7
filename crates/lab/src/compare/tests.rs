use super::*;

const FILE: &str = r#"
title = "a slower answer"
pairs = 5
seed = 3

[hypothesis]
metric = "p50"
expect = "higher"
matters = 0.2

[load]
connections = 4
rate = 400
arrivals = "poisson"
duration = "300ms"
warmup = "100ms"

[programs.front]
command = "sh -c true"
role = "proxy"
[programs.store]
command = "sleep {listen_port}"
config = "to {next} from {listen_host}"

[a]
chain = "store"
[b]
name = "with a front"
chain = "front → store"
"#;

#[test]
fn a_file_is_read_and_its_chain_becomes_programs() {
    let experiment = Experiment::parse(FILE).unwrap();
    assert_eq!((experiment.pairs, experiment.equal_pairs, experiment.seed), (5, 3, 3));
    let (programs, entry) = experiment.programs(&experiment.b).unwrap();
    let names: Vec<&str> = programs.iter().map(|program| program.name.as_str()).collect();
    assert_eq!(names, ["store", "front"], "the last of the chain is launched first");
    assert_eq!(programs[1].listens, [entry]);
    assert_eq!(
        programs[0].command,
        ["sleep".to_owned(), programs[0].listens[0].port().to_string()]
    );
    assert_eq!(programs[0].config.as_deref(), Some("to {next} from 127.0.0.1"));
    assert_eq!(experiment.plan(entry, 9).intended_rps(), Some(400.0));
}

#[test]
fn files_that_make_no_sense_are_refused_with_a_reason() {
    for (find, replace, reason) in [
        ("chain = \"store\"", "chain = \"stone\"", "'stone', which is no program"),
        ("pairs = 5", "pairs = 2", "pairs must be"),
        ("pairs = 5", "pears = 5", "pears"),
        ("\"300ms\"", "\"300 moons\"", "no unit of time"),
        ("matters = 0.2", "matters = 0", "matters is a share"),
        ("metric = \"p50\"", "metric = \"joy\"", "joy"),
        ("rate = 400", "rate = 400\nclosed = true", "closed loop"),
        ("[a]", "[link]\nprofile = \"moon\"\n[a]", "no profile 'moon'"),
        ("[a]", "[link]\nloss = 101\n[a]", "make no sense"),
    ] {
        let error = Experiment::parse(&FILE.replace(find, replace)).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn hypotheses_are_judged_by_what_they_say() {
    assert_eq!(Expect::Lower.judge(Verdict::Lower), Conclusion::Supported);
    assert_eq!(Expect::Lower.judge(Verdict::Same), Conclusion::Refuted);
    assert_eq!(Expect::Same.judge(Verdict::Higher), Conclusion::Refuted);
    assert_eq!(Expect::Higher.judge(Verdict::Inconclusive), Conclusion::Inconclusive);
}

#[test]
fn pairs_of_a_with_itself_lie_among_the_others() {
    let order = plan_pairs(40, 20, &mut Random::new(1));
    assert_eq!(order.len(), 60);
    for half in [&order[..30], &order[30..]] {
        let equal = half.iter().filter(|it| it.is_equal).count();
        assert!((8..=12).contains(&equal), "{equal}");
    }
    for is_equal in [true, false] {
        let numbers: Vec<usize> =
            order.iter().filter(|it| it.is_equal == is_equal).map(|it| it.number).collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
    }
}
