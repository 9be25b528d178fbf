//! Limits of a session: concurrent file requests, and numbers of transfers.

use crate::error::Error;

/// Most concurrent file requests of a peer that [`Session::serve`](super::Session::serve) runs.
pub(super) const FILE_TRANSFERS_MAX: usize = 16;

/// Message to a peer with too many file requests.
pub(super) fn crowded() -> String {
    format!("{FILE_TRANSFERS_MAX} transfers are under way in this session; wait for one to end")
}

/// Takes the next number of a transfer that this end opens.
pub(super) fn take_number(next: &mut u32) -> Result<u32, Error> {
    let after = next.checked_add(2).ok_or_else(|| {
        let why = "this session has used up its numbers for transfers";
        Error::impossible("another transfer", why, "connect anew")
    })?;
    Ok(std::mem::replace(next, after))
}
