//! What a llama.cpp command line asks for.

mod beside;
mod devices;
mod error;
mod servers;

use std::collections::BTreeMap;

use plimsoll_model::{CacheType, ContextLength, EngineProfile, FlashAttention, Request};
use plimsoll_units::{Bytes, DeviceRef};

use super::replay::Place;
use super::tensors::TensorRules;
use super::{CACHE_RAM, MAX_DEVICES};

pub use beside::BesideFlags;
pub use error::FlagsError;

/// A llama.cpp command line, understood as far as memory depends on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Flags {
    /// What is asked of the model.
    pub request: Request,
    /// What the server may cache in the host's memory.
    pub cache_ram: Bytes,
    /// Flags that memory does not depend on, as far as is known.
    pub ignored: Vec<String>,
    /// Which tensors it sends to a buffer of its own choice.
    pub tensors: TensorRules,
    /// What it loads beside its model.
    pub beside: BesideFlags,
    gpu_layers: i64,
    split: Option<Vec<f32>>,
    devices: Option<Vec<String>>,
    servers: Vec<String>,
    /// What each server shows whose line was given; `None` stands for everything.
    shown: BTreeMap<String, Option<Vec<String>>>,
    only_main_gpu: bool,
    main_gpu: usize,
    fit: bool,
}

/// Where a command line puts a model: indices of blocks and, as the last one, the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The engine's devices, in its order.
    pub devices: Vec<DeviceRef>,
    /// One place for every block and, last, for the head.
    pub places: Vec<Place>,
}

/// Reads the words of a command line; the program's name may come first (after `env` with variables), and before it the lines of rpc servers, which say
/// which devices `RPC0`, `RPC1` and so on are.
///
/// # Errors
///
/// A flag without a value, a value that the engine would not take, or a flag that splits layers.
pub fn parse_flags(words: &[String]) -> Result<Flags, FlagsError> {
    // Without -np the server opens four slots on one cache.
    let request =
        Request { parallel: 4, unified_kv: true, engine: EngineProfile::LLAMA_CPP, ..Request::default() };
    let mut flags = Flags {
        request,
        cache_ram: CACHE_RAM,
        ignored: Vec::new(),
        tensors: TensorRules::default(),
        beside: BesideFlags::none(),
        gpu_layers: -1,
        split: None,
        devices: None,
        servers: Vec::new(),
        shown: BTreeMap::new(),
        only_main_gpu: false,
        main_gpu: 0,
        fit: true,
    };
    let (servers, words) = servers::taken_out(words)?;
    // Everything before the first flag is the program, and perhaps where to type it.
    let mut rest = words.iter().skip_while(|word| !word.starts_with('-')).peekable();
    let mut unified = None;
    while let Some(word) = rest.next() {
        let (flag, inline) = match word.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => (flag, Some(value.to_owned())),
            _ => (word.as_str(), None),
        };
        if switch(&mut flags, flag, &mut unified)? {
            continue;
        }
        let has_value =
            inline.is_some() || takes_value(flag) || rest.peek().is_some_and(|next| !is_flag(next));
        if !has_value {
            flags.ignored.push(word.clone());
            continue;
        }
        let next = || rest.next().cloned();
        let value = inline.or_else(next).ok_or_else(|| FlagsError::NoValue { flag: flag.to_owned() })?;
        if !valued(&mut flags, flag, &value, &mut unified)? {
            flags.ignored.push(format!("{flag} {value}"));
        }
    }
    flags.request.unified_kv = unified.unwrap_or(flags.request.unified_kv);
    flags.show(servers);
    Ok(flags)
}

/// Whether a word is a flag and not a negative number.
fn is_flag(word: &str) -> bool {
    word.starts_with('-') && word.parse::<f64>().is_err()
}

/// Whether one of the flags below needs a value.
fn takes_value(flag: &str) -> bool {
    const WITH_VALUE: [&str; 40] = [
        "-m",
        "--model",
        "-mu",
        "--model-url",
        "-c",
        "--ctx-size",
        "-np",
        "--parallel",
        "-b",
        "--batch-size",
        "-ub",
        "--ubatch-size",
        "-fa",
        "--flash-attn",
        "-ctk",
        "--cache-type-k",
        "-ctv",
        "--cache-type-v",
        "-ngl",
        "--gpu-layers",
        "--n-gpu-layers",
        "-ts",
        "--tensor-split",
        "-dev",
        "--device",
        "--rpc",
        "-sm",
        "--split-mode",
        "-mg",
        "--main-gpu",
        "--fit",
        "-fit",
        "--cache-ram",
        "-cram",
        "-ot",
        "--override-tensor",
        "-ncmoe",
        "--n-cpu-moe",
        "-ncffn",
        "--n-cpu-ffn",
    ];
    WITH_VALUE.contains(&flag) || beside::takes_value(flag)
}

