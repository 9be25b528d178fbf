//! Flags of other programs: accepted without effect, or refused with a reason.

use clap::{ArgAction, Args};

/// Flags of rsync that state what `sabul` does in any case, or with -a.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct FamiliarArgs {
    /// Accepted: progress and partial files are always on.
    #[arg(short = 'P', long, alias = "partial", action = ArgAction::Count, hide = true)]
    progress: u8,
    /// Accepted: modification times are always kept.
    #[arg(short = 't', long, hide = true)]
    times: bool,
    /// Accepted with -a, which keeps access control lists.
    #[arg(short = 'A', long, requires = "archive", hide = true)]
    acls: bool,
    /// Accepted with -a, which keeps extended attributes.
    #[arg(short = 'X', long, requires = "archive", hide = true)]
    xattrs: bool,
}

/// Flags of rsync and scp that `sabul cp` does not have.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ForeignArgs {
    /// Refused: nothing is compressed.
    #[arg(short = 'z', long, hide = true)]
    compress: bool,
    /// Refused: nothing is removed.
    #[arg(long, hide = true)]
    delete: bool,
    /// Refused: newer files are replaced.
    #[arg(short = 'u', long, hide = true)]
    update: bool,
}

impl ForeignArgs {
    /// Returns the reason for refusing the first of these flags, if any is given.
    pub(crate) const fn refusal(self) -> Option<&'static str> {
        if self.compress {
            Some(
                "-z: sabul cp does not compress; leave -z out, or send what a compressor writes: \
                 tar cz DIR | sabul cp - HOST:DIR.tgz",
            )
        } else if self.delete {
            Some(
                "--delete: sabul cp removes no files at the destination; use sabul sync --delete, or leave --delete out",
            )
        } else if self.update {
            Some("-u: sabul cp replaces newer files; use sabul sync -u, or leave -u out")
        } else {
            None
        }
    }
}
