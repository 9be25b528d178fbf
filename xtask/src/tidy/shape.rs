//! Size limits of functions and structs, and the interface of the state machines of the core.

use std::sync::LazyLock;

use regex::Regex;

use super::arrows;
use super::file::{File, Finding};
use super::rust_text::{is_test_path, item_end, line_of, shipped_code_of};

/// Most lines of a function.
const FUNCTION_LINES_MAX: usize = 60;
/// Most fields of a struct with state. A struct with only public fields is a table of values and
/// exempt.
const FIELDS_MAX: usize = 15;

/// Exceptions that existed before the check of their folder: file, name, and size. Entries may
/// shrink or be removed, but not grow or be added.
const KNOWN: &[(&str, &str, usize)] = &[
    ("lab/emu/src/calibrate/train.rs", "plan", 61),
    ("lab/emu/src/router/engine.rs", "Engine", 24),
    ("lab/model/src/lemmas/fairness.rs", "share", 68),
    ("lab/model/src/lemmas/modes.rs", "lemma1", 69),
    ("lab/model/src/map.rs", "Map", 19),
    ("lab/net/src/presets.rs", "presets", 173),
    ("lab/study/src/card/draw/judge.rs", "new", 71),
    ("lab/study/src/card/draw/page.rs", "csv", 67),
    ("lab/study/src/card/draw/runs.rs", "run", 64),
    ("program/src/cp.rs", "attempts", 93),
    ("program/src/cp/compare.rs", "Compared", 21),
    ("program/src/cp/compare.rs", "add", 69),
    ("program/src/cp/compare.rs", "of", 108),
    ("program/src/cp/plan_file.rs", "Head", 19),
    ("program/src/cp/verify.rs", "verify_receipt", 68),
    ("program/src/perf.rs", "measure", 63),
    ("transfer/files/src/destination.rs", "FileSink", 20),
    ("transfer/files/src/destination/claims.rs", "take", 65),
    ("transfer/files/src/disk/memory.rs", "World", 17),
    ("transfer/files/src/part.rs", "Part", 17),
    ("transfer/files/src/receive.rs", "Receiver", 17),
    ("transfer/files/src/receive.rs", "carry_out", 96),
    ("transfer/files/src/send.rs", "send_content", 82),
    ("transfer/files/src/send.rs", "send_files", 81),
    ("transfer/files/src/source.rs", "Walk", 19),
    ("transfer/receipt/src/verify.rs", "check_manifests", 74),
    ("transfer/sabul/src/channel/receiver.rs", "ReceiverEndpoint", 23),
    ("transfer/sabul/src/channel/receiver.rs", "take_data", 67),
    ("transfer/sabul/src/channel/sender.rs", "SenderEndpoint", 28),
    ("transfer/sabul/src/channel/sender.rs", "new", 77),
    ("transfer/sabul/src/channel/tcp.rs", "run", 71),
    ("transfer/sabul/src/channel/tcp/sender.rs", "FlowState", 16),
    ("transfer/sabul/src/control/mailbox.rs", "take", 84),
    ("transfer/sabul/src/control/outbox.rs", "run", 72),
    ("transfer/sabul/src/control/router.rs", "route", 66),
    ("transfer/sabul/src/error.rs", "fmt", 68),
    ("transfer/sabul/src/listener.rs", "hand_over", 71),
    ("transfer/sabul/src/listener/entry.rs", "admit", 89),
    ("transfer/sabul/src/path/nat.rs", "connect", 97),
    ("transfer/sabul/src/session.rs", "serve_on", 76),
    ("transfer/sabul/src/session/attest.rs", "all", 74),
    ("transfer/sabul/src/transfer/progress.rs", "ProgressState", 25),
    ("transfer/sabul/src/transfer/run.rs", "Run", 16),
    ("transfer/sabul/src/transfer/run.rs", "execute", 68),
    ("transfer/sabul/src/transfer/run/receive.rs", "receive", 80),
    ("transfer/sabul/src/transfer/run/send.rs", "send", 93),
    ("transfer/sabul/src/world/hostile.rs", "message", 73),
];

/// No shipped function is longer than [`FUNCTION_LINES_MAX`], and no struct with state has more
/// than [`FIELDS_MAX`] fields.
pub(crate) fn check_sizes(files: &[File]) -> Vec<Finding> {
    check_with(files, KNOWN)
}

fn check_with(files: &[File], known: &[(&str, &str, usize)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| is_shipped(file)) {
        let code = shipped_code_of(&file.text);
        let most = |name: &str, most: usize| {
            let known = known.iter().find(|(path, known, _)| *path == file.path && *known == name);
            known.map_or(most, |(_, _, size)| *size)
        };
        let large: Vec<(&str, usize, Finding)> =
            long_functions(file, &code).chain(wide_structs(file, &code)).collect();
        for (path, name, _) in known.iter().filter(|(path, ..)| *path == file.path) {
            if !large.iter().any(|(found, ..)| found == name) {
                let what = format!("{name} of {path} is not too large any more");
                findings.push(file.finding(
                    1,
                    what,
                    "take it off KNOWN in xtask/src/tidy/shape.rs",
                ));
            }
        }
        let too_large = large.into_iter().filter(|(name, size, _)| *size > most(name, 0));
        findings.extend(too_large.map(|(_, _, finding)| finding));
    }
    findings
}

fn is_shipped(file: &File) -> bool {
    let is_ours = ["transfer/", "lab/", "program/"].iter().any(|it| file.path.starts_with(it));
    is_ours && file.path.contains("/src/") && file.is_rust() && !is_test_path(&file.path)
}

fn is_core(file: &File) -> bool {
    arrows::is_core(&file.path) && is_shipped(file)
}

