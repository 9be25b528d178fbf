//! What this program was built from.

/// The source that this was built from.
pub const COMMIT: &str = env!("SABUL_COMMIT");
