//! Tests of grids: points, counts of regions, heat maps, and errors of grid files.

use super::*;
use crate::params::{Set, Variant};

const SMALL: &str = "set = 'pr0'\nrate_share_initial = 0.6\nk2 = [1, 10, 100]\n\
    service_share = { from = 0.1, to = 0.9, steps = 5 }\nx = 'service_share'\ny = 'k2'\n";

fn on_threads(threads: usize, work: impl FnOnce() -> Results + Send) -> Results {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(work)
}

#[test]
fn a_grid_has_all_combinations_in_the_order_of_the_file() {
    let grid = read_grid(SMALL).unwrap();
    assert_eq!(grid.points(), 15);
    assert_eq!(grid.heat_map, Some((Key::ServiceShare, Key::K2)));
    let values = |index| {
        let p = grid.point(index).unwrap();
        (p.k2(), (p.value(Key::ServiceShare) * 10.0).round())
    };
    assert_eq!([values(0), values(1), values(3)], [(1.0, 1.0), (10.0, 1.0), (1.0, 3.0)]);
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let drawn = "set = 'pr0'\nsamples = 200\nseed = 4\nqueue_packets = [0, 1000]\n\
        k2 = { from = 1, to = 900, spread = 'log' }\n\
        service_share = { from = 0.1, to = 0.9 }\nrate_share_initial = 0.5";
    for text in [SMALL, drawn] {
        let grid = read_grid(text).unwrap();
        let one = on_threads(1, || run(&grid));
        let three = on_threads(3, || run(&grid));
        assert_eq!(one, three);
        assert_eq!(one.points.len() as u64 + one.summary.left_out, grid.points());
    }
}

#[test]
fn the_builtin_grid_has_the_requested_points_and_repeats_with_its_seed() {
    let one = run_builtin(300, 5);
    assert_eq!((one.points, one.left_out), (300, 0));
    assert_eq!(one, run_builtin(300, 5));
    assert_ne!(one, run_builtin(300, 6));
}

#[test]
fn regions_and_outcomes_are_counted_once_a_point() {
    let summary = run_builtin(300, 5);
    assert_eq!(summary.regions.iter().map(|(_, count)| count).sum::<u64>(), 300);
    for lemma in &summary.lemmas {
        for tally in [lemma.printed, lemma.corrected] {
            let all = tally.not_applicable + tally.holds + tally.violated + tally.undecided;
            assert_eq!(all, 300, "lemma {}", lemma.lemma);
        }
        assert_eq!(lemma.worst.is_some(), lemma.printed.violated > 0, "lemma {}", lemma.lemma);
    }
}

#[test]
fn the_grid_summary_keeps_the_worst_counterexample() {
    let grid = "set = 'pr0'\nvariant = 'full'\nservice_mbps = 515\nk1 = 0.018\nk2 = 280\n\
        alpha = 4.6e-4\nc_us = 0.022\nrate_mbps_initial = [320, 100, 450]";
    let grid = read_grid(grid).unwrap();
    assert_eq!(
        grid.base.clone().with(Key::RateMbpsInitial, 1.0).build().unwrap().variant(),
        Variant::Full
    );
    let results = run(&grid);
    let worst = results.summary.lemmas[4].worst.as_ref().unwrap();
    for index in 0..3 {
        let report = check_within(&grid.point(index).unwrap(), LIMITS);
        let severity =
            report.lemmas[4].verdict.counterexample().map_or(0.0, |found| found.severity);
        assert!(severity <= worst.severity);
    }
}

#[test]
fn invalid_combinations_are_skipped_and_counted() {
    let grid = read_grid("set = 'pr0'\nservice_mbps = [500, 999, 1000, 2000]").unwrap();
    let results = run(&grid);
    assert_eq!((results.summary.points, results.summary.left_out), (2, 2));
}

#[test]
fn a_heat_map_has_a_cell_for_each_value() {
    let grid = read_grid(&format!("{SMALL}queue_packets = 0")).unwrap();
    let results = run(&grid);
    let (x, y) = grid.heat_map.unwrap();
    let map = heat_map(&grid, &results, x, y).unwrap();
    assert_eq!((map.x_values.len(), map.y_values.len()), (5, 3));
    assert!(map.gamma.iter().flatten().all(Option::is_some));
    // k2 = 1 locks everywhere. k2 = 100 has excess loss in the middle of the interface.
    assert_eq!(map.region[0][2], Some(Region::Locks));
    assert_eq!(map.region[2][2], Some(Region::ExcessLoss));
    assert!(heat_map(&grid, &results, x, Key::K1).unwrap_err().contains("'k1'"));
}

#[test]
fn drawn_values_fall_into_twenty_cells() {
    let text = "set = 'pr0'\nsamples = 100\nservice_share = { from = 0.1, to = 0.9 }\n\
        k2 = { from = 1, to = 100, spread = 'log' }";
    let grid = read_grid(text).unwrap();
    let results = run(&grid);
    let map = heat_map(&grid, &results, Key::K2, Key::ServiceShare).unwrap();
    assert_eq!((map.x_values.len(), map.y_values.len()), (20, 20));
    for point in &results.points {
        assert!((1.0..=100.0).contains(&point.values[1]));
    }
}

#[test]
fn errors_of_grid_files_name_line_and_remedy() {
    let error = |text: &str| read_grid(text).unwrap_err().to_string();
    assert!(error("set = 'pr0'\nsampels = 5").ends_with("did you mean 'samples'?"));
    assert!(error("set = 'pr0'\nk2 = []").starts_with("line 2: 'k2' is an empty list"));
    assert!(error("set = 'pr0'\nk2 = [1, -1]").starts_with("line 2: k2 = -1 is not allowed"));
    assert!(error("set = 'pr0'\nk2 = { from = 5, to = 1 }").contains("swap them"));
    assert!(error("set = 'pr0'\nk2 = { from = 5 }").contains("needs 'from' and 'to'"));
    assert!(error("set = 'pr0'\nk2 = { form = 5 }").contains("a range has no 'form'"));
    assert!(error("set = 'pr0'\nk2 = [1, 2]\nx = 'k1'").starts_with("line 3: 'k1' does not vary"));
    assert!(error("set = 'pr0'\nservice_mbps = [2000]").contains("no point of the grid"));
    assert!(error("k2 = [1]").contains("'capacity_mbps' is missing"));
    let many = "set = 'pr0'\nk1 = { from = 1, to = 2, steps = 10000 }\n\
        k2 = { from = 1, to = 2, steps = 10000 }";
    assert!(error(many).contains("samples = N"));
    assert!(error("set = 'pr0'\nsamples = 0").contains("from 1 to 1000000"));
}

#[test]
fn published_sets_are_in_the_regions_that_the_paper_reports() {
    for (set, region) in [(Set::Pr0, Region::ExcessLoss), (Set::Pr1, Region::ExcessLoss)] {
        assert_eq!(check_within(&Params::preset(set), LIMITS).orbit.region, region);
    }
}
