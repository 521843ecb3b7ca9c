//! The main job: a model, a cluster and a request in; a plan that knows its command line out.

use std::borrow::Cow;
use std::collections::BTreeMap;

use plimsoll_balance::{
    Amount, EngineRules, Finding, Objective, Placement, Plan, PlanError, PlanOptions, Refusal, Transfers,
    Workload, audit, plan, price,
};
use plimsoll_cluster::{ClusterSnapshot, Device, GpuBackend};
use plimsoll_export::accelerate::Modules;
use plimsoll_export::llama_cpp::{self, Blocks, Command};
use plimsoll_export::{EngineError, Export, FormatError, PlanFile, Saved};
use plimsoll_model::{ContextLength, EstimateError, ModelFormat, ModelSpec, Padding, Request};
use plimsoll_units::{Bytes, DeviceRef};

use crate::adapters::Adapted;
use crate::carried::{self, Carried};
use crate::context::{self, ContextChoice};
use crate::engine::{Engine, compute_facts};
use crate::experts::Offload;
use crate::parts::{self, Beside};
use crate::ranks;

/// A model to place on a cluster.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    pub(crate) model: &'a ModelSpec,
    pub(crate) snapshot: Cow<'a, ClusterSnapshot>,
    pub(crate) engine: Engine,
    pub(crate) request: Request,
    pub(crate) options: PlanOptions,
    pub(crate) offload: Offload,
    /// Devices of the cluster that the engine has no name or no use for.
    pub(crate) unseen: Vec<DeviceRef>,
    /// The most equal devices of one node that could share every layer.
    pub(crate) most_alike: u32,
    pub(crate) beside: Beside<'a>,
    /// The adapters that `model` has, where it has some.
    pub(crate) adapted: Option<&'a Adapted>,
}

/// Why a job has no plan. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// The request cannot be laid out.
    #[error(transparent)]
    Estimate(#[from] EstimateError),
    /// There is no plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The engine cannot carry out what is asked; the text names the nearest that it can.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A plan was made and the auditor does not agree with it: a fault of this program, not of the input.
    #[error("the planner's plan does not pass the audit: {}", list(.0))]
    Audit(Vec<Finding>),
}

fn list(findings: &[Finding]) -> String {
    let all: Vec<String> = findings.iter().map(ToString::to_string).collect();
    all.join("; ")
}

impl JobError {
    /// The refusal, when the model does not fit.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Plan(PlanError::DoesNotFit(refusal)) => Some(refusal),
            _ => None,
        }
    }
}

/// A plan with all that it was made from.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The plan; it has passed the audit.
    pub plan: Plan,
    /// What was placed.
    pub workload: Workload,
    /// Under whose rules.
    pub rules: EngineRules,
    /// For which request, its context filled in.
    pub request: Request,
    /// With which options.
    pub options: PlanOptions,
    /// For which engine.
    pub engine: Engine,
    /// Where the context comes from.
    pub context: ContextChoice,
    /// What the server may cache in the host's memory; `None` where its default stands and is charged.
    pub cache_ram: Option<Bytes>,
    /// What a person should know.
    pub warnings: Vec<String>,
    /// Words of the command line that name what lies beside the model.
    pub(crate) beside: Vec<String>,
    name: String,
    architecture: String,
    pub(crate) format: ModelFormat,
    /// The modules of the checkpoint, for an engine that is told of each.
    pub(crate) modules: Option<Modules>,
}

/// A workload under its rules.
pub(crate) struct Prepared {
    pub(crate) workload: Workload,
    pub(crate) rules: EngineRules,
}

