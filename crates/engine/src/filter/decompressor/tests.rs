use super::library::Decoder;
use super::*;
use crate::filter::coding::Coding;

/// A decoder for what other tests compress.
pub(in crate::filter) struct Plain(Decoder);

pub(in crate::filter) fn decoder(coding: Coding) -> Plain {
    let library = match coding {
        Coding::Gzip => Library::Gzip { window_bits: 15, most_times: 100 },
        Coding::Brotli => Library::Brotli,
        Coding::Zstd => Library::Zstd,
    };
    Plain(library.decoder().unwrap())
}

impl Plain {
    pub(in crate::filter) fn decode(&mut self, coded: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        self.0.decode(coded, &mut plain).unwrap();
        plain
    }
}

const ALL: [Coding; 3] = [Coding::Gzip, Coding::Brotli, Coding::Zstd];

/// By other code than ours.
fn coded(coding: Coding, plain: &[u8]) -> Vec<u8> {
    use std::io::Write;
    match coding {
        Coding::Gzip => {
            let level = flate2::Compression::default();
            let mut writer = flate2::write::GzEncoder::new(Vec::new(), level);
            writer.write_all(plain).unwrap();
            writer.finish().unwrap()
        }
        Coding::Brotli => {
            let mut writer = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 22);
            writer.write_all(plain).unwrap();
            writer.into_inner()
        }
        Coding::Zstd => zstd::bulk::compress(plain, 3).unwrap(),
    }
}

#[test]
fn content_is_the_same_wherever_it_is_cut() {
    let plain: Vec<u8> =
        (0..9000_u32).flat_map(|number| (number.wrapping_mul(7919) / 3).to_be_bytes()).collect();
    for coding in ALL {
        let bytes = coded(coding, &plain);
        for cut in (0..=bytes.len()).step_by(bytes.len() / 50 + 1) {
            let mut decoder = decoder(coding);
            let (first, second) = bytes.split_at(cut);
            let both = [decoder.decode(first), decoder.decode(second)].concat();
            assert!(both == plain, "{coding:?} cut at {cut}");
        }
    }
}

#[test]
fn a_bomb_is_bounded() {
    for coding in ALL {
        let bytes = coded(coding, &vec![0; 50_000_000]);
        assert!(bytes.len() < 60_000);
        let mut decoder = decoder(coding);
        let mut plain = Vec::new();
        let most = (bytes.len() * 100).max(128 * 1024) + 4096;
        assert_eq!(decoder.0.decode(&bytes, &mut plain), Err(Damage::Content), "{coding:?}");
        assert!(plain.len() <= most, "{coding:?}: {} of {most}", plain.len());
        let before = plain.len();
        assert_eq!(decoder.0.decode(&bytes, &mut plain), Ok(()));
        assert_eq!(plain.len(), before, "nothing comes behind it");
    }
}

#[test]
fn the_ratio_is_what_is_configured() {
    let bytes = coded(Coding::Gzip, &[0; 100_000]);
    for (most_times, fits) in [(1032, true), (10, false)] {
        let library = Library::Gzip { window_bits: 15, most_times };
        let mut plain = Vec::new();
        let result = library.decoder().unwrap().decode(&bytes, &mut plain);
        assert_eq!(result.is_ok(), fits, "{most_times}");
        assert_eq!(plain.len() == 100_000, fits);
    }
}

#[test]
fn what_is_damaged_ends_there() {
    for coding in ALL {
        let mut bytes = coded(coding, &(0..=255).cycle().take(5000).collect::<Vec<u8>>());
        let mut spoilt = decoder(coding);
        let mut plain = Vec::new();
        assert!(spoilt.0.decode(b"this is in no coding at all", &mut plain).is_err());
        assert!(spoilt.0.decode(&bytes, &mut plain).is_ok());
        assert!(plain.is_empty(), "{coding:?}");
        for at in 0..bytes.len() {
            bytes[at] ^= 0x55;
            let mut decoder = decoder(coding);
            let _ = decoder.0.decode(&bytes, &mut Vec::new());
            bytes[at] ^= 0x55;
        }
    }
}

#[test]
fn a_window_that_takes_too_much_memory_is_refused() {
    // A frame of unknown size whose window is 1 GiB (RFC 8878 §3.1.1.1.2): exponent 20, mantissa 0.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 20 << 3, 0x01, 0, 0];
    let mut decoder = decoder(Coding::Zstd);
    assert!(decoder.0.decode(&frame, &mut Vec::new()).is_err());
}

#[test]
fn the_server_is_told_once() {
    let cases = [
        (None, "gzip"),
        (Some(""), "gzip"),
        (Some("gzip"), "gzip"),
        (Some("gzip;q=0"), "gzip"),
        (Some("br, gzip;q=0.1 , deflate"), "br,deflate,gzip"),
        (Some("*"), "*,gzip"),
    ];
    for (sent, wanted) in cases {
        let mut head = Head::request(b"GET", b"http", b"a", b"/");
        if let Some(sent) = sent {
            head.set(Name::AcceptEncoding, sent.as_bytes());
        }
        advertise(&mut head, "gzip");
        assert_eq!(head.get(Name::AcceptEncoding), Some(wanted.as_bytes()), "{sent:?}");
    }
}

#[test]
fn only_the_first_coding_is_undone() {
    let cases = [
        ("gzip", Some("")),
        (" GZip , br", Some("br")),
        ("gzip,br, deflate", Some("br, deflate")),
        ("br, gzip", None),
        ("x-gzip", None),
        ("", None),
    ];
    for (sent, wanted) in cases {
        let mut head = Head::response(200);
        head.set(Name::ContentEncoding, sent.as_bytes());
        let rest = without_first(&head, "gzip");
        assert_eq!(rest.as_deref(), wanted.map(str::as_bytes), "{sent}");
    }
}
