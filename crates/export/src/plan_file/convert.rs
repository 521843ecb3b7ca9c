//! From a plan to its file and back.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_balance::{
    Assumption, Charges, EngineRules, HostUse, Objective, Optimality, Pin, Pipelines, Plan, PlanOptions,
    PlanValue, Stage, StageCharges, Stopped, Transfers, Workload,
};
use plimsoll_cluster::GpuBackend;
use plimsoll_model::{ContextLength, Footprint, LayerSpec, Request, ResolvedContext};
use plimsoll_units::{Bytes, BytesPerSec, DeviceId, DeviceRef, NodeId};
use sha2::{Digest, Sha256};

use super::words::{
    AUTO, assumption_text, cache_type, engine, flash, flash_word, objective, objective_word, pipelines,
    stopped_text, strategy, strategy_word, transfers, transfers_word,
};
use super::{
    AssumptionRecord, BasisRecord, ChargesRecord, EngineRecord, FormatError, MOST_LAYERS, ModelRecord,
    OptimalityRecord, PLAN_FORMAT, PinRecord, PipelinesRecord, PlanFile, ReportRecord, RequestRecord,
    RunRecord, StageRecord, StoppedRecord, ValueRecord, VariantRecord,
};

/// Everything that a saved plan is made of.
#[derive(Clone, Debug)]
pub struct Saved<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// What was placed.
    pub workload: &'a Workload,
    /// Under whose rules.
    pub rules: &'a EngineRules,
    /// With which options.
    pub options: &'a PlanOptions,
    /// For which request.
    pub request: &'a Request,
    /// What people call the model.
    pub name: &'a str,
    /// The family whose rules it follows.
    pub architecture: &'a str,
    /// What a person should know.
    pub warnings: &'a [String],
    /// What the server may cache in the host's memory; `None` where its default stands.
    pub cache_ram: Option<Bytes>,
}

impl PlanFile {
    /// A plan as it will lie in a file. A workload without a footprint, which no planner takes, gives a model without
    /// layers.
    pub fn from_plan(saved: &Saved<'_>) -> Self {
        let plan = saved.plan;
        Self {
            format: PLAN_FORMAT.to_owned(),
            model: model_record(saved),
            request: request_record(saved),
            basis: BasisRecord { generation: plan.basis },
            stages: plan.stages.iter().map(StageRecord::from_stage).collect(),
            overrides: Vec::new(),
            parts: Vec::new(),
            assumed: plan.assumed.iter().map(assumption_text).collect(),
            assumptions: plan.assumed.iter().map(AssumptionRecord::from_assumption).collect(),
            value: ValueRecord::from_value(plan.objective, &plan.value),
            report: ReportRecord {
                stopped: plan.stopped.iter().map(StoppedRecord::from_stopped).collect(),
                warnings: saved.warnings.to_vec(),
            },
            seal: None,
            commands: Vec::new(),
        }
    }

