//! Draws the picture of the README: `picture FILE.svg`, or `make picture`.

use std::process::ExitCode;

use sabul_study::{Observer, card::picture};

fn main() -> ExitCode {
    let Some(file) = std::env::args().nth(1) else {
        eprintln!("usage: picture FILE.svg");
        return ExitCode::from(2);
    };
    let observer = Observer::silent().with_notes(|line| eprintln!("{line}"));
    let drawn = picture(None, &observer).map_err(|error| error.to_string());
    let written = drawn.and_then(|svg| {
        std::fs::write(&file, svg).map_err(|error| format!("cannot write {file}: {error}"))
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("picture: {error}");
            ExitCode::FAILURE
        }
    }
}
