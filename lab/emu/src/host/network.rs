//! Network configuration of a host by netlink: links, addresses and routes.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use futures_util::TryStreamExt;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags};
use rtnetlink::packet_route::route::{RouteAttribute, RouteMessage, RouteMetric, RouteScope};
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};

use super::{DEVICE_NAME, HostConfig};
use crate::error::LabError;

/// Queue of the device in frames. The kernel drops frames beyond the queue, so the queue must hold
/// any burst while the router is busy. A frame can be 64 KiB; only queued frames use memory.
const DEVICE_QUEUE_FRAMES: u32 = 20_000;
/// Smallest and largest MTU that the kernel accepts for IPv4 over a TUN device.
const MTU_IPV4: std::ops::RangeInclusive<u32> = 68..=65_535;
/// IPv6 needs links of at least this MTU, in bytes (RFC 8200, section 5).
const MTU_IPV6_MIN: u32 = 1_280;

/// Checks a configuration before any change to the system.
pub(super) fn check(config: &HostConfig) -> Result<(), LabError> {
    let refuse = |why: String| Err(LabError::CannotCarry(format!("host '{}': {why}", config.name)));
    if config.addresses.is_empty() {
        return refuse("it has no address".to_owned());
    }
    for (address, prefix) in &config.addresses {
        let bits: u8 = if address.is_ipv4() { 32 } else { 128 };
        if !(1..=bits).contains(prefix) {
            return refuse(format!("the prefix of {address}/{prefix} is not within 1..={bits}"));
        }
        if address.is_unspecified() || address.is_multicast() || address.is_loopback() {
            return refuse(format!("{address} is no address that a host can have"));
        }
    }
    let mtu = config.mtu;
    let (least, most) = MTU_IPV4.into_inner();
    if !MTU_IPV4.contains(&mtu) {
        return refuse(format!("its MTU of {mtu} bytes is not within {least}..={most}"));
    }
    if has_ipv6(config) && mtu < MTU_IPV6_MIN {
        return refuse(format!("its MTU of {mtu} bytes is less than IPv6's {MTU_IPV6_MIN}"));
    }
    Ok(())
}

/// Whether the host has IPv6.
pub(super) fn has_ipv6(config: &HostConfig) -> bool {
    config.addresses.iter().any(|(address, _)| address.is_ipv6())
}

fn has_ipv4(config: &HostConfig) -> bool {
    config.addresses.iter().any(|(address, _)| address.is_ipv4())
}

/// Brings up loopback and device of the calling thread's namespace.
pub(super) fn configure(config: &HostConfig) -> Result<(), LabError> {
    let fail = |what: String| LabError::system(format!("{what} in host '{}'", config.name));
    with_netlink(async |handle| request(handle, config).await)
        .map_err(|(what, error)| fail(what)(error))
}

/// Sets the default TCP algorithm of the calling thread's host as a metric of the default routes.
/// Needed where the kernel allows the default itself to be set only for the whole machine.
pub(crate) fn prefer_algorithm(name: &str) -> io::Result<()> {
    with_netlink(async |handle| {
        let because = |error| (String::new(), error);
        let index = device_index(handle).await.map_err(because)?;
        for mut route in default_routes(index) {
            let metrics = vec![RouteMetric::CcAlgo(name.to_owned())];
            route.attributes.push(RouteAttribute::Metrics(metrics));
            let added = handle.route().add(route).replace().execute().await;
            added.map_err(because)?;
        }
        Ok(())
    })
    .map_err(|(_, error)| error)
}

/// Sends netlink requests for the calling thread's namespace.
fn with_netlink(
    talk: impl AsyncFnOnce(&Handle) -> Result<(), Refusal>,
) -> Result<(), (String, io::Error)> {
    let fail = |what: &str| {
        let what = what.to_owned();
        move |error| (what, error)
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(fail("prepare netlink"))?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection().map_err(fail("open netlink"))?;
        // The task ends with the runtime at the latest.
        tokio::spawn(connection);
        talk(&handle).await.map_err(|(what, error)| (what, error_of(error)))
    })
}