    /// Reads a saved plan.
    ///
    /// # Errors
    ///
    /// Not JSON, unknown keys or words, another version, runs that do not add up, or a digest that does not fit the facts.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        // The version is looked at first: a newer format may have other keys.
        let value: serde_json::Value = serde_json::from_str(text)?;
        let found = value.get("format").and_then(serde_json::Value::as_str).unwrap_or("");
        if found != PLAN_FORMAT {
            return Err(FormatError::Version { found: found.to_owned() });
        }
        let file: Self = serde_json::from_value(value)?;
        file.check_runs()?;
        let computed = file.model.layer_digest();
        if computed != file.model.digest {
            return Err(FormatError::Digest { computed, stored: file.model.digest.clone() });
        }
        if let Some(stored) = &file.seal {
            let computed = file.compute_seal()?;
            if computed != *stored {
                return Err(FormatError::Seal { computed, stored: stored.clone() });
            }
        }
        Ok(file)
    }

    /// The same plan with a seal over all of it.
    ///
    /// # Errors
    ///
    /// A number that JSON cannot carry; the planner gives none.
    pub fn sealed(self) -> Result<Self, FormatError> {
        let seal = self.compute_seal()?;
        Ok(Self { seal: Some(seal), ..self })
    }

    fn compute_seal(&self) -> Result<String, FormatError> {
        let text = serde_json::to_string(&Self { seal: None, ..self.clone() })?;
        Ok(hex(&Sha256::digest(text.as_bytes())))
    }

    /// The text that goes into a file, with a line break at the end.
    ///
    /// # Errors
    ///
    /// A number that JSON cannot carry; the planner gives none.
    pub fn to_text(&self) -> Result<String, FormatError> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        Ok(text)
    }

    fn check_runs(&self) -> Result<(), FormatError> {
        let layers = self.model.layers;
        let all = std::iter::once(&self.model.runs).chain(self.model.variants.values().map(|v| &v.runs));
        for runs in all {
            let described = runs.iter().fold(0_u64, |sum, run| sum.saturating_add(run.count));
            if described != layers || described > MOST_LAYERS {
                return Err(FormatError::Runs { described, layers });
            }
        }
        Ok(())
    }

    /// The plan itself.
    ///
    /// # Errors
    ///
    /// A word that has no meaning at its place.
    pub fn plan(&self) -> Result<Plan, FormatError> {
        let objective = objective(&self.request.objective)?;
        Ok(Plan {
            basis: self.basis.generation,
            objective,
            strategy: strategy(&self.request.strategy)?,
            stages: self.stages.iter().map(StageRecord::to_stage).collect(),
            value: self.value.to_value(objective),
            assumed: self.assumptions.iter().map(AssumptionRecord::to_assumption).collect(),
            stopped: Vec::new(),
        })
    }

    /// The model file, or its address, that the engine's command line names.
    pub fn model_path(&self) -> Option<String> {
        // The engine comes after the servers that it asks.
        let words = shlex::split(&self.commands.last()?.line)?;
        words.into_iter().skip_while(|word| !matches!(word.as_str(), "-m" | "-mu")).nth(1)
    }

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
        Ok(Workload { footprints, by_backend, activation_bytes, boundary_bytes: None })
    }

    /// What was asked of the model.
    ///
    /// # Errors
    ///
    /// A word that has no meaning at its place.
    pub fn request(&self) -> Result<Request, FormatError> {
        let request = &self.request;
        let context = if request.unified_kv || request.parallel == 1 {
            ContextLength::PerSequence(request.ctx)
        } else {
            ContextLength::Total(request.ctx_total)
        };
        Ok(Request {
            context: Some(context),
            parallel: request.parallel,
            unified_kv: request.unified_kv,
            cache_type_k: cache_type("request.cache_type_k", &request.cache_type_k)?,
            cache_type_v: cache_type("request.cache_type_v", &request.cache_type_v)?,
            flash_attention: flash(&request.flash_attn)?,
            micro_batch: request.ubatch,
            batch: request.batch,
            full_window: request.swa_full,
            engine: engine(&request.engine.name)?,
        })
    }

    /// Under whose rules it was made.
    ///
    /// # Errors
    ///
    /// A word that has no meaning at its place.
    pub fn rules(&self) -> Result<EngineRules, FormatError> {
        let engine = &self.request.engine;
        let host = match engine.host.as_str() {
            "ordinary" => HostUse::Ordinary,
            "first-layers-of-main" => HostUse::FirstLayersOfMain,
            other => {
                let known = "ordinary, first-layers-of-main";
                return Err(FormatError::Word { key: "request.engine.host", value: other.to_owned(), known });
            }
        };
        let charges = &engine.charges;
        let staged = |[each, first_more, last_more]: [u64; 3]| StageCharges {
            each: Bytes::new(each),
            first_more: Bytes::new(first_more),
            last_more: Bytes::new(last_more),
        };
        Ok(EngineRules {
            host,
            max_devices: engine.max_devices,
            margin: Bytes::new(engine.margin_bytes),
            charges: Charges {
                host: Bytes::new(charges.host),
                host_alone: Bytes::new(charges.host_alone),
                alone: Bytes::new(charges.alone),
                split: staged(charges.split),
                partial: staged(charges.partial),
            },
        })
    }

    /// With which options it was made.
    ///
    /// # Errors
    ///
    /// A word that has no meaning at its place.
    pub fn options(&self) -> Result<PlanOptions, FormatError> {
        let request = &self.request;
        let mut caps = BTreeMap::new();
        for (name, cap) in &request.caps {
            let device = name.split_once('/').and_then(|(node, device)| {
                Some(DeviceRef { node: node.parse().ok()?, device: device.parse().ok()? })
            });
            let device = device.ok_or_else(|| FormatError::Word {
                key: "request.caps",
                value: name.clone(),
                known: "names of the form node/device",
            })?;
            caps.insert(device, Bytes::new(*cap));
        }
        Ok(PlanOptions {
            objective: objective(&request.objective)?,
            strategy: strategy(&request.strategy)?,
            max_devices: request.max_devices,
            only: request.only.as_ref().map(|nodes| nodes.iter().cloned().collect()),
            caps,
            reserve: request.reserve.map(Bytes::new),
            pins: request.pins.iter().map(PinRecord::to_pin).collect(),
            pipelines: pipelines(request.pipelines.as_ref())?,
            transfers: request.transfers.as_deref().map_or(Ok(Transfers::default()), transfers)?,
        })
    }
}

