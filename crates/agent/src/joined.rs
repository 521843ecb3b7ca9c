//! A place in a cluster that is kept in etcd.

mod keep;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plimsoll::cluster::{ClusterSnapshot, ClusterState, Node};
use plimsoll::etcd::{AgentState, EtcdError, EtcdLedger, JoinError, PlanError};
use plimsoll::export::PlanFile;
use plimsoll::live::{EnterError, Live, LiveError, Member, resources};
use plimsoll::residency::{Book, NoOwners, Store, StoreError};
use plimsoll::units::{Bytes, Generation, NodeId};
use plimsoll::{Planned, Stack, Standing, holding};

use crate::app::{AdoptError, App, InForce};
use crate::error::chain;
use crate::{Source, StartError, clock};

/// How an agent brings its machine into a cluster that is kept in etcd.
#[derive(Clone, Debug)]
pub struct Joining {
    /// The cluster.
    pub live: Live,
    /// What the machine is said to be; without it, what is found, with what is free measured again and again.
    pub described: Option<Node>,
    /// Where it can be reached: what tells it from another of its name.
    pub address: String,
    /// What it calls its present boot.
    pub boot_id: Option<String>,
    /// Where its rpc server listens, for engines that need one.
    pub rpc: Option<String>,
    /// Whether it runs the engine.
    pub main: bool,
    /// How long a machine that has failed is still shown.
    pub grace: Duration,
}

/// A place in a cluster.
#[derive(Debug)]
pub(crate) struct Joined {
    member: Member,
    joining: Joining,
    id: NodeId,
    /// What this machine was last said to bring.
    told: Mutex<Node>,
    /// For what ends by itself. A ledger makes one change at a time, and nobody is to wait for these.
    sweeper: EtcdLedger,
    /// Whether what is described was said to be free, on the present lease.
    reported: AtomicBool,
    ledger_changed: AtomicBool,
    plan_changed: AtomicBool,
    looks: Mutex<Looks>,
    // Held from when the plan in force is read until that is taken over: an older one never comes last.
    taking: Mutex<()>,
}

/// What was looked at when.
#[derive(Debug)]
struct Looks {
    booked: Instant,
    swept: Instant,
    /// The generation of the machines when the ledger was read.
    machines: Generation,
    /// The version of the cluster against which the plan in force was audited.
    audited: u64,
    place: AgentState,
}

impl Joined {
    /// Brings the machine in, where it is to be in a cluster. Blocks.
    pub(crate) fn begin(
        source: &Source,
        id: &NodeId,
        stack: &Stack,
        kept_free: Bytes,
    ) -> Result<Option<Self>, StartError> {
        let Source::Joined(joining) = source else { return Ok(None) };
        let joining = (**joining).clone();
        let machine = joining.machine(id, stack).ok_or(StartError::Interrupted)?;
        let mut brings = resources(&machine).with_address(joining.address.clone());
        if let Some(boot) = &joining.boot_id {
            brings = brings.with_boot_id(boot.clone());
        }
        let live = joining.live.clone();
        let sweeper = live.ledger(None, NoOwners);
        let member = Member::join(live, brings, kept_free, joining.grace, clock::now())?;
        let now = clock::start();
        let looks = Looks {
            booked: now,
            swept: now,
            machines: member.state().generation(),
            audited: 0,
            place: AgentState::Registered,
        };
        Ok(Some(Self {
            member,
            joining,
            id: id.clone(),
            told: Mutex::new(machine),
            sweeper,
            reported: AtomicBool::new(false),
            ledger_changed: AtomicBool::new(false),
            plan_changed: AtomicBool::new(true),
            looks: Mutex::new(looks),
            taking: Mutex::default(),
        }))
    }

    /// The machines as they live.
    pub(crate) fn state(&self) -> &Arc<ClusterState> {
        self.member.state()
    }

