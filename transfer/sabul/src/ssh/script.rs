//! Shell script for the far end that finds or installs sabul: one line for `sh`.
//!
//! The account's own shell may be any, so it only needs to support words in single quotes. User
//! input travels as arguments of the script, never as part of it. In the script's output a tab
//! precedes each field that may contain spaces, as `lines.rs` expects.

use super::lines::MARK;

/// Places of sabul outside PATH, where installers for one user put programs. PATH is short for
/// commands over ssh.
const PLACES: &str = "\"$HOME\"/.local/bin/sabul \"$HOME\"/.cargo/bin/sabul /usr/local/bin/sabul \
    /opt/sabul/bin/sabul";

/// Shell definitions: `$d` is the account's directory of pushed programs. `o FILE` is true for a
/// file or directory that the account owns and that is no link. `k` is true if `$d` is such a
/// directory, and removes write permission of other users.
const CACHE: &str = "d=${XDG_CACHE_HOME:-$HOME/.cache}/sabul; \
    o() { [ -O \"$1\" ] && [ ! -L \"$1\" ]; }; \
    k() { o \"$d\" && chmod 700 \"$d\"; }";

/// Returns the script that finds a program and leaves its path in `f`. `$1` is a path or empty. If
/// no program is found, the near end may send the hash of a program to upload, as a line. End of
/// standard input means that no upload follows.
fn find() -> String {
    format!(
        "{CACHE}; f=; case $1 in \
         \"\") f=$(command -v sabul 2>/dev/null) || for i in {PLACES}; \
         do if [ -x \"$i\" ]; then f=$i; break; fi; done; \
         if [ -z \"$f\" ] && k; then for i in \"$d\"/sabul-*; \
         do if o \"$i\" && [ -x \"$i\" ]; then f=$i; break; fi; done; fi;; \
         \"~/\"*) f=$HOME/${{1#\"~/\"}};; \
         *) f=$1;; esac; \
         if [ -z \"$f\" ] || [ ! -x \"$f\" ]; then \
         printf \"{MARK}missing %s\\t%s\\n\" \"$(uname -sm)\" \"${{1:-$PATH}}\"; \
         read -r w && [ -n \"$w\" ] || exit 127; p \"$w\"; fi"
    )
}

/// Returns a shell function that provides the program with the SHA-256 hash `$1` in the account's
/// cache. A missing program is read from standard input: a line with the number of bytes, then the
/// bytes, compressed with gzip if the system has gzip. A program that does not name itself sabul
/// replaces nothing. Leaves the path in `f`.
fn push() -> String {
    format!(
        "p() {{ m=$(umask); umask 077; {CACHE}; f=$d/sabul-$1; \
         h() {{ (sha256sum \"$1\" || shasum -a 256 \"$1\" || openssl dgst -sha256 -r \"$1\") 2>/dev/null \
         | cut -c 1-64; }}; \
         mkdir -p \"$d\" && k || \
         {{ printf \"{MARK}damaged %s\\n\" \"$d cannot be created, is a link or belongs to another user\"; exit 1; }}; \
         if o \"$f\" && [ \"$(h \"$f\")\" = \"$1\" ]; then :; else \
         t=$d/incoming-$$; \
         rm -f \"$t\" && (set -C; : > \"$t\") || \
         {{ printf \"{MARK}damaged %s\\n\" \"cannot write into $d\"; exit 1; }}; \
         g=; if command -v gzip >/dev/null 2>&1; then g=gzip; fi; \
         printf \"{MARK}wants %s\\t%s\\n\" \"$(uname -sm)\" \"$g\"; read -r z; \
         if [ -n \"$g\" ]; then head -c \"$z\" | gzip -dc > \"$t\"; else head -c \"$z\" > \"$t\"; fi || \
         {{ rm -f \"$t\"; printf \"{MARK}damaged %s\\n\" \"cannot write into $d: the disk may be full\"; exit 1; }}; \
         if [ \"$(h \"$t\")\" = \"$1\" ]; then chmod 700 \"$t\"; else \
         rm -f \"$t\"; printf \"{MARK}damaged %s\\n\" \"the received program has another hash, or sha256sum is missing\"; \
         exit 1; fi; \
         v=$(\"$t\" --version 2>&1 | head -n 1); case $v in \"sabul \"*) mv -f \"$t\" \"$f\";; \
         *) rm -f \"$t\"; printf \"{MARK}damaged %s\\n\" \"its --version prints no version of sabul but: $v\"; \
         exit 1;; esac; \
         for i in \"$d\"/sabul-*; do [ \"$i\" = \"$f\" ] || rm -f \"$i\"; done; fi; umask \"$m\"; }}"
    )
}

