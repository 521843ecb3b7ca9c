//! The commands of the ledger: who holds how much memory on this machine.

mod advise;
pub(crate) mod args;
mod ps;
mod refuse;
mod reserve;
mod roster;
mod run;
#[cfg(unix)]
mod start;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use plimsoll::model::{ContextLength, Request as ModelRequest};
use plimsoll::residency::{
    Book, FileLedger, FileOptions, InferenceSpec, Owners, ProcOwners, ProcessId, Standing, Store, StoreError,
    Timestamp, UNIFIED_MEMORY,
};
use plimsoll::units::{Bytes, PoolId};
use plimsoll::{Place, size};

use crate::args::Cli;
use crate::failure::{Failure, Outcome};
use crate::input;
use args::{LedgerArgs, NeedsArgs};

pub(crate) use advise::run as advise;
#[cfg(feature = "agent")]
pub(crate) use ps::occupancy;
pub(crate) use ps::run as ps;
pub(crate) use reserve::{release, reserve, resize};
pub(crate) use roster::run as roster;
pub(crate) use run::run;
#[cfg(unix)]
pub(crate) use start::start;

/// Becoming a command needs a system that can.
#[cfg(not(unix))]
pub(crate) fn start(_args: &args::StartArgs) -> Outcome {
    Err(Failure::Input("this system cannot do that".to_owned()))
}

/// What is kept free of every pool when a ledger's budgets are taken from this machine.
pub(crate) const KEPT_FREE: Bytes = Bytes::gib(1);

/// An open ledger, with the processes of this machine.
#[derive(Debug)]
pub(crate) struct Ledger {
    store: Box<dyn Store>,
    owners: Arc<ProcOwners>,
    /// The lease on which this process books, where the ledger is a cluster's.
    lease: Option<crate::live::Lease>,
}

/// The time, as everybody who shares a ledger's file counts it.
pub(crate) fn now() -> Timestamp {
    #[expect(clippy::disallowed_methods, reason = "the one place where the command reads the clock")]
    let now = SystemTime::now();
    Timestamp::after_epoch(now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO))
}

impl Ledger {
    /// Opens the ledger that was named and settles its budgets. `pool` is the one that `--budget` speaks of.
    fn open(args: &LedgerArgs, pool: Option<&PoolId>) -> Result<Self, Failure> {
        if let Some(url) = &args.cluster {
            return Self::of_cluster(url, args.budget, pool);
        }
        let path = match &args.ledger {
            Some(path) => path.clone(),
            None => usual_file()?,
        };
        let owners = Arc::new(ProcOwners::new());
        let store =
            FileLedger::open(path, FileOptions::default(), Arc::clone(&owners) as Arc<_>).map_err(store)?;
        let ledger = Self { store: Box::new(store), owners, lease: None };
        ledger.settle(args.budget, pool)?;
        Ok(ledger)
    }

    /// Opens the ledger of a cluster. Its pools are made by whoever joins it.
    fn of_cluster(url: &str, budget: Option<Bytes>, pool: Option<&PoolId>) -> Result<Self, Failure> {
        let owners = Arc::new(ProcOwners::new());
        let (store, lease) = crate::live::ledger(url, &owners)?;
        let ledger = Self { store, owners, lease: Some(lease) };
        if budget.is_none() && ledger.book()?.pools().len() == 0 {
            return Err(Failure::Input(
                "the cluster knows of no memory yet; run `plimsoll node join` on its machines".to_owned(),
            ));
        }
        ledger.settle(budget, pool)?;
        Ok(ledger)
    }

    /// Opens the file that was named, or the usual one, for an agent: pools that it lacks come from the machine as the agent
    /// sees it. With the processes of this machine, to measure what they use.
    #[cfg(feature = "agent")]
    pub(crate) fn shared(
        path: Option<&std::path::Path>,
    ) -> Result<(Arc<dyn Store>, Arc<ProcOwners>), Failure> {
        let path = path.map_or_else(usual_file, |path| Ok(path.to_owned()))?;
        let owners = Arc::new(ProcOwners::new());
        let file =
            FileLedger::open(path, FileOptions::default(), Arc::clone(&owners) as Arc<_>).map_err(store)?;
        Ok((Arc::new(file), owners))
    }

    fn settle(&self, budget: Option<Bytes>, pool: Option<&PoolId>) -> Result<(), Failure> {
        let book = self.book()?;
        if book.pools().len() == 0 {
            let pools = match budget {
                Some(_) => vec![(pool.cloned().map_or_else(unified, Ok)?, budget)],
                None => detected()?,
            };
            self.store.init_pools(&pools, now()).map_err(store)?;
            return Ok(());
        }
        let Some(budget) = budget else { return Ok(()) };
        let pools: Vec<PoolId> = book.pools().map(|pool| pool.id).collect();
        let target = match (pool, pools.as_slice()) {
            (Some(pool), _) => pool.clone(),
            (None, [only]) => only.clone(),
            (None, _) => {
                return Err(Failure::Input(format!(
                    "--budget for which pool? Give --pool: {}",
                    list(&pools)
                )));
            }
        };
        if book.pool(target.as_str()).is_some_and(|pool| pool.budget == Some(budget)) {
            return Ok(());
        }
        let now = self.store.set_budget(&target, Some(budget), now()).map_err(store)?;
        if !now.excess().is_zero() {
            crate::complain(&format!(
                "note: pool '{target}' holds {}, which is {} more than its new budget; nobody is thrown out",
                now.used,
                now.excess().scaled()
            ));
        }
        Ok(())
    }

