//! `plimsoll ps`.

mod measured;
mod text;

use std::io::{IsTerminal, Write};
use std::time::Duration;

use plimsoll::answers::Occupancy;
#[cfg(feature = "agent")]
use plimsoll::residency::ProcOwners;
use plimsoll::residency::{Attribution, Book, Holder, Queued, Timestamp};
use plimsoll::units::PoolId;

use self::measured::Measured;
use super::args::PsArgs;
use super::{Ledger, json, now, store};
use crate::args::Cli;
use crate::failure::{Failure, Outcome};

/// How long a picture stands when it is watched.
const FRAME: Duration = Duration::from_secs(1);

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

/// What `ps --json` prints of a book.
#[cfg(feature = "agent")]
pub(crate) fn occupancy(book: &Book, owners: &ProcOwners) -> Occupancy {
    let seen = measured::look(book, owners);
    Occupancy::new(book, &seen.book.holders(), &seen.attributions, measured::HOST, seen.unknown)
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
    fn record(&self) -> Occupancy {
        let Self { book, holders, attributions, unknown, .. } = self;
        Occupancy::new(book, holders, attributions, measured::HOST, unknown.clone())
    }
}

/// The first process that it lives with.
fn owner(holder: &Holder) -> Option<String> {
    holder.owners.first().map(ToString::to_string)
}
