//! Arguments of receipts.

use std::path::PathBuf;

use clap::Args;

/// Receipt of a copy.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReceiptArgs {
    /// Write a receipt that both ends sign into this directory.
    ///
    /// Both ends read their files again and compute SHA-256 and BLAKE3. The directory contains manifests for `sha256sum
    /// -c` and `b3sum -c`, the signed statement and its signatures. Keep it outside the source and the destination.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["no_sync", "dry_run"])]
    pub(crate) receipt: Option<PathBuf>,
    /// Make the destination a bag.
    #[arg(skip)]
    pub(crate) bag: bool,
    /// Key file with which this end signs receipts.
    ///
    /// A private key without a passphrase, or a key that the ssh agent has. The default is
    /// ~/.config/sabul/receipt_key if it exists, then --identity, then the first key of the agent or ~/.ssh.
    #[arg(long, value_name = "FILE")]
    pub(crate) receipt_key: Option<PathBuf>,
}
