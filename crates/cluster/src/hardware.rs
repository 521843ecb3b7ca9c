//! The hardware snapshot that llama-swap gives (`GET /api/hardware`), as a cluster of one node.
//!
//! It is taken once when that program starts: it says what memory there is and never what is free, so all of it is taken for
//! free, as in a cluster file that says nothing else. What it does not know (`null`) stays unknown: an accelerator without a
//! capacity is left out and told of in [`Imported::notes`], never counted as nothing or as everything. Memory that an
//! accelerator shares with the system (`unified`, `shared_system`) is a limit on the host's pool and counts once.

use plimsoll_profile::GpuBackend;
use plimsoll_units::{Bytes, DeviceId, Generation, NodeId, PoolId};
use serde_json::{Map, Value};

use crate::snapshot::{host_device, ram};
use crate::{ClusterSnapshot, Device, Node, NodeStatus, Pool};

/// The version of the snapshot that is understood.
const VERSION: u64 = 1;

/// The longest snapshot that is read, in bytes.
pub const LONGEST: u64 = 1 << 20;

/// The most accelerators of a machine.
const MOST_ACCELERATORS: usize = 1024;

/// No memory is larger: 2^60 bytes are a million terabytes.
const MOST_BYTES: u64 = 1 << 60;

/// A snapshot as a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// One node, which runs the engine.
    pub snapshot: ClusterSnapshot,
    /// What was left out, and what had to be assumed.
    pub notes: Vec<String>,
}

/// Why a text is not taken as a hardware snapshot. Nothing of it is used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HardwareError {
    /// Too long to be meant.
    #[error("the hardware snapshot has more than {LONGEST} bytes")]
    TooLong,
    /// Not JSON.
    #[error("the hardware snapshot is not valid JSON, line {line} column {column}")]
    Json {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
    },
    /// Some other JSON.
    #[error("this JSON is no hardware snapshot of llama-swap: it has no 'schema_version'")]
    NoVersion,
    /// Another version.
    #[error("'schema_version' is {found}; version {VERSION} is understood")]
    Version {
        /// What it says.
        found: String,
    },
    /// A field that does not say what it has to.
    #[error("'{field}' is {found}; expected {expected}")]
    Field {
        /// Where it stands, such as `accelerators[1].memory.kind`.
        field: String,
        /// What it says.
        found: String,
        /// What it may say.
        expected: &'static str,
    },
    /// More accelerators than a machine has.
    #[error("'accelerators' lists {found}; at most {MOST_ACCELERATORS} are read")]
    TooMany {
        /// How many.
        found: usize,
    },
    /// Nothing to plan with.
    #[error("the hardware snapshot knows of no memory: write a cluster file")]
    NoMemory,
}

/// Whether a text is meant as JSON: no cluster file begins with a brace.
#[must_use]
pub fn is_meant(text: &str) -> bool {
    text.trim_start_matches('\u{feff}').trim_start().starts_with('{')
}

/// Reads a hardware snapshot; the snapshot names no machine, so `id` does.
///
/// Accelerators are named as the engine names them, by their maker (`CUDA0`, `ROCm0`, `Vulkan0`, `MTL0`), numbered in the
/// order of the snapshot.
///
/// ```
/// use plimsoll_cluster::hardware::parse_hardware;
/// use plimsoll_units::{Bytes, NodeId};
///
/// let text = r#"{"schema_version": 1, "memory": {"capacity_bytes": 68719476736}, "accelerators": [
///     {"index": 0, "kind": "gpu", "vendor": "NVIDIA", "model": "RTX 3090",
///      "memory": {"kind": "dedicated", "capacity_bytes": 25769803776}}]}"#;
/// let imported = parse_hardware(text, NodeId::new("box")?)?;
/// let node = &imported.snapshot.nodes[0];
/// assert_eq!((node.devices[1].id.as_str(), node.pools[1].total), ("CUDA0", Bytes::gib(24)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Not such a snapshot, another version of it, or a field that says what cannot be: the error names the field and its value.
pub fn parse_hardware(text: &str, id: NodeId) -> Result<Imported, HardwareError> {
    if u64::try_from(text.len()).is_ok_and(|len| len > LONGEST) {
        return Err(HardwareError::TooLong);
    }
    let text = text.trim_start_matches('\u{feff}');
    let root: Value = serde_json::from_str(text)
        .map_err(|error| HardwareError::Json { line: error.line(), column: error.column() })?;
    let root = root.as_object().ok_or(HardwareError::NoVersion)?;
    match root.get("schema_version") {
        None => return Err(HardwareError::NoVersion),
        Some(version) if version.as_u64() == Some(VERSION) => {}
        Some(version) => return Err(HardwareError::Version { found: shown(version) }),
    }
    let mut reader = Reader { node: empty(id), notes: Vec::new() };
    reader.host(root)?;
    for (index, accelerator) in accelerators(root)?.iter().enumerate() {
        reader.accelerator(index, accelerator)?;
    }
    reader.end()
}

