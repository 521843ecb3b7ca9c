//! Several copies of a model side by side, each on devices of its own, so that they make the most tokens together.
//!
//! Devices are put into groups; a group's rate is one over its smallest largest stage time; the sum of rates is what
//! counts. A few devices are divided in every way there is. More of them are dealt out by their room, the least loaded
//! group first, for every number of groups that may fit; then devices move and change places between groups while the
//! sum does not fall, and at the end every group is solved in whatever order is best.
//!
//! A device with pins is in some group, and holds there what is pinned to it; other groups are free of its pins.

mod every;
mod grouping;
mod limits;
mod team;
mod view;

use crate::assemble::{Assembled, Draft};
use crate::context::Context;
use crate::error::PlanError;
use crate::keep::as_good_as;
use crate::search::Search;
use crate::workload::{EngineRules, HostUse, Objective, Pipelines, PlanOptions, Transfers};
use team::{Line, Team};

/// More groups than this are not tried where their number is left to the planner.
const MOST: usize = 64;

/// More ways to choose one device of each shared pool than this are not tried.
const CHOICES: usize = 8;

/// Up to so many devices, every way to divide them is tried.
const EVERY: usize = 6;

/// How many groups there are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Count {
    /// So many.
    Exactly(usize),
    /// At least two, and at most so many.
    UpTo(usize),
}

impl Count {
    fn most(self) -> usize {
        match self {
            Self::Exactly(count) | Self::UpTo(count) => count,
        }
    }
}

/// What was found, and what is proven.
struct Found {
    /// The best plan.
    best: Option<Assembled>,
    /// No plan has fewer seconds between two tokens; infinite where none can fit.
    lower: f64,
    /// How many bytes were short in the best attempt.
    short: Option<u64>,
}

/// Refuses what does not go together with several pipelines.
pub(crate) fn check(rules: &EngineRules, options: &PlanOptions) -> Result<(), PlanError> {
    if !options.pipelines.may_be_several() {
        return Ok(());
    }
    let pipelines = options.pipelines;
    if options.objective != Objective::Throughput {
        return Err(PlanError::PipelinesObjective { pipelines, objective: options.objective });
    }
    if rules.host == HostUse::FirstLayersOfMain {
        return Err(PlanError::PipelinesAroundHost { pipelines });
    }
    if options.transfers != Transfers::Apart {
        return Err(PlanError::PipelinesTransfers { pipelines, transfers: options.transfers });
    }
    Ok(())
}

/// The best plan with as many pipelines as are asked for, what is proven of it, and why there may be none.
pub(crate) fn run<'a>(context: &'a Context<'a>) -> (Option<Assembled>, Search<'a>) {
    match context.options.pipelines {
        Pipelines::Auto => {
            let (best, mut one) = one_pipeline(context);
            let most = most_that_fit(context);
            if most < 2 {
                return (best, one);
            }
            let several = search(context, Count::UpTo(most));
            one.lower = one.lower.min(several.lower);
            (better(best, several.best), one)
        }
        Pipelines::One | Pipelines::Exactly(_) => {
            let count = context.options.pipelines.count().map_or(1, std::num::NonZeroU32::get);
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            let mut none = Search::new(context);
            if count > most_that_fit(context) {
                if count <= context.fleet.devices.len().min(context.limit) {
                    // It is bytes that are missing, and the certificate says how many.
                    none.lacks(0);
                }
                return (None, none);
            }
            let found = search(context, Count::Exactly(count));
            none.lower = found.lower;
            if let Some(short) = found.short {
                none.lacks(short);
            }
            (found.best, none)
        }
    }
}

/// The best plan with one pipeline, which keeps all that is pinned.
fn one_pipeline<'a>(context: &'a Context<'a>) -> (Option<Assembled>, Search<'a>) {
    let pinned: Vec<usize> = context.pins.anywhere.iter().filter_map(|hull| hull.device).collect();
    if pinned.is_empty() {
        let mut search = Search::run(context);
        return (search.best(), search);
    }
    let mut none = Search::new(context);
    // What is pinned to several devices may go together in several pipelines only.
    let Ok(together) = context.pinning(&pinned) else { return (None, none) };
    let mut search = Search::run(&together);
    none.lower = search.lower;
    none.short = search.short;
    (search.best(), none)
}

/// One pipeline where it is as good as several.
fn better(one: Option<Assembled>, several: Option<Assembled>) -> Option<Assembled> {
    match (one, several) {
        (Some(one), Some(several)) if one.value > as_good_as(several.value) => Some(several),
        (Some(one), _) => Some(one),
        (None, several) => several,
    }
}

/// No more copies fit than this: all budgets together over what one copy needs at least, and one device for each.
fn most_that_fit(context: &Context<'_>) -> usize {
    let devices = context.fleet.devices.len().min(context.limit);
    let (needs, budgets) = crate::refuse::needs_and_budgets(context);
    let copies = budgets.checked_div(needs).unwrap_or(u64::MAX);
    usize::try_from(copies).unwrap_or(usize::MAX).min(devices)
}

fn search(context: &Context<'_>, count: Count) -> Found {
    let relaxed = Team::new(context, None);
    let choices = Search::new(context).choices(relaxed.posed());
    if choices.iter().all(Option::is_none) {
        return of_team(&relaxed, count);
    }
    // Two devices of one pool at once are not tried: only what holds for any use of the pools is proven.
    let mut found = Found { best: None, lower: lower(&relaxed, count), short: None };
    for choice in choices.iter().flatten().take(CHOICES) {
        let of_choice = of_team(&Team::new(context, Some(choice)), count);
        if found.best.as_ref().is_none_or(|best| {
            of_choice.best.as_ref().is_some_and(|other| best.value > as_good_as(other.value))
        }) {
            found.best = of_choice.best;
        }
        found.short = match (found.short, of_choice.short) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
    found
}

/// No plan of these has fewer seconds between two tokens.
fn lower(team: &Team<'_>, count: Count) -> f64 {
    if team.units.len() <= EVERY {
        return every::Divided::new(team).lower(count);
    }
    1.0 / limits::most_tokens(team, count.most())
}

fn of_team(team: &Team<'_>, count: Count) -> Found {
    if team.units.len() > EVERY {
        let lower = 1.0 / limits::most_tokens(team, count.most());
        let (lines, short) = grouping::search(team, count);
        let short = lines.is_empty().then_some(short);
        return Found { best: assembled(team, lines), lower, short };
    }
    let divided = every::Divided::new(team);
    let lower = divided.lower(count);
    let groups = divided.best(count);
    let lines = groups.map(|groups| groups.iter().filter_map(|group| team.line(group)).collect());
    let short = lines.is_none().then(|| grouping::shortest(team, count.most()));
    Found { best: assembled(team, lines.unwrap_or_default()), lower, short }
}

/// The plan of these groups, the fastest first; `None` where there are none.
fn assembled(team: &Team<'_>, mut lines: Vec<Line>) -> Option<Assembled> {
    lines.sort_by(|a, b| {
        let first = |line: &Line| line.devices.first().map_or(usize::MAX, |device| device.0);
        a.seconds.total_cmp(&b.seconds).then(first(a).cmp(&first(b)))
    });
    let devices: Vec<_> = lines.into_iter().flat_map(|line| line.devices).collect();
    if devices.is_empty() {
        return None;
    }
    Draft { host: 0, devices }.assemble(team.context).ok()
}
