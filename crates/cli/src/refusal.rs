//! A no, with its reason and what would turn it into a yes.

use plimsoll::balance::{Refusal, Stopped, Verdict};
use plimsoll::export::StoppedRecord;
use plimsoll::units::Bytes;
use plimsoll::{Change, Suggestion};
use serde::Serialize;

use crate::failure::Failure;
use crate::show;

#[derive(Serialize)]
struct RefusalRecord<'a> {
    format: &'a str,
    reason: &'a str,
    short_bytes: u64,
    certificate: String,
    stopped: Vec<StoppedRecord>,
    suggestions: Vec<SuggestionRecord<'a>>,
}

#[derive(Serialize)]
struct SuggestionRecord<'a> {
    change: &'a str,
    to: String,
    frees_bytes: u64,
}

/// The failure that tells a refusal: JSON on stdout, or a few lines on stderr.
pub(crate) fn failure(refusal: &Refusal, suggestions: &[Suggestion], json: bool, verbose: bool) -> Failure {
    if json {
        match to_json(refusal, suggestions) {
            Ok(stdout) => Failure::Refused { stdout, stderr: String::new() },
            Err(error) => Failure::internal(error),
        }
    } else {
        Failure::Refused { stdout: String::new(), stderr: to_text(refusal, suggestions, verbose) }
    }
}

fn to_json(refusal: &Refusal, suggestions: &[Suggestion]) -> Result<String, serde_json::Error> {
    let (reason, certificate) = match &refusal.verdict {
        Verdict::ProvenInfeasible(certificate) => ("proven-infeasible", certificate.to_string()),
        Verdict::Unknown => ("unknown", String::new()),
    };
    let suggestion = |s: &Suggestion| SuggestionRecord {
        change: s.change.word(),
        to: s.change.to_text(),
        frees_bytes: s.frees.get(),
    };
    let record = RefusalRecord {
        format: "plimsoll.refusal/1",
        reason,
        short_bytes: refusal.short_bytes.get(),
        certificate,
        stopped: refusal.stopped.iter().map(StoppedRecord::from_stopped).collect(),
        suggestions: suggestions.iter().map(suggestion).collect(),
    };
    Ok(serde_json::to_string_pretty(&record)? + "\n")
}

fn to_text(refusal: &Refusal, suggestions: &[Suggestion], verbose: bool) -> String {
    let mut lines = vec![match &refusal.verdict {
        Verdict::ProvenInfeasible(certificate) => format!("does not fit: {certificate}"),
        Verdict::Unknown => "does not fit as far as was searched; that it cannot is not proven".to_owned(),
    }];
    lines.push(format!("short of {} in the best attempt", amount(refusal.short_bytes)));
    if !suggestions.is_empty() {
        lines.push("any one of these makes it fit:".to_owned());
        lines.extend(suggestions.iter().map(|s| format!("  - {}", suggestion_text(s))));
    }
    if verbose {
        lines.extend(refusal.stopped.iter().map(|stopped: &Stopped| show::stopped_line(stopped)));
    }
    lines.iter().map(|line| show::wrap(line, "  ")).collect::<Vec<_>>().join("\n")
}

fn amount(bytes: Bytes) -> String {
    format!("{} ({} bytes)", bytes.scaled(), bytes.get())
}

fn suggestion_text(suggestion: &Suggestion) -> String {
    let frees = suggestion.frees.scaled();
    match &suggestion.change {
        Change::Context { to } => format!("--ctx {to} (takes {frees} less)"),
        Change::CacheType { to } => {
            format!("--cache-type-k {to} --cache-type-v {to} (takes {frees} less)")
        }
        Change::AddDevice { memory } => format!("one more device with {}", memory.scaled()),
    }
}
