//! Kernel settings of a host, written to `/proc/sys/net` by a thread inside the host.
//!
//! A new namespace starts mostly with the kernel's defaults; a few settings, such as
//! `net.ipv4.tcp_congestion_control`, are copied from the machine. In addition every host has:
//!
//! | Setting | Value | Why |
//! | --- | --- | --- |
//! | `net.ipv4.tcp_no_metrics_save` | 1 | a connection must not start from metrics of an earlier connection |
//! | `net.ipv4.tcp_rmem`, `tcp_wmem` | largest value at least 64 MiB | windows that fill long paths: 5 Gb/s × 100 ms is 63 MB |
//! | `net.ipv4.ping_group_range` | everybody | `ping` works without further rights; not where groups are mapped |
//! | `net.ipv6.conf.default.*` | no autoconfiguration | the device sends no packets of its own, and addresses work at once |

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::{HostConfig, network};
use crate::error::LabError;

/// Root of the kernel's settings.
const ROOT: &str = "/proc/sys";
/// Least value of the third number of `tcp_rmem` and `tcp_wmem`, in bytes.
const TCP_BUFFER_MAX: u64 = 64 << 20;
/// Disables the device's own IPv6 packets: no link-local address, no router solicitation and no
/// duplicate address detection.
const IPV6_QUIET: [(&str, &str); 4] = [
    ("net.ipv6.conf.default.addr_gen_mode", "1"),
    ("net.ipv6.conf.default.accept_ra", "0"),
    ("net.ipv6.conf.default.autoconf", "0"),
    ("net.ipv6.conf.default.accept_dad", "0"),
];

/// Writes the settings that a device inherits at its creation.
pub(super) fn before_device(config: &HostConfig) -> Result<(), LabError> {
    let write = |(name, value): (&str, &str)| write(&config.name, name, value);
    if network::has_ipv6(config) {
        IPV6_QUIET.into_iter().try_for_each(write)
    } else if Path::new(ROOT).join("net/ipv6").exists() {
        write(("net.ipv6.conf.default.disable_ipv6", "1"))
    } else {
        Ok(())
    }
}

/// Writes the other settings of every host, and then the configured settings.
pub(super) fn after_device(config: &HostConfig) -> Result<(), LabError> {
    let host = &config.name;
    write(host, "net.ipv4.tcp_no_metrics_save", "1")?;
    for name in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
        let path = path_of(name).map_err(|why| refusal(host, &why))?;
        let now = fs::read_to_string(&path)
            .map_err(LabError::system(format!("read {} in host '{host}'", path.display())))?;
        if let Some(wider) = widened(&now) {
            write(host, name, &wider)?;
        }
    }
    // Without all groups of the machine, as in a user namespace, the kernel refuses this setting.
    // The root user of a namespace may ping anyway.
    let _ = write(host, "net.ipv4.ping_group_range", "0 2147483647");

    config.settings.iter().try_for_each(|(name, value)| write(host, name, value))
}

/// Returns "least default most" with a larger last number; `None` if that number is large enough.
fn widened(buffer: &str) -> Option<String> {
    let mut numbers = buffer.split_whitespace().map(str::parse::<u64>);
    let mut next = || numbers.next()?.ok();
    let (least, default, most) = (next()?, next()?, next()?);
    (most < TCP_BUFFER_MAX).then(|| format!("{least} {default} {TCP_BUFFER_MAX}"))
}

/// Writes one setting of the calling thread's namespace.
fn write(host: &str, name: &str, value: &str) -> Result<(), LabError> {
    let path = path_of(name).map_err(|why| refusal(host, &why))?;
    let mut file =
        OpenOptions::new().write(true).open(&path).map_err(|source| match source.kind() {
            ErrorKind::NotFound => refusal(
                host,
                &format!(
                    "this kernel has no setting '{name}' for a host ({} is missing)",
                    path.display()
                ),
            ),
            _ => LabError::NotAllowed {
                action: format!("change {} in host '{host}'", path.display()),
                source,
                remedy:
                    "/proc/sys must be writable; a container needs `--cap-add SYS_ADMIN --cap-add \
                         NET_ADMIN --device /dev/net/tun`, or `--privileged`"
                        .to_owned(),
            },
        })?;
    file.write_all(value.as_bytes()).map_err(|source| {
        let known = known_values(name);
        refusal(
            host,
            &format!("the kernel refuses '{value}' for the setting '{name}': {source}{known}"),
        )
    })
}

/// Returns the values that the kernel accepts, if available.
fn known_values(name: &str) -> String {
    let available = match name {
        "net.ipv4.tcp_congestion_control" => "net/ipv4/tcp_available_congestion_control",
        _ => return String::new(),
    };
    match fs::read_to_string(Path::new(ROOT).join(available)) {
        Ok(values) => format!(" (it has: {})", values.trim()),
        Err(_) => String::new(),
    }
}

/// Returns the path of a setting. Only network settings are allowed, because all others belong to
/// the whole machine.
fn path_of(name: &str) -> Result<PathBuf, String> {
    let parts: Vec<&str> = name.split('.').collect();
    let is_plain = |part: &&str| !part.is_empty() && !part.contains('/') && !part.contains('\0');
    if parts[0] != "net" || parts.len() < 3 || !parts.iter().all(is_plain) {
        return Err(format!("'{name}' is no setting of a host; they look like 'net.ipv4.tcp_ecn'"));
    }
    Ok([ROOT].iter().chain(&parts).collect())
}

fn refusal(host: &str, why: &str) -> LabError {
    LabError::CannotCarry(format!("host '{host}': {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_maximum_buffer_size_grows_and_it_never_shrinks() {
        assert_eq!(widened("4096\t131072\t6291456\n").unwrap(), "4096 131072 67108864");
        assert_eq!(widened("4096 131072 67108863").unwrap(), "4096 131072 67108864");
        assert_eq!(widened("4096 131072 67108864"), None);
        assert_eq!(widened("4096 131072 99999999999"), None);
        assert_eq!(widened("4096 131072"), None);
        assert_eq!(widened("many"), None);
    }

    #[test]
    fn machine_wide_settings_and_paths_outside_the_tree_are_refused() {
        let path = path_of("net.ipv4.conf.path0.rp_filter").unwrap();
        assert_eq!(path, Path::new("/proc/sys/net/ipv4/conf/path0/rp_filter"));
        for name in [
            "",
            "net",
            "net.ipv4",
            "net.ipv4.",
            "kernel.pid_max",
            "net...kernel.pid_max",
            "net.ipv4./../../kernel/pid_max",
            "/net.ipv4.tcp_ecn",
        ] {
            assert!(path_of(name).unwrap_err().contains("no setting of a host"), "{name}");
        }
    }
}
