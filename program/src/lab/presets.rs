//! `sabul lab presets`: predefined paths.

use serde_json::{Value, json};

use sabul_study::{SCHEMA, path, presets};

use crate::args::LabPresetsArgs;
use crate::error::CliError;
use crate::exit;
use crate::{json, output};

/// Runs `sabul lab presets` and returns the exit code.
pub(super) fn run(args: &LabPresetsArgs) -> Result<u8, CliError> {
    let chosen = match &args.name {
        Some(name) => vec![path::find_preset(name)?],
        None => sabul_net::presets(),
    };
    if args.json {
        let all: Vec<Value> = chosen.iter().map(presets::document).collect();
        json::print(&json!({ "schema": SCHEMA, "presets": all }))?;
    } else if args.name.is_some() {
        output::print(chosen.iter().map(presets::details).collect::<String>())?;
    } else {
        let width = output::width().unwrap_or(presets::TABLE_WIDTH);
        output::print(presets::table(&chosen, width).to_text(width))?;
    }
    Ok(exit::DONE)
}
