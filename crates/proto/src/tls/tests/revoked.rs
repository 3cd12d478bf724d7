//! Revoked certificates: by lists, and by what an authority says of one.

use rcgen::{
    CertificateRevocationListParams, CustomExtension, KeyIdMethod, RevokedCertParams, SerialNumber,
};

use super::server::{World, begin, converse_both};
use super::*;

/// In seconds since 1970, as [`NOW`].
const NOW_SECONDS: i64 = 1_893_456_000;

#[test]
fn lists_of_revoked_certificates_go_for_servers_and_clients() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let good = numbered(&ours, 1, &[]);
    let bad = numbered(&ours, 2, &[]);
    let current = list(&ours, &[2], 2035);
    let outcome = |revocations: &str, leaf: &Leaf| {
        let revocations = Revocations::from_pem(revocations.as_bytes()).unwrap();
        let trust = Trust { revocations: Some(revocations), ..ours.trust(Names::Any) };
        let settings = ClientSettings { trust: trust.clone(), ..ClientSettings::default() };
        let mut server = serve(leaf, Version::Tls13, None);
        let of_server = shake(settings, "else.test", &mut server, usize::MAX).err();
        let world = World::new();
        let settings = ServerSettings { trust: Some(trust), ..world.settings() };
        let mut layer = settings.build().unwrap().server(&clock()).accept();
        let mut client = world.client_showing(Version::Tls13, Some(leaf));
        let _ = converse_both(&mut client, &mut layer, usize::MAX);
        assert_eq!(layer.receive(b"", &mut BytesMut::new()).err(), of_server, "both sides alike");
        of_server.map(|fault| {
            let Fault::Certificate(distrust) = fault else { panic!("{fault}") };
            distrust
        })
    };
    assert_eq!(outcome(&current, &good), None);
    assert_eq!(outcome(&current, &bad), Some(Distrust::Revoked));
    let old = list(&ours, &[], 2025);
    assert_eq!(outcome(&old, &good), Some(Distrust::RevocationUnknown), "the list is old");
    let others = list(&other, &[], 2035);
    assert_eq!(outcome(&others, &good), Some(Distrust::RevocationUnknown), "another's list");
    assert_eq!(outcome(&(others + &current), &good), None);
    assert_eq!(outcome(&ours.pem, &good), Some(Distrust::RevocationUnknown), "no list at all");
}

#[test]
fn a_list_is_whole_or_refused() {
    let ours = Authority::new("ours");
    let garbage = "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n";
    let revocations = Some(Revocations::from_pem(garbage.as_bytes()).unwrap());
    let trust = Trust { revocations, ..ours.trust(Names::Any) };
    let client = ClientSettings { trust: trust.clone(), ..ClientSettings::default() };
    assert_eq!(client.build().unwrap_err(), SettingsError::RevocationList);
    let server = ServerSettings { trust: Some(trust), ..World::new().settings() };
    assert_eq!(server.build().unwrap_err(), SettingsError::RevocationList);
}

#[test]
fn what_an_authority_says_is_shown_to_clients_that_ask() {
    use StaplePolicy::{Lenient, Must, Strict};
    let ours = Authority::new("ours");
    let leaf = numbered(&ours, 5, &[]);
    let (current, old) =
        (response(5, Some("20350101000000Z")), response(5, Some("20250101000000Z")));
    let endless = response(5, None);
    let outcome = |policy, der: Option<&[u8]>, leaf: &Leaf| {
        let staple = der.map(|der| Staple::from_der(der).unwrap());
        let identities = vec![Identity { staple, ..leaf.identity() }];
        let settings = ServerSettings { identities, staple_policy: policy, ..Default::default() };
        let mut layer = settings.build()?.server(&clock()).accept();
        // rustls's clients always ask.
        let mut client = begin(ClientSettings::default(), "a.test");
        let _ = converse_both(&mut client, &mut layer, usize::MAX);
        assert_eq!(layer.is_established(), layer.stapling() != Some(Stapling::Failed));
        Ok(layer.stapling().unwrap())
    };
    for policy in [Lenient, Strict, Must] {
        assert_eq!(outcome(policy, Some(&current), &leaf), Ok(Stapling::Shown), "{policy:?}");
    }
    for der in [&old, &endless] {
        assert_eq!(outcome(Lenient, Some(der), &leaf), Ok(Stapling::Omitted));
        assert_eq!(outcome(Strict, Some(der), &leaf), Ok(Stapling::Failed));
        assert_eq!(outcome(Must, Some(der), &leaf), Ok(Stapling::Failed));
    }
    assert_eq!(outcome(Lenient, None, &leaf), Ok(Stapling::Omitted));
    assert_eq!(outcome(Strict, None, &leaf), Ok(Stapling::Omitted));
    assert_eq!(outcome(Must, None, &leaf), Err(SettingsError::NoStaple));
    assert_eq!(outcome(Lenient, Some(&response(6, None)), &leaf), Err(SettingsError::WrongStaple));
    // TLS features: status_request.
    let demanding = numbered(&ours, 5, &[0x30, 3, 2, 1, 5]);
    assert_eq!(outcome(Lenient, None, &demanding), Err(SettingsError::MustStaple));
    assert_eq!(outcome(Lenient, Some(&old), &demanding), Ok(Stapling::Failed));
    assert_eq!(outcome(Lenient, Some(&current), &demanding), Ok(Stapling::Shown));
}

