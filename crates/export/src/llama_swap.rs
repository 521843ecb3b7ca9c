//! The matrix of llama-swap: which models may be loaded together, as text for its configuration.
//!
//! llama-swap takes every subset of a set as allowed, and loads a model that is in no set alone.

use std::collections::BTreeMap;

/// A model of a matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its id in the configuration of llama-swap.
    pub id: String,
    /// What it costs to evict, in units that only compare; at least one is written.
    pub cost: u64,
}

/// The YAML of a matrix: `routing.router.settings.matrix` with its variables, costs and sets.
///
/// Sets name their members by short variables, for an id may hold what no expression can. Members of sets that are not
/// among `members` cost one. The same input gives the same text.
///
/// ```
/// use plimsoll_export::llama_swap::{Member, matrix};
///
/// let members = [Member { id: "coder".to_owned(), cost: 55 }, Member { id: "planner:30b".to_owned(), cost: 9 }];
/// let sets = [vec!["coder".to_owned(), "planner:30b".to_owned()]];
/// assert!(matrix(&members, &sets).contains("set1: \"m1 & m2\""));
/// ```
pub fn matrix(members: &[Member], sets: &[Vec<String>]) -> String {
    let mut costs: BTreeMap<&str, u64> = sets.iter().flatten().map(|id| (id.as_str(), 1)).collect();
    for member in members {
        if let Some(cost) = costs.get_mut(member.id.as_str()) {
            *cost = member.cost.max(1);
        }
    }
    let names: BTreeMap<&str, String> =
        costs.keys().zip(1_usize..).map(|(id, n)| (*id, format!("m{n}"))).collect();
    let mut out = String::from("routing:\n  router:\n    use: matrix\n    settings:\n      matrix:\n");
    let mut section = |name: &str, lines: Vec<String>| {
        if lines.is_empty() {
            out.push_str(&format!("        {name}: {{}}\n"));
        } else {
            out.push_str(&format!("        {name}:\n"));
            lines.iter().for_each(|line| out.push_str(&format!("          {line}\n")));
        }
    };
    section("vars", names.iter().map(|(id, name)| format!("{name}: {}", quoted(id))).collect());
    section("evict_costs", costs.iter().map(|(id, cost)| format!("{}: {cost}", names[id])).collect());
    let set = |(ids, n): (&Vec<String>, usize)| {
        let all: Vec<&str> = ids.iter().map(|id| names[id.as_str()].as_str()).collect();
        format!("set{n}: \"{}\"", all.join(" & "))
    };
    section("sets", sets.iter().filter(|ids| !ids.is_empty()).zip(1_usize..).map(set).collect());
    out
}

/// A text in double quotes, as YAML and JSON both read it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
