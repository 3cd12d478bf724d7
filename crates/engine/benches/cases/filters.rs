//! Requests through one filter, and by themselves the libraries that do the work in it.

use std::hint::black_box;
use std::io::Write as _;
use std::sync::Arc;

use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use towpath_engine::filter::FilterConfig;
use towpath_engine::filter::compressor::{Brotli, Compressor, Gzip, Library, Responses};
use towpath_engine::filter::jwt_authn::{JwtAuthn, KeySource, Keys, Provider, SharedJwtAuthn};
use towpath_proto::HeaderName;
use zlib_rs::{DeflateConfig, DeflateFlush};

use super::requests::Requests;
use super::scene;

/// 16 KB as servers write them: lists of objects.
fn content() -> Vec<u8> {
    let item = |number: u32| {
        format!(
            "{{\"id\":{number},\"name\":\"item {}\",\"price\":{},\"tags\":[\"new\",\"{:x}\"]}},",
            number * 7919 % 1000,
            number * 31 % 977,
            number.wrapping_mul(2_654_435_761)
        )
    };
    let mut all: Vec<u8> =
        (0..).flat_map(|number| item(number).into_bytes()).take(16 << 10).collect();
    all.shrink_to_fit();
    all
}

fn through(filter: impl FilterConfig + 'static, request: String, content: &[u8]) -> Requests {
    let mut snapshot = scene::Plan::new(1).snapshot();
    scene::filters::add_filter(&mut snapshot, "one", filter);
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        content.len()
    );
    Requests::of(snapshot, request.into(), [head.as_bytes(), content].concat().into())
}

/// A response of 16 KB that is compressed.
fn compressed(library: Library) -> Requests {
    let coding = library.coding().name();
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {coding}\r\n\r\n");
    let filter = Compressor {
        name: "one".into(),
        library,
        request: None,
        response: Responses::default(),
        goes_first: false,
    };
    through(filter, request, &content())
}

pub(super) fn gzip() -> Requests {
    compressed(Library::Gzip(Gzip::default()))
}

pub(super) fn brotli() -> Requests {
    compressed(Library::Brotli(Brotli::default()))
}

/// What the libraries alone do of the same.
pub(super) struct Alone {
    content: Vec<u8>,
    token: (Vec<u8>, Vec<u8>),
    key: RsaPublicKeyComponents<Vec<u8>>,
}

impl Alone {
    pub(super) fn new() -> Self {
        let (signed, signature) = TOKEN.rsplit_once('.').unwrap();
        let plain = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
        Self {
            content: content(),
            token: (signed.into(), plain(signature)),
            key: RsaPublicKeyComponents { n: plain(MODULUS), e: vec![1, 0, 1] },
        }
    }

    pub(super) fn gzip(&self) {
        let gzip = Gzip::default();
        let mut deflate = zlib_rs::Deflate::new_with_config(DeflateConfig {
            level: 6,
            window_bits: i32::from(gzip.window_bits) + 16,
            mem_level: gzip.memory_level.into(),
            ..DeflateConfig::default()
        });
        let mut room = vec![0; self.content.len()];
        deflate.compress(&self.content, &mut room, DeflateFlush::Finish).unwrap();
        black_box(room);
    }

    pub(super) fn brotli(&self) {
        let own = Brotli::default();
        let parameters = brotli::enc::BrotliEncoderParams {
            quality: own.quality.into(),
            lgwin: own.window_bits.into(),
            lgblock: own.block_bits.into(),
            ..brotli::enc::BrotliEncoderParams::default()
        };
        let mut writer = brotli::CompressorWriter::with_params(Vec::new(), 4096, &parameters);
        writer.write_all(&self.content).unwrap();
        black_box(writer.into_inner());
    }

    pub(super) fn signature(&self) {
        let (signed, signature) = &self.token;
        self.key.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature).unwrap();
    }
}

const MODULUS: &str = "rr3o88Aq3D18XCTlTK75K6D7hH_PA8HsCPZCIaiu73vGVvE4WdSfrvceibHqmF7gVb-Zft6dWF2RxAWj1CwUDFXO2zsXQ\
     JifxvSUYniL7c4nUCFcX5LPVHjKuXuHJgmE9Ra2XTFlgjfmvPTWos2S6kdT3l_53G5r0Yk-7d8zVKScsN5WgxoL-HrKBpUEM7228vhRAIGlB3SU-b\
     N9s-KuF4vb_Qp44tql3zwu_mVnHD-hTXvp9Z6QsnY4pJ5Mq6zPJP93hNTkMOgnbqojbmvhvuidh9DN5vMOU0slq0Jf4_qU02Cibs-hvmDOSPSlV4Si\
     mlqW1CKsO9Sb6MIaQPO0AQ";
/// Signed with its key; holds until 2100.
const TOKEN: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6InJzYSJ9.eyJpc3MiOiJtYW55IiwiZXhwIjo0MTAyNDQ0ODAwfQ.O2ht3Yr4aDwZKV\
     Nv7lOrpEzayLcDhvUlsXMBsLs-qX4-Ufmh8vzxRub3pus9DgtuaLcQa-KVvtEGJpGmxIa4EQccOJWklPSFdVhM6i-ck0KponupZgZO0rpPQeGE2thK\
     UYcYR_2298qssaeFVwu7tZQYvCBmabu8vL9uIVUlB3iV3swsQdQmoEip7zGSZKfKHTCSnykihN-zW8SXuxW8gX2p9MjXBeKRYITnsXGD3VQv2w3fhd\
     YlmI-0HxiI5tB0skhhZZZfcaFW0XpyxRFNi3jTZIEWWOY_iEUHaeTp0Tvfw10_5rnpcPFBem-NNrGkO2ouT9xJoPBoHuR9DwFEqQ";

/// A request whose token is checked by a key of the configuration.
pub(super) fn jwt() -> Requests {
    let keys = format!(
        "{{\"keys\": [{{\"kty\": \"RSA\", \"kid\": \"rsa\", \"n\": \"{MODULUS}\", \"e\": \"AQAB\"}}]}}"
    );
    let keys = KeySource::Local(Arc::new(Keys::parse(keys.as_bytes()).unwrap()));
    let mut provider = Provider::new("many", keys);
    provider.headers = vec![(HeaderName::new("authorization").unwrap(), b"Bearer "[..].into())];
    let config = JwtAuthn::of_provider(provider);
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    through(SharedJwtAuthn::new(config), request, &[b'x'; 1024])
}
