//! What the state's lock protects, and how it changes. Nothing here locks, waits or reads a clock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use plimsoll_units::{Generation, NodeId};

use super::member::{Identity, Member, RegisterError, Relation};
use super::{ClusterEvent, Limits, Moment, NodeMetrics, StateError};
use crate::check::check_node;
use crate::{ClusterSnapshot, Link, Node, NodeStatus};

/// How many events are remembered.
const REMEMBERED: usize = 1024;

/// Two nodes, the smaller name first.
type Ends = (NodeId, NodeId);

#[derive(Debug)]
pub(super) struct Inner {
    /// Boxed, so that the tree stays dense and moves little when it grows.
    members: BTreeMap<NodeId, Box<Member>>,
    /// Who sits where, by [`Identity::short`].
    machines: BTreeMap<u64, NodeId>,
    links: BTreeMap<Ends, Link>,
    main: Option<NodeId>,
    pub(super) limits: Limits,
    /// Of what snapshots show; moved by every change of that.
    pub(super) generation: Generation,
    events: VecDeque<ClusterEvent>,
    /// How many events there were before those that are remembered.
    forgotten: u64,
    /// How many threads wait for a newer generation.
    pub(super) waiting: usize,
}

impl Inner {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            members: BTreeMap::new(),
            machines: BTreeMap::new(),
            links: BTreeMap::new(),
            main: None,
            limits,
            generation: Generation::FIRST,
            events: VecDeque::new(),
            forgotten: 0,
            waiting: 0,
        }
    }

    fn changed(&mut self) {
        self.generation = self.generation.next();
    }

    fn tell(&mut self, event: ClusterEvent) -> ClusterEvent {
        if self.events.len() == REMEMBERED {
            self.events.pop_front();
            self.forgotten = self.forgotten.saturating_add(1);
        }
        self.events.push_back(event.clone());
        event
    }

    /// Events from the `seen`-th on, and how many there were in all.
    pub(super) fn events_after(&self, seen: u64) -> (Vec<ClusterEvent>, u64) {
        let skip = usize::try_from(seen.saturating_sub(self.forgotten)).unwrap_or(usize::MAX);
        let all = self.forgotten.saturating_add(u64::try_from(self.events.len()).unwrap_or(u64::MAX));
        (self.events.iter().skip(skip).cloned().collect(), all)
    }

    pub(super) fn member(&self, id: &NodeId) -> Result<&Member, StateError> {
        match self.members.get(id) {
            Some(member) => Ok(member),
            None => Err(StateError::UnknownNode { node: id.clone() }),
        }
    }

    fn member_mut(&mut self, id: &NodeId) -> Result<&mut Member, StateError> {
        match self.members.get_mut(id) {
            Some(member) => Ok(member),
            None => Err(StateError::UnknownNode { node: id.clone() }),
        }
    }

    pub(super) fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values().map(|member| &**member)
    }

    pub(super) fn register(&mut self, node: Node, identity: Identity) -> Result<ClusterEvent, RegisterError> {
        let id = node.id.clone();
        check_node(&node).map_err(|source| RegisterError::Unsound { node: id.clone(), source })?;
        let short = identity.short();
        let earlier_name = self.name_of(&identity, short).filter(|name| **name != id).cloned();
        let here = self.members.get(&id);
        let alive = here.is_some_and(|here| here.node.status != NodeStatus::Failed);
        let relation = here.map(|here| here.identity.relation(&identity));
        if alive && relation == Some(Relation::Another) {
            let held_by = here.map(|here| Identity::clone(&here.identity)).unwrap_or_default();
            return Err(RegisterError::NameTaken { node: id, held_by, came: identity });
        }
        let main = self.main.as_ref().filter(|main| **main != id && Some(*main) != earlier_name.as_ref());
        if let Some(main) = main.filter(|_| node.main) {
            return Err(RegisterError::SecondMain { node: id, main: main.clone() });
        }
        let member = Box::new(Member::new(node, Arc::new(identity)));
        let event = self.put(member, short, relation, earlier_name);
        self.changed();
        Ok(self.tell(event))
    }

    /// What a machine is called that told who it is.
    fn name_of(&self, identity: &Identity, short: Option<u64>) -> Option<&NodeId> {
        let name = self.machines.get(&short?)?;
        self.members.get(name).is_some_and(|member| *member.identity == *identity).then_some(name)
    }

    /// Puts a node of a sound snapshot in its place, as it is.
    pub(super) fn restore(&mut self, node: Node) {
        if node.main {
            self.main = Some(node.id.clone());
        }
        self.members.insert(node.id.clone(), Box::new(Member::new(node, Arc::default())));
    }

    /// Puts a machine in its place; all that could be said against it has been.
    fn put(
        &mut self,
        mut member: Box<Member>,
        short: Option<u64>,
        relation: Option<Relation>,
        earlier_name: Option<NodeId>,
    ) -> ClusterEvent {
        let id = member.node.id.clone();
        let is_main = member.node.main;
        let renamed = earlier_name.as_ref().and_then(|name| self.take_out(name));
        let replaced = relation.and_then(|_| self.take_away(&id));
        let kept = match relation {
            Some(Relation::Same) => replaced,
            None => renamed,
            Some(Relation::Rebooted | Relation::Another) => None,
        };
        let drained = kept.as_ref().is_some_and(|kept| kept.node.drained);
        let metrics = Arc::make_mut(&mut member.metrics);
        if let Some(kept) = kept {
            metrics.carry_over(Arc::unwrap_or_clone(kept.metrics));
        }
        metrics.drained = drained;
        member.show();
        if let Some(short) = short {
            self.machines.insert(short, id.clone());
        }
        if is_main {
            self.main = Some(id.clone());
        }
        self.members.insert(id.clone(), member);
        match (relation, earlier_name) {
            (None, Some(from)) => ClusterEvent::Renamed { from, to: id },
            (None, None) => ClusterEvent::Joined { node: id },
            (Some(Relation::Same), _) => ClusterEvent::CameBack { node: id, rebooted: false },
            (Some(Relation::Rebooted), _) => ClusterEvent::CameBack { node: id, rebooted: true },
            (Some(Relation::Another), _) => ClusterEvent::TookOver { node: id },
        }
    }

    /// Takes a machine away; its links stay for the one that takes its place.
    fn take_away(&mut self, id: &NodeId) -> Option<Box<Member>> {
        let member = self.members.remove(id)?;
        if let Some(short) = member.identity.short()
            && self.machines.get(&short) == Some(id)
        {
            self.machines.remove(&short);
        }
        if self.main.as_ref() == Some(id) {
            self.main = None;
        }
        Some(member)
    }

    /// Takes a machine away with its links.
    fn take_out(&mut self, id: &NodeId) -> Option<Box<Member>> {
        let member = self.take_away(id)?;
        if !self.links.is_empty() {
            self.links.retain(|(a, b), _| a != id && b != id);
        }
        Some(member)
    }

    pub(super) fn deregister(&mut self, id: &NodeId) -> Result<ClusterEvent, StateError> {
        if self.take_out(id).is_none() {
            return Err(StateError::UnknownNode { node: id.clone() });
        }
        self.changed();
        Ok(self.tell(ClusterEvent::Left { node: id.clone() }))
    }

    /// Lets `update` change what is measured of a node.
    pub(super) fn update<R>(
        &mut self,
        id: &NodeId,
        update: impl FnOnce(&mut NodeMetrics) -> R,
    ) -> Result<R, StateError> {
        let member = self.member_mut(id)?;
        let result = update(Arc::make_mut(&mut member.metrics));
        if member.show() {
            self.changed();
        }
        Ok(result)
    }

    pub(super) fn heartbeat(&mut self, id: &NodeId, now: Moment) -> Result<Option<ClusterEvent>, StateError> {
        let member = self.member_mut(id)?;
        if member.metrics.last_heartbeat >= Some(now) {
            return Ok(None);
        }
        let metrics = Arc::make_mut(&mut member.metrics);
        metrics.last_heartbeat = Some(now);
        metrics.gone = false;
        let from = std::mem::replace(&mut metrics.status, NodeStatus::Active);
        if !member.show() {
            return Ok(None);
        }
        self.changed();
        let event = ClusterEvent::Status { node: id.clone(), from, to: NodeStatus::Active };
        Ok(Some(self.tell(event)))
    }

    pub(super) fn fail(&mut self, id: &NodeId) -> Result<Option<ClusterEvent>, StateError> {
        let member = self.member_mut(id)?;
        let metrics = Arc::make_mut(&mut member.metrics);
        metrics.gone = true;
        let from = std::mem::replace(&mut metrics.status, NodeStatus::Failed);
        if !member.show() {
            return Ok(None);
        }
        self.changed();
        let event = ClusterEvent::Status { node: id.clone(), from, to: NodeStatus::Failed };
        Ok(Some(self.tell(event)))
    }

    pub(super) fn sweep(&mut self, now: Moment) -> Vec<ClusterEvent> {
        let limits = self.limits;
        let mut events = Vec::new();
        let mut changed = false;
        for member in self.members.values_mut() {
            changed |= sweep_one(member, now, &limits, &mut events);
        }
        if changed {
            self.changed();
        }
        events.into_iter().map(|event| self.tell(event)).collect()
    }

    pub(super) fn drain(&mut self, id: &NodeId, drained: bool) -> Result<Option<ClusterEvent>, StateError> {
        let member = self.member_mut(id)?;
        Arc::make_mut(&mut member.metrics).drained = drained;
        if !member.show() {
            return Ok(None);
        }
        self.changed();
        let node = id.clone();
        let event = if drained { ClusterEvent::Drained { node } } else { ClusterEvent::Undrained { node } };
        Ok(Some(self.tell(event)))
    }

    /// Sets what is known of the way between two nodes.
    pub(super) fn connect(&mut self, link: Link) -> Result<(), StateError> {
        let [a, b] = &link.between;
        self.member(a)?;
        self.member(b)?;
        if a == b {
            return Err(StateError::LinkToItself { node: a.clone() });
        }
        if link.bandwidth.is_some_and(|rate| rate.is_zero()) {
            return Err(StateError::LinkStandsStill { first: a.clone(), second: b.clone() });
        }
        let ends = (a.min(b).clone(), a.max(b).clone());
        if self.links.get(&ends) != Some(&link) {
            self.links.insert(ends, link);
            self.changed();
        }
        Ok(())
    }

    /// Forgets what is known of a way; whether anything was.
    pub(super) fn disconnect(&mut self, a: &NodeId, b: &NodeId) -> bool {
        let known = self.links.remove(&(a.min(b).clone(), a.max(b).clone())).is_some();
        if known {
            self.changed();
        }
        known
    }

    pub(super) fn snapshot(&self) -> ClusterSnapshot {
        ClusterSnapshot {
            generation: self.generation,
            nodes: self.members.values().map(|member| member.node.clone()).collect(),
            links: self.links.values().cloned().collect(),
        }
    }
}