#[test]
fn a_response_is_read_to_its_end() {
    let whole = response(5, Some("20350101000000Z"));
    let staple = Staple::from_der(&whole).unwrap();
    assert!(staple.is_about(&[5]) && !staple.is_about(&[6]));
    assert!(!staple.is_expired(NOW_SECONDS) && staple.is_expired(NOW_SECONDS * 2));
    for end in 0..whole.len() {
        assert_eq!(Staple::from_der(&whole[..end]), Err(SettingsError::MalformedStaple), "{end}");
    }
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0x55;
        let _ = Staple::from_der(&changed);
    }
    let trailing = [&whole[..], &[0]].concat();
    assert_eq!(Staple::from_der(&trailing), Err(SettingsError::MalformedStaple));
    let refused = element(0x30, &[&element(0x0a, &[&[6]])]);
    assert_eq!(Staple::from_der(&refused), Err(SettingsError::StapleWithoutAnswer));
    let both = [&single(1, None)[..], &single(2, None)].concat();
    assert_eq!(Staple::from_der(&answering(&both)), Err(SettingsError::StapleForMany));
}

fn numbered(authority: &Authority, serial: u64, features: &[u8]) -> Leaf {
    let (key, mut params) = (KeyPair::generate().unwrap(), params(&["a.test"], YEARS));
    params.serial_number = Some(SerialNumber::from(serial));
    if !features.is_empty() {
        let id = [1, 3, 6, 1, 5, 5, 7, 1, 24];
        let extension = CustomExtension::from_oid_content(&id, features.to_vec());
        params.custom_extensions.push(extension);
    }
    Leaf::new(&params.signed_by(&key, &authority.issuer).unwrap(), key)
}

fn list(authority: &Authority, serials: &[u64], until: i32) -> String {
    let revoked = |serial: &u64| RevokedCertParams {
        serial_number: SerialNumber::from(*serial),
        revocation_time: rcgen::date_time_ymd(2021, 1, 1),
        reason_code: None,
        invalidity_date: None,
    };
    let params = CertificateRevocationListParams {
        this_update: rcgen::date_time_ymd(2021, 1, 1),
        next_update: rcgen::date_time_ymd(until, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: serials.iter().map(revoked).collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(&authority.issuer).unwrap().pem().unwrap()
}

/// An OCSP response about one certificate, which is good; not signed.
fn response(serial: u8, until: Option<&str>) -> Vec<u8> {
    answering(&single(serial, until))
}

fn answering(answers: &[u8]) -> Vec<u8> {
    let responder = element(0xa2, &[&element(4, &[&[0; 20]])]);
    let produced = element(0x18, &[b"20240101000000Z"]);
    let data = element(0x30, &[&responder, &produced, &element(0x30, &[answers])]);
    let basic = element(0x30, &[&data]);
    let kind = element(6, &[&[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1]]);
    let bytes = element(0x30, &[&kind, &element(4, &[&basic])]);
    element(0x30, &[&element(0x0a, &[&[0]]), &element(0xa0, &[&bytes])])
}

fn single(serial: u8, until: Option<&str>) -> Vec<u8> {
    let hash = element(4, &[&[0; 20]]);
    let of = element(0x30, &[&element(0x30, &[]), &hash, &hash, &element(2, &[&[serial]])]);
    let until = until.map(|until| element(0xa0, &[&element(0x18, &[until.as_bytes()])]));
    let this = element(0x18, &[b"20240101000000Z"]);
    element(0x30, &[&of, &[0x80, 0], &this, &until.unwrap_or_default()])
}

fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = u16::try_from(content.len()).unwrap();
    let [high, low] = length.to_be_bytes();
    let head = match length {
        0..0x80 => vec![tag, low],
        0x80..0x100 => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    [head, content].concat()
}
