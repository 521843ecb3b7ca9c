//! A guarded change, as plain data.

/// A key with what etcd knows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kv {
    pub(crate) key: String,
    pub(crate) value: Vec<u8>,
    /// The revision of the store at which it was last written.
    pub(crate) mod_revision: i64,
    /// The lease that it lives on; 0 is none.
    pub(crate) lease: i64,
}

/// What must hold for a change to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// The key was last written at this revision; 0 is not there.
    At { key: String, revision: i64 },
    /// The key is there, whatever it holds.
    There { key: String },
    /// No key below this was written after this revision. What was removed is not noticed.
    NoneSince { prefix: String, revision: i64 },
}

/// A key that is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Put {
    pub(crate) key: String,
    pub(crate) value: Vec<u8>,
    /// 0 is none.
    pub(crate) lease: i64,
}

/// A change that is made whole, and only while its guards hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Writes {
    pub(crate) guards: Vec<Guard>,
    pub(crate) puts: Vec<Put>,
    pub(crate) deletes: Vec<String>,
}

/// The most keys in one change, and the most guards: what etcd takes unless it is told otherwise.
pub(crate) const MOST_KEYS: usize = 128;

impl Writes {
    /// How many keys it needs of what etcd bounds.
    pub(crate) fn keys(&self) -> usize {
        self.guards.len().max(self.puts.len() + self.deletes.len())
    }
}
