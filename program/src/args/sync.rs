//! Arguments of `sabul sync`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use sabul::internal::compare::Named;

use super::cp::CopyArgs;
use super::files::ReachArgs;
use super::rules::RulesArgs;
use crate::exit;

/// Arguments of `sabul sync`.
#[derive(Debug, Args)]
#[command(after_help = exit::LIST, after_long_help = exit::below(SYNC_HELP, exit::LIST))]
#[command(override_usage = "sabul sync [OPTIONS] SRC DST")]
pub(crate) struct SyncArgs {
    /// Remove entries that exist only at the destination, after the copy.
    ///
    /// Nothing is removed if the source is empty or could not be read completely. A removal of more
    /// than 10 % of the entries or of more than 1000 entries needs --delete-limit.
    #[arg(long)]
    pub(crate) delete: bool,
    /// Maximum number of entries to remove.
    #[arg(long, value_name = "N", requires = "delete")]
    pub(crate) delete_limit: Option<u64>,
    /// Move entries into this directory instead of removing them.
    ///
    /// The directory is on the machine of the destination, and outside the destination.
    #[arg(long, value_name = "DIR", requires = "delete")]
    pub(crate) trash: Option<PathBuf>,
    /// Keep files that are newer at the destination.
    #[arg(short = 'u', long)]
    pub(crate) update: bool,
    /// Do not compare modification times.
    #[arg(long)]
    pub(crate) size_only: bool,
    /// Copy only files that exist at the destination.
    #[arg(long)]
    pub(crate) existing: bool,
    /// Copy only files that do not exist at the destination.
    #[arg(long)]
    pub(crate) ignore_existing: bool,
    /// Times that differ by at most this many seconds are equal.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=86_400))]
    pub(crate) modify_window: u32,
    /// Copy only the entries that FILE names, one a line; '-' is stdin.
    ///
    /// The names are relative to SRC, and a named SRC stands for its entries. The directories above a name are copied, too. Without
    /// -r, a named directory is copied without its content, or with its entries if the name ends in '/', as in rsync.
    #[arg(long, value_name = "FILE")]
    pub(crate) files_from: Option<PathBuf>,
    /// Names of --files-from end in NUL bytes, not in newlines.
    #[arg(short = '0', long, requires = "files_from")]
    pub(crate) from0: bool,
    /// The names of --files-from.
    #[arg(skip)]
    pub(crate) names: Option<Vec<Named>>,
    /// Print a line for each change, as rsync does.
    #[arg(short, long)]
    pub(crate) itemize_changes: bool,
    /// Send changed files completely, also large ones.
    ///
    /// Without this flag, only the changed ranges of files from 8 MiB on are sent to another machine.
    #[arg(short = 'W', long)]
    pub(crate) whole_file: bool,
    /// Write the changes into this file, for `sabul apply`.
    #[arg(long, value_name = "FILE", requires = "dry_run")]
    pub(crate) plan: Option<PathBuf>,
    /// Put the copy into the queue, and return at once.
    ///
    /// Starts a runner in the background if none runs. `sabul queue list` shows the progress.
    #[arg(long)]
    pub(crate) detach: bool,
    #[command(flatten)]
    pub(crate) copy: CopyArgs,
}

impl SyncArgs {
    /// Arguments of a pass of `sabul replicate`.
    pub(crate) const fn of_replica(
        copy: CopyArgs,
        delete: bool,
        delete_limit: Option<u64>,
    ) -> Self {
        Self {
            delete,
            delete_limit,
            trash: None,
            update: false,
            size_only: false,
            existing: false,
            ignore_existing: false,
            modify_window: 0,
            files_from: None,
            from0: false,
            names: None,
            itemize_changes: false,
            whole_file: false,
            plan: None,
            detach: false,
            copy,
        }
    }
}

impl AsRef<CopyArgs> for SyncArgs {
    fn as_ref(&self) -> &CopyArgs {
        &self.copy
    }
}

impl AsMut<CopyArgs> for SyncArgs {
    fn as_mut(&mut self) -> &mut CopyArgs {
        &mut self.copy
    }
}

