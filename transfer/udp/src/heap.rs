//! Free memory of the C library.

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
