//! What keeps an agent up to date with its cluster, and the cluster with its machine.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use plimsoll::cluster::{Node, NodeStatus};
use plimsoll::etcd::{AgentState, RegistryEvent, ledger_pool};
use plimsoll::live::resources;
use plimsoll::residency::Store as _;
use plimsoll::units::{Bytes, PoolId};
use plimsoll::watcher::OwnedTask;

use super::Joined;
use crate::app::{App, InForce};
use crate::clock;
use crate::error::chain;

/// How soon what has changed is taken in.
const TICK: Duration = Duration::from_millis(250);

/// How often a ledger is read of which nobody says that it has changed: what is free of the machines bounds what may be
/// booked.
const BOOKED: Duration = Duration::from_secs(5);

/// How often bookings are ended whose time is up.
const SWEPT: Duration = Duration::from_secs(10);

impl Joined {
    /// Follows the cluster, takes in what has changed, and says what is free.
    pub(crate) fn keep(&self, app: &Arc<App>) -> [OwnedTask; 3] {
        [self.follow(app), tick(app), report(app)]
    }

    /// Tells what happens to the cluster as it happens.
    fn follow(&self, app: &Arc<App>) -> OwnedTask {
        let app = Arc::clone(app);
        let mut news = self.member.subscribe();
        OwnedTask::spawn(async move {
            let mut lost = 0;
            while let Some(event) = news.next().await {
                let Some(joined) = &app.joined else { return };
                joined.told(&app, &event);
                if std::mem::replace(&mut lost, news.lost()) != news.lost() {
                    joined.ledger_changed.store(true, Ordering::SeqCst);
                    joined.plan_changed.store(true, Ordering::SeqCst);
                }
            }
        })
    }

    fn told(&self, app: &App, event: &RegistryEvent) {
        match event {
            RegistryEvent::Cluster(_) => app.note_node(&event.to_string()),
            RegistryEvent::Ledger => self.ledger_changed.store(true, Ordering::SeqCst),
            RegistryEvent::Plan => self.plan_changed.store(true, Ordering::SeqCst),
            RegistryEvent::Problem { what } => {
                tracing::warn!("{what}");
                app.note_failure(what);
            }
            RegistryEvent::Silent { .. } => {
                tracing::warn!("{event}");
                app.note_membership(&event.to_string());
            }
            other => {
                tracing::info!("{other}");
                app.note_membership(&other.to_string());
            }
        }
    }

    /// Takes in what has changed. Blocks.
    fn take_in(&self, app: &App) {
        self.tell_place(app);
        if self.member.silent().is_none() {
            if self.plan_changed.load(Ordering::SeqCst) {
                self.take_plan(app);
            }
            if self.is_book_due() {
                app.look_at_the_ledger();
            }
            self.sweep();
        }
        self.audit(app);
        app.tell_generation();
    }

    fn is_book_due(&self) -> bool {
        let looks = self.looks();
        let moved = looks.machines != self.state().generation() && looks.booked.elapsed() >= BOOKED;
        self.ledger_changed.load(Ordering::SeqCst) || moved
    }

    fn sweep(&self) {
        let due = {
            let mut looks = self.looks();
            let due = looks.swept.elapsed() >= SWEPT;
            if due {
                looks.swept = clock::start();
            }
            due
        };
        if due && let Err(error) = self.sweeper.sweep(clock::now()) {
            tracing::warn!("{}", chain(&error));
        }
    }

    /// Says when this machine has lost its place, and when it has it again.
    fn tell_place(&self, app: &App) {
        let now = self.member.place();
        let before = std::mem::replace(&mut self.looks().place, now.clone());
        match (before, now) {
            (AgentState::Registered, AgentState::Lost(why)) => {
                tracing::warn!("not registered: {why}");
                app.note_membership(&format!("'{}' is not registered: {why}", self.id));
            }
            (AgentState::Lost(_), AgentState::Registered) => {
                self.reported.store(false, Ordering::SeqCst);
                tracing::info!("registered again");
                app.note_membership(&format!("'{}' is registered again", self.id));
            }
            _ => {}
        }
    }

