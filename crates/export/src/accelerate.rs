//! transformers under a device map of accelerate: every module of a checkpoint by name, and the device it lies on.
//!
//! Facts: a key is the name of a module or a tensor and stands for everything below it; a value is the number of a GPU or
//! `cpu`. Every tensor of the model has to be covered. A head that is the embedding lies where the embedding does. What is
//! taken beside weights and cache is an estimate.

use std::collections::BTreeMap;

use plimsoll_balance::{Charges, EngineRules, HostUse, Plan, StageCharges};
use plimsoll_cluster::ClusterSnapshot;
use plimsoll_model::{CacheType, ModelFormat, ModelSpec, Request, ResolvedContext, TensorPlace};
use plimsoll_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::engine_error::EngineError;
use crate::launch::{Export, ExportFile, one_node, only_copy, visible, words};
use crate::llama_cpp::{ComputeFacts, LaunchLine};

/// The engine's name.
const ENGINE: &str = "accelerate";

/// The version whose rules these are.
pub const VERSION: &str = "1";

/// What the file is called.
pub const FILE: &str = "device_map.json";

/// What the driver's context and the allocator's rounding take on a GPU: an estimate.
const FIXED: Bytes = Bytes::mib(768);

/// The modules of a checkpoint as far as a device map has to name them, under the checkpoint's own names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Modules {
    /// What the layers hang from (`model.layers`): layer 7 is the module 7 of each.
    pub layers: Vec<String>,
    /// What lies with the token embedding.
    pub input: Vec<String>,
    /// What lies with the final norm and the output matrix.
    pub head: Vec<String>,
    /// The output module of a model whose embedding is its output matrix: no file has a tensor of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tied: Option<String>,
    /// Modules with buffers and no tensors (rotary frequencies); they lie with the first layer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buffers: Vec<String>,
}

/// What a prefix of names stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Layer(u32),
    Input,
    Head,
    Several,
}

impl Modules {
    /// The modules of a checkpoint.
    ///
    /// # Errors
    ///
    /// Not a checkpoint, or layers whose names hold no number.
    pub fn of(model: &ModelSpec) -> Result<Self, EngineError> {
        if model.format() != ModelFormat::Safetensors {
            return Err(EngineError::NoNames { engine: ENGINE });
        }
        let mut modules = Self::default();
        let mut prefixes: BTreeMap<&str, Group> = BTreeMap::new();
        for tensor in model.tensors() {
            let group = match tensor.place {
                TensorPlace::Layer(layer) => Group::Layer(layer),
                TensorPlace::Input | TensorPlace::EachDevice => Group::Input,
                TensorPlace::Head | TensorPlace::NextToken => Group::Head,
            };
            let whole = match group {
                Group::Layer(layer) => {
                    let container = container(tensor.name, layer);
                    let unnamed = || EngineError::NoModules { tensor: tensor.name.to_owned() };
                    let container = container.ok_or_else(unnamed)?;
                    if !modules.layers.iter().any(|known| known == container) {
                        modules.layers.push(container.to_owned());
                    }
                    // Below a layer nothing is told apart.
                    container
                }
                _ => tensor.name,
            };
            let ends = whole.match_indices('.').map(|(at, _)| at).chain([whole.len()]);
            for prefix in ends.map(|end| &whole[..end]) {
                let seen = prefixes.entry(prefix).or_insert(group);
                if *seen != group {
                    *seen = Group::Several;
                }
            }
        }
        for tensor in model.tensors() {
            let (group, list) = match tensor.place {
                TensorPlace::Layer(_) => continue,
                TensorPlace::Input | TensorPlace::EachDevice => (Group::Input, &mut modules.input),
                TensorPlace::Head | TensorPlace::NextToken => (Group::Head, &mut modules.head),
            };
            let ends = tensor.name.match_indices('.').map(|(at, _)| at).chain([tensor.name.len()]);
            let mut all = ends.map(|end| &tensor.name[..end]);
            let module = all.find(|prefix| prefixes.get(prefix) == Some(&group)).unwrap_or(tensor.name);
            if !list.iter().any(|known| known == module) {
                list.push(module.to_owned());
            }
        }
        modules.beside_the_files(model.is_tied());
        Ok(modules)
    }

    /// What a model has that no file holds a tensor of.
    fn beside_the_files(&mut self, tied: bool) {
        let Some(layers) = self.layers.first() else { return };
        let (base, list) = layers.rsplit_once('.').unwrap_or(("", layers));
        if tied {
            // The output stands beside the whole text model: `lm_head` beside `model`.
            let root: Vec<&str> =
                base.split('.').take_while(|part| *part != "model" && *part != "transformer").collect();
            let root = if base.split('.').any(|part| part == "model" || part == "transformer") {
                root.join(".")
            } else {
                String::new()
            };
            self.tied = Some(if root.is_empty() { "lm_head".to_owned() } else { format!("{root}.lm_head") });
        }
        if list == "layers" && !base.is_empty() {
            self.buffers.push(format!("{base}.rotary_emb"));
        }
    }
}

/// What a layer's module hangs from: everything before its number.
fn container(tensor: &str, layer: u32) -> Option<&str> {
    let number = layer.to_string();
    let mut from = 0;
    loop {
        let at = from + tensor.get(from..)?.find('.')?;
        let rest = tensor.get(at + 1..)?;
        if rest.split('.').next() == Some(&number) && rest.len() > number.len() {
            return tensor.get(..at);
        }
        from = at + 1;
    }
}

