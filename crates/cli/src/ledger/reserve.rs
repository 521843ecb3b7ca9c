//! `plimsoll reserve`, `release` and `resize`.

use std::time::Duration;

use plimsoll::residency::{
    CoResidency, LedgerError, Needs, Request, Terms, Ticket, Timestamp, Wait, WaitEnd,
};
use serde::Serialize;

use super::args::{ReleaseArgs, ReserveArgs, ResizeArgs};
use super::refuse::{self, Telling};
use super::{Ledger, answer, needing, nothing, now, store};
use crate::args::Cli;
use crate::failure::{Failure, Outcome};
use crate::refusal;

/// How long to sleep between two looks at the queue: the first time, and at most.
const SLEEP: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(200));

#[derive(Serialize)]
struct Reserved<'a> {
    format: &'a str,
    instance: &'a str,
    changed: bool,
}

#[derive(Serialize)]
struct Released<'a> {
    format: &'a str,
    instances: &'a [String],
}

pub(crate) fn reserve(args: &ReserveArgs, cli: &Cli) -> Outcome {
    let ledger = Ledger::open(&args.ledger, args.needs.pool.as_ref())?;
    let spec = args.needs.spec(&args.role, &args.exclude, args.needs.pool.as_ref(), &ledger.book()?)?;
    let instance = args.instance.clone().unwrap_or_else(|| spec.role.clone());
    let owners = match args.pid {
        None => Vec::new(),
        Some(_) if ledger.lease.is_some() => {
            return Err(Failure::Input(
                "--pid: nobody of the cluster sees that process; use `plimsoll run`, or --ttl".to_owned(),
            ));
        }
        Some(pid) => {
            let unseen = || Failure::Input(format!("--pid {pid}: no such process can be seen"));
            vec![ledger.owners.identify(pid).ok_or_else(unseen)?]
        }
    };
    let terms = Terms { owners, lease: None, ttl: args.ttl, pinned: args.pin, priority: args.priority };
    let request = Request::new(&instance, spec).on(terms);
    let telling = Telling { status: 1, json: cli.json, timed_out: false };
    let changed = admit(&ledger, &request, args.wait, telling)?;
    // What was held already keeps its terms, unless others are asked for.
    if args.pin {
        ledger.store.set_pinned(&instance, true, now()).map_err(Failure::input)?;
    }
    if args.priority > 0 {
        ledger.store.set_priority(&instance, args.priority, now()).map_err(Failure::input)?;
    }
    answer(
        cli,
        &Reserved { format: "plimsoll.reserve/1", instance: &instance, changed },
        format!("{instance}\n"),
    )
}

/// Books a request, and waits until it fits where that was asked for. True when something changed.
pub(super) fn admit(
    ledger: &Ledger,
    request: &Request,
    wait: Option<Option<Duration>>,
    telling: Telling,
) -> Result<bool, Failure> {
    let refusal = match ledger.store.request(request, now()) {
        Ok(changed) => return Ok(changed),
        Err(LedgerError::Refused(refusal)) => refusal,
        Err(error) => return Err(Failure::input(error)),
    };
    let Some(at_most) = wait else {
        return Err(refuse::failure(ledger, request, &refusal, telling));
    };
    // Whoever waits has to be somebody: a place that nobody owns would stay when we are killed.
    let ours = request.terms.owners.is_empty();
    let mut waiting = request.clone();
    if ours {
        waiting.terms.owners.push(ledger.this_process());
    }
    queue(ledger, &waiting, at_most, &refusal, telling)?;
    if ours {
        ledger.store.hand_over(&request.instance, &request.terms.owners, now()).map_err(Failure::input)?;
    }
    Ok(true)
}

