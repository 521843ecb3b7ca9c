//! What would make it fit: single changes, each planned again before it is told.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroU32;

use plimsoll_balance::{Objective, Pipelines, PlanOptions, Refusal};
use plimsoll_cluster::{ClusterSnapshot, Device, GpuBackend, Pool};
use plimsoll_export::llama_cpp::is_expert_tensor;
use plimsoll_model::{CacheType, ContextLength, Request};
use plimsoll_units::{Bytes, DeviceId, PoolId};

use crate::experts::{Offload, PartPlace};
use crate::job::Job;

/// One change that makes the model fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// What to change.
    pub change: Change,
    /// How many bytes of need go away with it; zero where bytes are added instead.
    pub frees: Bytes,
}

/// What to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Less context.
    Context {
        /// The largest multiple of 256 that fits, for one sequence.
        to: u64,
    },
    /// Experts on the main host where that helps.
    ExpertsToHost,
    /// Feed-forward blocks on the main host where that helps.
    FeedForwardToHost,
    /// Smaller cells in the key-value cache.
    CacheType {
        /// The largest type that fits, for keys and values.
        to: CacheType,
    },
    /// Nothing pinned.
    Unpin,
    /// No cap on any device, beyond those of the cluster itself.
    Uncap,
    /// More devices.
    Devices {
        /// The smallest number that is enough, the host not counted.
        to: u32,
    },
    /// Fewer copies side by side.
    Pipelines {
        /// The largest number that fits.
        to: u32,
    },
    /// One more device on the main node, or on the first one.
    AddDevice {
        /// Its memory, what the engine keeps free of it included.
        memory: Bytes,
    },
}

/// The smallest single changes that make a refused job fit, each verified by planning again.
pub fn suggestions(job: &Job<'_>, refusal: &Refusal) -> Vec<Suggestion> {
    let resident = |job: &Job<'_>| {
        let prepared = job.prepare(Bytes::ZERO).ok()?;
        let layers = &prepared.workload.footprints.first()?.layers;
        Some(Bytes::saturating_sum(layers.iter().map(|layer| layer.resident_bytes())))
    };
    let before = resident(job).unwrap_or(Bytes::ZERO);
    let with = |request: Request| Job { request, ..job.clone() };
    let freed = |job: &Job<'_>| before.saturating_sub(resident(job).unwrap_or(before));

    let mut found: Vec<Suggestion> = of_options(job).collect();
    if let Some(to) = smaller_context(job) {
        let smaller = with(Request { context: Some(ContextLength::PerSequence(to)), ..job.request });
        found.push(Suggestion { change: Change::Context { to }, frees: freed(&smaller) });
    }
    for to in [CacheType::Q8_0, CacheType::Q4_0] {
        let block = to.block();
        let now = job.request.cache_type_k.block().max(job.request.cache_type_v.block());
        // Smaller per value, or there is nothing to gain.
        if block.1 * now.0 >= now.1 * block.0 {
            continue;
        }
        let smaller = with(Request { cache_type_k: to, cache_type_v: to, ..job.request });
        if smaller.fits_as_it_is().unwrap_or(false) {
            found.push(Suggestion { change: Change::CacheType { to }, frees: freed(&smaller) });
            break;
        }
    }
    found.extend(parts_to_host(job));
    if let Some(memory) = one_more_device(job, refusal) {
        found.push(Suggestion { change: Change::AddDevice { memory }, frees: Bytes::ZERO });
    }
    found
}

/// What of the options may be left out or changed, so that it fits.
fn of_options<'a>(job: &'a Job<'a>) -> impl Iterator<Item = Suggestion> + 'a {
    let fits = |options: PlanOptions| Job { options, ..job.clone() }.fits_as_it_is().unwrap_or(false);
    let now = &job.options;
    let unpin = (!now.pins.is_empty() && fits(PlanOptions { pins: Vec::new(), ..now.clone() }))
        .then_some(Change::Unpin);
    let uncap = (!now.caps.is_empty() && fits(PlanOptions { caps: BTreeMap::new(), ..now.clone() }))
        .then_some(Change::Uncap);
    let devices = now.max_devices.and_then(|most| {
        let all = job.snapshot.nodes.iter().map(|node| node.devices.len()).sum::<usize>();
        let mut more = most.saturating_add(1)..=u32::try_from(all).unwrap_or(u32::MAX);
        let to = more.find(|to| fits(PlanOptions { max_devices: Some(*to), ..now.clone() }))?;
        Some(Change::Devices { to })
    });
    let pipelines = match now.pipelines {
        Pipelines::Exactly(copies) => {
            // No more than one copy on each device.
            let all = job.snapshot.nodes.iter().map(|node| node.devices.len()).sum::<usize>();
            let top = u32::try_from(all).unwrap_or(u32::MAX).min(copies.get() - 1);
            let mut fewer = (1..=top).rev().filter_map(NonZeroU32::new);
            fewer
                .find(|to| fits(PlanOptions { pipelines: Pipelines::Exactly(*to), ..now.clone() }))
                .map(|to| Change::Pipelines { to: to.get() })
        }
        Pipelines::One | Pipelines::Auto => None,
    };
    let changes = [unpin, uncap, devices, pipelines].into_iter().flatten();
    changes.map(|change| Suggestion { change, frees: Bytes::ZERO })
}

