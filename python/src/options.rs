//! Options of a transfer, from the keyword arguments of the Python functions.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use sabul::files::{Rule, RuleKind};
use sabul::{Policy, Rate, TransferOptions};

use crate::dial::carrier;
use crate::error::Fault;

/// Keyword arguments of a transfer; absent arguments have the defaults of the program.
#[derive(Clone, Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    #[pyo3(default)]
    archive: Option<bool>,
    /// Upper limit of the rate.
    #[pyo3(default)]
    bwlimit_bps: Option<u64>,
    carrier: Option<String>,
    #[pyo3(default)]
    cc: Option<String>,
    #[pyo3(default)]
    cc_params: Option<BTreeMap<String, String>>,
    #[pyo3(default)]
    copy_links: Option<bool>,
    /// Patterns of files that are not copied.
    #[pyo3(default)]
    exclude: Option<Vec<String>>,
    #[pyo3(default)]
    growing: Option<bool>,
    #[pyo3(default)]
    hard_links: Option<bool>,
    /// Patterns of files that are copied although `exclude` names them.
    #[pyo3(default)]
    include: Option<Vec<String>>,
    /// Lower limit of the rate.
    #[pyo3(default)]
    pub(crate) min_rate_bps: Option<u64>,
    #[pyo3(default)]
    policy: Option<String>,
    #[pyo3(default)]
    preserve: Option<bool>,
    #[pyo3(default)]
    read_back: Option<bool>,
    #[pyo3(default)]
    resume: Option<bool>,
    #[pyo3(default)]
    sync: Option<bool>,
    /// Number of TCP connections.
    #[pyo3(default)]
    tcp: Option<u8>,
}

impl Options {
    /// Returns the options for the library.
    pub(crate) fn transfer_options(self) -> Result<TransferOptions, Fault> {
        let rule =
            |kind| move |pattern: &String| Rule { kind, pattern: pattern.clone().into_bytes() };
        let includes = self.include.iter().flatten().map(rule(RuleKind::Include));
        let excludes = self.exclude.iter().flatten().map(rule(RuleKind::Exclude));
        let rules: Vec<_> = includes.chain(excludes).collect();
        let defaults = TransferOptions::default();
        let mut options = TransferOptions::default()
            .archive_mode(self.archive.unwrap_or(defaults.archive_mode))
            .rate_limit(self.bwlimit_bps.map(Rate))
            .links_out(self.copy_links.unwrap_or(defaults.links_out))
            .growing(self.growing.unwrap_or(defaults.growing))
            .hard_links(self.hard_links.unwrap_or(defaults.hard_links))
            .preserve(self.preserve.unwrap_or(defaults.preserve))
            .read_back(self.read_back.unwrap_or(defaults.read_back))
            .resume(self.resume.unwrap_or(defaults.resume))
            .sync(self.sync.unwrap_or(defaults.sync))
            .tcp_connections(self.tcp.unwrap_or(defaults.tcp_connections))
            .controller_params(self.cc_params.unwrap_or_default().into_iter().collect::<Vec<_>>())
            .rules(rules);
        if let Some(name) = &self.carrier {
            options = options.carrier(carrier(name)?);
        }
        if let Some(name) = self.cc {
            options = options.controller(name);
        }
        if let Some(name) = &self.policy {
            options = options.policy(policy(name)?);
        }
        Ok(options)
    }
}

fn policy(name: &str) -> Result<Policy, Fault> {
    Policy::named(name)
        .ok_or_else(|| Fault::usage(format!("policy '{name}' is unknown; use fair, high or low")))
}
