//! llama.cpp: what it charges, how its command line is spelt, and what that line means to it.
//!
//! Facts: source and binary b11434 (2026-10). Older builds count `-ngl` without the output layer; they are not exported to.

mod charges;
mod command;
mod flags;
mod older;
mod overrides;
mod replay;
mod tensors;

pub use charges::{Blocks, CACHE_RAM, ComputeFacts, most_above, rules};
pub use command::{Command, ExportError, LaunchLine, ModelFacts, command};
pub use flags::{Assignment, BesideFlags, Flags, FlagsError, parse_flags};
pub use older::{VERSION as OLDER_VERSION, assign as older_assign, command as older_command};
pub use overrides::{is_dense_tensor, is_expert_tensor};
pub use replay::{Place, assign};
pub use tensors::{HOST_BUFFER, TensorRules};

/// The build whose rules these are.
pub const VERSION: &str = "b11434";

/// The most devices that `-ts` takes: `llama_max_devices()` is 16, and one entry less is accepted.
pub const MAX_DEVICES: u32 = 15;
