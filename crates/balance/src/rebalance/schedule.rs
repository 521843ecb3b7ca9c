//! From the plan in force to a target, step by step.

use std::collections::BinaryHeap;

use super::given::{Change, Given, Lay};
use super::mover::order;
use super::plot::Plot;
use super::told::{Copy, way};
use super::types::{Blocked, RebalanceOptions, Schedule};
use super::yard::{Act, Yard};

/// From more parts than this on, runs are moved as they are and not layer by layer.
const PARTS: usize = 50_000;

/// The way to a target.
pub(crate) fn schedule(
    given: &Given<'_>,
    target: &Lay,
    options: &RebalanceOptions,
) -> Result<Schedule, Blocked> {
    let changes = given.changes(target);
    let plot = Plot::new(given, target, &changes);
    let under_way = options.in_flight.len();
    let limit = usize::try_from(options.max_concurrent.get()).unwrap_or(usize::MAX);
    let limit = limit.saturating_sub(under_way).max(1);
    let yard = plot.yard(&changes);
    let one_pass = plot.keeps_order && plot.own_pools;
    let guaranteed = one_pass && plot.fits && plot.alive;
    if one_pass && let Some(rounds) = in_one_pass(&yard, limit) {
        return Ok(plot.told(&changes, yard, &rounds, options, guaranteed));
    }
    // Whole runs, where they can be ordered as they are; else layer by layer.
    let singles = singles(&changes);
    let as_runs =
        order(&yard, false).ok().filter(|acts| acts.iter().all(|a| matches!(a, Act::Move(_) | Act::Load(_))));
    let (changes, yard, acts) = match as_runs {
        Some(acts) => (changes, yard, acts),
        None => {
            let yard = plot.yard(&singles);
            let acts = order(&yard, options.may_drop).map_err(|stuck| plot.blocked(&stuck))?;
            (singles, yard, acts)
        }
    };
    let rounds = packed(&yard, &changes, &acts, limit);
    Ok(plot.told(&changes, yard, &rounds, options, false))
}

/// Changes cut into single parts.
fn singles(changes: &[Change]) -> Vec<Change> {
    if changes.iter().map(|change| change.parts.len()).sum::<usize>() > PARTS {
        return changes.to_vec();
    }
    let cut = |change: &Change| {
        let (from, to) = (change.from, change.to);
        change.parts.clone().map(move |part| Change { parts: part..part + 1, from, to })
    };
    changes.iter().flat_map(cut).collect()
}

/// Rounds of at most `limit` moves where nothing is ever in the way: a place receives only once it has sent everything.
///
/// Where the order of the places is kept, what has to move from place to place has no cycle: across any cut between two
/// places everything goes one way. So there is always a place that has nothing left to send, and what lies on a place first
/// falls and then rises to what it holds at the end. Of the moves that may run, those that most others wait for go first.
/// `None` when some move has no room all the same.
fn in_one_pass(yard: &Yard, limit: usize) -> Option<Vec<Vec<Act>>> {
    let count = yard.docks.len();
    let mut sends = vec![0_usize; count];
    let mut into: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (number, parcel) in yard.parcels.iter().enumerate() {
        sends[parcel.from] += usize::from(yard.at[number].is_some());
        into[parcel.to].push(number);
    }
    let heights = heights(yard, &into, &sends)?;
    let mut ready: BinaryHeap<(usize, u64, std::cmp::Reverse<usize>)> = BinaryHeap::new();
    let key = |number: usize| (heights[number], yard.parcels[number].arrives, std::cmp::Reverse(number));
    for dock in (0..count).filter(|&dock| sends[dock] == 0) {
        ready.extend(into[dock].iter().map(|&number| key(number)));
    }
    let mut yard = yard.clone();
    let mut rounds = Vec::new();
    let mut left = yard.parcels.len();
    while left > 0 {
        let mut acts = Vec::new();
        while acts.len() < limit
            && let Some((_, _, std::cmp::Reverse(number))) = ready.pop()
        {
            let act = if yard.at[number].is_some() { Act::Move(number) } else { Act::Load(number) };
            if !yard.fits(act) {
                return None;
            }
            yard.begin(act);
            acts.push(act);
        }
        if acts.is_empty() {
            return None;
        }
        left -= acts.len();
        for &act in &acts {
            let from = yard.parcels[act.parcel()].from;
            yard.end(act);
            if matches!(act, Act::Move(_)) {
                sends[from] -= 1;
                if sends[from] == 0 {
                    ready.extend(into[from].iter().map(|&number| key(number)));
                }
            }
        }
        rounds.push(acts);
    }
    Some(rounds)
}

