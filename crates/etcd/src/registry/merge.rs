//! From keys to the state of a cluster. The clock is the caller's.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_cluster::{ClusterEvent, ClusterState, Moment};
use plimsoll_units::{Generation, NodeId};

use super::record::{MetricsRecord, NodeRecord};
use super::{Basis, RegistryEvent};
use crate::feed::Change;
use crate::keys::Keys;
use crate::wire;
use crate::writes::Kv;

/// What stands in the registry, as far as it was taken over.
#[derive(Clone, Debug)]
pub(super) struct Merge {
    keys: Keys,
    nodes: BTreeMap<NodeId, i64>,
    drained: BTreeSet<NodeId>,
    generation: i64,
}

/// What came of changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Merged {
    pub(super) events: Vec<RegistryEvent>,
    /// Whose leases ended.
    pub(super) gone: Vec<NodeId>,
    /// Who is there again.
    pub(super) came: Vec<NodeId>,
}

impl Merged {
    pub(super) fn problems(self) -> Vec<String> {
        let problem = |event| match event {
            RegistryEvent::Problem { what } => Some(what),
            _ => None,
        };
        self.events.into_iter().filter_map(problem).collect()
    }

    fn told(&mut self, event: ClusterEvent) {
        self.events.push(RegistryEvent::Cluster(event));
    }

    fn problem(&mut self, what: impl Into<String>) {
        self.events.push(RegistryEvent::Problem { what: what.into() });
    }
}

impl Merge {
    pub(super) fn new(keys: Keys) -> Self {
        Self { keys, nodes: BTreeMap::new(), drained: BTreeSet::new(), generation: 0 }
    }

    pub(super) fn basis(&self) -> Basis {
        let generation = Generation::new(u64::try_from(self.generation).unwrap_or(0));
        Basis { generation, nodes: self.nodes.clone() }
    }

    /// Notes that what was taken over is what stood there at this revision.
    pub(super) fn stood_at(&mut self, revision: i64) {
        self.generation = self.generation.max(revision);
    }

    /// Takes over all that stands there; what was known and no longer stands there has gone.
    pub(super) fn list(&mut self, state: &ClusterState, kvs: &[Kv], now: Moment) -> Merged {
        let standing: BTreeSet<&str> = kvs.iter().map(|kv| kv.key.as_str()).collect();
        let mut changes = Vec::new();
        // The revisions at which they went are no longer kept: those of what stands there speak for them.
        for node in self.nodes.keys().map(|node| self.keys.node(node)) {
            if !standing.contains(node.as_str()) {
                changes.push(Change::Delete { key: node, revision: 0 });
            }
        }
        for node in self.drained.iter().map(|node| self.keys.drain(node)) {
            if !standing.contains(node.as_str()) {
                changes.push(Change::Delete { key: node, revision: 0 });
            }
        }
        let known = |kv: &&Kv| {
            let node = kv.key.strip_prefix(&self.keys.nodes());
            node.is_some_and(|node| self.nodes.get(node) == Some(&kv.mod_revision))
        };
        changes.extend(kvs.iter().filter(|kv| !known(kv)).cloned().map(Change::Put));
        self.apply(state, changes, now)
    }

    /// Takes over some changes, in their order.
    pub(super) fn apply(
        &mut self,
        state: &ClusterState,
        changes: impl IntoIterator<Item = Change>,
        now: Moment,
    ) -> Merged {
        let mut merged = Merged::default();
        for change in changes {
            match change {
                Change::Put(kv) => self.put(state, &kv, now, &mut merged),
                Change::Delete { key, revision } => self.delete(state, &key, revision, &mut merged),
            }
        }
        merged
    }

