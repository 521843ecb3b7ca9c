//! The matrix means the sets that it was made from.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_export::llama_swap::{Member, matrix};
use proptest::prelude::*;

/// The sections of a matrix, read line by line.
fn read(text: &str) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut sections: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines() {
        let depth = line.len() - line.trim_start().len();
        let (key, value) = line.trim().split_once(':').unwrap();
        match depth {
            8 => {
                key.clone_into(&mut name);
                sections.insert(name.clone(), BTreeMap::new());
            }
            10 => {
                let section = sections.get_mut(&name).unwrap();
                assert_eq!(section.insert(key.to_owned(), value.trim().to_owned()), None, "{key} twice");
            }
            _ => {}
        }
    }
    sections
}

/// The sets that the expressions of a matrix stand for.
fn expanded(text: &str) -> BTreeSet<BTreeSet<String>> {
    let sections = read(text);
    let id = |name: &str| -> String { serde_json::from_str(&sections["vars"][name.trim()]).unwrap() };
    let set = |expression: &String| {
        let expression: String = serde_json::from_str(expression).unwrap();
        expression.split('&').map(id).collect()
    };
    sections["sets"].values().map(set).collect()
}

proptest! {
    #[test]
    fn expanding_the_matrix_gives_the_sets_back(
        sets in prop::collection::vec(prop::collection::btree_set("[ -~]{1,8}", 1..5), 0..6),
    ) {
        let lists: Vec<Vec<String>> = sets.iter().map(|set| set.iter().cloned().collect()).collect();
        let text = matrix(&[], &lists);
        prop_assert_eq!(expanded(&text), sets.into_iter().collect::<BTreeSet<_>>());
    }
}

#[test]
fn a_matrix_is_written_for_people_too() {
    let member = |id: &str, cost| Member { id: id.to_owned(), cost };
    let members = [member("coder", 55), member("alone", 3), member("small", 0)];
    let sets = [vec!["coder".to_owned(), "small".to_owned()], vec!["planner".to_owned(), "small".to_owned()]];
    let text = "\
routing:
  router:
    use: matrix
    settings:
      matrix:
        vars:
          m1: \"coder\"
          m2: \"planner\"
          m3: \"small\"
        evict_costs:
          m1: 55
          m2: 1
          m3: 1
        sets:
          set1: \"m1 & m3\"
          set2: \"m2 & m3\"
";
    assert_eq!(matrix(&members, &sets), text);
}
