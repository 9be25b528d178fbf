//! Arguments of `sabul model`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::exit;

/// Arguments of `sabul model`.
#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    #[command(subcommand)]
    pub(crate) command: ModelCommand,
}

/// Commands below `sabul model`.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Check the eight lemmas against the model
    ///
    /// Checks one parameter set, or the sets Pr_0 and Pr_1 of the paper, and a random grid of
    /// parameter sets.
    Check(ModelCheckArgs),
    /// Iterate one parameter set round by round
    Iterate(ModelIterateArgs),
    /// Classify many parameter sets into regions
    Grid(ModelGridArgs),
}

/// Arguments of `sabul model check`.
#[derive(Debug, Args)]
#[command(after_help = exit::SHORT_LIST, after_long_help = exit::below(MODEL_CHECK_HELP, exit::SHORT_LIST))]
pub(crate) struct ModelCheckArgs {
    /// File of the parameters [default: the sets Pr_0 and Pr_1].
    #[arg(value_name = "PARAMS.toml")]
    pub(crate) params: Option<PathBuf>,
    /// Number of random parameter sets to check in addition; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 10_000,
          value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub(crate) grid: u64,
    /// Seed of the random parameter sets.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print the results as one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

const MODEL_CHECK_HELP: &str = "\
A lemma that fails as printed in the paper is a result, with exit code 0. Exit code 1 means that a \
corrected lemma fails.

Examples:
  sabul model check
  sabul model check params.toml --grid 0 --json";

/// Arguments of `sabul model iterate`.
#[derive(Debug, Args)]
#[command(after_help = exit::SHORT_LIST, after_long_help = exit::below(MODEL_ITERATE_HELP, exit::SHORT_LIST))]
pub(crate) struct ModelIterateArgs {
    /// File of the parameters.
    #[arg(value_name = "PARAMS.toml")]
    pub(crate) params: PathBuf,
    /// Number of rounds.
    #[arg(long, value_name = "N", default_value_t = 2000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) rounds: u64,
    /// Write charts to this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print the results as one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

const MODEL_ITERATE_HELP: &str = "\
Examples:
  sabul model iterate params.toml --rounds 500 --out charts";

/// Arguments of `sabul model grid`.
#[derive(Debug, Args)]
#[command(after_help = exit::SHORT_LIST, after_long_help = exit::below(MODEL_GRID_HELP, exit::SHORT_LIST))]
pub(crate) struct ModelGridArgs {
    /// File of the varied parameters and their values.
    #[arg(value_name = "GRID.toml")]
    pub(crate) grid: PathBuf,
    /// Write a chart to this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print the results as one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

const MODEL_GRID_HELP: &str = "\
Examples:
  sabul model grid grid.toml --out charts";
