//! Whether pipelines are what was asked for, each one by itself.

use super::{Case, Finding};
use crate::plan::Stage;
use crate::workload::{HostUse, Objective, Pipelines, Transfers};

impl<'a> Case<'a> {
    /// The stages of the pipeline of a stage.
    pub(super) fn line(&self, stage: &Stage) -> &'a [Stage] {
        let number = usize::try_from(stage.pipeline).unwrap_or(usize::MAX);
        self.lines.get(number).copied().unwrap_or(&[])
    }

    /// Their numbers, how many there are, and what may not be asked for beside them.
    pub(super) fn pipelines(&self, findings: &mut Vec<Finding>) {
        let lines = &self.lines;
        for (expected, line) in (0..).zip(lines) {
            if let Some(stage) = line.first()
                && stage.pipeline != expected
            {
                let (device, pipeline) = (stage.device.clone(), stage.pipeline);
                findings.push(Finding::PipelineOrder { device, pipeline, expected });
            }
        }
        let found = u64::try_from(lines.len()).unwrap_or(u64::MAX);
        let asked = match self.options.pipelines {
            Pipelines::One => 1,
            Pipelines::Exactly(count) => u64::from(count.get()),
            Pipelines::Auto => found,
        };
        if found > 0 && found != asked {
            findings.push(Finding::Pipelines { found, asked });
        }
        let may_be_several = self.plan.objective == Objective::Throughput
            && self.rules.host == HostUse::Ordinary
            && self.options.transfers == Transfers::Apart;
        if found > 1 && found == asked && !may_be_several {
            findings.push(Finding::Pipelines { found, asked: 1 });
        }
    }

    /// Seconds between two tokens of all pipelines together, from the largest stage time of each.
    pub(super) fn bottleneck(&self) -> Option<f64> {
        let mut largest = Vec::new();
        for line in &self.lines {
            let times: Option<Vec<f64>> = line.iter().map(|stage| self.seconds(stage)).collect();
            largest.push(times?.into_iter().fold(0.0, f64::max));
        }
        Some(match largest.as_slice() {
            [] => 0.0,
            [one] => *one,
            several if several.contains(&0.0) => 0.0,
            several => several.iter().map(|seconds| seconds.recip()).sum::<f64>().recip(),
        })
    }
}
