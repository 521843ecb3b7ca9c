//! When to rebalance: not for little, not too often, not again for the same reason.

use std::time::Duration;

/// What keeps a rebalancing from following the last one too soon.
///
/// The caller holds it, and tells the time: any clock that does not go back. The same samples again and again lead to at
/// most one rebalancing: after one, the next has to have a new reason, which is a sample that was fine in between, or a
/// gain that has grown by [`Hysteresis::least_gain`].
#[derive(Clone, Debug, PartialEq)]
pub struct Hysteresis {
    /// The least gain worth a move, as a share of the value (0.05 is 5 %).
    pub least_gain: f64,
    /// The time that has to pass from one rebalancing to the next.
    pub cool_down: Duration,
    /// How many samples in a row have to ask for it.
    pub samples: u32,
    /// Samples in a row that asked for it.
    seen: u32,
    /// When the last rebalancing was decided on, and what it was to gain; the gain is gone once a sample was fine.
    last: Option<(Duration, Option<f64>)>,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// Rebalance.
    Go,
    /// Leave things as they are.
    Hold(Hold),
}

/// Why things stay as they are.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Hold {
    /// Nothing is skewed.
    #[error("nothing is skewed")]
    Even,
    /// It would gain too little.
    #[error("a gain of {gain} is less than {least}")]
    LittleGain {
        /// What it would gain.
        gain: f64,
        /// What it should.
        least: f64,
    },
    /// The last rebalancing was for the same reason.
    #[error("the last rebalancing was for the same gain of {gain}")]
    SameReason {
        /// What it was to gain.
        gain: f64,
    },
    /// It may pass by itself.
    #[error("{seen} of {needed} samples in a row ask for it")]
    FewSamples {
        /// Samples in a row that asked for it.
        seen: u32,
        /// How many have to.
        needed: u32,
    },
    /// The last rebalancing was not long ago.
    #[error("the last rebalancing was too recent: {} ms are left", .left.as_millis())]
    CoolingDown {
        /// How long it takes until the next one.
        left: Duration,
    },
}

/// 5 %, a minute, three samples.
impl Default for Hysteresis {
    fn default() -> Self {
        Self::new(0.05, Duration::from_secs(60), 3)
    }
}

impl Hysteresis {
    /// Nothing seen, nothing decided. A least gain that is not a number is taken for one that no gain reaches.
    pub fn new(least_gain: f64, cool_down: Duration, samples: u32) -> Self {
        let least_gain = if least_gain.is_nan() { f64::INFINITY } else { least_gain };
        Self { least_gain, cool_down, samples, seen: 0, last: None }
    }
}

/// Takes in one sample, and says what to do.
///
/// `gain` is the share by which a rebalancing would make the value better; what is not a number is no gain.
pub fn decide(state: &mut Hysteresis, now: Duration, skewed: bool, gain: f64) -> Decision {
    let fine = |state: &mut Hysteresis, why| {
        state.seen = 0;
        if let Some((_, gain)) = &mut state.last {
            *gain = None;
        }
        Decision::Hold(why)
    };
    if !skewed {
        return fine(state, Hold::Even);
    }
    if gain.is_nan() || gain <= 0.0 || gain < state.least_gain {
        return fine(state, Hold::LittleGain { gain, least: state.least_gain });
    }
    if let Some((_, Some(last))) = state.last
        && (gain <= last || gain < last + state.least_gain)
    {
        state.seen = 0;
        return Decision::Hold(Hold::SameReason { gain: last });
    }
    state.seen = state.seen.saturating_add(1);
    if state.seen < state.samples {
        return Decision::Hold(Hold::FewSamples { seen: state.seen, needed: state.samples });
    }
    if let Some((then, _)) = state.last {
        let left = state.cool_down.saturating_sub(now.saturating_sub(then));
        if !left.is_zero() {
            return Decision::Hold(Hold::CoolingDown { left });
        }
    }
    state.seen = 0;
    state.last = Some((now, Some(gain)));
    Decision::Go
}
