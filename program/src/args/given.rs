//! Flags of a command line, to pass on to the same command on another machine.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use clap::{Arg, Command};

/// Returns the flags among the words of a command, without places and without the flags that are named by their long
/// names. Each value is in the same word as its flag, or in the word after a short flag.
pub(super) fn flags(command: &Command, words: &[OsString], without: &[&str]) -> Vec<OsString> {
    let takes_value = |arg: &Arg| arg.get_action().takes_values();
    let is_kept = |arg: &Arg| arg.get_long().is_none_or(|long| !without.contains(&long));
    let mut kept = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let bytes = word.as_bytes();
        if bytes == b"--" {
            break;
        }
        if let Some(rest) = bytes.strip_prefix(b"--") {
            let (name, value) = match rest.iter().position(|&byte| byte == b'=') {
                Some(at) => (&rest[..at], Some(&rest[at + 1..])),
                None => (rest, None),
            };
            let named = |arg: &&Arg| {
                let all = arg.get_all_aliases().unwrap_or_default();
                arg.get_long().into_iter().chain(all).any(|long| long.as_bytes() == name)
            };
            let Some(arg) = command.get_arguments().find(named) else { continue };
            let needs_next = value.is_none() && takes_value(arg) && !arg.is_require_equals_set();
            let next = needs_next.then(|| words.next()).flatten();
            if is_kept(arg) {
                let value = value.or_else(|| next.map(|next| next.as_bytes()));
                kept.push(match value {
                    Some(value) => joined(&[b"--", name, b"=", value]),
                    None => word.clone(),
                });
            }
        } else if let Some(mut letters) = bytes.strip_prefix(b"-").filter(|rest| !rest.is_empty()) {
            while let Some((&letter, rest)) = letters.split_first() {
                letters = rest;
                let named = |arg: &&Arg| arg.get_short() == Some(char::from(letter));
                let Some(arg) = command.get_arguments().find(named) else { continue };
                let mut flag = vec![joined(&[b"-", &[letter]])];
                if takes_value(arg) {
                    let value = match rest {
                        [] => words.next().cloned().unwrap_or_default(),
                        rest => OsStr::from_bytes(rest).to_owned(),
                    };
                    flag.push(value);
                    letters = &[];
                }
                if is_kept(arg) {
                    kept.append(&mut flag);
                }
            }
        }
    }
    kept
}

fn joined(parts: &[&[u8]]) -> OsString {
    OsString::from_vec(parts.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags_of(words: &[&str]) -> Vec<String> {
        let command = crate::args::command();
        let copy = command.find_subcommand("cp").unwrap();
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let kept = flags(copy, &words, &["ssh", "json", "ticket"]);
        kept.into_iter().map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn flags_and_their_values_are_kept_and_places_are_not() {
        let words = ["-rp", "a:x", "--bwlimit", "50M", "--exclude=*.o", "b:y", "--", "-p"];
        assert_eq!(flags_of(&words), ["-r", "-p", "--bwlimit=50M", "--exclude=*.o"]);
        assert_eq!(flags_of(&["--json", "a:x", "--no-sync", "b:y"]), ["--no-sync"]);
    }

    #[test]
    fn named_flags_are_left_out_with_their_values() {
        for words in [&["-re", "ssh -p 1", "a:x"][..], &["--ssh", "x", "-r"], &["-r", "--ssh=x"]] {
            assert_eq!(flags_of(words), ["-r"], "{words:?}");
        }
        assert_eq!(flags_of(&["-essh -p 1", "--ticket", "t"]), [""; 0]);
    }
}
