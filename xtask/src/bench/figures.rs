//! What the benches left behind, read back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};
use serde_json::Value;

/// What one benchmark gave, in nanoseconds an iteration.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) median: f64,
    pub(super) p5: f64,
    /// The saved median, if it was asked for and is there.
    pub(super) saved: Option<f64>,
}

/// Group, function, input size.
pub(super) type Id = (String, String, String);

/// The figures of one run.
pub(super) type Figures = BTreeMap<Id, Figure>;

/// How a benchmark is named in tables and targets.
pub(super) fn name(id: &Id) -> String {
    let parts = [&id.0, &id.1, &id.2].into_iter().map(String::as_str);
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
}

/// The results that are newer than the start.
pub(super) fn collect(criterion: &Path, started: SystemTime, against: Option<&str>) -> Result<Figures> {
    let mut figures = BTreeMap::new();
    for folder in folders(criterion) {
        let new = folder.join("new");
        let written = new.join("estimates.json").metadata().and_then(|file| file.modified());
        if written.is_err() || written.is_ok_and(|at| at < started) {
            continue;
        }
        let benchmark = json(&new.join("benchmark.json"))?;
        let saved = against.and_then(|name| json(&folder.join(name).join("estimates.json")).ok());
        let figure = Figure {
            median: median(&json(&new.join("estimates.json"))?).context("estimates.json has no median")?,
            p5: p5(&json(&new.join("sample.json"))?).context("sample.json has no samples")?,
            saved: saved.as_ref().and_then(median),
        };
        figures.insert(id(&benchmark), figure);
    }
    Ok(figures)
}

/// This folder and all below it.
fn folders(top: &Path) -> Vec<PathBuf> {
    let mut found = vec![top.to_path_buf()];
    let mut next = 0;
    while let Some(folder) = found.get(next).cloned() {
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        found.extend(entries.map(|entry| entry.path()).filter(|path| path.is_dir()));
        next += 1;
    }
    found
}

fn json(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("cannot read {}", path.display()))
}

fn id(benchmark: &Value) -> Id {
    let part = |key: &str| benchmark[key].as_str().unwrap_or_default().to_owned();
    (part("group_id"), part("function_id"), part("value_str"))
}

fn median(estimates: &Value) -> Option<f64> {
    estimates["median"]["point_estimate"].as_f64()
}

/// The time that one iteration in twenty stays below.
fn p5(sample: &Value) -> Option<f64> {
    let (times, iterations) = (sample["times"].as_array()?, sample["iters"].as_array()?);
    let each =
        times.iter().zip(iterations).filter_map(|(time, count)| Some(time.as_f64()? / count.as_f64()?));
    let mut each: Vec<f64> = each.collect();
    each.sort_by(f64::total_cmp);
    let rank = (each.len() * 5).div_ceil(100).max(1);
    each.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_fast_end_is_a_time_that_was_measured() {
        let times: Vec<f64> = (1..=100).rev().map(|i| f64::from(i) * 10.0).collect();
        assert_eq!(p5(&json!({"iters": vec![10.0; 100], "times": times})), Some(5.0));
        assert_eq!(p5(&json!({"iters": [2.0], "times": [8.0]})), Some(4.0));
        assert_eq!(p5(&json!({"iters": [], "times": []})), None);
        assert_eq!(p5(&json!({})), None);
    }

    #[test]
    fn an_id_may_lack_a_function_and_an_input() {
        let benchmark = json!({"group_id": "snapshot", "function_id": null, "value_str": null});
        assert_eq!(id(&benchmark), ("snapshot".to_owned(), String::new(), String::new()));
    }
}