/// Returns functions with more than [`FUNCTION_LINES_MAX`] lines: name, lines, and the finding.
fn long_functions<'a>(
    file: &'a File,
    code: &'a str,
) -> impl Iterator<Item = (&'a str, usize, Finding)> {
    static FUNCTION: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\bfn\s+(\w+)").expect("the pattern is constant"));
    FUNCTION.captures_iter(code).filter_map(move |found| {
        let (all, name) = (found.get(0)?, found.get(1)?.as_str());
        let lines = code[all.start()..item_end(code, all.end())].lines().count();
        let what = format!("{name} has {lines} lines; {FUNCTION_LINES_MAX} are the most");
        let finding = file.finding(line_of(code, all.start()), what, "split it at its seams");
        (lines > FUNCTION_LINES_MAX).then_some((name, lines, finding))
    })
}

/// Returns structs with more than [`FIELDS_MAX`] fields: name, fields, and the finding.
fn wide_structs<'a>(
    file: &'a File,
    code: &'a str,
) -> impl Iterator<Item = (&'a str, usize, Finding)> {
    static STRUCT: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\bstruct\s+(\w+)[^;({]*\{").expect("the pattern is constant")
    });
    static FIELD: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?m)^\s*(pub(?:\([^)]*\))?\s+)?(?:r#)?\w+\s*:[^:]")
            .expect("the pattern is constant")
    });
    STRUCT.captures_iter(code).filter_map(move |found| {
        let (all, name) = (found.get(0)?, found.get(1)?.as_str());
        let body = &code[all.end()..item_end(code, all.start())];
        let fields = FIELD.captures_iter(body).count();
        let is_table = FIELD.captures_iter(body).all(|field| field.get(1).is_some());
        let what = format!("{name} has {fields} fields; {FIELDS_MAX} are the most");
        let fix = "make parts of it that own their time and state";
        let finding = file.finding(line_of(code, all.start()), what, fix);
        (fields > FIELDS_MAX && !is_table).then_some((name, fields, finding))
    })
}

/// A state machine of the core has `poll`, which returns `Polled`; its next wake-up time is its
/// `deadline` (ADR 21).
pub(crate) fn check_machines(file: &File) -> Vec<Finding> {
    static QUESTION: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\bpub\s+(?:const\s+)?fn\s+(poll\w*|next_deadline|next_timeout)\b([^{;]*)")
            .expect("the pattern is constant")
    });
    if !is_core(file) {
        return Vec::new();
    }
    let code = shipped_code_of(&file.text);
    let requested = QUESTION
        .captures_iter(&code)
        .filter(|found| &found[1] != "poll" || !found[2].contains("Polled<"));
    requested
        .map(|found| {
            let at = found.get(0).map_or(0, |all| all.start());
            let what = format!("{} polls a state machine", &found[1]);
            file.finding(line_of(&code, at), what, "name it `poll` and return `Polled` (ADR 21)")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    fn found(text: &str, known: &[(&str, &str, usize)]) -> Vec<String> {
        let files = [file("transfer/cc/src/a.rs", text)];
        check_with(&files, known).into_iter().map(|finding| finding.what).collect()
    }

    fn function(lines: usize) -> String {
        format!("impl A {{\nfn long(a: [u8; 2]) {{\n{}}}\n}}", "    b();\n".repeat(lines - 2))
    }

    fn wide(fields: usize, visibility: &str) -> String {
        let field = format!("    {visibility}a: std::vec::Vec<u8>,\n");
        format!("struct Wide<T>\nwhere T: Copy\n{{\n{}}}\n", field.repeat(fields))
    }

    #[test]
    fn a_function_of_more_than_sixty_lines_is_found() {
        assert_eq!(found(&function(60), &[]), Vec::<String>::new());
        assert!(found(&function(61), &[])[0].starts_with("long has 61 lines"));
        let test = format!("#[cfg(test)]\nmod tests {{\n{}\n}}", function(90));
        assert_eq!(found(&test, &[]), Vec::<String>::new());
    }

    #[test]
    fn a_struct_of_more_than_fifteen_private_fields_is_found() {
        assert_eq!(found(&wide(15, ""), &[]), Vec::<String>::new());
        assert!(found(&wide(16, "pub(super) "), &[]).is_empty());
        assert!(found(&wide(16, ""), &[])[0].starts_with("Wide has 16 fields"));
    }

    #[test]
    fn a_known_exception_may_shrink_but_not_grow() {
        let known = [("transfer/cc/src/a.rs", "long", 70)];
        assert_eq!(found(&function(70), &known), Vec::<String>::new());
        assert_eq!(found(&function(65), &known), Vec::<String>::new());
        assert!(found(&function(71), &known)[0].starts_with("long has 71 lines"));
        assert!(found(&function(60), &known)[0].contains("not too large any more"));
    }

    #[test]
    fn a_state_machine_with_another_polling_interface_is_found() {
        let requested = |path: &str, text: &str| check_machines(&file(path, text)).len();
        let path = "transfer/channel/src/a.rs";
        assert_eq!(requested(path, "pub fn poll(&mut self) -> Polled<A, B> {}"), 0);
        assert_eq!(requested(path, "pub fn poll(&mut self) -> Option<A> {}"), 1);
        assert_eq!(requested(path, "pub fn poll_ack(&mut self) -> Polled<A, B> {}"), 1);
        assert_eq!(requested(path, "pub const fn next_deadline(&self) -> Option<Instant> {}"), 1);
        assert_eq!(requested(path, "pub fn deadline(&self) -> Option<Instant> {}"), 0);
        assert_eq!(requested("transfer/sabul/src/a.rs", "pub fn poll_ack(&mut self) {}"), 0);
    }
}
