//! Removes symbols and debug information from a program.
//!
//! A loader reads only the segments of a program. Section headers, symbols and debug information
//! follow the last segment, so a copy cut there still runs [elf(5)].

/// Byte offsets of fields in the header of a 64-bit file.
const SEGMENTS_AT: usize = 32;
const SECTIONS_AT: usize = 40;
const SEGMENT_SIZE: usize = 54;
const SEGMENT_COUNT: usize = 56;
/// Size, count and name index of the section headers.
const SECTION_FIELDS: std::ops::Range<usize> = 58..64;
/// Byte offsets of offset and size in a segment header.
const SEGMENT_OFFSET: usize = 8;
const SEGMENT_FILE_SIZE: usize = 32;

/// Returns the program without its sections, if it is a 64-bit little-endian ELF file; otherwise
/// unchanged.
pub(super) fn stripped(mut program: Vec<u8>) -> Vec<u8> {
    if let Some(end) = end_of_segments(&program) {
        program.truncate(end);
        program[SECTIONS_AT..SECTIONS_AT + 8].fill(0);
        program[SECTION_FIELDS].fill(0);
    }
    program
}

/// Returns the end of the last segment. `None` for other files, and for files with missing
/// segments.
fn end_of_segments(program: &[u8]) -> Option<usize> {
    if !program.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (at, size) = (long(program, SEGMENTS_AT)?, usize::from(short(program, SEGMENT_SIZE)?));
    let count = usize::from(short(program, SEGMENT_COUNT)?);
    let mut end = at.checked_add(size.checked_mul(count)?)?;
    for n in 0..count {
        let header = program.get(at.checked_add(n * size)?..)?;
        let offset = long(header, SEGMENT_OFFSET)?;
        end = end.max(offset.checked_add(long(header, SEGMENT_FILE_SIZE)?)?);
    }
    (count > 0 && end >= SECTION_FIELDS.end && end <= program.len()).then_some(end)
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<usize> {
    let number = u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?);
    usize::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    #[test]
    fn a_stripped_program_is_smaller_and_still_runs() {
        let whole = std::fs::read("/proc/self/exe").unwrap();
        let stripped = stripped(whole.clone());
        // A program built without debug information still has symbols.
        assert!(stripped.len() < whole.len() * 9 / 10, "{} of {}", stripped.len(), whole.len());
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("program");
        std::fs::write(&path, &stripped).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let output = loop {
            match Command::new(&path).arg("--list").output() {
                // A process that another test forked has the file open until it executes its program.
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                result => break result.unwrap(),
            }
        };
        assert!(output.status.success() && !output.stdout.is_empty(), "{output:?}");
        // Stripping twice changes nothing.
        assert!(super::stripped(stripped.clone()) == stripped);
    }

    #[test]
    fn files_that_are_not_complete_elf_programs_are_not_stripped() {
        let whole = std::fs::read("/proc/self/exe").unwrap();
        let mut odd = whole[..4096].to_vec();
        assert!(stripped(odd.clone()) == odd, "cut off");
        odd[SEGMENTS_AT..SEGMENTS_AT + 8].fill(0xff);
        assert!(stripped(odd.clone()) == odd, "segments nowhere");
        for length in 0..80 {
            assert!(stripped(whole[..length].to_vec()) == whole[..length]);
        }
        assert_eq!(stripped(b"#!/bin/sh\n".to_vec()), b"#!/bin/sh\n");
    }
}
