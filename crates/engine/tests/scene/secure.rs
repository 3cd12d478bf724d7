//! TLS around a server that knows nothing of it, and certificates for both sides.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part of the scene")]

use std::collections::{HashMap, VecDeque};
use std::io::{Read as _, Write as _};
use std::sync::Arc;

use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection};
use towpath_engine::message::Message;
use towpath_engine::snapshot::tls::{AskedName, UpstreamTls};
use towpath_proto::tls::{ClientSettings, Names, Roots, ServerName, Trust};
use towpath_proto::{Close, ConnectionId, Input, Instant, Machine, Output};

/// An authority, and a server that it vouches for.
pub struct Certificates {
    authority: String,
    server: Arc<ServerConfig>,
}

impl Certificates {
    pub fn new() -> Self {
        let (key, mut own) = (KeyPair::generate().unwrap(), params(&[]));
        own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = own.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(own, key);
        let key = KeyPair::generate().unwrap();
        let leaf = params(&["app.test"]).signed_by(&key, &issuer).unwrap();
        let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let server = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], private)
            .unwrap();
        Self { authority, server: Arc::new(server) }
    }

    /// The same for a server that speaks this protocol.
    pub fn speaking(&self, alpn: &[u8]) -> Self {
        let mut server = ServerConfig::clone(&self.server);
        server.alpn_protocols = vec![alpn.to_vec()];
        Self { authority: self.authority.clone(), server: Arc::new(server) }
    }

    /// What a cluster needs to speak to that server, asking for this name.
    pub fn upstream(&self, name: &str) -> UpstreamTls {
        self.upstream_offering(name, &[])
    }

    /// The same with protocols to choose from.
    pub fn upstream_offering(&self, name: &str, alpn: &[&[u8]]) -> UpstreamTls {
        let roots = Some(Roots::from_pem(self.authority.as_bytes()).unwrap());
        let trust = Trust { roots, names: Names::Server, ..Trust::default() };
        let alpn = alpn.iter().map(|name| name.to_vec()).collect();
        let settings = ClientSettings { trust, alpn, ..ClientSettings::default() };
        UpstreamTls {
            template: settings.build().unwrap(),
            name: AskedName::Fixed(ServerName::new(name).unwrap()),
        }
    }

    /// Puts TLS around a server.
    pub fn around<M>(&self, inner: M, goodbye: Goodbye) -> Secure<M> {
        let config = Arc::clone(&self.server);
        Secure { inner, config, goodbye, connections: HashMap::new(), outputs: VecDeque::new() }
    }
}

fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    CertificateParams::new(names).unwrap()
}

/// How a server ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goodbye {
    /// With `close_notify`.
    Said,
    /// With a bare FIN, as if a party on the path had cut the connection.
    Unsaid,
}

/// A server under TLS.
pub struct Secure<M> {
    inner: M,
    config: Arc<ServerConfig>,
    goodbye: Goodbye,
    connections: HashMap<ConnectionId, Server>,
    outputs: VecDeque<Output<Message>>,
}

struct Server {
    tls: ServerConnection,
    ended: bool,
}

impl<M: Machine<Message = Message>> Machine for Secure<M> {
    type Message = Message;

    fn handle(&mut self, input: Input<Message>, now: Instant) {
        match input {
            Input::Accepted { connection, .. } => {
                let tls = ServerConnection::new(Arc::clone(&self.config)).unwrap();
                self.connections.insert(connection, Server { tls, ended: false });
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
                    if let Some(server) = self.connections.get_mut(&connection) {
                        server.tls.set_buffer_limit(None);
                        server.tls.writer().write_all(&chunk).unwrap();
                    }
                    self.flush(connection);
                }
                Output::Close { connection, how } => {
                    if let Some(server) = self.connections.get_mut(&connection)
                        && how != Close::Abort
                        && self.goodbye == Goodbye::Said
                    {
                        server.tls.send_close_notify();
                        self.flush(connection);
                    }
                    self.outputs.push_back(Output::Close { connection, how });
                }
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
        if !plain.is_empty() {
            self.inner.handle(Input::Received { connection, chunk: plain.into() }, now);
        }
        let Some(server) = self.connections.get_mut(&connection) else { return };
        if (ended || broken) && !std::mem::replace(&mut server.ended, true) {
            self.inner.handle(Input::Ended { connection }, now);
        }
    }

    fn flush(&mut self, connection: ConnectionId) {
        let Some(server) = self.connections.get_mut(&connection) else { return };
        let mut records = Vec::new();
        while server.tls.wants_write() {
            server.tls.write_tls(&mut records).unwrap();
        }
        if !records.is_empty() {
            let chunk = Bytes::from(records);
            self.outputs.push_back(Output::Send { connection, chunk });
        }
    }
}