fn empty(id: NodeId) -> Node {
    let (pools, devices) = (Vec::new(), Vec::new());
    Node { id, status: NodeStatus::Active, drained: false, main: true, rpc: None, pools, devices }
}

/// The list of accelerators; one that is not there is an empty one.
fn accelerators(root: &Map<String, Value>) -> Result<&[Value], HardwareError> {
    match root.get("accelerators") {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(list)) if list.len() > MOST_ACCELERATORS => {
            Err(HardwareError::TooMany { found: list.len() })
        }
        Some(Value::Array(list)) => Ok(list),
        Some(other) => Err(field("accelerators", other, "a list")),
    }
}

/// What was read so far.
struct Reader {
    node: Node,
    notes: Vec<String>,
}

impl Reader {
    fn host(&mut self, root: &Map<String, Value>) -> Result<(), HardwareError> {
        let memory = object(root.get("memory"), "memory")?;
        match capacity(memory, "memory")? {
            Some(total) => {
                self.node.pools.push(pool(ram(), total));
                self.node.devices.push(host_device(None));
            }
            None => {
                self.notes.push("the memory of the host is not known: nothing is placed there".to_owned())
            }
        }
        Ok(())
    }

    fn accelerator(&mut self, index: usize, value: &Value) -> Result<(), HardwareError> {
        let path = format!("accelerators[{index}]");
        let accelerator = object(Some(value), &path)?;
        let get = |key: &str| accelerator.and_then(|accelerator| accelerator.get(key));
        let text = |key: &str| text(get(key), &format!("{path}.{key}"));
        let number = get("index").filter(|number| !number.is_null());
        if let Some(number) = number.filter(|number| number.as_u64() != u64::try_from(index).ok()) {
            return Err(field(&format!("{path}.index"), number, "its place in the list"));
        }
        let (kind, vendor, model) = (text("kind")?, text("vendor")?, text("model")?);
        let name =
            model.clone().or_else(|| vendor.clone()).unwrap_or_else(|| "of an unknown make".to_owned());
        let memory_path = format!("{path}.memory");
        let memory = object(get("memory"), &memory_path)?;
        let form = self::text(memory.and_then(|memory| memory.get("kind")), &format!("{memory_path}.kind"))?;
        let capacity = capacity(memory, &memory_path)?;
        let is_gpu = one_of(kind.as_deref(), &["gpu", "npu", "other"]).ok_or_else(|| {
            field(&format!("{path}.kind"), get("kind").unwrap_or(&Value::Null), "gpu, npu or other")
        })? == Some("gpu");
        let form = one_of(form.as_deref(), &["dedicated", "unified", "shared_system", "unknown"]);
        let form = form.ok_or_else(|| {
            let found = memory.and_then(|memory| memory.get("kind")).unwrap_or(&Value::Null);
            field(&format!("{memory_path}.kind"), found, "dedicated, unified, shared_system or unknown")
        })?;
        let mut left_out =
            |why: &str| self.notes.push(format!("accelerator {index} '{name}' is left out: {why}"));
        let Some((backend, prefix)) = backend(vendor.as_deref()) else {
            left_out("its maker is not known, so nothing tells what drives it");
            return Ok(());
        };
        let Some(capacity) = capacity else {
            left_out("how much memory it has is not known");
            return Ok(());
        };
        let host = self.node.pools.iter().find(|pool| pool.id == ram()).map(|pool| pool.total);
        let limit = match (is_gpu, form, host) {
            (false, ..) => {
                left_out("it is no GPU");
                return Ok(());
            }
            (true, Some("dedicated"), _) => None,
            (true, Some("unified" | "shared_system"), Some(host)) => Some(capacity.min(host)),
            (true, Some("unified" | "shared_system"), None) => {
                left_out("it shares the host's memory, which is not known");
                return Ok(());
            }
            (true, ..) => {
                left_out("whether its memory is its own is not known");
                return Ok(());
            }
        };
        self.add(prefix, backend, model, (capacity, limit.map(|limit| (limit, host))));
        Ok(())
    }

