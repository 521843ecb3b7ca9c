//! What can be typed.

mod moving;
mod scaled;
mod simulate;

use std::path::PathBuf;
use std::time::Duration;

pub(crate) use moving::{DiffArgs, FitArgs, RebalanceArgs};
pub(crate) use scaled::ScaledFile;
pub(crate) use simulate::SimulateArgs;

use self::moving::{DIFF_EXAMPLES, FIT_EXAMPLES, REBALANCE_EXAMPLES};
use self::simulate::SIMULATE_EXAMPLES;
use crate::ledger::args::{
    AdviseArgs, PsArgs, ReleaseArgs, ReserveArgs, ResizeArgs, RosterArgs, RunArgs, StartArgs, parse_time,
};
use crate::live::args::NodeArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
use plimsoll::balance::{Objective, ParsePinError, Pin, Pipelines, Strategy, Transfers};
use plimsoll::model::{CacheType, FlashAttention};
use plimsoll::units::{Bytes, DeviceRef, NodeId};
use plimsoll::{Engine, Offload, PartPlace};

/// Decide what fits where before it runs.
///
/// Exit status: 0 done; 1 refused (it does not fit, or a checked plan no longer does); 2 wrong usage or unreadable input; 3
/// a fault of plimsoll itself.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Print JSON instead of text.
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Say more: every byte, every index, what stopped each device.
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say which layers go on which device, and how to start the engine that way.
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(Box<PlanArgs>),
    /// Say what a model weighs, layer by layer.
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(InspectArgs),
    /// Say what this machine is.
    #[command(after_help = DETECT_EXAMPLES)]
    Detect(DetectArgs),
    /// Say what changes on this machine, as it happens, until it is interrupted.
    #[command(after_help = WATCH_EXAMPLES)]
    Watch(WatchArgs),
    /// Check a saved plan, or the flags of a llama.cpp command line, against a cluster.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(Box<CheckArgs>),
    /// Say how much context fits, or which models of a folder do.
    #[command(after_help = FIT_EXAMPLES)]
    Fit(Box<FitArgs>),
    /// Say what moves from one saved plan to another.
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(DiffArgs),
    /// Say how to get from a saved plan to a better one with few bytes moved.
    #[command(after_help = REBALANCE_EXAMPLES)]
    Rebalance(RebalanceArgs),
    /// Say what would happen on a made-up cluster over hours: losses, drains, drifts.
    #[command(after_help = SIMULATE_EXAMPLES)]
    Simulate(SimulateArgs),
    /// Book memory for a model, so that nobody else counts on it.
    Reserve(Box<ReserveArgs>),
    /// Give booked memory back.
    Release(ReleaseArgs),
    /// Change how much is booked.
    Resize(ResizeArgs),
    /// Show who holds how much memory.
    Ps(PsArgs),
    /// Say what to evict to make room.
    Advise(AdviseArgs),
    /// Run a command with its memory booked for as long as it runs.
    ///
    /// Exit status: that of the command, 128 and the signal's number when one ended it; 125 when it was refused or its time
    /// to wait was up; 126 or 127 when the command cannot be started.
    Run(Box<RunArgs>),
    /// Say which models of a roster fit together.
    Roster(RosterArgs),
    /// Bring this machine into a cluster that is kept in etcd, and see to its machines.
    #[command(after_help = crate::live::args::NODE_EXAMPLES)]
    Node(NodeArgs),
    /// Answer programs and people over HTTP: plans, bookings, events, a page to look at; until it is interrupted.
    #[cfg(feature = "agent")]
    #[command(after_help = crate::agent::args::EXAMPLES)]
    Agent(Box<crate::agent::args::AgentArgs>),
    /// Become a command that ends with its parent.
    #[command(name = "__start", hide = true)]
    Start(StartArgs),
    /// Look at the drivers for the process that started this one.
    #[command(name = "__look", hide = true)]
    Look(LookArgs),
    /// Print shell completions or the manual page.
    Completions(CompletionsArgs),
}

