//! How an agent is set up.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::Token;

/// What an agent may be asked from where.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens; port 0 takes any that is free. Anything but this machine alone needs a token.
    pub listen: SocketAddr,
    /// What whoever asks has to know.
    pub token: Option<Token>,
    /// The folder below which models may be named by path; without it, none may.
    pub models: Option<PathBuf>,
    /// How much it bears.
    pub limits: Limits,
}

/// This machine alone, on a port that is free, without a token and without models.
impl Default for Config {
    fn default() -> Self {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self { listen, token: None, models: None, limits: Limits::default() }
    }
}

/// How much an agent bears, and for how long.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The longest body of a request, in bytes.
    pub body: usize,
    /// The most layers of a list that comes with a request.
    pub layers: usize,
    /// How long the head of a request may take, and how long a connection may rest between two.
    pub head_time: Duration,
    /// How long the body of a request may take.
    pub body_time: Duration,
    /// How long an answer may take; work that was begun goes on to its end.
    pub answer_time: Duration,
    /// How long a peer may take none of what is sent to it.
    pub stall_time: Duration,
    /// How long answers that are under way may take once the agent is to stop.
    pub stop_time: Duration,
    /// Between two looks at what is free on the machine.
    pub look_interval: Duration,
    /// Between two looks at what is booked; what was measured is so long believed while the bookings are the same.
    pub ledger_interval: Duration,
    /// How many connections at once.
    pub connections: usize,
    /// How many requests at once, event streams not counted.
    pub requests: usize,
    /// How many plans are made at once.
    pub plans: usize,
    /// How many event streams at once.
    pub streams: usize,
    /// How many events are kept for those who come late.
    pub events: usize,
    /// How many bytes of plans are kept to be given again to whoever asks the same.
    pub kept_plans: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            body: 1 << 20,
            layers: 20_000,
            head_time: Duration::from_secs(10),
            body_time: Duration::from_secs(10),
            answer_time: Duration::from_secs(30),
            stall_time: Duration::from_secs(60),
            stop_time: Duration::from_secs(5),
            look_interval: Duration::from_secs(5),
            ledger_interval: Duration::from_secs(1),
            connections: 1024,
            requests: 256,
            plans: processors,
            streams: 64,
            events: 1024,
            kept_plans: 8 << 20,
        }
    }
}
