//! What lies beside the layers: a projector for pictures, a draft model.

use plimsoll_balance::{FixedPart, PlanError};
use plimsoll_cluster::{Device, GpuBackend, Node};
use plimsoll_model::{
    ContextLength, EstimateError, GgufHeader, ModelFormat, ModelSpec, Padding, Request, tensor_bytes,
};
use plimsoll_units::{Bytes, DeviceRef};

use crate::adapters;
use crate::context;
use crate::engine::Engine;
use crate::job::{Job, JobError, Planned};

/// Flags with a value that name what lies beside the layers.
const VALUED: [&str; 6] = ["--mmproj", "-md", "-devd", "-ngld", adapters::PLAIN, adapters::SCALED];

/// The flag that keeps a projector in the host's memory.
pub(crate) const PROJECTOR_ON_HOST: &str = "--no-mmproj-offload";

/// What is to be said of every plan with a projector.
pub(crate) const PROJECTOR_COMPUTES: &str =
    "what the projector takes to compute is not known and not charged: only the margin covers it";

/// What is loaded beside a model; under llama.cpp.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beside<'a> {
    /// A projector: what turns pictures or sounds into what the model reads.
    pub projector: Option<Projector<'a>>,
    /// A small model whose guesses the large one checks.
    pub draft: Option<Draft<'a>>,
}

/// A projector.
#[derive(Clone, Copy, Debug)]
pub struct Projector<'a> {
    /// The file, as the person gave it.
    pub path: &'a str,
    /// Its header.
    pub header: &'a GgufHeader,
}

/// A draft model.
#[derive(Clone, Copy, Debug)]
pub struct Draft<'a> {
    /// The file, as the person gave it.
    pub path: &'a str,
    /// The model.
    pub model: &'a ModelSpec,
}

impl Projector<'_> {
    /// What it takes where it lies.
    pub(crate) fn part(&self, device: DeviceRef, on_host: bool) -> FixedPart {
        let padding = if on_host { Padding::Cpu } else { Padding::Cuda };
        FixedPart { name: "projector".to_owned(), device, bytes: tensor_bytes(self.header, padding) }
    }
}

/// Why a file cannot be loaded beside a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BesideError {
    /// It is something else than a projector.
    #[error("{path} is no projector: it is {kind}")]
    NoProjector {
        /// The file, as the person gave it.
        path: String,
        /// The architecture that it names.
        kind: String,
    },
    /// llama.cpp reads no such draft models.
    #[error("{path} is no GGUF file, and llama.cpp drafts with no other")]
    DraftForm {
        /// The file, as the person gave it.
        path: String,
    },
}

impl<'a> Projector<'a> {
    /// The projector of this file.
    ///
    /// # Errors
    ///
    /// The file is no projector.
    pub fn new(path: &'a str, header: &'a GgufHeader) -> Result<Self, BesideError> {
        let fact = |key: &str| header.metadata.get(key).and_then(|value| value.as_text());
        let kind = fact("general.architecture");
        if fact("general.type") == Some("mmproj") || kind == Some("clip") {
            return Ok(Self { path, header });
        }
        let kind = kind.unwrap_or("of no architecture").to_owned();
        Err(BesideError::NoProjector { path: path.to_owned(), kind })
    }
}

impl<'a> Draft<'a> {
    /// The draft model of this file.
    ///
    /// # Errors
    ///
    /// It is no GGUF file.
    pub fn new(path: &'a str, model: &'a ModelSpec) -> Result<Self, BesideError> {
        match model.format() {
            ModelFormat::Gguf => Ok(Self { path, model }),
            _ => Err(BesideError::DraftForm { path: path.to_owned() }),
        }
    }
}

impl Beside<'_> {
    pub(crate) const fn is_empty(&self) -> bool {
        self.projector.is_none() && self.draft.is_none()
    }
}

/// A way to place what lies beside the layers, and the words that say so.
struct Way {
    parts: Vec<FixedPart>,
    words: Vec<String>,
}

