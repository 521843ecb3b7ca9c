//! Sentences that several answers share.

use std::fmt::Write;

use plimsoll::Planned;
use plimsoll::balance::StoppedBy;
use plimsoll::cluster::ClusterSnapshot;

/// Which devices the plan leaves out, and why: a line for each reason.
pub(crate) fn left_out(planned: &Planned, snapshot: &ClusterSnapshot) -> Vec<String> {
    let used = |device: &plimsoll::units::DeviceRef| planned.plan.stages.iter().any(|s| s.device == *device);
    let mut by_reason: Vec<(&str, Vec<String>)> = Vec::new();
    for stopped in &planned.plan.stopped {
        if used(&stopped.device) || snapshot.device(&stopped.device).is_none() {
            continue;
        }
        let why = match &stopped.reason {
            StoppedBy::NotNeeded => "no gain",
            StoppedBy::Pinned { .. } => "everything it could hold is pinned elsewhere",
            StoppedBy::Layer { .. } => "no layer fits",
            StoppedBy::Overhead { .. } => "too small for the engine's own buffers",
            StoppedBy::Drained => "drained",
            StoppedBy::Failed => "its node does not answer",
            StoppedBy::FreeUnknown => "what is free there is not known",
            StoppedBy::NotAsked => "not among the nodes to use",
            StoppedBy::DeviceLimit { .. } => "no more devices may be used",
        };
        match by_reason.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, devices)) => devices.push(stopped.device.to_string()),
            None => by_reason.push((why, vec![stopped.device.to_string()])),
        }
    }
    let lines = by_reason.iter().map(|(why, devices)| format!("left out ({why}): {}", devices.join(", ")));
    lines.collect()
}

/// Numbers in order, runs taken together: `0-9, 12, 15-17`.
pub(crate) fn indices(numbers: &[u32]) -> String {
    let mut out = String::new();
    let mut rest = numbers;
    while let Some((&first, _)) = rest.split_first() {
        let expected = u64::from(first)..;
        let length = rest.iter().zip(expected).take_while(|(n, next)| u64::from(**n) == *next).count();
        let last = rest.get(length - 1).copied().unwrap_or(first);
        let comma = if out.is_empty() { "" } else { ", " };
        let written = match first == last {
            true => write!(out, "{comma}{first}"),
            false => write!(out, "{comma}{first}-{last}"),
        };
        // Writing to a string does not fail.
        if written.is_err() {
            break;
        }
        rest = rest.get(length..).unwrap_or(&[]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_taken_together() {
        assert_eq!(indices(&[]), "");
        assert_eq!(indices(&[3]), "3");
        assert_eq!(indices(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        assert_eq!(indices(&[u32::MAX]), u32::MAX.to_string());
    }
}
