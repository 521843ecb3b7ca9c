//! What stands in place of a cluster in etcd where the agent was built without that.

use std::sync::Arc;
use std::time::Duration;

use plimsoll::cluster::{ClusterSnapshot, ClusterState};
use plimsoll::export::PlanFile;
use plimsoll::residency::{Book, Store, StoreError};
use plimsoll::units::{Bytes, NodeId};
use plimsoll::watcher::OwnedTask;
use plimsoll::{Stack, Standing};

use crate::app::{AdoptError, App};
use crate::{Source, StartError};

/// There is none.
#[derive(Debug)]
pub(crate) enum Joined {}

impl Joined {
    pub(crate) fn begin(
        _source: &Source,
        _id: &NodeId,
        _stack: &Stack,
        _kept_free: Bytes,
    ) -> Result<Option<Self>, StartError> {
        Ok(None)
    }

    pub(crate) fn keep(&self, _app: &Arc<App>) -> [OwnedTask; 3] {
        match *self {}
    }

    pub(crate) fn state(&self) -> &Arc<ClusterState> {
        match *self {}
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        match *self {}
    }

    pub(crate) fn view(&self) -> (u64, Arc<ClusterSnapshot>) {
        match *self {}
    }

    pub(crate) fn book(&self) -> Arc<Book> {
        match *self {}
    }

    pub(crate) fn place(&self) -> String {
        match *self {}
    }

    pub(crate) fn age(&self) -> Duration {
        match *self {}
    }

    pub(crate) fn lost(&self) -> Option<String> {
        match *self {}
    }

    pub(crate) fn silent(&self) -> Option<String> {
        match *self {}
    }

    pub(crate) fn look(&self) {
        match *self {}
    }

    pub(crate) fn adopt(
        &self,
        _app: &App,
        _replaces: Option<u64>,
        _file: &PlanFile,
        _text: &str,
    ) -> Result<Arc<Standing>, AdoptError> {
        match *self {}
    }

    pub(crate) fn retire(&self, _app: &App, _plan: Option<u64>) -> Result<bool, AdoptError> {
        match *self {}
    }

    pub(crate) fn leave(&self) {
        match *self {}
    }
}

/// Whether it is worth asking again what a ledger did not do.
pub(crate) fn passes(_error: &StoreError) -> bool {
    false
}