/// Whether snapshots show the node differently now.
fn sweep_one(member: &mut Member, now: Moment, limits: &Limits, events: &mut Vec<ClusterEvent>) -> bool {
    let metrics = &member.metrics;
    let status = match metrics.last_heartbeat.map(|last| now.since(last)) {
        // The silence of a node that never was heard of counts from the first sweep that meets it.
        None => metrics.status,
        Some(_) if metrics.gone => metrics.status,
        Some(silence) if silence >= limits.failed_after => NodeStatus::Failed,
        Some(silence) if silence >= limits.degraded_after => NodeStatus::Degraded,
        Some(_) => NodeStatus::Active,
    };
    let outdated = limits.free_outdated_after.filter(|limit| metrics.has_stale(now, *limit));
    let from = metrics.status;
    if metrics.last_heartbeat.is_some() && from == status && outdated.is_none() {
        return false;
    }
    let node = &member.node.id;
    let metrics = Arc::make_mut(&mut member.metrics);
    metrics.last_heartbeat.get_or_insert(now);
    metrics.status = status;
    if from != status {
        events.push(ClusterEvent::Status { node: node.clone(), from, to: status });
    }
    if let Some(limit) = outdated {
        let forgotten = metrics.forget_free(now, limit).into_iter();
        events.extend(forgotten.map(|(pool, age)| ClusterEvent::FreeOutdated {
            node: node.clone(),
            pool,
            age,
        }));
    }
    member.show()
}
