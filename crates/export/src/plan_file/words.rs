//! The words of a plan file, and sentences for what a plan reports.

use plimsoll_balance::{
    Assumption, MoveWhen, Objective, PartClass, Pipelines, StoppedBy, Strategy, Transfers,
};
use plimsoll_model::{CacheType, EngineProfile, FlashAttention};

use super::{FormatError, PipelinesRecord};

/// As many pipelines as pay.
pub(super) const AUTO: &str = "auto";

pub(super) fn objective(word: &str) -> Result<Objective, FormatError> {
    match word {
        "fit" => Ok(Objective::Fit),
        "throughput" => Ok(Objective::Throughput),
        "latency" => Ok(Objective::Latency),
        "balanced" => Ok(Objective::Balanced),
        other => Err(FormatError::Word {
            key: "request.objective",
            value: other.to_owned(),
            known: "fit, throughput, latency, balanced",
        }),
    }
}

pub(super) fn strategy(word: &str) -> Result<Strategy, FormatError> {
    match word {
        "portfolio" => Ok(Strategy::Portfolio),
        "capacity-descending" => Ok(Strategy::CapacityDescending),
        "given-order" => Ok(Strategy::GivenOrder),
        other => Err(FormatError::Word {
            key: "request.strategy",
            value: other.to_owned(),
            known: "portfolio, capacity-descending, given-order",
        }),
    }
}

pub(super) fn pipelines(record: Option<&PipelinesRecord>) -> Result<Pipelines, FormatError> {
    match record {
        None => Ok(Pipelines::One),
        Some(PipelinesRecord::Count(count)) => Ok(Pipelines::Exactly(*count)),
        Some(PipelinesRecord::Word(word)) if word == AUTO => Ok(Pipelines::Auto),
        Some(PipelinesRecord::Word(other)) => Err(FormatError::Word {
            key: "request.pipelines",
            value: other.to_owned(),
            known: "a number from 1, auto",
        }),
    }
}

pub(super) fn transfers(word: &str) -> Result<Transfers, FormatError> {
    let all = [Transfers::Apart, Transfers::Overlapped, Transfers::Added];
    all.into_iter().find(|transfers| transfers_word(*transfers) == word).ok_or_else(|| FormatError::Word {
        key: "request.transfers",
        value: word.to_owned(),
        known: "apart, overlapped, added",
    })
}

pub(super) fn part_class(key: &'static str, word: &str) -> Result<PartClass, FormatError> {
    let all = [PartClass::Experts, PartClass::FeedForward, PartClass::Tensors];
    all.into_iter().find(|class| class.name() == word).ok_or_else(|| FormatError::Word {
        key,
        value: word.to_owned(),
        known: "experts, ffn, tensors",
    })
}

pub(super) fn move_when(word: &str) -> Result<MoveWhen, FormatError> {
    let all = [MoveWhen::Needed, MoveWhen::Always];
    all.into_iter().find(|when| move_when_word(*when) == word).ok_or_else(|| FormatError::Word {
        key: "model.movable.when",
        value: word.to_owned(),
        known: "needed, always",
    })
}

pub(super) const fn move_when_word(when: MoveWhen) -> &'static str {
    match when {
        MoveWhen::Needed => "needed",
        MoveWhen::Always => "always",
    }
}

pub(super) fn cache_type(key: &'static str, word: &str) -> Result<CacheType, FormatError> {
    word.parse().map_err(|_| FormatError::Word {
        key,
        value: word.to_owned(),
        known: "f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0, q5_1",
    })
}

pub(super) fn flash(word: &str) -> Result<FlashAttention, FormatError> {
    match word {
        "on" => Ok(FlashAttention::On),
        "off" => Ok(FlashAttention::Off),
        "auto" => Ok(FlashAttention::Auto),
        other => Err(FormatError::Word {
            key: "request.flash_attn",
            value: other.to_owned(),
            known: "on, off, auto",
        }),
    }
}

pub(super) fn engine(word: &str) -> Result<EngineProfile, FormatError> {
    let known = EngineProfile::by_name(word);
    known.ok_or_else(|| FormatError::Word {
        key: "request.engine.name",
        value: word.to_owned(),
        known: "llama.cpp, ik_llama.cpp, vllm, sglang, mistral.rs, accelerate, petals, exo, none",
    })
}

/// The word for an objective in files and on the command line.
pub const fn objective_word(objective: Objective) -> &'static str {
    match objective {
        Objective::Fit => "fit",
        Objective::Throughput => "throughput",
        Objective::Latency => "latency",
        Objective::Balanced => "balanced",
    }
}

pub(super) const fn strategy_word(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Portfolio => "portfolio",
        Strategy::CapacityDescending => "capacity-descending",
        Strategy::GivenOrder => "given-order",
    }
}

pub(super) const fn flash_word(flash: FlashAttention) -> &'static str {
    match flash {
        FlashAttention::On => "on",
        FlashAttention::Off => "off",
        FlashAttention::Auto => "auto",
    }
}

/// The word for how transfers count, in files and on the command line.
pub const fn transfers_word(transfers: Transfers) -> &'static str {
    match transfers {
        Transfers::Apart => "apart",
        Transfers::Overlapped => "overlapped",
        Transfers::Added => "added",
    }
}

/// Why a device takes no more, in words.
pub fn stopped_text(reason: &StoppedBy) -> String {
    match reason {
        StoppedBy::Layer { index, needs, room } => {
            format!("layer {index} needs {} bytes and {} are left", needs.get(), room.get())
        }
        StoppedBy::Overhead { needs, budget } => {
            format!(
                "the engine takes {} bytes beside the layers and its budget is {}",
                needs.get(),
                budget.get()
            )
        }
        StoppedBy::Drained => "its node is drained".to_owned(),
        StoppedBy::Failed => "its node does not answer".to_owned(),
        StoppedBy::FreeUnknown => "what is free there is not known".to_owned(),
        StoppedBy::NotAsked => "its node is not among those to use".to_owned(),
        StoppedBy::DeviceLimit { limit } => format!("no more than {limit} devices may be used"),
        StoppedBy::Pinned { index, device } => format!("layer {index} is pinned to {device}"),
        StoppedBy::NotNeeded => "more on it would make the plan no better".to_owned(),
    }
}

/// What was assumed, in words.
pub fn assumption_text(assumption: &Assumption) -> String {
    match assumption {
        Assumption::Bandwidth { device, rate, by_name } => {
            format!("{device} bandwidth {rate} ({})", if *by_name { "by name" } else { "by kind" })
        }
        Assumption::Link { between: [a, b], rate, latency } => {
            format!("{a} to {b} at {rate}, {latency:?} (the cluster does not tell all of it)")
        }
        Assumption::UnknownSpeed { device } => {
            format!("{device} is as fast as the others (nothing is known of it)")
        }
    }
}