const PLAN_EXAMPLES: &str = "Examples:
  plimsoll plan model.gguf --cluster home.toml --ctx 32k
  plimsoll plan model.gguf --cluster home.toml --pin 0-8=tower/CUDA0 --cap mac/MTL0=40GiB
  plimsoll plan model/ --cluster home.toml --objective throughput --pipelines auto
  plimsoll plan mixture.gguf --cluster home.toml --experts device
  plimsoll plan model/ --cluster rack.toml --engine vllm --tensor-parallel 2 --ctx 32k
  plimsoll plan model/ --engine accelerate --export device_map.json
  plimsoll plan model.gguf --cluster home.toml --mmproj projector.gguf --draft small.gguf
  plimsoll plan model.gguf --cluster home.toml --lora tone.gguf --lora-scaled terms.gguf:0.5
  plimsoll plan https://huggingface.co/OWNER/MODEL/resolve/main/model.gguf --cluster home.toml
  plimsoll plan model.gguf --out plan.json --svg plan.svg";

const INSPECT_EXAMPLES: &str = "Examples:
  plimsoll inspect model.gguf
  plimsoll inspect https://huggingface.co/OWNER/MODEL/resolve/main/model-00001-of-00003.gguf -v
  plimsoll inspect model.gguf --ctx 32k --cache-type-k q8_0 --cache-type-v q8_0 --json";

const DETECT_EXAMPLES: &str = "Examples:
  plimsoll detect
  plimsoll detect --emit node >> home.toml
  plimsoll detect --measure";

const WATCH_EXAMPLES: &str = "Examples:
  plimsoll watch
  plimsoll watch --interval 5s --json
  plimsoll watch --cluster etcd://10.0.0.7/home";

const CHECK_EXAMPLES: &str = "Examples:
  plimsoll check plan.json --cluster home.toml
  plimsoll check --from-flags \"-ngl 33 -ts 16,17\" model.gguf --cluster home.toml";

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// A GGUF file (any part of a split one), a safetensors file or folder, a layer list (.toml, .json), or the http(s) address
    /// of a GGUF or safetensors file, of which only the header is read.
    pub(crate) model: PathBuf,

    /// The machines, as a TOML file or as llama-swap tells them (JSON, or its http(s) address); this machine when not given.
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) request: RequestArgs,

    #[command(flatten)]
    pub(crate) choice: ChoiceArgs,

    #[command(flatten)]
    pub(crate) offload: OffloadArgs,

    /// A projector to load beside the model, for pictures or sounds (a GGUF file); under llama.cpp.
    #[arg(long, value_name = "FILE", help_heading = "Planning")]
    pub(crate) mmproj: Option<PathBuf>,

    /// A draft model to load beside the model, whole on one device; under llama.cpp.
    #[arg(long, value_name = "FILE", help_heading = "Planning")]
    pub(crate) draft: Option<PathBuf>,

    /// An adapter (LoRA) to load beside the model (a GGUF file; may be repeated); under llama.cpp.
    #[arg(long, value_name = "FILE", help_heading = "Planning")]
    pub(crate) lora: Vec<PathBuf>,

    /// An adapter at another strength than 1 (may be repeated).
    #[arg(long, value_name = "FILE:SCALE", help_heading = "Planning")]
    pub(crate) lora_scaled: Vec<ScaledFile>,

    /// Save the plan as a file.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// Put the plan in force in the cluster (--cluster etcd://…), in place of the one that is. Nothing is started.
    #[arg(long, requires = "cluster")]
    pub(crate) apply: bool,

    /// Save what the engine reads (a device map, a topology, an instance), or the lines to type where it reads nothing.
    #[arg(long, value_name = "FILE")]
    pub(crate) export: Option<PathBuf>,

    /// Draw the plan as a picture.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

/// What is asked of the planner.
#[derive(Debug, Args)]
#[command(next_help_heading = "Planning")]
pub(crate) struct ChoiceArgs {
    /// What the plan should be good at.
    #[arg(long, value_enum, default_value = "latency")]
    pub(crate) objective: ObjectiveArg,

    /// In which orders devices are tried.
    #[arg(long, value_enum, default_value = "portfolio")]
    pub(crate) strategy: StrategyArg,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    /// Run this many copies of the model side by side, or as many as pay (auto); for --objective throughput.
    #[arg(long, value_name = "N|auto", default_value = "1", value_parser = parse_pipelines, hide_default_value = true)]
    pub(crate) pipelines: Pipelines,

