//! The rule of February 2025, which ik_llama.cpp still follows: `-ngl N` are the last N blocks, and the output layer goes
//! to a device only when N is larger than their number.

use plimsoll_balance::Plan;
use plimsoll_cluster::ClusterSnapshot;
use plimsoll_model::Request;

use super::{Command, ExportError, LaunchLine, ModelFacts, Place, command as newer_command};

/// The build whose rule this is.
pub const VERSION: &str = "2025-02";

/// Where the engine puts each of `blocks` blocks and, as the last item, the output layer.
///
/// Shares are added and compared in 32-bit floating point, as the engine does it.
pub fn assign(blocks: u32, gpu_layers: u32, split: &[f32]) -> Vec<Place> {
    let start = blocks.saturating_sub(gpu_layers);
    let act = gpu_layers.min(blocks.saturating_add(1));
    let total: f32 = split.iter().fold(0.0, |sum, share| sum + share);
    let mut sum = 0.0_f32;
    let mut bounds = Vec::with_capacity(split.len());
    for share in split {
        sum += share;
        bounds.push(sum / total);
    }
    let place = |index: u32| {
        let offset = index.checked_sub(start).filter(|offset| *offset < act);
        let probe = offset.map(|offset| to_f32(offset) / to_f32(act));
        let device = probe.and_then(|probe| bounds.iter().position(|bound| probe < *bound));
        device.map_or(Place::Host, Place::Device)
    };
    (0..=blocks).map(place).collect()
}

/// As C converts an integer to `float`.
#[expect(
    clippy::cast_precision_loss,
    reason = "the engine computes in 32 bits; block counts stay below 2^24"
)]
fn to_f32(n: u32) -> f32 {
    n as f32
}

/// A plan in the words of that time.
///
/// With every block on devices the line is today's. With blocks on the host the counts leave the output layer out, for it
/// stays on the host; the plan has to count it there.
///
/// # Errors
///
/// As [`super::command`].
pub fn command(
    plan: &Plan,
    snapshot: &ClusterSnapshot,
    request: &Request,
    model: &ModelFacts<'_>,
) -> Result<Command, ExportError> {
    let mut command = newer_command(plan, snapshot, request, model)?;
    let first = plan.stages.iter().find(|stage| !stage.layers.is_empty());
    let main = snapshot.main_node().map_err(|_| ExportError::NoMainNode)?;
    let on_host = first.is_some_and(|stage| {
        stage.device.node == main.id
            && main.device(&stage.device.device).is_some_and(|device| device.is_host())
    });
    for server in &mut command.rpc_servers {
        older_server(server)?;
    }
    let words = &mut command.server.words;
    if on_host {
        // Next-token blocks are blocks like any other and stay with the last device; only the output layer does not.
        change(words, "-ngl", less_one);
        change(words, "-ts", |shares| match shares.rsplit_once(',') {
            Some((before, last)) => format!("{before},{}", less_one(last)),
            None => less_one(shares),
        });
    }
    // Flags that came later.
    drop_flag(words, "--fit");
    drop_flag(words, "--cache-ram");
    // One cache for all sequences, and windows in full, were the only ways.
    words.retain(|word| word != "--kv-unified" && word != "--swa-full");
    change_flash(words);
    Ok(command)
}

/// The server of that time has another name, shows the first device that it sees, and keeps no files.
fn older_server(line: &mut LaunchLine) -> Result<(), ExportError> {
    let uuids = line.words.get(1).filter(|_| line.words.first().is_some_and(|word| word == "env"));
    let uuids = uuids.and_then(|word| word.strip_prefix("CUDA_VISIBLE_DEVICES=")).map(str::to_owned);
    if uuids.is_some() {
        line.words.drain(..2);
    }
    let list = line.words.iter().skip_while(|word| *word != "--device").nth(1).cloned().unwrap_or_default();
    let devices = list.split(',').count();
    if devices > 1 {
        return Err(ExportError::OneDeviceOfServer { node: line.node.clone(), devices });
    }
    let mut words: Vec<String> = Vec::new();
    let number = list.trim_start_matches(|c: char| !c.is_ascii_digit());
    if let Some(place) = number.parse::<usize>().ok().filter(|_| list.starts_with("CUDA")) {
        let uuid = uuids.as_deref().and_then(|uuids| uuids.split(',').nth(place));
        words.extend(["env".to_owned(), format!("CUDA_VISIBLE_DEVICES={}", uuid.unwrap_or(number))]);
    }
    words.push("rpc-server".to_owned());
    words.extend(line.words.iter().skip(1).take_while(|word| *word != "--device").cloned());
    line.words = words;
    Ok(())
}

fn less_one(number: &str) -> String {
    number.parse::<u32>().map_or_else(|_| number.to_owned(), |n| n.saturating_sub(1).to_string())
}

/// Changes the value of a flag, where the line has it.
fn change(words: &mut [String], flag: &str, change: impl Fn(&str) -> String) {
    let at = words.iter().position(|word| word == flag).map(|at| at + 1);
    if let Some(value) = at.and_then(|at| words.get_mut(at)) {
        *value = change(value);
    }
}

/// Takes a flag and its value out of a line.
fn drop_flag(words: &mut Vec<String>, flag: &str) {
    if let Some(at) = words.iter().position(|word| word == flag) {
        let end = (at + 2).min(words.len());
        words.drain(at..end);
    }
}

/// Flash attention was a switch without a value, off unless it is given.
fn change_flash(words: &mut Vec<String>) {
    if let Some(at) = words.iter().position(|word| word == "-fa") {
        let off = words.get(at + 1).is_some_and(|value| value == "off");
        let begin = if off { at } else { at + 1 };
        let end = (at + 2).min(words.len());
        words.drain(begin..end);
    }
}
