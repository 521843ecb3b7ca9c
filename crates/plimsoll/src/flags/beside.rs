//! What a command line loads beside the layers.

use plimsoll_balance::FixedPart;
use plimsoll_cluster::ClusterSnapshot;
use plimsoll_export::llama_cpp::{Assignment, Flags};
use plimsoll_model::{ContextLength, ModelSpec};
use plimsoll_units::DeviceRef;

use super::MeaningError;
use crate::job::Job;
use crate::parts::{Beside, PROJECTOR_COMPUTES, PROJECTOR_ON_HOST};

/// The parts of a job that lie beside its layers, where a command line puts them.
pub(super) fn parts(
    job: &Job<'_>,
    flags: &Flags,
    assignment: &Assignment,
    snapshot: &ClusterSnapshot,
) -> Result<Vec<FixedPart>, MeaningError> {
    let mut parts = Vec::new();
    if let Some(projector) = job.beside.projector {
        let card = job.places(false).into_iter().next().filter(|_| !flags.beside.projector_on_host);
        let on_host = card.is_none();
        let place = card.or_else(|| job.places(true).into_iter().next());
        parts.extend(place.map(|place| projector.part(place, on_host)));
    }
    if let Some(draft) = job.beside.draft {
        let card = draft_device(flags, assignment, snapshot, draft.model)?;
        let on_host = card.is_none();
        let trained = job.model.trained_context().map(ContextLength::PerSequence);
        let context = job.request.context.or(trained);
        if let Some(place) = card.or_else(|| job.places(true).into_iter().next()) {
            parts.extend(job.draft_parts(&draft, &place, on_host, context)?);
        }
    }
    Ok(parts)
}

/// The device of the whole draft model; `None` is the host.
fn draft_device(
    flags: &Flags,
    assignment: &Assignment,
    snapshot: &ClusterSnapshot,
    draft: &ModelSpec,
) -> Result<Option<DeviceRef>, MeaningError> {
    let all = draft.layer_count().saturating_add(draft.nextn_count()).saturating_add(1);
    let layers = flags.beside.draft_layers;
    if layers == 0 {
        return Ok(None);
    }
    if usize::try_from(layers).is_ok_and(|layers| layers < all) {
        return Err(MeaningError::DraftSplit { layers, all });
    }
    let devices = flags.draft_devices(snapshot)?.unwrap_or_else(|| assignment.devices.clone());
    match devices.as_slice() {
        [] => Ok(None),
        [device] => Ok(Some(device.clone())),
        several => Err(MeaningError::DraftSpread { devices: several.len() }),
    }
}

/// The words of a command line that load what was looked at beside the layers, adapters not among them.
pub(super) fn words(flags: &Flags, beside: &Beside<'_>) -> Vec<String> {
    let mut words = Vec::new();
    if let Some(projector) = beside.projector {
        words.extend(["--mmproj", projector.path].map(str::to_owned));
        words.extend(flags.beside.projector_on_host.then(|| PROJECTOR_ON_HOST.to_owned()));
    }
    if let Some(draft) = beside.draft {
        words.extend(["-md", draft.path].map(str::to_owned));
        let devices = flags.beside.draft_devices.as_ref().map(|names| names.join(","));
        words.extend(devices.into_iter().flat_map(|names| ["-devd".to_owned(), names]));
        words.extend(["-ngld".to_owned(), flags.beside.draft_layers.to_string()]);
    }
    words
}

/// What is to be said of what lies beside the layers: what was not looked at, and what is not charged.
pub(super) fn warnings(flags: &Flags, beside: &Beside<'_>, adapted: bool) -> Vec<String> {
    let looked_at = [beside.projector.is_some(), beside.draft.is_some(), adapted];
    let left_out = flags.beside.left_out(looked_at).into_iter().map(|flag| format!("not looked at: {flag}"));
    left_out.chain(beside.projector.map(|_| PROJECTOR_COMPUTES.to_owned())).collect()
}
