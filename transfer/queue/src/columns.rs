//! Values of the columns of both stores.

/// Ours: maximum length of a stored message in bytes.
pub(crate) const MESSAGE_MAX: usize = 2000;

/// Joins words, each followed by a NUL byte.
pub(crate) fn joined(words: &[Vec<u8>]) -> Vec<u8> {
    words.iter().flat_map(|word| word.iter().copied().chain([0])).collect()
}

/// Splits words that [`joined`] joined.
pub(crate) fn split(text: &[u8]) -> Vec<Vec<u8>> {
    let words = text.strip_suffix(b"\0").map(|text| text.split(|&byte| byte == 0));
    words.into_iter().flatten().map(<[u8]>::to_vec).collect()
}

/// Databases have signed integers.
pub(crate) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Returns the start of a long message.
pub(crate) fn shortened(message: &str) -> &str {
    let ends = message.char_indices().map(|(at, _)| at).take_while(|at| *at <= MESSAGE_MAX);
    if message.len() <= MESSAGE_MAX { message } else { &message[..ends.last().unwrap_or(0)] }
}