    /// A device with a pool of its own, or with a limit on the host's.
    fn add(
        &mut self,
        prefix: &str,
        backend: GpuBackend,
        name: Option<String>,
        (capacity, shared): (Bytes, Option<(Bytes, Option<Bytes>)>),
    ) {
        let number = self.node.devices.iter().filter(|device| device.backend == backend).count();
        let id = format!("{prefix}{number}");
        let (pool_id, limit) = match shared {
            Some((limit, host)) => (ram(), Some(limit).filter(|limit| Some(*limit) != host)),
            None => {
                let pool_id = PoolId::new(&id).expect("letters and digits are a pool id");
                self.node.pools.push(pool(pool_id.clone(), capacity));
                (pool_id, None)
            }
        };
        let id = DeviceId::new(&id).expect("letters and digits are a device id");
        self.node.devices.push(Device {
            id,
            name,
            pool: pool_id,
            limit,
            backend,
            bandwidth: None,
            uuid: None,
        });
    }

    fn end(mut self) -> Result<Imported, HardwareError> {
        if self.node.pools.is_empty() {
            return Err(HardwareError::NoMemory);
        }
        self.notes
            .push("the snapshot does not say what is free: all of the memory is taken for free".to_owned());
        let cuda = self.node.devices.iter().filter(|device| device.backend == GpuBackend::Cuda);
        let names: Vec<_> = cuda.map(|device| &device.name).collect();
        if names.windows(2).any(|pair| pair[0] != pair[1]) {
            let text = "the numbers of unlike cards follow the snapshot: see whether the engine numbers them in the same way";
            self.notes.push(text.to_owned());
        }
        let (generation, links) = (Generation::FIRST, Vec::new());
        Ok(Imported {
            snapshot: ClusterSnapshot { generation, nodes: vec![self.node], links },
            notes: self.notes,
        })
    }
}

/// What drives the cards of a maker, and what the engine calls them.
fn backend(vendor: Option<&str>) -> Option<(GpuBackend, &'static str)> {
    let vendor = vendor?.to_ascii_lowercase();
    let makers = [
        ("nvidia", GpuBackend::Cuda, "CUDA"),
        ("amd", GpuBackend::Rocm, "ROCm"),
        ("advanced micro devices", GpuBackend::Rocm, "ROCm"),
        ("intel", GpuBackend::Vulkan, "Vulkan"),
        ("apple", GpuBackend::Metal, "MTL"),
    ];
    makers.iter().find(|(maker, ..)| vendor.starts_with(maker)).map(|&(_, backend, prefix)| (backend, prefix))
}

fn pool(id: PoolId, total: Bytes) -> Pool {
    Pool { id, total, reserve: None, cap: None, free: Some(total), held: Bytes::ZERO }
}

/// An object; nothing where it is unknown.
fn object<'a>(value: Option<&'a Value>, path: &str) -> Result<Option<&'a Map<String, Value>>, HardwareError> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(other) => Err(field(path, other, "an object")),
    }
}

/// A text; nothing where it is unknown.
fn text(value: Option<&Value>, path: &str) -> Result<Option<String>, HardwareError> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => {
            let text: String = text.chars().filter(|c| !c.is_control()).take(120).collect();
            let text = text.trim();
            Ok((!text.is_empty()).then(|| text.to_owned()))
        }
        Some(other) => Err(field(path, other, "a text")),
    }
}

/// The capacity of a memory; nothing where it is unknown.
fn capacity(memory: Option<&Map<String, Value>>, path: &str) -> Result<Option<Bytes>, HardwareError> {
    let value = match memory.and_then(|memory| memory.get("capacity_bytes")) {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value,
    };
    let good = value.as_u64().filter(|bytes| (1..=MOST_BYTES).contains(bytes));
    let expected = "a number of bytes from 1 to 2^60, or null where it is not known";
    good.map(|bytes| Some(Bytes::new(bytes)))
        .ok_or_else(|| field(&format!("{path}.capacity_bytes"), value, expected))
}

/// A word that is one of these, or nothing at all; `None` for any other.
fn one_of<'a>(word: Option<&str>, known: &[&'a str]) -> Option<Option<&'a str>> {
    let Some(word) = word else { return Some(None) };
    known.iter().find(|known| **known == word).map(|known| Some(*known))
}

fn field(path: &str, found: &Value, expected: &'static str) -> HardwareError {
    HardwareError::Field { field: path.to_owned(), found: shown(found), expected }
}

/// A value in an error: short, on one line.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        other => {
            let text: String = other.to_string().chars().filter(|c| !c.is_control()).take(60).collect();
            text
        }
    }
}
