//! Plans that an engine can carry out, where its rules are more than the planner is told.

use std::borrow::Cow;
use std::collections::BTreeSet;

use plimsoll_balance::{Objective, Pin, Plan, PlanError, PlanOptions, Strategy};
use plimsoll_cluster::{ClusterSnapshot, Device};
use plimsoll_export::EngineError;
use plimsoll_export::vllm::{self, Server};
use plimsoll_model::Footprint;
use plimsoll_units::{Bytes, DeviceRef, NodeId};

use crate::engine::Engine;
use crate::job::{Job, JobError, Prepared};

/// A plan with the job that it was made for: what the engine's rules ask for beside the person's wishes is in its options.
pub(crate) struct Carried<'a> {
    pub(crate) job: Job<'a>,
    pub(crate) prepared: Prepared,
    pub(crate) plan: Plan,
}

impl<'a> Job<'a> {
    /// Whether the engine can run this model in this way at all.
    pub(crate) fn suited(&self) -> Result<(), EngineError> {
        let (engine, ranks) = (self.engine.name(), self.request.ranks);
        if !self.engine.runs(self.model.format()) {
            return Err(EngineError::Form {
                engine,
                form: "a GGUF",
                nearest: "give it the checkpoint (a folder with config.json), or plan for llama.cpp",
            });
        }
        if self.adapted.is_some() {
            self.engine.takes_adapters()?;
        }
        if ranks <= 1 {
            return Ok(());
        }
        if !self.engine.shares_layers() {
            return Err(EngineError::NoTensorParallel { engine, ranks });
        }
        let (heads, kv_heads) = (self.model.head_count(), self.model.kv_head_count());
        if heads == 0 {
            return Err(EngineError::NoHeads { ranks });
        }
        let nearest = self.model.ranks_that_divide(ranks);
        if nearest != ranks {
            return Err(EngineError::Heads { heads, kv_heads, ranks, nearest });
        }
        // What the cluster has was taken together when the job was made.
        match self.snapshot.nodes.iter().all(|node| node.devices.is_empty()) {
            true => Err(EngineError::NoEqualDevices { ranks, most: self.most_alike }),
            false => Ok(()),
        }
    }