/// How many moves one after the other wait for each parcel; `None` when there is a cycle.
fn heights(yard: &Yard, into: &[Vec<usize>], sends: &[usize]) -> Option<Vec<usize>> {
    let mut heights = vec![1_usize; yard.parcels.len()];
    // From the places that receive nothing: what comes into a place waits for what leaves it.
    let mut receives: Vec<usize> = into.iter().map(Vec::len).collect();
    let mut from: Vec<Vec<usize>> = sends.iter().map(|&n| Vec::with_capacity(n)).collect();
    for (number, parcel) in yard.parcels.iter().enumerate() {
        from[parcel.from].push(number);
    }
    let mut queue: Vec<usize> = (0..into.len()).filter(|&dock| receives[dock] == 0).collect();
    let mut seen = 0;
    while let Some(dock) = queue.pop() {
        let longest = into[dock].iter().map(|&number| heights[number]).max().unwrap_or(0);
        for &number in &from[dock] {
            seen += 1;
            heights[number] = longest + 1;
            let to = yard.parcels[number].to;
            receives[to] -= 1;
            if receives[to] == 0 {
                queue.push(to);
            }
        }
    }
    (seen == yard.parcels.len()).then_some(heights)
}

/// Acts that follow each other, in rounds: one joins a round while there is room for it beside what the others have not
/// yet freed.
fn packed(yard: &Yard, changes: &[Change], acts: &[Act], limit: usize) -> Vec<Vec<Act>> {
    let mut yard = yard.clone();
    let mut rounds = Vec::new();
    let mut round: Vec<Act> = Vec::new();
    // What is copied at once in this round: its way, and the parts.
    let mut copies: Vec<Copy> = Vec::new();
    for &act in acts {
        let is_drop = matches!(act, Act::Drop(_));
        let parts = changes[act.parcel()].parts.clone();
        let again = round.iter().any(|other| other.parcel() == act.parcel());
        let (kind, from, to) = way(&yard, act);
        let beside = copies.iter().position(|c| {
            (c.0, c.1, c.2) == (kind, from, to) && (c.3.end == parts.start || c.3.start == parts.end)
        });
        // What is dropped is gone before anything else of its round begins.
        let in_turn = if is_drop { copies.is_empty() } else { beside.is_some() || copies.len() < limit };
        let joins = in_turn && !again && yard.fits(act);
        if !joins {
            close(&mut yard, &mut round, &mut rounds);
            copies.clear();
        }
        let (kind, from, to) = way(&yard, act);
        yard.begin(act);
        if is_drop {
            let charged: u64 = yard.docks.iter().map(|dock| dock.frees).fold(0, u64::saturating_add);
            yard.end(act);
            round.push(act);
            // Room that the engine gives back is there from the next round on.
            if yard.docks.iter().map(|dock| dock.frees).fold(0, u64::saturating_add) < charged {
                close(&mut yard, &mut round, &mut rounds);
            }
            continue;
        }
        {
            match beside.filter(|_| joins) {
                Some(at) => {
                    let whole = &mut copies[at].3;
                    *whole = whole.start.min(parts.start)..whole.end.max(parts.end);
                }
                None => copies.push((kind, from, to, parts)),
            }
        }
        round.push(act);
    }
    close(&mut yard, &mut round, &mut rounds);
    rounds
}

fn close(yard: &mut Yard, round: &mut Vec<Act>, rounds: &mut Vec<Vec<Act>>) {
    for &act in round.iter().filter(|act| !matches!(act, Act::Drop(_))) {
        yard.end(act);
    }
    if !round.is_empty() {
        rounds.push(std::mem::take(round));
    }
}
