//! A connection to a control plane under TLS, for a codec that reads and writes bytes.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use towpath_proto::Address;
use towpath_proto::tls::{ClientTemplate, Clock, Layer, Offer, ServerName};

/// What is spoken inside.
const ALPN: [&[u8]; 1] = [b"h2"];
/// Read at once.
const CHUNK: usize = 16 * 1024;

/// A socket and its TLS, whose handshake is over.
pub(super) struct Secured<S> {
    socket: S,
    layer: Layer,
    /// What the peer said and was not read yet.
    plain: BytesMut,
    /// Records that the socket has not taken yet.
    records: BytesMut,
    has_ended: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Secured<S> {
    /// Makes the handshake.
    pub(super) async fn connect(
        mut socket: S,
        template: &ClientTemplate,
        name: &ServerName,
        (local, remote): (&Address, &Address),
    ) -> Result<Self, String> {
        let clock = Clock::default();
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        clock.set(since.unwrap_or_default());
        let client = template.client(&clock);
        let failed = |error: io::Error| error.to_string();
        let fault = |fault| format!("TLS: {fault}");
        let client = client.between(local, remote);
        let mut layer = client.connect_offering(Offer::Otherwise(&ALPN), name).map_err(fault)?;
        let mut plain = BytesMut::new();
        let mut chunk = vec![0; CHUNK];
        loop {
            socket.write_all(&layer.take_output()).await.map_err(failed)?;
            if layer.is_established() {
                break;
            }
            let count = socket.read(&mut chunk).await.map_err(failed)?;
            if count == 0 {
                return Err("TLS: ended in the handshake".to_owned());
            }
            if let Err(error) = layer.receive(&chunk[..count], &mut plain) {
                // The alert, if it still gets there.
                let _ = socket.write_all(&layer.take_output()).await;
                return Err(fault(error));
            }
        }
        let has_ended = layer.is_ended();
        Ok(Self { socket, layer, plain, records: BytesMut::new(), has_ended })
    }

    /// Hands the socket all records.
    fn send_records(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.records.is_empty() {
            let count = ready!(Pin::new(&mut self.socket).poll_write(context, &self.records))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.records.advance(count);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Secured<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if !this.plain.is_empty() {
                let count = this.plain.len().min(buffer.remaining());
                buffer.put_slice(&this.plain[..count]);
                this.plain.advance(count);
                return Poll::Ready(Ok(()));
            }
            if this.has_ended {
                return Poll::Ready(Ok(()));
            }
            let mut chunk = [MaybeUninit::uninit(); CHUNK];
            let mut chunk = ReadBuf::uninit(&mut chunk);
            ready!(Pin::new(&mut this.socket).poll_read(context, &mut chunk))?;
            let received = this.layer.receive(chunk.filled(), &mut this.plain);
            this.has_ended = chunk.filled().is_empty() || this.layer.is_ended();
            this.records.extend_from_slice(&this.layer.take_output());
            // What it does not take at once goes with the next write.
            if let Poll::Ready(Err(error)) = this.send_records(context) {
                return Poll::Ready(Err(error));
            }
            received.map_err(io::Error::other)?;
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Secured<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(this.send_records(context))?;
        let piece = &bytes[..bytes.len().min(CHUNK)];
        this.layer.seal(piece, &mut this.records).map_err(io::Error::other)?;
        match this.send_records(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(piece.len())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.send_records(context))?;
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.layer.send_close_notify(&mut this.records);
        ready!(this.send_records(context))?;
        Pin::new(&mut this.socket).poll_shutdown(context)
    }
}
