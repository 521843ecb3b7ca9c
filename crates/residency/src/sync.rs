//! The locks that the ledger in memory stands on. Its model test puts others in their place.

pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
