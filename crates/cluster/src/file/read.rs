//! From the text of a cluster file to a snapshot: nodes, which of them is main, links.

use std::collections::BTreeMap;

use plimsoll_units::{Generation, NodeId};
use toml::de::DeTable;

use super::node::{NODE_KEYS, read_node};
use super::problem::{Fault, Problem, line_of};
use super::table::{At, Table};
use crate::{ClusterSnapshot, Link, Node};

pub(super) fn cluster(text: &str) -> Result<ClusterSnapshot, Fault> {
    let document = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        Fault::new(at, Problem::Syntax { message: error.message().replace('\n', "; ") })
    })?;
    let file = "the file".to_owned();
    let root = Table::new(file, 0, document.get_ref(), &["defaults", "node", "link"])?;
    let reserve = match root.table("defaults", &["reserve"])? {
        Some(defaults) => defaults.bytes("reserve")?,
        None => None,
    };
    let tables = root.tables("node", NODE_KEYS, |index, id| match id {
        Some(id) => format!("node '{}'", id.escape_debug()),
        None => format!("[[node]] number {}", index + 1),
    })?;
    let mut read: Vec<(Node, Table<'_, '_>)> = Vec::with_capacity(tables.len());
    for table in tables {
        read.push((read_node(&table, reserve, text)?, table));
    }
    if read.is_empty() {
        return Err(Fault::new(0, Problem::NoNodes));
    }
    check_nodes(&read, text)?;
    let mut nodes: Vec<Node> = read.into_iter().map(|(node, _)| node).collect();
    nodes.sort_by(|a, b| a.id.cmp(&b.id));
    let links = read_links(&root, &nodes, text)?;
    let mut snapshot = ClusterSnapshot { generation: Generation::FIRST, nodes, links };
    let main = snapshot.main_node().ok().map(|node| node.id.clone());
    for node in &mut snapshot.nodes {
        node.main = main.as_ref() == Some(&node.id);
    }
    Ok(snapshot)
}

/// What must differ from node to node: ids, addresses, and who is main.
fn check_nodes(read: &[(Node, Table<'_, '_>)], text: &str) -> Result<(), Fault> {
    let mut ids: BTreeMap<&NodeId, usize> = BTreeMap::new();
    let mut addresses: BTreeMap<&str, (&NodeId, usize)> = BTreeMap::new();
    let mut main: Option<(&NodeId, usize)> = None;
    for (node, table) in read {
        let id_at = table.place("id");
        if let Some(first) = ids.insert(&node.id, id_at) {
            let first = line_of(text, first);
            return Err(Fault::new(id_at, Problem::NodeTwice { id: node.id.to_string(), first }));
        }
        let name = || table.name.clone();
        if let Some(rpc) = &node.rpc {
            let at = table.place("rpc");
            if let Some((other, first)) = addresses.insert(rpc, (&node.id, at)) {
                let (other, first) = (other.to_string(), line_of(text, first));
                let problem = Problem::AddressTwice { table: name(), value: rpc.clone(), other, first };
                return Err(Fault::new(at, problem));
            }
        }
        if node.main {
            let at = table.place("main");
            if let Some((other, first)) = main.replace((&node.id, at)) {
                let (other, first) = (other.to_string(), line_of(text, first));
                return Err(Fault::new(at, Problem::TwoMains { table: name(), other, first }));
            }
        }
    }
    Ok(())
}

fn read_links(root: &Table<'_, '_>, nodes: &[Node], text: &str) -> Result<Vec<Link>, Fault> {
    let name = |index: usize, _: Option<&str>| format!("[[link]] number {}", index + 1);
    let mut links: BTreeMap<[NodeId; 2], (Link, usize)> = BTreeMap::new();
    for table in root.tables("link", &["between", "bandwidth", "latency"], name)? {
        let Some(ends) = table.texts("between")? else { return Err(table.missing("between")) };
        let [a, b] = ends.value.as_slice() else {
            let problem = Problem::Ends { table: table.name.clone(), count: ends.value.len() };
            return Err(Fault::new(ends.at, problem));
        };
        let (a, b) = (find_end(&table, nodes, a)?, find_end(&table, nodes, b)?);
        if a == b {
            let problem = Problem::LinkToItself { table: table.name.clone(), node: a.to_string() };
            return Err(Fault::new(ends.at, problem));
        }
        let between = if a < b { [a.clone(), b.clone()] } else { [b.clone(), a.clone()] };
        let (bandwidth, latency) = (table.rate("bandwidth")?, table.time("latency")?);
        let link = Link { between: between.clone(), bandwidth, latency };
        if let Some((_, first)) = links.insert(between, (link, ends.at)) {
            let (a, b, first) = (a.to_string(), b.to_string(), line_of(text, first));
            return Err(Fault::new(ends.at, Problem::LinkTwice { table: table.name.clone(), a, b, first }));
        }
    }
    Ok(links.into_values().map(|(link, _)| link).collect())
}

fn find_end<'n>(table: &Table<'_, '_>, nodes: &'n [Node], end: &At<&str>) -> Result<&'n NodeId, Fault> {
    match nodes.binary_search_by(|node| node.id.as_str().cmp(end.value)) {
        Ok(index) => Ok(&nodes[index].id),
        Err(_) => {
            let shown: Vec<&str> = nodes.iter().take(12).map(|n| n.id.as_str()).collect();
            let more = if nodes.len() > shown.len() { ", .." } else { "" };
            let problem = Problem::UnknownEnd {
                table: table.name.clone(),
                node: end.value.escape_debug().to_string(),
                known: format!("{}{more}", shown.join(", ")),
            };
            Err(Fault::new(end.at, problem))
        }
    }
}
