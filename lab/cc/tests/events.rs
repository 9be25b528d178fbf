//! Golden test: events of each controller on the same path, compared with committed text.
//!
//! After an intended change of an algorithm or of the path, `SABUL_GOLDEN=write cargo test -p
//! sabul-lab-cc --test events` rewrites the text; explain the change in the commit.

use std::path::Path;

use sabul_cc::conformance;
use sabul_cc::events::COLUMNS;
use sabul_lab_cc::registry::ENTRIES;

#[test]
fn each_controller_records_the_expected_events() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/events");
    let mut differing = Vec::new();
    for entry in ENTRIES {
        // Without parameters the controller has no limits.
        let params: &[(&str, &str)] =
            if entry.name == "netblt" { &[("adaptation", "on")] } else { &[] };
        let params: Vec<_> = params.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let mut lines = vec![COLUMNS.to_owned()];
        lines.extend(conformance::events_of(entry, &params));
        assert!(lines.len() > 1 || !entry.is_adaptive, "{} says nothing", entry.name);
        let text = lines.join("\n") + "\n";
        let path = folder.join(format!("{}.txt", entry.name));
        if std::env::var_os("SABUL_GOLDEN").is_some_and(|value| value == "write") {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        if std::fs::read_to_string(&path).ok().as_deref() != Some(text.as_str()) {
            differing.push(entry.name);
        }
    }
    assert!(differing.is_empty(), "not as committed (see this file's head): {differing:?}");
}
