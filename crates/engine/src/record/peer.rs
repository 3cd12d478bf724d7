//! The TLS of a client's connection: what rules, headers and log lines can say of it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use towpath_proto::tls::{self, AlternativeName, Certificate, CipherSuite, Group, Version};

/// The TLS of a client's connection, once its handshake is over.
#[derive(Clone, Debug, Default)]
pub struct DownstreamTls {
    /// The version that is spoken.
    pub version: Option<Version>,
    /// The cipher suite.
    pub cipher: Option<CipherSuite>,
    /// The group whose keys were exchanged.
    pub group: Option<Group>,
    /// What the client has shown of itself, if it did.
    pub peer: Option<ShownCertificate>,
    /// Those that it sent to lead to a root (DER), its own first.
    pub chain: Vec<Box<[u8]>>,
    /// The one that has signed its own (DER), if they were found good in this handshake.
    pub issuer: Option<Box<[u8]>>,
    /// What it was shown.
    pub own: Option<ShownCertificate>,
    /// The session's id; empty where it has none.
    pub session_id: Box<[u8]>,
    /// The name that the server of this connection is asked for, where this proxy is its client.
    pub asked_name: Option<Box<str>>,
    /// Its certificate was found good in this handshake, not in that of a session which was resumed.
    pub is_validated: bool,
}

/// A certificate, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownCertificate {
    /// The subject, as RFC 2253 writes it.
    pub subject: String,
    /// Who has issued it.
    pub issuer: String,
    /// Its serial number in hexadecimal digits.
    pub serial: String,
    /// SHA-256 of it in hexadecimal digits.
    pub fingerprint: String,
    /// Alternative names that are URIs.
    pub uris: Vec<Box<[u8]>>,
    /// Those that are domains.
    pub domains: Vec<Box<[u8]>>,
    /// Those that are mail addresses.
    pub emails: Vec<Box<[u8]>>,
    /// Those that are IP addresses, as text.
    pub addresses: Vec<Box<[u8]>>,
    /// Those of other kinds, as text.
    pub others: Vec<Box<[u8]>>,
    /// The object identifiers of its extensions, with a space between two.
    pub oids: Box<str>,
    /// First and last second at which it is valid, since 1970.
    pub validity: (i64, i64),
}

impl PartialEq for DownstreamTls {
    fn eq(&self, other: &Self) -> bool {
        let group = |it: &Self| it.group.map(Group::name);
        let negotiated = |it: &Self| (it.version, it.cipher, it.is_validated);
        negotiated(self) == negotiated(other)
            && (&self.session_id, &self.asked_name) == (&other.session_id, &other.asked_name)
            && group(self) == group(other)
            && (&self.peer, &self.own) == (&other.peer, &other.own)
            && (&self.chain, &self.issuer) == (&other.chain, &other.issuer)
    }
}

impl Eq for DownstreamTls {}

impl DownstreamTls {
    /// What is known of an established connection.
    pub(crate) fn of(layer: &tls::Layer) -> Self {
        Self {
            version: layer.version(),
            cipher: layer.cipher_suite(),
            group: layer.group(),
            peer: layer.peer_certificate().and_then(ShownCertificate::read),
            chain: layer.peer_certificates().map(Box::from).collect(),
            issuer: layer.peer_issuer().map(Box::from),
            own: layer.own_certificate().and_then(ShownCertificate::read),
            session_id: layer.session_id().unwrap_or_default().into(),
            asked_name: layer.asked_name().map(Box::from),
            is_validated: layer.is_peer_validated(),
        }
    }

    /// SHA-256 of each certificate that the client has sent, in hexadecimal digits.
    pub(crate) fn chain_fingerprints(&self) -> Vec<String> {
        self.chain.iter().map(|der| Certificate::fingerprint(der)).collect()
    }

    /// SHA-1 of each.
    pub(crate) fn old_fingerprints(&self) -> Vec<String> {
        self.chain.iter().map(|der| Certificate::old_fingerprint(der)).collect()
    }

    /// The serial number of each.
    pub(crate) fn chain_serials(&self) -> Vec<String> {
        let parsed = self.chain.iter().filter_map(|der| Certificate::parse(der));
        parsed.map(|certificate| certificate.serial()).collect()
    }

