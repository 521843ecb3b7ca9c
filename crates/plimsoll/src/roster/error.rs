//! What can be wrong with a roster.

use std::io::Read;
use std::path::{Path, PathBuf};

use plimsoll_model::UnknownCacheType;
use plimsoll_units::IdError;

/// Why a roster was not taken. Nothing of such a file is used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RosterError {
    /// The file cannot be read.
    #[error("cannot read the roster {}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// The file is larger than any roster.
    #[error("the roster {} has more than {limit} bytes", path.display())]
    TooLarge {
        /// Which file.
        path: PathBuf,
        /// How many bytes are read at most.
        limit: u64,
    },
    /// Something in it is wrong.
    #[error("{}line {line}: {problem}", path.as_ref().map(|p| format!("{}, ", p.display())).unwrap_or_default())]
    Content {
        /// Which file; `None` for a text.
        path: Option<PathBuf>,
        /// Which line, from 1.
        line: usize,
        /// What is wrong there.
        problem: Box<RosterProblem>,
    },
}

/// What is wrong in one place of a roster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(
    missing_docs,
    reason = "the text of each variant says what it is, and its fields are the words of that text"
)]
pub enum RosterProblem {
    /// Not TOML, or a key or value that has no meaning there.
    #[error("{message}")]
    Text { message: String },
    /// A name that cannot be one.
    #[error("pool: {0}")]
    Id(IdError),
    /// Memory is given in two ways.
    #[error("the roster has both 'budget' and [pools]; give one of them")]
    TwoBudgets,
    /// No memory at all.
    #[error("the roster has no 'budget' and no [pools]")]
    NoBudget,
    /// No model at all.
    #[error("the roster has no [[role]]")]
    NoRoles,
    /// Two roles of one name.
    #[error("role '{role}' is listed twice")]
    Twice { role: String },
    /// A name of nothing.
    #[error("a role needs a name without control characters, and this one is {role:?}")]
    Name { role: String },
    /// A size is given in two ways.
    #[error("role '{role}' has its size twice; give 'needs', 'weights' with 'kv', or 'pools'")]
    TwoSizes { role: String },
    /// A size is not known.
    #[error("role '{role}' has no size; give 'needs', 'weights' with 'kv', 'pools', or 'model' with 'ctx'")]
    NoSize { role: String },
    /// A size of nothing is a size that is not known.
    #[error("role '{role}' needs 0 bytes, which is as good as unknown; give what it needs")]
    Nothing { role: String },
    /// Several pools and none is named.
    #[error("role '{role}' names no 'pool', and there are {known}")]
    WhichPool { role: String, known: String },
    /// A pool that the roster does not have.
    #[error("role '{role}' needs pool '{pool}', and there are {known}")]
    UnknownPool { role: String, pool: String, known: String },
    /// A word that is no latency class.
    #[error("role '{role}' has the latency class '{found}'; known are interactive, batch")]
    LatencyClass { role: String, found: String },
    /// A form of cache that no engine knows.
    #[error("role '{role}': {why}")]
    CacheType { role: String, why: UnknownCacheType },
    /// A model that cannot be sized.
    #[error("role '{role}': {}", chain(&**why))]
    Model { role: String, why: Box<dyn std::error::Error + Send + Sync> },
}

/// An error and what caused it: a problem stands in one line of a file, and so in one line of text.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

impl RosterError {
    /// A problem at a place in a text, in bytes.
    pub(super) fn at(text: &str, at: usize, problem: RosterProblem) -> Self {
        let line = 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
        Self::Content { path: None, line, problem: Box::new(problem) }
    }

    pub(super) fn in_file(self, file: &Path) -> Self {
        match self {
            Self::Content { line, problem, .. } => {
                Self::Content { path: Some(file.to_owned()), line, problem }
            }
            other => other,
        }
    }
}

/// The text of a file that is not larger than `limit`.
pub(super) fn read(path: &Path, limit: u64) -> Result<String, RosterError> {
    let fail = |source| RosterError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(fail)?;
    file.take(limit + 1).read_to_string(&mut text).map_err(fail)?;
    if text.len() as u64 > limit {
        return Err(RosterError::TooLarge { path: path.to_owned(), limit });
    }
    Ok(text)
}