fn model_record(saved: &Saved<'_>) -> ModelRecord {
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
        };
        Some((backend.name().to_owned(), record))
    };
    ModelRecord {
        activation_bytes: workload.activation_bytes.get(),
        variants: workload.by_backend.iter().filter_map(|(b, i)| variant(b, i)).collect(),
        ..ModelRecord::of(saved.name, saved.architecture, base)
    }
}

fn request_record(saved: &Saved<'_>) -> RequestRecord {
    let (request, options, rules) = (saved.request, saved.options, saved.rules);
    let context = saved.workload.footprints.first().map(|f| f.context);
    let staged = |s: &StageCharges| [s.each.get(), s.first_more.get(), s.last_more.get()];
    let charges = &rules.charges;
    RequestRecord {
        ctx: context.map_or(0, |c| c.per_sequence),
        ctx_total: context.map_or(0, |c| c.total),
        parallel: request.parallel,
        unified_kv: request.unified_kv,
        cache_type_k: request.cache_type_k.to_string(),
        cache_type_v: request.cache_type_v.to_string(),
        flash_attn: flash_word(request.flash_attention).to_owned(),
        ubatch: request.micro_batch,
        batch: request.batch,
        swa_full: request.full_window,
        objective: objective_word(options.objective).to_owned(),
        strategy: strategy_word(options.strategy).to_owned(),
        max_devices: options.max_devices,
        only: options.only.as_ref().map(|nodes| nodes.iter().cloned().collect()),
        caps: options.caps.iter().map(|(device, cap)| (device.to_string(), cap.get())).collect(),
        reserve: options.reserve.map(Bytes::get),
        pins: options.pins.iter().map(PinRecord::from_pin).collect(),
        pipelines: match options.pipelines {
            Pipelines::One => None,
            Pipelines::Exactly(count) => Some(PipelinesRecord::Count(count)),
            Pipelines::Auto => Some(PipelinesRecord::Word(AUTO.to_owned())),
        },
        transfers: (options.transfers != Transfers::default())
            .then(|| transfers_word(options.transfers).to_owned()),
        engine: EngineRecord {
            name: request.engine.name.to_owned(),
            version: match rules.host {
                HostUse::FirstLayersOfMain => crate::llama_cpp::VERSION.to_owned(),
                HostUse::Ordinary => String::new(),
            },
            host: match rules.host {
                HostUse::Ordinary => "ordinary".to_owned(),
                HostUse::FirstLayersOfMain => "first-layers-of-main".to_owned(),
            },
            max_devices: rules.max_devices,
            margin_bytes: rules.margin.get(),
            charges: ChargesRecord {
                host: charges.host.get(),
                host_alone: charges.host_alone.get(),
                alone: charges.alone.get(),
                split: staged(&charges.split),
                partial: staged(&charges.partial),
            },
            cache_ram_bytes: saved.cache_ram.map(Bytes::get),
        },
    }
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
        };
        record.digest = record.layer_digest();
        record
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The digest of a model's layer facts for one request, as a saved plan holds it.
pub fn layer_digest(architecture: &str, footprint: &Footprint) -> String {
    ModelRecord::of("", architecture, Some(footprint)).digest
}

impl StageRecord {
    fn from_stage(stage: &Stage) -> Self {
        Self {
            pipeline: stage.pipeline,
            node: stage.device.node.clone(),
            device: stage.device.device.clone(),
            layers: [stage.layers.start, stage.layers.end],
            input: stage.input,
            head: stage.head,
            weights_bytes: stage.weights_bytes.get(),
            kv_bytes: stage.kv_bytes.get(),
            overhead_bytes: stage.overhead_bytes.get(),
            budget_bytes: stage.budget_bytes.get(),
            slack_bytes: stage.slack_bytes.get(),
            seconds: stage.seconds,
        }
    }