/// Arguments of `sabul apply`.
#[derive(Debug, Args)]
#[command(after_help = exit::LIST, after_long_help = exit::below(APPLY_HELP, exit::LIST))]
#[command(override_usage = "sabul apply [OPTIONS] PLAN")]
pub(crate) struct ApplyArgs {
    /// Maximum number of entries to remove, instead of the plan's.
    #[arg(long, value_name = "N")]
    pub(crate) delete_limit: Option<u64>,
    /// Send changed files completely, also large ones.
    #[arg(short = 'W', long)]
    pub(crate) whole_file: bool,
    #[command(flatten)]
    pub(crate) copy: CopyArgs,
}

/// Arguments of `sabul verify`.
#[derive(Debug, Args)]
#[command(after_help = exit::LIST, after_long_help = exit::below(VERIFY_HELP, exit::LIST))]
#[command(
    override_usage = "sabul verify [OPTIONS] SRC DST\n       sabul verify [OPTIONS] RECEIPT-DIR [DIR]"
)]
pub(crate) struct VerifyArgs {
    /// Two directories or two files; or a receipt and its files.
    #[arg(required = true, num_args = 1..=2, value_name = "PLACE")]
    pub(crate) places: Vec<OsString>,
    /// Compare links as links, and of files the permission bits, extended attributes and access control lists.
    #[arg(short, long)]
    pub(crate) archive: bool,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    /// Keys that may sign a receipt, in ssh's form of allowed signers.
    ///
    /// The principals are `receiver` and `sender`. Without this flag the keys beside the receipt are accepted, which
    /// shows only that receipt and signatures belong together.
    #[arg(long, value_name = "FILE")]
    pub(crate) allowed_signers: Option<PathBuf>,
    /// Print one JSON document (`sabul schema verify`).
    #[arg(long)]
    pub(crate) json: bool,
    /// Print differences and errors only.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Last, for its heading.
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
}

const APPLY_HELP: &str = "\
PLAN is a file of `sabul sync -n --plan PLAN`. The plan has the places, the filters and the options of the comparison; \
all other options are those of this command, such as --ticket, --ssh and --bwlimit.

Both ends are listed again. An entry that changed since the plan was made is not touched, and the exit code is 1. Other \
entries are copied, set or removed as planned. Changes that are not in the plan are not made. After an interruption, \
the same command continues.

Examples:
  sabul sync -n --delete --plan p.jsonl photos/ host:photos
  sabul apply p.jsonl";

const VERIFY_HELP: &str = "\
Both ends read all their files and compare sizes and BLAKE3 hashes. Nothing is copied. A SRC that ends in '/' means its \
content, as in `sabul sync`. A DST that is a file is compared with the file SRC. Modification times are not compared. Each difference is a line: `missing`, `differs` or \
`extra` (only at DST). The exit code is 5 if anything differs.

RECEIPT-DIR is the directory of `sabul cp --receipt` on this machine: its form, signatures and manifests are checked. \
With DIR, the copied root on this machine, all its files are read and compared.

Examples:
  sabul verify photos/ host:photos
  sabul verify photos.receipt photos
  sabul verify -a --json host:/data/run7/ run7";

const SYNC_HELP: &str = "\
SRC and DST are directories: one on this machine and one on another, or both on this machine. A SRC that ends in '/' \
means its content; otherwise the directory itself is created in DST, as in rsync.

Files of equal size and modification time are equal. With -p or -a, permission bits are compared, too; with -a as root, \
owners. Files, directories and removals obey --exclude and --include, as in `sabul cp`: excluded entries are neither \
copied nor removed.

With --files-from, only the named entries are compared, and --delete removes only in the named directories whose \
content is copied. A missing name is an error at the end (exit code 1); the other names are copied.

With -n nothing changes: each change is printed as rsync prints it (<f.st...... name).

Examples:
  sabul sync photos/ host:photos
  sabul sync -a --delete host:/data/run7/ run7
  sabul sync -n --delete photos/ sabul://host:4850/photos --ticket ticket
  find photos -newer stamp -printf '%P\0' | sabul sync -0 --files-from - photos host:photos
  sabul sync -n --plan p.jsonl photos/ host:photos    then: sabul apply p.jsonl";
