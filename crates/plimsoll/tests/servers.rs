//! The lines of rpc servers, pasted before the engine's.

#![cfg(feature = "files")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use plimsoll::cluster::file::parse_cluster;
use plimsoll::export::llama_cpp::{FlagsError, parse_flags};

const MACHINES: &str = r#"
[[node]]
id = "tower"
main = true
[[node.device]]
id = "CUDA0"
backend = "cuda"
memory = "24GB"

[[node]]
id = "rig"
rpc = "10.0.0.7:50052"
[[node.device]]
id = "CUDA0"
backend = "cuda"
memory = "24GB"
[[node.device]]
id = "CUDA1"
backend = "cuda"
memory = "24GB"

[[node]]
id = "den"
rpc = "den.lan:50052"
[[node.device]]
id = "CUDA0"
backend = "cuda"
memory = "24GB"
"#;

fn devices(line: &str) -> Result<Vec<String>, FlagsError> {
    let snapshot = parse_cluster(MACHINES).unwrap().snapshot;
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let assignment = parse_flags(&words)?.assign(8, &snapshot)?;
    Ok(assignment.devices.iter().map(ToString::to_string).collect())
}

#[test]
fn the_line_of_a_server_says_which_devices_are_meant() {
    let engine = "llama-server -m a.gguf --rpc 10.0.0.7:50052,den.lan:50052 --device RPC0,RPC1 -ngl 9";
    assert_eq!(devices(engine).unwrap(), ["rig/CUDA0", "rig/CUDA1"]);
    let one = "on rig: ggml-rpc-server -H 10.0.0.7 -p 50052 --device CUDA1 -c on tower:";
    assert_eq!(devices(&format!("{one} {engine}")).unwrap(), ["rig/CUDA1", "den/CUDA0"]);
    let turned = "/opt/bin/rpc-server -H 10.0.0.7 -d CUDA1,CUDA0";
    assert_eq!(devices(&format!("{turned} {engine}")).unwrap(), ["rig/CUDA1", "rig/CUDA0"]);
}

#[test]
fn a_server_that_listens_everywhere_is_that_of_the_address_that_is_left() {
    let engine = "llama-server --rpc den.lan:50052,10.0.0.7:50052 --device RPC0,RPC1 -ngl 9";
    let lines = "rpc-server -H 0.0.0.0 -d CUDA0 rpc-server -H 10.0.0.7 -d CUDA1";
    assert_eq!(devices(&format!("{lines} {engine}")).unwrap(), ["den/CUDA0", "rig/CUDA1"]);
}

#[test]
fn what_a_server_cannot_show_and_what_nobody_asks_for_is_told() {
    let engine = "llama-server --rpc 10.0.0.7:50052 --device RPC0 -ngl 9";
    let error = devices(&format!("rpc-server -H 10.0.0.7 -d CUDA7 {engine}")).unwrap_err();
    assert_eq!(error.to_string(), "ggml-rpc-server --device names 'CUDA7'; the engine sees CUDA0, CUDA1");
    let words: Vec<String> = format!("rpc-server -p 1 {engine}").split(' ').map(str::to_owned).collect();
    assert_eq!(parse_flags(&words).unwrap().ignored, ["the server at 127.0.0.1:1"]);
    assert_eq!(devices("rpc-server -H"), Err(FlagsError::NoValue { flag: "-H".to_owned() }));
}