/// Takes in a flag without a value; false when it is none of those.
fn switch(flags: &mut Flags, flag: &str, unified: &mut Option<bool>) -> Result<bool, FlagsError> {
    match flag {
        "--kv-unified" | "-kvu" => *unified = Some(true),
        "--no-kv-unified" | "-no-kvu" => *unified = Some(false),
        "--no-mmproj-offload" => flags.beside.projector_on_host = true,
        "--mmproj-offload" => flags.beside.projector_on_host = false,
        "--swa-full" => flags.request.full_window = true,
        "-cmoe" | "--cpu-moe" => flags.tensors.add_experts(flag)?,
        "-nkvo" | "--no-kv-offload" => {
            return Err(FlagsError::Unsupported { flag: flag.to_owned() });
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Takes in a flag with its value; false when memory does not depend on it.
fn valued(
    flags: &mut Flags,
    flag: &str,
    value: &str,
    unified: &mut Option<bool>,
) -> Result<bool, FlagsError> {
    let wrong = |expected: &'static str| FlagsError::Value {
        flag: flag.to_owned(),
        value: value.to_owned(),
        expected,
    };
    let number = |text: &str| text.parse::<u32>().map_err(|_| wrong("it takes a number"));
    let request = &mut flags.request;
    match flag {
        // The file is named beside the flags.
        "-m" | "--model" | "-mu" | "--model-url" => {}
        "-fit" | "--fit" => flags.fit = value != "off",
        "-c" | "--ctx-size" => {
            let cells: u64 = value.parse().map_err(|_| wrong("it takes a number of cells"))?;
            request.context = (cells > 0).then_some(ContextLength::Total(cells));
        }
        "-np" | "--parallel" => match value {
            "-1" | "auto" => {}
            _ => {
                request.parallel = number(value)?.max(1);
                // Asked for a number of slots, the server gives each a cache of its own.
                *unified = unified.or(Some(false));
            }
        },
        "-b" | "--batch-size" => request.batch = number(value)?.max(1),
        "-ub" | "--ubatch-size" => request.micro_batch = number(value)?.max(1),
        "-fa" | "--flash-attn" => {
            request.flash_attention = match value {
                "on" | "1" | "enabled" => FlashAttention::On,
                "off" | "0" | "disabled" => FlashAttention::Off,
                "auto" | "-1" => FlashAttention::Auto,
                _ => return Err(wrong("it takes on, off or auto")),
            };
        }
        "-ctk" | "--cache-type-k" => request.cache_type_k = cache_type(value).ok_or_else(|| wrong(TYPES))?,
        "-ctv" | "--cache-type-v" => request.cache_type_v = cache_type(value).ok_or_else(|| wrong(TYPES))?,
        "-ngl" | "--gpu-layers" | "--n-gpu-layers" => {
            flags.gpu_layers = gpu_layers(value).ok_or_else(|| wrong("it takes a number, auto or all"))?;
        }
        "-ts" | "--tensor-split" => {
            flags.split = Some(shares(value).map_err(wrong)?);
        }
        "-dev" | "--device" => flags.devices = Some(value.split(',').map(str::to_owned).collect()),
        "--rpc" => flags.servers = value.split(',').map(str::to_owned).collect(),
        "-sm" | "--split-mode" => match value {
            "layer" => {}
            "none" => flags.only_main_gpu = true,
            _ => return Err(FlagsError::Unsupported { flag: format!("{flag} {value}") }),
        },
        "-mg" | "--main-gpu" => {
            flags.main_gpu = value.parse().map_err(|_| wrong("it takes the number of a device"))?;
        }
        "--cache-ram" | "-cram" => {
            let mib: i64 = value.parse().map_err(|_| wrong("it takes MiB, or -1 for no limit"))?;
            // No limit: at least what the default would take.
            flags.cache_ram = u32::try_from(mib).map_or(CACHE_RAM, Bytes::mib);
        }
        "-ot" | "--override-tensor" => flags.tensors.add(flag, value)?,
        "-ncmoe" | "--n-cpu-moe" => flags.tensors.add_first_layers(flag, number(value)?, false)?,
        "-ncffn" | "--n-cpu-ffn" => flags.tensors.add_first_layers(flag, number(value)?, true)?,
        _ => return beside::valued(flags, flag, value),
    }
    Ok(true)
}

const TYPES: &str = "it takes f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0 or q5_1";

/// The number of layers; -1 stands for all.
fn gpu_layers(text: &str) -> Option<i64> {
    match text {
        "auto" | "all" => Some(-1),
        _ => text.parse().ok(),
    }
}

/// The shares of a split, or what is expected.
fn shares(text: &str) -> Result<Vec<f32>, &'static str> {
    let shares: Result<Vec<f32>, _> = text.split([',', '/']).map(str::parse).collect();
    let shares = shares.map_err(|_| "it takes shares such as 3,1")?;
    let finite = shares.iter().all(|share| share.is_finite() && *share >= 0.0);
    let most = usize::try_from(MAX_DEVICES).unwrap_or(usize::MAX);
    if finite && shares.len() <= most {
        Ok(shares)
    } else {
        Err("it takes at most 15 shares, none of them negative")
    }
}

fn cache_type(text: &str) -> Option<CacheType> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Flags, FlagsError> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse_flags(&words)
    }

    #[test]
    fn flags_are_read_under_all_their_names() {
        let short = parse(
            "llama-server -m a.gguf -c 8192 -np 2 -ub 256 -fa on -ctk q8_0 -ctv q4_0 -ngl 33 -ts 16,17",
        )
        .unwrap();
        let long = parse(
            "--model a.gguf --ctx-size=8192 --parallel 2 --ubatch-size 256 --flash-attn on --cache-type-k q8_0 \
             --cache-type-v q4_0 --n-gpu-layers 33 --tensor-split 16/17",
        )
        .unwrap();
        assert_eq!(short, long);
        assert_eq!(short.request.context, Some(ContextLength::Total(8192)));
        assert_eq!((short.request.parallel, short.request.unified_kv), (2, false));
        assert!(short.ignored.is_empty());
    }

    #[test]
    fn without_a_number_of_slots_the_server_opens_four_on_one_cache() {
        let flags = parse("-c 4096").unwrap();
        assert_eq!((flags.request.parallel, flags.request.unified_kv), (4, true));
        let flags = parse("-np 4 -kvu").unwrap();
        assert!(flags.request.unified_kv);
    }

    #[test]
    fn what_memory_does_not_depend_on_is_told_and_ignored() {
        let flags = parse("-ngl -1 --host 0.0.0.0 --port 8080 --jinja -t 8 --temp -0.5").unwrap();
        assert_eq!(flags.ignored, ["--host 0.0.0.0", "--port 8080", "--jinja", "-t 8", "--temp -0.5"]);
    }

    #[test]
    fn what_is_loaded_beside_a_model_is_read_under_all_its_names() {
        let short = parse(
            "--mmproj p.gguf --no-mmproj-offload -md d.gguf -devd CUDA0,CUDA1 -ngld 33 --lora a.gguf,b.gguf \
             --lora-scaled c.gguf:0.5,d.gguf:-1",
        )
        .unwrap();
        let long = parse(
            "-mm p.gguf --no-mmproj-offload --spec-draft-model d.gguf --spec-draft-device CUDA0,CUDA1 \
             --spec-draft-ngl 33 --lora=a.gguf --lora b.gguf --lora-scaled c.gguf:.5 --lora-scaled=d.gguf:-1.0",
        )
        .unwrap();
        assert_eq!(short, long);
        let beside = &short.beside;
        assert!(beside.projector_on_host && short.ignored.is_empty());
        assert_eq!((beside.draft.as_deref(), beside.draft_layers), (Some("d.gguf"), 33));
        let names = ["a.gguf", "b.gguf", "c.gguf", "d.gguf"].map(str::to_owned);
        let scales = [None, None, Some(0.5), Some(-1.0)];
        assert_eq!(beside.adapters, names.into_iter().zip(scales).collect::<Vec<_>>());
        assert_eq!(beside.left_out([true, false, true]), ["-md d.gguf"]);
        assert_eq!(
            beside.left_out([false, true, false]),
            [
                "--mmproj p.gguf",
                "--lora a.gguf",
                "--lora b.gguf",
                "--lora-scaled c.gguf:0.5",
                "--lora-scaled d.gguf:-1"
            ]
        );
        let none = parse("-ngl 3").unwrap().beside;
        assert!(none.is_empty());
        assert_eq!(none.draft_layers, -1);
        for wrong in ["--lora-scaled a.gguf", "--lora-scaled a.gguf:much", "--lora-scaled C:a.gguf:1"] {
            assert!(parse(wrong).unwrap_err().to_string().ends_with("it takes FILE:SCALE"), "{wrong}");
        }
        assert_eq!(parse("--lora").unwrap_err().to_string(), "the flag --lora has no value");
    }

    #[test]
    fn wrong_values_and_parts_of_layers_are_refused() {
        for (line, what) in [
            ("-c", "the flag -c has no value"),
            ("-c many", "the flag -c has the value 'many'; it takes a number of cells"),
            ("-ts 1,x", "the flag -ts has the value '1,x'; it takes shares such as 3,1"),
            (
                "-ts -1,2",
                "the flag -ts has the value '-1,2'; it takes at most 15 shares, none of them negative",
            ),
            ("-fa maybe", "the flag -fa has the value 'maybe'; it takes on, off or auto"),
        ] {
            assert_eq!(parse(line).unwrap_err().to_string(), what, "{line}");
        }
        for line in ["-sm row", "-nkvo"] {
            assert!(matches!(parse(line), Err(FlagsError::Unsupported { .. })), "{line}");
        }
    }
}
