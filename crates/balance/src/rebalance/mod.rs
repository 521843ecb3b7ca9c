//! From the plan in force to a better one with few bytes moved.

mod error;
mod hysteresis;
mod types;

pub use error::RebalanceError;
pub use hysteresis::{Decision, Hold, Hysteresis, decide};
pub use types::{
    Blocked, InFlight, LinkUse, Piece, PoolPeak, Proposal, Rebalance, RebalanceOptions, Round, Schedule,
    Score, Step, TimedStep, Trade,
};