    fn put(&mut self, state: &ClusterState, kv: &Kv, now: Moment, merged: &mut Merged) {
        if let Some(name) = kv.key.strip_prefix(&self.keys.nodes()) {
            let Some(record) = usable::<NodeRecord>(kv, merged) else { return };
            if record.id.as_str() != name {
                merged.problem(format!("'{}' holds what belongs to node '{}'", kv.key, record.id));
                return;
            }
            self.generation = self.generation.max(kv.mod_revision);
            self.register(state, record, kv.mod_revision, now, merged);
        } else if let Some(name) = kv.key.strip_prefix(&self.keys.drained()) {
            let Ok(node) = NodeId::new(name) else { return };
            self.generation = self.generation.max(kv.mod_revision);
            self.drained.insert(node.clone());
            if let Ok(Some(event)) = state.drain(&node) {
                merged.told(event);
            }
        } else if let Some(name) = kv.key.strip_prefix(&self.keys.metrics()) {
            let Some(record) = usable::<MetricsRecord>(kv, merged) else { return };
            measure(state, name, &record, now, merged);
        }
    }

    fn register(
        &mut self,
        state: &ClusterState,
        record: NodeRecord,
        revision: i64,
        now: Moment,
        merged: &mut Merged,
    ) {
        let node = record.id.clone();
        let resources = match record.resources() {
            Ok(resources) => resources,
            Err(what) => return merged.problem(format!("node '{node}': {what}")),
        };
        match state.register(resources) {
            Ok(event) => merged.told(event),
            Err(error) => return merged.problem(error.to_string()),
        }
        self.nodes.insert(node.clone(), revision);
        merged.came.push(node.clone());
        if let Ok(Some(event)) = state.heartbeat(&node, now) {
            merged.told(event);
        }
        let drained = if self.drained.contains(&node) { state.drain(&node) } else { state.undrain(&node) };
        if let Ok(Some(event)) = drained {
            merged.told(event);
        }
    }

    fn delete(&mut self, state: &ClusterState, key: &str, revision: i64, merged: &mut Merged) {
        if let Some(name) = key.strip_prefix(&self.keys.nodes()) {
            self.generation = self.generation.max(revision);
            let Some((node, _)) = self.nodes.remove_entry(name) else { return };
            if let Ok(Some(event)) = state.fail(&node) {
                merged.told(event);
            }
            merged.gone.push(node);
        } else if let Some(name) = key.strip_prefix(&self.keys.drained()) {
            self.generation = self.generation.max(revision);
            let Some(node) = self.drained.take(name) else { return };
            if let Ok(Some(event)) = state.undrain(&node) {
                merged.told(event);
            }
        }
    }
}

/// Takes over what was measured of a node; one that is not there is left out.
fn measure(state: &ClusterState, name: &str, record: &MetricsRecord, now: Moment, merged: &mut Merged) {
    let Ok(node) = NodeId::new(name) else { return };
    let refused = state.update_metrics(&node, |metrics| {
        let samples = record.free.iter();
        samples.filter_map(|(pool, free)| metrics.record_free(pool, *free, now).err()).collect::<Vec<_>>()
    });
    for error in refused.unwrap_or_default() {
        merged.problem(format!("node '{node}': {error}"));
    }
}

/// A value. One that is damaged, or was written by a later version, is a problem of what it is about, and not guessed at.
fn usable<T: serde::de::DeserializeOwned>(kv: &Kv, merged: &mut Merged) -> Option<T> {
    wire::decode(&kv.key, &kv.value).map_err(|error| merged.problem(error.to_string())).ok()
}

#[cfg(test)]
mod tests {
    use plimsoll_cluster::{NodeResources, NodeStatus};
    use plimsoll_units::Bytes;

    use super::*;

    fn id(name: &str) -> NodeId {
        NodeId::new(name).unwrap()
    }

    fn keys() -> Keys {
        Keys::new("t")
    }

    fn node(name: &str, boot: &str, revision: i64) -> Kv {
        let resources = NodeResources::new(id(name), Bytes::gib(24), Bytes::gib(64))
            .with_boot_id(boot)
            .with_address(format!("{name}:7000"));
        let value = wire::encode(&NodeRecord::of(&resources));
        Kv { key: keys().node(&id(name)), value, mod_revision: revision, lease: 1 }
    }

