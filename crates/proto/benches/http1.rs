//! In-memory wall time of the HTTP/1 codec, with `httparse` beside it for its part of the work.

mod cases;

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};

fn http1(criterion: &mut Criterion) {
    for (name, operation) in cases::CASES {
        let mut bench = cases::Bench::new();
        criterion.bench_function(name, |bencher| bencher.iter(|| operation(&mut bench)));
    }
}

/// `httparse` finds the same ranges, but resolves no name and judges neither framing nor host.
fn httparse(criterion: &mut Criterion) {
    criterion.bench_function("httparse-request", |bencher| {
        bencher.iter(|| {
            let mut headers = [httparse::EMPTY_HEADER; 100];
            let mut request = httparse::Request::new(&mut headers);
            let status = request.parse(black_box(cases::REQUEST));
            assert!(matches!(status, Ok(httparse::Status::Complete(_))));
            black_box(request.headers.len())
        });
    });
    criterion.bench_function("httparse-response", |bencher| {
        bencher.iter(|| {
            let mut headers = [httparse::EMPTY_HEADER; 100];
            let mut response = httparse::Response::new(&mut headers);
            let status = response.parse(black_box(cases::RESPONSE));
            assert!(matches!(status, Ok(httparse::Status::Complete(_))));
            black_box(response.headers.len())
        });
    });
}

criterion_group!(benches, http1, httparse);
criterion_main!(benches);
