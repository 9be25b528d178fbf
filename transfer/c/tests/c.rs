//! The header is that of the code, and the example runs.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![expect(unsafe_code, reason = "the functions are called as by C programs")]

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::null_mut;

use sabul::blocking::Listener;
use sabul::{ListenerConfig, Service};
use sabul_c::*;

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Directory of the built library: that of the test program.
fn library_folder() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

#[test]
fn the_header_is_that_of_the_code() {
    let folder = crate_folder();
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let sources = ["lib.rs", "fault.rs", "session.rs"].map(|name| folder.join("src").join(name));
    let builder = sources
        .into_iter()
        .fold(cbindgen::Builder::new(), |builder, source| builder.with_src(source));
    let mut text = Vec::new();
    builder.with_config(config).generate().unwrap().write(&mut text);
    let path = folder.join("include/sabul.h");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let text = String::from_utf8(text).unwrap();
    assert!(
        std::fs::read_to_string(&path).is_ok_and(|header| header == text),
        "{} is outdated; run UPDATE=1 cargo test -p sabul-c",
        path.display()
    );
}

#[test]
fn the_example_in_c_runs() {
    let library = library_folder();
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("skipped: there is no C compiler cc");
        return;
    }
    let work = tempfile::tempdir().unwrap();
    let (program, root) = (work.path().join("tail"), work.path().join("root"));
    std::fs::create_dir(&root).unwrap();
    let built = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(crate_folder().join("include"))
        .arg(crate_folder().join("examples/tail.c"))
        .arg("-L")
        .arg(&library)
        .arg("-lsabul_c")
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));

    let listener = Listener::bind(ListenerConfig::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let ticket = work.path().join("ticket");
    listener.ticket().write_file(&ticket).unwrap();
    let service = Service::default().root(root.clone()).remove(true);
    let server = std::thread::spawn(move || listener.accept().unwrap().serve(&service).unwrap());
    let file = work.path().join("data.bin");
    std::fs::write(&file, vec![7; 100_000]).unwrap();
    let ran = Command::new(&program)
        .arg(&ticket)
        .arg(&file)
        .env("LD_LIBRARY_PATH", &library)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let out = String::from_utf8_lossy(&ran.stdout);
    assert!(out.contains("kept/data.bin: 100000 bytes"), "{out}");
    assert!(out.contains("sent 100000 bytes, 1 file; the note ends in 'one'"), "{out}");
    server.join().unwrap();
    assert_eq!(std::fs::read(root.join("kept/note")).unwrap(), b"done");

    let wrong = Command::new(&program)
        .arg(work.path().join("missing"))
        .arg(&file)
        .env("LD_LIBRARY_PATH", &library)
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("no ticket file"));
}

/// Code and content of a file as `sabul_read` and `sabul_get` return them.
fn read(session: *const SabulSession, name: &str, to: &Path) -> (i32, Vec<u8>) {
    let (mut buffer, mut got) = ([0_u8; 99], 0);
    let [name, to] = [name, to.to_str().unwrap()].map(|text| CString::new(text).unwrap());
    // SAFETY: all pointers are valid.
    let codes = unsafe {
        let (start, length) = (buffer.as_mut_ptr().cast::<c_void>(), buffer.len());
        [
            sabul_read(session, name.as_ptr(), 0, start, length, &raw mut got),
            sabul_get(session, name.as_ptr(), to.as_ptr(), false, null_mut()),
            sabul_stat(session, name.as_ptr(), null_mut()),
        ]
    };
    assert!(codes.iter().all(|code| *code == codes[0]), "{codes:?}");
    if codes[0] == SABUL_OK {
        assert_eq!(std::fs::read(to.to_str().unwrap()).unwrap(), buffer[..got]);
    }
    (codes[0], buffer[..got].to_vec())
}

#[test]
fn a_name_with_special_characters_means_no_other_file() {
    let work = tempfile::tempdir().unwrap();
    let root = work.path().join("root");
    std::fs::create_dir_all(root.join("d[1]")).unwrap();
    for (name, text) in [("a1", "match"), ("a\\[1\\]", "quoted"), ("d[1]/in", "")] {
        std::fs::write(root.join(name), text).unwrap();
    }
    let listener = Listener::bind(ListenerConfig::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let ticket = work.path().join("ticket");
    listener.ticket().write_file(&ticket).unwrap();
    let service = Service::default().root(root.clone());
    let server = std::thread::spawn(move || listener.accept().unwrap().serve(&service).unwrap());
    let ticket = CString::new(ticket.to_str().unwrap()).unwrap();
    let mut session = null_mut();
    // SAFETY: all pointers are valid.
    assert_eq!(unsafe { sabul_connect(ticket.as_ptr(), &raw mut session) }, SABUL_OK);
    let to = work.path().join("to");
    assert_eq!(read(session, "a[1]", &to), (SABUL_NOT_FOUND, vec![]));
    std::fs::write(root.join("a[1]"), "right").unwrap();
    assert_eq!(read(session, "a[1]", &to), (SABUL_OK, b"right".to_vec()));
    assert_eq!(read(session, "a\\[1\\]", &to), (SABUL_OK, b"quoted".to_vec()));
    assert_eq!(read(session, "a*", &to).0, SABUL_NOT_FOUND);
    // SAFETY: all pointers are valid.
    unsafe {
        let (name, mut files) = (CString::new("d[1]").unwrap(), 0);
        let context = (&raw mut files).cast::<c_void>();
        assert_eq!(sabul_list(session, name.as_ptr(), false, Some(count), context), SABUL_OK);
        assert_eq!(files, 1);
        sabul_close(session);
    }
    server.join().unwrap();
}

/// Counts files.
unsafe extern "C" fn count(
    _: *const std::ffi::c_char,
    entry: *const SabulEntry,
    files: *mut c_void,
) -> i32 {
    // SAFETY: as the caller states.
    unsafe { *files.cast::<i32>() += i32::from((*entry).kind == SABUL_KIND_FILE) };
    0
}
