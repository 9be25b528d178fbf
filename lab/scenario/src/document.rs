//! JSON documents of a run: results and manifest.

use std::fmt;

use sabul_run::results::{FlowResult, LinkResult, Region, Results};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::read::Run;

/// Schema version of both documents. Removing a field or changing its meaning increments the
/// version.
const SCHEMA: u32 = 1;

/// Results of a run, with the run's settings.
///
/// In the simulator the same run and results give the same bytes, except `wall_s`. A document of
/// the lab also states whether the results are valid; invalid figures are moved to `discarded`.
#[derive(Clone, Debug, Serialize)]
pub struct RunDocument<'a> {
    schema: u32,
    arm: &'a str,
    scenario: &'a str,
    seed: u64,
    commit: &'a str,
    wall_s: f64,
    #[serde(flatten)]
    verdict: Option<Verdict<'a>>,
    #[serde(flatten)]
    figures: Figures<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    discarded: Option<Figures<'a>>,
    #[serde(serialize_with = "as_object")]
    settings: &'a [(String, String)],
    #[serde(skip_serializing_if = "Option::is_none")]
    lab: Option<Value>,
}

/// Figures of a run; empty by default.
#[derive(Clone, Debug, Default, Serialize)]
struct Figures<'a> {
    flows: &'a [FlowResult],
    links: &'a [LinkResult],
    jain: Option<f64>,
    regions: &'a [Region],
}

/// Validity of a lab run: whether the figures describe the path, not the machine.
#[derive(Clone, Debug, Serialize)]
struct Verdict<'a> {
    valid: bool,
    faults: &'a [String],
    notes: &'a [String],
}

/// Validity and details of a lab run.
#[derive(Clone, Debug)]
pub struct LabNotes<'a> {
    /// Whether the figures may be used. A run with faults is invalid even if this field is true.
    pub is_valid: bool,
    /// Reasons why the run is invalid; empty for a valid run.
    pub faults: &'a [String],
    /// Remarks that do not invalidate the run.
    pub notes: &'a [String],
    /// Everything else: calibration, lateness, router statistics.
    pub details: Value,
}

/// A result is not a finite number, which JSON cannot represent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentError {
    field: String,
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field } = self;
        write!(f, "result {field} is not a finite number, so no results are written; report this")
    }
}

impl std::error::Error for DocumentError {}

impl<'a> RunDocument<'a> {
    /// The document of one run on `arm` (`sim` or `lab`). The program was built from `commit`, and
    /// the run took `wall_s` seconds.
    ///
    /// # Errors
    /// If a number is infinite or NaN; JSON would turn such a number into `null` silently.
    pub fn new(
        arm: &'a str,
        run: &'a Run,
        commit: &'a str,
        wall_s: f64,
        results: &'a Results,
    ) -> Result<Self, DocumentError> {
        check("wall_s", &[wall_s])?;
        check_results(results)?;
        let Results { flows, links, jain, regions } = results;
        Ok(Self {
            schema: SCHEMA,
            arm,
            scenario: &run.scenario.name,
            seed: run.scenario.seed,
            commit,
            wall_s,
            verdict: None,
            figures: Figures { flows, links, jain: Some(*jain), regions },
            discarded: None,
            settings: &run.settings,
            lab: None,
        })
    }

    /// Adds the lab's validity and details.
    ///
    /// The figures of an invalid run move to `discarded`. Readers of results then find no figures,
    /// but the measurements remain available for diagnosis.
    #[must_use]
    pub fn with_lab(mut self, notes: LabNotes<'a>) -> Self {
        let LabNotes { is_valid, faults, notes, details } = notes;
        let valid = is_valid && faults.is_empty();
        if !valid {
            self.discarded = Some(std::mem::take(&mut self.figures));
        }
        self.verdict = Some(Verdict { valid, faults, notes });
        self.lab = Some(details);
        self
    }

    /// Returns the document on one line.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data with names as keys is always JSON")
    }
}

