//! The truth: which nodes there are, what they can do, what others take of their memory. The controller does not see it.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_cluster::{Link, Node, Pool};
use plimsoll_units::{Bytes, NodeId, PoolId};

use crate::scenario::{Event, Happening, Scenario, Unsound};

/// Memory, named across nodes.
pub(crate) type Place = (NodeId, PoolId);

/// A node as it is.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// What it is made of.
    pub(crate) node: Node,
    /// Whether it has power.
    pub(crate) powered: bool,
    /// Whether it can be reached.
    pub(crate) reached: bool,
    /// How many times it was started.
    pub(crate) starts: u32,
    /// What others take of each pool.
    pub(crate) outside: BTreeMap<PoolId, Bytes>,
}

impl Machine {
    fn new(node: Node) -> Self {
        let outside = |pool: &Pool| {
            let free = pool.free.unwrap_or(Bytes::ZERO);
            (pool.id.clone(), pool.total.saturating_sub(free).saturating_sub(pool.held))
        };
        let outside = node.pools.iter().map(outside).collect();
        Self { node, powered: true, reached: true, starts: 1, outside }
    }

    /// Whether it answers.
    pub(crate) const fn is_up(&self) -> bool {
        self.powered && self.reached
    }
}

/// What a change of the truth asks of the cluster that is told of it.
#[derive(Debug)]
pub(crate) enum Told {
    /// Nothing: it will be noticed, or not.
    Nothing,
    /// A machine registers.
    Register(NodeId),
    /// A machine is taken out.
    Deregister(NodeId),
    /// It is drained, or no longer.
    Drain(NodeId, bool),
    /// A link is another.
    Link(Link),
}

/// All machines.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) machines: BTreeMap<NodeId, Machine>,
}

impl World {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let machine = |node: &Node| (node.id.clone(), Machine::new(node.clone()));
        Self { machines: scenario.start.nodes.iter().map(machine).collect() }
    }

    /// Lets something happen. What happens to a node that is not there changes nothing.
    pub(crate) fn happen(&mut self, what: &Happening) -> Told {
        match what {
            Happening::Lose(id) => self.with(id, |machine| machine.powered = false),
            Happening::Cut(id) => self.with(id, |machine| machine.reached = false),
            Happening::Return(id) => {
                let Some(machine) = self.machines.get_mut(id) else { return Told::Nothing };
                let restarted = !machine.powered;
                if machine.is_up() {
                    return Told::Nothing;
                }
                (machine.powered, machine.reached) = (true, true);
                machine.starts += u32::from(restarted);
                Told::Register(id.clone())
            }
            Happening::Join(node) => {
                let id = node.id.clone();
                self.machines.insert(id.clone(), Machine::new(Node::clone(node)));
                Told::Register(id)
            }
            Happening::Leave(id) => match self.machines.remove(id) {
                Some(_) => Told::Deregister(id.clone()),
                None => Told::Nothing,
            },
            Happening::Drain(id) => Told::Drain(id.clone(), true),
            Happening::Undrain(id) => Told::Drain(id.clone(), false),
            Happening::Outside { node, pool, bytes } => self.with(node, |machine| {
                let total = machine.node.pool(pool).map_or(Bytes::ZERO, |pool| pool.total);
                machine.outside.insert(pool.clone(), (*bytes).min(total));
            }),
            Happening::Link(link) => Told::Link(link.clone()),
        }
    }

    fn with(&mut self, id: &NodeId, change: impl FnOnce(&mut Machine)) -> Told {
        if let Some(machine) = self.machines.get_mut(id) {
            change(machine);
        }
        Told::Nothing
    }

    /// What is left of a pool by others and by the law: total, what others take, reserve and cap.
    pub(crate) fn room(&self, (node, pool): &Place) -> Bytes {
        let Some(machine) = self.machines.get(node).filter(|machine| machine.powered) else {
            return Bytes::ZERO;
        };
        let Some(found) = machine.node.pool(pool) else { return Bytes::ZERO };
        let outside = machine.outside.get(pool).copied().unwrap_or(Bytes::ZERO);
        let free = found.total.saturating_sub(outside);
        let by_law = found.total.min(free).saturating_sub(found.reserve.unwrap_or(Bytes::ZERO));
        by_law.min(found.cap.unwrap_or(Bytes::MAX))
    }
}

/// Every event is about something that is there when it happens.
pub(crate) fn check_events(scenario: &Scenario) -> Result<(), Unsound> {
    let mut world = World::new(scenario);
    let mut events: Vec<&Event> = scenario.events.iter().collect();
    events.sort_by_key(|event| event.at);
    for event in events {
        check_event(&world, event)?;
        let _told = world.happen(&event.what);
    }
    Ok(())
}

fn check_event(world: &World, event: &Event) -> Result<(), Unsound> {
    let unknown = |kind| Unsound::Unknown { at: event.at, what: event.what.to_string(), kind };
    let known = |id: &NodeId| world.machines.get(id).ok_or_else(|| unknown("node"));
    match &event.what {
        Happening::Join(node) => match world.machines.contains_key(&node.id) {
            true => Err(unknown("name left: a node is called so already")),
            false => Ok(()),
        },
        Happening::Outside { node, pool, .. } => {
            known(node)?.node.pool(pool).map(|_| ()).ok_or_else(|| unknown("pool"))
        }
        Happening::Link(link) => link.between.iter().try_for_each(|id| known(id).map(|_| ())),
        Happening::Lose(id)
        | Happening::Cut(id)
        | Happening::Return(id)
        | Happening::Leave(id)
        | Happening::Drain(id)
        | Happening::Undrain(id) => known(id).map(|_| ()),
    }
}

/// What time it is, as people read it: `1:05:09`.
pub(crate) fn clock(at: Duration) -> String {
    let seconds = at.as_secs();
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// `node 'a' loses its power`.
impl std::fmt::Display for Happening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Lose(id) => write!(f, "node '{id}' loses its power"),
            Self::Cut(id) => write!(f, "node '{id}' is cut off"),
            Self::Return(id) => write!(f, "node '{id}' is back"),
            Self::Join(node) => write!(f, "node '{}' is new", node.id),
            Self::Leave(id) => write!(f, "node '{id}' is taken out"),
            Self::Drain(id) => write!(f, "node '{id}' is drained"),
            Self::Undrain(id) => write!(f, "node '{id}' takes layers again"),
            Self::Outside { node, pool, bytes } => {
                write!(f, "others take {} of '{node}/{pool}'", bytes.scaled())
            }
            Self::Link(link) => {
                let [one, two] = &link.between;
                write!(f, "the way between '{one}' and '{two}' changes")
            }
        }
    }
}