    /// The ledger of all machines. What it books is nobody's: the end of the agent does not end it.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.member.live().ledger(None, NoOwners))
    }

    /// The machines as planners read them, and a number that moves whenever anything in that does.
    pub(crate) fn view(&self) -> (u64, Arc<ClusterSnapshot>) {
        let view = self.member.view();
        (view.version, Arc::clone(&view.snapshot))
    }

    /// Who holds what in the whole cluster.
    pub(crate) fn book(&self) -> Arc<Book> {
        self.member.book()
    }

    /// Where the cluster is kept.
    pub(crate) fn place(&self) -> String {
        self.member.live().cluster().url().to_string()
    }

    /// How old what is shown may be.
    pub(crate) fn age(&self) -> Duration {
        self.member.age()
    }

    /// Why this machine is not in the cluster at the moment.
    pub(crate) fn lost(&self) -> Option<String> {
        match self.member.place() {
            AgentState::Registered => None,
            AgentState::Lost(why) => Some(why),
            other => Some(format!("{other:?}")),
        }
    }

    /// Why nothing can be changed at the moment.
    pub(crate) fn silent(&self) -> Option<String> {
        let why = self.member.silent()?;
        let since = self.age().as_secs();
        Some(format!("no majority of etcd answers at {} for {since} s: {why}", self.place()))
    }

    /// Reads who holds what. Blocks.
    pub(crate) fn look(&self) {
        match self.member.look() {
            Ok(()) => self.ledger_changed.store(false, Ordering::SeqCst),
            Err(error) => tracing::warn!("{error}"),
        }
        let mut looks = self.looks();
        looks.booked = clock::start();
        looks.machines = self.state().generation();
    }

    /// Takes a plan into force for the whole cluster, in place of plan `replaces` (0 is none) or of whichever is in force.
    /// Blocks.
    pub(crate) fn adopt(
        &self,
        app: &App,
        replaces: Option<u64>,
        file: &PlanFile,
        text: &str,
    ) -> Result<Arc<Standing>, AdoptError> {
        let seen = self.member.live().seen().map_err(unanswered)?;
        let before = self.member.read_plan().or_else(unreadable)?;
        // It takes the place of the one in force, and with that the memory.
        let snapshot = match &before {
            Some(before) => holding(&seen.snapshot, &before.file),
            None => seen.snapshot,
        };
        let current = match replaces {
            Some(0) => None,
            Some(plan) => Some(Generation::new(plan)),
            None => before.map(|before| before.number),
        };
        let planned = Planned::from_saved(file, snapshot.generation)?;
        let standing = Arc::new(Standing::of(&planned, &snapshot));
        if !standing.holds() {
            let computed = file.basis.generation;
            // What is stale is told as that.
            return Err(match seen.basis.came_after(computed) {
                true => AdoptError::Superseded(
                    PlanError::Stale { basis: computed, current: seen.basis.generation, gone: None }
                        .to_string(),
                ),
                false => AdoptError::Broken(standing),
            });
        }
        match self.member.live().put_in_force(current, &seen.basis, file, text) {
            Ok(plan) => tracing::info!(plan = plan.generation.get(), "a plan is in force"),
            Err(PlanError::Etcd(error)) => return Err(unanswered(error)),
            Err(error) => return Err(AdoptError::Superseded(error.to_string())),
        }
        self.take_plan(app);
        Ok(standing)
    }

    /// Takes this plan out of force, or whichever is; whether there was one. Blocks.
    pub(crate) fn retire(&self, app: &App, plan: Option<u64>) -> Result<bool, AdoptError> {
        let plans = self.member.live().cluster().plans();
        let current = plans.current().map_err(unanswered)?;
        let Some(number) = plan.map(Generation::new).or(current.map(|plan| plan.generation)) else {
            return Ok(false);
        };
        match plans.retire(number) {
            Ok(()) => {}
            Err(PlanError::Etcd(error)) => return Err(unanswered(error)),
            Err(error) => return Err(AdoptError::Superseded(error.to_string())),
        }
        self.take_plan(app);
        Ok(true)
    }

    /// Takes the machine out of the cluster. Blocks for a second at most.
    pub(crate) fn leave(&self) {
        self.member.leave();
    }

    /// Reads which plan is in force, and tells it where it is another one. Blocks.
    fn take_plan(&self, app: &App) {
        let _taking = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        // Before it is read: what changes meanwhile is read again.
        self.plan_changed.store(false, Ordering::SeqCst);
        let read = match self.member.read_plan() {
            Ok(read) => read,
            Err(error) => {
                // What cannot be read now may be later; what is no plan is told once.
                let damaged = matches!(error, LiveError::Plan { .. });
                self.plan_changed.store(!damaged, Ordering::SeqCst);
                tracing::warn!("{}", chain(&error));
                if damaged {
                    app.note_failure(&chain(&error));
                    app.take_plan(None);
                }
                return;
            }
        };
        let known = app.plan_number();
        let number = read.as_ref().map(|read| read.number.get());
        if known == number {
            return;
        }
        let plan = read.and_then(|read| {
            let (version, standing) = self.standing(&read.file)?;
            self.looks().audited = version;
            Some(InForce { number: Some(read.number.get()), file: read.file, standing })
        });
        app.take_plan(plan);
    }

    /// How a plan stands in the cluster as it is, what it holds already counted as its own.
    fn standing(&self, file: &PlanFile) -> Option<(u64, Arc<Standing>)> {
        let view = self.member.view();
        let snapshot = holding(&view.snapshot, file);
        let planned = match Planned::from_saved(file, snapshot.generation) {
            Ok(planned) => planned,
            Err(error) => {
                tracing::warn!("{error}");
                return None;
            }
        };
        Some((view.version, Arc::new(Standing::of(&planned, &snapshot))))
    }

    fn looks(&self) -> MutexGuard<'_, Looks> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Joining {
    /// What the machine is, as it is told to the others.
    fn machine(&self, id: &NodeId, stack: &Stack) -> Option<Node> {
        let found = || stack.cluster().snapshot().node(id).cloned();
        let mut node = self.described.clone().or_else(found)?;
        node.id = id.clone();
        // What is found knows of neither; what is described may.
        let known = self.described.is_some();
        node.main = self.main || known && node.main;
        node.rpc = self.rpc.clone().or(node.rpc.filter(|_| known));
        Some(node)
    }
}

fn unanswered(error: EtcdError) -> AdoptError {
    AdoptError::Unanswered(error.to_string())
}

/// A plan in force that cannot be read does not keep another one from taking its place.
fn unreadable(error: LiveError) -> Result<Option<plimsoll::live::InForce>, AdoptError> {
    match error {
        LiveError::Plan { .. } => Ok(None),
        LiveError::Etcd(error) => Err(unanswered(error)),
        error => Err(AdoptError::Unanswered(error.to_string())),
    }
}

/// Whether it is worth asking again what a ledger did not do.
pub(crate) fn passes(error: &StoreError) -> bool {
    let StoreError::Remote { source, .. } = error else { return false };
    matches!(
        source.downcast_ref(),
        Some(
            EtcdError::Unavailable { .. }
                | EtcdError::Unknown { .. }
                | EtcdError::Contended { .. }
                | EtcdError::LeaseOver { .. }
                | EtcdError::Closed
        )
    )
}

/// Whether another machine stands in the way.
pub(crate) fn is_refused(error: &EnterError) -> bool {
    matches!(error, EnterError::Join(JoinError::Refused(_)))
}