    fn to_stage(&self) -> Stage {
        Stage {
            pipeline: self.pipeline,
            device: DeviceRef { node: self.node.clone(), device: self.device.clone() },
            layers: self.layers[0]..self.layers[1],
            input: self.input,
            head: self.head,
            weights_bytes: Bytes::new(self.weights_bytes),
            kv_bytes: Bytes::new(self.kv_bytes),
            overhead_bytes: Bytes::new(self.overhead_bytes),
            budget_bytes: Bytes::new(self.budget_bytes),
            slack_bytes: Bytes::new(self.slack_bytes),
            seconds: self.seconds,
        }
    }
}

impl PinRecord {
    fn from_pin(pin: &Pin) -> Self {
        let DeviceRef { node, device } = pin.device.clone();
        Self { node, device, layers: [pin.layers.start, pin.layers.end] }
    }

    fn to_pin(&self) -> Pin {
        let device = DeviceRef { node: self.node.clone(), device: self.device.clone() };
        Pin { device, layers: (self.layers[0]..self.layers[1]).into() }
    }
}

impl AssumptionRecord {
    fn from_assumption(assumption: &Assumption) -> Self {
        match assumption {
            Assumption::Bandwidth { device, rate, by_name } => Self::Bandwidth {
                node: device.node.clone(),
                device: device.device.clone(),
                bytes_per_second: rate.get(),
                by_name: *by_name,
            },
            Assumption::Link { between, rate, latency } => Self::Link {
                between: between.clone(),
                bytes_per_second: rate.get(),
                latency_ns: u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX),
            },
            Assumption::UnknownSpeed { device } => {
                Self::UnknownSpeed { node: device.node.clone(), device: device.device.clone() }
            }
        }
    }

    fn to_assumption(&self) -> Assumption {
        let at = |node: &NodeId, device: &DeviceId| DeviceRef { node: node.clone(), device: device.clone() };
        match self {
            Self::Bandwidth { node, device, bytes_per_second, by_name } => Assumption::Bandwidth {
                device: at(node, device),
                rate: BytesPerSec::new(*bytes_per_second),
                by_name: *by_name,
            },
            Self::Link { between, bytes_per_second, latency_ns } => Assumption::Link {
                between: between.clone(),
                rate: BytesPerSec::new(*bytes_per_second),
                latency: Duration::from_nanos(*latency_ns),
            },
            Self::UnknownSpeed { node, device } => Assumption::UnknownSpeed { device: at(node, device) },
        }
    }
}

impl ValueRecord {
    fn from_value(objective: Objective, value: &PlanValue) -> Self {
        let (optimality, gap) = match value.optimality {
            Optimality::Proven => (OptimalityRecord::Proven, Some(0.0)),
            Optimality::Within(gap) => (OptimalityRecord::Within, Some(gap)),
            Optimality::Unproven => (OptimalityRecord::Unproven, None),
        };
        let mut record = Self { lower_bound: value.lower_bound, optimality, gap, ..Self::default() };
        match objective {
            Objective::Fit => record.devices = Some(value.value.map(whole)),
            Objective::Throughput => record.bottleneck_seconds = Some(value.value),
            Objective::Latency => record.seconds_per_token = Some(value.value),
            Objective::Balanced => record.largest_fraction = Some(value.value),
        }
        record
    }

    fn to_value(self, objective: Objective) -> PlanValue {
        let value = match objective {
            Objective::Fit => self.devices.map(|devices| devices.map(exact)),
            Objective::Throughput => self.bottleneck_seconds,
            Objective::Latency => self.seconds_per_token,
            Objective::Balanced => self.largest_fraction,
        };
        let optimality = match (self.optimality, self.gap) {
            (OptimalityRecord::Proven, _) => Optimality::Proven,
            (OptimalityRecord::Within, Some(gap)) => Optimality::Within(gap),
            (OptimalityRecord::Within, None) | (OptimalityRecord::Unproven, _) => Optimality::Unproven,
        };
        PlanValue { value: value.flatten(), lower_bound: self.lower_bound, optimality }
    }
}

/// A count that travelled as a floating-point number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count of devices is small and whole"
)]
fn whole(count: f64) -> u64 {
    count.round().max(0.0) as u64
}

/// A count as the planner compares it.
fn exact(count: u64) -> f64 {
    Bytes::new(count).as_f64()
}

impl StoppedRecord {
    /// What stopped a device, in words.
    pub fn from_stopped(stopped: &Stopped) -> Self {
        Self {
            node: stopped.device.node.clone(),
            device: stopped.device.device.clone(),
            reason: stopped_text(&stopped.reason),
            short_bytes: stopped.short_bytes.get(),
        }
    }
}
