//! Tests of the parameter files of the reproduction: they are valid and match their comments.

use std::fs;
use std::path::Path;

use sabul_model::grid::{read_grid, run};
use sabul_model::orbit::Region;
use sabul_model::{Params, Set, file};

fn shipped(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../reproductions/model/models");
    fs::read_to_string(folder.join(name)).expect("the file is part of the repository")
}

#[test]
fn the_shipped_sets_are_the_presets() {
    for (name, set) in [("pr0.toml", Set::Pr0), ("pr1.toml", Set::Pr1)] {
        assert_eq!(file::read_params(&shipped(name)).unwrap(), Params::preset(set), "{name}");
    }
}

#[test]
fn the_shipped_grid_has_the_three_borders_named_in_its_comment() {
    let grid = read_grid(&shipped("grid.toml")).unwrap();
    let results = run(&grid);
    assert_eq!((results.points.len(), results.summary.left_out), (37 * 36, 0));
    for point in &results.points {
        let (share, k2) = (point.values[0], point.values[1]);
        let locks = k2 <= 1.0 / (1.0 - share);
        let oscillates = k2 > 1.0 / (1.0 - 0.001 - share) && k2 < 1000.0;
        match point.region {
            Region::Locks => assert!(!oscillates && k2 < 1000.0, "{point:?}"),
            Region::GapNegative => assert!(k2 >= 1000.0, "{point:?}"),
            _ => assert!(!locks && k2 < 1000.0, "{point:?}"),
        }
    }
}
