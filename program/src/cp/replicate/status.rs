//! `sabul replicate status`: how far each replica is behind, from the versions that it received.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::time::Duration;

use sabul::files::{Facts, Rule, Seen, SeenKind};
use sabul::internal::Rules;
use sabul::internal::compare::ReadParts;
use sabul_content::Printable;
use sabul_front::format;
use sabul_front::json::{Document, ReplicaJson, ReplicasJson};
use sabul_units::{count, show_bytes};

use super::super::plan::source_set;
use super::super::summary::entries;
use super::super::versions::{self, Passes, Site, Store};
use super::places::{absolute, now_s};
use crate::args::ReplicateStatusArgs;
use crate::error::CliError;
use crate::{exit, json, output};

/// Prints the state of all replicas; returns the exit code.
pub(super) fn run(args: &ReplicateStatusArgs) -> Result<u8, CliError> {
    let directory = args.directory.as_ref().map(|it| absolute(it.as_os_str())).transpose()?;
    let is_wanted = |site: &Site| {
        let bare = |path: &[u8]| path.strip_suffix(b"/").unwrap_or(path).to_vec();
        directory.as_ref().is_none_or(|named| bare(named.as_bytes()) == bare(&site.directory))
    };
    let mut replicas = Vec::new();
    for store in Store::all(&versions::folder()?)? {
        let (site, passes) = store.site()?;
        if is_wanted(&site) {
            replicas.push(state(&store, &site, passes));
        }
    }
    if args.json {
        json::print(&Document::of(ReplicasJson { replicas }))?;
        return Ok(exit::DONE);
    }
    if replicas.is_empty() {
        output::note("no directory is replicated; see 'sabul replicate --help'");
    }
    for replica in &replicas {
        output::print_line(line(replica))?;
    }
    Ok(exit::DONE)
}

/// Compares the directory with the versions of a replica.
fn state(store: &Store, site: &Site, passes: Passes) -> ReplicaJson {
    let shown = |bytes: &[u8]| Printable(bytes).to_string();
    let time = |seconds: Option<f64>| {
        let since = Duration::try_from_secs_f64(seconds?).ok()?;
        format::time(i64::try_from(since.as_nanos()).ok())
    };
    let lag = lag(store, site);
    let since = passes.completed_s.map(|at| (now_s() - at).max(0.0));
    let (lag_files, lag_bytes) = lag.as_ref().map_or((0, 0), |lag| *lag);
    let is_in_step = lag.is_ok() && passes.completed_s.is_some() && lag_files == 0;
    ReplicaJson {
        directory: shown(&site.directory),
        place: shown(&site.place),
        in_step: is_in_step,
        lag_files,
        lag_bytes,
        lag_s: if is_in_step { Some(0.0) } else { since },
        completed: time(passes.completed_s),
        tried: time(passes.tried_s),
        kept: passes.kept,
        error: lag.err().map(|error| error.to_string()).or(passes.error),
    }
}

/// Entries of the source that a pass copies, except the directory itself.
pub(super) fn source_entries(
    site: &Site,
) -> Result<impl Iterator<Item = (Vec<u8>, Facts)> + use<>, CliError> {
    let rules: Vec<Rule> = serde_json::from_str(&site.rules).unwrap_or_default();
    let rules = Rules::new(&rules).map_err(|failure| CliError::usage(failure.to_string()))?;
    let directory = OsString::from_vec(site.directory.clone());
    if !std::path::Path::new(&directory).is_dir() {
        return Err(CliError::failed("the directory is missing"));
    }
    let set = source_set(&[directory], true)?.with_rules(rules).with_archive_mode(site.archive);
    // An entry that cannot be read is reported by the pass.
    let readable = |seen: Seen| Some((seen.path, seen.outcome.ok()?));
    let entries = set.plan_compared(ReadParts::default()).filter_map(readable);
    Ok(entries.filter(|(path, _)| !path.is_empty()))
}

/// Entries that the replica lacks, or whose contents were not compared, and their bytes.
fn lag(store: &Store, site: &Site) -> Result<(u64, u64), CliError> {
    let (mut files, mut bytes) = (0, 0);
    // The table may be missing before the next pass.
    let unchecked: BTreeSet<_> = store.unchecked().unwrap_or_default().into_iter().collect();
    for (path, facts) in source_entries(site)? {
        if store.versions(&path)?.has(&facts) && !unchecked.contains(&path) {
            continue;
        }
        files += 1;
        if facts.kind == SeenKind::File {
            bytes += facts.size;
        }
    }
    Ok((files, bytes))
}

fn line(replica: &ReplicaJson) -> String {
    let ReplicaJson { directory, place, .. } = replica;
    let state = match (replica.in_step, &replica.completed) {
        (true, Some(time)) => format!("in step, last pass {time}"),
        (_, Some(time)) => format!(
            "{} ({}) behind for {:.0} s, since the pass of {time}",
            count(replica.lag_files, "file"),
            show_bytes(replica.lag_bytes),
            replica.lag_s.unwrap_or(0.0)
        ),
        (_, None) => format!(
            "{} ({}) behind, no complete pass yet",
            count(replica.lag_files, "file"),
            show_bytes(replica.lag_bytes)
        ),
    };
    let kept = match replica.kept {
        0 => String::new(),
        kept => format!("; {} kept beside", entries(kept)),
    };
    let error =
        replica.error.as_ref().map(|why| format!("; last error: {why}")).unwrap_or_default();
    format!("{directory} -> {place}: {state}{kept}{error}")
}
