//! What is placed: a workload as records, and back.

use std::collections::BTreeMap;

use plimsoll_balance::{Movable, Part, StageCharges, Workload};
use plimsoll_cluster::GpuBackend;
use plimsoll_model::{Footprint, LayerSpec, ResolvedContext};
use plimsoll_units::Bytes;
use sha2::{Digest, Sha256};

use super::words::{move_when, move_when_word, part_class};
use super::{
    FormatError, ModelRecord, MovableRecord, PartRunRecord, PlanFile, RunRecord, Saved, VariantRecord,
};

impl PlanFile {
    /// What was placed.
    ///
    /// # Errors
    ///
    /// A backend that nobody knows.
    pub fn workload(&self) -> Result<Workload, FormatError> {
        let context = ResolvedContext {
            total: self.request.ctx_total,
            per_sequence: self.request.ctx,
            streams: if self.request.unified_kv { 1 } else { u64::from(self.request.parallel) },
        };
        let model = &self.model;
        let nextn = model.nextn;
        let mut footprints = vec![Footprint {
            layers: unroll(&model.runs),
            input_bytes: Bytes::new(model.input_bytes),
            head_bytes: Bytes::new(model.head_bytes),
            head_beside_input_bytes: Bytes::new(model.head_beside_input_bytes),
            each_device_bytes: Bytes::new(model.each_device_bytes),
            nextn,
            context,
        }];
        let mut by_backend = BTreeMap::new();
        for (name, variant) in &model.variants {
            let backend: GpuBackend = name.parse().map_err(|_| FormatError::Word {
                key: "model.variants",
                value: name.clone(),
                known: "cuda, rocm, vulkan, directml, metal, npu, cpu",
            })?;
            by_backend.insert(backend, footprints.len());
            footprints.push(Footprint {
                layers: unroll(&variant.runs),
                input_bytes: Bytes::new(variant.input_bytes),
                head_bytes: Bytes::new(variant.head_bytes),
                head_beside_input_bytes: Bytes::new(variant.head_beside_input_bytes),
                each_device_bytes: Bytes::new(variant.each_device_bytes),
                nextn,
                context,
            });
        }
        let activation_bytes = Bytes::new(model.activation_bytes);
        let movable = model.movable.as_ref().map(|movable| self.movable(movable)).transpose()?;
        Ok(Workload { footprints, by_backend, activation_bytes, boundary_bytes: None, movable })
    }

    fn movable(&self, record: &MovableRecord) -> Result<Movable, FormatError> {
        let [each, first_more, last_more] = record.charges.map(Bytes::new);
        let rows =
            std::iter::once(&record.parts).chain(self.model.variants.values().map(|variant| &variant.parts));
        Ok(Movable {
            class: part_class("model.movable.class", &record.class)?,
            when: move_when(&record.when)?,
            parts: rows.map(|row| unroll_parts(row)).collect(),
            charges: StageCharges { each, first_more, last_more },
        })
    }
}

pub(super) fn model_record(saved: &Saved<'_>) -> ModelRecord {
    let workload = saved.workload;
    let base = workload.footprints.first();
    let variant = |backend: &GpuBackend, index: &usize| {
        let footprint = workload.footprints.get(*index).filter(|f| Some(*f) != base)?;
        let record = VariantRecord {
            runs: roll(&footprint.layers),
            input_bytes: footprint.input_bytes.get(),
            head_bytes: footprint.head_bytes.get(),
            head_beside_input_bytes: footprint.head_beside_input_bytes.get(),
            each_device_bytes: footprint.each_device_bytes.get(),
            parts: parts(workload, *index),
        };
        Some((backend.name().to_owned(), record))
    };
    ModelRecord {
        activation_bytes: workload.activation_bytes.get(),
        variants: workload.by_backend.iter().filter_map(|(b, i)| variant(b, i)).collect(),
        movable: workload.movable.as_ref().map(|movable| MovableRecord {
            class: movable.class.name().to_owned(),
            when: move_when_word(movable.when).to_owned(),
            charges: [movable.charges.each, movable.charges.first_more, movable.charges.last_more]
                .map(Bytes::get),
            parts: parts(workload, 0),
        }),
        ..ModelRecord::of(saved.name, saved.architecture, base)
    }
}

