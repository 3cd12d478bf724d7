//! Who gets the connection's window: streams of unequal sizes in turn, and every one of them to its end.

use super::pair::Random;
use super::*;

/// A stream as both ends see it.
struct Flow {
    /// At the server, and at the client.
    numbers: (u32, u32),
    size: usize,
    came: usize,
    ended: bool,
}

/// Passes on what an end has to say.
fn pass(from: &mut Connection, to: &mut Connection) {
    let mut out = Out::new();
    from.flush(&mut out);
    to.receive(out.drain().collect::<Vec<_>>().concat().into());
}

#[test]
fn streams_of_unequal_sizes_get_the_same_until_they_end() {
    const FRAME: usize = 16_384;
    for seed in 1..=4000 {
        let mut lot = Random(seed * 0x9e37_79b9);
        let options = Arc::new(Options {
            stream_window: 16 << 20,
            connection_window: 65_535,
            ..Options::default()
        });
        let mut client = Connection::client(Arc::clone(&options));
        let mut server = Connection::server(options);
        let mut heads = HeadPool::default();
        pass(&mut server, &mut client);
        assert!(client.poll(&mut heads).unwrap().is_none());
        let mut flows: Vec<Flow> = Vec::new();
        for _ in 0..2 + lot.below(15) {
            let number = client.open().unwrap();
            let head = Head::request(b"GET", b"http", b"a.test", b"/");
            let mut out = Out::new();
            client.send_head(number, &head, true, &mut out);
            client.flush(&mut out);
            server.receive(out.drain().collect::<Vec<_>>().concat().into());
            let (own, _) = server.poll(&mut heads).unwrap().unwrap();
            // One byte and a megabyte are equally likely.
            let size = 1 << lot.below(21);
            flows.push(Flow { numbers: (own, number), size, came: 0, ended: false });
        }
        let mut out = Out::new();
        for flow in &flows {
            server.send_head(flow.numbers.0, &Head::response(200), false, &mut out);
            server.send_data(flow.numbers.0, vec![b'x'; flow.size].into());
            server.send_end(flow.numbers.0);
            server.release(flow.numbers.0);
        }
        client.receive(out.drain().collect::<Vec<_>>().concat().into());
        let mut waiting: Vec<u32> = Vec::new();
        for turn in 0.. {
            assert!(turn < 5000, "seed {seed}: no end");
            pass(&mut server, &mut client);
            while let Some((number, arrival)) = client.poll(&mut heads).unwrap() {
                let flow = flows.iter_mut().find(|flow| flow.numbers.1 == number).unwrap();
                match arrival {
                    Arrival::Part(Event::Data(data)) => {
                        flow.came += data.len();
                        flow.ended |= client.take_end();
                        waiting.push(number);
                    }
                    Arrival::Part(Event::End) => flow.ended = true,
                    Arrival::Part(Event::Head { .. }) => {}
                    other @ (Arrival::Part(_) | Arrival::Reset(_) | Arrival::Refused) => {
                        panic!("seed {seed}: {}", text(&other))
                    }
                }
            }
            let under_way = || flows.iter().filter(|flow| !flow.ended).map(|flow| flow.came);
            let (Some(least), Some(most)) = (under_way().min(), under_way().max()) else { break };
            assert!(most - least <= 2 * FRAME + most / 14, "seed {seed}: {least} and {most}");
            // A stream that has ended had no more than the others until then.
            let largest = flows.iter().filter(|flow| flow.ended).map(|flow| flow.came).max();
            assert!(largest.unwrap_or(0) <= least + 2 * FRAME + least / 14, "seed {seed}");
            // Some of what came has a place, in any order.
            for _ in 0..1 + lot.below(waiting.len().max(1)) {
                if !waiting.is_empty() {
                    let number = waiting.swap_remove(lot.below(waiting.len()));
                    client.consumed(number);
                }
            }
            pass(&mut client, &mut server);
            assert!(server.poll(&mut heads).unwrap().is_none());
        }
        assert!(flows.iter().all(|flow| flow.came == flow.size), "seed {seed}");
    }
}

#[test]
fn a_window_that_opens_by_little_more_than_a_frame_is_not_one_stream_s_alone() {
    for more in [16_385_u32, 16_383, 17_000, 20_000, 33_000] {
        let mut scene = Scene::server(Options::default());
        scene.feed(&settings(&[(4, 1 << 30)])).unwrap();
        for id in [1, 3] {
            scene.feed_headers(id, END, GET).unwrap();
            scene.connection.send_head(id / 2, &Head::response(200), false, &mut Out::new());
            scene.connection.send_data(id / 2, vec![1; 1 << 20].into());
        }
        let mut came = [0, 0];
        for _ in 0..30 {
            for (_, _, id, payload) in
                scene.written().into_iter().filter(|(kind, ..)| *kind == Kind::Data)
            {
                came[id as usize / 2] += payload.len();
            }
            let [one, other] = came;
            assert!(one.abs_diff(other) <= 2 * 16_384 + one / 14, "{one} and {other}, by {more}");
            scene.feed_frame(Kind::WindowUpdate, 0, 0, &more.to_be_bytes()).unwrap();
        }
    }
}
