//! Profiles as text, where that takes more than a derive.

use plimsoll_units::BytesPerSec;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Absence;

/// A rate as bytes per second.
pub(crate) mod rate {
    use super::{BytesPerSec, Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "the form that serde asks for")]
    pub(crate) fn serialize<S: Serializer>(rate: &Option<BytesPerSec>, out: S) -> Result<S::Ok, S::Error> {
        rate.map(BytesPerSec::get).serialize(out)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<BytesPerSec>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(BytesPerSec::new))
    }
}

/// Every feature, library and call that an absence names.
const NAMES: &[&str] = &[
    "cpu",
    "cuda",
    "metal",
    "nvml",
    "vulkan",
    "libcuda",
    "libnvidia-ml",
    "libvulkan",
    "cuInit",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetAttribute",
    "cuDeviceGetUuid_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemsetD8_v2",
    "cuMemcpyDtoD_v2",
    "cuCtxSynchronize",
    "nvmlInit_v2",
    "nvmlShutdown",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetAttributes_v2",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetMemoryBusWidth",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "vkCreateInstance",
    "vkEnumeratePhysicalDevices",
];

/// An absence as it comes from text. Names that this version does not know make it plain words.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Spelled {
    NotCompiled { feature: String },
    NotAsked,
    NotHere,
    NoLibrary { library: String },
    MissingSymbol { symbol: String },
    Driver { call: String, code: i32 },
    NoDevice,
    Hidden,
    NoSlice,
    TimedOut { milliseconds: u64 },
    Crashed { how: String },
    Told { text: String },
    Moved { expected: String, found: String },
    NoFile { path: String },
    Unreadable { path: String, why: String },
    Garbled { what: String, text: String },
}

impl<'de> Deserialize<'de> for Absence {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Spelled::deserialize(from).map(Self::from)
    }
}

impl From<Spelled> for Absence {
    fn from(told: Spelled) -> Self {
        let known = |name: &str| NAMES.iter().copied().find(|known| *known == name);
        let words = |text: String| Self::Told { text };
        match told {
            Spelled::NotCompiled { feature } => match known(&feature) {
                Some(feature) => Self::NotCompiled { feature },
                None => words(format!("built without the feature '{feature}'")),
            },
            Spelled::NoLibrary { library } => match known(&library) {
                Some(library) => Self::NoLibrary { library },
                None => words(format!("no driver library '{library}'")),
            },
            Spelled::MissingSymbol { symbol } => match known(&symbol) {
                Some(symbol) => Self::MissingSymbol { symbol },
                None => words(format!("the driver library has no '{symbol}'")),
            },
            Spelled::Driver { call, code } => match known(&call) {
                Some(call) => Self::Driver { call, code },
                None => words(format!("{call} failed with code {code}")),
            },
            Spelled::NotAsked => Self::NotAsked,
            Spelled::NotHere => Self::NotHere,
            Spelled::NoDevice => Self::NoDevice,
            Spelled::Hidden => Self::Hidden,
            Spelled::NoSlice => Self::NoSlice,
            Spelled::TimedOut { milliseconds } => Self::TimedOut { milliseconds },
            Spelled::Crashed { how } => Self::Crashed { how },
            Spelled::Told { text } => Self::Told { text },
            Spelled::Moved { expected, found } => Self::Moved { expected, found },
            Spelled::NoFile { path } => Self::NoFile { path },
            Spelled::Unreadable { path, why } => Self::Unreadable { path, why },
            Spelled::Garbled { what, text } => Self::Garbled { what, text },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemProfile;

    fn back(absence: &Absence) -> Absence {
        serde_json::from_str(&serde_json::to_string(absence).unwrap()).unwrap()
    }

    #[test]
    fn a_profile_comes_back_as_it_went() {
        let here = SystemProfile::detect_fast();
        let text = serde_json::to_string(&here).unwrap();
        assert_eq!(serde_json::from_str::<SystemProfile>(&text).unwrap(), here);
    }

    #[test]
    fn an_absence_comes_back_as_it_went() {
        let text = || "x".to_owned();
        for absence in [
            Absence::NotCompiled { feature: "cuda" },
            Absence::NotAsked,
            Absence::NotHere,
            Absence::NoLibrary { library: "libnvidia-ml" },
            Absence::MissingSymbol { symbol: "nvmlShutdown" },
            Absence::Driver { call: "cuInit", code: -5 },
            Absence::NoDevice,
            Absence::Hidden,
            Absence::NoSlice,
            Absence::TimedOut { milliseconds: 2_000 },
            Absence::Crashed { how: text() },
            Absence::Told { text: text() },
            Absence::Moved { expected: text(), found: text() },
            Absence::NoFile { path: text() },
            Absence::Unreadable { path: text(), why: text() },
            Absence::Garbled { what: text(), text: text() },
        ] {
            assert_eq!(back(&absence), absence);
        }
        let stranger = r#"{"driver":{"call":"cuNew","code":7}}"#;
        let told: Absence = serde_json::from_str(stranger).unwrap();
        assert_eq!(told, Absence::Told { text: "cuNew failed with code 7".to_owned() });
    }

    #[test]
    fn every_call_that_is_made_is_known() {
        let sources =
            [include_str!("gpu/cuda.rs"), include_str!("gpu/nvml.rs"), include_str!("gpu/vulkan.rs")];
        let words = sources.iter().flat_map(|text| text.split(|c: char| !c.is_alphanumeric() && c != '_'));
        let is_call = |word: &&str| {
            let after = ["cu", "nvml", "vk"].iter().find_map(|start| word.strip_prefix(start));
            after.is_some_and(|rest| rest.starts_with(char::is_uppercase)) && !word.ends_with("_t")
        };
        for call in words.filter(is_call).filter(|word| !word.contains("_enum")) {
            assert!(NAMES.contains(&call), "{call}");
        }
    }
}
