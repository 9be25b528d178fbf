//! Build information.

/// Git commit of the source, 12 hex digits, or `unknown`.
pub const COMMIT: &str = env!("SABUL_COMMIT");
