//! What a llama.cpp command line means on a cluster.

mod beside;
mod sent;

use plimsoll_balance::{Placement, PlanError, PlanOptions, price};
use plimsoll_cluster::ClusterSnapshot;
use plimsoll_export::llama_cpp::{Assignment, Flags, FlagsError, Place};
use plimsoll_model::{EstimateError, ModelSpec};
use plimsoll_units::Bytes;

use crate::adapters::Adapted;
use crate::context::ContextChoice;
use crate::engine::Engine;
use crate::job::{Job, Planned};
use crate::parts::Beside;
use sent::Sent;

/// Why a command line cannot be priced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeaningError {
    /// It names what the cluster does not have.
    #[error(transparent)]
    Flags(#[from] FlagsError),
    /// What it asks of the model cannot be laid out.
    #[error(transparent)]
    Estimate(#[from] EstimateError),
    /// A tensor that belongs to no layer is sent elsewhere than the engine would keep it.
    #[error(
        "-ot sends {tensor}, which belongs to no layer, to {buffer}: only tensors of layers are understood here"
    )]
    OutsideLayers {
        /// The tensor.
        tensor: String,
        /// Where it is sent.
        buffer: String,
    },
    /// A draft model that is cut into pieces.
    #[error(
        "-ngld {layers} cuts the draft model after {layers} of its {all} places: only one that is whole on a device or on \
         the host is understood here"
    )]
    DraftSplit {
        /// How many places go to devices.
        layers: i64,
        /// All there are, the head included.
        all: usize,
    },
    /// A draft model on several devices.
    #[error(
        "the draft model is spread over {devices} devices: only one that is whole on a device is understood here (-devd)"
    )]
    DraftSpread {
        /// How many devices.
        devices: usize,
    },
    /// The input is wrong.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// What a command line means.
#[derive(Clone, Debug)]
pub struct Meaning {
    /// Where it puts everything, as a plan; nothing is proven of its value.
    pub planned: Planned,
    /// How many bytes it is short of fitting; zero when it fits.
    pub short_bytes: Bytes,
}

/// Where a llama.cpp command line puts a model, and whether that fits. What it loads beside the model is not looked at,
/// and that is said.
///
/// # Errors
///
/// The line names what the cluster does not have, or asks for what the model cannot do.
pub fn meaning(
    model: &ModelSpec,
    snapshot: &ClusterSnapshot,
    flags: &Flags,
) -> Result<Meaning, MeaningError> {
    meaning_beside(model, snapshot, flags, Beside::default(), None)
}

/// The same, with what the line loads beside the model: what was opened of the files that [`Flags::beside`] names. The
/// adapters are those of `model`.
///
/// # Errors
///
/// As [`meaning`]; a draft model that is not whole in one place.
pub fn meaning_beside(
    model: &ModelSpec,
    snapshot: &ClusterSnapshot,
    flags: &Flags,
    beside: Beside<'_>,
    adapted: Option<&Adapted>,
) -> Result<Meaning, MeaningError> {
    let model = adapted.map_or(model, Adapted::model);
    let blocks = model.layer_count().saturating_add(model.nextn_count());
    let assignment = flags.assign(u32::try_from(blocks).unwrap_or(u32::MAX), snapshot)?;
    let sent = Sent::new(model, snapshot, flags, &assignment)?;
    let mut job = Job::new(model, snapshot, Engine::LlamaCpp, flags.request, PlanOptions::default());
    job.beside = beside;
    job.adapted = adapted;
    job.options.parts = sent.elsewhere(model, snapshot);
    job.options.parts.extend(beside::parts(&job, flags, &assignment, snapshot)?);
    let placement = Placement { moved: sent.moved(), ..placement(&assignment, model.layer_count()) };
    let with = |cache_ram: Bytes| {
        let prepared = sent.apply(&job, job.prepare(cache_ram)?);
        let priced = price(snapshot, &prepared.workload, &prepared.rules, &job.options, &placement, 0.0)?;
        Ok::<_, MeaningError>((prepared, priced))
    };
    let (mut prepared, mut priced) = with(flags.cache_ram)?;
    let mut cache_ram = (flags.cache_ram != plimsoll_export::llama_cpp::CACHE_RAM).then_some(flags.cache_ram);
    let mut warnings = Vec::new();
    if !priced.short_bytes.is_zero() && !flags.cache_ram.is_zero() {
        let (leaner, without) = with(Bytes::ZERO)?;
        if without.short_bytes.is_zero() {
            warnings.push(format!(
                "the server's prompt cache may grow to {} and the host has no room for that: add --cache-ram 0",
                flags.cache_ram.scaled()
            ));
            (prepared, priced, cache_ram) = (leaner, without, Some(Bytes::ZERO));
        }
    }
    if flags.fit_may_change() {
        warnings.push(
            "--fit is on and nothing is set: the engine lowers what does not fit by itself; --fit off takes the flags as \
             they are"
                .to_owned(),
        );
    }
    warnings.extend(job.warnings(None));
    warnings.extend(sent.warning());
    warnings.extend(beside::warnings(flags, &job.beside, adapted.is_some()));
    warnings.extend(flags.unsaid_servers(snapshot).into_iter().map(|address| {
        format!(
            "the server at {address} is taken to show every device of its machine in the cluster's order; with its own line \
             before these flags it is read there"
        )
    }));
    let ignored = flags.ignored.iter().map(|flag| format!("not looked at: {flag}"));
    warnings.extend(ignored);
    let choice = if flags.request.context.is_some() { ContextChoice::Asked } else { ContextChoice::Trained };
    let mut planned = job.planned(priced.plan, prepared, choice, cache_ram, warnings);
    planned.beside.extend(beside::words(flags, &beside));
    Ok(Meaning { planned, short_bytes: priced.short_bytes })
}

/// An assignment of single indices as ranges of layers. Next-token blocks weigh nothing and are left out.
fn placement(assignment: &Assignment, layers: usize) -> Placement {
    let places = assignment.places.get(..layers).unwrap_or(&[]);
    let on_host = places.iter().take_while(|place| **place == Place::Host).count();
    let head = assignment.places.last();
    let mut devices = Vec::new();
    let mut next = on_host;
    for (index, device) in assignment.devices.iter().enumerate() {
        let place = Place::Device(index);
        let count = places.iter().filter(|p| **p == place).count();
        if count > 0 || head == Some(&place) {
            devices.push((device.clone(), next..next + count));
            next += count;
        }
    }
    Placement { on_host, devices, moved: Vec::new() }
}
