//! The table of `plimsoll ps`.

use std::time::Duration;

use plimsoll::residency::{Attribution, Holder, Holding, PoolUse};
use plimsoll::units::{Bytes, PoolId};

use super::{Picture, owner};
use crate::show;

/// How many processes without a booking are named.
const NAMED: usize = 3;

pub(super) fn draw(picture: &Picture) -> String {
    let mut out = pools(picture);
    if picture.holders.is_empty() {
        out.push_str("\nnothing is held\n");
    } else {
        out.push('\n');
        out.push_str(&holders(picture));
    }
    let mut lines: Vec<String> = Vec::new();
    for waiting in &picture.waiting {
        let since = age(picture.now.saturating_since(waiting.since));
        lines.push(format!("waiting: {} for {}, since {since}", waiting.instance, waiting.need));
    }
    lines.extend(
        picture
            .book
            .pools()
            .filter(|pool| !pool.excess().is_zero())
            .map(|pool| format!("pool '{}' holds {} more than its budget", pool.id, pool.excess().scaled())),
    );
    lines.extend(picture.attributions.iter().map(|(pool, told)| attribution(pool, told)));
    lines.extend(picture.unknown.iter().cloned());
    if !lines.is_empty() {
        out.push('\n');
    }
    out.extend(lines.iter().map(|line| show::wrap(line, "  ") + "\n"));
    out
}

fn pools(picture: &Picture) -> String {
    let longest = picture.book.pools().map(|pool| pool.id.as_str().chars().count()).max().unwrap_or(0);
    // What is left of the width beside the other columns.
    let cells = show::width().saturating_sub(longest + 30).clamp(10, 40);
    let mut table = show::table(&["pool", "", "full", "of budget"], &[2, 3]);
    for pool in picture.book.pools() {
        let budget = pool.budget.unwrap_or(Bytes::MAX);
        let share = pool.budget.map_or_else(String::new, |budget| show::per_cent(pool.used, budget));
        let amount = match pool.budget {
            Some(budget) => show::of_budget(pool.used, budget),
            None => format!("{}, no limit", pool.used),
        };
        table.add_row([pool.id.to_string(), bar(&pool, budget, cells), share, amount]);
    }
    show::text(&table)
}

/// How full a pool is; what is held is seen, however little.
fn bar(pool: &PoolUse, budget: Bytes, cells: usize) -> String {
    let whole = u128::from(pool.used.max(budget).get()).max(1);
    let width = u128::try_from(cells).unwrap_or(0);
    let filled = (u128::from(pool.used.get()) * width + whole / 2) / whole;
    let filled = usize::try_from(filled).unwrap_or(cells).max(usize::from(!pool.used.is_zero())).min(cells);
    "█".repeat(filled) + &"·".repeat(cells - filled)
}

fn holders(picture: &Picture) -> String {
    let header = ["instance", "role", "pool", "booked", "measured", "owner", "since", ""];
    let mut table = show::table(&header, &[3, 4, 6]);
    for holder in &picture.holders {
        table.add_row([
            holder.instance.clone(),
            holder.role.clone(),
            holder.pool.to_string(),
            amount(holder.booked),
            holder.measured.map_or_else(|| "–".to_owned(), amount),
            owner(holder).unwrap_or_else(|| "–".to_owned()),
            age(picture.now.saturating_since(holder.since)),
            notes(holder),
        ]);
    }
    show::text(&table)
}

fn notes(holder: &Holder) -> String {
    let mut notes = Vec::new();
    if holder.pinned {
        notes.push("pinned".to_owned());
    }
    if holder.in_use > 0 {
        notes.push("in use".to_owned());
    }
    if holder.priority > 0 {
        notes.push(format!("priority {}", holder.priority));
    }
    notes.join(", ")
}

fn amount(bytes: Bytes) -> String {
    if bytes < Bytes::new(1_000_000_000) { bytes.scaled().to_string() } else { bytes.to_string() }
}

/// A time as people say it: `41 s`, `5 min`, `3 h`, `2 d`.
fn age(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..=99 => format!("{seconds} s"),
        100..=5_999 => format!("{} min", seconds / 60),
        6_000..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Where a memory is gone, in a sentence.
fn attribution(pool: &PoolId, told: &Attribution) -> String {
    let each = |parts: &[Holding]| {
        let parts = parts.iter().map(|part| format!("{} {}", part.instance, part.bytes.scaled()));
        parts.collect::<Vec<_>>().join(", ")
    };
    let mut parts = vec![format!("{} of {pool} in use", amount(told.used))];
    let outside = Bytes::saturating_sum(told.outside.iter().map(|other| other.bytes));
    if !outside.is_zero() {
        let named = told.outside.iter().take(NAMED);
        let named = named.map(|other| format!("{} {}", other.process, other.bytes.scaled()));
        let named = named.collect::<Vec<_>>().join(", ");
        let more = if told.outside.len() > NAMED { ", .." } else { "" };
        parts.push(format!("{} by processes without a booking ({named}{more})", amount(outside)));
    }
    if !told.over_use.is_empty() {
        parts.push(format!("above what was booked: {}", each(&told.over_use)));
    }
    if !told.estimate_error.is_empty() {
        parts.push(format!("booked and not filled: {}", each(&told.estimate_error)));
    }
    if !told.unexplained.is_zero() {
        parts.push(format!("{} unexplained", amount(told.unexplained)));
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_well() {
        for (seconds, text) in [(0, "0 s"), (99, "99 s"), (100, "1 min"), (7_200, "2 h"), (200_000, "2 d")] {
            assert_eq!(age(Duration::from_secs(seconds)), text);
        }
    }
}
