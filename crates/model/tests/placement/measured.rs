//! Weights and contexts against what an engine was measured to take, to the byte.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_model::{CacheType, ContextLength, FlashAttention, Footprint, ModelSpec, Padding, Request};

use crate::fixture;

/// A measured run.
struct Run<'a> {
    model: &'a str,
    quant: &'a str,
    request: Request,
    /// All cells, and those of one sequence.
    cells: [u64; 2],
    /// (device, or `None` for the host; layers, the head counted as one), in the order of the layers.
    places: Vec<(Option<usize>, usize)>,
    /// Per device, the host last.
    model_bytes: Vec<u64>,
    context_bytes: Vec<u64>,
}

impl<'a> Run<'a> {
    fn read(line: &'a str) -> Self {
        let parts: Vec<Vec<&str>> = line.split('|').map(|part| part.split_whitespace().collect()).collect();
        let [asked, cells, places, model_bytes, context_bytes] = &parts[..] else { panic!("{line}") };
        let number = |text: &&str| text.parse::<u64>().expect("a number");
        let flag = |text: &str| text == "y";
        let cache = |text: &str| text.parse::<CacheType>().expect("a cache type");
        let place = |text: &&str| {
            let (device, layers) = text.split_once(':').expect("a count");
            (device.parse().ok(), layers.parse().expect("a count"))
        };
        let request = Request {
            context: Some(ContextLength::Total(number(&asked[2]))),
            parallel: asked[3].parse().expect("a count"),
            unified_kv: flag(asked[4]),
            micro_batch: asked[5].parse().expect("a count"),
            batch: asked[6].parse().expect("a count"),
            cache_type_k: cache(asked[7]),
            cache_type_v: cache(asked[8]),
            flash_attention: match asked[9] {
                "on" => FlashAttention::On,
                "off" => FlashAttention::Off,
                _ => FlashAttention::Auto,
            },
            full_window: flag(asked[10]),
            ..Request::default()
        };
        Self {
            model: asked[0],
            quant: asked[1],
            request,
            cells: [number(&cells[0]), number(&cells[1])],
            places: places.iter().map(place).collect(),
            model_bytes: model_bytes.iter().map(number).collect(),
            context_bytes: context_bytes.iter().map(number).collect(),
        }
    }

    /// Adds up what the footprint says of every layer at the place where the run had it.
    fn expected(&self, footprint: &Footprint) -> [Vec<u64>; 2] {
        let host = self.model_bytes.len() - 1;
        let mut weights = vec![0; host + 1];
        let mut context = vec![0; host + 1];
        let places = self
            .places
            .iter()
            .flat_map(|&(device, count)| std::iter::repeat_n(device.unwrap_or(host), count));
        let places: Vec<usize> = places.collect();
        let blocks = footprint.layers.len() + footprint.nextn as usize;
        assert_eq!(places.len(), blocks + 1, "every block and the head have a place");
        weights[host] += footprint.input_bytes.get();
        let head = places[blocks];
        weights[head] +=
            if head == host { footprint.head_beside_input_bytes } else { footprint.head_bytes }.get();
        for (layer, &place) in footprint.layers.iter().zip(&places) {
            weights[place] += layer.weights_bytes.get();
            context[place] += layer.kv_bytes.get();
        }
        // A copy goes to every device that holds a layer, next-token blocks not counted.
        let mut with_layers: Vec<usize> = places[..footprint.layers.len()].to_vec();
        with_layers.sort_unstable();
        with_layers.dedup();
        for place in with_layers {
            weights[place] += footprint.each_device_bytes.get();
        }
        [weights, context]
    }
}

#[test]
fn weights_and_contexts_agree_with_every_measured_run_to_the_byte() {
    let models = fixture::read(include_str!("../fixtures/models.txt"));
    let mut specs: BTreeMap<(&str, &str), ModelSpec> = BTreeMap::new();
    let runs = include_str!("../fixtures/placements.txt").lines().filter(|line| !line.starts_with('#'));
    let (mut agreed, mut differed) = (0, Vec::new());
    let mut by_architecture: BTreeMap<String, (BTreeSet<&str>, u32)> = BTreeMap::new();
    for line in runs {
        let run = Run::read(line);
        let spec = specs.entry((run.model, run.quant)).or_insert_with(|| {
            let spec = ModelSpec::from_gguf(&models[run.model].header(run.quant)).expect("a model");
            assert_eq!(spec.warnings(), [], "{}", run.model);
            spec
        });
        let footprint = spec.footprint(&run.request, Padding::Cpu).expect("a footprint");
        let cells = [footprint.context.total, footprint.context.per_sequence];
        let [weights, context] = run.expected(&footprint);
        if (cells, &weights, &context) == (run.cells, &run.model_bytes, &run.context_bytes) {
            agreed += 1;
            let (models, runs) = by_architecture.entry(spec.architecture().to_owned()).or_default();
            models.insert(run.model);
            *runs += 1;
        } else {
            differed.push(format!("{line}\n  cells {cells:?}\n  weights {weights:?}\n  context {context:?}"));
        }
    }
    assert!(differed.is_empty(), "{agreed} agreed, {} differed:\n{}", differed.len(), differed.join("\n"));
    println!("| architecture | models | runs that agree to the byte |\n|---|---|---|");
    for (architecture, (models, runs)) in by_architecture {
        println!("| `{architecture}` | {} | {runs} |", models.len());
    }
    println!("{agreed} of 216 measured runs agree to the byte");
    assert_eq!(agreed, 216);
}
