//! Tensors that a command line sends elsewhere than their layer.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_balance::{FixedPart, MoveWhen, PartClass, StageCharges};
use plimsoll_cluster::{ClusterSnapshot, GpuBackend};
use plimsoll_export::llama_cpp::{Assignment, Flags, HOST_BUFFER, Place, is_dense_tensor, is_expert_tensor};
use plimsoll_model::{ModelSpec, Padding};
use plimsoll_units::{Bytes, DeviceRef};

use super::MeaningError;
use crate::job::{Job, Prepared};

/// The tensors of layers that lie elsewhere than their layer, by their names.
pub(super) struct Sent<'a> {
    /// Whether there is any rule, even one that changes nothing.
    rules: bool,
    to_host: BTreeSet<&'a str>,
    /// The layers on devices of which some tensor goes to the host.
    layers: BTreeSet<u32>,
    class: PartClass,
    to_devices: BTreeMap<DeviceRef, BTreeSet<&'a str>>,
}

impl<'a> Sent<'a> {
    pub(super) fn new(
        model: &'a ModelSpec,
        snapshot: &ClusterSnapshot,
        flags: &Flags,
        assignment: &Assignment,
    ) -> Result<Self, MeaningError> {
        let mut sent = Self {
            rules: !flags.tensors.is_empty(),
            to_host: BTreeSet::new(),
            layers: BTreeSet::new(),
            class: PartClass::Tensors,
            to_devices: BTreeMap::new(),
        };
        if !sent.rules {
            return Ok(sent);
        }
        let buffers = flags.buffers(snapshot)?;
        let device = |buffer: &str| buffers.iter().find(|(name, _)| name == buffer).map(|(_, device)| device);
        let host = device(HOST_BUFFER);
        let at = |place: Option<&Place>| match place {
            Some(Place::Device(number)) => assignment.devices.get(*number),
            Some(Place::Host) | None => host,
        };
        let place_of =
            |layer: u32| at(usize::try_from(layer).ok().and_then(|layer| assignment.places.get(layer)));
        for tensor in model.layer_tensors() {
            let Some(target) = flags.tensors.buffer(tensor.name).and_then(device) else { continue };
            if Some(target) == place_of(tensor.layer) {
                continue;
            }
            if Some(target) == host {
                sent.to_host.insert(tensor.name);
                sent.layers.insert(tensor.layer);
            } else {
                sent.to_devices.entry(target.clone()).or_default().insert(tensor.name);
            }
        }
        sent.class = sent.class(model);
        let (input, head) = model.end_tensors();
        let ends =
            input.map(|name| (name, host)).chain(head.map(|name| (name, at(assignment.places.last()))));
        for (name, own) in ends {
            if let Some(buffer) = flags.tensors.buffer(name)
                && device(buffer) != own
            {
                let (tensor, buffer) = (name.to_owned(), buffer.to_owned());
                return Err(MeaningError::OutsideLayers { tensor, buffer });
            }
        }
        Ok(sent)
    }

    /// What goes to the host: all experts of some layers, all dense blocks of some, or other tensors.
    fn class(&self, model: &ModelSpec) -> PartClass {
        let is_all = |pick: fn(&str) -> bool| {
            model
                .layer_tensors()
                .filter(|tensor| self.layers.contains(&tensor.layer))
                .all(|tensor| pick(tensor.name) == self.to_host.contains(tensor.name))
        };
        if is_all(is_expert_tensor) {
            PartClass::Experts
        } else if is_all(is_dense_tensor) {
            PartClass::FeedForward
        } else {
            PartClass::Tensors
        }
    }

    /// The places of layers that lack something which lies on the host.
    pub(super) fn moved(&self) -> Vec<usize> {
        self.layers.iter().filter_map(|layer| usize::try_from(*layer).ok()).collect()
    }

    /// What lies on other devices than its layer, device by device.
    pub(super) fn elsewhere(&self, model: &ModelSpec, snapshot: &ClusterSnapshot) -> Vec<FixedPart> {
        let part = |(device, names): (&DeviceRef, &BTreeSet<&str>)| {
            let backend = snapshot.device(device).map(|(_, found)| found.backend);
            let padding = if backend == Some(GpuBackend::Cpu) { Padding::Cpu } else { Padding::Cuda };
            let parts = model.layer_parts(padding, |name| names.contains(name));
            let bytes = Bytes::saturating_sum(parts.iter().map(|part| part.weights_bytes));
            FixedPart { name: "tensors of other devices' layers".to_owned(), device: device.clone(), bytes }
        };
        self.to_devices.iter().map(part).collect()
    }

    /// The workload without what lies on other devices, the parts on the host as such, and the charges that any rule brings.
    pub(super) fn apply(&self, job: &Job<'_>, mut prepared: Prepared) -> Prepared {
        prepared.workload.movable = None;
        if !self.rules {
            return prepared;
        }
        let count = prepared.workload.footprints.len();
        if !self.to_host.is_empty() {
            let pick = |name: &str| self.to_host.contains(name);
            let movable = job.parts(count, &prepared.rules, self.class, MoveWhen::Needed, pick);
            prepared.workload.movable = Some(movable);
        }
        // The engine works through its devices one after the other as soon as there is any rule.
        let charges = &mut prepared.rules.charges;
        let StageCharges { each, first_more, last_more } = charges.partial;
        charges.split = charges.partial;
        charges.alone = charges.alone.max(each.saturating_add(first_more).saturating_add(last_more));
        let gone = |name: &str| self.to_devices.values().any(|names| names.contains(name));
        for (number, footprint) in prepared.workload.footprints.iter_mut().enumerate() {
            let padding = if number == 0 { job.request.engine.padding } else { Padding::Cuda };
            for (layer, part) in footprint.layers.iter_mut().zip(job.model.layer_parts(padding, gone)) {
                layer.weights_bytes = layer.weights_bytes.saturating_sub(part.weights_bytes);
                layer.read_bytes = layer.read_bytes.saturating_sub(part.read_bytes);
            }
        }
        prepared
    }

    pub(super) fn warning(&self) -> Option<String> {
        (!self.to_devices.is_empty()).then(|| {
            "some tensors lie on another device than their layer: their bytes are counted there, the time to read them is \
             not"
                .to_owned()
        })
    }
}
