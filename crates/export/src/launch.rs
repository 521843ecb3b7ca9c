//! What is typed, and what is written to files, to carry a plan out.

use plimsoll_balance::{Plan, Stage};
use plimsoll_cluster::{ClusterSnapshot, Device, GpuBackend};
use plimsoll_units::{DeviceRef, NodeId};

use crate::engine_error::EngineError;
use crate::llama_cpp::{Command, LaunchLine};
use crate::plan_file::FileRecord;

/// Everything that carries a plan out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Export {
    /// A line for each process, in the order in which they are typed.
    pub lines: Vec<LaunchLine>,
    /// What the lines read beside the model.
    pub files: Vec<ExportFile>,
    /// What a person should know before typing it.
    pub notes: Vec<String>,
}

/// A file that an engine reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportFile {
    /// What the lines call it.
    pub name: String,
    /// All of it.
    pub text: String,
}

impl From<Command> for Export {
    fn from(command: Command) -> Self {
        let lines = command.rpc_servers.into_iter().chain([command.server]).collect();
        Self { lines, files: Vec::new(), notes: command.notes }
    }
}

impl FileRecord {
    /// A file as a saved plan keeps it: JSON as it is, any other text as a string.
    pub fn of(file: &ExportFile) -> Self {
        let text = file.text.as_str();
        Self { name: file.name.clone(), content: serde_json::from_str(text).unwrap_or_else(|_| text.into()) }
    }
}

/// What stands between the names of devices that share every layer, in the name of the whole.
pub const TOGETHER: char = '+';

/// The stages of the only copy that hold layers, each with its device.
pub(crate) fn only_copy<'a>(
    engine: &'static str,
    plan: &'a Plan,
    snapshot: &'a ClusterSnapshot,
) -> Result<Vec<(&'a Stage, &'a Device)>, EngineError> {
    let copies = plan.pipelines().count();
    if copies > 1 {
        return Err(EngineError::SeveralCopies { engine, copies });
    }
    with_devices(plan, snapshot)
}

/// The stages that hold layers, each with its device.
pub(crate) fn with_devices<'a>(
    plan: &'a Plan,
    snapshot: &'a ClusterSnapshot,
) -> Result<Vec<(&'a Stage, &'a Device)>, EngineError> {
    let holding = plan.stages.iter().filter(|stage| !stage.layers.is_empty());
    holding.map(|stage| Ok((stage, device(snapshot, &stage.device)?))).collect()
}

fn device<'a>(snapshot: &'a ClusterSnapshot, wanted: &DeviceRef) -> Result<&'a Device, EngineError> {
    let found = snapshot.device(wanted).map(|(_, device)| device);
    found.ok_or_else(|| EngineError::UnknownDevice { device: wanted.clone() })
}

/// The one node that all stages lie on.
pub(crate) fn one_node<'a>(
    engine: &'static str,
    stages: &[(&'a Stage, &'a Device)],
) -> Result<&'a NodeId, EngineError> {
    let mut nodes: Vec<&NodeId> = stages.iter().map(|(stage, _)| &stage.device.node).collect();
    nodes.sort();
    nodes.dedup();
    match nodes[..] {
        [node] => Ok(node),
        _ => Err(EngineError::SeveralNodes { engine, nodes: nodes.into_iter().cloned().collect() }),
    }
}

/// The variable that shows an engine these devices, in this order, so that the n-th of them is its number n; and what is
/// to be said of it. Hosts are not devices.
///
/// A driver's own name is the same under every numbering. Numbers are those of the runtime, which counts the fastest card
/// first unless it is told to count by bus: they are only as good as the names in the cluster file.
pub(crate) fn visible<'a>(devices: impl IntoIterator<Item = &'a Device>) -> (Option<String>, Option<String>) {
    let devices: Vec<&Device> = devices.into_iter().filter(|device| !device.is_host()).collect();
    let variable = match devices.first().map(|device| device.backend) {
        Some(GpuBackend::Cuda) => "CUDA_VISIBLE_DEVICES",
        Some(GpuBackend::Rocm) => "HIP_VISIBLE_DEVICES",
        _ => return (None, None),
    };
    let uuids: Option<Vec<&str>> = devices.iter().map(|device| device.uuid.as_deref()).collect();
    if let Some(uuids) = uuids.filter(|_| variable == "CUDA_VISIBLE_DEVICES") {
        return (Some(format!("{variable}={}", uuids.join(","))), None);
    }
    let names = devices.iter().flat_map(|device| device.id.as_str().split(TOGETHER));
    match names.map(ordinal).collect::<Option<Vec<u32>>>() {
        Some(numbers) => {
            let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
            let note = format!(
                "{variable} counts as the runtime does (the fastest card first, unless CUDA_DEVICE_ORDER=PCI_BUS_ID); with \
                 uuid = … in the cluster file it names each card by itself"
            );
            (Some(format!("{variable}={}", numbers.join(","))), Some(note))
        }
        None => {
            let names: Vec<&str> = devices.iter().map(|device| device.id.as_str()).collect();
            (None, Some(format!("set {variable} to the numbers of {} in this order", names.join(", "))))
        }
    }
}

/// The number at the end of a device's name (`CUDA1`: 1); `None` where there is none, or one that no machine has.
fn ordinal(name: &str) -> Option<u32> {
    let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
    digits.parse().ok().filter(|number| *number < 64)
}

/// The words of a line: the variables first, if there are any.
pub(crate) fn words(variables: Vec<String>, command: Vec<String>) -> Vec<String> {
    if variables.is_empty() {
        return command;
    }
    std::iter::once("env".to_owned()).chain(variables).chain(command).collect()
}

/// The length of a stage.
pub(crate) fn length(stage: &Stage) -> u32 {
    stage.layers.end.saturating_sub(stage.layers.start)
}
