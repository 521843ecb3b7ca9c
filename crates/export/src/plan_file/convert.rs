//! From a plan to its file and back.

use plimsoll_balance::{EngineRules, Plan, PlanOptions, Workload};
use plimsoll_model::Request;
use plimsoll_units::Bytes;
use sha2::{Digest, Sha256};

use super::model::{hex, model_record};
use super::request::request_record;
use super::words::{assumption_text, objective, strategy};
use super::{
    AssumptionRecord, BasisRecord, FormatError, MOST_LAYERS, OverrideRecord, PLAN_FORMAT, PartRecord,
    PlanFile, ReportRecord, StageRecord, StoppedRecord, ValueRecord,
};

/// Everything that a saved plan is made of.
#[derive(Clone, Debug)]
pub struct Saved<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// What was placed.
    pub workload: &'a Workload,
    /// Under whose rules.
    pub rules: &'a EngineRules,
    /// With which options.
    pub options: &'a PlanOptions,
    /// For which request.
    pub request: &'a Request,
    /// What people call the model.
    pub name: &'a str,
    /// The family whose rules it follows.
    pub architecture: &'a str,
    /// What a person should know.
    pub warnings: &'a [String],
    /// What the server may cache in the host's memory; `None` where its default stands.
    pub cache_ram: Option<Bytes>,
}

impl PlanFile {
    /// A plan as it will lie in a file. A workload without a footprint, which no planner takes, gives a model without
    /// layers.
    pub fn from_plan(saved: &Saved<'_>) -> Self {
        let plan = saved.plan;
        Self {
            format: PLAN_FORMAT.to_owned(),
            model: model_record(saved),
            request: request_record(saved),
            basis: BasisRecord { generation: plan.basis },
            stages: plan.stages.iter().map(StageRecord::from_stage).collect(),
            overrides: plan.overrides.iter().map(OverrideRecord::from_override).collect(),
            parts: plan.parts.iter().map(PartRecord::from_part).collect(),
            assumed: plan.assumed.iter().map(assumption_text).collect(),
            assumptions: plan.assumed.iter().map(AssumptionRecord::from_assumption).collect(),
            value: ValueRecord::from_value(plan.objective, &plan.value),
            report: ReportRecord {
                stopped: plan.stopped.iter().map(StoppedRecord::from_stopped).collect(),
                warnings: saved.warnings.to_vec(),
            },
            seal: None,
            commands: Vec::new(),
            files: Vec::new(),
        }
    }

    /// Reads a saved plan.
    ///
    /// # Errors
    ///
    /// Not JSON, unknown keys or words, another version, runs that do not add up, or a digest that does not fit the facts.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        // The version is looked at first: a newer format may have other keys.
        let value: serde_json::Value = serde_json::from_str(text)?;
        let found = value.get("format").and_then(serde_json::Value::as_str).unwrap_or("");
        if found != PLAN_FORMAT {
            return Err(FormatError::Version { found: found.to_owned() });
        }
        let file: Self = serde_json::from_value(value)?;
        file.check_runs()?;
        let computed = file.model.layer_digest();
        if computed != file.model.digest {
            return Err(FormatError::Digest { computed, stored: file.model.digest.clone() });
        }
        if let Some(stored) = &file.seal {
            let computed = file.compute_seal()?;
            if computed != *stored {
                return Err(FormatError::Seal { computed, stored: stored.clone() });
            }
        }
        Ok(file)
    }

    /// The same plan with a seal over all of it.
    ///
    /// # Errors
    ///
    /// A number that JSON cannot carry; the planner gives none.
    pub fn sealed(self) -> Result<Self, FormatError> {
        let seal = self.compute_seal()?;
        Ok(Self { seal: Some(seal), ..self })
    }

    fn compute_seal(&self) -> Result<String, FormatError> {
        let text = serde_json::to_string(&Self { seal: None, ..self.clone() })?;
        Ok(hex(&Sha256::digest(text.as_bytes())))
    }

    /// The text that goes into a file, with a line break at the end.
    ///
    /// # Errors
    ///
    /// A number that JSON cannot carry; the planner gives none.
    pub fn to_text(&self) -> Result<String, FormatError> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        Ok(text)
    }

    fn check_runs(&self) -> Result<(), FormatError> {
        let layers = self.model.layers;
        let all = std::iter::once(&self.model.runs).chain(self.model.variants.values().map(|v| &v.runs));
        for runs in all {
            let described = runs.iter().fold(0_u64, |sum, run| sum.saturating_add(run.count));
            if described != layers || described > MOST_LAYERS {
                return Err(FormatError::Runs { described, layers });
            }
        }
        let movable = self.model.movable.as_ref();
        let rows = movable.map(|movable| &movable.parts).into_iter();
        let variants = self.model.variants.values().map(|variant| &variant.parts);
        let variants = variants.filter(|row| movable.is_some() || !row.is_empty());
        for row in rows.chain(variants) {
            let described = row.iter().fold(0_u64, |sum, run| sum.saturating_add(run.count));
            if described != layers {
                return Err(FormatError::Runs { described, layers });
            }
        }
        Ok(())
    }

    /// The plan itself.
    ///
    /// # Errors
    ///
    /// A word that has no meaning at its place.
    pub fn plan(&self) -> Result<Plan, FormatError> {
        let objective = objective(&self.request.objective)?;
        Ok(Plan {
            basis: self.basis.generation,
            objective,
            strategy: strategy(&self.request.strategy)?,
            stages: self.stages.iter().map(StageRecord::to_stage).collect(),
            overrides: self.overrides.iter().map(OverrideRecord::to_override).collect::<Result<_, _>>()?,
            parts: self.parts.iter().map(PartRecord::to_part).collect(),
            value: self.value.to_value(objective),
            assumed: self.assumptions.iter().map(AssumptionRecord::to_assumption).collect(),
            stopped: Vec::new(),
        })
    }

    /// The model file, or its address, that the engine's command line names.
    pub fn model_path(&self) -> Option<String> {
        if let Some(path) = &self.model.path {
            return Some(path.clone());
        }
        let words = self.engine_words().into_iter();
        words.skip_while(|word| !matches!(word.as_str(), "-m" | "-mu")).nth(1)
    }

    /// The words of the engine's command line; none where the plan has no such line.
    pub fn engine_words(&self) -> Vec<String> {
        // The engine comes after the servers that it asks.
        self.commands.last().and_then(|command| shlex::split(&command.line)).unwrap_or_default()
    }
}
