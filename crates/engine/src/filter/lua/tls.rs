//! `streamInfo():downstreamSslConnection()`, `connection():ssl()`: the TLS of a client's connection.

use std::sync::Arc;

use mlua::{Lua, Table, UserData, UserDataMethods};
use towpath_proto::tls::{Certificate, CipherSuite, Version};

use crate::record::{DownstreamTls, ShownCertificate};

pub(super) struct Tls(pub(super) Arc<DownstreamTls>);

/// `parsedSubjectPeerCertificate()`.
struct Subject {
    common_name: String,
    organizations: Vec<String>,
}

impl Tls {
    fn peer<R: Default>(&self, read: impl FnOnce(&ShownCertificate) -> R) -> R {
        self.0.peer.as_ref().map(read).unwrap_or_default()
    }

    fn own<R: Default>(&self, read: impl FnOnce(&ShownCertificate) -> R) -> R {
        self.0.own.as_ref().map(read).unwrap_or_default()
    }
}

impl UserData for Tls {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("peerCertificatePresented", |_, this, ()| Ok(this.0.peer.is_some()));
        methods.add_method("peerCertificateValidated", |_, this, ()| Ok(this.0.is_validated));
        methods.add_method("uriSanLocalCertificate", |lua, this, ()| {
            list(lua, this.own(|it| it.uris.clone()))
        });
        methods.add_method("uriSanPeerCertificate", |lua, this, ()| {
            list(lua, this.peer(|it| it.uris.clone()))
        });
        methods.add_method("dnsSansLocalCertificate", |lua, this, ()| {
            list(lua, this.own(|it| it.domains.clone()))
        });
        methods.add_method("dnsSansPeerCertificate", |lua, this, ()| {
            list(lua, this.peer(|it| it.domains.clone()))
        });
        methods.add_method("sha256PeerCertificateDigest", |_, this, ()| {
            Ok(this.peer(|it| it.fingerprint.clone()))
        });
        methods.add_method("serialNumberPeerCertificate", |_, this, ()| {
            Ok(this.peer(|it| it.serial.clone()))
        });
        methods.add_method("issuerPeerCertificate", |_, this, ()| {
            Ok(this.peer(|it| it.issuer.clone()))
        });
        methods.add_method("oidsPeerCertificate", |lua, this, ()| {
            oids(lua, &this.peer(|it| it.oids.clone()))
        });
        methods.add_method("oidsLocalCertificate", |lua, this, ()| {
            oids(lua, &this.own(|it| it.oids.clone()))
        });
        methods.add_method("sha256PeerCertificateIssuerDigest", |_, this, ()| {
            Ok(this.0.issuer_fingerprint().unwrap_or_default())
        });
        methods.add_method("serialNumberPeerCertificateIssuer", |_, this, ()| {
            Ok(this.0.issuer_serial().unwrap_or_default())
        });
        methods.add_method("sessionId", |_, this, ()| {
            Ok(this.0.session_id.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
        });
        methods.add_method("subjectPeerCertificate", |_, this, ()| {
            Ok(this.peer(|it| it.subject.clone()))
        });
        methods.add_method("subjectLocalCertificate", |_, this, ()| {
            Ok(this.own(|it| it.subject.clone()))
        });
        methods.add_method("parsedSubjectPeerCertificate", |_, this, ()| {
            let certificate = this.0.chain.first().and_then(|der| Certificate::parse(der));
            Ok(certificate.map(|it| Subject {
                common_name: it.common_names().into_iter().next().unwrap_or_default(),
                organizations: it.organizations(),
            }))
        });
        methods.add_method("validFromPeerCertificate", |_, this, ()| {
            Ok(this.peer(|it| it.validity.0))
        });
        methods.add_method("expirationPeerCertificate", |_, this, ()| {
            Ok(this.peer(|it| it.validity.1))
        });
        methods.add_method("ciphersuiteId", |_, this, ()| {
            let number = this.0.cipher.map_or(NO_CIPHER, CipherSuite::number);
            Ok(format!("0x{number:04x}"))
        });
        methods.add_method("ciphersuiteString", |_, this, ()| {
            Ok(this.0.cipher.map_or("", CipherSuite::name))
        });
        methods
            .add_method("tlsVersion", |_, this, ()| Ok(this.0.version.map_or("", Version::name)));
        methods.add_method("urlEncodedPemEncodedPeerCertificate", |lua, this, ()| {
            let mut pem = Vec::new();
            this.0.write_peer_pem(&mut pem);
            lua.create_string(pem)
        });
        methods.add_method("urlEncodedPemEncodedPeerCertificateChain", |lua, this, ()| {
            let mut pem = Vec::new();
            this.0.write_chain_pem(&mut pem);
            lua.create_string(pem)
        });
    }
}

impl UserData for Subject {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("commonName", |_, this, ()| Ok(this.common_name.clone()));
        methods.add_method("organizationName", |lua, this, ()| {
            lua.create_sequence_from(this.organizations.iter().map(String::as_str))
        });
    }
}

fn oids(lua: &Lua, joined: &str) -> mlua::Result<Table> {
    lua.create_sequence_from(joined.split_ascii_whitespace())
}

fn list(lua: &Lua, texts: Vec<Box<[u8]>>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for text in texts {
        table.push(lua.create_string(text)?)?;
    }
    Ok(table)
}

/// As Envoy has it where there is none.
const NO_CIPHER: u16 = 0xffff;
