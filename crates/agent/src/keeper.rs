//! What happens without being asked for: looks at the machine and the ledger, and telling what changed.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use plimsoll::residency::Book;
use plimsoll::units::{Bytes, PoolId};
use plimsoll::watcher::{OwnedTask, Subscription};
use plimsoll::{StackEvent, Standing};
use serde::Serialize;

use crate::api::{StandingRecord, standing_record};
use crate::app::{App, Seen};
use crate::clock;

#[derive(Serialize)]
struct Told {
    text: String,
}

#[derive(Serialize)]
struct BudgetTold {
    text: String,
    pool: String,
    budget_bytes: u64,
    excess_bytes: u64,
}

#[derive(Serialize)]
struct BookingTold<'a> {
    change: &'static str,
    instance: &'a str,
    role: &'a str,
    pool: &'a str,
    bytes: u64,
}

/// How the plan in force stands; `None` when there is none any more.
#[derive(Serialize)]
pub(crate) struct PlanTold {
    pub(crate) standing: Option<StandingRecord>,
}

/// Writes what the stack tells into the journal.
pub(crate) fn follow(app: &Arc<App>, mut events: Subscription<StackEvent>) -> OwnedTask {
    let app = Arc::clone(app);
    OwnedTask::spawn(async move {
        while let Some(event) = events.next().await {
            app.note_stack(&event);
        }
    })
}

/// Looks at what is free on the machine again and again.
pub(crate) fn look(app: &Arc<App>) -> OwnedTask {
    let app = Arc::clone(app);
    OwnedTask::spawn(async move {
        loop {
            app.stack.refresh().await;
            app.tell_generation();
            tokio::time::sleep(app.limits.look_interval).await;
        }
    })
}

/// Looks at the ledger again and again.
pub(crate) fn count(app: &Arc<App>) -> OwnedTask {
    let app = Arc::clone(app);
    OwnedTask::spawn(async move {
        loop {
            tokio::time::sleep(app.limits.ledger_interval).await;
            if Arc::clone(&app).blocking(|app| app.look_at_the_ledger()).await.is_err() {
                tracing::error!("a look at the ledger was not finished");
            }
            // Others may have changed a cluster that is shared.
            app.tell_generation();
        }
    })
}

impl App {
    /// Tells readers of events at which generation the cluster is.
    pub(crate) fn tell_generation(&self) {
        let (version, snapshot) = self.seen();
        let now = Seen { version, generation: snapshot.generation.get() };
        self.moment.send_if_modified(|told| std::mem::replace(told, now) != now);
    }

    /// Tells what is booked otherwise than when this was last called, by whomever.
    pub(crate) fn look_at_the_ledger(&self) {
        let book = match &self.joined {
            Some(joined) => {
                joined.look();
                Ok(joined.book())
            }
            None => self.store.sweep(clock::now()).and_then(|()| self.book()),
        };
        match book {
            Ok(book) => self.compare(&book),
            Err(error) => tracing::warn!("{error}"),
        }
    }

    fn compare(&self, book: &Book) {
        let now = booked(book);
        // Held while it is told, so that two who look at once tell in order.
        let mut before = self.booked.lock().unwrap_or_else(PoisonError::into_inner);
        for ((instance, pool), (role, bytes)) in &now {
            let change = match before.get(&(instance.clone(), pool.clone())) {
                None => "booked",
                Some((_, was)) if was != bytes => "resized",
                Some(_) => continue,
            };
            let (pool, bytes) = (pool.as_str(), bytes.get());
            self.journal.note("booking", &BookingTold { change, instance, role, pool, bytes });
        }
        for ((instance, pool), (role, bytes)) in before.iter().filter(|(key, _)| !now.contains_key(key)) {
            let (pool, bytes) = (pool.as_str(), bytes.get());
            self.journal.note("booking", &BookingTold { change: "released", instance, role, pool, bytes });
        }
        *before = now;
    }

    /// Takes in what is booked at the start, which is no news.
    pub(crate) fn know(&self, book: &Book) {
        *self.booked.lock().unwrap_or_else(PoisonError::into_inner) = booked(book);
    }

    fn note_stack(&self, event: &StackEvent) {
        let told = Told { text: event.to_string() };
        match event {
            StackEvent::Hardware { .. } => self.journal.note("hardware", &told),
            StackEvent::Tuned { .. } => self.journal.note("tuned", &told),
            StackEvent::Node(_) => {
                self.journal.note("node", &told);
                self.tell_generation();
            }
            StackEvent::Budget { pool, budget, excess } => self.journal.note(
                "budget",
                &BudgetTold {
                    text: told.text,
                    pool: pool.to_string(),
                    budget_bytes: budget.get(),
                    excess_bytes: excess.get(),
                },
            ),
            StackEvent::Plan(standing) => self.note_standing(standing),
            StackEvent::Failed(_) => self.journal.note("failed", &told),
            // One that this agent does not know yet is told in words.
            _ => self.journal.note("other", &told),
        }
    }

    /// Tells how the plan in force stands.
    pub(crate) fn note_standing(&self, standing: &Standing) {
        self.journal.note("plan", &PlanTold { standing: Some(standing_record(standing)) });
    }
}

/// What each running copy holds in each pool, and what it is for.
fn booked(book: &Book) -> BTreeMap<(String, PoolId), (String, Bytes)> {
    let holders = book.holders().into_iter();
    holders.map(|holder| ((holder.instance, holder.pool), (holder.role, holder.booked))).collect()
}