    /// How a stage's time counts what it passes on; for --objective throughput.
    #[arg(long, value_enum, default_value = "apart")]
    pub(crate) transfers: TransfersArg,
}

/// What of the machines may be used, and for what.
#[derive(Debug, Args)]
#[command(next_help_heading = "Planning")]
pub(crate) struct LimitArgs {
    /// Keep this much free on every pool (24GiB, 500MB); default: what the cluster file or the engine says.
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub(crate) reserve: Option<Bytes>,

    /// Use at most this many devices, the host not counted.
    #[arg(long, value_name = "N")]
    pub(crate) max_devices: Option<u32>,

    /// Use only these nodes (a,b); the main node's host keeps what the engine needs there all the same.
    #[arg(long, value_name = "NODES", value_delimiter = ',')]
    pub(crate) only: Vec<NodeId>,

    /// Use at most this much of a device (tower/CUDA0=20GiB); may be given again.
    #[arg(long, value_name = "NODE/DEVICE=BYTES", value_parser = parse_cap)]
    pub(crate) cap: Vec<(DeviceRef, Bytes)>,

    /// Keep layers on a device (0-8=tower/CUDA0: layers 0 to 7); may be given again.
    ///
    /// The end of the range is the layer after the last one. A device holds everything between the first and the last
    /// layer pinned to it, the main node's host everything up to the last one.
    #[arg(long, value_name = "LAYERS=NODE/DEVICE", value_parser = parse_pin)]
    pub(crate) pin: Vec<Pin>,
}

/// What of a layer may lie apart from it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Planning")]
pub(crate) struct OffloadArgs {
    /// Where the experts of layers on devices lie; under llama.cpp.
    ///
    /// auto: on the host where whole layers would lie there or nothing would fit, if that is better, device by device;
    /// device: always with their layer; host: always on the host.
    #[arg(long, value_enum, value_name = "WHERE", default_value = "auto")]
    pub(crate) experts: PartPlaceArg,

    /// The same for the feed-forward blocks of a model without experts.
    #[arg(long, value_enum, value_name = "WHERE", default_value = "device")]
    pub(crate) ffn: PartPlaceArg,
}

/// What is asked of the model.
#[derive(Debug, Args)]
#[command(next_help_heading = "Request")]
pub(crate) struct RequestArgs {
    /// The context of one sequence, in tokens (32768, 32k); default: what the model was trained for, or what fits.
    #[arg(long, value_name = "N", value_parser = parse_tokens, conflicts_with = "ctx_total")]
    pub(crate) ctx: Option<u64>,

    /// The context of all sequences together, as llama.cpp's -c counts it.
    #[arg(long, value_name = "N", value_parser = parse_tokens)]
    pub(crate) ctx_total: Option<u64>,

    /// How many sequences at once.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) parallel: u32,

    /// All sequences share one cache.
    #[arg(long)]
    pub(crate) unified_kv: bool,

    /// The form of keys in the cache: f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0, q5_1.
    #[arg(long, value_name = "TYPE", default_value = "f16")]
    pub(crate) cache_type_k: CacheType,

    /// The form of values in the cache.
    #[arg(long, value_name = "TYPE", default_value = "f16")]
    pub(crate) cache_type_v: CacheType,

