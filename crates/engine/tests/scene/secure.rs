//! TLS around servers and clients that know nothing of it, and certificates for both sides.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part of the scene")]

use std::collections::{HashMap, VecDeque};
use std::io::{Read as _, Write as _};
use std::sync::Arc;

use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use towpath_engine::message::Message;
use towpath_engine::snapshot::DownstreamTls;
use towpath_engine::snapshot::tls::{AskedName, UpstreamTls};
use towpath_proto::tls::{
    ClientSettings, Identity, Names, Roots, ServerName, ServerSettings, Trust,
};
use towpath_proto::{Close, ConnectionId, Input, Instant, Machine, Output};

/// An authority, and a server that it vouches for.
pub struct Certificates {
    authority: String,
    /// Certificate and key of `app.test`.
    leaf: (String, String),
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl Certificates {
    pub fn new() -> Self {
        let (key, mut own) = (KeyPair::generate().unwrap(), params(&[]));
        own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = own.self_signed(&key).unwrap();
        let issuer = Issuer::new(own, key);
        let key = KeyPair::generate().unwrap();
        let leaf = params(&["app.test"]).signed_by(&key, &issuer).unwrap();
        let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], private)
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            authority: authority.pem(),
            leaf: (leaf.pem(), key.serialize_pem()),
            server: Arc::new(server),
            client: Arc::new(client),
        }
    }

    /// The same for peers that speak this protocol.
    pub fn speaking(&self, alpn: &[u8]) -> Self {
        let (mut server, mut client) =
            (ServerConfig::clone(&self.server), ClientConfig::clone(&self.client));
        server.alpn_protocols = vec![alpn.to_vec()];
        client.alpn_protocols = vec![alpn.to_vec()];
        Self {
            authority: self.authority.clone(),
            leaf: self.leaf.clone(),
            server: Arc::new(server),
            client: Arc::new(client),
        }
    }

    /// What a cluster needs to speak to that server, asking for this name.
    pub fn upstream(&self, name: &str) -> Box<UpstreamTls> {
        self.upstream_offering(name, &[])
    }

    /// The same with protocols to choose from.
    pub fn upstream_offering(&self, name: &str, alpn: &[&[u8]]) -> Box<UpstreamTls> {
        let roots = Some(Roots::from_pem(self.authority.as_bytes()).unwrap());
        let trust = Trust { roots, names: Names::Server, ..Trust::default() };
        let alpn = alpn.iter().map(|name| name.to_vec()).collect();
        let settings = ClientSettings { trust, alpn, ..ClientSettings::default() };
        Box::new(UpstreamTls {
            template: Some(settings.build().unwrap()),
            shape: None,
            certificates: Default::default(),
            name: AskedName::Fixed(ServerName::new(name).unwrap()),
        })
    }

    /// What a filter chain needs to be that server.
    pub fn downstream(&self, alpn: &[&[u8]]) -> DownstreamTls {
        let (certificate, key) = &self.leaf;
        let identity = Identity::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap();
        let alpn = alpn.iter().map(|name| name.to_vec()).collect();
        let settings =
            ServerSettings { alpn, identities: vec![identity], ..ServerSettings::default() };
        DownstreamTls {
            template: Some(settings.build().unwrap()),
            certificates: Default::default(),
        }
    }

    /// Puts TLS around a server, or a client of `app.test`.
    pub fn around<M>(&self, inner: M, close_notify: CloseNotify) -> Secure<M> {
        Secure {
            inner,
            server: Arc::clone(&self.server),
            client: Arc::clone(&self.client),
            close_notify,
            connections: HashMap::new(),
            outputs: VecDeque::new(),
        }
    }
}

fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    CertificateParams::new(names).unwrap()
}

/// How a peer ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseNotify {
    /// With `close_notify`.
    Sent,
    /// With a bare FIN, as if a party on the path had cut the connection.
    Missing,
}

/// A server or a client under TLS.
pub struct Secure<M> {
    inner: M,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    close_notify: CloseNotify,
    connections: HashMap<ConnectionId, Secured>,
    outputs: VecDeque<Output<Message>>,
}

