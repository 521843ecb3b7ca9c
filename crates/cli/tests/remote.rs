//! Models and machines on servers, as a person types their addresses.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use plimsoll_testkit::http::{Answer, Server, answer, not_found, part_of};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The command with nothing of this machine's environment that could send it elsewhere.
fn plimsoll(args: &[&str], settings: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    for name in ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY"] {
        command.env_remove(name).env_remove(name.to_ascii_lowercase());
    }
    command
        .args(args)
        .current_dir(root())
        .env("NO_COLOR", "1")
        .env("HF_TOKEN", "hf_hush")
        .envs(settings.iter().copied())
        .output()
        .unwrap()
}

/// Runs a command that has to end like this, and gives what it printed on stdout and stderr.
fn ends(status: i32, args: &[&str]) -> (String, String) {
    ends_with(status, args, &[])
}

fn ends_with(status: i32, args: &[&str], settings: &[(&str, &str)]) -> (String, String) {
    let output = plimsoll(args, settings);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(status), "{args:?}: {stdout}{stderr}");
    for secret in ["hush", "X-Sig"] {
        assert!(!stdout.contains(secret) && !stderr.contains(secret), "{secret} in {stdout}{stderr}");
    }
    (stdout, stderr)
}

/// The examples of the project, and two hardware snapshots.
fn server() -> Server {
    Server::new(|request| {
        let path = request.target.split('?').next().unwrap();
        let snapshot = |version: u32| {
            format!(
                r#"{{"schema_version": {version}, "memory": {{"capacity_bytes": 68719476736}}, "accelerators": [
                {{"index": 0, "kind": "gpu", "vendor": "NVIDIA", "model": "NVIDIA GeForce RTX 4090",
                  "memory": {{"kind": "dedicated", "capacity_bytes": 25757220864}}}}]}}"#
            )
        };
        Answer::Send(match path {
            "/api/hardware" => answer("200 OK", &[], snapshot(1).as_bytes()),
            "/new/hardware" => answer("200 OK", &[], snapshot(2).as_bytes()),
            _ => std::fs::read(root().join(&path[1..]))
                .map_or_else(|_| not_found(), |file| part_of(&file, request)),
        })
    })
}

const MODEL: &str = "/examples/llama-3.1-8b-q4_k_m.gguf";

/// The address with secrets in it, and as it may be shown.
fn addresses(server: &Server) -> (String, String) {
    let shown = server.url(MODEL);
    (shown.replace("http://", "http://me:hush@") + "?X-Sig=hush", shown)
}

#[test]
fn a_plan_for_a_model_on_a_server_is_that_of_the_file_and_tells_the_engine_the_address() {
    let server = server();
    let (typed, shown) = addresses(&server);
    let cluster = ["--cluster", "examples/two-cards.toml", "--ctx", "8192"];
    let file = ends(0, &[&["plan", &MODEL[1..]], &cluster[..]].concat()).0;
    let (stdout, stderr) = ends(0, &[&["plan", typed.as_str()], &cluster[..]].concat());
    // Where the lines of a command break depends on how long it is.
    let words = |text: &str| {
        text.split_whitespace().filter(|word| *word != "\\").map(str::to_owned).collect::<Vec<_>>()
    };
    let expected = file.replace(&format!("-m {}", &MODEL[1..]), &format!("-mu {shown}"));
    assert_eq!(words(&stdout), words(&expected));
    assert_eq!(
        stderr,
        "note: the address in the command is without name, password and query: they may be secrets, and the engine may need \
         them\n"
    );
    // The token is for another host and for protected connections.
    assert!(
        server.asked().iter().all(|request| request.header("authorization") == Some("Basic bWU6aHVzaA=="))
    );
    let (saved, _) = ends(0, &[&["plan", typed.as_str(), "--json"], &cluster[..]].concat());
    assert!(saved.contains(&format!("-mu {shown}")), "{saved}");
}

