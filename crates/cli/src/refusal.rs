//! A no, with its reason and what would turn it into a yes.

use plimsoll::answers::RefusalRecord;
use plimsoll::balance::{Certificate, Refusal, Stopped, Verdict};
use plimsoll::units::Bytes;
use plimsoll::{Change, Suggestion};

use crate::args::RequestArgs;
use crate::failure::Failure;
use crate::show;

/// A refusal with all that is told of it.
pub(crate) struct Told<'a> {
    /// Why there is no plan.
    pub(crate) refusal: &'a Refusal,
    /// What would make it fit.
    pub(crate) suggestions: &'a [Suggestion],
    /// What was asked, for suggestions in the same words.
    pub(crate) request: Option<&'a RequestArgs>,
}

impl Told<'_> {
    /// The failure that tells it: JSON on stdout, or a few lines on stderr.
    pub(crate) fn failure(&self, json: bool, verbose: bool) -> Failure {
        if !json {
            return Failure::Refused { stdout: String::new(), stderr: self.to_text(verbose) };
        }
        refused(&RefusalRecord::of_plan(self.refusal, self.suggestions))
    }

    fn to_text(&self, verbose: bool) -> String {
        let mut lines = Vec::new();
        match &self.refusal.verdict {
            Verdict::ProvenInfeasible(certificate) => {
                lines.push(format!("does not fit: {}", certificate_text(certificate)));
            }
            Verdict::Unknown => {
                lines.push("does not fit as far as was searched; that it cannot is not proven".to_owned());
            }
        }
        lines.push(format!("short of {} in the best attempt", amount(self.refusal.short_bytes)));
        match self.suggestions {
            [] => {}
            [one] => lines.push(format!("this makes it fit: {}", self.suggestion_text(one))),
            several => {
                lines.push("any one of these makes it fit:".to_owned());
                lines.extend(several.iter().map(|s| format!("  - {}", self.suggestion_text(s))));
            }
        }
        if verbose {
            lines.extend(self.refusal.stopped.iter().map(|stopped: &Stopped| show::stopped_line(stopped)));
        }
        lines.iter().map(|line| show::wrap(line, "  ")).collect::<Vec<_>>().join("\n")
    }

    fn suggestion_text(&self, suggestion: &Suggestion) -> String {
        let frees = suggestion.frees.scaled();
        match &suggestion.change {
            Change::Context { to } if self.request.is_some_and(|request| request.ctx_total.is_some()) => {
                let several = self.request.filter(|request| !request.unified_kv);
                let caches = several.map_or(1, |request| u64::from(request.parallel));
                format!("--ctx-total {} (takes {frees} less)", to.saturating_mul(caches))
            }
            Change::Context { to } => format!("--ctx {to} (takes {frees} less)"),
            Change::CacheType { to } => {
                format!("--cache-type-k {to} --cache-type-v {to} (takes {frees} less)")
            }
            Change::ExpertsToHost => format!("--experts auto (puts {frees} on the host)"),
            Change::FeedForwardToHost => format!("--ffn auto (puts {frees} on the host)"),
            Change::Unpin => "without --pin".to_owned(),
            Change::Uncap => "without --cap".to_owned(),
            Change::Devices { to } => format!("--max-devices {to}"),
            Change::Pipelines { to } => format!("--pipelines {to}"),
            Change::AddDevice { memory } => {
                format!("one more device with {} (what stays free of it included)", memory.scaled())
            }
        }
    }
}

/// The failure for a cluster of which nothing may be used.
pub(crate) fn nothing_usable(stopped: &[Stopped], json: bool) -> Failure {
    let why: Vec<String> = stopped.iter().map(show::stopped_line).collect();
    let certificate = if why.is_empty() {
        "the cluster has no device with memory".to_owned()
    } else {
        format!("no device may be used: {}", why.join("; "))
    };
    if !json {
        let stderr = show::wrap(&format!("does not fit: {certificate}"), "  ");
        return Failure::Refused { stdout: String::new(), stderr };
    }
    refused(&RefusalRecord::nothing_usable(certificate, stopped))
}

/// The failure for a request that the cluster of now does not allow, whatever the bytes.
pub(crate) fn excluded(why: &str, json: bool) -> Failure {
    if !json {
        return Failure::Refused {
            stdout: String::new(),
            stderr: show::wrap(&format!("refused: {why}"), "  "),
        };
    }
    refused(&RefusalRecord::excluded(why.to_owned()))
}

fn refused(record: &RefusalRecord) -> Failure {
    match serde_json::to_string_pretty(record) {
        Ok(text) => Failure::Refused { stdout: text + "\n", stderr: String::new() },
        Err(error) => Failure::internal(error),
    }
}

/// A certificate in the units that people read.
pub(crate) fn certificate_text(certificate: &Certificate) -> String {
    let scaled = |bytes: u64| Bytes::new(bytes).scaled().to_string();
    match certificate {
        Certificate::Total { needs, budgets } => {
            format!("it needs {}, and all budgets together are {}", scaled(*needs), scaled(*budgets))
        }
        Certificate::Layer { index, needs, largest } => {
            format!("layer {index} takes {}, and the largest budget is {}", scaled(*needs), scaled(*largest))
        }
        Certificate::Host { host, needs, budget } => {
            format!("the engine keeps {} on {host}, and its budget is {}", scaled(*needs), scaled(*budget))
        }
        Certificate::Pinned { pin, needs, budget } => {
            let (needs, budget) = (scaled(*needs), scaled(*budget));
            format!("--pin {pin} takes {needs} with what lies beside it, and the budget there is {budget}")
        }
        other => other.to_string(),
    }
}

fn amount(bytes: Bytes) -> String {
    format!("{} ({} bytes)", bytes.scaled(), bytes.get())
}
