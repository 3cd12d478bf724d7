//! A certificate authority of a test's own, and servers that it vouches for.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use rcgen::{Certificate, CertificateParams, CertifiedIssuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::server::read_head;

pub(crate) struct Authority {
    pub(crate) issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self { issuer: CertifiedIssuer::self_signed(params, key).unwrap() }
    }

    /// A certificate for a name, and its key.
    pub(crate) fn sign(&self, name: &str) -> (Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// What a server of that name shows, to clients that show nothing.
    pub(crate) fn config(&self, name: &str) -> Arc<ServerConfig> {
        let (leaf, key) = self.sign(name);
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let builder = ServerConfig::builder().with_no_client_auth();
        builder.with_single_cert(vec![leaf.der().clone()], key).unwrap().into()
    }

    /// Serves one answer for each request, to a client that trusts us.
    pub(crate) fn serve(&self, name: &str) -> SocketAddr {
        self.serve_at(name, SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    pub(crate) fn serve_at(&self, name: &str, address: SocketAddr) -> SocketAddr {
        let config = self.config(name);
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                let mut stream = StreamOwned::new(connection, stream.unwrap());
                std::thread::spawn(move || while tell(&mut stream).is_some() {});
            }
        });
        address
    }
}

fn tell(stream: &mut (impl Read + Write)) -> Option<()> {
    read_head(stream)?;
    let head =
        "HTTP/1.1 200 OK\r\ncontent-length: 6\r\nstrict-transport-security: max-age=60\r\n\r\n";
    stream.write_all(format!("{head}secret").as_bytes()).ok()?;
    stream.flush().ok()
}
