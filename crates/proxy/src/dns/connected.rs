//! Sockets to name servers that learn of a refusal.
//!
//! The kernel reports an ICMP "port unreachable" to connected UDP sockets only, and the resolver's own are not
//! connected: a server that is not there would look like one that is slow.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hickory_resolver::net::runtime::{DnsUdpSocket, RuntimeProvider, TokioRuntimeProvider};
use tokio::io::{Interest, ReadBuf};
use tokio::net::UdpSocket;

/// Tokio's, but for UDP.
#[derive(Clone, Default)]
pub(super) struct ConnectedRuntime(TokioRuntimeProvider);

impl RuntimeProvider for ConnectedRuntime {
    type Handle = <TokioRuntimeProvider as RuntimeProvider>::Handle;
    type Timer = <TokioRuntimeProvider as RuntimeProvider>::Timer;
    type Udp = Connected;
    type Tcp = <TokioRuntimeProvider as RuntimeProvider>::Tcp;

    fn create_handle(&self) -> Self::Handle {
        self.0.create_handle()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        local: Option<SocketAddr>,
        timeout: Option<Duration>,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<Self::Tcp>>>> {
        self.0.connect_tcp(server, local, timeout)
    }

    fn bind_udp(
        &self,
        local: SocketAddr,
        server: SocketAddr,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<Self::Udp>>>> {
        Box::pin(async move {
            let socket = UdpSocket::bind(local).await?;
            socket.connect(server).await?;
            Ok(Connected { socket, server })
        })
    }
}

/// A UDP socket that is connected to a name server.
pub(super) struct Connected {
    socket: UdpSocket,
    server: SocketAddr,
}

impl Connected {
    /// What arrives next. Tokio's own functions do not wake up for an error that comes alone.
    async fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        loop {
            let ready = self.socket.ready(Interest::READABLE.add(Interest::ERROR)).await?;
            let received = match ready.is_error() {
                true => self.socket.try_io(Interest::ERROR, || self.error()),
                false => self.socket.try_recv(buffer),
            };
            match received {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => return Ok((received?, self.server)),
            }
        }
    }

    fn error(&self) -> io::Result<usize> {
        Err(self.socket.take_error()?.unwrap_or_else(|| io::ErrorKind::WouldBlock.into()))
    }
}

impl DnsUdpSocket for Connected {
    type Time = <UdpSocket as DnsUdpSocket>::Time;

    fn poll_recv_from(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(self.socket.poll_recv(context, &mut buffer))?;
        Poll::Ready(Ok((buffer.filled().len(), self.server)))
    }

    fn recv_from<'socket, 'buffer, 'future>(
        &'socket self,
        buffer: &'buffer mut [u8],
    ) -> Pin<Box<dyn Future<Output = io::Result<(usize, SocketAddr)>> + Send + 'future>>
    where
        'socket: 'future,
        'buffer: 'future,
        Self: 'future,
    {
        Box::pin(self.receive(buffer))
    }

    /// `target` is the server always. Some systems refuse an address for a socket that is connected.
    fn poll_send_to(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        _target: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.socket.poll_send(context, bytes)
    }
}
