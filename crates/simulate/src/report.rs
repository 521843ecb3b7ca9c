//! What came of a simulation.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_units::Bytes;

/// What came of it. Equal scenarios give equal reports, but for [`Report::planning`].
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// What the scenario is called.
    pub name: String,
    /// What chance was drawn from.
    pub seed: u64,
    /// How long it lasted.
    pub duration: Duration,
    /// How many nodes there were at the start.
    pub nodes: usize,
    /// How often the controller looked.
    pub looks: u64,
    /// Each model, in the order of the scenario.
    pub models: Vec<ModelReport>,
    /// How often something was refused, by reason.
    pub refusals: BTreeMap<String, u64>,
    /// For how long some plan in force did not fit, or was worse than it could be by the least gain or more.
    pub out_of_balance: Duration,
    /// The largest ratio of available shares that was seen.
    pub largest_skew: f64,
    /// What should never happen: decisions that the checks do not agree with. Empty, or there is a fault in this program.
    pub violations: Vec<String>,
    /// How often a planner was asked.
    pub planned: u64,
    /// How long planners took in all, by the caller's clock; zero where it stands still.
    pub planning: Duration,
    /// What happened, in order.
    pub noted: Vec<Noted>,
    /// How many more things happened than are kept.
    pub not_kept: u64,
}

/// What came of one model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelReport {
    /// What it is called.
    pub name: String,
    /// For how long it was wanted.
    pub wanted: Duration,
    /// For how long of that every layer was there, on nodes that answered.
    pub served: Duration,
    /// How often it was placed anew.
    pub placed: u64,
    /// How often it was pushed out by a model of more priority.
    pub evicted: u64,
    /// How many rebalancings there were.
    pub moves: u64,
    /// Bytes that moved from one device to another.
    pub moved_bytes: Bytes,
    /// Bytes that were read from where the model is stored.
    pub loaded_bytes: Bytes,
    /// The value of its plan at the end, in its objective's unit.
    pub value: Option<f64>,
    /// What it did when.
    pub spans: Vec<Span>,
}

/// What a model did for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// From when.
    pub from: Duration,
    /// Until when.
    pub until: Duration,
    /// What.
    pub mood: Mood,
}

/// What a model can be doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mood {
    /// It has no place.
    Waiting,
    /// It has one and is being loaded.
    Loading,
    /// It answers.
    Serving,
    /// It answers, and layers move.
    Moving,
    /// A node that it lies on does not answer.
    Stalled,
}

impl Mood {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Loading => "loading",
            Self::Serving => "serving",
            Self::Moving => "moving",
            Self::Stalled => "stalled",
        }
    }

    /// Whether requests are answered.
    pub const fn serves(self) -> bool {
        matches!(self, Self::Serving | Self::Moving)
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted {
    /// When.
    pub at: Duration,
    /// What, in words.
    pub what: String,
}

/// The most things that are kept of one run.
const MOST_NOTED: usize = 10_000;

impl Report {
    pub(crate) fn note(&mut self, at: Duration, what: String) {
        if self.noted.len() < MOST_NOTED {
            self.noted.push(Noted { at, what });
        } else {
            self.not_kept += 1;
        }
    }

    pub(crate) fn refuse(&mut self, reason: impl Into<String>) {
        *self.refusals.entry(reason.into()).or_insert(0) += 1;
    }

    /// All bytes that moved from one device to another.
    pub fn moved_bytes(&self) -> Bytes {
        Bytes::saturating_sum(self.models.iter().map(|model| model.moved_bytes))
    }

    /// All bytes that were read from where models are stored.
    pub fn loaded_bytes(&self) -> Bytes {
        Bytes::saturating_sum(self.models.iter().map(|model| model.loaded_bytes))
    }

    /// All rebalancings.
    pub fn moves(&self) -> u64 {
        self.models.iter().map(|model| model.moves).sum()
    }
}

impl ModelReport {
    /// Adds a while; one of the same kind goes on.
    pub(crate) fn spend(&mut self, from: Duration, until: Duration, mood: Mood) {
        if until <= from {
            return;
        }
        let span = until.saturating_sub(from);
        self.wanted += span;
        if mood.serves() {
            self.served += span;
        }
        match self.spans.last_mut() {
            Some(last) if last.mood == mood && last.until == from => last.until = until,
            _ => self.spans.push(Span { from, until, mood }),
        }
    }
}
