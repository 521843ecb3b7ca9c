//! Why a plan cannot be said in an engine's words.

use plimsoll_model::CacheType;
use plimsoll_units::{DeviceRef, NodeId};

/// Why a plan cannot be said in the words of an engine other than llama.cpp.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// Several copies in one plan.
    #[error(
        "the plan runs {copies} copies side by side and {engine} starts one; plan with --pipelines 1 and start it again for each"
    )]
    SeveralCopies {
        /// The engine.
        engine: &'static str,
        /// How many copies the plan has.
        copies: usize,
    },
    /// Several nodes for an engine that runs on one.
    #[error("{engine} runs on one node and the plan uses {}: {}; plan with --only {}", nodes.len(), list(nodes), nodes.first().map_or("NODE", NodeId::as_str))]
    SeveralNodes {
        /// The engine.
        engine: &'static str,
        /// The nodes of the plan.
        nodes: Vec<NodeId>,
    },
    /// A node is reached twice, with another one in between.
    #[error(
        "{engine} numbers ranks node by node, and the plan comes back to node {node}; plan with --strategy given-order"
    )]
    NodeAgain {
        /// The engine.
        engine: &'static str,
        /// The node.
        node: NodeId,
    },
    /// Nodes with unlike numbers of ranks.
    #[error(
        "{engine} runs as many ranks on each node, and the plan has {ranks} on {node} and {others} on {other}; plan with --only {node}, or with fewer devices"
    )]
    UnevenNodes {
        /// The engine.
        engine: &'static str,
        /// A node.
        node: NodeId,
        /// Its ranks.
        ranks: usize,
        /// Another one.
        other: NodeId,
        /// Its ranks.
        others: usize,
    },
    /// A form of the cache that the engine does not have.
    #[error("{engine} has no cache of {cache_type}; the nearest is --cache-type-{part} {nearest}")]
    CacheType {
        /// The engine.
        engine: &'static str,
        /// `k` or `v`.
        part: char,
        /// What was asked for.
        cache_type: CacheType,
        /// What it has.
        nearest: CacheType,
    },
    /// Keys and values of two forms.
    #[error(
        "{engine} keeps keys and values in one form, and {keys} and {values} were asked for; the nearest is {keys} for both"
    )]
    TwoCacheTypes {
        /// The engine.
        engine: &'static str,
        /// The form of keys.
        keys: CacheType,
        /// The form of values.
        values: CacheType,
    },
    /// The host holds something that the engine keeps on devices.
    #[error("{engine} keeps layers on devices only, and the plan has some on {host}")]
    OnHost {
        /// The engine.
        engine: &'static str,
        /// The host.
        host: DeviceRef,
    },
    /// No one share of the memory suits all devices.
    #[error(
        "{flag} is one number for all devices: {needs} needs {need_bytes} of {need_of} bytes and {allows} allows {most_bytes} of {most_of}; cap {needs}, or raise what {allows} may use"
    )]
    NoShare {
        /// The flag.
        flag: &'static str,
        /// The device that needs the largest share.
        needs: DeviceRef,
        /// What it needs.
        need_bytes: u64,
        /// Of what.
        need_of: u64,
        /// The device that allows the smallest one.
        allows: DeviceRef,
        /// What it allows.
        most_bytes: u64,
        /// Of what.
        most_of: u64,
    },
    /// The engine splits such a model not at all.
    #[error("{engine} cannot run {architecture} in a pipeline; the nearest is one device: --max-devices 1")]
    NoPipeline {
        /// The engine.
        engine: &'static str,
        /// The model's family.
        architecture: String,
    },
    /// Several devices of one node for an engine that runs one process on each.
    #[error(
        "{engine} runs one process on a node, and the plan has {devices} devices of {node}; cap or leave out all but one"
    )]
    SeveralOfNode {
        /// The engine.
        engine: &'static str,
        /// The node.
        node: NodeId,
        /// How many devices of it the plan has.
        devices: usize,
    },
    /// A form of model that the engine does not read.
    #[error("{engine} does not run {form}; {nearest}")]
    Form {
        /// The engine.
        engine: &'static str,
        /// What the model is.
        form: &'static str,
        /// What runs it, or what the engine does run.
        nearest: &'static str,
    },
    /// Several ranks of every layer for an engine that has one.
    #[error(
        "{engine} gives every layer to one device, and --tensor-parallel {ranks} shares it out; vllm and sglang do that"
    )]
    NoTensorParallel {
        /// The engine.
        engine: &'static str,
        /// How many were asked for.
        ranks: u32,
    },
    /// Heads that cannot be shared out evenly.
    #[error(
        "the {heads} heads ({kv_heads} of keys and values) of a layer cannot be shared out evenly to {ranks} devices; the nearest is --tensor-parallel {nearest}, and {} stages one after the other", ranks / (*nearest).max(1)
    )]
    Heads {
        /// The query heads.
        heads: u64,
        /// The key-value heads.
        kv_heads: u64,
        /// How many devices were to share them.
        ranks: u32,
        /// The largest divisor of that number which divides them.
        nearest: u32,
    },
    /// A model that tells no heads cannot be shared out.
    #[error(
        "the model tells no heads, so that --tensor-parallel {ranks} cannot share them out; the nearest is --tensor-parallel 1"
    )]
    NoHeads {
        /// How many devices were to share them.
        ranks: u32,
    },
    /// No node has so many equal devices.
    #[error(
        "no node has the {ranks} equal devices that --tensor-parallel {ranks} shares every layer between; the most is {most}"
    )]
    NoEqualDevices {
        /// How many were asked for.
        ranks: u32,
        /// The most equal devices of one node.
        most: u32,
    },
    /// Adapters, of which it is not known what they take.
    #[error("adapters (--lora) cannot be planned under {engine}: {why}; plan for llama.cpp, or without them")]
    NoAdapters {
        /// The engine.
        engine: &'static str,
        /// Why not.
        why: &'static str,
    },
    /// A device is not in the snapshot.
    #[error("the plan uses {device}, which the cluster does not have")]
    UnknownDevice {
        /// The device.
        device: DeviceRef,
    },
    /// Layers without names that the engine can be told.
    #[error(
        "the tensors of the layers have no module with a number in their names ({tensor}): a device map cannot name them"
    )]
    NoModules {
        /// A tensor.
        tensor: String,
    },
    /// The modules of the checkpoint are not known.
    #[error("{engine} is told each module by name, and only a safetensors checkpoint tells those")]
    NoNames {
        /// The engine.
        engine: &'static str,
    },
}

fn list(nodes: &[NodeId]) -> String {
    nodes.iter().map(NodeId::as_str).collect::<Vec<_>>().join(", ")
}
