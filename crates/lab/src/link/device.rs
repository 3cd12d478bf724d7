//! The two ends of the emulator: TUN devices, or packet sockets where there is no TUN.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, bind, socket};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tun_rs::{DeviceBuilder, SyncDevice};

use super::packet::{HEADER, complete_checksums};
use super::space::Space;
use super::{FAR, FAR6, NEAR, NEAR6, Tuning};

/// How packets are taken from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// A TUN device in each namespace; super-packets are cut by the emulator.
    Tun,
    /// Packet sockets on a pair of virtual cables, for systems without a TUN node.
    PacketSocket,
}

/// One end.
pub(super) enum Device {
    Tun(SyncDevice),
    Socket(OwnedFd),
}

impl Device {
    /// A TUN device in `space`, ready for use.
    pub(super) fn tun(space: &Space, is_near: bool, tuning: &Tuning) -> io::Result<Self> {
        let device = space.run(|| {
            DeviceBuilder::new()
                .name(NAME)
                .inherit_enable_state()
                .with(|builder| {
                    builder.offload(true);
                })
                .build_sync()
        })?;
        let flags = fcntl_getfl(&device)?;
        fcntl_setfl(&device, flags | OFlags::NONBLOCK)?;
        space.ip(&format!("link set dev {NAME} mtu {} txqueuelen 10000", tuning.mtu))?;
        configure(space, is_near, tuning)?;
        Ok(Self::Tun(device))
    }

    /// Both ends as packet sockets in `middle`, with a virtual cable to each namespace.
    pub(super) fn sockets(
        near: &Space,
        far: &Space,
        middle: &Space,
        tuning: &Tuning,
    ) -> io::Result<(Self, Self)> {
        middle.set("net/ipv6/conf/default/disable_ipv6", "1")?;
        let attach = |space: &Space, plug: &'static str, is_near: bool| -> io::Result<Self> {
            let own = if is_near { MAC_NEAR } else { MAC_FAR };
            middle
                .ip(&format!("link add {plug} type veth peer name {NAME} netns {}", space.tid()))?;
            middle.ip(&format!(
                "link set dev {plug} up mtu {} txqueuelen 10000 gso_max_segs 1",
                tuning.mtu
            ))?;
            space.ip(&format!(
                "link set dev {NAME} address {own} mtu {} gso_max_segs 1 gso_max_size {}",
                tuning.mtu, tuning.mtu
            ))?;
            configure(space, is_near, tuning)?;
            let (other, other6, mac) =
                if is_near { (FAR, FAR6, MAC_FAR) } else { (NEAR, NEAR6, MAC_NEAR) };
            for address in [other, other6] {
                space.ip(&format!(
                    "neigh replace {address} lladdr {mac} dev {NAME} nud permanent"
                ))?;
            }
            middle.run(move || packet_socket(plug)).map(Self::Socket)
        };
        Ok((attach(near, "plug0", true)?, attach(far, "plug1", false)?))
    }

    /// Reads one packet behind a virtio-net header.
    pub(super) fn read(&self, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        match self {
            Self::Tun(device) => rustix::io::read(device, buffer),
            Self::Socket(socket) => {
                let length = rustix::io::read(socket, &mut *buffer)?.max(ETHERNET);
                // The Ethernet header is as constant as the cable: it is left out here and put back below.
                buffer.copy_within(SURPLUS..length, 0);
                buffer[..HEADER].fill(0);
                Ok(length - SURPLUS)
            }
        }
    }

    /// Writes one packet that begins with a virtio-net header.
    pub(super) fn write(&self, packet: &[u8], is_to_near: bool) -> rustix::io::Result<()> {
        match self {
            Self::Tun(device) => rustix::io::write(device, packet).map(|_| ()),
            Self::Socket(socket) => {
                let mut frame = Vec::with_capacity(packet.len() + ETHERNET);
                let (to, from) =
                    if is_to_near { (OCTETS_NEAR, OCTETS_FAR) } else { (OCTETS_FAR, OCTETS_NEAR) };
                frame.extend_from_slice(&to);
                frame.extend_from_slice(&from);
                let is_v6 = packet.get(HEADER).is_some_and(|byte| byte >> 4 == 6);
                frame.extend_from_slice(if is_v6 { &[0x86, 0xdd] } else { &[0x08, 0x00] });
                frame.extend_from_slice(&packet[HEADER..]);
                complete_checksums(&mut frame[ETHERNET..]);
                rustix::io::write(socket, &frame).map(|_| ())
            }
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tun(device) => device.as_fd(),
            Self::Socket(socket) => socket.as_fd(),
        }
    }
}

/// Addresses, routes and what else a namespace needs to be a host behind a link.
fn configure(space: &Space, is_near: bool, tuning: &Tuning) -> io::Result<()> {
    let (own, own6, other, other6) =
        if is_near { (NEAR, NEAR6, FAR, FAR6) } else { (FAR, FAR6, NEAR, NEAR6) };
    let congestion = &tuning.congestion_control;
    space.ip(&format!("addr add {own} peer {other} dev {NAME}"))?;
    space.ip(&format!("link set dev {NAME} up"))?;
    space.ip(&format!("route replace {other}/32 dev {NAME} src {own} congctl {congestion}"))?;
    let has_v6 = space.ip(&format!("-6 addr add {own6} peer {other6} dev {NAME} nodad")).is_ok();
    if has_v6 {
        space.ip(&format!(
            "-6 route replace {other6}/128 dev {NAME} src {own6} congctl {congestion}"
        ))?;
    }
    // What one run learned about the path must not help the next.
    space.set("net/ipv4/tcp_no_metrics_save", "1")?;
    space.set("net/ipv4/tcp_ecn", if tuning.ecn { "1" } else { "0" })?;
    // Older kernels know no linear schedule.
    let linear = tuning.syn_schedule.linear_timeouts().to_string();
    match space.set("net/ipv4/tcp_syn_linear_timeouts", &linear) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn packet_socket(device: &str) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)?;
    let addresses = nix::ifaddrs::getifaddrs()?;
    let address: LinkAddr = addresses
        .filter(|it| it.interface_name == device)
        .find_map(|it| it.address?.as_link_addr().copied())
        .ok_or_else(|| io::Error::other("the virtual cable has no link address"))?;
    // This address carries no protocol, so the socket keeps the one it was made with: all.
    bind(std::os::fd::AsRawFd::as_raw_fd(&fd), &address)?;
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&fd, 8 << 20);
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(&fd, 8 << 20);
    Ok(fd)
}

/// The device's name in both namespaces.
pub(super) const NAME: &str = "tow0";
const ETHERNET: usize = 14;
const SURPLUS: usize = ETHERNET - HEADER;
const MAC_NEAR: &str = "02:00:00:00:00:01";
const MAC_FAR: &str = "02:00:00:00:00:02";
const OCTETS_NEAR: [u8; 6] = [2, 0, 0, 0, 0, 1];
const OCTETS_FAR: [u8; 6] = [2, 0, 0, 0, 0, 2];
