//! Text form of signatures [PROTOCOL.sshsig], as `ssh-keygen -Y` reads and writes.

use data_encoding::BASE64;

const BEGIN: &str = "-----BEGIN SSH SIGNATURE-----";
const END: &str = "-----END SSH SIGNATURE-----";
/// Characters in a line, as ssh-keygen writes.
const LINE: usize = 70;

/// Returns the text form of a signature.
pub fn armored(signature: &[u8]) -> String {
    let encoded = BASE64.encode(signature);
    let mut text = format!("{BEGIN}\n");
    for line in encoded.as_bytes().chunks(LINE) {
        text.extend(line.iter().copied().map(char::from));
        text.push('\n');
    }
    text + END + "\n"
}

/// Returns the signature of a text form; `None` if the text is not exactly as [`armored`] writes.
pub fn from_armor(text: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let body = text.strip_prefix(BEGIN)?.strip_suffix('\n')?.strip_suffix(END)?;
    let signature = BASE64.decode(body.replace('\n', "").as_bytes()).ok()?;
    (armored(&signature) == text).then_some(signature)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_form_is_read_only_as_it_was_written() {
        for length in [0, 1, 52, 53, 300] {
            let signature = vec![7; length];
            let text = armored(&signature);
            assert_eq!(from_armor(text.as_bytes()), Some(signature));
            for at in 0..text.len() {
                let mut changed = text.clone().into_bytes();
                changed[at] = if changed[at] == b'x' { b'y' } else { b'x' };
                assert_ne!(from_armor(&changed), Some(vec![7; length]), "{length}, byte {at}");
            }
        }
        assert_eq!(from_armor(b""), None);
    }
}