/// Default routes of IPv4 and IPv6, without gateway: a point-to-point device needs no address
/// resolution.
fn default_routes(index: u32) -> [RouteMessage; 2] {
    let ipv4 = RouteMessageBuilder::<Ipv4Addr>::new().output_interface(index);
    let ipv6 = RouteMessageBuilder::<Ipv6Addr>::new().output_interface(index);
    [ipv4.scope(RouteScope::Link).build(), ipv6.build()]
}

/// The failed request and the kernel's error.
type Refusal = (String, rtnetlink::Error);

async fn request(handle: &Handle, config: &HostConfig) -> Result<(), Refusal> {
    let because = |what: &str| {
        let what = what.to_owned();
        move |error| (what, error)
    };
    let loopback = LinkUnspec::new_with_name("lo").up().build();
    handle.link().set(loopback).execute().await.map_err(because("bring up 'lo'"))?;

    let index = device_index(handle).await.map_err(because("find its device"))?;
    let mtu = config.mtu;
    let sizes = LinkUnspec::new_with_index(index).mtu(mtu).txqueuelen(DEVICE_QUEUE_FRAMES).build();
    let what = format!("set an MTU of {mtu} bytes and a queue of {DEVICE_QUEUE_FRAMES} frames");
    handle.link().set(sizes).execute().await.map_err(because(&what))?;

    for &(address, prefix) in &config.addresses {
        let what = format!("set the address {address}/{prefix}");
        let mut request = handle.address().add(index, address, prefix);
        // No other host can have the address, so duplicate address detection is not needed. Without
        // a prefix route, the default route also applies to neighbours.
        let flags = AddressFlags::Nodad | AddressFlags::Noprefixroute;
        request.message_mut().attributes.push(AddressAttribute::Flags(flags));
        request.execute().await.map_err(because(&what))?;
    }
    let up = LinkUnspec::new_with_index(index).up().build();
    handle.link().set(up).execute().await.map_err(because("bring up its device"))?;

    let [ipv4, ipv6] = default_routes(index);
    if has_ipv4(config) {
        handle.route().add(ipv4).execute().await.map_err(because("set IPv4's default route"))?;
    }
    if has_ipv6(config) {
        handle.route().add(ipv6).execute().await.map_err(because("set IPv6's default route"))?;
    }
    Ok(())
}

async fn device_index(handle: &Handle) -> Result<u32, rtnetlink::Error> {
    let mut links = handle.link().get().match_name(DEVICE_NAME.to_owned()).execute();
    let link = links.try_next().await?.ok_or(rtnetlink::Error::RequestFailed)?;
    Ok(link.header.index)
}

fn error_of(error: rtnetlink::Error) -> io::Error {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io(),
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn config(addresses: &[(&str, u8)], mtu: u32) -> HostConfig {
        let addresses = addresses
            .iter()
            .map(|&(address, prefix)| (address.parse::<IpAddr>().unwrap(), prefix))
            .collect();
        HostConfig { name: "near".to_owned(), addresses, mtu, settings: Vec::new() }
    }

    fn message(addresses: &[(&str, u8)], mtu: u32) -> String {
        check(&config(addresses, mtu)).unwrap_err().to_string()
    }

    #[test]
    fn invalid_host_settings_are_refused_with_name_and_range() {
        assert!(check(&config(&[("10.66.0.1", 24), ("fd66::1", 64)], 1_500)).is_ok());
        assert!(check(&config(&[("10.66.0.1", 32)], 68)).is_ok());

        assert!(message(&[], 1_500).contains("host 'near': it has no address"));
        let prefix = message(&[("10.66.0.1", 33)], 1_500);
        assert!(prefix.contains("10.66.0.1/33 is not within 1..=32"), "{prefix}");
        assert!(message(&[("fd66::1", 0)], 1_500).contains("within 1..=128"));
        for impossible in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "::", "::1", "ff02::1"] {
            let why = message(&[(impossible, 24)], 1_500);
            assert!(why.contains(&format!("{impossible} is no address")), "{why}");
        }
        assert!(message(&[("10.66.0.1", 24)], 67).contains("68..=65535"));
        assert!(message(&[("10.66.0.1", 24)], 65_536).contains("68..=65535"));
        assert!(message(&[("fd66::1", 64)], 1_279).contains("IPv6's 1280"));
        assert!(check(&config(&[("fd66::1", 64)], 1_280)).is_ok());
    }
}
