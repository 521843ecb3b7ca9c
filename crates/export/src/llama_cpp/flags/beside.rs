//! What a command line loads beside its model.

use plimsoll_cluster::ClusterSnapshot;
use plimsoll_units::DeviceRef;

use super::{Flags, FlagsError, gpu_layers};

/// What a command line loads beside its model: names of files, as they stand there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BesideFlags {
    /// A projector.
    pub projector: Option<String>,
    /// Whether the projector stays on the host.
    pub projector_on_host: bool,
    /// A draft model.
    pub draft: Option<String>,
    /// The devices of the draft model; `None` where the line names none.
    pub draft_devices: Option<Vec<String>>,
    /// How many indices of the draft model go to devices; -1 stands for all.
    pub draft_layers: i64,
    /// Adapters, with a strength where the line tells one.
    pub adapters: Vec<(String, Option<f32>)>,
}

impl BesideFlags {
    pub(super) fn none() -> Self {
        Self { draft_layers: -1, ..Self::default() }
    }

    /// Whether the line loads nothing beside its model.
    pub fn is_empty(&self) -> bool {
        self.projector.is_none() && self.draft.is_none() && self.adapters.is_empty()
    }

    /// The flags, as they came, of what is not `looked_at`: projector, draft model, adapters.
    pub fn left_out(&self, looked_at: [bool; 3]) -> Vec<String> {
        let [projector, draft, adapters] = looked_at;
        let projector = self.projector.iter().filter(|_| !projector).map(|file| format!("--mmproj {file}"));
        let draft = self.draft.iter().filter(|_| !draft).map(|file| format!("-md {file}"));
        let adapters = self.adapters.iter().filter(|_| !adapters);
        let adapters = adapters.map(|(file, scale)| match scale {
            None => format!("--lora {file}"),
            Some(scale) => format!("--lora-scaled {file}:{scale}"),
        });
        projector.chain(draft).chain(adapters).collect()
    }
}

/// Takes in a flag with its value; false when it loads nothing.
pub(super) fn valued(flags: &mut Flags, flag: &str, value: &str) -> Result<bool, FlagsError> {
    let beside = &mut flags.beside;
    let wrong = |expected: &'static str| FlagsError::Value {
        flag: flag.to_owned(),
        value: value.to_owned(),
        expected,
    };
    match flag {
        "-mm" | "--mmproj" => beside.projector = Some(value.to_owned()),
        "-md" | "--model-draft" | "--spec-draft-model" => beside.draft = Some(value.to_owned()),
        "-devd" | "--device-draft" | "--spec-draft-device" => {
            beside.draft_devices = Some(value.split(',').map(str::to_owned).collect());
        }
        "-ngld" | "--gpu-layers-draft" | "--n-gpu-layers-draft" | "--spec-draft-ngl" => {
            beside.draft_layers = gpu_layers(value).ok_or_else(|| wrong("it takes a number, auto or all"))?;
        }
        "--lora" => beside.adapters.extend(value.split(',').map(|file| (file.to_owned(), None))),
        "--lora-scaled" => {
            for part in value.split(',') {
                let scaled = part.split_once(':').and_then(|(file, scale)| {
                    let scale: f32 = scale.parse().ok()?;
                    (!file.is_empty() && scale.is_finite()).then(|| (file.to_owned(), Some(scale)))
                });
                beside.adapters.push(scaled.ok_or_else(|| wrong("it takes FILE:SCALE"))?);
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Whether one of the flags above needs a value.
pub(super) fn takes_value(flag: &str) -> bool {
    const WITH_VALUE: [&str; 14] = [
        "-mm",
        "--mmproj",
        "-md",
        "--model-draft",
        "--spec-draft-model",
        "-devd",
        "--device-draft",
        "--spec-draft-device",
        "-ngld",
        "--gpu-layers-draft",
        "--n-gpu-layers-draft",
        "--spec-draft-ngl",
        "--lora",
        "--lora-scaled",
    ];
    WITH_VALUE.contains(&flag)
}

impl Flags {
    /// The devices of the draft model as the line names them, or `None` where it names none; empty for the host.
    ///
    /// # Errors
    ///
    /// A device or a server that the cluster does not have, or no node to run the engine on.
    pub fn draft_devices(&self, snapshot: &ClusterSnapshot) -> Result<Option<Vec<DeviceRef>>, FlagsError> {
        let main = snapshot.main_node().map_err(|_| FlagsError::NoMainNode)?;
        let names = self.beside.draft_devices.as_deref();
        names.map(|names| self.devices_named("-devd", names, snapshot, main)).transpose()
    }
}