impl<'a> Job<'a> {
    /// A job. The engine's way to lay out a context replaces the request's, and devices that the engine has no name or no
    /// use for are left out: to llama.cpp the part of the host's memory that an integrated GPU maps is no device of its
    /// own. With several `ranks` in the request, as many equal devices of a node are one place for layers.
    pub fn new(
        model: &'a ModelSpec,
        snapshot: &'a ClusterSnapshot,
        engine: Engine,
        request: Request,
        options: PlanOptions,
    ) -> Self {
        let mut request = Request { engine: engine.profile(), ..request };
        if engine.profile().window_holds_micro_batch && !engine.is_llama_cpp() {
            // Such an engine computes all that is submitted at once.
            request.micro_batch = request.batch;
        }
        // Windows in full were the only way of that time.
        request.full_window |= engine == Engine::IkLlamaCpp;
        let unseen = ranks::unseen(engine, snapshot);
        let most_alike = ranks::most_alike(engine, snapshot);
        let snapshot = ranks::seen(engine, request.ranks, snapshot);
        let options = ranks::options(options, &snapshot);
        Self {
            model,
            snapshot,
            engine,
            request,
            options,
            unseen,
            most_alike,
            offload: Offload::default(),
            beside: Beside::default(),
            adapted: None,
        }
    }

    /// The same job with parts of layers on the main host as `offload` says.
    #[must_use]
    pub fn with_offload(self, offload: Offload) -> Self {
        Self { offload, ..self }
    }

    /// The same job with something beside the model; under llama.cpp.
    #[must_use]
    pub fn with_beside(self, beside: Beside<'a>) -> Self {
        Self { beside, ..self }
    }

    /// Plans.
    ///
    /// # Errors
    ///
    /// The request cannot be laid out, the model does not fit, or the input is wrong.
    pub fn plan(&self) -> Result<Planned, JobError> {
        self.suited()?;
        if !self.beside.is_empty() && self.engine == Engine::LlamaCpp {
            return self.plan_beside();
        }
        let (context, choice) = context::choose(self)?;
        let job = Self { request: Request { context, ..self.request }, ..self.clone() };
        let (job, prepared, plan, cache_ram) = match job.engine {
            Engine::LlamaCpp => {
                let (prepared, plan, cache_ram) = job.plan_with_cache()?;
                (job, prepared, plan, cache_ram)
            }
            _ => {
                let Carried { job, prepared, plan } = job.carried()?;
                (job, prepared, plan, None)
            }
        };
        audit(&plan, &job.snapshot, &prepared.workload, &prepared.rules, &job.options)
            .map_err(JobError::Audit)?;
        let warnings = job.warnings(cache_ram);
        Ok(job.planned(plan, prepared, choice, cache_ram, warnings))
    }

    /// A plan with all that it was made from.
    pub(crate) fn planned(
        self,
        plan: Plan,
        prepared: Prepared,
        context: ContextChoice,
        cache_ram: Option<Bytes>,
        warnings: Vec<String>,
    ) -> Planned {
        Planned {
            plan,
            workload: prepared.workload,
            rules: prepared.rules,
            request: self.request,
            options: self.options,
            engine: self.engine,
            context,
            cache_ram,
            warnings,
            beside: self.adapted.map(Adapted::words).unwrap_or_default(),
            name: self.model.name().to_owned(),
            architecture: self.model.architecture().to_owned(),
            format: self.model.format(),
            modules: (self.engine == Engine::Accelerate).then(|| Modules::of(self.model).ok()).flatten(),
        }
    }

    /// llama.cpp's server caches prompts in up to 8 GiB of the host's memory. The best plan without that cache keeps it
    /// where it leaves room for it; else the cache is switched off.
    fn plan_with_cache(&self) -> Result<(Prepared, Plan, Option<Bytes>), JobError> {
        let without = self.prepare(Bytes::ZERO)?;
        let plan = self.plan_prepared(&without, &self.options)?;
        if self.engine != Engine::LlamaCpp || plan.stages.is_empty() {
            return Ok((without, plan, None));
        }
        let with_cache = self.prepare(llama_cpp::CACHE_RAM)?;
        let Prepared { workload, rules } = &with_cache;
        let lower_bound = plan.value.lower_bound.unwrap_or(0.0);
        let placement = self.placement(&plan, workload);
        let priced = price(&self.snapshot, workload, rules, &self.options, &placement, lower_bound)?;
        if priced.short_bytes.is_zero() {
            return Ok((with_cache, priced.plan, None));
        }
        Ok((without, plan, Some(Bytes::ZERO)))
    }