/// Returns the script that executes the program with the arguments from `$3` on.
fn execute() -> String {
    format!(
        "printf \"{MARK}found %s\\t%s\\n\" \"$f\" \"$(\"$f\" --version 2>&1 | head -n 1)\"; \
         shift 2; exec \"$f\" \"$@\""
    )
}

/// Returns the whole command for the far end, which runs the program with these arguments. `pushed` is the hash of a
/// program to upload.
pub(super) fn remote(path: &str, pushed: Option<&str>, arguments: &[String]) -> String {
    let get = if pushed.is_some() { "p \"$2\"".to_owned() } else { find() };
    let script = format!("{}; {get}; {}", push(), execute());
    let hash = pushed.unwrap_or_default();
    let words = ["sh", "-c", &script, "sabul", path, hash].into_iter();
    let words = words.chain(arguments.iter().map(String::as_str)).map(quoted);
    words.collect::<Vec<_>>().join(" ")
}

/// Quotes a word with single quotes, which every shell supports. `'` becomes `'\''`.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {

    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;
    use std::process::{Command, Output, Stdio};

    /// Returns the command that starts a server.
    fn remote(path: &str, ports: &str, pushed: Option<&str>) -> String {
        let arguments = ["serve", "--stdio", "--ports", ports].map(str::to_owned);
        super::remote(path, pushed, &arguments)
    }

    /// Runs the command by a shell with its own home directory.
    fn run(home: &Path, command: &str, input: &[u8]) -> Output {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(command).current_dir(home);
        shell.env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin");
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        // A script that needs no input may have exited already.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    fn text(output: &Output) -> String {
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Writes a program that prints its arguments.
    fn program(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, PROGRAM).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    const PROGRAM: &str =
        "#!/bin/sh\nif [ \"$1\" = --version ]; then echo sabul 9; else echo ran \"$@\"; fi\n";

    #[test]
    fn the_remote_command_has_no_newline_and_no_csh_history_expansion() {
        for command in [remote("a'b", "1-2", None), remote("", "1-2", Some("00"))] {
            assert!(!command.contains('\n'));
            // csh treats `!x` as history, even in quotes; `[ ! -x ]` has a space after `!`.
            assert!(command.match_indices('!').all(|(at, _)| command[at..].starts_with("! ")));
        }
    }

    #[test]
    fn a_sabul_outside_the_path_variable_is_found() {
        let home = tempfile::tempdir().unwrap();
        program(&home.path().join(".local/bin/sabul"));
        let output = run(home.path(), &remote("", "1-2", None), b"");
        let said = text(&output);
        let expected = format!(
            "@sabul found {}/.local/bin/sabul\tsabul 9\nran serve --stdio --ports 1-2\n",
            home.path().display()
        );
        assert_eq!(said, expected);
    }

    #[test]
    fn a_user_supplied_remote_path_is_used_literally() {
        let home = tempfile::tempdir().unwrap();
        let odd = "my dir/it's; echo $(id) \"x\"";
        program(&home.path().join(odd));
        for path in [format!("~/{odd}"), odd.to_owned()] {
            let path = if path.starts_with('~') { path } else { format!("./{path}") };
            let output = run(home.path(), &remote(&path, "1-2", None), b"");
            assert!(text(&output).ends_with("ran serve --stdio --ports 1-2\n"), "{output:?}");
        }
    }

    #[test]
    fn a_missing_program_is_reported_with_search_path_and_system() {
        let home = tempfile::tempdir().unwrap();
        let output = run(home.path(), &remote("", "1-2", None), b"");
        assert_eq!(output.status.code(), Some(127));
        let said = text(&output);
        assert!(said.starts_with("@sabul missing Linux "), "{said}");
        assert!(said.ends_with("\t/usr/bin:/bin\n"), "{said}");
        let output = run(home.path(), &remote("/none/sabul", "1-2", None), b"");
        assert!(text(&output).ends_with("\t/none/sabul\n"), "{output:?}");
    }

    /// Input that the near end sends for a program: compressed with gzip, or plain.
    fn upload(program: &[u8], is_packed: bool) -> Vec<u8> {
        let mut bytes = program.to_vec();
        if is_packed {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
            encoder.write_all(program).unwrap();
            bytes = encoder.finish().unwrap();
        }
        [format!("{}\n", bytes.len()).as_bytes(), &bytes].concat()
    }

    #[test]
    fn a_pushed_program_is_verified_cached_and_not_requested_again() {
        let home = tempfile::tempdir().unwrap();
        let hash = crate::ssh::push::hash(PROGRAM.as_bytes());
        let cache = home.path().join(".cache/sabul");
        fs::create_dir_all(&cache).unwrap();
        fs::write(cache.join("sabul-old"), "x").unwrap();
        let command = remote("", "1-2", Some(&hash));
        let upload = upload(PROGRAM.as_bytes(), true);
        let said = text(&run(home.path(), &command, &upload));
        assert!(said.starts_with("@sabul wants Linux ") && said.contains("\tgzip\n"), "{said}");
        assert!(said.ends_with("ran serve --stdio --ports 1-2\n"), "{said}");
        assert!(!cache.join("sabul-old").exists());
        let mode = fs::metadata(cache.join(format!("sabul-{hash}"))).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let said = text(&run(home.path(), &command, b""));
        assert!(said.starts_with("@sabul found "), "{said}");
        // A modified program is requested again.
        fs::write(cache.join(format!("sabul-{hash}")), "x").unwrap();
        let said = text(&run(home.path(), &command, &upload));
        assert!(said.starts_with("@sabul wants ") && said.contains("ran serve"), "{said}");
    }

    /// A pushed program that prints its umask for `serve`.
    const WITH_UMASK: &str =
        "#!/bin/sh\nif [ \"$1\" = serve ]; then umask; else echo sabul 9; fi\n";

    #[test]
    fn a_pushed_program_runs_with_the_accounts_own_umask() {
        let home = tempfile::tempdir().unwrap();
        let hash = crate::ssh::push::hash(WITH_UMASK.as_bytes());
        let command = remote("", "1-2", Some(&hash));
        let said = text(&run(
            home.path(),
            &format!("umask 027; {command}"),
            &upload(WITH_UMASK.as_bytes(), true),
        ));
        assert_eq!(said.lines().last(), Some("0027"), "{said}");
        let cache = fs::metadata(home.path().join(".cache/sabul")).unwrap();
        assert_eq!(cache.permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_cache_writable_by_others_is_restricted_and_its_links_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let hash = crate::ssh::push::hash(PROGRAM.as_bytes());
        let command = remote("", "1-2", Some(&hash));
        let cache = home.path().join(".cache/sabul");
        let open = || fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).unwrap();
        fs::create_dir_all(&cache).unwrap();
        open();
        // Links to a program with the right content, and at the name of the next upload: `exec`
        // keeps the process id.
        let (outside, victim) = (home.path().join("outside"), home.path().join("victim"));
        program(&outside);
        fs::write(&victim, "as it was").unwrap();
        std::os::unix::fs::symlink(&outside, cache.join(format!("sabul-{hash}"))).unwrap();
        let command = format!("ln -s ../../victim .cache/sabul/incoming-$$; exec {command}");
        let said = text(&run(home.path(), &command, &upload(PROGRAM.as_bytes(), true)));
        assert!(said.starts_with("@sabul wants ") && said.contains("ran serve"), "{said}");
        assert_eq!(fs::read(&victim).unwrap(), b"as it was");
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&cache) & 0o777, 0o700);
        assert!(!cache.join(format!("sabul-{hash}")).is_symlink());
        // Without a push, the program in the cache is found, and its directory is first made
        // private.
        open();
        let said = text(&run(home.path(), &remote("", "1-2", None), b""));
        assert!(said.contains("/.cache/sabul/sabul-") && said.contains("ran serve"), "{said}");
        assert_eq!(mode(&cache) & 0o777, 0o700);
    }

    #[test]
    fn a_cache_of_another_user_or_behind_a_link_is_not_used() {
        let home = tempfile::tempdir().unwrap();
        let hash = crate::ssh::push::hash(PROGRAM.as_bytes());
        let pushing = remote("", "1-2", Some(&hash));
        let (cache, real) = (home.path().join(".cache/sabul"), home.path().join("real"));
        program(&real.join("sabul-x"));
        fs::create_dir_all(cache.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(&real, &cache).unwrap();
        let check = |what: &str| {
            let said = text(&run(home.path(), &pushing, &upload(PROGRAM.as_bytes(), true)));
            assert!(said.starts_with("@sabul damaged ") && !said.contains("ran"), "{what}: {said}");
            let said = text(&run(home.path(), &remote("", "1-2", None), b""));
            assert!(said.starts_with("@sabul missing "), "{what}: {said}");
        };
        check("link");
        if !rustix::process::geteuid().is_root() {
            println!("skipped the rest: only root can give a folder away");
            return;
        }
        fs::remove_file(&cache).unwrap();
        fs::rename(&real, &cache).unwrap();
        std::os::unix::fs::chown(&cache, Some(1000), Some(1000)).unwrap();
        check("another user's");
    }

    #[test]
    fn a_system_without_gzip_gets_the_unpacked_program() {
        let home = tempfile::tempdir().unwrap();
        let tools = home.path().join("tools");
        fs::create_dir(&tools).unwrap();
        for tool in ["sh", "uname", "mkdir", "head", "chmod", "mv", "rm", "sha256sum", "cut"] {
            let place = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(tool));
            let place = place.into_iter().find(|place| place.exists()).unwrap();
            std::os::unix::fs::symlink(place, tools.join(tool)).unwrap();
        }
        let hash = crate::ssh::push::hash(PROGRAM.as_bytes());
        let command = format!("PATH={}; {}", tools.display(), remote("", "1-2", Some(&hash)));
        let said = text(&run(home.path(), &command, &upload(PROGRAM.as_bytes(), false)));
        assert!(!said.contains("gzip") && said.contains("ran serve"), "{said}");
    }

    #[test]
    fn a_host_without_sabul_runs_the_program_that_is_sent() {
        let home = tempfile::tempdir().unwrap();
        let hash = crate::ssh::push::hash(PROGRAM.as_bytes());
        let input = [format!("{hash}\n").into_bytes(), upload(PROGRAM.as_bytes(), true)].concat();
        let said = text(&run(home.path(), &remote("", "1-2", None), &input));
        assert!(said.starts_with("@sabul missing ") && said.contains("@sabul wants "), "{said}");
        assert!(said.ends_with("ran serve --stdio --ports 1-2\n"), "{said}");
    }

    #[test]
    fn another_program_does_not_replace_a_sabul_that_works() {
        let home = tempfile::tempdir().unwrap();
        let hash = |program: &str| crate::ssh::push::hash(program.as_bytes());
        let push = |program: &str| {
            let command = remote("", "1-2", Some(&hash(program)));
            text(&run(home.path(), &command, &upload(program.as_bytes(), true)))
        };
        assert!(push(PROGRAM).contains("ran serve"));
        for other in ["#!/bin/sh\necho ls 9.1, not sabul\n", "#!/none\n", "root:x:0:0:\n"] {
            let said = push(other);
            assert!(said.contains("@sabul damaged its --version prints no"), "{other}: {said}");
            assert!(!said.contains("@sabul found"), "{other}: {said}");
        }
        let said = text(&run(home.path(), &remote("", "1-2", None), b""));
        assert!(said.contains("ran serve"), "{said}");
        let left = fs::read_dir(home.path().join(".cache/sabul")).unwrap();
        assert_eq!(left.count(), 1);
    }

    #[test]
    fn a_truncated_or_altered_program_is_not_run() {
        let home = tempfile::tempdir().unwrap();
        let hash = crate::ssh::push::hash(PROGRAM.as_bytes());
        let whole = upload(PROGRAM.as_bytes(), true);
        let other = upload(&PROGRAM.as_bytes()[1..], true);
        for wrong in [&whole[..whole.len() - 5], &other] {
            let output = run(home.path(), &remote("", "1-2", Some(&hash)), wrong);
            assert!(text(&output).contains("@sabul damaged "), "{output:?}");
            assert!(!text(&output).contains("ran"), "{output:?}");
            let left = fs::read_dir(home.path().join(".cache/sabul")).unwrap().count();
            assert_eq!(left, 0);
        }
    }
}
