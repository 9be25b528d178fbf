//! The targets of `sabul-fuzz` under libFuzzer: an input with new coverage is kept and mutated
//! further.
//!
//! `fuzz/run.sh` builds this program with the necessary instrumentation, on stable Rust, and runs
//! it; the arguments are libFuzzer's. Environment variables: `SABUL_FUZZ_TARGET` names the target,
//! and `SABUL_FUZZ_START` a folder to which its committed inputs are written first. With
//! `SABUL_FUZZ_BLIND` every input is a mutation of a committed input, as in `cargo test`: libFuzzer
//! then counts the coverage without feedback.
#![no_main]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{env, fs};

use libfuzzer_sys::{Corpus, fuzz_mutator, fuzz_target, fuzzer_mutate};
use sabul_fuzz::{Target, find, harness};

struct Setting {
    target: Target,
    corpus: Vec<(PathBuf, Vec<u8>)>,
    blind: bool,
}

fn setting() -> &'static Setting {
    static SETTING: OnceLock<Setting> = OnceLock::new();
    SETTING.get_or_init(|| {
        let name = env::var("SABUL_FUZZ_TARGET").expect("SABUL_FUZZ_TARGET names a target");
        let target = find(&name).unwrap_or_else(|| panic!("no target is called '{name}'"));
        let corpus = harness::corpus(target);
        if let Some(folder) = env::var_os("SABUL_FUZZ_START") {
            write(Path::new(&folder), &corpus);
        }
        Setting { target, corpus, blind: env::var_os("SABUL_FUZZ_BLIND").is_some() }
    })
}

fn write(folder: &Path, corpus: &[(PathBuf, Vec<u8>)]) {
    for (index, (_, bytes)) in corpus.iter().enumerate() {
        let path = folder.join(format!("committed-{index}"));
        fs::write(&path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

fuzz_target!(
    init: {
        setting();
    },
    |data: &[u8]| -> Corpus {
        (setting().target.run)(data);
        Corpus::Keep
    }
);

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let Setting { corpus, blind, .. } = setting();
    let input = match seed % 2 {
        _ if *blind => harness::mutated(corpus, seed.into()),
        // Our mutations change more than libFuzzer's, which use the values that inputs are compared
        // with.
        0 => harness::varied(&data[..size], corpus, seed.into()),
        _ => return fuzzer_mutate(data, size, max_size),
    };
    let length = input.len().min(max_size).min(data.len());
    data[..length].copy_from_slice(&input[..length]);
    length
});
