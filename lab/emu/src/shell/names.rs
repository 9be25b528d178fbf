//! Host names for the system's resolver: a private `/etc/hosts` of the lab.

use std::fs;
use std::io;
use std::path::Path;

use nix::mount::{MsFlags, mount, umount};

use super::PathEnd;

/// The resolver's first source of names.
const HOSTS: &str = "/etc/hosts";

/// Mounts a file with the names over `/etc/hosts`, in this mount namespace only.
///
/// The file is created in a temporary tmpfs that covers the temporary directory meanwhile, so no
/// other thread may use that directory. Afterwards the file exists as long as the mount, and
/// nothing remains later.
pub(super) fn publish(ends: &[PathEnd]) -> io::Result<()> {
    let text = with_names(&fs::read_to_string(HOSTS)?, ends);
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

fn with_names(before: &str, ends: &[PathEnd]) -> String {
    let lines = ends.iter().flat_map(|end| {
        [format!("{} {}\n", end.ipv4(), end.name), format!("{} {}\n", end.ipv6(), end.name)]
    });
    let gap = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
    // The first match counts: the lab's names precede names of the machine.
    lines.chain([before.to_owned(), gap.to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{FAR, NEAR};
    use super::*;

    #[test]
    fn host_names_are_prepended_and_the_hosts_file_is_kept() {
        let expected = "10.66.0.1 near\nfd66::1 near\n10.66.0.2 far\nfd66::2 far\n127.0.0.1 here\n";
        assert_eq!(with_names("127.0.0.1 here\n", &[NEAR, FAR]), expected);
        assert_eq!(with_names("127.0.0.1 here", &[NEAR, FAR]), expected);
        assert_eq!(with_names("", &[FAR]), "10.66.0.2 far\nfd66::2 far\n");
    }
}
