//! Arguments of `sabul join`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum, value_parser};

use super::cp::parse_retry_time;
use super::files::ReachArgs;
use crate::exit;
use sabul_units::parse_bytes;

/// Arguments of `sabul join`.
#[derive(Debug, Args)]
#[command(after_help = exit::LIST, after_long_help = exit::below(HELP, exit::LIST))]
#[command(
    override_usage = "sabul join [OPTIONS] [--ticket FILE] A [--ticket FILE] B... --on KEY -o OUT.parquet"
)]
pub(crate) struct JoinArgs {
    /// Key columns, which each table has.
    #[arg(long, value_name = "KEY", value_delimiter = ',', required = true)]
    pub(crate) on: Vec<String>,
    /// Rows of the result.
    #[arg(long = "type", value_enum, value_name = "TYPE", default_value_t)]
    pub(crate) kind: JoinKind,
    /// Condition on the rows of the result, as WHERE of SQL.
    ///
    /// COLUMN OPERATOR LITERAL with = <> < <= > >=, IS [NOT] NULL, AND, OR, NOT and brackets. A name that
    /// several tables have is written TABLE.COLUMN. With --type anti, only columns of A.
    #[arg(long = "where", value_name = "EXPR")]
    pub(crate) condition: Option<String>,
    /// Columns of the result; other columns are not read from Parquet.
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    pub(crate) select: Option<Vec<String>>,
    /// Memory for rows that wait for a match, such as 4G.
    ///
    /// More rows are written to a private directory beside the result, or in TMPDIR with -o -.
    #[arg(id = "row_memory", long = "memory", value_name = "BYTES", value_parser = parse_bytes,
          default_value = "1G")]
    pub(crate) memory: u64,
    /// The result, a Parquet file; - writes an Arrow IPC stream to stdout.
    ///
    /// The file has its name once complete. With -, each batch is written when its rows are joined.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Reconnect after a lost connection for up to this time, such as 2d.
    #[arg(long, value_name = "TIME", value_parser = parse_retry_time)]
    pub(crate) retry: Option<Duration>,
    /// Print one JSON document at the end (`sabul schema join`).
    #[arg(long)]
    pub(crate) json: bool,
    /// Print errors only.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Last, for its heading.
    #[command(flatten)]
    pub(crate) at: TablesArgs,
}

/// Rows of the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum JoinKind {
    /// Each combination of rows with equal keys.
    #[default]
    Inner,
    /// As inner, and rows of A without a match.
    Left,
    /// Rows of A without a match.
    Anti,
}

const HELP: &str = "\
A table is a local path or a place as for 'sabul cp': a file, a directory, or a quoted pattern such as 'host:logs/*.parquet'. \
The extension gives the format: .parquet, .csv (with a header line), .arrow. A --ticket belongs to the table after it.

Rows are joined when they arrive. NULL matches nothing; -0.0 equals 0.0; NaN equals NaN. A key column is written once; a \
column that several tables have gets the name of its table: COLUMN_TABLE. The name of a table is its file name without \
extension.

Examples:
  sabul join a:orders.parquet b:customers.parquet --on customer -o joined.parquet
  sabul join new.csv host:old.csv --on id --type anti -o added.parquet
  sabul join 'a:logs/*.parquet' b:users.parquet --on user --where 'bytes > 1000' --select user,bytes,name -o o.parquet";

/// Tables with their ticket files, and the connection options.
#[derive(Debug)]
pub(crate) struct TablesArgs {
    /// Each table: its place, and the ticket file before it.
    pub(crate) tables: Vec<(OsString, Option<PathBuf>)>,
    pub(crate) reach: ReachArgs,
}

impl Args for TablesArgs {
    fn augment_args(command: Command) -> Command {
        let tables = Arg::new("tables")
            .value_name("TABLE")
            .help("Tables to join: local paths, [USER@]HOST:PATH or sabul://HOST/PATH")
            // A --ticket between tables divides them into groups.
            .num_args(1..)
            .required(true)
            .value_parser(value_parser!(OsString))
            .action(ArgAction::Append);
        ReachArgs::augment_args(command.arg(tables))
            .mut_arg("ticket", |ticket| {
                ticket
                    .action(ArgAction::Append)
                    .help("Ticket file for the server of the next table")
            })
            .mut_arg("memory", |memory| memory.long("transfer-memory"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for TablesArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut tickets: Vec<(usize, PathBuf)> = Vec::new();
        if matches.value_source("ticket") == Some(ValueSource::CommandLine) {
            let files = matches.get_many::<PathBuf>("ticket").into_iter().flatten().cloned();
            tickets = matches.indices_of("ticket").into_iter().flatten().zip(files).collect();
        }
        let places = matches.get_many::<OsString>("tables").into_iter().flatten().cloned();
        let places = matches.indices_of("tables").into_iter().flatten().zip(places);
        let mut tables = Vec::new();
        let mut after = 0;
        for (at, place) in places {
            // The newest ticket file between the table before and this table.
            let own = tickets.iter().rfind(|(ticket, _)| (after..at).contains(ticket));
            tables.push((place, own.map(|(_, file)| file.clone())));
            after = at;
        }
        let mut reach = ReachArgs::from_arg_matches(matches)?;
        if !tickets.is_empty() {
            reach.channel.ticket = None;
        }
        Ok(Self { tables, reach })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::args::{Cli, Command};

    /// Returns each table with its ticket file, and the common ticket file.
    fn tables(words: &[&str]) -> (Vec<(String, Option<String>)>, Option<String>) {
        let all = ["sabul", "join", "--on", "k", "-o", "out"].iter().chain(words);
        let Command::Join(args) = Cli::try_parse_from(all).unwrap().command else { panic!() };
        let text = |path: &std::path::PathBuf| path.display().to_string();
        let tables =
            args.at.tables.iter().map(|(place, ticket)| {
                (place.to_str().unwrap().to_owned(), ticket.as_ref().map(text))
            });
        (tables.collect(), args.at.reach.channel.ticket.as_ref().map(text))
    }

    #[test]
    fn a_ticket_belongs_to_the_table_after_it() {
        let table = |name: &str, ticket: Option<&str>| (name.to_owned(), ticket.map(str::to_owned));
        for (words, expected) in [
            (&["--ticket", "t", "a", "b"][..], [table("a", Some("t")), table("b", None)]),
            (&["a", "--ticket", "t", "b"], [table("a", None), table("b", Some("t"))]),
            (
                &["--ticket", "t", "a", "--ticket", "u", "b"],
                [table("a", Some("t")), table("b", Some("u"))],
            ),
        ] {
            assert_eq!(tables(words), (expected.to_vec(), None), "{words:?}");
        }
        assert_eq!(tables(&["a", "b"]).0, [table("a", None), table("b", None)]);
    }
}
