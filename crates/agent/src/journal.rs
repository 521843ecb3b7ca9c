//! What happened, kept for those who come late or read slowly.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::watch;

use crate::clock;

/// One thing that happened.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Its number, from 1 on, without gaps.
    pub(crate) number: u64,
    /// Which kind of thing.
    pub(crate) kind: &'static str,
    /// What, as JSON.
    pub(crate) data: String,
}

/// The last things that happened, in order. Nobody who reads it holds up whoever writes, or another reader: a reader has
/// nothing but the number of what it read last.
#[derive(Debug)]
pub(crate) struct Journal {
    /// Tells the numbers of one agent's life from those of another's.
    life: String,
    capacity: usize,
    ring: Mutex<Ring>,
    last: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Ring {
    entries: VecDeque<Arc<Entry>>,
    last: u64,
}

/// What happened, and when: milliseconds since the UNIX epoch.
#[derive(Serialize)]
struct Stamped<'a, T> {
    at: u64,
    #[serde(flatten)]
    what: &'a T,
}

/// What a reader missed, and what comes next.
#[derive(Debug, Default)]
pub(crate) struct Read {
    /// So many are gone that it never saw; `None` when that cannot be told.
    pub(crate) lost: Option<u64>,
    /// What is there after what it read last.
    pub(crate) entries: Vec<Arc<Entry>>,
}

impl Journal {
    /// An empty one that keeps so many entries.
    pub(crate) fn new(life: String, capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self { life, capacity, ring: Mutex::default(), last: watch::Sender::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        // Nothing is left half done under this lock.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that something happened, and when.
    pub(crate) fn note(&self, kind: &'static str, what: &impl Serialize) {
        let data = match serde_json::to_string(&Stamped { at: clock::now().as_millis(), what }) {
            Ok(data) => data,
            Err(error) => {
                tracing::error!("an event cannot be said in JSON: {error}");
                return;
            }
        };
        let mut ring = self.lock();
        let number = ring.last.saturating_add(1);
        ring.last = number;
        if ring.entries.len() == self.capacity {
            ring.entries.pop_front();
        }
        ring.entries.push_back(Arc::new(Entry { number, kind, data }));
        // Under the lock, so that numbers are told in order.
        self.last.send_replace(number);
    }

    /// Tells when there is more to read.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    /// The name of this agent's life.
    pub(crate) fn life(&self) -> &str {
        &self.life
    }

    /// What a reader names to go on after an entry.
    pub(crate) fn name(&self, number: u64) -> String {
        format!("{}-{number}", self.life)
    }

    /// The number that a reader names, or `None` when it is of another life, or none at all.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        let (life, number) = name.rsplit_once('-')?;
        if life == self.life { number.parse().ok() } else { None }
    }

    /// The number of the last entry, 0 when there was none.
    pub(crate) fn last(&self) -> u64 {
        self.lock().last
    }

    /// What comes after the entry of this number, at most so many.
    pub(crate) fn after(&self, seen: u64, most: usize) -> Read {
        let ring = self.lock();
        let Some(first) = ring.entries.front().map(|entry| entry.number) else {
            return Read { lost: Some(0), entries: Vec::new() };
        };
        let skip = usize::try_from(seen.saturating_add(1).saturating_sub(first)).unwrap_or(usize::MAX);
        let entries = ring.entries.iter().skip(skip).take(most).cloned().collect();
        Read { lost: Some(first.saturating_sub(seen.saturating_add(1))), entries }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn numbers(read: &Read) -> Vec<u64> {
        read.entries.iter().map(|entry| entry.number).collect()
    }

    #[test]
    fn a_reader_gets_what_it_has_not_read_and_how_much_is_gone() {
        let journal = Journal::new("a".to_owned(), 3);
        assert_eq!((journal.after(0, 9).lost, journal.last()), (Some(0), 0));
        for n in 1..=5 {
            journal.note("n", &BTreeMap::from([("n", n)]));
        }
        for (seen, lost, rest) in [
            (0, 2, vec![3, 4, 5]),
            (1, 1, vec![3, 4, 5]),
            (2, 0, vec![3, 4, 5]),
            (4, 0, vec![5]),
            (5, 0, vec![]),
        ] {
            let read = journal.after(seen, 9);
            assert_eq!((read.lost, numbers(&read)), (Some(lost), rest), "after {seen}");
        }
        assert_eq!(numbers(&journal.after(0, 2)), [3, 4]);
        assert_eq!(numbers(&journal.after(u64::MAX, 2)), [] as [u64; 0]);
        assert_eq!(*journal.news().borrow(), 5);
    }

    #[test]
    fn a_name_of_another_life_is_no_number() {
        let journal = Journal::new("17a-b".to_owned(), 3);
        assert_eq!(journal.number(&journal.name(7)), Some(7));
        for other in ["", "7", "17a-7", "x-7", "17a-b-", "17a-b--7", "17a-b-x"] {
            assert_eq!(journal.number(other), None, "{other}");
        }
    }
}
