//! What one step from group to group costs at every boundary between items.

use std::collections::BTreeMap;

use super::Hops;

/// What boundaries send beyond the one that sends least, and what a byte more costs on every way.
///
/// The seconds of [`Hops`] are those of the boundary that sends least, so that whatever bounds from below by them holds
/// for every boundary.
#[derive(Clone, Debug, Default)]
pub(crate) struct Uneven {
    /// Bytes more than the least, before the first item and after each.
    pub(crate) beyond: Vec<f64>,
    /// Seconds for a byte between any two groups that are not told.
    pub(crate) usual: f64,
    /// Seconds for a byte between two groups, the smaller number first.
    pub(crate) told: BTreeMap<(usize, usize), f64>,
}

/// One link: seconds for the boundary that sends least, and for every byte more.
#[derive(Clone, Copy, Debug, Default)]
struct Leg {
    seconds: f64,
    per_byte: f64,
}

/// A way from group to group: one link or two.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Way {
    legs: [Leg; 2],
    /// Whether the two links work at the same time: then the slower one counts and not both.
    slower: bool,
}

impl Way {
    /// How long it takes at a boundary that sends so many bytes more than the least.
    pub(crate) fn seconds(self, beyond: f64) -> f64 {
        let [first, second] = self.legs.map(|leg| leg.seconds + beyond * leg.per_byte);
        if self.slower { first.max(second) } else { first + second }
    }
}

impl Hops {
    fn leg(&self, a: usize, b: usize) -> Leg {
        if a == b {
            return Leg::default();
        }
        let per_byte = self
            .uneven
            .as_ref()
            .map_or(0.0, |uneven| uneven.told.get(&(a.min(b), a.max(b))).copied().unwrap_or(uneven.usual));
        Leg { seconds: self.direct(a, b), per_byte }
    }

    /// The way from one group to another; with `slower`, the links of a way that passes the main group overlap.
    pub(crate) fn way(&self, from: usize, to: usize, slower: bool) -> Way {
        let legs = match self.through {
            Some(main) if from != to => [self.leg(from, main), self.leg(main, to)],
            _ => [self.leg(from, to), Leg::default()],
        };
        Way { legs, slower }
    }

    /// How many bytes a boundary sends beyond the least.
    pub(crate) fn beyond(&self, boundary: usize) -> f64 {
        self.uneven.as_ref().and_then(|uneven| uneven.beyond.get(boundary)).copied().unwrap_or(0.0)
    }
}
