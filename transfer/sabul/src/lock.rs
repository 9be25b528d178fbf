//! Lock of a mutex that ignores poisoning.
//!
//! A panic ends one transfer; other transfers of the process share these mutexes and continue.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Locks the mutex, also after a panic of a thread that held it.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until the condition variable is notified, and locks the mutex of `guard` again.
pub(crate) fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
}
