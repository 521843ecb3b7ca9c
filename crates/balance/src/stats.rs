//! What a balancer has done.

use std::fmt::Write as _;

use plimsoll_units::Bytes;

/// How much a new ratio counts in the average.
const ALPHA: f64 = 0.1;

/// Something that is no ratio. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("a load ratio of {value} is no number from 0 on")]
pub struct NotARatio {
    /// What was given.
    pub value: f64,
}

/// What a balancer has done so far.
///
/// ```
/// use plimsoll_balance::LoadStats;
/// use plimsoll_units::Bytes;
///
/// let mut stats = LoadStats::default();
/// stats.record_distribution(24, Bytes::new(24_000_000_000));
/// stats.update_balance_ratio(0.95)?;
/// assert!(stats.report().starts_with("Total layers distributed: 24\nTotal VRAM used: 24.0 GB\n"));
/// # Ok::<(), plimsoll_balance::NotARatio>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadStats {
    /// Layers in all distributions, saturating.
    pub layers_distributed: u64,
    /// What they take, saturating.
    pub bytes_distributed: Bytes,
    /// How often load was moved, saturating.
    pub rebalancings: u64,
    balance_ratio: Option<f64>,
}

impl LoadStats {
    /// Counts a distribution of so many layers.
    pub fn record_distribution(&mut self, layers: u64, bytes: Bytes) {
        self.layers_distributed = self.layers_distributed.saturating_add(layers);
        self.bytes_distributed = self.bytes_distributed.saturating_add(bytes);
    }

    /// Takes a ratio into the average: the first one whole, a tenth of every later one.
    ///
    /// # Errors
    ///
    /// Not finite or negative: nothing changes.
    pub fn update_balance_ratio(&mut self, ratio: f64) -> Result<(), NotARatio> {
        if !ratio.is_finite() || ratio < 0.0 {
            return Err(NotARatio { value: ratio });
        }
        self.balance_ratio =
            Some(self.balance_ratio.map_or(ratio, |before| (1.0 - ALPHA) * before + ALPHA * ratio));
        Ok(())
    }

    /// Counts a move of load.
    pub fn record_rebalancing(&mut self) {
        self.rebalancings = self.rebalancings.saturating_add(1);
    }

    /// The average ratio; `None` before the first.
    pub fn balance_ratio(&self) -> Option<f64> {
        self.balance_ratio
    }

    /// Four lines for people.
    pub fn report(&self) -> String {
        let mut text = String::new();
        let ratio = self.balance_ratio.map_or_else(|| "none yet".to_owned(), |ratio| format!("{ratio:.2}"));
        // Writing to a text cannot fail.
        let _ = writeln!(text, "Total layers distributed: {}", self.layers_distributed);
        let _ = writeln!(text, "Total VRAM used: {}", self.bytes_distributed);
        let _ = writeln!(text, "Avg load balance ratio: {ratio}");
        let _ = writeln!(text, "Rebalancing operations: {}", self.rebalancings);
        text
    }
}
