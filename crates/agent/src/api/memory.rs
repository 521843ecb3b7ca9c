//! Plans that were made, for whoever asks the same again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use axum::http::StatusCode;

/// What was asked, and of what.
pub(crate) type Key = [u8; 32];

/// A plan or a refusal, as it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
    /// Of a refusal: its reason, how much is missing, and what is told of it.
    pub(crate) refusal: Option<Arc<Refused>>,
}

/// What is told of a refusal to those who did not ask.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) model: String,
    pub(crate) reason: &'static str,
    pub(crate) short_bytes: u64,
    pub(crate) certificate: String,
}

/// The answers of one generation of the cluster. A plan is a pure function of what was asked, of the model and of the
/// cluster, so that the same answer is given again; at the next generation all are forgotten.
#[derive(Debug)]
pub(crate) struct PlanMemory {
    most: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    generation: u64,
    bytes: usize,
    answers: BTreeMap<Key, Answer>,
}

impl PlanMemory {
    /// Keeps at most so many bytes of answers.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, kept: Mutex::default() }
    }

    /// What was answered to this at this generation.
    pub(crate) fn get(&self, generation: u64, key: &Key) -> Option<Answer> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.generation == generation { kept.answers.get(key).cloned() } else { None }
    }

    /// Keeps an answer, where there is room for it.
    pub(crate) fn keep(&self, generation: u64, key: Key, answer: Answer) {
        let size = answer.body.len().saturating_add(512);
        if size > self.most {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // Generations only move forward: an older one is of no use to anybody.
        if generation < kept.generation {
            return;
        }
        if generation > kept.generation || kept.bytes.saturating_add(size) > self.most {
            *kept = Kept { generation, ..Kept::default() };
        }
        if kept.answers.insert(key, answer).is_none() {
            kept.bytes = kept.bytes.saturating_add(size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(length: usize) -> Answer {
        Answer { status: StatusCode::OK, body: Bytes::from(vec![b'x'; length]), refusal: None }
    }

    #[test]
    fn answers_of_another_generation_are_not_given() {
        let memory = PlanMemory::new(10_000);
        memory.keep(7, [1; 32], answer(1));
        assert!(memory.get(7, &[1; 32]).is_some());
        assert!(memory.get(8, &[1; 32]).is_none());
        memory.keep(6, [2; 32], answer(1));
        assert!(memory.get(6, &[2; 32]).is_none(), "older than what is kept");
        memory.keep(8, [3; 32], answer(1));
        assert!(memory.get(7, &[1; 32]).is_none());
    }

    #[test]
    fn no_more_is_kept_than_is_allowed() {
        let memory = PlanMemory::new(5_000);
        for n in 0..100 {
            memory.keep(1, [n; 32], answer(488));
            let kept = memory.kept.lock().unwrap();
            assert!(kept.bytes <= 5_000 && kept.bytes == kept.answers.len() * 1_000);
        }
        memory.keep(1, [255; 32], answer(5_000));
        assert!(memory.get(1, &[255; 32]).is_none(), "longer than all that may be kept");
    }
}
