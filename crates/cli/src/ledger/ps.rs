//! `plimsoll ps`.

mod measured;
mod text;

use std::io::{IsTerminal, Write};
use std::time::Duration;

use plimsoll::residency::{Attribution, Book, Holder, Queued, Timestamp};
use plimsoll::units::{Bytes, PoolId};
use serde::Serialize;

use self::measured::Measured;
use super::args::PsArgs;
use super::{Ledger, json, now, store};
use crate::args::Cli;
use crate::failure::{Failure, Outcome};

/// How long a picture stands when it is watched.
const FRAME: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct Record {
    format: &'static str,
    pools: Vec<PoolRecord>,
    holders: Vec<HolderRecord>,
    waiting: Vec<WaitingRecord>,
    /// Of the host's memory.
    attribution: Option<AttributionRecord>,
    /// Of the cards' memories.
    devices: Vec<AttributionRecord>,
    /// Why something is not measured.
    unknown: Vec<String>,
}

#[derive(Serialize)]
struct PoolRecord {
    id: String,
    budget_bytes: Option<u64>,
    used_bytes: u64,
}

#[derive(Serialize)]
struct HolderRecord {
    instance: String,
    role: String,
    pool: String,
    bytes: u64,
    measured_bytes: Option<u64>,
    owner: Option<String>,
    pinned: bool,
    in_use: u32,
    /// Milliseconds since the UNIX epoch.
    since: u64,
}

#[derive(Serialize)]
struct WaitingRecord {
    instance: String,
    role: String,
    bytes: u64,
    since: u64,
}

#[derive(Serialize)]
struct AttributionRecord {
    pool: String,
    used_bytes: u64,
    booked_bytes: u64,
    over_use_bytes: u64,
    estimate_error_bytes: u64,
    outside_bytes: u64,
    unexplained_bytes: u64,
    missing_bytes: u64,
}

/// All that is shown, at one moment.
struct Picture {
    book: Book,
    now: Timestamp,
    holders: Vec<Holder>,
    waiting: Vec<Queued>,
    attributions: Vec<(PoolId, Attribution)>,
    unknown: Vec<String>,
}

pub(crate) fn run(args: &PsArgs, cli: &Cli) -> Outcome {
    let ledger = Ledger::open(&args.ledger, None)?;
    if !args.watch {
        return draw(&ledger, cli);
    }
    let clear = std::io::stdout().is_terminal();
    loop {
        let picture = draw(&ledger, cli)?;
        let before = if clear { "\u{1b}[H\u{1b}[J" } else { "" };
        let after = if clear || cli.json { "" } else { "\n" };
        show(&format!("{before}{picture}{after}"))?;
        std::thread::sleep(FRAME);
    }
}

/// Writes a picture as it is: what clears a terminal must not be taken out.
fn show(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|_| Failure::Closed)
}

fn draw(ledger: &Ledger, cli: &Cli) -> Outcome {
    let now = now();
    ledger.store.sweep(now).map_err(store)?;
    let book = ledger.book()?;
    // Of a cluster's memory only a part is here, and that part says itself what is free.
    let here = ledger.lease.is_none();
    let seen = if here { measured::look(&book, &ledger.owners) } else { Measured::nothing(&book) };
    let picture = Picture {
        now,
        holders: seen.book.holders(),
        waiting: book.waiting().collect(),
        attributions: seen.attributions,
        unknown: seen.unknown,
        book,
    };
    if cli.json { json(&picture.record()) } else { Ok(text::draw(&picture)) }
}

impl Picture {
    fn record(&self) -> Record {
        let told = |host: bool| {
            let wanted =
                self.attributions.iter().filter(move |(pool, _)| (pool.as_str() == measured::HOST) == host);
            wanted.map(|(pool, told)| attribution(pool, told))
        };
        Record {
            format: "plimsoll.ps/1",
            pools: self
                .book
                .pools()
                .map(|pool| PoolRecord {
                    id: pool.id.to_string(),
                    budget_bytes: pool.budget.map(Bytes::get),
                    used_bytes: pool.used.get(),
                })
                .collect(),
            holders: self.holders.iter().map(record).collect(),
            waiting: self
                .waiting
                .iter()
                .map(|waiting| WaitingRecord {
                    instance: waiting.instance.clone(),
                    role: waiting.role.clone(),
                    bytes: waiting.need.get(),
                    since: waiting.since.as_millis(),
                })
                .collect(),
            attribution: told(true).next(),
            devices: told(false).collect(),
            unknown: self.unknown.clone(),
        }
    }
}

/// The first process that it lives with.
fn owner(holder: &Holder) -> Option<String> {
    holder.owners.first().map(ToString::to_string)
}

fn record(holder: &Holder) -> HolderRecord {
    HolderRecord {
        instance: holder.instance.clone(),
        role: holder.role.clone(),
        pool: holder.pool.to_string(),
        bytes: holder.booked.get(),
        measured_bytes: holder.measured.map(Bytes::get),
        owner: owner(holder),
        pinned: holder.pinned,
        in_use: holder.in_use,
        since: holder.since.as_millis(),
    }
}

fn attribution(pool: &PoolId, told: &Attribution) -> AttributionRecord {
    let sum = |parts: &[plimsoll::residency::Holding]| {
        Bytes::saturating_sum(parts.iter().map(|part| part.bytes)).get()
    };
    AttributionRecord {
        pool: pool.to_string(),
        used_bytes: told.used.get(),
        booked_bytes: told.booked.get(),
        over_use_bytes: sum(&told.over_use),
        estimate_error_bytes: sum(&told.estimate_error),
        outside_bytes: Bytes::saturating_sum(told.outside.iter().map(|other| other.bytes)).get(),
        unexplained_bytes: told.unexplained.get(),
        missing_bytes: told.missing.get(),
    }
}
