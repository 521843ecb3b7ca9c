//! How long it takes from node to node.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_cluster::ClusterSnapshot;
use plimsoll_cluster::speeds::{LinkSpeed, default_link};
use plimsoll_units::{Bytes, BytesPerSec, NodeId};

/// What is taken for a link that nobody describes.
const USUAL: LinkSpeed = default_link();

/// The ways between nodes.
#[derive(Debug)]
pub(crate) struct Links<'a> {
    told: BTreeMap<(&'a NodeId, &'a NodeId), Way>,
    activation: Bytes,
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
}

/// Two nodes, the smaller id first.
fn pair<'a>(a: &'a NodeId, b: &'a NodeId) -> (&'a NodeId, &'a NodeId) {
    if a <= b { (a, b) } else { (b, a) }
}

impl<'a> Links<'a> {
    pub(crate) fn new(snapshot: &'a ClusterSnapshot, activation: Bytes, main: Option<&'a NodeId>) -> Self {
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
        Self { told, activation, main }
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
    pub(crate) fn seconds(&self, from: &NodeId, to: &NodeId) -> f64 {
        self.passed(from, to).iter().map(|(_, way)| way.seconds(self.activation)).sum()
    }

    /// The seconds between nodes that are told, by their numbers, and those between any others.
    pub(crate) fn numbered(
        &self,
        numbers: &BTreeMap<&NodeId, usize>,
    ) -> (BTreeMap<(usize, usize), f64>, f64) {
        let mut seconds = BTreeMap::new();
        for (&(a, b), way) in &self.told {
            if let (Some(&a), Some(&b)) = (numbers.get(a), numbers.get(b)) {
                seconds.insert((a.min(b), a.max(b)), way.seconds(self.activation));
            }
        }
        (seconds, Way::USUAL.seconds(self.activation))
    }
}