    /// Audits the plan in force where the cluster has changed, and tells how it stands where that has.
    fn audit(&self, app: &App) {
        let Some(plan) = app.plan() else { return };
        if self.looks().audited == self.member.view().version {
            return;
        }
        let Some((version, standing)) = self.standing(&plan.file) else { return };
        self.looks().audited = version;
        app.take_standing(InForce { standing, ..plan });
    }

    /// Says what is free on the machine, and what it is where that has changed. Blocks.
    fn report(&self, app: &App) {
        let Some(machine) = self.joining.machine(&self.id, &app.stack) else { return };
        if self.member.silent().is_some() {
            return;
        }
        if self.joining.described.is_some() {
            return self.report_described(&machine);
        }
        let mut told = self.told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !same_machine(&told, &machine) {
            let mut brings = resources(&machine).with_address(self.joining.address.clone());
            if let Some(boot) = &self.joining.boot_id {
                brings = brings.with_boot_id(boot.clone());
            }
            match self.member.update(brings, clock::now()) {
                Ok(()) => *told = machine.clone(),
                Err(error) => tracing::warn!("{}", chain(&error)),
            }
        }
        drop(told);
        let pools = machine.pools.iter();
        let free: Vec<(PoolId, Bytes)> =
            pools.filter_map(|pool| Some((pool.id.clone(), pool.free?))).collect();
        if let Err(error) = self.member.report(&free, clock::now()) {
            tracing::debug!("{error}");
        }
    }
}

impl Joined {
    /// What is described is not measured: what is said to be free of it is told once for each lease, less what is booked by
    /// then, which counts as loaded.
    fn report_described(&self, machine: &Node) {
        let stands =
            self.state().snapshot().node(&self.id).is_some_and(|node| node.status == NodeStatus::Active);
        // Somebody may have taken its place and left.
        if self.reported.swap(true, Ordering::SeqCst) && stands {
            return;
        }
        let book = self.book();
        let booked = |pool: &PoolId| {
            let id = ledger_pool(self.id.as_str(), pool.as_str()).ok()?;
            Some(book.pool(id.as_str())?.used)
        };
        let free = machine.pools.iter().filter_map(|pool| {
            Some((pool.id.clone(), pool.free?.saturating_sub(booked(&pool.id).unwrap_or(Bytes::ZERO))))
        });
        if let Err(error) = self.member.report(&free.collect::<Vec<_>>(), clock::now()) {
            tracing::debug!("{error}");
            self.reported.store(false, Ordering::SeqCst);
        }
    }
}

/// Whether a machine has the same memories and devices as before.
fn same_machine(before: &Node, now: &Node) -> bool {
    let pools = |node: &Node| -> Vec<(PoolId, Bytes)> {
        node.pools.iter().map(|pool| (pool.id.clone(), pool.total)).collect()
    };
    pools(before) == pools(now) && before.devices == now.devices
}

fn tick(app: &Arc<App>) -> OwnedTask {
    again(app, TICK, |app, joined| joined.take_in(app))
}

fn report(app: &Arc<App>) -> OwnedTask {
    again(app, app.limits.look_interval, |app, joined| joined.report(app))
}

/// Does this again and again, off the threads of the runtime.
fn again(app: &Arc<App>, pause: Duration, work: fn(&App, &Joined)) -> OwnedTask {
    let app = Arc::clone(app);
    OwnedTask::spawn(async move {
        loop {
            let done = Arc::clone(&app).blocking(move |app| {
                if let Some(joined) = &app.joined {
                    work(app, joined);
                }
            });
            if done.await.is_err() {
                tracing::error!("the cluster was not followed to the end");
            }
            tokio::time::sleep(pause).await;
        }
    })
}
