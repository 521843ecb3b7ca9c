//! What a simulation is given.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_balance::{PlanOptions, Workload};
use plimsoll_cluster::{ClusterSnapshot, Limits, LimitsError, Link, Node, SnapshotError};
use plimsoll_units::{Bytes, BytesPerSec, NodeId, PoolId};

/// A cluster, what is wanted of it, and what happens to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// What it is called.
    pub name: String,
    /// What chance is drawn from.
    pub seed: u64,
    /// How long it lasts.
    pub duration: Duration,
    /// How often nodes are heard of and the controller looks.
    pub sample: Duration,
    /// When silence means something.
    pub limits: Limits,
    /// How the controller decides.
    pub policy: Policy,
    /// The cluster at the start. What of a pool is not free is taken by others.
    pub start: ClusterSnapshot,
    /// The models.
    pub models: Vec<Wanted>,
    /// What happens, in any order; of events at the same time the first listed comes first.
    pub events: Vec<Event>,
    /// What else may happen.
    pub chance: Chance,
}

/// How the controller decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// From which ratio of available shares on the devices count as unequally used.
    pub threshold: f64,
    /// The least gain that is worth a move, as a share of the value.
    pub least_gain: f64,
    /// The time that has to pass from one rebalancing for a gain to the next.
    pub cool_down: Duration,
    /// How many looks in a row have to ask for it.
    pub samples: u32,
    /// How much worse than the best in its order the target of a rebalancing may be.
    pub tolerance: f64,
    /// How many steps of a rebalancing run at once.
    pub max_concurrent: NonZeroU32,
    /// How fast layers are read from where models are stored.
    pub load_rate: BytesPerSec,
    /// How fast bytes pass between two devices of one node.
    pub local_rate: BytesPerSec,
    /// Who has been placed for less than this is not evicted for another model.
    pub min_age: Duration,
}

/// The thresholds of the balancer, 5 %, a minute, three looks, 2 %, one step at once, 2 GB/s from the store, 25 GB/s inside a node,
/// a minute.
impl Default for Policy {
    fn default() -> Self {
        Self {
            threshold: 1.25,
            least_gain: 0.05,
            cool_down: Duration::from_secs(60),
            samples: 3,
            tolerance: 0.02,
            max_concurrent: NonZeroU32::MIN,
            load_rate: BytesPerSec::new(2_000_000_000),
            local_rate: BytesPerSec::new(25_000_000_000),
            min_age: Duration::from_secs(60),
        }
    }
}

/// A model that somebody wants placed.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// What it is called; no two are called the same.
    pub name: String,
    /// What it weighs.
    pub workload: Workload,
    /// What its plan should be good at, and what it may use.
    pub options: PlanOptions,
    /// Who of two comes first. A model may push out those of less priority.
    pub priority: u32,
    /// From when on it is wanted.
    pub from: Duration,
    /// Until when; to the end where there is none.
    pub until: Option<Duration>,
}

/// Something that happens.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When.
    pub at: Duration,
    /// What.
    pub what: Happening,
}

/// What can happen to a cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    /// A node loses its power: it falls silent, and what it held is gone.
    Lose(NodeId),
    /// A node cannot be reached any more; it keeps what it holds.
    Cut(NodeId),
    /// A node that was lost or cut off is back; after a loss it holds nothing.
    Return(NodeId),
    /// A new node.
    Join(Box<Node>),
    /// A node is taken out for good, with what it held.
    Leave(NodeId),
    /// A node takes nothing new from now on.
    Drain(NodeId),
    /// A node takes layers again.
    Undrain(NodeId),
    /// From now on others take this much of a pool.
    Outside {
        /// The node.
        node: NodeId,
        /// Its pool.
        pool: PoolId,
        /// What others take in all.
        bytes: Bytes,
    },
    /// The way between two nodes is as fast as this from now on.
    Link(Link),
}

/// What happens by chance, drawn from the seed. All rates count the whole cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chance {
    /// How many nodes lose their power in an hour.
    pub losses_per_hour: f64,
    /// After how long such a node is back.
    pub repair: Duration,
    /// How many times in an hour others take another share of some pool.
    pub drifts_per_hour: f64,
    /// The most that they take, as a share of the pool.
    pub drift_share: f64,
}

/// A scenario that cannot be run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsound {
    /// The cluster is not sound.
    #[error("the cluster at the start is not sound")]
    Start(#[source] SnapshotError),
    /// A time that must pass is zero.
    #[error("{what} is zero")]
    Zero {
        /// Which.
        what: &'static str,
    },
    /// More looks than anybody waits for.
    #[error("a look every {} ms for {} ms is {looks} looks; at most {most} are run", .sample.as_millis(), .duration.as_millis())]
    TooManyLooks {
        /// How often.
        sample: Duration,
        /// For how long.
        duration: Duration,
        /// How many.
        looks: u128,
        /// How many are run.
        most: u128,
    },
    /// The limits contradict each other.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// A node that is heard of once in a while would have failed in between.
    #[error("nodes are heard of every {} ms and would be {what} after {} ms of silence", .sample.as_millis(), .after.as_millis())]
    LooksTooRare {
        /// How often.
        sample: Duration,
        /// What they would be.
        what: &'static str,
        /// After how long.
        after: Duration,
    },
    /// Two models of one name.
    #[error("two models are called '{name}'")]
    SameName {
        /// The name.
        name: String,
    },
    /// A model without anything to place.
    #[error("model '{name}' has no layers")]
    NoLayers {
        /// The model.
        name: String,
    },
    /// Something happens to a node, pool or model that is not there at that time.
    #[error("at {} s {what}, and there is no such {kind}", .at.as_secs_f64())]
    Unknown {
        /// When.
        at: Duration,
        /// What happens.
        what: String,
        /// What there is none of.
        kind: &'static str,
    },
    /// A number that is not one, or outside what makes sense.
    #[error("{what} is {value}, and must be {must}")]
    Number {
        /// Which.
        what: &'static str,
        /// What it is.
        value: f64,
        /// What it may be.
        must: &'static str,
    },
}

