//! A no of the ledger, with whoever holds the memory and what would make room.

use plimsoll::answers::RefusalRecord;
use plimsoll::residency::{Advice, CoResidency, Eviction, Needs, Request};
use plimsoll::units::PoolId;

use super::{Ledger, now, store};
use crate::failure::Failure;

/// How a refusal is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Telling {
    /// The exit status.
    pub(super) status: u8,
    /// Whether a program reads it.
    pub(super) json: bool,
    /// Whether the time to wait was up.
    pub(super) timed_out: bool,
}

/// The failure that tells a refusal.
pub(super) fn failure(
    ledger: &Ledger,
    request: &Request,
    refusal: &CoResidency,
    telling: Telling,
) -> Failure {
    if let CoResidency::UnknownPool { .. } = refusal {
        return Failure::Input(format!("{refusal}; name one of them with --pool"));
    }
    let elsewhere = match elsewhere(ledger, request) {
        Ok(pools) => pools,
        Err(failure) => return failure,
    };
    let advice = match ledger.store.advise(request, &Eviction::default(), now()) {
        Ok(advice) => advice.ok().filter(|advice| elsewhere.is_empty() && !advice.victims.is_empty()),
        Err(error) => return store(error),
    };
    let text = if telling.timed_out { format!("timed out: {refusal}") } else { refusal.to_string() };
    if telling.json {
        return match to_json(refusal, text, advice.as_ref(), telling.timed_out) {
            Ok(stdout) => Failure::Ended { status: telling.status, stdout, stderr: String::new() },
            Err(error) => Failure::internal(error),
        };
    }
    // On a line of its own, unbroken: scripts look for it.
    let mut lines = vec![text];
    for pool in elsewhere {
        lines.push(format!("pool '{pool}' has room for it as things are: --pool {pool}"));
    }
    lines.extend(advice.iter().map(advice_line));
    Failure::Ended { status: telling.status, stdout: String::new(), stderr: lines.join("\n") }
}

/// What would make room, in a line.
pub(super) fn advice_line(advice: &Advice) -> String {
    let whom: Vec<String> =
        advice.victims.iter().map(|victim| format!("{} ({})", victim.instance, victim.bytes)).collect();
    format!("evicting {} makes room", whom.join(" and "))
}

/// The other devices' pools in which this request fits as things are.
fn elsewhere(ledger: &Ledger, request: &Request) -> Result<Vec<PoolId>, Failure> {
    let Needs::Pools(asked) = &request.spec.needs else { return Ok(Vec::new()) };
    let Some((asked, need)) = asked.first_key_value().filter(|_| asked.len() == 1) else {
        return Ok(Vec::new());
    };
    // What is for the host's memory does not run on a device, and the other way round.
    let is_host = |pool: &PoolId| plimsoll::Place::of_pool(Some(pool)) == plimsoll::Place::OneMemory;
    if is_host(asked) {
        return Ok(Vec::new());
    }
    let book = ledger.book()?;
    let fits = |pool: &PoolId| {
        let spec = request.spec.clone().with_pools([(pool.clone(), *need)]);
        let request = Request { spec, ..request.clone() };
        plimsoll::residency::admit(&book, &request, now()).is_ok()
    };
    let others = book.pools().map(|pool| pool.id).filter(|pool| pool != asked && !is_host(pool));
    Ok(others.filter(fits).collect())
}

fn to_json(
    refusal: &CoResidency,
    certificate: String,
    advice: Option<&Advice>,
    timed_out: bool,
) -> Result<String, serde_json::Error> {
    let record = RefusalRecord::of_booking(refusal, certificate, advice, timed_out);
    Ok(serde_json::to_string_pretty(&record)? + "\n")
}
