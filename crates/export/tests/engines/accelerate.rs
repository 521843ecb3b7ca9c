//! accelerate: every tensor of a checkpoint has a device, and the one that the plan says.
//!
//! `PLIMSOLL_PYTHON` names an interpreter with accelerate and torch, which is then asked itself; without it that is skipped,
//! but not where `CI` is set.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Once;

use plimsoll_balance::Plan;
use plimsoll_export::accelerate::{Modules, device_map, export};
use plimsoll_export::{EngineError, Export};
use plimsoll_model::safetensors::Checkpoint;
use plimsoll_model::{ModelSpec, Request, Tensor, TensorType};
use plimsoll_units::{Bytes, DeviceRef};
use serde_json::{Value, json};

use crate::kit::{Dice, cluster, id, node, plan, three, variable};

/// A checkpoint of some family's form: names, nesting, tied or not, a part that sees or not.
fn names(dice: &mut Dice, layers: u32) -> (Vec<String>, bool) {
    let forms = [
        ("model", "layers", "embed_tokens", "norm", "lm_head"),
        ("model.language_model", "layers", "embed_tokens", "norm", "lm_head"),
        ("language_model.model", "layers", "embed_tokens", "norm", "language_model.lm_head"),
        ("transformer", "h", "wte", "ln_f", "lm_head"),
    ];
    let (base, list, embedding, norm, head) = forms[usize::try_from(dice.below(4)).unwrap()];
    let mut names = vec![format!("{base}.{embedding}.weight"), format!("{base}.{norm}.weight")];
    let tied = dice.below(2) == 0;
    if !tied {
        names.push(format!("{head}.weight"));
    }
    for layer in 0..layers {
        for part in
            ["self_attn.q_proj.weight", "mlp.up_proj.weight", "mlp.up_proj.bias", "input_layernorm.weight"]
        {
            names.push(format!("{base}.{list}.{layer}.{part}"));
        }
    }
    if base != "model" && dice.below(2) == 0 {
        // A layer of the tower has a number as well.
        names.push("vision_tower.encoder.layers.1.mlp.fc1.weight".to_owned());
        names.push("vision_tower.patch.weight".to_owned());
    }
    (names, tied)
}

fn model(names: &[String], layers: u32) -> ModelSpec {
    let config = json!({ "model_type": "llama", "hidden_size": 64, "num_hidden_layers": layers,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 64 });
    let tensor = |name: &String| Tensor {
        name: name.clone(),
        dims: vec![2, 2],
        kind: TensorType::F32,
        bytes: Bytes::new(16),
    };
    let checkpoint = Checkpoint {
        config: Some(config),
        tensors: names.iter().map(tensor).collect(),
        ..Checkpoint::default()
    };
    ModelSpec::from_checkpoint("toy", &checkpoint).unwrap()
}

struct Case {
    names: Vec<String>,
    modules: Modules,
    plan: Plan,
    export: Export,
    map: BTreeMap<String, Value>,
}

fn case(seed: u64) -> Case {
    let mut dice = Dice::new(seed);
    let layers = u32::try_from(dice.below(40)).unwrap() + 1;
    let (names, tied) = names(&mut dice, layers);
    let spec = model(&names, layers);
    assert_eq!(spec.is_tied(), tied);
    let modules = Modules::of(&spec).unwrap();
    let snapshot = cluster(vec![node("a", None, 4)]);
    let mut devices: Vec<DeviceRef> = (0..4).map(|c| id("a", &format!("CUDA{c}"))).collect();
    devices.push(id("a", "host"));
    for at in (1..devices.len()).rev() {
        devices.swap(at, usize::try_from(dice.below(u64::try_from(at).unwrap() + 1)).unwrap());
    }
    devices.truncate(usize::try_from(dice.below(5)).unwrap() + 1);
    let plan = plan(&mut dice, layers, &devices);
    let export = export(&plan, &snapshot, &Request::default(), &modules, "dir").unwrap();
    let file: Value = serde_json::from_str(&export.files[0].text).unwrap();
    let map = file["device_map"].as_object().unwrap().clone().into_iter().collect();
    Case { names, modules, plan, export, map }
}

/// The device of a tensor as accelerate finds it: its own name, then that of each module around it, at last everything.
fn found<'a>(map: &'a BTreeMap<String, Value>, tensor: &str) -> Option<&'a Value> {
    let mut name = tensor;
    loop {
        if let Some(device) = map.get(name) {
            return Some(device);
        }
        match name.rsplit_once('.') {
            Some((parent, _)) => name = parent,
            None => return map.get(""),
        }
    }
}

