//! mistral.rs: so many layers for each device in the order of its list, and the rest on the processor.
//!
//! Facts: `-n "0:10;1:20"` gives the first 10 layers to device 0 and the next 20 to device 1; what is left stays on the
//! host. No device comes twice. With a single entry the number of the device is not looked at: the primary device is used.
//! Embedding, final norm and output matrix lie on the primary device, number 0. A topology file says a device for each
//! range of layers, its end excluded, and overrides the list. With several GPUs tensor parallelism is the default unless it
//! is switched off. What is taken beside weights and cache is an estimate.

use plimsoll_balance::{Charges, EngineRules, HostUse, Plan, Stage, StageCharges};
use plimsoll_cluster::{ClusterSnapshot, Device, GpuBackend};
use plimsoll_model::{CacheType, Footprint, Request};
use plimsoll_units::Bytes;

use crate::engine_error::EngineError;
use crate::launch::{Export, ExportFile, length, one_node, only_copy, visible, words};
use crate::llama_cpp::{ComputeFacts, LaunchLine};

/// The engine's name.
const ENGINE: &str = "mistral.rs";

/// The version whose rules these are.
pub const VERSION: &str = "0.8";

/// What the topology file is called.
pub const FILE: &str = "topology.yml";

/// What the driver's context takes on a GPU: an estimate.
const FIXED: Bytes = Bytes::mib(768);

/// The same model as mistral.rs places it: input and head are no part of the chain. They are charged to the primary
/// device by [`rules`].
pub fn without_ends(footprint: Footprint) -> Footprint {
    Footprint {
        input_bytes: Bytes::ZERO,
        head_bytes: Bytes::ZERO,
        head_beside_input_bytes: Bytes::ZERO,
        ..footprint
    }
}

/// What it takes beside the layers: embedding, norm and output matrix of `whole` on the first device, and an estimate of
/// what it computes in.
pub fn rules(facts: Option<&ComputeFacts>, request: &Request, whole: &Footprint) -> EngineRules {
    let each = facts.map_or(Bytes::ZERO, |facts| {
        let wide = facts
            .embedding_length
            .saturating_mul(6)
            .saturating_add(facts.feed_forward_length.saturating_mul(3));
        Bytes::new(2).saturating_mul(wide).saturating_mul(u64::from(request.batch))
    });
    let each = each.saturating_add(FIXED);
    let rows = facts.map_or(0, |facts| facts.vocabulary.saturating_mul(u64::from(request.parallel)));
    let ends = Bytes::saturating_sum([
        whole.input_bytes,
        whole.head_beside_input_bytes,
        Bytes::new(8).saturating_mul(rows),
    ]);
    let split = StageCharges { each, first_more: ends, last_more: Bytes::ZERO };
    EngineRules {
        host: HostUse::Ordinary,
        max_devices: None,
        margin: Bytes::mib(512),
        charges: Charges { alone: each.saturating_add(ends), split, partial: split, ..Charges::default() },
    }
}

/// What a list of layers for each device means for a model of so many: the device of every layer, `None` for the host.
///
/// A count beyond the model is cut to what is left. `None` where the engine stops: a list that is none, or a device twice.
pub fn assign(list: &str, layers: u32) -> Option<Vec<Option<u32>>> {
    let mut entries: Vec<(u32, u32)> = Vec::new();
    for entry in list.split(';') {
        let (device, count) = match entry.split_once(':') {
            Some((device, count)) => (device.parse().ok()?, count.parse().ok()?),
            // A bare number means the device 0.
            None => (0, entry.parse().ok()?),
        };
        if entries.iter().any(|(known, _)| *known == device) {
            return None;
        }
        entries.push((device, count));
    }
    if let [(device, _)] = &mut entries[..] {
        *device = 0;
    }
    let mut places = Vec::new();
    for (device, count) in entries {
        let left = layers.saturating_sub(u32::try_from(places.len()).unwrap_or(u32::MAX));
        places.extend((0..count.min(left)).map(|_| Some(device)));
    }
    places.resize(usize::try_from(layers).ok()?, None);
    Some(places)
}

