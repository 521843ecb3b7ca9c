//! A rebalancing for people.

use plimsoll::balance::{Optimality, Piece, Schedule, Step, TimedStep};
use plimsoll::units::Bytes;
use plimsoll::{Planned, Rebalanced};

use crate::args::RebalanceArgs;
use crate::show::{self, clean, value_text, wrap};

/// The plan that is moved.
pub(super) fn named(args: &RebalanceArgs) -> String {
    args.plan.as_deref().map_or_else(|| "the plan in force".to_owned(), crate::live::shown)
}

/// The whole answer.
pub(super) fn told(args: &RebalanceArgs, done: &Rebalanced, broken: &[String], verbose: bool) -> String {
    let rebalance = &done.rebalance;
    let mut out = String::new();
    let mut line = |text: &str| {
        out.push_str(&wrap(text, "  "));
        out.push('\n');
    };
    let cluster =
        args.cluster.as_ref().map_or_else(|| "this machine".to_owned(), |path| crate::live::shown(path));
    line(&format!("{}: {} on {cluster}", clean(done.planned.name()), named(args)));
    let value = |value: Option<f64>| value.and_then(|value| value_text(rebalance.target.objective, value));
    let with = |value: Option<String>| value.map_or_else(String::new, |value| format!(": {value}"));
    if broken.is_empty() {
        line(&format!("the plan in force still holds{}", with(value(rebalance.before.value))));
    } else {
        line("the plan in force no longer holds:");
        broken.iter().for_each(|finding| line(&format!("  - {finding}")));
    }
    if rebalance.bytes().is_zero() && broken.is_empty() {
        line(&format!(
            "nothing to do: it is within {} of the best in this order of devices",
            share(args.tolerance)
        ));
    } else {
        line(&target_line(args, done, &value));
        line(&moved_line(done));
    }
    if !rebalance.bytes().is_zero() {
        out.push('\n');
        out.push_str(&held(&done.planned));
        match &rebalance.schedule {
            Ok(schedule) => out.push_str(&steps(args, schedule, verbose)),
            Err(_) => out.push_str("\nthere is no way to it while the engine runs\n"),
        }
    }
    out.push_str(&trades(done));
    if let Some(proposal) = &rebalance.proposal {
        let gives = value(proposal.plan.value.value).unwrap_or_else(|| "a better plan".to_owned());
        let order: Vec<String> = proposal
            .plan
            .stages
            .iter()
            .filter(|stage| stage.head || !stage.layers.is_empty())
            .map(|stage| stage.device.to_string())
            .collect();
        let text = format!(
            "in another order of devices ({}): {gives}, for {} moved",
            order.join(", "),
            proposal.bytes.scaled()
        );
        out.push('\n');
        out.push_str(&wrap(&text, "  "));
        out.push('\n');
    }
    if let Some(export) = done.export.as_ref().filter(|_| !rebalance.bytes().is_zero()) {
        out.push('\n');
        let engine = done.planned.engine;
        let text = format!("{engine} moves nothing while it runs: stop it, and start it with the new plan");
        out.push_str(&wrap(&text, "  "));
        out.push('\n');
        out.push_str(&show::commands(export));
    }
    out
}

fn target_line(
    args: &RebalanceArgs,
    done: &Rebalanced,
    value: &dyn Fn(Option<f64>) -> Option<String>,
) -> String {
    let rebalance = &done.rebalance;
    let after = value(rebalance.after.value).unwrap_or_else(|| "it fits".to_owned());
    match (rebalance.order_kept, value(rebalance.best_value)) {
        (false, _) => {
            format!("target: {after}; nothing fits in the old order of devices, so this is another one")
        }
        (true, Some(best)) if best == after => {
            format!("target: {after}, the best in this order of devices")
        }
        (true, Some(best)) => {
            format!(
                "target: {after}; the best in this order of devices is {best} (tolerance {})",
                share(args.tolerance)
            )
        }
        (true, None) => format!("target: {after}"),
    }
}

fn moved_line(done: &Rebalanced) -> String {
    let rebalance = &done.rebalance;
    let proof = match rebalance.bytes_optimality {
        Optimality::Proven if rebalance.order_kept => ", the fewest that do (proven)".to_owned(),
        Optimality::Proven | Optimality::Unproven => String::new(),
        Optimality::Within(gap) => format!(", at most {:.1} % more than the fewest that do", gap * 100.0),
    };
    let loaded = match rebalance.loaded_bytes.is_zero() {
        true => String::new(),
        false => format!(", {} of them loaded anew", rebalance.loaded_bytes.scaled()),
    };
    format!("moves {} of {}{loaded}{proof}", rebalance.bytes().scaled(), done.total.scaled())
}

/// What each device holds afterwards.
fn held(planned: &Planned) -> String {
    let mut table = show::table(&["device", "layers", "full", "of budget"], &[2, 3]);
    for stage in &planned.plan.stages {
        let used = stage.used_bytes();
        table.add_row(vec![
            show::shorten(&stage.device.to_string(), 30),
            show::holds(stage, "").join(" + "),
            show::per_cent(used, stage.budget_bytes),
            show::of_budget(used, stage.budget_bytes),
        ]);
    }
    show::text(&table)
}

