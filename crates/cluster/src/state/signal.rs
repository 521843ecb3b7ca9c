//! One quantity over time.

use std::collections::VecDeque;

/// How much a new sample counts in an average.
const ALPHA: f64 = 0.1;

/// How many samples are remembered.
const REMEMBERED: usize = 32;

/// One quantity over time: its last value, its extremes, a moving average, and the last 32 samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signal {
    range: Option<Range>,
    history: VecDeque<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Range {
    min: f64,
    max: f64,
    average: f64,
}

impl Signal {
    /// No sample yet.
    pub(super) const fn new() -> Self {
        Self { range: None, history: VecDeque::new() }
    }

    /// The newest sample.
    pub fn last(&self) -> Option<f64> {
        self.history.back().copied()
    }

    /// The smallest sample ever.
    pub fn min(&self) -> Option<f64> {
        self.range.map(|range| range.min)
    }

    /// The largest sample ever.
    pub fn max(&self) -> Option<f64> {
        self.range.map(|range| range.max)
    }

    /// The moving average: the first sample whole, then a tenth of each new one.
    pub fn average(&self) -> Option<f64> {
        self.range.map(|range| range.average)
    }

    /// The last samples, at most 32, the oldest first.
    pub fn history(&self) -> impl ExactSizeIterator<Item = f64> + '_ {
        self.history.iter().copied()
    }

    /// A sample that was checked.
    pub(super) fn take(&mut self, sample: f64) {
        self.range = Some(match self.range {
            None => Range { min: sample, max: sample, average: sample },
            Some(range) => Range {
                min: range.min.min(sample),
                max: range.max.max(sample),
                // Weighted, so that the average of finite samples is finite and lies between them.
                average: (1.0 - ALPHA) * range.average + ALPHA * sample,
            },
        });
        if self.history.len() == REMEMBERED {
            self.history.pop_front();
        }
        self.history.push_back(sample);
    }
}
