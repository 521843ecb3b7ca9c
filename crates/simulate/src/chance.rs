//! What happens by chance: drawn once, before anything runs.

use std::time::Duration;

use plimsoll_units::Bytes;

use crate::scenario::{Event, Happening, Scenario};

const HOUR: f64 = 3600.0;

/// Everything that happens, in order of time; of events at the same time those of the scenario come first.
pub(crate) fn all_events(scenario: &Scenario) -> Vec<Event> {
    let mut events = scenario.events.clone();
    let mut rng = fastrand::Rng::with_seed(scenario.seed);
    events.extend(losses(scenario, &mut rng));
    events.extend(drifts(scenario, &mut rng));
    events.sort_by_key(|event| event.at);
    events
}

fn losses(scenario: &Scenario, rng: &mut fastrand::Rng) -> Vec<Event> {
    let mut events = Vec::new();
    let nodes = &scenario.start.nodes;
    for at in moments(scenario.chance.losses_per_hour, scenario.duration, rng) {
        let Some(node) = rng.choice(nodes) else { break };
        events.push(Event { at, what: Happening::Lose(node.id.clone()) });
        let back = at.saturating_add(scenario.chance.repair);
        if back < scenario.duration {
            events.push(Event { at: back, what: Happening::Return(node.id.clone()) });
        }
    }
    events
}

fn drifts(scenario: &Scenario, rng: &mut fastrand::Rng) -> Vec<Event> {
    let pools: Vec<_> = scenario
        .start
        .nodes
        .iter()
        .flat_map(|node| node.pools.iter().map(|pool| (node.id.clone(), pool.id.clone(), pool.total)))
        .collect();
    let mut events = Vec::new();
    for at in moments(scenario.chance.drifts_per_hour, scenario.duration, rng) {
        let Some((node, pool, total)) = rng.choice(&pools) else { break };
        let share = rng.f64() * scenario.chance.drift_share;
        let bytes = share_of(*total, share);
        let what = Happening::Outside { node: node.clone(), pool: pool.clone(), bytes };
        events.push(Event { at, what });
    }
    events
}

/// Moments between half and one and a half times the mean apart: nothing whose last bit depends on a library of functions.
fn moments(per_hour: f64, duration: Duration, rng: &mut fastrand::Rng) -> Vec<Duration> {
    let mut moments = Vec::new();
    if per_hour <= 0.0 {
        return moments;
    }
    let mean = HOUR / per_hour;
    let mut at = mean * rng.f64();
    while at < duration.as_secs_f64() {
        moments.push(Duration::from_secs_f64(at));
        at += mean * (0.5 + rng.f64());
    }
    moments
}

/// A share of bytes, in steps of a thousandth, so that it is exact.
fn share_of(total: Bytes, share: f64) -> Bytes {
    let thousandths = (1..=1000_u16).take_while(|n| f64::from(*n) <= share * 1000.0).last().unwrap_or(0);
    let bytes = u128::from(total.get()) * u128::from(thousandths) / 1000;
    u64::try_from(bytes).map_or(total, Bytes::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_lie_inside_the_run_and_come_as_often_as_asked() {
        let mut rng = fastrand::Rng::with_seed(3);
        let hour = Duration::from_secs(3600);
        let found = moments(60.0, hour, &mut rng);
        assert!((40..=120).contains(&found.len()), "{}", found.len());
        assert!(found.is_sorted() && found.iter().all(|at| *at < hour));
        assert!(moments(0.0, hour, &mut rng).is_empty());
    }

    #[test]
    fn a_share_is_counted_in_thousandths() {
        assert_eq!(share_of(Bytes::new(10_000), 0.5), Bytes::new(5_000));
        assert_eq!(share_of(Bytes::new(10_000), 0.9999), Bytes::new(9_990));
        assert_eq!(share_of(Bytes::MAX, 1.0), Bytes::MAX);
    }
}