impl Job<'_> {
    /// The best plan of all ways to place what lies beside the layers.
    ///
    /// A projector lies on the main node's first device, which is where the engine puts it, or on the host; a draft model
    /// whole on one device of the main node, or on the host. The host is tried only where no device has room.
    pub(crate) fn plan_beside(&self) -> Result<Planned, JobError> {
        let mut best: Option<Planned> = None;
        let mut refused = None;
        for on_host in [false, true] {
            for place in self.places(on_host) {
                match self.plan_at(&place, on_host) {
                    Ok(planned) if best.as_ref().is_none_or(|best| is_better(&planned, best)) => {
                        best = Some(planned)
                    }
                    Ok(_) => {}
                    Err(
                        error @ JobError::Plan(PlanError::DoesNotFit(_) | PlanError::PartDoesNotFit { .. }),
                    ) => {
                        refused.get_or_insert(error);
                    }
                    Err(error) => return Err(error),
                }
            }
            if best.is_some() {
                break;
            }
        }
        best.ok_or_else(|| refused.unwrap_or(JobError::Plan(PlanError::NoDevices { stopped: Vec::new() })))
    }

    /// Where a draft model may lie.
    pub(crate) fn places(&self, on_host: bool) -> Vec<DeviceRef> {
        let Ok(main) = self.snapshot.main_node() else { return Vec::new() };
        let devices = main.devices.iter().filter(|device| on_host == device.is_host());
        let devices = devices.filter(|device| on_host || device.backend != GpuBackend::Cpu);
        let all = devices.map(|device| named(main, device));
        // Without a draft model there is nothing to choose.
        if self.beside.draft.is_some() { all.collect() } else { all.take(1).collect() }
    }

    fn plan_at(&self, place: &DeviceRef, on_host: bool) -> Result<Planned, JobError> {
        let with = |way: Way, context: Option<ContextLength>| {
            let options = plimsoll_balance::PlanOptions { parts: way.parts, ..self.options.clone() };
            let request = Request { context, ..self.request };
            (Job { options, request, beside: Beside::default(), ..self.clone() }, way.words)
        };
        // As much context as the plan could ask for at most, and then as much as it has.
        let most =
            self.request.context.or_else(|| self.model.trained_context().map(ContextLength::PerSequence));
        let (job, _) = with(self.way(place, on_host, most)?, self.request.context);
        let (chosen, choice) = context::choose(&job)?;
        let (job, words) = with(self.way(place, on_host, chosen)?, chosen);
        let mut planned = job.plan()?;
        planned.context = choice;
        planned.beside.extend(words);
        planned.warnings.extend(self.beside.projector.map(|_| PROJECTOR_COMPUTES.to_owned()));
        Ok(planned)
    }

    /// What takes how much where, and how that is said.
    fn way(
        &self,
        place: &DeviceRef,
        on_host: bool,
        context: Option<ContextLength>,
    ) -> Result<Way, EstimateError> {
        let mut way = Way { parts: Vec::new(), words: Vec::new() };
        let first = self.places(on_host).into_iter().next().unwrap_or_else(|| place.clone());
        if let Some(projector @ Projector { path, .. }) = self.beside.projector {
            way.parts.push(projector.part(first, on_host));
            way.words.extend(["--mmproj".to_owned(), path.to_owned()]);
            way.words.extend(on_host.then(|| PROJECTOR_ON_HOST.to_owned()));
        }
        if let Some(draft) = self.beside.draft {
            way.parts.extend(self.draft_parts(&draft, place, on_host, context)?);
            let (device, layers) = match on_host {
                true => ("none".to_owned(), 0),
                false => {
                    (place.device.to_string(), draft.model.layer_count() + draft.model.nextn_count() + 1)
                }
            };
            way.words.extend(
                ["-md", draft.path, "-devd", &device, "-ngld", &layers.to_string()].map(str::to_owned),
            );
        }
        Ok(way)
    }

    /// A draft model as the engine loads it: its cache as long as the large model's, in the usual type.
    pub(crate) fn draft_parts(
        &self,
        draft: &Draft<'_>,
        place: &DeviceRef,
        on_host: bool,
        context: Option<ContextLength>,
    ) -> Result<Vec<FixedPart>, EstimateError> {
        let usual = Request::default();
        let request = Request {
            context,
            cache_type_k: usual.cache_type_k,
            cache_type_v: usual.cache_type_v,
            ..self.request
        };
        let padding = if on_host { Padding::Cpu } else { Padding::Cuda };
        let footprint = draft.model.footprint(&request, padding)?;
        let charges = Engine::LlamaCpp.rules(draft.model, &request, &footprint, Bytes::ZERO).charges;
        let layers = footprint.layers.iter().map(|layer| layer.resident_bytes());
        let layers = layers.chain([footprint.each_device_bytes]);
        let part = |name: &str, device: &DeviceRef, bytes: Bytes| FixedPart {
            name: name.to_owned(),
            device: device.clone(),
            bytes,
        };
        let host = self.places(true).into_iter().next();
        let whole = "draft model";
        if on_host {
            let ends = [footprint.input_bytes, footprint.head_beside_input_bytes, charges.host_alone];
            return Ok(vec![part(whole, place, Bytes::saturating_sum(layers.chain(ends)))]);
        }
        let own = Bytes::saturating_sum(layers.chain([footprint.head_bytes, charges.alone]));
        let input = footprint.input_bytes.saturating_add(charges.host);
        let input = host.map(|host| part("draft model's input", &host, input));
        Ok([part(whole, place, own)].into_iter().chain(input).collect())
    }
}

fn named(node: &Node, device: &Device) -> DeviceRef {
    DeviceRef { node: node.id.clone(), device: device.id.clone() }
}

/// By the plan's own value; of plans without one the first stands.
fn is_better(planned: &Planned, best: &Planned) -> bool {
    let values = planned.plan.value.value.zip(best.plan.value.value);
    values.is_some_and(|(value, best)| value < best)
}

/// The words of a command line that name what lies beside the layers.
pub(crate) fn words_of(line: &[String]) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.iter();
    while let Some(word) = rest.next() {
        if VALUED.contains(&word.as_str()) {
            words.push(word.clone());
            words.extend(rest.next().cloned());
        } else if word == PROJECTOR_ON_HOST {
            words.push(word.clone());
        }
    }
    words
}