/// A plan in mistral.rs's words: a list where it can say it, else a topology file.
///
/// # Errors
///
/// The plan has several copies or nodes, begins on the host, or the cache has a form that the engine does not know; the
/// snapshot is not the plan's.
pub fn export(
    plan: &Plan,
    snapshot: &ClusterSnapshot,
    request: &Request,
    path: &str,
    gguf: bool,
) -> Result<Export, EngineError> {
    for (part, cache_type) in [('k', request.cache_type_k), ('v', request.cache_type_v)] {
        if !matches!(cache_type, CacheType::F16 | CacheType::Bf16) {
            return Err(EngineError::CacheType { engine: ENGINE, part, cache_type, nearest: CacheType::F16 });
        }
    }
    let stages = only_copy(ENGINE, plan, snapshot)?;
    let node = one_node(ENGINE, &stages)?.clone();
    let on_host = |(_, device): &(&Stage, &Device)| device.is_host();
    let gpus: Vec<_> = stages.iter().filter(|stage| !on_host(stage)).collect();
    if let (Some((stage, _)), false) = (stages.first().filter(|stage| on_host(stage)), gpus.is_empty()) {
        return Err(EngineError::OnHost {
            engine: "mistral.rs, which begins on its first device,",
            host: stage.device.clone(),
        });
    }
    let (shown, note) = visible(gpus.iter().map(|(_, device)| *device));
    let mut notes: Vec<String> = note.into_iter().collect();
    let mut variables: Vec<String> = shown.into_iter().collect();
    let cuda = gpus.iter().any(|(_, device)| device.backend == GpuBackend::Cuda);
    if gpus.len() > 1 && cuda {
        variables.insert(0, "MISTRALRS_NO_NCCL=1".to_owned());
    }
    let mut line = vec!["mistralrs".to_owned(), "serve".to_owned()];
    let mut files = Vec::new();
    // A list says what lies on devices, in order, and that all the rest lies on the host.
    let suffix = stages.iter().skip_while(|stage| !on_host(stage)).all(on_host);
    if gpus.is_empty() {
        line.push("--cpu".to_owned());
    } else if suffix {
        let list: Vec<String> = gpus
            .iter()
            .enumerate()
            .map(|(number, (stage, _))| format!("{number}:{}", length(stage)))
            .collect();
        line.extend(["-n".to_owned(), list.join(";")]);
    } else {
        files.push(ExportFile { name: FILE.to_owned(), text: topology(&stages) });
        line.extend(["--topology".to_owned(), FILE.to_owned()]);
        notes.push(format!(
            "a list of layers keeps the last ones on the host; {FILE} says it for every range"
        ));
    }
    if gguf {
        let (folder, file) = path.rsplit_once('/').unwrap_or((".", path));
        let words = ["--format", "gguf", "-m", folder, "-f", file];
        line.extend(words.map(str::to_owned));
    } else {
        line.extend(["-m".to_owned(), path.to_owned()]);
    }
    line.extend(["--max-seqs".to_owned(), request.parallel.to_string()]);
    Ok(Export { lines: vec![LaunchLine { node, words: words(variables, line) }], files, notes })
}

/// A device for each range of layers, ends excluded.
fn topology(stages: &[(&Stage, &Device)]) -> String {
    let mut number = 0_u32..;
    let mut out = String::new();
    for (stage, device) in stages {
        let name = match (device.is_host(), device.backend) {
            (true, _) => "cpu".to_owned(),
            (false, GpuBackend::Metal) => format!("metal[{}]", number.next().unwrap_or_default()),
            (false, _) => format!("cuda[{}]", number.next().unwrap_or_default()),
        };
        out.push_str(&format!("{}-{}:\n  device: {name}\n", stage.layers.start, stage.layers.end));
    }
    out
}