/// The parts of one footprint's layers, equal neighbours taken together.
fn parts(workload: &Workload, footprint: usize) -> Vec<PartRunRecord> {
    let row = workload.movable.as_ref().and_then(|movable| movable.parts.get(footprint));
    let mut runs: Vec<PartRunRecord> = Vec::new();
    for part in row.into_iter().flatten() {
        let (bytes, read_bytes) = (part.weights_bytes.get(), part.read_bytes.get());
        match runs.last_mut() {
            Some(last) if (last.bytes, last.read_bytes) == (bytes, read_bytes) => last.count += 1,
            _ => runs.push(PartRunRecord { count: 1, bytes, read_bytes }),
        }
    }
    runs
}

fn unroll_parts(runs: &[PartRunRecord]) -> Vec<Part> {
    let part = |run: &PartRunRecord| Part {
        weights_bytes: Bytes::new(run.bytes),
        read_bytes: Bytes::new(run.read_bytes),
    };
    runs.iter().flat_map(|run| (0..run.count).map(move |_| part(run))).collect()
}

/// Equal neighbours taken together.
fn roll(layers: &[LayerSpec]) -> Vec<RunRecord> {
    let mut runs: Vec<RunRecord> = Vec::new();
    for layer in layers {
        let run = RunRecord {
            count: 1,
            weights_bytes: layer.weights_bytes.get(),
            kv_bytes: layer.kv_bytes.get(),
            read_bytes: layer.read_bytes.get(),
            cut: layer.cut_after,
        };
        match runs.last_mut() {
            Some(last) if RunRecord { count: 1, ..*last } == run => last.count += 1,
            _ => runs.push(run),
        }
    }
    runs
}

/// One layer after the other again. The number of weights is not kept in a plan.
fn unroll(runs: &[RunRecord]) -> Vec<LayerSpec> {
    let layer = |run: &RunRecord| LayerSpec {
        index: 0,
        weights_bytes: Bytes::new(run.weights_bytes),
        kv_bytes: Bytes::new(run.kv_bytes),
        read_bytes: Bytes::new(run.read_bytes),
        num_weights: 0,
        cut_after: run.cut,
    };
    let each = runs.iter().flat_map(|run| (0..run.count).map(move |_| layer(run)));
    (0_u32..).zip(each).map(|(index, layer)| LayerSpec { index, ..layer }).collect()
}

impl ModelRecord {
    /// SHA-256 over the canonical layer facts: one line for the architecture and the number of layers, one for
    /// what lies beside them, then one for each run of equal layers. Names and devices have no part in it, nor how buffers
    /// of other backends round the same tensors.
    pub fn layer_digest(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(format!("{} {}\n", self.architecture, self.layers));
        let Self { input_bytes, head_bytes, head_beside_input_bytes, each_device_bytes, nextn, .. } = self;
        hash.update(format!(
            "{input_bytes} {head_bytes} {head_beside_input_bytes} {each_device_bytes} {nextn}\n"
        ));
        for run in &self.runs {
            let RunRecord { count, weights_bytes, kv_bytes, read_bytes, cut } = run;
            hash.update(format!("{count} {weights_bytes} {kv_bytes} {read_bytes} {}\n", u8::from(*cut)));
        }
        hex(&hash.finalize())
    }

    fn of(name: &str, architecture: &str, footprint: Option<&Footprint>) -> Self {
        let bytes = |pick: fn(&Footprint) -> Bytes| footprint.map_or(0, |f| pick(f).get());
        let mut record = Self {
            name: name.to_owned(),
            architecture: architecture.to_owned(),
            layers: footprint.map_or(0, |f| u64::try_from(f.layers.len()).unwrap_or(u64::MAX)),
            digest: String::new(),
            runs: footprint.map_or_else(Vec::new, |f| roll(&f.layers)),
            input_bytes: bytes(|f| f.input_bytes),
            head_bytes: bytes(|f| f.head_bytes),
            head_beside_input_bytes: bytes(|f| f.head_beside_input_bytes),
            each_device_bytes: bytes(|f| f.each_device_bytes),
            nextn: footprint.map_or(0, |f| f.nextn),
            activation_bytes: 0,
            variants: BTreeMap::new(),
            movable: None,
            path: None,
            modules: None,
        };
        record.digest = record.layer_digest();
        record
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The digest of a model's layer facts for one request, as a saved plan holds it.
pub fn layer_digest(architecture: &str, footprint: &Footprint) -> String {
    ModelRecord::of("", architecture, Some(footprint)).digest
}