#[test]
fn every_command_that_takes_a_model_takes_an_address() {
    let server = server();
    let (typed, shown) = addresses(&server);
    let cluster = ["--cluster", "examples/two-cards.toml"];
    let (_, stderr) = ends(0, &["inspect", &typed, "-v"]);
    assert_eq!(stderr, format!("read 18080 bytes of {shown} in 1 request\n"));
    ends(0, &["inspect", &typed, "--json"]);
    let (fit, _) = ends(0, &[&["fit", &typed, "--json"], &cluster[..]].concat());
    assert!(fit.contains(&format!("\"path\": \"{shown}\"")), "{fit}");
    ends(0, &[&["check", "--from-flags", "-ngl 99 -c 4096", &typed], &cluster[..]].concat());
}

#[test]
fn what_is_not_there_or_no_address_is_wrong_input() {
    let server = server();
    let gone = server.url("/examples/none.gguf") + "?X-Sig=hush";
    let (_, stderr) = ends(2, &["inspect", &gone]);
    let shown = server.url("/examples/none.gguf");
    assert_eq!(
        stderr,
        format!("error: cannot open {shown}: the server answers 404 (not found): is the address right?\n")
    );
    let (_, stderr) = ends(2, &["inspect", "https://me:hush@host:port/x.gguf"]);
    assert_eq!(stderr, "error: the port of the address is no number up to 65535\n");
}

#[test]
fn a_hardware_snapshot_is_a_cluster_from_a_file_or_a_server() {
    let server = server();
    let address = server.url("/api/hardware");
    let (plan, stderr) = ends(0, &["plan", &MODEL[1..], "--cluster", &address, "--ctx", "8192"]);
    assert!(plan.contains("127.0.0.1/CUDA0"), "{plan}");
    let free = "the snapshot does not say what is free: all of the memory is taken for free";
    assert_eq!(stderr, format!("note: {address}: {free}\n"));

    let folder = std::env::temp_dir().join(format!("plimsoll-hardware-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("tower.json");
    let text = r#" {"schema_version": 1, "memory": {"capacity_bytes": 68719476736}, "accelerators": null}"#;
    std::fs::write(&file, text).unwrap();
    let (plan, _) = ends(0, &["plan", &MODEL[1..], "--cluster", file.to_str().unwrap(), "--ctx", "8192"]);
    assert!(plan.contains("tower/host"), "{plan}");
    std::fs::write(&file, "{\"nodes\": []}").unwrap();
    let (_, stderr) = ends(2, &["plan", &MODEL[1..], "--cluster", file.to_str().unwrap()]);
    let expected = "this JSON is no hardware snapshot of llama-swap: it has no 'schema_version'";
    assert_eq!(stderr, format!("error: {}: {expected}\n", file.display()));
    std::fs::remove_dir_all(folder).unwrap();

    let newer = server.url("/new/hardware");
    let (_, stderr) = ends(2, &["plan", &MODEL[1..], "--cluster", &newer]);
    assert_eq!(stderr, format!("error: {newer}: 'schema_version' is 2; version 1 is understood\n"));
    let gone = server.url("/api/none");
    let (_, stderr) = ends(2, &["plan", &MODEL[1..], "--cluster", &gone]);
    assert_eq!(
        stderr,
        format!("error: cannot read {gone}: the server answers 404 (not found): is the address right?\n")
    );
}

#[test]
fn the_proxy_of_the_environment_is_asked_unless_the_host_goes_past_it() {
    let proxy = Server::new(|_| Answer::Send(answer("403 Forbidden", &[], b"")));
    let address = proxy.url("").replace("http://", "http://me:hush@");
    let (_, stderr) = ends_with(2, &["inspect", "http://model.invalid/m.gguf"], &[("HTTP_PROXY", &address)]);
    let expected = "no good answer from model.invalid: the proxy does not lead there";
    assert_eq!(stderr, format!("error: cannot open http://model.invalid/m.gguf: {expected}\n"));
    assert_eq!(proxy.asked()[0].target, "model.invalid:80");
    let server = server();
    let past = [("HTTP_PROXY", address.as_str()), ("NO_PROXY", "127.0.0.1")];
    ends_with(0, &["inspect", &server.url(MODEL)], &past);
    assert_eq!(proxy.asked().len(), 1);
}
