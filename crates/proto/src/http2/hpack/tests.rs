//! Header blocks as a whole: the examples of RFC 7541 Appendix C; each rule and limit; what one end writes for the
//! other.

mod random;
mod rules;

use bytes::BytesMut;

use super::encode::Indexing;
use super::*;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

const PLENTY: Limits = Limits { max_list_size: 1 << 20, max_fields: 1000 };

fn decoded(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, Error> {
    let mut fields = Vec::new();
    decoder.decode(block, &PLENTY, &mut |field| {
        fields.push((field.name.as_bytes().to_vec(), field.value.to_vec()));
    })?;
    Ok(fields)
}

fn fields(lines: &[&str]) -> Fields {
    let field = |line: &&str| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.as_bytes().to_vec(), value.as_bytes().to_vec())
    };
    lines.iter().map(field).collect()
}

fn octets(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
    let octet = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(octet).collect()
}

/// One of Appendix C's blocks, its fields, and the table behind it: its fields from the newest on, and its size.
type Example<'a> = (&'a str, &'a [&'a str], &'a [&'a str], usize);

fn check_decoder(max_size: u32, examples: &[Example<'_>]) {
    let mut decoder = Decoder::new(max_size);
    for &(block, lines, table, size) in examples {
        assert_eq!(decoded(&mut decoder, &octets(block)).unwrap(), fields(lines));
        assert_eq!(kept(&decoder.table), fields(table));
        assert_eq!(decoder.table.size(), size);
    }
}

fn check_encoder(max_size: u32, examples: &[Example<'_>]) {
    let mut encoder = Encoder::new(max_size);
    encoder.begin(&mut BytesMut::new());
    for &(block, lines, table, size) in examples {
        let mut out = BytesMut::new();
        for (name, value) in fields(lines) {
            encoder.write(FieldName::resolve(&name), &value, Indexing::Incremental, &mut out);
        }
        assert_eq!(out, octets(block));
        assert_eq!(kept(&encoder.table), fields(table));
        assert_eq!(encoder.table.size(), size);
    }
}

fn kept(table: &table::Table) -> Fields {
    table.fields().map(|field| (field.name.as_bytes().to_vec(), field.value.to_vec())).collect()
}

/// RFC 7541 §C.2.
#[test]
fn each_kind_of_field() {
    let custom = "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572";
    let line = ["custom-key: custom-header"];
    check_decoder(4096, &[(custom, &line, &line, 55)]);
    check_decoder(
        4096,
        &[("040c 2f73 616d 706c 652f 7061 7468", &[":path: /sample/path"], &[], 0)],
    );
    check_decoder(4096, &[("82", &[":method: GET"], &[], 0)]);

    let never = octets("1008 7061 7373 776f 7264 0673 6563 7265 74");
    let (mut decoder, mut seen) = (Decoder::new(4096), Vec::new());
    let sink =
        &mut |field: Field<'_>| seen.push((field.never_indexed, field.name.as_bytes().to_vec()));
    decoder.decode(&never, &PLENTY, sink).unwrap();
    assert_eq!(seen, [(true, b"password".to_vec())]);
    assert_eq!(kept(&decoder.table), []);
}

const REQUESTS: [&[&str]; 3] = [
    &[":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"],
    &[
        ":method: GET",
        ":scheme: http",
        ":path: /",
        ":authority: www.example.com",
        "cache-control: no-cache",
    ],
    &[
        ":method: GET",
        ":scheme: https",
        ":path: /index.html",
        ":authority: www.example.com",
        "custom-key: custom-value",
    ],
];
const TABLES_OF_REQUESTS: [&[&str]; 3] = [
    &[":authority: www.example.com"],
    &["cache-control: no-cache", ":authority: www.example.com"],
    &["custom-key: custom-value", "cache-control: no-cache", ":authority: www.example.com"],
];
const SIZES_OF_REQUESTS: [usize; 3] = [57, 110, 164];

fn requests<'a>(blocks: [&'a str; 3]) -> Vec<Example<'a>> {
    let tables = TABLES_OF_REQUESTS.into_iter().zip(SIZES_OF_REQUESTS);
    let examples = blocks.into_iter().zip(REQUESTS).zip(tables);
    examples.map(|((block, lines), (table, size))| (block, lines, table, size)).collect()
}

/// RFC 7541 §C.3.
#[test]
fn requests_without_huffman_coding() {
    check_decoder(
        4096,
        &requests([
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ]),
    );
}

/// RFC 7541 §C.4.
#[test]
fn requests_with_huffman_coding() {
    let examples = requests([
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ]);
    check_decoder(4096, &examples);
    check_encoder(4096, &examples);
}

const RESPONSES: [&[&str]; 3] = [
    &[
        ":status: 302",
        "cache-control: private",
        "date: Mon, 21 Oct 2013 20:13:21 GMT",
        "location: https://www.example.com",
    ],
    &[
        ":status: 307",
        "cache-control: private",
        "date: Mon, 21 Oct 2013 20:13:21 GMT",
        "location: https://www.example.com",
    ],
    &[
        ":status: 200",
        "cache-control: private",
        "date: Mon, 21 Oct 2013 20:13:22 GMT",
        "location: https://www.example.com",
        "content-encoding: gzip",
        "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
    ],
];
const TABLES_OF_RESPONSES: [&[&str]; 3] = [
    &[
        "location: https://www.example.com",
        "date: Mon, 21 Oct 2013 20:13:21 GMT",
        "cache-control: private",
        ":status: 302",
    ],
    &[
        ":status: 307",
        "location: https://www.example.com",
        "date: Mon, 21 Oct 2013 20:13:21 GMT",
        "cache-control: private",
    ],
    &[
        "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
        "content-encoding: gzip",
        "date: Mon, 21 Oct 2013 20:13:22 GMT",
    ],
];
const SIZES_OF_RESPONSES: [usize; 3] = [222, 222, 215];

fn responses<'a>(blocks: [&'a str; 3]) -> Vec<Example<'a>> {
    let tables = TABLES_OF_RESPONSES.into_iter().zip(SIZES_OF_RESPONSES);
    let examples = blocks.into_iter().zip(RESPONSES).zip(tables);
    examples.map(|((block, lines), (table, size))| (block, lines, table, size)).collect()
}

/// RFC 7541 §C.5.
#[test]
fn responses_without_huffman_coding() {
    check_decoder(
        256,
        &responses([
            "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a
             3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "4803 3330 37c1 c0bf",
            "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04
             677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49
             553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
        ]),
    );
}

/// RFC 7541 §C.6.
#[test]
fn responses_with_huffman_coding() {
    let examples = responses([
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e
         919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7
         821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed
         4ee5 b106 3d50 07",
    ]);
    check_decoder(256, &examples);
    // The RFC codes `307` although that makes it no shorter.
    let [first, _, third] = examples[..] else { panic!() };
    let second =
        ("4803 3330 37c1 c0bf", RESPONSES[1], TABLES_OF_RESPONSES[1], SIZES_OF_RESPONSES[1]);
    check_encoder(256, &[first, second, third]);
}