fn queue(
    ledger: &Ledger,
    request: &Request,
    at_most: Option<Duration>,
    first: &CoResidency,
    telling: Telling,
) -> Result<(), Failure> {
    let deadline = at_most.map(|time| now().saturating_add(time));
    let mut sleep = SLEEP.0;
    let mut ticket = enqueue(ledger, request, deadline, first, telling)?;
    if !telling.json {
        crate::complain(&format!("waiting: {}", ticket.reason().unwrap_or(first)));
    }
    loop {
        match ledger.store.poll_wait(&mut ticket, now()).map_err(store)? {
            Wait::Admitted => return Ok(()),
            Wait::Pending(_) => {
                std::thread::sleep(sleep);
                sleep = (sleep * 2).min(SLEEP.1);
            }
            Wait::Ended(WaitEnd::TimedOut(refusal)) => {
                let telling = Telling { timed_out: true, ..telling };
                return Err(refuse::failure(ledger, request, &refusal, telling));
            }
            Wait::Ended(WaitEnd::Refused(refusal)) => {
                return Err(refuse::failure(ledger, request, &refusal, telling));
            }
            // Somebody who cannot see us took us for dead: we are not.
            Wait::Ended(_) => ticket = enqueue(ledger, request, deadline, first, telling)?,
        }
    }
}

fn enqueue(
    ledger: &Ledger,
    request: &Request,
    deadline: Option<Timestamp>,
    first: &CoResidency,
    telling: Telling,
) -> Result<Ticket, Failure> {
    match ledger.store.enqueue(request, deadline, now()) {
        Ok(ticket) => Ok(ticket),
        Err(LedgerError::Refused(CoResidency::Taken { .. })) => {
            Err(refuse::failure(ledger, request, first, telling))
        }
        Err(LedgerError::Refused(refusal)) => Err(refuse::failure(ledger, request, &refusal, telling)),
        Err(error) => Err(Failure::input(error)),
    }
}

fn not_held(instance: &str, cli: &Cli) -> Failure {
    let stderr = LedgerError::NotHeld { instance: instance.to_owned() }.to_string();
    if cli.json {
        refusal::excluded(&stderr, true)
    } else {
        Failure::Refused { stdout: String::new(), stderr }
    }
}

pub(crate) fn release(args: &ReleaseArgs, cli: &Cli) -> Outcome {
    let ledger = Ledger::open(&args.ledger, None)?;
    let book = ledger.book()?;
    let instances = if ledger.store.release_instance(&args.name, now()).map_err(store)? {
        vec![args.name.clone()]
    } else {
        ledger.store.release_role(&args.name, now()).map_err(store)?
    };
    if instances.is_empty() {
        return Err(not_held(&args.name, cli));
    }
    for owner in instances.iter().filter_map(|instance| ledger.running_owner(&book, instance)) {
        crate::complain(&format!("note: {owner} still runs, and uses memory that is booked for nobody now"));
    }
    let lines: String = instances.iter().map(|instance| format!("{instance}\n")).collect();
    answer(cli, &Released { format: "plimsoll.release/1", instances: &instances }, lines)
}

pub(crate) fn resize(args: &ResizeArgs, cli: &Cli) -> Outcome {
    let ledger = Ledger::open(&args.ledger, args.pool.as_ref())?;
    let book = ledger.book()?;
    let Some(held) = book.get(&args.instance) else {
        return Err(not_held(&args.instance, cli));
    };
    if args.needs.is_zero() {
        return Err(nothing(held.role()));
    }
    let mut spec = held.spec().clone();
    match (&mut spec.needs, &args.pool) {
        (Needs::Pools(pools), Some(pool)) => {
            pools.insert(pool.clone(), args.needs);
        }
        (Needs::Pools(pools), None) => match pools.len() {
            1 => pools.values_mut().for_each(|need| *need = args.needs),
            _ => {
                let all: Vec<_> = pools.keys().cloned().collect();
                let all = super::list(&all);
                return Err(Failure::Input(format!(
                    "'{}' holds several pools; give --pool: {all}",
                    args.instance
                )));
            }
        },
        (Needs::Memory { .. }, pool) => {
            spec = needing(spec, pool.as_ref(), args.needs, plimsoll::units::Bytes::ZERO);
        }
    }
    match ledger.store.resize(&args.instance, &spec, now()) {
        Ok(changed) => {
            let record = Reserved { format: "plimsoll.resize/1", instance: &args.instance, changed };
            answer(cli, &record, format!("{}\n", args.instance))
        }
        Err(LedgerError::Refused(refusal)) => {
            let telling = Telling { status: 1, json: cli.json, timed_out: false };
            Err(refuse::failure(&ledger, &Request::new(&args.instance, spec), &refusal, telling))
        }
        Err(error @ LedgerError::NotHeld { .. }) => {
            Err(Failure::Refused { stdout: String::new(), stderr: error.to_string() })
        }
        Err(error) => Err(Failure::input(error)),
    }
}
