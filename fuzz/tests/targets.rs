//! Each target on its corpus and on some seconds of mutations.
//!
//! `SABUL_FUZZ_SECONDS` and `SABUL_FUZZ_SEED` set duration and seed.

use sabul_fuzz::harness::{self, Plan};
use sabul_fuzz::{TARGETS, find};

/// Largest written input of a target, in bytes: people read these files, too.
const FILE_MAX: usize = 300;
/// Limit on all inputs found by fuzzing, in bytes of their files.
const FOUND_MAX: u64 = 300_000;

fn fuzz(name: &str) {
    let target = find(name).expect("the test is named after a target");
    let corpus = harness::corpus(target);
    for (path, bytes) in &harness::written(target) {
        assert!(bytes.len() <= FILE_MAX, "{} is over {FILE_MAX} bytes", path.display());
    }
    let outcome = harness::run(target, Plan::from_environment());
    println!("{name}: {outcome:?}");
    assert!(
        corpus.iter().any(|(_, bytes)| (target.run)(bytes)),
        "every input of '{name}' is refused at once: write the corpus anew with the example `seeds`"
    );
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                fuzz(stringify!($name));
            }
        )*

        #[test]
        fn every_target_has_a_test() {
            let tested = [$(stringify!($name)),*];
            assert!(TARGETS.iter().map(|target| target.name).eq(tested));
        }
    };
}

#[test]
fn the_inputs_found_by_fuzzing_stay_below_the_size_limit() {
    let sizes = TARGETS
        .iter()
        .map(|target| std::fs::metadata(harness::found_path(*target)).map_or(0, |file| file.len()));
    let size: u64 = sizes.sum();
    assert!(size <= FOUND_MAX, "{size} bytes in fuzz/found, at most {FOUND_MAX}");
}

targets!(datagrams messages tickets receiver sender opener assembler paths scenarios);