    /// Where a plan under llama.cpp's rules puts everything.
    fn placement(&self, plan: &Plan, workload: &Workload) -> Placement {
        let first = workload.footprints.first().and_then(|f| f.layers.first()).map_or(0, |layer| layer.index);
        let place = |index: u32| usize::try_from(index.saturating_sub(first)).unwrap_or(usize::MAX);
        let mut placement = Placement::default();
        for stage in &plan.stages {
            let on_host = self.is_main_host(&stage.device);
            if on_host {
                placement.on_host = place(stage.layers.end);
            } else {
                let layers = place(stage.layers.start)..place(stage.layers.end);
                placement.devices.push((stage.device.clone(), layers));
            }
        }
        placement.moved = plan
            .overrides
            .iter()
            .flat_map(|moved| place(moved.layers.start)..place(moved.layers.end))
            .collect();
        placement
    }

    pub(crate) fn is_main_host(&self, device: &DeviceRef) -> bool {
        let main = self.snapshot.main_node();
        main.is_ok_and(|node| {
            node.id == device.node && node.device(&device.device).is_none_or(Device::is_host)
        })
    }

    /// The bytes of every layer on every kind of device here, and the engine's charges.
    pub(crate) fn prepare(&self, cache_ram: Bytes) -> Result<Prepared, EstimateError> {
        let whole = self.model.footprint(&self.request, self.request.engine.padding)?;
        let rules = self.engine.rules(self.model, &self.request, &whole, cache_ram);
        let mut footprints = vec![self.engine.places(whole)];
        let mut by_backend = BTreeMap::new();
        if self.engine.is_llama_cpp() {
            let backends = self.snapshot.nodes.iter().flat_map(|n| n.devices.iter().map(|d| d.backend));
            // Rounding of other backends is not measured; they are charged what CUDA takes, the most that is known.
            for backend in backends.filter(|b| *b != GpuBackend::Cpu) {
                if footprints.len() == 1 {
                    footprints.push(self.model.footprint(&self.request, Padding::Cuda)?);
                }
                by_backend.insert(backend, 1);
            }
        }
        // Hidden states pass between stages as 32-bit floats.
        let activation_bytes = Bytes::new(4).saturating_mul(self.model.embedding_length());
        let movable = self.movable(footprints.len(), &rules);
        let workload = Workload { footprints, by_backend, activation_bytes, boundary_bytes: None, movable };
        Ok(Prepared { workload, rules })
    }

    pub(crate) fn plan_prepared(
        &self,
        prepared: &Prepared,
        options: &PlanOptions,
    ) -> Result<Plan, PlanError> {
        plan(&self.snapshot, &prepared.workload, &prepared.rules, options)
    }

    /// Whether some plan exists with this context, whatever its speed.
    pub(crate) fn fits(&self, context: ContextLength) -> Result<bool, JobError> {
        let job = Self { request: Request { context: Some(context), ..self.request }, ..self.clone() };
        job.fits_as_it_is()
    }

