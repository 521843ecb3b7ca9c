//! Clusters that are kept in etcd, as they are used from a shell.

#![cfg(target_os = "linux")]
#![cfg_attr(feature = "etcd", expect(clippy::unwrap_used, reason = "a test that cannot go on stops"))]

use std::process::{Command, Output};

fn plimsoll(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(line.split_whitespace()).env("NO_COLOR", "1");
    command
}

fn told(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[cfg(not(feature = "etcd"))]
#[test]
fn without_the_feature_it_says_how_to_get_it() {
    for line in [
        "ps --cluster etcd://h/home",
        "node ls --cluster etcd://h/home",
        "watch --cluster etcd://h/home",
        "rebalance --cluster etcd://h/home",
        "diff etcd://h/home x.json",
        #[cfg(feature = "agent")]
        "agent --join etcd://h/home",
        "plan x.gguf --cluster etcd://h/home",
    ] {
        let Ok(output) = plimsoll(line).output() else { panic!("{line} does not start") };
        let (status, _, stderr) = told(&output);
        // A model that is not there is found first.
        assert_eq!(status, Some(2), "{stderr}");
        assert!(stderr.contains("--features etcd") || line.starts_with("plan"), "{stderr}");
    }
}

#[cfg(feature = "etcd")]
mod with_etcd {
    use std::io::{BufRead as _, BufReader};
    use std::path::Path;
    use std::process::{Child, Stdio};

    use plimsoll_testkit::etcd::Etcd;

    use super::*;

    /// A cluster of one member, and this machine in it.
    struct Home {
        url: String,
        joined: Child,
        _etcd: Etcd,
    }

    impl Drop for Home {
        fn drop(&mut self) {
            drop(self.joined.kill());
            drop(self.joined.wait());
        }
    }

    fn etcd() -> Option<Etcd> {
        Etcd::start(Path::new(env!("CARGO_TARGET_TMPDIR")), 1)
    }

    fn home(etcd: Etcd) -> Home {
        let url = etcd.url("home");
        // The member may still be starting: a request is tried for 4 s, and this as often as it takes.
        for _ in 0..10 {
            let line = format!("node join --name here --address here:1 --main --interval 1s --cluster {url}");
            let mut joined = plimsoll(&line).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            let mut first = String::new();
            BufReader::new(joined.stdout.take().unwrap()).read_line(&mut first).unwrap();
            if first.starts_with("here joined etcd://") {
                return Home { url, joined, _etcd: etcd };
            }
            drop(joined.wait());
        }
        panic!("nobody joins {url}");
    }

    impl Home {
        fn run(&self, line: &str) -> (Option<i32>, String, String) {
            let (ours, rest) =
                line.split_once(" -- ").map_or((line, None), |(ours, rest)| (ours, Some(rest)));
            let mut command = plimsoll(ours);
            command.args(["--cluster", &self.url]);
            if let Some(rest) = rest {
                command.arg("--").args(rest.split_whitespace());
            }
            told(&command.output().unwrap())
        }

        fn succeeds(&self, line: &str) -> String {
            let (status, stdout, stderr) = self.run(line);
            assert_eq!(status, Some(0), "{line}: {stderr}");
            stdout
        }
    }

    #[test]
    fn what_is_booked_on_one_machine_is_known_on_all() {
        let Some(etcd) = etcd() else { return };
        let home = home(etcd);
        assert!(home.succeeds("node ls").contains("here, runs the engine"), "{}", home.succeeds("node ls"));
        assert_eq!(home.succeeds("reserve coder --needs 100MB --pool here:ram"), "coder\n");
        let ps = home.succeeds("ps --json");
        assert!(ps.contains("\"instance\": \"coder\"") && ps.contains("\"pool\": \"here:ram\""), "{ps}");
        assert_eq!(home.succeeds("resize coder --needs 200MB"), "coder\n");
        let (status, _, stderr) = home.run("reserve other --needs 900TB --pool here:ram");
        assert_eq!(status, Some(1), "{stderr}");
        assert!(stderr.contains("held by coder 0.2 GB"), "{stderr}");
        // A command holds its memory as long as it runs, and no longer.
        let inside = home.succeeds(&format!(
            "run chat --needs 50MB --pool here:ram -- {} ps --json --cluster {}",
            env!("CARGO_BIN_EXE_plimsoll"),
            home.url
        ));
        assert!(inside.contains("\"role\": \"chat\""), "{inside}");
        assert!(!home.succeeds("ps --json").contains("\"role\": \"chat\""));
        assert_eq!(home.succeeds("release coder"), "coder\n");
    }

    #[test]
    fn a_drained_machine_takes_nothing_new() {
        let Some(etcd) = etcd() else { return };
        let home = home(etcd);
        assert_eq!(home.succeeds("node drain here"), "here takes nothing new\n");
        let (status, _, stderr) = home.run("reserve coder --needs 100MB --pool here:ram");
        assert_eq!(status, Some(1), "{stderr}");
        assert!(stderr.contains("nobody while 'here' is drained"), "{stderr}");
        assert_eq!(home.succeeds("node undrain here"), "here takes layers again\n");
        assert_eq!(home.succeeds("reserve coder --needs 100MB --pool here:ram"), "coder\n");
        let (status, _, stderr) = home.run("node drain nobody");
        assert_eq!(
            (status, stderr.as_str()),
            (Some(1), "the cluster has no node 'nobody' (it has 'here')\n")
        );
    }

    #[test]
    fn a_plan_is_made_for_the_machines_that_are_there() {
        let Some(etcd) = etcd() else { return };
        let home = home(etcd);
        let toy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("toy.toml");
        std::fs::write(&toy, "name = \"toy\"\nlayers = [ { count = 4, bytes = \"1MB\" } ]\n").unwrap();
        let plan = home.succeeds(&format!("plan {} --json", toy.display()));
        assert!(plan.contains("\"node\": \"here\""), "{plan}");
        let (status, _, stderr) =
            told(&plimsoll("node ls --cluster etcd://anna:hunter2@127.0.0.1:1/home").output().unwrap());
        assert_eq!(status, Some(2));
        assert!(
            stderr.contains("no majority of etcd answers at 127.0.0.1:1") && !stderr.contains("hunter2"),
            "{stderr}"
        );
    }

    #[test]
    fn the_plan_in_force_takes_the_place_of_a_plan_file() {
        let Some(etcd) = etcd() else { return };
        let home = home(etcd);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("in-force-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = |name: &str| folder.join(name).display().to_string();
        std::fs::write(
            folder.join("toy.toml"),
            "name = \"toy\"\nlayers = [ { count = 4, bytes = \"1MB\" } ]\n",
        )
        .unwrap();
        let url = &home.url;
        assert_eq!(home.succeeds("node plan"), format!("no plan is in force in {url}\n"));
        for line in ["rebalance", &format!("check {url}"), "rebalance --apply"] {
            let (status, _, stderr) = home.run(line);
            assert_eq!(
                (status, stderr),
                (Some(2), format!("error: no plan is in force in {url}\n")),
                "{line}"
            );
        }
        let mut watch = plimsoll(&format!("watch --cluster {url}")).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut until = |meant: &str| {
            let line = lines.by_ref().find(|line| line.contains(meant));
            line.unwrap_or_else(|| panic!("the watch ended before it told '{meant}'"))
        };
        until("now: here at generation ");
        let (status, _, stderr) =
            home.run(&format!("plan {} --apply --out {}", file("toy.toml"), file("plan.json")));
        assert_eq!((status, stderr), (Some(0), format!("plan 1 is in force in {url}\n")));
        assert_eq!(until("plan 1"), "plan 1 for toy: the plan in force holds");
        home.succeeds("reserve coder --needs 1MB --pool here:ram");
        until("coder booked");
        home.succeeds("resize coder --needs 2MB --pool here:ram");
        until("coder holds");
        home.succeeds("release coder");
        until("coder gave back");
        home.succeeds("node plan --forget");
        assert_eq!(until("no plan"), "no plan is in force");
        watch.kill().unwrap();
        watch.wait().unwrap();
        home.succeeds(&format!("node plan --set {} --replaces 0", file("plan.json")));
        assert!(home.succeeds("node plan").starts_with("plan 3 for toy, made at generation "));
        assert!(home.succeeds(&format!("check {url}")).contains("the plan for toy fits"));
        let (status, diff, stderr) =
            told(&plimsoll(&format!("diff {url} {}", file("plan.json"))).output().unwrap());
        assert!(status == Some(0) && diff.contains("nothing changes"), "{diff}{stderr}");
        assert!(home.succeeds("rebalance").contains("the plan in force still holds"));
        assert!(home.succeeds("advise --needs 1MB --pool here:ram").contains("it fits"));
        assert!(home.succeeds(&format!("fit {} --ctx 1", file("toy.toml"))).contains("toy"));
        drop(std::fs::remove_dir_all(folder));
    }
}
