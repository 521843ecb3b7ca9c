//! A report for people.

use std::time::Duration;

use plimsoll::simulate::{ModelReport, Report};

use crate::show::{self, clean, wrap};

/// How many of the things that happened are told unless all are asked for.
const FEW: usize = 40;

pub(super) fn report(report: &Report, verbose: bool) -> String {
    let mut out = String::new();
    let mut line = |text: &str| out.push_str(&(wrap(text, "  ") + "\n"));
    line(&format!(
        "{}: {} of made-up time, {} at the start, {}, {} looks, seed {}",
        clean(&report.name),
        span(report.duration),
        count(report.nodes, "node"),
        count(report.models.len(), "model"),
        report.looks,
        report.seed
    ));
    line("");
    let refusals: Vec<String> = report.refusals.iter().map(|(why, n)| format!("{n} {why}")).collect();
    let evicted: u64 = report.models.iter().map(|model| model.evicted).sum();
    let share = |part: Duration| percent(part, report.duration);
    for (name, value) in [
        ("moves", format!("{}, {} moved", report.moves(), report.moved_bytes().scaled())),
        ("loaded", report.loaded_bytes().scaled().to_string()),
        ("refusals", if refusals.is_empty() { "none".to_owned() } else { refusals.join(", ") }),
        ("evictions", if evicted == 0 { "none".to_owned() } else { evicted.to_string() }),
        ("out of balance", format!("{} ({})", span(report.out_of_balance), share(report.out_of_balance))),
        ("planners asked", report.planned.to_string()),
        ("violations", violations(report)),
    ] {
        line(&format!("{name:<16}{value}"));
    }
    out.push('\n');
    out.push_str(&models(&report.models));
    out.push('\n');
    let all = report.noted.len();
    let shown = if verbose { all } else { all.min(FEW) };
    for noted in &report.noted[..shown] {
        out.push_str(
            &(wrap(&format!("{:>8}  {}", clock(noted.at), clean(&noted.what)), "          ") + "\n"),
        );
    }
    let more = u64::try_from(all - shown).unwrap_or(u64::MAX).saturating_add(report.not_kept);
    if more > 0 {
        let how = if report.not_kept > 0 { "too many to keep" } else { "-v tells all" };
        out.push_str(&format!("          and {more} more ({how})\n"));
    }
    out
}

fn violations(report: &Report) -> String {
    if report.violations.is_empty() {
        return "none".to_owned();
    }
    report.violations.iter().map(|one| format!("\n  - {}", clean(one))).collect()
}

fn models(models: &[ModelReport]) -> String {
    let header = ["model", "wanted", "served", "placed", "moves", "moved", "loaded", "evicted"];
    let mut table = show::table(&header, &[1, 2, 3, 4, 5, 6, 7]);
    for model in models {
        table.add_row([
            show::shorten(&clean(&model.name), 32),
            span(model.wanted),
            percent(model.served, model.wanted),
            model.placed.to_string(),
            model.moves.to_string(),
            model.moved_bytes.scaled().to_string(),
            model.loaded_bytes.scaled().to_string(),
            model.evicted.to_string(),
        ]);
    }
    show::text(&table)
}

/// `1 node`, `2 nodes`.
pub(super) fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// `1 h 5 min`, `40 s`, `2.5 s`.
pub(super) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes, rest, span.subsec_millis()) {
        (0, 0, _, 0) => format!("{seconds} s"),
        (0, 0, _, _) => format!("{:.1} s", span.as_secs_f64()),
        (0, _, 0, _) => format!("{minutes} min"),
        (0, _, _, _) => format!("{minutes} min {rest} s"),
        (_, 0, _, _) => format!("{hours} h"),
        (_, _, _, _) => format!("{hours} h {minutes} min"),
    }
}

/// `1:05:09`.
pub(super) fn clock(at: Duration) -> String {
    let seconds = at.as_secs();
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// A share in per cent with two digits; what is not quite whole is not 100.
fn percent(part: Duration, whole: Duration) -> String {
    if whole.is_zero() {
        return "–".to_owned();
    }
    let hundredths = part.as_millis() * 10_000 / whole.as_millis().max(1);
    format!("{}.{:02} %", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_well() {
        let of = |millis| span(Duration::from_millis(millis));
        assert_eq!(of(0), "0 s");
        assert_eq!(of(2_500), "2.5 s");
        assert_eq!(of(60_000), "1 min");
        assert_eq!(of(61_000), "1 min 1 s");
        assert_eq!(of(3_600_000), "1 h");
        assert_eq!(of(3_900_000), "1 h 5 min");
        assert_eq!(clock(Duration::from_secs(3_909)), "1:05:09");
    }

    #[test]
    fn what_is_not_quite_all_is_not_all() {
        let seconds = Duration::from_secs;
        assert_eq!(percent(seconds(3599), seconds(3600)), "99.97 %");
        assert_eq!(percent(seconds(3600), seconds(3600)), "100.00 %");
        assert_eq!(percent(seconds(1), Duration::ZERO), "–");
    }
}