    /// Whether flash attention is used.
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) flash_attn: FlashArg,

    /// Tokens computed at once (llama.cpp's -ub).
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ubatch: u32,

    /// Layers with a sliding window keep the full context.
    #[arg(long)]
    pub(crate) swa_full: bool,

    /// Who will run it; default: llama.cpp for a GGUF file, none otherwise.
    ///
    /// llama.cpp, ik_llama.cpp, vllm, sglang, mistral.rs, accelerate (or transformers), petals, exo, none.
    #[arg(long, value_name = "ENGINE")]
    pub(crate) engine: Option<Engine>,

    /// Share every layer between this many equal devices of a node; for --engine vllm and sglang.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), hide_default_value = true)]
    pub(crate) tensor_parallel: u32,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// A GGUF file (any part of a split one), a safetensors file or folder, a layer list (.toml, .json), or the http(s) address
    /// of a GGUF or safetensors file, of which only the header is read.
    pub(crate) model: PathBuf,

    #[command(flatten)]
    pub(crate) request: RequestArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DetectArgs {
    /// Print this machine as a node of a cluster file.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) emit: Option<EmitArg>,

    /// Load no driver: only what the processor and the kernel tell.
    #[arg(long)]
    pub(crate) fast: bool,

    /// Also measure how fast the host reads its memory and NVIDIA's cards copy in theirs (at most 300 ms each).
    #[arg(long)]
    pub(crate) measure: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LookArgs {
    /// What that process asks.
    pub(crate) question: String,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Look this often (500ms, 5s, 1m). On Linux also when the kernel tells of a device.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_interval)]
    pub(crate) interval: Duration,

    /// Say instead what happens to a cluster: its machines, its ledger, the plan in force; as etcd://10.0.0.7:2379/home.
    #[arg(long, value_name = "URL", conflicts_with = "interval")]
    pub(crate) cluster: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// A plan that was saved with `plan --out`, or the plan in force of a cluster (etcd://10.0.0.7:2379/home); with
    /// --from-flags, a model.
    #[arg(value_name = "PLAN|MODEL")]
    pub(crate) file: PathBuf,

    /// The machines, as a TOML file or as llama-swap tells them (JSON, or its http(s) address); this machine when not given.
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster: Option<PathBuf>,

    /// Also check that the plan was made for this model.
    #[arg(long, value_name = "MODEL", conflicts_with = "from_flags")]
    pub(crate) model: Option<PathBuf>,

    /// Say where these llama.cpp flags put the model, and whether that fits ("-ngl 33 -ts 16,17 -c 8192").
    ///
    /// Whole lines may be pasted, those of rpc servers before the engine's: they say which devices RPC0, RPC1 and so on are.
    #[arg(long, value_name = "FLAGS", allow_hyphen_values = true)]
    pub(crate) from_flags: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell, or `man` for the manual page.
    #[arg(value_enum)]
    pub(crate) shell: ShellArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShellArg {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
    /// The manual page, in roff.
    Man,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EmitArg {
    /// A `[[node]]` of a cluster file.
    Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ObjectiveArg {
    /// The fewest devices.
    Fit,
    /// The fastest slowest stage: many requests at once.
    Throughput,
    /// The fastest single stream.
    Latency,
    /// Every device equally full.
    Balanced,
}

impl From<ObjectiveArg> for Objective {
    fn from(arg: ObjectiveArg) -> Self {
        match arg {
            ObjectiveArg::Fit => Self::Fit,
            ObjectiveArg::Throughput => Self::Throughput,
            ObjectiveArg::Latency => Self::Latency,
            ObjectiveArg::Balanced => Self::Balanced,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StrategyArg {
    /// Several orders, and an exact search where devices are few.
    Portfolio,
    /// The largest first.
    CapacityDescending,
    /// As the cluster file lists them.
    GivenOrder,
}

impl From<StrategyArg> for Strategy {
    fn from(arg: StrategyArg) -> Self {
        match arg {
            StrategyArg::Portfolio => Self::Portfolio,
            StrategyArg::CapacityDescending => Self::CapacityDescending,
            StrategyArg::GivenOrder => Self::GivenOrder,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TransfersArg {
    /// Not at all.
    Apart,
    /// Sending goes on while the device computes: the larger of the two counts.
    Overlapped,
    /// A device receives, computes, then sends: the three are added up.
    Added,
}

impl From<TransfersArg> for Transfers {
    fn from(arg: TransfersArg) -> Self {
        match arg {
            TransfersArg::Apart => Self::Apart,
            TransfersArg::Overlapped => Self::Overlapped,
            TransfersArg::Added => Self::Added,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FlashArg {
    On,
    Off,
    Auto,
}

impl From<FlashArg> for FlashAttention {
    fn from(arg: FlashArg) -> Self {
        match arg {
            FlashArg::On => Self::On,
            FlashArg::Off => Self::Off,
            FlashArg::Auto => Self::Auto,
        }
    }
}

/// `32768`, or `32k` for 32 · 1024 and `1m` for 1024 · 1024 as people say it of contexts.
pub(crate) fn parse_tokens(text: &str) -> Result<u64, String> {
    let (digits, step) = match (text.strip_suffix(['k', 'K']), text.strip_suffix(['m', 'M'])) {
        (Some(digits), _) => (digits, 1024),
        (None, Some(digits)) => (digits, 1024 * 1024),
        (None, None) => (text, 1),
    };
    let n: u64 = digits.parse().map_err(|_| format!("'{text}' is not a number of tokens (32768 or 32k)"))?;
    match n.checked_mul(step) {
        Some(0) => Err("a context has at least one token".to_owned()),
        Some(n) => Ok(n),
        None => Err(format!("'{text}' is larger than 18446744073709551615")),
    }
}

fn parse_cap(text: &str) -> Result<(DeviceRef, Bytes), String> {
    let parts = text.split_once('=').and_then(|(device, cap)| Some((device.split_once('/')?, cap)));
    let ((node, device), cap) =
        parts.ok_or_else(|| format!("'{text}' is not of the form node/device=20GiB"))?;
    let node = node.parse().map_err(|e| format!("{e}"))?;
    let device = device.parse().map_err(|e| format!("{e}"))?;
    let cap = cap.parse().map_err(|e| format!("{e}"))?;
    Ok((DeviceRef { node, device }, cap))
}

fn parse_pin(text: &str) -> Result<Pin, String> {
    text.parse().map_err(|error: ParsePinError| format!("{:#}", anyhow::Error::from(error)))
}

fn parse_pipelines(text: &str) -> Result<Pipelines, String> {
    match text {
        "1" => Ok(Pipelines::One),
        "auto" => Ok(Pipelines::Auto),
        number => number
            .parse()
            .map(Pipelines::Exactly)
            .map_err(|_| format!("'{number}' is neither a number of copies from 1 on nor auto")),
    }
}

/// A time between two looks: without one a core would do nothing else.
pub(crate) fn parse_interval(text: &str) -> Result<Duration, String> {
    const LEAST: Duration = Duration::from_millis(100);
    match parse_time(text)? {
        time if time < LEAST => Err(format!("'{text}' is too short; at least 100ms lie between two looks")),
        time => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn contexts_may_be_said_in_thousands() {
        assert_eq!(parse_tokens("32k"), Ok(32_768));
        assert_eq!(parse_tokens("1M"), Ok(1_048_576));
        assert_eq!(parse_tokens("4096"), Ok(4_096));
        for bad in ["", "k", "0", "-1", "1.5k", "99999999999999999999", "18446744073709551615k"] {
            assert!(parse_tokens(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn copies_are_a_number_or_auto() {
        assert_eq!(parse_pipelines("1"), Ok(Pipelines::One));
        assert_eq!(parse_pipelines("auto"), Ok(Pipelines::Auto));
        assert!(matches!(parse_pipelines("3"), Ok(Pipelines::Exactly(n)) if n.get() == 3));
        for bad in ["0", "-1", "two", "", "1.5", "99999999999"] {
            let error = parse_pipelines(bad).unwrap_err();
            assert!(error.contains(&format!("'{bad}'")), "{error}");
        }
    }

    #[test]
    fn a_cap_names_a_device_and_an_amount() {
        let (device, cap) = parse_cap("tower/CUDA0=20GiB").unwrap();
        assert_eq!((device.to_string().as_str(), cap), ("tower/CUDA0", Bytes::gib(20)));
        for bad in ["tower=20GiB", "tower/CUDA0", "tower/CUDA0=x", "/CUDA0=1"] {
            assert!(parse_cap(bad).is_err(), "{bad}");
        }
    }
}

/// [`plimsoll::PartPlace`] as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PartPlaceArg {
    Auto,
    Device,
    Host,
}

impl From<PartPlaceArg> for PartPlace {
    fn from(place: PartPlaceArg) -> Self {
        match place {
            PartPlaceArg::Auto => Self::Auto,
            PartPlaceArg::Device => Self::Device,
            PartPlaceArg::Host => Self::Host,
        }
    }
}

impl From<&OffloadArgs> for Offload {
    fn from(args: &OffloadArgs) -> Self {
        Self { experts: args.experts.into(), feed_forward: args.ffn.into() }
    }
}