#[test]
fn every_tensor_lies_where_the_plan_says() {
    for seed in 0..1200 {
        let case = case(seed);
        let words = &case.export.lines[0].words;
        let shown: Vec<&str> =
            variable(words, "CUDA_VISIBLE_DEVICES").map_or(vec![], |list| list.split(',').collect());
        let device = |name: &str| match found(&case.map, name) {
            Some(Value::String(text)) if text == "cpu" => id("a", "host"),
            Some(number) => {
                id("a", &format!("CUDA{}", shown[usize::try_from(number.as_u64().unwrap()).unwrap()]))
            }
            None => panic!("{seed}: {name} has no device in {:?}", case.map),
        };
        let (first, last) = (&case.plan.stages[0].device, &case.plan.stages.last().unwrap().device);
        for name in &case.names {
            let parts: Vec<&str> = name.split('.').collect();
            let layer = parts
                .windows(2)
                .find(|pair| ["layers", "h"].contains(&pair[0]))
                .filter(|_| !name.starts_with("vision"));
            let expected = match layer {
                Some(pair) => {
                    let layer: u32 = pair[1].parse().unwrap();
                    &case.plan.stages.iter().find(|stage| stage.layers.contains(&layer)).unwrap().device
                }
                None if name.contains("norm") || name.contains("ln_f") || name.contains("lm_head") => last,
                None => first,
            };
            assert_eq!(device(name), *expected, "{seed}: {name}");
        }
        if let Some(tied) = &case.modules.tied {
            assert_eq!(device(tied), *first, "{seed}: a tied head lies with its embedding");
        }
        for buffers in &case.modules.buffers {
            assert_eq!(device(buffers), *first, "{seed}");
        }
    }
}

#[test]
fn several_nodes_and_other_forms_are_refused() {
    let modules = Modules::of(&model(&names(&mut Dice::new(1), 8).0, 8)).unwrap();
    let two = plan(&mut Dice::new(1), 8, &[id("a", "CUDA0"), id("b", "CUDA0")]);
    let error = device_map(&two, &three(), &modules).unwrap_err();
    assert!(matches!(&error, EngineError::SeveralNodes { .. }), "{error}");
    assert!(error.to_string().contains("--only a"), "{error}");
}

/// What the script prints, line by line; `None` where there is nobody to ask.
fn ask(entries: &[Value]) -> Option<Vec<String>> {
    let skipped = |why: &str| {
        let ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
        assert!(!ci, "{why}, so that accelerate would not be asked");
        static SAID: Once = Once::new();
        let text = format!("skipped: {why}: accelerate itself is not asked about device maps\n");
        SAID.call_once(|| std::io::stderr().write_all(text.as_bytes()).unwrap());
    };
    let Some(python) = std::env::var_os("PLIMSOLL_PYTHON") else {
        skipped("PLIMSOLL_PYTHON is not set");
        return None;
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("accelerate");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("maps.json");
    std::fs::write(&file, Value::from(entries).to_string()).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/accelerate_oracle.py");
    let output = Command::new(python).arg(script).arg(file).output().unwrap();
    if output.status.code() == Some(77) {
        skipped(String::from_utf8_lossy(&output.stdout).trim());
        return None;
    }
    assert!(output.status.success(), "the script failed: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

#[test]
fn accelerate_itself_accepts_the_maps() {
    let cases: Vec<Case> = (0..24).map(case).collect();
    let entry = |case: &Case| {
        let shapes: BTreeMap<&String, [u32; 2]> = case.names.iter().map(|name| (name, [2, 2])).collect();
        json!({ "shapes": shapes, "tied": case.modules.tied, "embedding": case.names[0], "map": case.map })
    };
    let mut entries: Vec<Value> = cases.iter().map(entry).collect();
    // A map that leaves something out is not accepted, or an answer means nothing.
    let whole = cases.iter().position(|case| case.map.len() > 2).unwrap();
    let mut broken = entries[whole].clone();
    let layer = format!("{}.0", cases[whole].modules.layers[0]);
    broken["map"].as_object_mut().unwrap().remove(&layer);
    entries.push(broken);
    let Some(answers) = ask(&entries) else { return };
    assert_eq!(answers.len(), entries.len());
    for (number, answer) in answers[..cases.len()].iter().enumerate() {
        assert_eq!(answer, "ok", "{number}: {:?}", cases[number].map);
    }
    assert!(answers[cases.len()].starts_with("ValueError"), "{}", answers[cases.len()]);
}
