//! Import cycles: files that import each other in a ring can only be read together. Therefore no
//! ring is larger than a parent with two of its parts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use super::file::{File, Finding};
use super::purity::named_paths;
use super::rust_text::{code_of, is_test_path, shipped_code_of};

/// Most files in a ring.
const RING_MAX: usize = 3;

/// The path of a module: `["tcp", "bbr3"]` for `src/tcp/bbr3.rs`, empty for the root.
type Module = Vec<String>;

/// The files of one crate.
type Modules<'a> = BTreeMap<Module, &'a File>;

/// No ring of imports has more than [`RING_MAX`] files.
pub(crate) fn check_rings(files: &[File]) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Modules<'_>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust() && !is_test_path(&file.path)) {
        if let Some((name, module)) = module_of(&file.path) {
            crates.entry(name).or_default().insert(module, file);
        }
    }
    let mut findings = Vec::new();
    for modules in crates.values() {
        let rings = rings(modules);
        for ring in rings.iter().filter(|ring| ring.len() > RING_MAX) {
            let paths: Vec<&str> =
                ring.iter().map(|module| modules[module].path.as_str()).collect();
            let what = format!("{} files import each other: {}", ring.len(), paths.join(", "));
            let fix = "move what several of them need to a file below them";
            findings.push(modules[&ring[0]].finding(1, what, fix));
        }
    }
    findings
}

/// Returns the crate and the module of a source file; `None` for files outside of a `src`.
fn module_of(path: &str) -> Option<(&str, Module)> {
    let (name, rest) = path.split_once("/src/")?;
    let parts = rest.strip_suffix(".rs")?.split('/');
    let mut module: Module = parts.map(str::to_owned).collect();
    if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        module.pop();
    }
    Some((name, module))
}

/// Returns the groups of two or more files that reach each other by imports.
fn rings(modules: &Modules<'_>) -> Vec<Vec<Module>> {
    let tests = test_modules(modules);
    let edges: BTreeMap<&Module, BTreeSet<Module>> = modules
        .iter()
        .filter(|(module, _)| !tests.iter().any(|test| module.starts_with(test)))
        .map(|(module, file)| (module, imports(module, file, modules)))
        .collect();
    let reach: BTreeMap<&Module, BTreeSet<Module>> =
        edges.keys().map(|start| (*start, reachable(start, &edges))).collect();
    let mut found: Vec<Vec<Module>> = Vec::new();
    for (module, reached) in reach.iter().filter(|(module, reached)| reached.contains(**module)) {
        if !found.iter().flatten().any(|known| known == *module) {
            let comes_back =
                |other: &&Module| reach.get(*other).is_some_and(|back| back.contains(*module));
            found.push(reached.iter().filter(comes_back).cloned().collect());
        }
    }
    found
}

/// Returns modules that exist for tests only.
fn test_modules(modules: &Modules<'_>) -> Vec<Module> {
    static MOD: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\bmod\s+(\w+)\s*;").expect("the pattern is constant"));
    let declared = |code: &str| -> BTreeSet<String> {
        MOD.captures_iter(code).map(|found| found[1].to_owned()).collect()
    };
    let mut tests = Vec::new();
    for (module, file) in modules {
        let shipped = declared(&shipped_code_of(&file.text));
        let all = declared(&code_of(&file.text));
        let children = all.difference(&shipped);
        tests.extend(children.map(|name| [module.as_slice(), std::slice::from_ref(name)].concat()));
    }
    tests
}

/// Returns the other files of the crate that this file names.
fn imports(module: &Module, file: &File, modules: &Modules<'_>) -> BTreeSet<Module> {
    static VISIBILITY: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"pub\(in [\w:]+\)").expect("the pattern is constant"));
    // A visibility is not an import.
    let code = shipped_code_of(&file.text);
    let paths = named_paths(&VISIBILITY.replace_all(&code, "pub"));
    let targets = paths.iter().filter_map(|(_, path)| target(module, path, modules));
    targets.filter(|target| target != module).collect()
}

/// Returns the file that a path leads to; `None` for another crate's path.
fn target(module: &Module, path: &str, modules: &Modules<'_>) -> Option<Module> {
    let mut parts = path.split("::").peekable();
    let mut at = match *parts.peek()? {
        "crate" => Module::new(),
        "self" | "super" => module.clone(),
        first => {
            let child = [module.as_slice(), &[first.to_owned()]].concat();
            modules.contains_key(&child).then(|| module.clone())?
        }
    };
    for part in parts {
        match part {
            "crate" | "self" => {}
            "super" => {
                at.pop();
            }
            name => {
                at.push(name.to_owned());
                if !modules.contains_key(&at) {
                    at.pop();
                    break;
                }
            }
        }
    }
    modules.contains_key(&at).then_some(at)
}

fn reachable(start: &Module, edges: &BTreeMap<&Module, BTreeSet<Module>>) -> BTreeSet<Module> {
    let mut seen = BTreeSet::new();
    let mut waiting = vec![start];
    while let Some(module) = waiting.pop() {
        for next in edges.get(module).into_iter().flatten() {
            if seen.insert(next.clone()) {
                waiting.push(next);
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<File> = files
            .iter()
            .map(|(path, text)| file(&format!("transfer/cc/src/{path}.rs"), text))
            .collect();
        check_rings(&files).into_iter().map(|finding| finding.what).collect()
    }

    /// Four files in a ring, each with another form of import.
    const RING: [(&str, &str); 4] = [
        ("lib", "mod a;"),
        ("a", "use crate::b::{self, Thing};"),
        ("b", "mod part; use part::Part;"),
        ("b/part", "fn f() { super::super::c::g(); }"),
    ];

    #[test]
    fn a_ring_of_four_files_is_found_with_every_import_form() {
        let mut files = RING.to_vec();
        files.push(("c", "use super::{a::A, x};"));
        let findings = found(&files);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].starts_with("4 files import each other: "), "{findings:?}");
        for name in ["src/a.rs", "src/b.rs", "src/b/part.rs", "src/c.rs"] {
            assert!(findings[0].contains(name), "{findings:?}");
        }
    }

    #[test]
    fn a_ring_through_the_crate_root_is_found() {
        let files = [
            ("lib", "mod a; mod b; mod c; pub use c::C;"),
            ("a", "use crate::C;"),
            ("b", "use crate::a::A;"),
            ("c", "use crate::b::B;"),
        ];
        assert!(found(&files)[0].starts_with("4 files"));
    }

    #[test]
    fn small_rings_and_one_way_imports_are_not_reported() {
        assert_eq!(found(&RING), Vec::<String>::new());
        let three =
            [("a", "use crate::b::B;"), ("b", "use crate::c::C;"), ("c", "use crate::a::A;")];
        assert_eq!(found(&three), Vec::<String>::new());
        let mut files = RING.to_vec();
        files.push(("b/part", "pub(in crate::b) struct Part;"));
        files.push(("c", "// crate::a::A\n#[cfg(test)]\nmod tests { use crate::a::A; }"));
        assert_eq!(found(&files), Vec::<String>::new());
        // A file for tests only.
        *files.last_mut().unwrap() = ("c", "#[cfg(test)]\nmod testing;");
        files.push(("c/testing", "use crate::a::A; use super::C;"));
        assert_eq!(found(&files), Vec::<String>::new());
    }
}
