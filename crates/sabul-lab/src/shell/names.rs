//! Names of the hosts for everything that asks the system: an `/etc/hosts` of the lab's own.

use std::fs;
use std::io;
use std::path::Path;

use nix::mount::{MsFlags, mount, umount};

use super::Place;

/// Where the system looks for names first.
const HOSTS: &str = "/etc/hosts";

/// Puts a file with the names over `/etc/hosts`, for this mount namespace only.
///
/// The file is in a file system of its own, in memory, that covers the temporary directory while the
/// file is made, so nobody else must be at work there. It then lives as long as the mount, and nothing
/// is left of it afterwards.
pub(super) fn publish(places: &[Place]) -> io::Result<()> {
    let text = with_names(&fs::read_to_string(HOSTS)?, places);
    let cover = std::env::temp_dir();
    let none = None::<&str>;
    mount(Some("hosts"), &cover, Some("tmpfs"), MsFlags::MS_NOEXEC, none)?;
    let outcome = publish_from(&cover.join("hosts"), &text);
    umount(&cover)?;
    outcome
}

fn publish_from(file: &Path, text: &str) -> io::Result<()> {
    fs::write(file, text)?;
    let none = None::<&str>;
    Ok(mount(Some(file), HOSTS, none, MsFlags::MS_BIND, none)?)
}

fn with_names(before: &str, places: &[Place]) -> String {
    let lines = places.iter().flat_map(|place| {
        [format!("{} {}\n", place.ipv4(), place.name), format!("{} {}\n", place.ipv6(), place.name)]
    });
    let gap = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
    // What comes first wins: they are before names of the machine's own.
    lines.chain([before.to_owned(), gap.to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{FAR, NEAR};
    use super::*;

    #[test]
    fn the_names_come_first_and_nothing_else_is_lost() {
        let expected = "10.66.0.1 near\nfd66::1 near\n10.66.0.2 far\nfd66::2 far\n127.0.0.1 here\n";
        assert_eq!(with_names("127.0.0.1 here\n", &[NEAR, FAR]), expected);
        assert_eq!(with_names("127.0.0.1 here", &[NEAR, FAR]), expected);
        assert_eq!(with_names("", &[FAR]), "10.66.0.2 far\nfd66::2 far\n");
    }
}