    /// Whether some plan exists, whatever its speed. Input errors are errors, refusals are not.
    pub(crate) fn fits_as_it_is(&self) -> Result<bool, JobError> {
        self.suited()?;
        if !self.beside.is_empty() {
            return match self.plan() {
                Ok(_) => Ok(true),
                Err(JobError::Plan(PlanError::DoesNotFit(_) | PlanError::PartDoesNotFit { .. })) => Ok(false),
                Err(error) => Err(error),
            };
        }
        // Times do not matter, and several copies are for one objective only.
        let objective = match self.options.pipelines.may_be_several() {
            true => self.options.objective,
            false => Objective::Fit,
        };
        let options = PlanOptions { objective, transfers: Transfers::default(), ..self.options.clone() };
        match (Self { options, ..self.clone() }).carried() {
            Ok(_) => Ok(true),
            Err(JobError::Plan(PlanError::DoesNotFit(_)) | JobError::Engine(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn warnings(&self, cache_ram: Option<Bytes>) -> Vec<String> {
        let mut warnings: Vec<String> = self.model.warnings().iter().map(ToString::to_string).collect();
        warnings.extend(self.beyond_training());
        warnings.extend(self.adapted.map(Adapted::notes).unwrap_or_default());
        if !self.engine.is_llama_cpp() {
            warnings.extend(self.of_engine());
            return warnings;
        }
        if !self.unseen.is_empty() {
            warnings.push("llama.cpp has no device for the host memory that an integrated GPU maps (gtt): it is left out".to_owned());
        }
        if self.engine == Engine::IkLlamaCpp {
            warnings.push(
                "with layers on the host this engine keeps the head there as well: it is counted with the input".to_owned(),
            );
        }
        if cache_ram.is_some() {
            warnings.push(
                "this plan leaves less than the 8 GiB that the server's prompt cache may take on the host: it is switched \
                 off (--cache-ram 0)"
                    .to_owned(),
            );
        }
        warnings.push(match compute_facts(self.model).map(|facts| facts.blocks) {
            Some(blocks @ Blocks::Dense) => format!(
                "compute buffers are estimates: of such models none was measured more than {} % above",
                llama_cpp::most_above(blocks)
            ),
            Some(_) => {
                "compute buffers are estimates: the worst that was measured of such models".to_owned()
            }
            None => "the model tells nothing of its width: compute buffers are not charged, only the margin covers them"
                .to_owned(),
        });
        warnings
    }

    /// What to say of an engine whose bytes are not measured.
    fn of_engine(&self) -> Vec<String> {
        let engine = self.engine;
        if engine == Engine::None {
            return Vec::new();
        }
        let mut warnings = vec![format!(
            "what {engine} takes beside weights and cache is an estimate: it was not measured here"
        )];
        if !self.unseen.is_empty() {
            let names: Vec<String> = self.unseen.iter().map(ToString::to_string).collect();
            warnings.push(format!("{engine} has no use for {}", names.join(", ")));
        }
        warnings.extend(match engine {
            Engine::MistralRs => Some("embedding, final norm and output matrix lie on the first device, counted as the engine's"),
            Engine::Petals => Some("embedding and head lie with every client and are counted nowhere"),
            Engine::Exo => Some("embedding and head are counted on every node, and one device of each takes part"),
            _ => None,
        }.map(str::to_owned));
        warnings
    }

    /// What to say of a context that is longer than the model knows.
    fn beyond_training(&self) -> Option<String> {
        let trained = self.model.trained_context()?;
        let asked = self.model.context(&self.request).ok()?.per_sequence;
        // The engine rounds up, which is nobody's wish.
        let rounded =
            trained.checked_next_multiple_of(self.request.engine.cell_multiple.max(1)).unwrap_or(trained);
        (asked > rounded).then(|| {
            format!(
                "a sequence of {asked} tokens is longer than the {trained} that the model was trained for"
            )
        })
    }
}

impl Planned {
    /// Another plan for what a saved plan places, under the same request and options.
    pub(crate) fn instead_of(file: &PlanFile, plan: Plan) -> Result<Self, FormatError> {
        let request = file.request()?;
        let engine: Engine = request.engine.name.parse().unwrap_or(Engine::None);
        // Only a file that an engine runs has a command line.
        let format = match file.model_path() {
            Some(path) if engine.is_llama_cpp() || has_gguf_ending(&path) => ModelFormat::Gguf,
            Some(_) => ModelFormat::Safetensors,
            None => ModelFormat::List,
        };
        Ok(Self {
            plan,
            workload: file.workload()?,
            rules: file.rules()?,
            request,
            options: file.options()?,
            engine,
            context: ContextChoice::Asked,
            cache_ram: file.request.engine.cache_ram_bytes.map(Bytes::new),
            warnings: file.report.warnings.clone(),
            beside: parts::words_of(&file.engine_words()),
            name: file.model.name.clone(),
            architecture: file.model.architecture.clone(),
            format,
            modules: file.model.modules.clone(),
        })
    }

    /// What people call the model.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The family whose rules the model follows.
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// The plan as it lies in a file, sealed.
    ///
    /// # Errors
    ///
    /// A number that JSON cannot carry; the planner gives none.
    pub fn to_file(&self, command: Option<&Command>) -> Result<PlanFile, FormatError> {
        let export = command.cloned().map(Export::from);
        self.to_file_with(export.as_ref(), "")
    }

    /// The plan as it lies in a file, before it says how to carry it out.
    pub(crate) fn unsealed(&self) -> PlanFile {
        let mut file = PlanFile::from_plan(&Saved {
            plan: &self.plan,
            workload: &self.workload,
            rules: &self.rules,
            options: &self.options,
            request: &self.request,
            name: &self.name,
            architecture: &self.architecture,
            warnings: &self.warnings,
            cache_ram: self.cache_ram,
        });
        file.model.modules.clone_from(&self.modules);
        file
    }
}

fn has_gguf_ending(path: &str) -> bool {
    std::path::Path::new(path).extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"))
}

/// The cluster as the engine of a saved plan sees it.
pub(crate) fn seen_by<'a>(
    file: &PlanFile,
    snapshot: &'a ClusterSnapshot,
) -> Result<Cow<'a, ClusterSnapshot>, FormatError> {
    let request = file.request()?;
    // llama.cpp's plans have always been checked against the whole cluster.
    let engine = request.engine.name.parse().unwrap_or(Engine::None);
    Ok(if engine == Engine::LlamaCpp {
        Cow::Borrowed(snapshot)
    } else {
        ranks::seen(engine, request.ranks, snapshot)
    })
}

/// Why a saved plan cannot be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The file is not a plan.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// What an audit of a saved plan came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checked {
    /// Why the plan does not hold: it does not fit, breaks a rule, or a byte count in it is wrong.
    pub broken: Vec<Finding>,
    /// What has changed since it was made and leaves it standing: budgets, speeds, and with them the value.
    pub changed: Vec<Finding>,
}

/// Audits a saved plan against a cluster: with nothing broken, it still fits and every byte count in it is right.
///
/// # Errors
///
/// The file holds words without a meaning.
pub fn check(file: &PlanFile, snapshot: &ClusterSnapshot) -> Result<Checked, CheckError> {
    let snapshot = seen_by(file, snapshot)?;
    let found = audit(&file.plan()?, &snapshot, &file.workload()?, &file.rules()?, &file.options()?);
    Ok(sorted(found.err().unwrap_or_default()))
}

/// What an audit found, by whether the plan still stands.
pub(crate) fn sorted(found: Vec<Finding>) -> Checked {
    let mut checked = Checked::default();
    for finding in found {
        match &finding {
            // A file tells what stopped each device in words only, and it says nothing against a plan.
            Finding::Stopped { .. } => {}
            Finding::Assumed { .. } => checked.changed.push(finding),
            Finding::Number { what: Amount::Budget | Amount::Slack, .. } => checked.changed.push(finding),
            Finding::Basis { .. } | Finding::Seconds { .. } | Finding::Value { .. } | Finding::Optimality => {
                checked.changed.push(finding);
            }
            _ => checked.broken.push(finding),
        }
    }
    checked
}

/// The digest that a plan would have if it had been made for this model, with the request of that plan.
///
/// # Errors
///
/// The request cannot be laid out for this model, or the file holds words without a meaning.
pub fn digest_for(model: &ModelSpec, file: &PlanFile) -> Result<String, DigestError> {
    let request = file.request()?;
    let engine: Engine = request.engine.name.parse().unwrap_or(Engine::None);
    let footprint = engine.places(model.footprint(&request, request.engine.padding)?);
    // With layers on the host, a plan for the older rule counts the head with the input.
    let head_on_host = engine == Engine::IkLlamaCpp && file.model.head_bytes == 0;
    let footprint = if head_on_host { carried::head_on_host(footprint) } else { footprint };
    Ok(plimsoll_export::layer_digest(model.architecture(), &footprint))
}

/// Why a digest cannot be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DigestError {
    /// The file is not a plan.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The request cannot be laid out for this model.
    #[error(transparent)]
    Estimate(#[from] EstimateError),
}