/// Parts of layers on the host, where they were kept with their layers and a plan exists without that.
fn parts_to_host(job: &Job<'_>) -> Option<Suggestion> {
    let (experts, feed_forward) = (job.offload.experts, job.offload.feed_forward);
    let auto = |offload: Offload| job.clone().with_offload(offload);
    let moved = |job: &Job<'_>| {
        let options = PlanOptions { objective: Objective::Fit, ..job.options.clone() };
        let plan = Job { options, ..job.clone() }.plan().ok()?.plan;
        Some(Bytes::saturating_sum(plan.overrides.iter().map(|moved| moved.bytes)))
    };
    let suggestion = |change: Change, offload: Offload| {
        let frees = moved(&auto(offload)).filter(|frees| !frees.is_zero())?;
        Some(Suggestion { change, frees })
    };
    if experts == PartPlace::Device && job.model.has_tensor(is_expert_tensor) {
        return suggestion(Change::ExpertsToHost, Offload { experts: PartPlace::Auto, feed_forward });
    }
    if feed_forward == PartPlace::Device && !job.model.has_tensor(is_expert_tensor) {
        return suggestion(Change::FeedForwardToHost, Offload { experts, feed_forward: PartPlace::Auto });
    }
    None
}

/// The largest multiple of 256 below the asked context that fits.
fn smaller_context(job: &Job<'_>) -> Option<u64> {
    let now = match job.request.context {
        Some(ContextLength::PerSequence(cells)) => cells,
        Some(ContextLength::Total(cells)) if job.request.unified_kv => cells,
        Some(ContextLength::Total(cells)) => cells / u64::from(job.request.parallel.max(1)),
        None => job.model.trained_context()?,
    };
    let fits = |steps: u64| job.fits(ContextLength::PerSequence(steps * 256)).unwrap_or(false);
    let mut high = now.div_ceil(256);
    let mut low = 1;
    if high <= low || !fits(low) {
        return None;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(low * 256)
}

/// The smallest device that makes it fit when it is added, rounded up to two digits of what is short, at most to a tenth
/// of a gigabyte.
fn one_more_device(job: &Job<'_>, refusal: &Refusal) -> Option<Bytes> {
    // A single device is no place for layers that several share.
    if job.request.ranks > 1 {
        return None;
    }
    let short = refusal.short_bytes.get();
    let step = 10_u64.pow(short.max(1).ilog10().saturating_sub(1)).min(100_000_000);
    let fits = |steps: u64| {
        let snapshot = with_device(&job.snapshot, Bytes::new(step).saturating_mul(steps));
        snapshot.is_some_and(|snapshot| {
            let job = Job { snapshot: Cow::Owned(snapshot), ..job.clone() };
            matches!(job.fits_as_it_is(), Ok(true))
        })
    };
    // Something that holds the whole model beside its charges is enough, or no single device is.
    let mut low = 0;
    let mut high = short / step + 1;
    let mut doublings = 0;
    while !fits(high) {
        low = high;
        high = high.checked_mul(2)?;
        doublings += 1;
        if doublings > 40 {
            return None;
        }
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(Bytes::new(step).saturating_mul(high))
}

/// The cluster with one more device on its main node, or on the first one where none is marked.
fn with_device(snapshot: &ClusterSnapshot, memory: Bytes) -> Option<ClusterSnapshot> {
    let mut more = snapshot.clone();
    let main = snapshot.main_node().ok().map(|node| node.id.clone());
    let node = more.nodes.iter_mut().find(|node| main.as_ref().is_none_or(|id| *id == node.id))?;
    // The kind of the other devices there: rounding and speed follow it.
    let like = node.devices.iter().find(|device| device.backend != GpuBackend::Cpu);
    let backend = like.map_or(GpuBackend::Cuda, |device| device.backend);
    let bandwidth = like.and_then(|device| device.bandwidth);
    let pool = PoolId::new("one-more-device").ok()?;
    let device = Device {
        id: DeviceId::new("one-more-device").ok()?,
        name: None,
        pool: pool.clone(),
        limit: None,
        backend,
        bandwidth,
        uuid: None,
    };
    node.pools.push(Pool {
        id: pool,
        total: memory,
        reserve: None,
        cap: None,
        free: Some(memory),
        held: Bytes::ZERO,
    });
    node.devices.push(device);
    Some(more)
}

impl Change {
    /// The word for the kind of change in a refusal's JSON.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Context { .. } => "ctx",
            Self::ExpertsToHost => "experts-to-host",
            Self::FeedForwardToHost => "ffn-to-host",
            Self::CacheType { .. } => "cache-type",
            Self::Unpin => "unpin",
            Self::Uncap => "uncap",
            Self::Devices { .. } => "max-devices",
            Self::Pipelines { .. } => "pipelines",
            Self::AddDevice { .. } => "add-device",
        }
    }

    /// What to change it to, in a refusal's JSON.
    pub fn to_text(&self) -> String {
        match self {
            Self::Context { to } => to.to_string(),
            Self::CacheType { to } => to.to_string(),
            Self::Unpin | Self::Uncap => String::new(),
            Self::ExpertsToHost | Self::FeedForwardToHost => "auto".to_owned(),
            Self::Devices { to } | Self::Pipelines { to } => to.to_string(),
            Self::AddDevice { memory } => memory.get().to_string(),
        }
    }
}
