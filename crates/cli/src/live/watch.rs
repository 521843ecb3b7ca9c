//! `plimsoll watch --cluster etcd://…`.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, TryRecvError};
use std::time::Duration;

use plimsoll::etcd::{Mirror, RegistryEvent};
use plimsoll::live::{Live, LiveError};
use plimsoll::residency::{Book, NoOwners};
use plimsoll::units::{Bytes, PoolId};
use plimsoll::watcher::Subscription;
use plimsoll::{Planned, Standing, holding};
use serde::Serialize;

use super::open::{open, seen};
use crate::args::Cli;
use crate::failure::{Failure, Outcome};
use crate::print;

/// How long a machine that has failed is still counted.
const GRACE: Duration = Duration::from_secs(60);

/// How soon what comes is told.
const TICK: Duration = Duration::from_millis(200);

#[derive(Serialize)]
struct Event<'a> {
    event: &'static str,
    format: &'static str,
    text: &'a str,
}

/// What was told last.
#[derive(Default)]
struct Told {
    booked: BTreeMap<(String, PoolId), Bytes>,
    plan: Option<u64>,
    broken: Option<Vec<String>>,
}

/// Says what happens to a cluster, until it is interrupted.
pub(crate) fn watch(url: &str, cli: &Cli) -> Outcome {
    let interrupts = crate::watch::interrupts()?;
    let live = open(url)?;
    let mirror = live.mirror(GRACE).map_err(Failure::input)?;
    let news = mirror.subscribe();
    let (stop, stopped) = mpsc::channel();
    interrupts.then(move || {
        // Whoever listened may have ended already.
        let _stopping = stop.send(());
    });
    let mut watcher = Watcher { live, mirror, told: Told::default(), json: cli.json };
    watcher.begin()?;
    watcher.follow(news, &stopped)?;
    Ok(String::new())
}

struct Watcher {
    live: Live,
    mirror: Mirror,
    told: Told,
    json: bool,
}

impl Watcher {
    fn begin(&mut self) -> Result<(), Failure> {
        let (snapshot, _) = self.mirror.snapshot();
        let names: Vec<&str> = snapshot.nodes.iter().map(|node| node.id.as_str()).collect();
        let names = if names.is_empty() { "nobody".to_owned() } else { names.join(", ") };
        self.tell("cluster", &format!("now: {names} at generation {}", snapshot.generation))?;
        self.told.booked = booked(&self.book()?);
        self.plan()
    }

    fn follow(
        &mut self,
        mut news: Subscription<RegistryEvent>,
        stopped: &mpsc::Receiver<()>,
    ) -> Result<(), Failure> {
        let mut audited = self.mirror.state().generation();
        while let Err(TryRecvError::Empty) = stopped.try_recv() {
            let (mut ledger, mut plan) = (false, false);
            while let Some(event) = news.try_next() {
                match &event {
                    RegistryEvent::Ledger => ledger = true,
                    RegistryEvent::Plan => plan = true,
                    RegistryEvent::Cluster(_) => self.tell("node", &event.to_string())?,
                    RegistryEvent::Problem { .. } => self.tell("failed", &event.to_string())?,
                    other => self.tell("membership", &other.to_string())?,
                }
            }
            if ledger {
                self.bookings()?;
            }
            let now = self.mirror.state().generation();
            if plan || now != audited {
                audited = now;
                self.plan()?;
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    fn book(&self) -> Result<Book, Failure> {
        let (dated, _) = self.live.ledger(None, NoOwners).look().map_err(Failure::input)?;
        Ok(dated.book)
    }

    /// Tells what is booked otherwise than before. While nobody answers there is nothing to tell.
    fn bookings(&mut self) -> Result<(), Failure> {
        let Ok(book) = self.book() else { return Ok(()) };
        let now = booked(&book);
        let before = std::mem::replace(&mut self.told.booked, now.clone());
        for ((instance, pool), bytes) in &now {
            match before.get(&(instance.clone(), pool.clone())) {
                None => self.tell("booking", &format!("{instance} booked {bytes} of {pool}"))?,
                Some(was) if was != bytes => {
                    self.tell("booking", &format!("{instance} holds {bytes} of {pool}, before {was}"))?;
                }
                Some(_) => {}
            }
        }
        for ((instance, pool), bytes) in before.iter().filter(|(key, _)| !now.contains_key(*key)) {
            self.tell("booking", &format!("{instance} gave back {bytes} of {pool}"))?;
        }
        Ok(())
    }

    /// Tells which plan is in force, and how it stands, where that has changed.
    fn plan(&mut self) -> Result<(), Failure> {
        let (plan, file) = match self.live.plan_in_force() {
            Ok(Some(read)) => read,
            Ok(None) => {
                if self.told.plan.take().is_some() {
                    self.tell("plan", "no plan is in force")?;
                }
                self.told.broken = None;
                return Ok(());
            }
            Err(error @ LiveError::Plan { .. }) => return self.tell("failed", &error.to_string()),
            // It is asked again when something changes.
            Err(_) => return Ok(()),
        };
        let Ok(seen) = seen(&self.live) else { return Ok(()) };
        let (mut snapshot, _) = self.mirror.snapshot();
        // Who has failed is shown as that, and who is there with what is not booked.
        for node in &mut snapshot.nodes {
            if let Some(known) = seen.snapshot.node(&node.id) {
                node.pools.clone_from(&known.pools);
            }
        }
        let snapshot = holding(&snapshot, &file);
        let planned = Planned::from_saved(&file, snapshot.generation).map_err(Failure::input)?;
        let standing = Standing::of(&planned, &snapshot);
        let broken: Vec<String> = standing.checked.broken.iter().map(ToString::to_string).collect();
        let number = plan.generation.get();
        if self.told.plan != Some(number) || self.told.broken.as_ref() != Some(&broken) {
            self.tell("plan", &format!("plan {number} for {}: {standing}", file.model.name))?;
        }
        self.told.plan = Some(number);
        self.told.broken = Some(broken);
        Ok(())
    }

    fn tell(&self, event: &'static str, text: &str) -> Result<(), Failure> {
        let line = if self.json {
            let event = Event { event, format: "plimsoll.watch/1", text };
            serde_json::to_string(&event).map_err(Failure::internal)?
        } else {
            text.to_owned()
        };
        print(&(line + "\n"))
    }
}

fn booked(book: &Book) -> BTreeMap<(String, PoolId), Bytes> {
    book.holders().into_iter().map(|holder| ((holder.instance, holder.pool), holder.booked)).collect()
}