    /// The best plan that the engine can carry out.
    pub(crate) fn carried(&self) -> Result<Carried<'a>, JobError> {
        match self.engine {
            Engine::LlamaCpp | Engine::None | Engine::Petals | Engine::Exo => self.straight(),
            Engine::IkLlamaCpp => self.all_or_head_on_host(),
            Engine::Vllm => self.ranked(Server::Vllm),
            Engine::Sglang => self.ranked(Server::Sglang),
            Engine::Accelerate => self.on_one_node(Self::straight),
            Engine::MistralRs => self.on_one_node(Self::devices_then_host),
        }
    }

    fn straight(&self) -> Result<Carried<'a>, JobError> {
        let prepared = self.prepare(Bytes::ZERO)?;
        let plan = self.plan_prepared(&prepared, &self.options)?;
        Ok(Carried { job: self.clone(), prepared, plan })
    }

    /// As it is, or with the first layer kept on the host and the head beside the input: with blocks on the host, the
    /// engine keeps the head there as well.
    fn all_or_head_on_host(&self) -> Result<Carried<'a>, JobError> {
        let whole = self.straight();
        let partial = |carried: &Carried<'_>| {
            let first = carried.plan.stages.iter().find(|stage| !stage.layers.is_empty());
            first.is_some_and(|stage| self.is_main_host(&stage.device))
        };
        match whole {
            Ok(carried) if partial(&carried) => {}
            Err(JobError::Plan(PlanError::DoesNotFit(_))) => {}
            settled => return settled,
        }
        let mut prepared = self.prepare(Bytes::ZERO)?;
        for footprint in &mut prepared.workload.footprints {
            *footprint = head_on_host(footprint.clone());
        }
        let mut options = self.options.clone();
        let host = self.snapshot.main_node().ok().and_then(|node| Some((node, node.host()?)));
        if let Some((node, host)) = host {
            let device = DeviceRef { node: node.id.clone(), device: host.id.clone() };
            options.pins.push(Pin { device, layers: (0..1).into() });
        }
        let plan = self.plan_prepared(&prepared, &options)?;
        Ok(Carried { job: Self { options, ..self.clone() }, prepared, plan })
    }

    /// All of it on devices; else what they do not take on the host, at the end.
    fn devices_then_host(&self) -> Result<Carried<'a>, JobError> {
        // Whoever pins layers decides where the host stands.
        if !self.options.pins.is_empty() {
            return self.straight();
        }
        let mut bare = self.snapshot.clone().into_owned();
        for node in &mut bare.nodes {
            node.devices.retain(|device| !device.is_host());
        }
        let job = Self { snapshot: Cow::Owned(bare), ..self.clone() };
        match job.straight() {
            Err(JobError::Plan(PlanError::DoesNotFit(_) | PlanError::NoDevices { .. })) => {}
            settled => return settled,
        }
        let hosts = self.snapshot.nodes.iter().filter(|node| self.allows(&node.id));
        let mut hosts = hosts.filter_map(|node| Some((node, node.devices.iter().find(|d| d.is_host())?)));
        let last = u32::try_from(self.model.layer_count()).unwrap_or(u32::MAX);
        match (hosts.next(), hosts.next()) {
            (Some((node, host)), None) if last > 0 => {
                let device = DeviceRef { node: node.id.clone(), device: host.id.clone() };
                let mut options = self.options.clone();
                options.pins.push(Pin { device, layers: (last - 1..last).into() });
                Self { options, ..self.clone() }.straight()
            }
            _ => self.straight(),
        }
    }

    fn allows(&self, node: &NodeId) -> bool {
        self.options.only.as_ref().is_none_or(|only| only.contains(node))
    }

    /// A plan on one node. Where the best one takes several, the nodes that would do alone are told.
    fn on_one_node(
        &self,
        plan: impl Fn(&Self) -> Result<Carried<'a>, JobError>,
    ) -> Result<Carried<'a>, JobError> {
        let carried = plan(self)?;
        let used: BTreeSet<&NodeId> = carried.plan.stages.iter().map(|stage| &stage.device.node).collect();
        if used.len() <= 1 {
            return Ok(carried);
        }
        let alone = |node: &NodeId| {
            let options = PlanOptions { only: Some([node.clone()].into()), ..self.options.clone() };
            plan(&Self { options, ..self.clone() })
        };
        let mut alone_on: Vec<(NodeId, Plan)> = Vec::new();
        let mut refused = None;
        for node in self.snapshot.nodes.iter().filter(|node| self.allows(&node.id)) {
            match alone(&node.id) {
                Ok(carried) => alone_on.push((node.id.clone(), carried.plan)),
                Err(error) => refused = refused.or(error.refusal().is_some().then_some(error)),
            }
        }
        if let (true, Some(error)) = (alone_on.is_empty(), refused) {
            return Err(error);
        }
        // The best one first: it is the one that the text names.
        let value = |plan: &Plan| plan.value.value.unwrap_or(f64::MAX);
        alone_on.sort_by(|(_, one), (_, other)| value(one).total_cmp(&value(other)));
        let fits: Vec<NodeId> = alone_on.into_iter().map(|(node, _)| node).collect();
        let others = used.into_iter().filter(|node| !fits.contains(node)).cloned();
        let nodes = fits.iter().cloned().chain(others).collect();
        Err(EngineError::SeveralNodes { engine: self.engine.name(), nodes }.into())
    }

    /// Ranks node by node, all with one share of their memory.
    fn ranked(&self, server: Server) -> Result<Carried<'a>, JobError> {
        let mut carried = self.straight()?;
        if let Err(EngineError::NodeAgain { .. }) = vllm::check_nodes(server, &carried.plan, &self.snapshot) {
            let options = PlanOptions { strategy: Strategy::GivenOrder, ..self.options.clone() };
            carried = Self { options, ..self.clone() }.straight()?;
        }
        vllm::check_nodes(server, &carried.plan, &self.snapshot)?;
        match vllm::memory_share(server, &carried.plan, &self.snapshot) {
            Ok(_) => Ok(carried),
            Err(error) => self.with_one_share(server, &carried.job)?.ok_or_else(|| error.into()),
        }
    }

    /// The best plan with every device capped at the same share of its memory: one of those that a device allows.
    fn with_one_share(&self, server: Server, job: &Self) -> Result<Option<Carried<'a>>, JobError> {
        let margin = job.prepare(Bytes::ZERO)?.rules.margin;
        let charge = match server {
            Server::Vllm => Bytes::ZERO,
            Server::Sglang => job.prepare(Bytes::ZERO)?.rules.charges.alone,
        };
        let rooms = rooms(&job.snapshot, &job.options, margin, charge, server);
        let mut shares: Vec<(u64, u64)> = rooms.iter().map(|room| (room.most, room.of)).collect();
        shares.retain(|(most, _)| *most > 0);
        let mut best: Option<Carried<'a>> = None;
        for (most, of) in shares {
            let mut options = job.options.clone();
            for room in &rooms {
                // Rounded down twice: the share itself has few digits, and is rounded up.
                let share = u128::from(room.of) * u128::from(most) / u128::from(of.max(1));
                let enough = share <= u128::from(room.most);
                let cap = if enough { u64::try_from(share).unwrap_or(0) } else { 0 };
                options.caps.insert(room.device.clone(), Bytes::new(cap));
            }
            let Ok(carried) = (Self { options, ..job.clone() }).straight() else { continue };
            let sound = vllm::check_nodes(server, &carried.plan, &job.snapshot)
                .and_then(|()| vllm::memory_share(server, &carried.plan, &job.snapshot));
            let better = best.as_ref().is_none_or(|best| is_better(&carried.plan, &best.plan));
            if sound.is_ok() && better {
                best = Some(carried);
            }
        }
        Ok(best)
    }
}

