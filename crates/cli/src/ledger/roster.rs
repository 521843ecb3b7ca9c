//! `plimsoll roster check`.

use plimsoll::export::llama_swap::{Member, matrix};
use plimsoll::residency::{CoResidency, Needs, RoleSets, footprint};
use plimsoll::roster::{Roster, RosterRole};
use plimsoll::units::Bytes;
use serde::Serialize;

use super::args::{RosterArgs, RosterCheckArgs, RosterCommand};
use super::json;
use crate::args::Cli;
use crate::failure::{Failure, Outcome};
use crate::show;

#[derive(Serialize)]
struct Record {
    format: &'static str,
    pools: Vec<PoolRecord>,
    roles: Vec<RoleRecord>,
    sets: Vec<Vec<String>>,
    never: Vec<NeverRecord>,
}

#[derive(Serialize)]
struct PoolRecord {
    id: String,
    budget_bytes: Option<u64>,
}

#[derive(Serialize)]
struct RoleRecord {
    role: String,
    bytes: u64,
    computed: bool,
    excludes: Vec<String>,
    pinned: bool,
    priority: u32,
}

#[derive(Serialize)]
struct NeverRecord {
    role: String,
    reason: String,
    short_bytes: u64,
}

pub(crate) fn run(args: &RosterArgs, cli: &Cli) -> Outcome {
    match &args.command {
        RosterCommand::Check(args) => check(args, cli),
    }
}

fn check(args: &RosterCheckArgs, cli: &Cli) -> Outcome {
    if args.llama_swap && cli.json {
        return Err(Failure::Input("--llama-swap is YAML and --json is not; give one of them".to_owned()));
    }
    let roster = Roster::read(&args.file).map_err(Failure::input)?;
    let sets = roster.sets().map_err(Failure::input)?;
    if args.llama_swap {
        return Ok(llama_swap(&roster, &sets));
    }
    if cli.json { json(&record(&roster, &sets)) } else { Ok(text(&roster, &sets)) }
}

/// Costs are told in whole GB: they only compare.
fn llama_swap(roster: &Roster, sets: &RoleSets) -> String {
    let member = |role: &RosterRole| Member {
        id: role.spec.role.clone(),
        cost: u64::try_from(role.eviction_cost().div_ceil(1_000_000_000))
            .unwrap_or(u64::MAX)
            .min(i32::MAX as u64),
    };
    let members: Vec<Member> = roster.roles.iter().map(member).collect();
    let mut out = String::new();
    for (role, _) in &sets.never {
        out.push_str(&format!("# '{role}' never fits and is left out\n"));
    }
    out + &matrix(&members, &sets.sets)
}

fn record(roster: &Roster, sets: &RoleSets) -> Record {
    Record {
        format: "plimsoll.roster/1",
        pools: roster
            .pools
            .iter()
            .map(|(id, budget)| PoolRecord { id: id.to_string(), budget_bytes: budget.map(Bytes::get) })
            .collect(),
        roles: roster
            .roles
            .iter()
            .map(|role| RoleRecord {
                role: role.spec.role.clone(),
                bytes: footprint(&role.spec).get(),
                computed: role.computed,
                excludes: role.spec.excludes.iter().cloned().collect(),
                pinned: role.terms.pinned,
                priority: role.terms.priority,
            })
            .collect(),
        sets: sets.sets.clone(),
        never: sets
            .never
            .iter()
            .map(|(role, why)| NeverRecord {
                role: role.clone(),
                reason: why.to_string(),
                short_bytes: short(why).get(),
            })
            .collect(),
    }
}

fn short(why: &CoResidency) -> Bytes {
    match why {
        CoResidency::OverBudget { need, free, .. } => need.saturating_sub(*free),
        _ => Bytes::ZERO,
    }
}

fn text(roster: &Roster, sets: &RoleSets) -> String {
    let pools: Vec<String> = roster
        .pools
        .iter()
        .map(|(id, budget)| budget.map_or_else(|| id.to_string(), |budget| format!("{id} {budget}")))
        .collect();
    let mut out = format!("budget: {}\n\n", pools.join(", "));
    let mut table = show::table(&["role", "needs", "", "excludes"], &[1]);
    for role in &roster.roles {
        let excludes: Vec<&str> = role.spec.excludes.iter().map(String::as_str).collect();
        table.add_row([role.spec.role.clone(), needs(role), notes(role), excludes.join(", ")]);
    }
    out.push_str(&show::text(&table));
    if !sets.sets.is_empty() {
        let mut table = show::table(&["fit together", "need"], &[1]);
        for set in &sets.sets {
            let all = set.iter().filter_map(|role| roster.role(role)).map(|role| footprint(&role.spec));
            table.add_row([set.join(" + "), Bytes::saturating_sum(all).to_string()]);
        }
        out.push('\n');
        out.push_str(&show::text(&table));
    }
    if !sets.never.is_empty() {
        out.push_str("\nnever fit:\n");
        for (_, why) in &sets.never {
            out.push_str(&show::wrap(&format!("  {why}"), "  "));
            out.push('\n');
        }
    }
    out
}

fn needs(role: &RosterRole) -> String {
    match &role.spec.needs {
        Needs::Memory { .. } => footprint(&role.spec).to_string(),
        Needs::Pools(pools) => {
            pools.iter().map(|(id, bytes)| format!("{id} {bytes}")).collect::<Vec<_>>().join(", ")
        }
    }
}

fn notes(role: &RosterRole) -> String {
    let mut notes = Vec::new();
    if role.computed {
        notes.push("computed".to_owned());
    }
    if role.terms.pinned {
        notes.push("pinned".to_owned());
    }
    if role.spec.sticky {
        notes.push("sticky".to_owned());
    }
    if role.terms.priority > 0 {
        notes.push(format!("priority {}", role.terms.priority));
    }
    notes.join(", ")
}
