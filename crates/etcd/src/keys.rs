//! Where everything stands.

use plimsoll_units::NodeId;

/// The keys of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    root: String,
}

impl Keys {
    pub(crate) fn new(name: &str) -> Self {
        Self { root: format!("/plimsoll/{name}/") }
    }

    /// Below it stands everything.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// Below it stands who is there, each on the lease of its agent.
    pub(crate) fn nodes(&self) -> String {
        format!("{}nodes/", self.root)
    }

    pub(crate) fn node(&self, id: &NodeId) -> String {
        format!("{}{id}", self.nodes())
    }

    /// Below it stands what was measured, on the same leases.
    pub(crate) fn metrics(&self) -> String {
        format!("{}metrics/", self.root)
    }

    pub(crate) fn metric(&self, id: &NodeId) -> String {
        format!("{}{id}", self.metrics())
    }

    /// Below it stands who takes nothing new; on no lease.
    pub(crate) fn drained(&self) -> String {
        format!("{}drained/", self.root)
    }

    pub(crate) fn drain(&self, id: &NodeId) -> String {
        format!("{}{id}", self.drained())
    }

    /// What every change of the ledger writes.
    pub(crate) fn head(&self) -> String {
        format!("{}ledger/head", self.root)
    }

    pub(crate) fn pools(&self) -> String {
        format!("{}ledger/pools", self.root)
    }

    /// Below it stands who holds what, each on the lease of its owner.
    pub(crate) fn bookings(&self) -> String {
        format!("{}ledger/bookings/", self.root)
    }

    pub(crate) fn booking(&self, instance: &str) -> String {
        format!("{}{instance}", self.bookings())
    }

    /// Below it stands who waits.
    pub(crate) fn waits(&self) -> String {
        format!("{}ledger/waits/", self.root)
    }

    /// In the order of numbers.
    pub(crate) fn wait(&self, ticket: u64) -> String {
        format!("{}{ticket:020}", self.waits())
    }

    /// The ledger with all that is in it.
    pub(crate) fn ledger(&self) -> String {
        format!("{}ledger/", self.root)
    }

    /// The plan in force.
    pub(crate) fn plan(&self) -> String {
        format!("{}plan", self.root)
    }
}
