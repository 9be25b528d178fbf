//! Free memory of the C library.

/// Smallest buffer whose memory returns to the system at once, in bytes. The smallest block of a transfer.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE_BYTES: libc::c_int = 64 << 10;

/// From now on the memory of each freed buffer of 64 KiB or more returns to the system at once. The allocator of glibc
/// otherwise raises this limit to the largest freed buffer, and each thread keeps what it has freed below. No effect
/// with other C libraries.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn return_large_buffers_at_once() {
    // SAFETY: the function takes numbers only, and may be called at any time from any thread.
    let _ = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES) };
}

/// No effect: this C library returns its memory by itself, or cannot.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub const fn return_large_buffers_at_once() {}

/// Returns the free memory of the allocator to the system. The allocator of glibc otherwise keeps most of it: the
/// memory of threads that ended, and large buffers after the first of their size. No effect with other C libraries.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn return_free_memory() {
    // SAFETY: the function takes a number only, and may be called at any time from any thread.
    let _ = unsafe { libc::malloc_trim(0) };
}

/// No effect: this C library returns its memory by itself, or cannot.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub const fn return_free_memory() {}