struct Secured {
    tls: rustls::Connection,
    ended: bool,
    /// What is to be done when the handshake is over.
    close: Option<Close>,
}

impl Secured {
    fn new(tls: impl Into<rustls::Connection>) -> Self {
        Self { tls: tls.into(), ended: false, close: None }
    }
}

impl<M: Machine<Message = Message>> Machine for Secure<M> {
    type Message = Message;

    fn handle(&mut self, input: Input<Message>, now: Instant) {
        match input {
            Input::Accepted { connection, .. } => {
                let tls = ServerConnection::new(Arc::clone(&self.server)).unwrap();
                self.connections.insert(connection, Secured::new(tls));
                self.inner.handle(input, now);
            }
            Input::Connected { connection, .. } => {
                let name = "app.test".try_into().unwrap();
                let tls = ClientConnection::new(Arc::clone(&self.client), name).unwrap();
                self.connections.insert(connection, Secured::new(tls));
                self.flush(connection);
                self.inner.handle(input, now);
            }
            Input::Received { connection, chunk } => self.receive(connection, &chunk, now),
            Input::Ended { connection } => {
                let server = self.connections.get_mut(&connection);
                if server.is_some_and(|server| !std::mem::replace(&mut server.ended, true)) {
                    self.inner.handle(input, now);
                }
            }
            Input::Closed { connection, .. } => {
                self.connections.remove(&connection);
                self.inner.handle(input, now);
            }
            other => self.inner.handle(other, now),
        }
    }

    fn poll(&mut self, now: Instant) -> Output<Message> {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return output;
            }
            match self.inner.poll(now) {
                Output::Send { connection, chunk } => {
                    if let Some(peer) = self.connections.get_mut(&connection) {
                        peer.tls.set_buffer_limit(None);
                        peer.tls.writer().write_all(&chunk).unwrap();
                    }
                    self.flush(connection);
                }
                Output::Close { connection, how } => self.close(connection, how),
                other => return other,
            }
        }
    }
}

impl<M: Machine<Message = Message>> Secure<M> {
    fn receive(&mut self, connection: ConnectionId, mut records: &[u8], now: Instant) {
        let Some(server) = self.connections.get_mut(&connection) else { return };
        let (mut plain, mut ended, mut broken) = (Vec::new(), false, false);
        while !records.is_empty() && !broken {
            server.tls.read_tls(&mut records).unwrap();
            let Ok(state) = server.tls.process_new_packets() else {
                broken = true;
                break;
            };
            let mut piece = vec![0; state.plaintext_bytes_to_read()];
            server.tls.reader().read_exact(&mut piece).unwrap();
            plain.extend(piece);
            ended |= state.peer_has_closed();
        }
        self.flush(connection);
        let close = self.connections.get_mut(&connection).filter(|peer| !peer.tls.is_handshaking());
        if let Some(how) = close.and_then(|peer| peer.close.take()) {
            self.close(connection, how);
        }
        if !plain.is_empty() {
            self.inner.handle(Input::Received { connection, chunk: plain.into() }, now);
        }
        let Some(server) = self.connections.get_mut(&connection) else { return };
        if (ended || broken) && !std::mem::replace(&mut server.ended, true) {
            self.inner.handle(Input::Ended { connection }, now);
        }
    }

    fn close(&mut self, connection: ConnectionId, how: Close) {
        if let Some(peer) = self.connections.get_mut(&connection)
            && how != Close::Abort
        {
            // What it has sent leaves when the handshake is over.
            if peer.tls.is_handshaking() && how == Close::Half {
                peer.close = Some(how);
                return;
            }
            if self.close_notify == CloseNotify::Sent {
                peer.tls.send_close_notify();
                self.flush(connection);
            }
        }
        self.outputs.push_back(Output::Close { connection, how });
    }

    fn flush(&mut self, connection: ConnectionId) {
        let Some(peer) = self.connections.get_mut(&connection) else { return };
        let mut records = Vec::new();
        while peer.tls.wants_write() {
            peer.tls.write_tls(&mut records).unwrap();
        }
        if !records.is_empty() {
            let chunk = Bytes::from(records);
            self.outputs.push_back(Output::Send { connection, chunk });
        }
    }
}
