//! Random heads, changed at random, against a writer that knows nothing of runs: that of the fuzz target of this name.
#![allow(
    clippy::wildcard_enum_match_arm,
    unreachable_pub,
    reason = "most names mean nothing to framing; the fuzz package sees the writer from outside"
)]

#[path = "../../../fuzz/src/encode.rs"]
mod encode;

#[test]
fn heads_are_written_as_line_by_line() {
    for seed in 0..20_000 {
        let mut random = Random(seed);
        let mut head =
            random.pick(&["GET /a?b", "POST *", "POST /", "CONNECT a:1", "FROB /x"]).to_owned();
        head += " HTTP/1.1\r\nHost: a:1\r\n";
        for _ in 0..random.below(9) {
            head += random.pick(&LINES);
            head += "\r\n";
        }
        head += "\r\n";
        let changes: Vec<u8> = (0..3 * random.below(6)).map(|_| random.below(256) as u8).collect();
        encode::check(&changes, head.as_bytes());
    }
}

const LINES: [&str; 16] = [
    "X-A: 1",
    "x-a: 2",
    "X-a:3",
    "accept:  4",
    "User-Agent: 5",
    "Via: 6 ",
    "COOKIE: 7\t",
    "TE: trailers",
    "Te: gzip",
    "Upgrade: websocket",
    "Connection: x-b",
    "X-B: 8",
    "Content-Length: 9",
    "Expect: 100-continue",
    "trailer: a",
    "A-Name-That-Goes-Beyond-The-Window-Of-32: 10",
];

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}
