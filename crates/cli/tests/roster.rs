//! Rosters on the command line: which models fit together.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

/// A roster in a folder of its own, removed at the end.
struct Roster(PathBuf);

impl Roster {
    fn new(name: &str, text: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("plimsoll-roster-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("roster.toml"), text).unwrap();
        Self(folder)
    }

    fn check(&self, more: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["roster", "check"])
            .arg(self.0.join("roster.toml"))
            .args(more)
            .env("NO_COLOR", "1")
            .output()
            .unwrap()
    }

    fn succeeds(&self, more: &[&str]) -> String {
        let output = self.check(more);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Roster {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clean.
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

const HOME: &str = r#"
budget = "96GB"

[[role]]
role = "coder-daily"
needs = "55GB"
excludes = ["planner"]

[[role]]
role = "coder-small"
weights = "8GB"
kv = "1GB"
pinned = true

[[role]]
role = "planner"
needs = "55GB"
priority = 1

[[role]]
role = "whale"
needs = "120GB"
"#;

#[test]
fn a_roster_says_which_roles_fit_together_and_which_never_do() {
    let text = Roster::new("table", HOME).succeeds(&[]);
    assert_eq!(
        text,
        "\
budget: unified-memory 96.0 GB

 role            needs              excludes
 coder-daily   55.0 GB              planner
 coder-small    9.0 GB  pinned
 planner       55.0 GB  priority 1
 whale        120.0 GB

 fit together                  need
 coder-daily + coder-small  64.0 GB
 coder-small + planner      64.0 GB

never fit:
  unplaceable: 'whale' needs 120.0 GB but only 96.0 GB of the 96.0 GB
    unified-memory budget is free (held by nothing)
"
    );
}

#[test]
fn a_roster_is_told_to_programs_too() {
    let told: Value = serde_json::from_str(&Roster::new("json", HOME).succeeds(&["--json"])).unwrap();
    assert_eq!(told["format"], "plimsoll.roster/1");
    assert_eq!(told["sets"], serde_json::json!([["coder-daily", "coder-small"], ["coder-small", "planner"]]));
    assert_eq!(told["never"][0]["role"], "whale");
    assert_eq!(told["never"][0]["short_bytes"], 24_000_000_000_u64);
    assert_eq!(told["roles"][1]["bytes"], 9_000_000_000_u64);
}

#[test]
fn a_roster_is_a_matrix_for_llama_swap() {
    assert_eq!(
        Roster::new("matrix", HOME).succeeds(&["--llama-swap"]),
        "\
# 'whale' never fits and is left out
routing:
  router:
    use: matrix
    settings:
      matrix:
        vars:
          m1: \"coder-daily\"
          m2: \"coder-small\"
          m3: \"planner\"
        evict_costs:
          m1: 55
          m2: 8
          m3: 110
        sets:
          set1: \"m1 & m2\"
          set2: \"m2 & m3\"
"
    );
}

#[test]
fn a_model_beside_the_roster_is_sized_from_its_header() {
    let roster = Roster::new(
        "sized",
        "[pools]\nCUDA0 = \"8GB\"\nram = \"32GB\"\n\
         [[role]]\nrole = \"a\"\nmodel = \"m.gguf\"\nctx = 8192\npool = \"CUDA0\"\n\
         [[role]]\nrole = \"b\"\nmodel = \"m.gguf\"\nctx = 131072\ncache_type_k = \"q8_0\"\npool = \"CUDA0\"\n",
    );
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/llama-3.1-8b-q4_k_m.gguf");
    std::fs::copy(model, roster.0.join("m.gguf")).unwrap();
    let told: Value = serde_json::from_str(&roster.succeeds(&["--json"])).unwrap();
    assert_eq!(told["roles"][0]["computed"], true);
    assert_eq!(told["sets"], serde_json::json!([["a"]]));
    assert_eq!(told["never"][0]["role"], "b");
    assert!(roster.succeeds(&[]).contains("computed"));
}

#[test]
fn a_roster_with_a_fault_is_refused_by_its_line() {
    for (text, says) in [
        ("budget = \"1GB\"\n\n[[role]]\nrole = \"a\"\nneed = 1\n", "line 5: unknown field `need`"),
        (
            "budget = \"1GB\"\n[[role]]\nrole = \"a\"\nneeds = 0\n",
            "line 2: role 'a' needs 0 bytes, which is as good as",
        ),
        ("budget = \"1GB\"\n[[role]]\nrole = \"a\"\n", "line 2: role 'a' has no size"),
        ("budget = \"1GB\"\n[[role]]\nrole = \"a\"\nkv = 1\n", "line 2: role 'a' has no size"),
        ("budget = \"1GB\"\n[[role]]\nrole = \"a\"\nmodel = \"m.gguf\"\n", "line 2: role 'a' has no size"),
        (
            "budget = \"1GB\"\n[[role]]\nrole = \"a\"\nmodel = \"m.gguf\"\nctx = 1\n",
            "line 2: role 'a': cannot read",
        ),
        (
            "budget = \"1GB\"\n[[role]]\nrole = \"a\"\nneeds = 1\nweights = 1\n",
            "line 2: role 'a' has its size twice",
        ),
        ("budget = \"-1GB\"\n", "line 1: "),
        ("budget = 1\n[pools]\nx = 1\n", "both 'budget' and [pools]"),
        ("[[role]]\nrole = \"a\"\nneeds = 1\n", "no 'budget' and no [pools]"),
        ("budget = 1\n", "no [[role]]"),
        (
            "budget = 9\n[[role]]\nrole = \"a\"\nneeds = 1\n[[role]]\nrole = \"role:a\"\nneeds = 1\n",
            "line 5: role 'a' is listed twice",
        ),
        (
            "[pools]\nx = 1\ny = 1\n[[role]]\nrole = \"a\"\nneeds = 1\n",
            "line 4: role 'a' names no 'pool', and there are x, y",
        ),
        (
            "[pools]\nx = 1\n[[role]]\nrole = \"a\"\nneeds = 1\npool = \"z\"\n",
            "line 3: role 'a' needs pool 'z', and there are x",
        ),
        ("budget = 1\n[[role]]\nrole = \"a\"\nneeds = 1\nlatency_class = \"soon\"\n", "latency class 'soon'"),
        ("budget = 1\nroles = 3\n", "line 2: unknown field `roles`"),
    ] {
        let output = Roster::new("fault", text).check(&[]);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}: {told}");
        assert!(told.contains(says), "{text}: {told}");
    }
}