/// What it takes beside the layers, an estimate: a prompt passes the widest block as a whole.
pub fn rules(facts: Option<&ComputeFacts>, request: &Request, context: &ResolvedContext) -> EngineRules {
    let tokens = context.per_sequence.saturating_mul(u64::from(request.parallel));
    let (each, logits) = facts.map_or((Bytes::ZERO, Bytes::ZERO), |facts| {
        let wide = facts
            .embedding_length
            .saturating_mul(4)
            .saturating_add(facts.feed_forward_length.saturating_mul(2));
        let rows = u64::from(request.parallel).saturating_mul(facts.vocabulary);
        (Bytes::new(2).saturating_mul(wide).saturating_mul(tokens), Bytes::new(8).saturating_mul(rows))
    });
    let each = each.saturating_add(FIXED);
    let split = StageCharges { each, first_more: Bytes::ZERO, last_more: logits };
    EngineRules {
        host: HostUse::Ordinary,
        max_devices: None,
        margin: Bytes::mib(512),
        charges: Charges { alone: each.saturating_add(logits), split, partial: split, ..Charges::default() },
    }
}

/// The device of every module, in the order of the model: the value is the number of a GPU, or `cpu`.
///
/// # Errors
///
/// The plan has several copies or nodes, or the snapshot is not the plan's.
pub fn device_map(
    plan: &Plan,
    snapshot: &ClusterSnapshot,
    modules: &Modules,
) -> Result<Vec<(String, String)>, EngineError> {
    let stages = only_copy(ENGINE, plan, snapshot)?;
    one_node(ENGINE, &stages)?;
    let values = values(&stages);
    let (Some(first), Some(last)) = (values.first(), values.last()) else { return Ok(Vec::new()) };
    if values.iter().all(|value| value == first) {
        return Ok(vec![(String::new(), first.clone())]);
    }
    let mut map: Vec<(String, String)> = Vec::new();
    let at = |names: &[String], value: &String| -> Vec<(String, String)> {
        names.iter().map(|name| (name.clone(), value.clone())).collect()
    };
    map.extend(at(&modules.input, first));
    for ((stage, _), value) in stages.iter().zip(&values) {
        for layer in stage.layers.clone() {
            map.extend(modules.layers.iter().map(|list| (format!("{list}.{layer}"), value.clone())));
        }
    }
    map.extend(at(&modules.head, last));
    map.extend(at(&modules.buffers, first));
    map.extend(modules.tied.iter().map(|name| (name.clone(), first.clone())));
    Ok(map)
}

/// What the map calls the device of each stage: GPUs by the order in which the plan reaches them.
fn values(stages: &[(&plimsoll_balance::Stage, &plimsoll_cluster::Device)]) -> Vec<String> {
    let mut gpu = 0_u32..;
    let value = |(_, device): &(_, &plimsoll_cluster::Device)| match device.is_host() {
        true => "\"cpu\"".to_owned(),
        false => gpu.next().unwrap_or_default().to_string(),
    };
    stages.iter().map(value).collect()
}

/// A plan as a device map, and a line that loads the model with it.
///
/// # Errors
///
/// As [`device_map`], or a cache in a form that transformers keeps only as the model computes.
pub fn export(
    plan: &Plan,
    snapshot: &ClusterSnapshot,
    request: &Request,
    modules: &Modules,
    path: &str,
) -> Result<Export, EngineError> {
    for (part, cache_type) in [('k', request.cache_type_k), ('v', request.cache_type_v)] {
        if !matches!(cache_type, CacheType::F16 | CacheType::Bf16) {
            return Err(EngineError::CacheType { engine: ENGINE, part, cache_type, nearest: CacheType::F16 });
        }
    }
    let stages = only_copy(ENGINE, plan, snapshot)?;
    let node = one_node(ENGINE, &stages)?.clone();
    let map = device_map(plan, snapshot, modules)?;
    let (shown, note) = visible(stages.iter().map(|(_, device)| *device));
    let limits = stages.iter().zip(values(&stages));
    let limits: Vec<String> = limits
        .map(|((stage, _), value)| {
            format!("    \"{}\": {}", value.trim_matches('"'), stage.budget_bytes.get())
        })
        .collect();
    let map: Vec<String> = map
        .iter()
        .map(|(name, value)| format!("    {}: {value}", serde_json::Value::from(name.as_str())))
        .collect();
    let text = format!(
        "{{\n  \"device_map\": {{\n{}\n  }},\n  \"max_memory\": {{\n{}\n  }}\n}}\n",
        map.join(",\n"),
        limits.join(",\n")
    );
    let program = format!(
        "import json, transformers as t; m = json.load(open(\"{FILE}\")); \
         model = t.AutoModelForCausalLM.from_pretrained({}, torch_dtype=\"auto\", device_map=m[\"device_map\"])",
        serde_json::Value::from(path)
    );
    let mut notes =
        vec![format!("{FILE} has to lie where the line is typed (plimsoll plan … --export {FILE})")];
    notes.extend(note);
    let line = words(shown.into_iter().collect(), vec!["python3".into(), "-i".into(), "-c".into(), program]);
    let files = vec![ExportFile { name: FILE.to_owned(), text }];
    Ok(Export { lines: vec![LaunchLine { node, words: line }], files, notes })
}
