//! Scenarios from TOML.

mod text;

use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_balance::{Objective, PlanOptions, Workload};
use plimsoll_cluster::file::{ClusterFileError, parse_cluster, read_cluster};
use plimsoll_cluster::{ClusterSnapshot, Link, Node};
use plimsoll_model::list::parse_list_toml;
use plimsoll_model::{ContextLength, EngineProfile, ModelSpec, OpenError, Request};
use plimsoll_units::{Bytes, Generation, NodeId};
use toml::{Spanned, Table};

use self::text::{EventText, Flap, Fleet, Join, ModelText, ObjectiveText, Outside, Text};
use crate::scenario::{Event, Happening, Scenario, Unsound, Wanted};

/// The longest scenario that is read, in bytes.
const LONGEST: u64 = 16 << 20;

/// The most nodes of one fleet.
const MOST_NODES: u32 = 100_000;

/// Why a text is not a scenario.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is too long to be meant.
    #[error("{} has {found} bytes; at most {LONGEST} are read", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// How long it is.
        found: u64,
    },
    /// Not TOML, an unknown key, or a value of the wrong kind.
    #[error("line {line}: {message}")]
    Text {
        /// Where.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// A cluster file that the scenario names, or machines that it describes.
    #[error("{what}")]
    Cluster {
        /// Which part of the scenario.
        what: String,
        /// What is wrong with it.
        #[source]
        source: Box<ClusterFileError>,
    },
    /// A model file that the scenario names.
    #[error("model '{name}'")]
    Model {
        /// The model.
        name: String,
        /// What is wrong with it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It can be read, and not be run.
    #[error(transparent)]
    Unsound(#[from] Unsound),
}

/// Where files that a scenario names come from.
pub trait Source {
    /// Reads a cluster file.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is none.
    fn cluster(&self, path: &Path) -> Result<ClusterSnapshot, ClusterFileError>;

    /// Reads the header of a model.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is none.
    fn model(&self, path: &Path) -> Result<ModelSpec, OpenError>;
}

/// Files below a folder.
struct Folder<'a>(&'a Path);

impl Source for Folder<'_> {
    fn cluster(&self, path: &Path) -> Result<ClusterSnapshot, ClusterFileError> {
        read_cluster(self.0.join(path)).map(|file| file.snapshot)
    }

    fn model(&self, path: &Path) -> Result<ModelSpec, OpenError> {
        plimsoll_model::open(&self.0.join(path))
    }
}

/// Reads a scenario file; files that it names are looked for beside it.
///
/// # Errors
///
/// The file or one that it names cannot be read, or the scenario is none that can be run.
pub fn read_scenario(path: &Path) -> Result<Scenario, ScenarioError> {
    let cannot = |source| ScenarioError::Read { path: path.to_owned(), source };
    let found = std::fs::metadata(path).map_err(cannot)?.len();
    if found > LONGEST {
        return Err(ScenarioError::TooLong { path: path.to_owned(), found });
    }
    let text = std::fs::read_to_string(path).map_err(cannot)?;
    let beside = path.parent().unwrap_or_else(|| Path::new("."));
    let mut scenario = parse_scenario(&text, &Folder(beside))?;
    if scenario.name.is_empty() {
        scenario.name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    }
    Ok(scenario)
}

/// Reads the text of a scenario.
///
/// # Errors
///
/// As [`read_scenario`].
pub fn parse_scenario(text: &str, files: &dyn Source) -> Result<Scenario, ScenarioError> {
    let read: Text = toml::from_str(text).map_err(|error| ScenarioError::Text {
        line: line_of(text, error.span().map_or(0, |span| span.start)),
        message: error.message().to_owned(),
    })?;
    let reader = Reader { text, files };
    let mut scenario = Scenario::new(read.name.clone().unwrap_or_default(), reader.start(&read)?);
    scenario.seed = read.seed.unwrap_or(1);
    if let Some(duration) = read.duration {
        scenario.duration = duration.0;
    }
    if let Some(sample) = read.sample {
        scenario.sample = sample.0;
    }
    scenario.limits = read.limits.limits(scenario.sample);
    scenario.policy = read.policy.policy();
    scenario.chance = read.random.chance();
    for model in &read.model {
        scenario.models.push(reader.model(model)?);
    }
    for event in &read.event {
        scenario.events.push(reader.event(event)?);
    }
    for join in &read.join {
        scenario.events.push(reader.join(join)?);
    }
    for flap in &read.flap {
        scenario.events.extend(flaps(flap, scenario.duration));
    }
    scenario.validate()?;
    Ok(scenario)
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count()
}

