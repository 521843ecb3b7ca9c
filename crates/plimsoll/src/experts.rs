//! Which parts of layers may lie on the main host.

use plimsoll_balance::{EngineRules, Movable, MoveWhen, Part, PartClass, StageCharges};
use plimsoll_export::llama_cpp::{is_dense_tensor, is_expert_tensor};
use plimsoll_model::Padding;
use plimsoll_units::Bytes;

use crate::engine::Engine;
use crate::job::Job;

/// Batches below this are computed where the weights lie; for larger ones the engine copies them to its first device.
const COPIED_FROM: u32 = 32;

/// Where parts of layers lie that a host can hold for a device: one answer for experts, one for dense feed-forward blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// The experts of a model that has some.
    pub experts: PartPlace,
    /// The feed-forward blocks of a model without experts.
    pub feed_forward: PartPlace,
}

/// Where a part of a layer lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartPlace {
    /// On the host where whole layers would lie there or nothing would fit, if that is better; else with its layer.
    #[default]
    Auto,
    /// Always with its layer.
    Device,
    /// Always on the host.
    Host,
}

impl PartPlace {
    const fn when(self) -> Option<MoveWhen> {
        match self {
            Self::Auto => Some(MoveWhen::Needed),
            Self::Device => None,
            Self::Host => Some(MoveWhen::Always),
        }
    }
}

impl Default for Offload {
    /// Experts where it helps, feed-forward blocks never: a token reads all of these, so that their place is a device.
    fn default() -> Self {
        Self { experts: PartPlace::Auto, feed_forward: PartPlace::Device }
    }
}

impl Job<'_> {
    /// The parts that may move, in as many kinds of buffers as there are footprints: the host's first, then those of
    /// devices.
    pub(crate) fn movable(&self, footprints: usize, rules: &EngineRules) -> Option<Movable> {
        if self.engine != Engine::LlamaCpp {
            return None;
        }
        let (class, pick, place): (_, fn(&str) -> bool, _) = if self.model.has_tensor(is_expert_tensor) {
            (PartClass::Experts, is_expert_tensor, self.offload.experts)
        } else {
            (PartClass::FeedForward, is_dense_tensor, self.offload.feed_forward)
        };
        let when = place.when()?;
        self.model.has_tensor(pick).then(|| self.parts(footprints, rules, class, when, pick))
    }

    /// The tensors that are picked, as parts that may move.
    pub(crate) fn parts(
        &self,
        footprints: usize,
        rules: &EngineRules,
        class: PartClass,
        when: MoveWhen,
        pick: impl Fn(&str) -> bool,
    ) -> Movable {
        let row = |padding: Padding| -> Vec<Part> {
            let parts = self.model.layer_parts(padding, &pick).into_iter();
            parts
                .map(|part| Part { weights_bytes: part.weights_bytes, read_bytes: part.read_bytes })
                .collect()
        };
        let own = std::iter::once(self.request.engine.padding);
        let rows = own.chain(std::iter::repeat(Padding::Cuda)).take(footprints).map(row);
        Movable {
            class,
            when,
            parts: rows.collect(),
            charges: self.with_copies(&rules.charges.partial, pick),
        }
    }

    /// What devices pay beside a host that computes, and room for the largest tensor that is copied from there for long
    /// batches. The engine copies to its first device that is its own; which one that is, is not known before where some
    /// are remote, and then every device keeps the room.
    fn with_copies(&self, charges: &StageCharges, pick: impl Fn(&str) -> bool) -> StageCharges {
        let copied = self.request.micro_batch.min(self.request.batch) >= COPIED_FROM;
        let copy = if copied { self.model.largest_tensor(Padding::Cuda, pick) } else { Bytes::ZERO };
        let mut charges = *charges;
        let room = if self.snapshot.nodes.len() > 1 { &mut charges.each } else { &mut charges.first_more };
        *room = room.saturating_add(copy);
        charges
    }
}
