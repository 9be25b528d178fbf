//! Each target on its corpus and on some seconds of mutations of it.
//!
//! `SABUL_FUZZ_SECONDS` and `SABUL_FUZZ_SEED` change how long and which.

use sabul_fuzz::harness::{self, Plan};
use sabul_fuzz::{TARGETS, find};

/// Largest file of a corpus in bytes: they are read by people, too.
const FILE_MAX: usize = 300;

fn fuzz(name: &str) {
    let target = find(name).expect("the test is named after a target");
    let corpus = harness::corpus(target);
    for (path, bytes) in &corpus {
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

targets!(datagrams messages tickets receiver sender opener assembler paths scenarios);