/// A scenario's text, and where the files that it names are.
struct Reader<'a> {
    text: &'a str,
    files: &'a dyn Source,
}

impl Reader<'_> {
    fn wrong<T>(&self, at: &Spanned<T>, message: impl Into<String>) -> ScenarioError {
        ScenarioError::Text { line: line_of(self.text, at.span().start), message: message.into() }
    }

    /// The cluster at the start: a file, what is written out, and fleets.
    fn start(&self, read: &Text) -> Result<ClusterSnapshot, ScenarioError> {
        let mut start = match &read.cluster {
            Some(path) => self.files.cluster(path).map_err(|source| ScenarioError::Cluster {
                what: format!("the cluster file {}", path.display()),
                source: Box::new(source),
            })?,
            None => ClusterSnapshot { generation: Generation::FIRST, nodes: Vec::new(), links: Vec::new() },
        };
        let mut fleets = Vec::new();
        for fleet in &read.fleet {
            fleets.extend(self.fleet(fleet, read.defaults.as_ref())?);
        }
        if !read.node.is_empty() {
            // Links may join nodes of the file as well: they are read with the nodes that the scenario writes out.
            let written = machines(read.defaults.as_ref(), read.node.clone(), Vec::new(), "[[node]]")?;
            start.nodes.extend(written.nodes);
        }
        start.nodes.extend(fleets);
        start.nodes.sort_by(|a, b| a.id.cmp(&b.id));
        for table in &read.link {
            start.links.push(link(table)?);
        }
        // Which node runs an engine is of no account here, and two parts of a cluster may both name one.
        start.nodes.iter_mut().for_each(|node| node.main = false);
        Ok(start)
    }

    fn fleet(
        &self,
        fleet: &Spanned<Fleet>,
        defaults: Option<&toml::Value>,
    ) -> Result<Vec<Node>, ScenarioError> {
        let Fleet { prefix, count, node } = fleet.get_ref();
        if *count == 0 || *count > MOST_NODES {
            let message = format!("a fleet has 1 to {MOST_NODES} nodes, and '{prefix}' has {count}");
            return Err(self.wrong(fleet, message));
        }
        let mut first = node.clone();
        first.insert("id".to_owned(), toml::Value::String(format!("{prefix}0")));
        let read = machines(defaults, vec![first], Vec::new(), &format!("fleet '{prefix}'"))?;
        let Some(model) = read.nodes.into_iter().next() else { return Ok(Vec::new()) };
        let digits = (count - 1).to_string().len();
        let named = |n: u32| {
            let id = NodeId::new(format!("{prefix}{n:0digits$}"))
                .map_err(|error| self.wrong(fleet, error.to_string()))?;
            Ok(Node { id, ..model.clone() })
        };
        (0..*count).map(named).collect()
    }

    fn join(&self, join: &Spanned<Join>) -> Result<Event, ScenarioError> {
        let Join { at, node } = join.get_ref();
        let read = machines(None, vec![node.clone()], Vec::new(), "[[join]]")?;
        let node = read.nodes.into_iter().next().ok_or_else(|| self.wrong(join, "no node joins"))?;
        let node = Node { main: false, ..node };
        Ok(Event { at: at.0, what: Happening::Join(Box::new(node)) })
    }

    fn model(&self, model: &Spanned<ModelText>) -> Result<Wanted, ScenarioError> {
        let told = model.get_ref();
        let name = told.name.clone();
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| ScenarioError::Model {
            name: name.clone(),
            source,
        };
        let spec = match (&told.file, &told.layers) {
            (Some(path), None) if told.input_bytes.is_none() && told.head_bytes.is_none() => {
                self.files.model(path).map_err(|error| failed(error.into()))?
            }
            (None, Some(layers)) => {
                let mut list = Table::new();
                list.insert("name".to_owned(), toml::Value::String(name.clone()));
                list.insert("layers".to_owned(), layers.clone());
                for (key, bytes) in [("input_bytes", told.input_bytes), ("head_bytes", told.head_bytes)] {
                    if let Some(bytes) = bytes {
                        list.insert(key.to_owned(), toml::Value::String(bytes.get().to_string()));
                    }
                }
                let list = parse_list_toml(&list.to_string()).map_err(|error| failed(error.into()))?;
                ModelSpec::from_list(&list)
            }
            _ => {
                let message =
                    format!("model '{name}' needs either file or layers (with input_bytes and head_bytes)");
                return Err(self.wrong(model, message));
            }
        };
        let request = Request {
            context: told.ctx.map(ContextLength::PerSequence),
            parallel: told.parallel,
            engine: EngineProfile::NONE,
            ..Request::default()
        };
        let footprint =
            spec.footprint(&request, request.engine.padding).map_err(|error| failed(error.into()))?;
        let activation_bytes = Bytes::new(4).saturating_mul(spec.embedding_length());
        let workload = Workload { activation_bytes, ..Workload::uniform(footprint) };
        let options = PlanOptions {
            objective: match told.objective {
                ObjectiveText::Fit => Objective::Fit,
                ObjectiveText::Throughput => Objective::Throughput,
                ObjectiveText::Latency => Objective::Latency,
                ObjectiveText::Balanced => Objective::Balanced,
            },
            max_devices: told.max_devices,
            only: (!told.only.is_empty()).then(|| told.only.iter().cloned().collect()),
            ..PlanOptions::default()
        };
        let wanted = Wanted::new(name, workload, options);
        Ok(Wanted {
            priority: told.priority,
            from: told.from.0,
            until: told.until.map(|until| until.0),
            ..wanted
        })
    }

    fn event(&self, event: &Spanned<EventText>) -> Result<Event, ScenarioError> {
        let told = event.get_ref();
        let mut found = Vec::new();
        let mut about =
            |id: &Option<NodeId>, what: fn(NodeId) -> Happening| found.extend(id.clone().map(what));
        about(&told.lose, Happening::Lose);
        about(&told.cut, Happening::Cut);
        about(&told.back, Happening::Return);
        about(&told.leave, Happening::Leave);
        about(&told.drain, Happening::Drain);
        about(&told.undrain, Happening::Undrain);
        if let Some(Outside { node, pool, bytes }) = &told.outside {
            found.push(Happening::Outside { node: node.clone(), pool: pool.clone(), bytes: *bytes });
        }
        if let Some(table) = &told.link {
            found.push(Happening::Link(link(table)?));
        }
        match (found.pop(), found.is_empty()) {
            (Some(what), true) => Ok(Event { at: told.at.0, what }),
            _ => Err(self.wrong(
                event,
                "an event is exactly one of lose, cut, return, leave, drain, undrain, outside and link",
            )),
        }
    }
}

