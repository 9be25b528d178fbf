//! Stores inputs found by fuzzing: appends each file of a folder that the committed corpus does not
//! have to `found/TARGET.base64`, one line in Base64 per file. Called by `make fuzz-keep`.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;

use data_encoding::BASE64;
use sabul_fuzz::{find, harness};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [name, folder] = &arguments[..] else {
        return Err("usage: found TARGET FOLDER".into());
    };
    let target = find(name).ok_or_else(|| format!("no target is called '{name}'"))?;
    let written: BTreeSet<_> = harness::written(target).into_iter().map(|(_, b)| b).collect();
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let bytes = fs::read(entry?.path())?;
        if !written.contains(&bytes) {
            found.insert((bytes.len(), bytes));
        }
    }
    let lines: String = found.iter().map(|(_, b)| format!("{}\n", BASE64.encode(b))).collect();
    fs::write(harness::found_path(target), lines)?;
    println!(
        "{name}: {} inputs, {} bytes",
        found.len(),
        found.iter().map(|(n, _)| n).sum::<usize>()
    );
    Ok(())
}