/// The same model with the head beside the input.
pub(crate) fn head_on_host(footprint: Footprint) -> Footprint {
    Footprint {
        input_bytes: footprint.input_bytes.saturating_add(footprint.head_beside_input_bytes),
        head_bytes: Bytes::ZERO,
        head_beside_input_bytes: Bytes::ZERO,
        ..footprint
    }
}

/// What a device allows of what its engine takes a share of.
struct Room {
    device: DeviceRef,
    most: u64,
    of: u64,
}

fn rooms(
    snapshot: &ClusterSnapshot,
    options: &PlanOptions,
    margin: Bytes,
    charge: Bytes,
    server: Server,
) -> Vec<Room> {
    let devices =
        snapshot.nodes.iter().flat_map(|node| node.devices.iter().map(move |device| (node, device)));
    let room = |(node, device): (&plimsoll_cluster::Node, &Device)| {
        let pool = node.pool(&device.pool)?;
        let reference = DeviceRef { node: node.id.clone(), device: device.id.clone() };
        let mut pool = pool.clone();
        pool.reserve = options.reserve.or(pool.reserve);
        let cap = options.caps.get(&reference).copied().unwrap_or(Bytes::MAX);
        let budget = pool.budget(margin).min(device.limit.unwrap_or(Bytes::MAX)).min(cap);
        let of = match server {
            Server::Vllm => pool.total,
            Server::Sglang => pool.free.unwrap_or(pool.total),
        };
        Some(Room { device: reference, most: budget.saturating_sub(charge).get(), of: of.get() })
    };
    devices.filter_map(room).collect()
}

fn is_better(one: &Plan, other: &Plan) -> bool {
    match (one.value.value, other.value.value) {
        (Some(one), Some(other)) => one < other,
        _ => one.objective == Objective::Fit && one.stages.len() < other.stages.len(),
    }
}