    fn book(&self) -> Result<Book, Failure> {
        self.store.book().map_err(store)
    }

    /// The process that runs under this booking, where one does.
    fn running_owner(&self, book: &Book, instance: &str) -> Option<ProcessId> {
        let owners = &book.get(instance)?.terms().owners;
        owners.iter().find(|owner| self.owners.standing(owner) == Standing::Alive).cloned()
    }

    /// This process, as an owner of bookings. Where it cannot be told apart from later ones, the lease decides alone.
    fn this_process(&self) -> ProcessId {
        self.owners.this_process().unwrap_or_else(|| ProcessId {
            boot: String::new(),
            namespace: 0,
            pid: std::process::id(),
            start: 0,
        })
    }
}

fn unified() -> Result<PoolId, Failure> {
    PoolId::new(UNIFIED_MEMORY).map_err(Failure::internal)
}

fn list(pools: &[PoolId]) -> String {
    pools.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// What stands in the way of a ledger's file is nothing that another attempt would change.
fn store(error: StoreError) -> Failure {
    Failure::input(error)
}

/// The file under the folder for state, which is made where it is not there.
fn usual_file() -> Result<PathBuf, Failure> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    let folder = state
        .ok_or_else(|| {
            Failure::Input("neither XDG_STATE_HOME nor HOME is set; give --ledger FILE".to_owned())
        })?
        .join("plimsoll");
    std::fs::create_dir_all(&folder).map_err(|error| Failure::write(&folder, &error))?;
    Ok(folder.join("ledger.db"))
}

/// The memories of this machine, each with all it has but [`KEPT_FREE`].
fn detected() -> Result<Vec<(PoolId, Option<Bytes>)>, Failure> {
    let machine = input::this_machine_without_free();
    let pools = machine.nodes.iter().flat_map(|node| &node.pools);
    let pools: Vec<_> =
        pools.map(|pool| (pool.id.clone(), Some(pool.total.saturating_sub(KEPT_FREE)))).collect();
    if pools.is_empty() {
        return Err(Failure::Input("no memory of this machine is known; give --budget".to_owned()));
    }
    Ok(pools)
}

impl NeedsArgs {
    /// The spec that was typed, drawing on `pool`. What needs nothing is not known, and refused.
    fn spec(
        &self,
        role: &str,
        excludes: &[String],
        pool: Option<&PoolId>,
        book: &Book,
    ) -> Result<InferenceSpec, Failure> {
        let spec = InferenceSpec::new(role, "llama.cpp").excluding(excludes);
        let (weights, rest) = match (&self.needs, &self.model) {
            (Some(needs), _) => (*needs, Bytes::ZERO),
            (None, Some(path)) => {
                let only = book.pools().next().filter(|_| book.pools().len() == 1).map(|pool| pool.id);
                let model = input::open_model(path)?;
                let request = ModelRequest {
                    context: self.ctx.map(ContextLength::PerSequence),
                    parallel: self.parallel,
                    cache_type_k: self.cache_type_k,
                    cache_type_v: self.cache_type_v,
                    ..ModelRequest::default()
                };
                let place = Place::of_pool(pool.or(only.as_ref()));
                let size = size(&model, &request, place).map_err(Failure::input)?;
                (size.weights, size.kv_and_buffers)
            }
            (None, None) => (Bytes::ZERO, Bytes::ZERO),
        };
        if weights.saturating_add(rest).is_zero() {
            return Err(nothing(role));
        }
        let spec = match &self.model {
            Some(path) => spec.with_model(input::shown(path).to_string_lossy()),
            None => spec,
        };
        Ok(needing(spec, pool, weights, rest))
    }
}

/// A spec that needs so much of this pool, or of the only one.
fn needing(spec: InferenceSpec, pool: Option<&PoolId>, weights: Bytes, rest: Bytes) -> InferenceSpec {
    match pool {
        Some(pool) => spec.with_pools([(pool.clone(), weights.saturating_add(rest))]),
        None => spec.with_memory(weights, rest),
    }
}

fn nothing(role: &str) -> Failure {
    let role = role.strip_prefix("role:").unwrap_or(role);
    Failure::Input(format!("'{role}' needs 0 bytes, which is as good as unknown; give what it needs"))
}

/// JSON for a program, on stdout.
fn json(record: &impl serde::Serialize) -> Outcome {
    Ok(serde_json::to_string_pretty(record).map_err(Failure::internal)? + "\n")
}

/// JSON or a line, as was asked for.
fn answer(cli: &Cli, record: &impl serde::Serialize, text: impl Into<String>) -> Outcome {
    if cli.json { json(record) } else { Ok(text.into()) }
}
