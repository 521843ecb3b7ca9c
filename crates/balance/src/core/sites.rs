//! In which order groups are best passed when only the ways between them count.

use super::Problem;

/// More groups than this are left in the order in which they come.
const GROUPS: usize = 128;

/// The groups of these slots in an order in which they are passed quickly: always to the nearest one that is left, from
/// each start, and then pieces of the way turned round while that makes it shorter.
pub(crate) fn passed_quickly(problem: &Problem, slots: &[usize]) -> Vec<usize> {
    let mut groups: Vec<usize> = Vec::new();
    for &slot in slots {
        let group = problem.slots[slot].group;
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    if groups.len() > GROUPS {
        return groups;
    }
    let costs: Vec<Vec<f64>> =
        groups.iter().map(|&a| groups.iter().map(|&b| problem.hops.seconds(a, b)).collect()).collect();
    let mut best: Option<(f64, Vec<usize>)> = None;
    for start in 0..groups.len().min(16) {
        let mut tour = nearest(&costs, start);
        turn(&costs, &mut tour);
        let length = length(&costs, &tour);
        if best.as_ref().is_none_or(|(least, _)| length < *least) {
            best = Some((length, tour));
        }
    }
    best.map_or(Vec::new(), |(_, tour)| tour.into_iter().map(|at| groups[at]).collect())
}

fn nearest(costs: &[Vec<f64>], start: usize) -> Vec<usize> {
    let mut tour = vec![start];
    let mut left: Vec<usize> = (0..costs.len()).filter(|&at| at != start).collect();
    let mut here = start;
    while let Some(at) = (0..left.len())
        .min_by(|&a, &b| costs[here][left[a]].total_cmp(&costs[here][left[b]]).then(left[a].cmp(&left[b])))
    {
        here = left.remove(at);
        tour.push(here);
    }
    tour
}

/// Turns pieces of an open way round while that makes it shorter.
fn turn(costs: &[Vec<f64>], tour: &mut [usize]) {
    const ROUNDS: usize = 16;
    for _ in 0..ROUNDS {
        let mut shorter = false;
        for first in 0..tour.len() {
            for last in first + 1..tour.len() {
                let way = |a: Option<usize>, b: Option<usize>| match (a, b) {
                    (Some(a), Some(b)) => costs[a][b],
                    _ => 0.0,
                };
                let before = first.checked_sub(1).map(|at| tour[at]);
                let behind = tour.get(last + 1).copied();
                let (head, tail) = (Some(tour[first]), Some(tour[last]));
                let now = way(before, head) + way(tail, behind);
                if way(before, tail) + way(head, behind) < now * (1.0 - 1e-9) {
                    tour[first..=last].reverse();
                    shorter = true;
                }
            }
        }
        if !shorter {
            break;
        }
    }
}

fn length(costs: &[Vec<f64>], tour: &[usize]) -> f64 {
    tour.windows(2).map(|pair| costs[pair[0]][pair[1]]).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::core::chain::Chain;
    use crate::core::{Hops, Slot};

    #[test]
    fn sites_are_passed_one_after_the_other() {
        // Two sites of three groups each, in turn; ways within a site are short.
        let far = |a: usize, b: usize| if a % 2 == b % 2 { 1.0 } else { 100.0 };
        let pairs = (0..6).flat_map(|a| (a + 1..6).map(move |b| (a, b)));
        let told = pairs.map(|(a, b)| ((a, b), far(a, b))).collect();
        let slot = |group| Slot { class: 0, room: 1, fixed: 0, rate: 1.0, group };
        let chains: Arc<[Chain]> = [Chain::plain(vec![0, 1], true)].into();
        let hops = Hops { usual: 100.0, told, ..Hops::default() };
        let problem = Problem { chains, slots: (0..6).map(slot).collect(), hops, limit: 6 };
        let order = passed_quickly(&problem, &[0, 1, 2, 3, 4, 5]);
        let crossings = order.windows(2).filter(|pair| pair[0] % 2 != pair[1] % 2).count();
        assert_eq!((order.len(), crossings), (6, 1), "{order:?}");
    }
}
