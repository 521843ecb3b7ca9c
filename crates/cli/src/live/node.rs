//! `plimsoll node`.

use std::sync::mpsc::{self, RecvTimeoutError};

use plimsoll::cluster::{ClusterSnapshot, Node};
use plimsoll::etcd::{Agent, AgentState, DrainError};
use plimsoll::live::resources;
use plimsoll::residency::Owners as _;
use plimsoll::residency::ProcOwners;
use plimsoll::units::{Bytes, NodeId, PoolId};
use serde::Serialize;

use super::args::{DrainArgs, JoinArgs, NodeArgs, NodeCommand};
use super::open::open;
use crate::args::Cli;
use crate::failure::{Failure, Outcome};
use crate::ledger::now;
use crate::{input, print};

/// What is kept free of every pool that this machine brings into a ledger.
const KEPT_FREE: Bytes = Bytes::gib(1);

#[derive(Serialize)]
struct Listing<'a> {
    format: &'static str,
    generation: u64,
    nodes: Vec<NodeRecord<'a>>,
    problems: &'a [String],
}

#[derive(Serialize)]
struct NodeRecord<'a> {
    id: &'a NodeId,
    drained: bool,
    main: bool,
    rpc: Option<&'a str>,
    pools: Vec<PoolRecord<'a>>,
}

#[derive(Serialize)]
struct PoolRecord<'a> {
    id: &'a PoolId,
    total_bytes: u64,
    free_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Drained<'a> {
    format: &'static str,
    node: &'a NodeId,
    drained: bool,
    changed: bool,
}

pub(crate) fn node(args: &NodeArgs, cli: &Cli) -> Outcome {
    match &args.command {
        NodeCommand::Join(args) => join(args, cli),
        NodeCommand::Ls(args) => {
            let seen = open(&args.cluster)?.seen().map_err(Failure::input)?;
            list(&seen.snapshot, &seen.problems, cli)
        }
        NodeCommand::Drain(args) => drain(args, true, cli),
        NodeCommand::Undrain(args) => drain(args, false, cli),
        NodeCommand::Plan(args) => super::force::run(args, cli),
    }
}

fn list(snapshot: &ClusterSnapshot, problems: &[String], cli: &Cli) -> Outcome {
    if cli.json {
        let nodes = snapshot.nodes.iter().map(record).collect();
        let listing =
            Listing { format: "plimsoll.nodes/1", generation: snapshot.generation.get(), nodes, problems };
        return Ok(serde_json::to_string_pretty(&listing).map_err(Failure::internal)? + "\n");
    }
    for problem in problems {
        crate::complain(&format!("note: {problem}"));
    }
    let mut out = format!("generation {}\n", snapshot.generation);
    for node in &snapshot.nodes {
        let drained = if node.drained { ", drained" } else { "" };
        let main = if node.main { ", runs the engine" } else { "" };
        let rpc = node.rpc.as_ref().map(|rpc| format!(", rpc {rpc}")).unwrap_or_default();
        out.push_str(&format!("{}{main}{rpc}{drained}\n", node.id));
        for pool in &node.pools {
            let free = pool.free.map_or_else(|| "not known".to_owned(), |free| free.to_string());
            out.push_str(&format!("  {}:{}  {} free of {}\n", node.id, pool.id, free, pool.total));
        }
    }
    Ok(out)
}

fn record(node: &Node) -> NodeRecord<'_> {
    NodeRecord {
        id: &node.id,
        drained: node.drained,
        main: node.main,
        rpc: node.rpc.as_deref(),
        pools: node
            .pools
            .iter()
            .map(|pool| PoolRecord {
                id: &pool.id,
                total_bytes: pool.total.get(),
                free_bytes: pool.free.map(Bytes::get),
            })
            .collect(),
    }
}

fn drain(args: &DrainArgs, drained: bool, cli: &Cli) -> Outcome {
    let registry = open(&args.cluster.cluster)?.registry();
    let done = if drained { registry.drain(&args.node) } else { registry.undrain(&args.node) };
    let changed = done.map_err(|error| match error {
        DrainError::UnknownNode { .. } => {
            Failure::Refused { stdout: String::new(), stderr: error.to_string() }
        }
        error => Failure::input(error),
    })?;
    if cli.json {
        let record = Drained { format: "plimsoll.drain/1", node: &args.node, drained, changed };
        return Ok(serde_json::to_string_pretty(&record).map_err(Failure::internal)? + "\n");
    }
    let what = if drained { "takes nothing new" } else { "takes layers again" };
    let already = if changed { "" } else { ", as before" };
    Ok(format!("{} {what}{already}\n", args.node))
}

/// Registers this machine and says what is free on it, until it is interrupted.
fn join(args: &JoinArgs, cli: &Cli) -> Outcome {
    let interrupts = crate::watch::interrupts()?;
    let live = open(&args.cluster.cluster)?;
    let agent = enter(&live, args)?;
    print(&format!("{} joined {}\n", agent.node(), live.cluster().url()))?;
    let (stop, stopped) = mpsc::channel();
    interrupts.then(move || {
        // Whoever listened may have ended already.
        let _stopping = stop.send(());
    });
    let mut told = AgentState::Registered;
    while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(args.interval) {
        let state = agent.state();
        if state != told {
            let line = match &state {
                AgentState::Registered => "registered again\n".to_owned(),
                AgentState::Lost(why) => format!("not registered: {why}\n"),
                other => format!("{other:?}\n"),
            };
            print(&line)?;
            told = state;
        }
        report(&agent, cli);
    }
    agent.leave();
    Ok(format!("{} left\n", agent.node()))
}

fn enter(live: &plimsoll::live::Live, args: &JoinArgs) -> Result<Agent, Failure> {
    let machine = input::this_machine();
    let mut node =
        machine.nodes.into_iter().next().ok_or_else(|| Failure::Internal("no machine".to_owned()))?;
    let host = node.id.to_string();
    if let Some(name) = &args.place.name {
        node.id = name.clone();
    }
    node.main = args.place.main;
    node.rpc.clone_from(&args.place.rpc);
    let mut resources = resources(&node).with_address(args.place.address.clone().unwrap_or(host));
    if let Some(boot) = ProcOwners::new().boot() {
        resources = resources.with_boot_id(boot);
    }
    live.enter(resources, KEPT_FREE, now()).map_err(|error| match &error {
        plimsoll::live::EnterError::Join(plimsoll::etcd::JoinError::Refused(_)) => {
            Failure::Refused { stdout: String::new(), stderr: error.to_string() }
        }
        _ => Failure::input(error),
    })
}

/// Says what is free now; where that cannot be said, the next time does.
fn report(agent: &Agent, cli: &Cli) {
    let machine = input::this_machine();
    let pools = machine.nodes.iter().flat_map(|node| &node.pools);
    let free: Vec<(PoolId, Bytes)> = pools.filter_map(|pool| Some((pool.id.clone(), pool.free?))).collect();
    if let Err(error) = agent.report(&free, now())
        && cli.verbose
    {
        crate::complain(&format!("note: {error}"));
    }
}