/// Manifest of a run's files: identifies the run and its settings, so that the run can be repeated.
#[derive(Clone, Debug, Serialize)]
pub struct Manifest<'a> {
    schema: u32,
    program: &'a str,
    version: &'a str,
    commit: &'a str,
    arm: &'a str,
    name: &'a str,
    label: &'a str,
    seed: u64,
    #[serde(serialize_with = "as_object")]
    settings: &'a [(String, String)],
    scenario: &'a str,
    files: &'a [String],
}

impl<'a> Manifest<'a> {
    /// The manifest of a run on `arm` (`sim` or `lab`). The program has this `version` and was
    /// built from `commit`; the run wrote `files`.
    pub fn new(
        arm: &'a str,
        run: &'a Run,
        version: &'a str,
        commit: &'a str,
        files: &'a [String],
    ) -> Self {
        Self {
            schema: SCHEMA,
            program: "sabul",
            version,
            commit,
            arm,
            name: &run.scenario.name,
            label: &run.label,
            seed: run.scenario.seed,
            settings: &run.settings,
            scenario: &run.text,
            files,
        }
    }

    /// Returns the manifest with one line per field.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data with names as keys is always JSON")
    }
}

fn as_object<S: Serializer>(pairs: &[(String, String)], to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(pairs.len()))?;
    for (key, value) in pairs {
        map.serialize_entry(key, value)?;
    }
    map.end()
}

fn check(field: &str, numbers: &[f64]) -> Result<(), DocumentError> {
    if numbers.iter().all(|number| number.is_finite()) {
        Ok(())
    } else {
        Err(DocumentError { field: field.to_owned() })
    }
}

/// Patterns list every field, so that the compiler reports a new field without a check.
fn check_results(results: &Results) -> Result<(), DocumentError> {
    let Results { flows, links, jain, regions } = results;
    check("jain", &[*jain])?;
    flows.iter().try_for_each(check_flow)?;
    links.iter().try_for_each(check_link)?;
    regions.iter().try_for_each(check_region)
}

fn check_flow(flow: &FlowResult) -> Result<(), DocumentError> {
    let FlowResult {
        id,
        transport: _,
        cc: _,
        goodput_bps,
        throughput_bps,
        packets_sent: _,
        packets_lost: _,
        loss_rate,
        retransmissions: _,
        breaker_opened: _,
        rtt_ms,
        stability,
        completed_s,
        started: _,
        completed: _,
        completion,
    } = flow;
    let place = |field: &str| format!("{field} of flow '{id}'");
    check(&place("goodput_bps"), &[*goodput_bps])?;
    check(&place("throughput_bps"), &[*throughput_bps])?;
    check(&place("loss_rate"), &[*loss_rate])?;
    check(&place("rtt_ms"), &[rtt_ms.min, rtt_ms.mean, rtt_ms.p99])?;
    check(&place("stability"), &[*stability])?;
    check(&place("completed_s"), completed_s.as_slice())?;
    let completion = completion.map(|times| [times.median_s, times.p99_s]);
    check(&place("completion"), completion.as_slice().as_flattened())
}

fn check_link(link: &LinkResult) -> Result<(), DocumentError> {
    let LinkResult { id, utilisation, drops: _, marks: _, queue_packets } = link;
    check(&format!("utilisation of link '{id}'"), &[*utilisation])?;
    check(&format!("queue_packets of link '{id}'"), &[queue_packets.mean, queue_packets.p99])
}

fn check_region(region: &Region) -> Result<(), DocumentError> {
    let Region { from_s, to_s, aggregate_bps, stability, jain, flows } = region;
    let place = format!("of the region from {from_s} s");
    check(&place, &[*from_s, *to_s, *aggregate_bps, *stability, *jain])?;
    flows.iter().try_for_each(|(id, goodput)| check(&format!("{place}, flow '{id}',"), &[*goodput]))
}