/// The most looks of one run.
const MOST_LOOKS: u128 = 1_000_000;

impl Scenario {
    /// An hour of nothing on a cluster, with a look every ten seconds; seed 1.
    pub fn new(name: impl Into<String>, start: ClusterSnapshot) -> Self {
        let sample = Duration::from_secs(10);
        Self {
            name: name.into(),
            seed: 1,
            duration: Duration::from_secs(3600),
            sample,
            limits: Self::limits_for(sample),
            policy: Policy::default(),
            start,
            models: Vec::new(),
            events: Vec::new(),
            chance: Chance::default(),
        }
    }

    /// Degraded after one missed look and a half, failed after three; samples are believed for ever.
    pub fn limits_for(sample: Duration) -> Limits {
        Limits {
            degraded_after: sample.saturating_mul(3) / 2,
            failed_after: sample.saturating_mul(3),
            free_outdated_after: None,
        }
    }

    /// Whether it can be run.
    ///
    /// # Errors
    ///
    /// A cluster that is not sound, a time of zero, two models of one name, a model without layers, an event about something
    /// that is not there, a number out of range, more than a million looks.
    pub fn validate(&self) -> Result<(), Unsound> {
        self.start.validate().map_err(Unsound::Start)?;
        for (what, span) in [("the duration", self.duration), ("the time between two looks", self.sample)] {
            if span.is_zero() {
                return Err(Unsound::Zero { what });
            }
        }
        let looks = self.duration.as_nanos() / self.sample.as_nanos();
        if looks > MOST_LOOKS {
            let (sample, duration) = (self.sample, self.duration);
            return Err(Unsound::TooManyLooks { sample, duration, looks, most: MOST_LOOKS });
        }
        self.limits.validate()?;
        let silences = [("degraded", self.limits.degraded_after), ("failed", self.limits.failed_after)];
        if let Some((what, after)) = silences.into_iter().find(|(_, after)| *after <= self.sample) {
            return Err(Unsound::LooksTooRare { sample: self.sample, what, after });
        }
        self.check_numbers()?;
        let mut names = BTreeSet::new();
        for model in &self.models {
            if !names.insert(&model.name) {
                return Err(Unsound::SameName { name: model.name.clone() });
            }
            if model.workload.footprints.first().is_none_or(|footprint| footprint.layers.is_empty()) {
                return Err(Unsound::NoLayers { name: model.name.clone() });
            }
        }
        crate::world::check_events(self)
    }

    fn check_numbers(&self) -> Result<(), Unsound> {
        let from = |what, value: f64, least: f64, must| {
            let good = value.is_finite() && value >= least;
            if good { Ok(()) } else { Err(Unsound::Number { what, value, must }) }
        };
        let Policy { threshold, least_gain, tolerance, .. } = self.policy;
        from("the threshold", threshold, 1.0, "a ratio from 1 on")?;
        from("the least gain", least_gain, 0.0, "a share from 0 on")?;
        from("the tolerance", tolerance, 0.0, "a share from 0 on")?;
        let Chance { losses_per_hour, drifts_per_hour, drift_share, .. } = self.chance;
        from("losses_per_hour", losses_per_hour, 0.0, "a number from 0 to 100000")?;
        from("drifts_per_hour", drifts_per_hour, 0.0, "a number from 0 to 100000")?;
        for (what, value) in [("losses_per_hour", losses_per_hour), ("drifts_per_hour", drifts_per_hour)] {
            if value > 100_000.0 {
                return Err(Unsound::Number { what, value, must: "a number from 0 to 100000" });
            }
        }
        from("drift_share", drift_share, 0.0, "a share from 0 to 1")?;
        if drift_share > 1.0 {
            return Err(Unsound::Number {
                what: "drift_share",
                value: drift_share,
                must: "a share from 0 to 1",
            });
        }
        Ok(())
    }
}

impl Wanted {
    /// A model of no priority that is wanted from the start to the end.
    pub fn new(name: impl Into<String>, workload: Workload, options: PlanOptions) -> Self {
        Self { name: name.into(), workload, options, priority: 0, from: Duration::ZERO, until: None }
    }

    /// Whether it is wanted at a time.
    pub(crate) fn is_wanted(&self, now: Duration) -> bool {
        self.from <= now && self.until.is_none_or(|until| now < until)
    }
}
