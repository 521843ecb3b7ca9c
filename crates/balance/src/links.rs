//! How long it takes from node to node.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_cluster::ClusterSnapshot;
use plimsoll_cluster::speeds::{LinkSpeed, default_link};
use plimsoll_units::{Bytes, BytesPerSec, NodeId};

use crate::core::Hops;
use crate::core::ways::Uneven;

/// What is taken for a link that nobody describes.
const USUAL: LinkSpeed = default_link();

/// The ways between nodes.
#[derive(Clone, Debug)]
pub(crate) struct Links<'a> {
    told: BTreeMap<(&'a NodeId, &'a NodeId), Way>,
    /// The node that everything passes.
    main: Option<&'a NodeId>,
}

/// One way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Way {
    pub(crate) rate: BytesPerSec,
    pub(crate) latency: Duration,
    /// Whether any of it was assumed.
    pub(crate) assumed: bool,
}

impl Way {
    const USUAL: Self = Self { rate: USUAL.bandwidth, latency: USUAL.latency, assumed: true };

    /// How long an activation takes. No link of a sound snapshot has a rate of nothing.
    pub(crate) fn seconds(self, activation: Bytes) -> f64 {
        self.latency.as_secs_f64() + self.rate.seconds_for(activation).unwrap_or(0.0)
    }

    /// What one byte more takes.
    fn per_byte(self) -> f64 {
        self.rate.seconds_for(Bytes::new(1)).unwrap_or(0.0)
    }
}

/// Two nodes, the smaller id first.
fn pair<'a>(a: &'a NodeId, b: &'a NodeId) -> (&'a NodeId, &'a NodeId) {
    if a <= b { (a, b) } else { (b, a) }
}

impl<'a> Links<'a> {
    pub(crate) fn new(snapshot: &'a ClusterSnapshot, main: Option<&'a NodeId>) -> Self {
        let mut told: BTreeMap<(&NodeId, &NodeId), Way> = BTreeMap::new();
        for link in &snapshot.links {
            let way = Way {
                rate: link.bandwidth.unwrap_or(USUAL.bandwidth),
                latency: link.latency.unwrap_or(USUAL.latency),
                assumed: link.bandwidth.is_none() || link.latency.is_none(),
            };
            let [a, b] = &link.between;
            told.insert(pair(a, b), way);
        }
        Self { told, main }
    }

    /// The links that something from one node to another passes.
    pub(crate) fn passed<'b>(&self, from: &'b NodeId, to: &'b NodeId) -> Vec<([&'b NodeId; 2], Way)>
    where
        'a: 'b,
    {
        let mut stops = vec![from];
        stops.extend(self.main.filter(|&main| from != to && from != main && to != main));
        stops.push(to);
        let legs = stops.windows(2).filter(|leg| leg[0] != leg[1]).map(|leg| pair(leg[0], leg[1]));
        legs.map(|(a, b)| ([a, b], self.told.get(&(a, b)).copied().unwrap_or(Way::USUAL))).collect()
    }

    /// How long an activation takes from one node to another.
    pub(crate) fn seconds(&self, from: &NodeId, to: &NodeId, activation: Bytes) -> f64 {
        self.passed(from, to).iter().map(|(_, way)| way.seconds(activation)).sum()
    }

    /// How long it takes on the slowest link between them.
    pub(crate) fn slowest(&self, from: &NodeId, to: &NodeId, activation: Bytes) -> f64 {
        self.passed(from, to).iter().map(|(_, way)| way.seconds(activation)).fold(0.0, f64::max)
    }

    /// The ways in numbers: what activations of these sizes take, one size for each place between layers.
    pub(crate) fn numbered(&self, numbers: &BTreeMap<&NodeId, usize>, activations: &[Bytes]) -> Hops {
        let least = activations.iter().copied().min().unwrap_or(Bytes::ZERO);
        let of_all = |of: &dyn Fn(Way) -> f64| {
            let mut all = BTreeMap::new();
            for (&(a, b), &way) in &self.told {
                if let (Some(&a), Some(&b)) = (numbers.get(a), numbers.get(b)) {
                    all.insert((a.min(b), a.max(b)), of(way));
                }
            }
            all
        };
        let uneven = activations.iter().any(|&bytes| bytes != least).then(|| Uneven {
            beyond: activations.iter().map(|bytes| bytes.saturating_sub(least).as_f64()).collect(),
            usual: Way::USUAL.per_byte(),
            told: of_all(&Way::per_byte),
        });
        Hops {
            usual: Way::USUAL.seconds(least),
            told: of_all(&|way| way.seconds(least)),
            through: self.main.and_then(|main| numbers.get(main)).copied(),
            uneven,
        }
    }
}