fn steps(args: &RebalanceArgs, schedule: &Schedule, verbose: bool) -> String {
    let pace = match args.concurrent {
        1 => "one after the other".to_owned(),
        n => format!("up to {n} at once"),
    };
    let time = schedule.seconds.map_or_else(
        || format!("how long they take is not known: give {}", rates_that_lack(schedule)),
        |seconds| format!("{} in all", show::seconds(seconds)),
    );
    let mut out = format!("\n{}\n", wrap(&format!("steps, {pace}; {time}:"), "  "));
    let nothing = |step: &Step| match step {
        Step::Charge { .. } => true,
        Step::Move { bytes, .. } | Step::Load { bytes, .. } | Step::Drop { bytes, .. } => bytes.is_zero(),
        Step::Spill { .. } => false,
    };
    let shown = |timed: &&TimedStep| verbose || !nothing(&timed.step);
    let mut number = 0;
    for round in &schedule.rounds {
        let steps: Vec<&TimedStep> = round.steps.iter().filter(shown).collect();
        if steps.is_empty() {
            continue;
        }
        number += 1;
        for (n, timed) in steps.into_iter().enumerate() {
            let mark = if n == 0 { format!("{number:>3}. ") } else { "     ".to_owned() };
            out.push_str(&wrap(&format!("{mark}{}", step_line(timed)), "     "));
            out.push('\n');
        }
    }
    if !schedule.extra_bytes.is_zero() {
        let text = format!("{} of that go twice, to make room on the way", schedule.extra_bytes.scaled());
        out.push_str(&wrap(&text, "  "));
        out.push('\n');
    }
    out
}

/// Which rates would make the time known.
fn rates_that_lack(schedule: &Schedule) -> &'static str {
    let unknown = || {
        let steps = schedule.rounds.iter().flat_map(|round| &round.steps);
        steps.filter(|timed| timed.seconds.is_none()).map(|timed| &timed.step)
    };
    let loads = unknown().any(|step| matches!(step, Step::Load { .. }));
    let moves = unknown().any(|step| matches!(step, Step::Move { .. } | Step::Spill { .. }));
    match (moves, loads) {
        (false, true) => "--load-rate",
        (true, false) => "--local-rate",
        _ => "--local-rate and --load-rate",
    }
}

fn step_line(timed: &TimedStep) -> String {
    let time = timed.seconds.map_or_else(String::new, |seconds| format!(", {}", show::seconds(seconds)));
    match &timed.step {
        Step::Move { what, from, to, bytes } => {
            format!("{}: {from} → {to}, {}{time}", piece(what), bytes.scaled())
        }
        Step::Spill { what, from, to, bytes } => {
            format!("{}: {from} → {to} for the time being, {}{time}", piece(what), bytes.scaled())
        }
        Step::Drop { what, from, bytes, kv_bytes } => {
            let lost = match kv_bytes.is_zero() {
                true => String::new(),
                false => format!(" ({} of context are lost)", kv_bytes.scaled()),
            };
            format!("{}: dropped from {from}, {}{lost}", piece(what), bytes.scaled())
        }
        Step::Load { what, to, bytes } => {
            format!("{}: loaded on {to}, {}{time}", piece(what), bytes.scaled())
        }
        Step::Charge { device, from, to } => {
            format!("the engine's buffers on {device}: {} → {}", from.scaled(), to.scaled())
        }
    }
}

/// `layers 0-7`, `input and layer 3`, `head`.
fn piece(piece: &Piece) -> String {
    let layers = piece.layers.start..piece.layers.end;
    let mut parts = Vec::new();
    if piece.input {
        parts.push("input".to_owned());
    }
    match layers.end.saturating_sub(layers.start) {
        0 => {}
        1 => parts.push(format!("layer {}", layers.start)),
        _ => parts.push(format!("layers {}", show::layer_range(&layers))),
    }
    if piece.head {
        parts.push("head".to_owned());
    }
    parts.join(" and ")
}

/// What other tolerances would cost and give, without those that are worse in both.
fn trades(done: &Rebalanced) -> String {
    let rebalance = &done.rebalance;
    let better: Vec<_> = rebalance.trades.iter().filter(|trade| !trade.dominated).collect();
    let moves_any = better.iter().any(|trade| trade.bytes > Bytes::ZERO);
    if better.len() < 2 || !moves_any {
        return String::new();
    }
    let mut table = show::table(&["tolerance", "moves", "gives"], &[0, 1]);
    for trade in better {
        let value = trade.value.and_then(|value| value_text(rebalance.target.objective, value));
        table.add_row(vec![
            share(trade.tolerance),
            trade.bytes.scaled().to_string(),
            value.unwrap_or_default(),
        ]);
    }
    format!("\n{}", show::text(&table))
}

/// A share in per cent, with as many digits as it has.
fn share(share: f64) -> String {
    let text = format!("{:.3}", share * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}
