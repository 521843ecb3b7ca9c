//! What fits, for people.

use plimsoll::balance::{Certificate, Refusal, Verdict};
use plimsoll::model::ModelSpec;
use plimsoll::{Fit, Limit};

use super::{Answer, Looked, cache_types, cluster_name, taken, taken_text};
use crate::args::FitArgs;
use crate::show::{self, clean, wrap};

/// One model.
pub(super) fn one(args: &FitArgs, answer: &Answer, verbose: bool) -> String {
    let Answer { model, fit, .. } = answer;
    let mut lines = vec![format!(
        "{}: {}, {} layer{}, {} of weights",
        clean(model.name()),
        clean(model.architecture()),
        model.layer_count(),
        if model.layer_count() == 1 { "" } else { "s" },
        model.file_bytes().scaled()
    )];
    let types = cache_types(args.request.cache_type_k, args.request.cache_type_v);
    let cluster = cluster_name(args.cluster.as_deref());
    let sequences = match (args.request.parallel, args.request.unified_kv) {
        (1, _) => String::new(),
        (n, true) => format!(", shared by {n} sequences"),
        (n, false) => format!(" for each of {n} sequences"),
    };
    let asked = args.request.ctx.is_some() || args.request.ctx_total.is_some();
    if asked && fit.largest.is_some() {
        lines.push(match &fit.plan {
            Some(_) => format!("{} tokens of context fit{sequences}", fit.context),
            None => format!(
                "{} tokens of context do not fit{sequences}: {}",
                fit.context,
                why(fit.refusal.as_deref())
            ),
        });
    }
    let endless = matches!(fit.limit, Limit::Nothing);
    match &fit.largest {
        // It was planned with one context, and any other takes as much.
        Some(largest) if endless => lines.push(format!(
            "any context fits on {cluster}, for it takes no memory: {}",
            taken_text(&largest.plan, answer.engine)
        )),
        Some(largest) => {
            lines.push(format!(
                "largest context on {cluster}: {} tokens{sequences}, {types}: {}",
                largest.context,
                taken_text(&largest.plan, answer.engine)
            ));
            lines.push(limit_line(fit, model));
        }
        None => {
            let refusal = match &fit.limit {
                Limit::Memory { refusal, .. } => refusal.as_deref(),
                Limit::Trained { .. } | Limit::Longest { .. } | Limit::Nothing => None,
            };
            lines.push(format!("does not fit on {cluster}, with however little context: {}", why(refusal)));
        }
    }
    if let Some(largest) = &fit.off_host {
        lines.push(format!(
            "largest with no layer on the host: {} tokens: {}",
            largest.context,
            taken_text(&largest.plan, answer.engine)
        ));
    }
    let mut out: String = lines.iter().map(|line| wrap(line, "  ") + "\n").collect();
    if let Some(largest) = &fit.largest {
        let mut table = show::table(&["device", "layers", "full", "of budget"], &[2, 3]);
        for stage in &largest.plan.stages {
            let used = stage.used_bytes();
            table.add_row(vec![
                show::shorten(&stage.device.to_string(), 30),
                show::holds(stage, "").join(" + "),
                show::per_cent(used, stage.budget_bytes),
                show::of_budget(used, stage.budget_bytes),
            ]);
        }
        out.push('\n');
        out.push_str(&show::text(&table));
    }
    if verbose && let Limit::Memory { refusal: Some(refusal), .. } = &fit.limit {
        for stopped in &refusal.stopped {
            out.push_str(&wrap(&format!("stopped: {}", show::stopped_line(stopped)), "  "));
            out.push('\n');
        }
    }
    out
}

/// Why something does not fit, and by how much.
fn why(refusal: Option<&Refusal>) -> String {
    let Some(refusal) = refusal else { return "more bytes than can be counted".to_owned() };
    let short = format!(
        "short of {} ({} bytes) in the best attempt",
        refusal.short_bytes.scaled(),
        refusal.short_bytes.get()
    );
    match &refusal.verdict {
        // Too little of everything says no more than what is short.
        Verdict::ProvenInfeasible(Certificate::Total { .. } | Certificate::Searched { .. }) => short,
        Verdict::ProvenInfeasible(certificate) => {
            format!("{}; {short}", crate::refusal::certificate_text(certificate))
        }
        Verdict::Unknown => format!("{short}; that it cannot is not proven"),
    }
}

fn limit_line(fit: &Fit, model: &ModelSpec) -> String {
    match &fit.limit {
        Limit::Trained { context } => {
            format!("it was trained for {context} tokens; longer contexts are not looked for")
        }
        Limit::Memory { next, refusal } => {
            let trained = match model.trained_context() {
                Some(trained) => format!(" (trained for {trained})"),
                None => String::new(),
            };
            format!(
                "memory is what limits it{trained}: {next} tokens do not fit, {}",
                why(refusal.as_deref())
            )
        }
        Limit::Longest { .. } => {
            "the model does not say what it was trained for; longer contexts are not looked for".to_owned()
        }
        Limit::Nothing => "context takes no memory".to_owned(),
    }
}

/// The models of a folder.
pub(super) fn several(args: &FitArgs, looked: &[Looked], verbose: bool) -> String {
    let readable = || looked.iter().filter_map(|one| one.answer.as_ref().ok().map(|answer| (one, answer)));
    let fitting = readable().filter(|(_, answer)| answer.fit.fits()).count();
    let head = format!(
        "{}: {fitting} of {} models fit on {}, with the context below",
        args.model.display(),
        looked.len(),
        cluster_name(args.cluster.as_deref())
    );
    let mut out = wrap(&head, "  ") + "\n";
    if readable().next().is_some() {
        let mut table =
            show::table(&["model", "fits", "context", "takes", "devices", "largest context"], &[2, 3, 4]);
        for (one, answer) in readable() {
            let fit = &answer.fit;
            let now = fit.plan.as_ref().map(taken);
            let (takes, devices) = match (now, &fit.refusal) {
                (Some((bytes, devices)), _) => (bytes.scaled().to_string(), devices.to_string()),
                (None, Some(refusal)) => (format!("{} short", refusal.short_bytes.scaled()), "–".to_owned()),
                (None, None) => ("–".to_owned(), "–".to_owned()),
            };
            table.add_row(vec![
                show::shorten(&one.shown, 34),
                if fit.fits() { "yes" } else { "no" }.to_owned(),
                fit.context.to_string(),
                takes,
                devices,
                largest(fit),
            ]);
        }
        out.push('\n');
        out.push_str(&show::text(&table));
    }
    let unreadable = looked.iter().filter_map(|one| one.answer.as_ref().err().map(|error| (one, error)));
    for (n, (one, error)) in unreadable.enumerate() {
        if n == 0 {
            out.push_str("\ncannot be planned:\n");
        }
        out.push_str(&wrap(&format!("  {}: {}", one.shown, clean(error)), "  "));
        out.push('\n');
    }
    if verbose {
        for (one, answer) in readable() {
            out.push_str(&wrap(&format!("{}: {}", one.shown, limit_line(&answer.fit, &answer.model)), "  "));
            out.push('\n');
        }
    }
    out
}

fn largest(fit: &Fit) -> String {
    match (&fit.largest, &fit.limit) {
        (Some(largest), Limit::Trained { .. }) => format!("{} (trained)", largest.context),
        (Some(largest), Limit::Memory { .. } | Limit::Longest { .. }) => largest.context.to_string(),
        (Some(_), Limit::Nothing) => "any".to_owned(),
        (None, _) => "none".to_owned(),
    }
}