/// Machines as a cluster file would describe them.
fn machines(
    defaults: Option<&toml::Value>,
    nodes: Vec<Table>,
    links: Vec<Table>,
    what: &str,
) -> Result<ClusterSnapshot, ScenarioError> {
    let tables = |all: Vec<Table>| toml::Value::Array(all.into_iter().map(toml::Value::Table).collect());
    let mut file = Table::new();
    if let Some(defaults) = defaults {
        file.insert("defaults".to_owned(), defaults.clone());
    }
    file.insert("node".to_owned(), tables(nodes));
    if !links.is_empty() {
        file.insert("link".to_owned(), tables(links));
    }
    let read = parse_cluster(&file.to_string());
    read.map(|file| file.snapshot)
        .map_err(|source| ScenarioError::Cluster { what: what.to_owned(), source: Box::new(source) })
}

/// A link as a cluster file would describe it, between nodes that are checked later.
fn link(table: &Table) -> Result<Link, ScenarioError> {
    let ends = table.get("between").and_then(toml::Value::as_array).into_iter().flatten();
    let node = |id: &toml::Value| {
        let mut node = Table::new();
        node.insert("id".to_owned(), id.clone());
        node
    };
    let nodes = ends.map(node).collect();
    let read = machines(None, nodes, vec![table.clone()], "a link")?;
    read.links
        .into_iter()
        .next()
        .ok_or_else(|| ScenarioError::Text { line: 1, message: "a link joins two nodes".to_owned() })
}

/// The events of a node that is cut off again and again.
fn flaps(flap: &Flap, duration: Duration) -> Vec<Event> {
    let until = flap.until.map_or(duration, |until| until.0);
    let mut events = Vec::new();
    let mut at = flap.from.0;
    while at < until && !flap.every.0.is_zero() {
        events.push(Event { at, what: Happening::Cut(flap.node.clone()) });
        events.push(Event { at: at.saturating_add(flap.down.0), what: Happening::Return(flap.node.clone()) });
        at = at.saturating_add(flap.every.0);
    }
    events
}