    fn measured(name: &str, gib: u32, revision: i64) -> Kv {
        let free = [(plimsoll_units::PoolId::new("gpu0").unwrap(), Bytes::gib(gib))];
        let value = wire::encode(&MetricsRecord { at: 0, free: free.into() });
        Kv { key: keys().metric(&id(name)), value, mod_revision: revision, lease: 1 }
    }

    fn drained(name: &str, revision: i64) -> Kv {
        Kv { key: keys().drain(&id(name)), value: br#"{"v":1}"#.to_vec(), mod_revision: revision, lease: 0 }
    }

    fn told(merged: &Merged) -> Vec<String> {
        merged.events.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_stands_there_is_taken_over_and_what_no_longer_does_has_failed() {
        let (state, mut merge) = (ClusterState::new(), Merge::new(keys()));
        let all = [node("a", "1", 3), node("b", "1", 5), drained("b", 6), measured("a", 20, 9)];
        merge.list(&state, &all, Moment::from_millis(1));
        assert_eq!(merge.basis().generation, Generation::new(6));
        merge.stood_at(11);
        assert_eq!(merge.basis().generation, Generation::new(11));
        let snapshot = state.snapshot();
        assert_eq!(snapshot.nodes[0].pools[1].free, Some(Bytes::gib(20)));
        assert_eq!((snapshot.nodes[0].drained, snapshot.nodes[1].drained), (false, true));
        // After being away: 'a' is gone, 'b' is as it was and no longer drained.
        let merged = merge.list(&state, &[node("b", "1", 5)], Moment::from_millis(2));
        assert_eq!(told(&merged), ["node 'a' went from active to failed", "node 'b' takes layers again"]);
        assert_eq!(merged.gone, [id("a")]);
        assert_eq!(state.snapshot().nodes[0].status, NodeStatus::Failed);
    }

    #[test]
    fn listing_again_what_is_known_changes_nothing() {
        let (state, mut merge) = (ClusterState::new(), Merge::new(keys()));
        let all = [node("a", "1", 3), drained("a", 4), measured("a", 20, 9)];
        merge.list(&state, &all, Moment::from_millis(1));
        let generation = state.generation();
        let merged = merge.list(&state, &all, Moment::from_millis(2));
        assert_eq!(told(&merged), Vec::<String>::new());
        assert_eq!(state.generation(), generation);
    }

    #[test]
    fn a_machine_that_comes_back_is_told_with_whether_it_was_started_anew() {
        let (state, mut merge) = (ClusterState::new(), Merge::new(keys()));
        merge.list(&state, &[node("a", "1", 3)], Moment::from_millis(1));
        let gone = Change::Delete { key: keys().node(&id("a")), revision: 7 };
        merge.apply(&state, [gone], Moment::from_millis(2));
        assert_eq!(merge.basis(), Basis { generation: Generation::new(7), nodes: BTreeMap::new() });
        let merged = merge.apply(&state, [Change::Put(node("a", "2", 8))], Moment::from_millis(3));
        assert_eq!(told(&merged), ["node 'a' came back after a reboot"]);
        assert_eq!(state.snapshot().nodes[0].status, NodeStatus::Active);
    }

    #[test]
    fn one_bad_machine_is_a_problem_and_a_later_version_is_not_guessed_at() {
        let (state, mut merge) = (ClusterState::new(), Merge::new(keys()));
        let mut odd = node("a", "1", 3);
        odd.key = keys().node(&id("b"));
        let merged = merge.list(&state, &[odd, measured("c", 1, 4)], Moment::START);
        assert_eq!(merged.problems().len(), 1);
        let mut later = node("a", "1", 3);
        later.value = br#"{"v":2}"#.to_vec();
        let merged = merge.list(&state, &[later], Moment::START);
        assert!(merged.problems()[0].contains("has version 2; this program knows versions up to 1"));
        assert_eq!(state.snapshot().nodes, []);
    }
}