    /// SHA-256 of the certificate that has signed the client's.
    pub(crate) fn issuer_fingerprint(&self) -> Option<String> {
        self.issuer.as_deref().map(Certificate::fingerprint)
    }

    /// Its serial number.
    pub(crate) fn issuer_serial(&self) -> Option<String> {
        Some(Certificate::parse(self.issuer.as_deref()?)?.serial())
    }

    /// The client's certificate as it stands in headers and lines: PEM, escaped as in a URL.
    pub(crate) fn write_peer_pem(&self, out: &mut Vec<u8>) {
        for der in self.chain.iter().take(1) {
            write_pem(out, der);
        }
    }

    /// The same of all certificates that it has sent.
    pub(crate) fn write_chain_pem(&self, out: &mut Vec<u8>) {
        for der in &self.chain {
            write_pem(out, der);
        }
    }
}

impl ShownCertificate {
    /// Reads a certificate (DER).
    pub(crate) fn read(der: &[u8]) -> Option<Self> {
        let certificate = Certificate::parse(der)?;
        let mut this = Self {
            subject: certificate.subject(),
            issuer: certificate.issuer(),
            serial: certificate.serial(),
            fingerprint: Certificate::fingerprint(der),
            oids: certificate.extension_ids().collect::<Vec<_>>().join(" ").into(),
            validity: certificate.validity(),
            ..Self::default()
        };
        for name in certificate.alternative_names() {
            let names = match name {
                AlternativeName::Uri(_) => &mut this.uris,
                AlternativeName::Dns(_) => &mut this.domains,
                AlternativeName::Email(_) => &mut this.emails,
                AlternativeName::Ip(_) => &mut this.addresses,
                AlternativeName::Other { .. } => &mut this.others,
            };
            let name: Box<[u8]> = name.text().into();
            // It could end a header or a line before its time; no URI, domain or address has such (RFC 5280 §4.2.1.6).
            if name.iter().all(|byte| matches!(byte, b' '..=b'~')) {
                names.push(name);
            }
        }
        Some(this)
    }
}

/// Appends PEM (RFC 7468) with what stands for something else in a URL escaped.
fn write_pem(out: &mut Vec<u8>, der: &[u8]) {
    out.extend_from_slice(b"-----BEGIN%20CERTIFICATE-----%0A");
    for line in STANDARD.encode(der).as_bytes().chunks(PEM_LINE) {
        for &byte in line {
            match byte {
                b'+' => out.extend_from_slice(b"%2B"),
                b'/' => out.extend_from_slice(b"%2F"),
                b'=' => out.extend_from_slice(b"%3D"),
                _ => out.push(byte),
            }
        }
        out.extend_from_slice(b"%0A");
    }
    out.extend_from_slice(b"-----END%20CERTIFICATE-----%0A");
}

/// How long the lines of PEM are.
const PEM_LINE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pem_is_escaped_as_in_a_url() {
        let tls = |chain: &[&[u8]]| DownstreamTls {
            chain: chain.iter().map(|der| Box::from(*der)).collect(),
            ..DownstreamTls::default()
        };
        let mut out = Vec::new();
        tls(&[]).write_peer_pem(&mut out);
        assert_eq!(out, b"");
        let both = tls(&[&[0xff, 0xfb, 0xfe], &[0]]);
        both.write_peer_pem(&mut out);
        let first = "-----BEGIN%20CERTIFICATE-----%0A%2F%2Fv%2B%0A-----END%20CERTIFICATE-----%0A";
        assert_eq!(String::from_utf8(std::mem::take(&mut out)).unwrap(), first);
        both.write_chain_pem(&mut out);
        let second = "-----BEGIN%20CERTIFICATE-----%0AAA%3D%3D%0A-----END%20CERTIFICATE-----%0A";
        assert_eq!(String::from_utf8(out).unwrap(), format!("{first}{second}"));
        let mut long = Vec::new();
        write_pem(&mut long, &[0; 49]);
        assert_eq!(long.split(|byte| *byte == b'%').count(), 9, "two lines");
    }
}
