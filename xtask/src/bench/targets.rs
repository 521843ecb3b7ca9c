//! What was promised of which benchmark: `benches/targets.toml`.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

use super::figures::{Figures, Id, name};
use super::table::{duration, peer};
use crate::shell;

/// Where they stand, from the workspace root.
const FILE: &str = "benches/targets.toml";

/// What was promised.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Targets {
    /// The benchmark that says how fast the machine is, and what it gave where the targets were set.
    yardstick: Option<(String, f64)>,
    rows: BTreeMap<String, Target>,
}

/// What was promised of one benchmark.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Target {
    /// The longest median, in nanoseconds.
    within: f64,
    /// The least ratio to the peer in the same run.
    ratio: Option<f64>,
}

/// What a row of the table says of its promise.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Verdict {
    pub(super) target: String,
    pub(super) met: String,
}

impl Targets {
    /// Reads the file.
    pub(super) fn read() -> Result<Self> {
        let text = std::fs::read_to_string(shell::root().join(FILE));
        Self::parse(&text.with_context(|| format!("cannot read {FILE}"))?).with_context(|| FILE.to_owned())
    }

    fn parse(text: &str) -> Result<Self> {
        let file: toml::Table = text.parse().context("not TOML")?;
        let mut targets = Self::default();
        for (row, value) in &file {
            let within = value.get("within").and_then(toml::Value::as_str).and_then(nanoseconds);
            let within = within.with_context(|| format!("'{row}' has no time such as within = \"8 µs\""))?;
            let ratio = match value.get("ratio") {
                None => None,
                Some(toml::Value::Float(ratio)) if *ratio > 0.0 => Some(*ratio),
                Some(other) => bail!("'{row}': ratio is {other}, not a number above zero with a point"),
            };
            if value.get("yardstick").and_then(toml::Value::as_bool) == Some(true) {
                targets.yardstick = Some((row.clone(), within));
            } else {
                targets.rows.insert(row.clone(), Target { within, ratio });
            }
        }
        Ok(targets)
    }

    /// What was promised of a benchmark, and whether that holds.
    pub(super) fn verdict(&self, figures: &Figures, id: &Id) -> Verdict {
        let (Some(target), Some(figure)) = (self.rows.get(&name(id)), figures.get(id)) else {
            return Verdict::default();
        };
        let in_time = figure.median <= target.within;
        let within = format!("≤ {}", duration(target.within));
        let Some(ratio) = target.ratio else {
            return Verdict { target: within, met: yes_or_no(in_time).to_owned() };
        };
        let met = match peer(figures, id).map(|peer| peer.median / figure.median >= ratio) {
            Some(as_fast) if as_fast == in_time => yes_or_no(in_time).to_owned(),
            Some(true) => "ratio only".to_owned(),
            Some(false) => "time only".to_owned(),
            None => format!("{}, no peer", yes_or_no(in_time)),
        };
        Verdict { target: format!("{within}, ≥ {ratio}x"), met }
    }

    /// How this machine compares with the one that the targets were set on.
    pub(super) fn machine(&self, figures: &Figures) -> Option<String> {
        let (row, there) = self.yardstick.as_ref()?;
        let (_, here) = figures.iter().find(|(id, _)| name(id) == *row)?;
        Some(format!(
            "{row} takes {} here and {} where the targets were set: this machine took {:.1} times as long",
            duration(here.median),
            duration(*there),
            here.median / there
        ))
    }
}

fn yes_or_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

/// A time as people write it (`8 µs`).
fn nanoseconds(text: &str) -> Option<f64> {
    let (amount, unit) = text.split_once(' ')?;
    let unit = match unit {
        "ns" => 1.0,
        "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    Some(amount.parse::<f64>().ok().filter(|amount| *amount > 0.0)? * unit)
}

#[cfg(test)]
mod tests {
    use super::super::figures::Figure;
    use super::*;

    fn id(function: &str) -> Id {
        ("fit".to_owned(), function.to_owned(), "80x8".to_owned())
    }

    fn figures(ours: f64, peer: f64) -> Figures {
        let figure = |median| Figure { median, p5: median, saved: None };
        [(id("warm"), figure(ours)), (id("peer"), figure(peer))].into()
    }

    #[test]
    fn a_promise_is_kept_in_time_and_in_ratio() -> Result<()> {
        let targets = Targets::parse("\"fit/warm/80x8\" = { within = \"8 µs\", ratio = 7.0 }")?;
        let met = |ours, peer| targets.verdict(&figures(ours, peer), &id("warm")).met;
        assert_eq!(met(8_000.0, 56_000.0), "yes");
        assert_eq!(met(8_000.0, 55_000.0), "time only");
        assert_eq!(met(9_000.0, 99_000.0), "ratio only");
        assert_eq!(met(9_000.0, 9_000.0), "no");
        let verdict = targets.verdict(&figures(1.0, 9.0), &id("warm"));
        assert_eq!(verdict.target, "≤ 8.00 µs, ≥ 7x");
        assert_eq!(targets.verdict(&figures(1.0, 9.0), &id("peer")), Verdict::default());
        Ok(())
    }

    #[test]
    fn the_yardstick_says_how_fast_the_machine_is() -> Result<()> {
        let targets = Targets::parse("\"fit/warm/80x8\" = { within = \"2 µs\", yardstick = true }")?;
        let machine = targets.machine(&figures(6_000.0, 1.0)).context("the row is there")?;
        assert!(machine.ends_with("this machine took 3.0 times as long"), "{machine}");
        assert_eq!(targets.verdict(&figures(6_000.0, 1.0), &id("warm")), Verdict::default());
        Ok(())
    }

    #[test]
    fn what_is_no_time_and_no_ratio_is_named() {
        for text in
            ["x = 1", "x = { within = \"8\" }", "x = { within = \"-1 ns\" }", "x = { within = \"1 h\" }"]
        {
            let error = Targets::parse(text).map_err(|error| error.to_string());
            assert_eq!(error, Err("'x' has no time such as within = \"8 µs\"".to_owned()), "{text}");
        }
        assert!(Targets::parse("x = { within = \"1 ns\", ratio = 0.0 }").is_err());
    }
}
