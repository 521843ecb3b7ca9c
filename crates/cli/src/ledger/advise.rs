//! `plimsoll advise`.

use plimsoll::residency::{Advice, Eviction, InferenceSpec, NoAdvice, Request};
use plimsoll::units::{Bytes, PoolId};
use serde::Serialize;

use super::args::AdviseArgs;
use super::{Ledger, answer, json, needing, nothing, now, refuse, store};
use crate::args::Cli;
use crate::failure::{Failure, Outcome};

/// A name that no running copy has, for it cannot be typed.
const NOBODY: &str = "\u{0}";

#[derive(Serialize)]
struct Record {
    format: &'static str,
    pool: Option<String>,
    fits: bool,
    victims: Vec<VictimRecord>,
    proven: bool,
}

#[derive(Serialize)]
struct VictimRecord {
    instance: String,
    role: String,
    bytes: u64,
    excluded: bool,
}

pub(crate) fn run(args: &AdviseArgs, cli: &Cli) -> Outcome {
    if args.needs.is_zero() {
        return Err(nothing(&args.role));
    }
    let ledger = Ledger::open(&args.ledger, args.pool.as_ref())?;
    let pools: Vec<PoolId> = ledger.book()?.pools().map(|pool| pool.id).collect();
    let pools: Vec<Option<PoolId>> = match (&args.pool, pools.len()) {
        (Some(pool), _) => vec![Some(pool.clone())],
        (None, 1) => vec![None],
        (None, _) => pools.into_iter().map(Some).collect(),
    };
    let mut best: Option<(Option<PoolId>, Advice)> = None;
    let mut refused: Option<NoAdvice> = None;
    for pool in pools {
        let spec =
            needing(InferenceSpec::new(&args.role, "llama.cpp"), pool.as_ref(), args.needs, Bytes::ZERO);
        match ledger.store.advise(&Request::new(NOBODY, spec), &Eviction::default(), now()).map_err(store)? {
            Ok(advice) => {
                if best.as_ref().is_none_or(|(_, known)| advice.cost < known.cost) {
                    best = Some((pool, advice));
                }
            }
            Err(none) => refused = refused.or(Some(none)),
        }
    }
    match (best, refused) {
        (Some((pool, advice)), _) => {
            answer(cli, &record(pool.as_ref(), &advice), text(&ledger, pool.as_ref(), &advice)?)
        }
        (None, Some(none)) => Err(no_advice(&none, cli)),
        (None, None) => Err(Failure::Input("the ledger has no pool".to_owned())),
    }
}

fn record(pool: Option<&PoolId>, advice: &Advice) -> Record {
    let victim = |victim: &plimsoll::residency::Victim| VictimRecord {
        instance: victim.instance.clone(),
        role: victim.role.clone(),
        bytes: victim.bytes.get(),
        excluded: victim.excluded,
    };
    Record {
        format: "plimsoll.advise/1",
        pool: pool.map(ToString::to_string),
        fits: advice.victims.is_empty(),
        victims: advice.victims.iter().map(victim).collect(),
        proven: advice.proven,
    }
}

fn text(ledger: &Ledger, pool: Option<&PoolId>, advice: &Advice) -> Outcome {
    let place = pool.map_or_else(String::new, |pool| format!(" in pool '{pool}'"));
    if advice.victims.is_empty() {
        return Ok(format!("it fits{place} as things are\n"));
    }
    let mut out = format!("{}{place}:\n", refuse::advice_line(advice));
    let book = ledger.book()?;
    for victim in &advice.victims {
        match ledger.running_owner(&book, &victim.instance) {
            // Its booking ends with it; without it, it would only be forgotten.
            Some(owner) => out.push_str(&format!("  kill {}    # {}\n", owner.pid, victim.instance)),
            None => out.push_str(&format!("  plimsoll release {}\n", victim.instance)),
        }
    }
    if !advice.proven {
        out.push_str("whether a cheaper choice exists is not proven\n");
    }
    Ok(out)
}

fn no_advice(none: &NoAdvice, cli: &Cli) -> Failure {
    let stderr = format!("{none}\n{}", none.refusal);
    if !cli.json {
        return Failure::Refused { stdout: String::new(), stderr };
    }
    let record =
        Record { format: "plimsoll.advise/1", pool: None, fits: false, victims: Vec::new(), proven: true };
    match json(&record) {
        Ok(stdout) => Failure::Refused { stdout, stderr },
        Err(failure) => failure,
    }
}
