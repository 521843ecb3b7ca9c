//! How much context fits.

use plimsoll_balance::{Objective, Plan, PlanError, PlanOptions, Refusal};
use plimsoll_model::{ContextLength, EstimateError, Request};

use crate::context::{LEAST, STEP};
use crate::job::{Job, JobError};

/// Longer contexts are not tried where a model does not say what it was trained for.
const LONGEST: u64 = 1 << 40;

/// What of a model fits on a cluster.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The context that was asked for; the trained one up to 4096 where none was. As one sequence sees it.
    pub context: u64,
    /// The plan on the fewest devices with that context; `None` when it does not fit.
    pub plan: Option<Plan>,
    /// Why it does not fit.
    pub refusal: Option<Box<Refusal>>,
    /// The largest context that fits: a multiple of 256, or the trained one; `None` when not even the smallest does.
    pub largest: Option<Largest>,
    /// Where that has layers on the main host, which is slow: the largest context without any there, if there is one.
    pub off_host: Option<Largest>,
    /// What keeps it from being larger.
    pub limit: Limit,
}

/// The largest context that fits.
#[derive(Clone, Debug)]
pub struct Largest {
    /// As one sequence sees it, in tokens.
    pub context: u64,
    /// The plan on the fewest devices with it.
    pub plan: Plan,
}

/// What keeps a context from being larger.
#[derive(Clone, Debug)]
pub enum Limit {
    /// The model was trained for no more.
    Trained {
        /// What it was trained for.
        context: u64,
    },
    /// The next step does not fit.
    Memory {
        /// The next step.
        next: u64,
        /// Why it does not fit; `None` where its bytes are too many to count.
        refusal: Option<Box<Refusal>>,
    },
    /// Longer ones were not tried: the model tells nothing of its training, and this one is longer than any in use.
    Longest {
        /// The longest that was tried.
        context: u64,
    },
    /// Context takes no memory, and the model tells nothing of its training: any fits.
    Nothing,
}

/// What one context comes to.
enum Tried {
    Fits(Box<Plan>),
    Refused(Option<Box<Refusal>>),
}

impl Job<'_> {
    /// What of the model fits: the context of the request, and the largest one.
    ///
    /// Both answers are planned, and so is the step behind the largest context, which does not fit. Memory only grows with
    /// context, so nothing beyond fits either. A context longer than the model was trained for is not looked for. The
    /// objective makes no difference: the plans have the fewest devices.
    ///
    /// # Errors
    ///
    /// The request cannot be laid out, or the input is wrong. A model that does not fit is no error.
    pub fn fit(&self) -> Result<Fit, JobError> {
        self.suited()?;
        let trained = self.model.trained_context();
        let context = match self.request.context {
            Some(_) => self.model.context(&self.request)?.per_sequence,
            None => LEAST.min(trained.unwrap_or(LEAST)),
        };
        let (plan, refusal) = match self.tried(context)? {
            Tried::Fits(plan) => (Some(*plan), None),
            Tried::Refused(refusal) => (None, refusal),
        };
        let top = match trained {
            Some(trained) => Some(trained),
            None if self.grows()? => None,
            None => {
                let largest = plan.clone().map(|plan| Largest { context, plan });
                let limit = match &largest {
                    Some(_) => Limit::Nothing,
                    None => Limit::Memory { next: context, refusal: refusal.clone() },
                };
                return Ok(Fit { context, plan, refusal, largest, off_host: None, limit });
            }
        };
        let (largest, limit) = self.largest(top)?;
        let off_host = match &largest {
            Some(largest) if self.on_host(&largest.plan) => self.off_host(largest.context)?,
            _ => None,
        };
        Ok(Fit { context, plan, refusal, largest, off_host, limit })
    }

    /// Whether a plan has layers on the main node's host, where the engine knows such a node.
    fn on_host(&self, plan: &Plan) -> bool {
        let first = plan.stages.first().filter(|stage| !stage.layers.is_empty());
        self.engine.is_llama_cpp() && first.is_some_and(|stage| self.is_main_host(&stage.device))
    }

    /// The largest multiple of 256 below `most` with which no layer lies on the main host. With the objective of the fewest
    /// devices layers lie there only where nothing else fits.
    fn off_host(&self, most: u64) -> Result<Option<Largest>, JobError> {
        let mut low: (u64, Option<Box<Plan>>) = (0, None);
        let mut high = most.div_ceil(STEP);
        while high - low.0 > 1 {
            let middle = low.0 + (high - low.0) / 2;
            match self.tried(middle * STEP)? {
                Tried::Fits(plan) if !self.on_host(&plan) => low = (middle, Some(plan)),
                Tried::Fits(_) | Tried::Refused(_) => high = middle,
            }
        }
        Ok(low.1.map(|plan| Largest { context: low.0 * STEP, plan: *plan }))
    }

    /// The largest context up to `top`, and what comes behind it.
    fn largest(&self, top: Option<u64>) -> Result<(Option<Largest>, Limit), JobError> {
        let at = |step: u64| step.saturating_mul(STEP).min(top.unwrap_or(u64::MAX)).max(1);
        let memory = |step: u64, refusal| Limit::Memory { next: at(step), refusal };
        // The largest step that is known to fit, and its plan; step 0 is no context at all.
        let mut low: (u64, Option<Box<Plan>>) = (0, None);
        let mut high = match top {
            Some(top) => top.div_ceil(STEP).max(1),
            None => 1,
        };
        // Without a top the steps are doubled until one does not fit.
        let mut refused = loop {
            match self.tried(at(high))? {
                Tried::Refused(refusal) => break refusal,
                Tried::Fits(plan) => {
                    let largest = Largest { context: at(high), plan: *plan.clone() };
                    if let Some(context) = top {
                        return Ok((Some(largest), Limit::Trained { context }));
                    }
                    if at(high) >= LONGEST {
                        return Ok((Some(largest), Limit::Longest { context: at(high) }));
                    }
                    low = (high, Some(plan));
                    high *= 2;
                }
            }
        };
        while high - low.0 > 1 {
            let middle = low.0 + (high - low.0) / 2;
            match self.tried(at(middle))? {
                Tried::Fits(plan) => low = (middle, Some(plan)),
                Tried::Refused(refusal) => (high, refused) = (middle, refusal),
            }
        }
        let largest = low.1.map(|plan| Largest { context: at(low.0), plan: *plan });
        Ok((largest, memory(high, refused)))
    }

    /// The plan on the fewest devices with so much context.
    fn tried(&self, context: u64) -> Result<Tried, JobError> {
        let request = Request { context: Some(ContextLength::PerSequence(context)), ..self.request };
        let options = PlanOptions { objective: Objective::Fit, ..self.options.clone() };
        let job = Job { request, options, ..self.clone() };
        match job.carried() {
            Ok(carried) => Ok(Tried::Fits(Box::new(carried.plan))),
            Err(JobError::Estimate(EstimateError::TooLarge { .. })) => Ok(Tried::Refused(None)),
            Err(JobError::Plan(PlanError::DoesNotFit(refusal))) => Ok(Tried::Refused(Some(refusal))),
            Err(JobError::Plan(PlanError::Overflow { .. })) => Ok(Tried::Refused(None)),
            Err(error) => Err(error),
        }
    }

    /// Whether more context takes more memory.
    fn grows(&self) -> Result<bool, JobError> {
        let request = |cells| Request { context: Some(ContextLength::PerSequence(cells)), ..self.request };
        Ok(!self.model.kv_bytes_per_token(&request(LEAST))?.is_zero())
    }
}

impl Fit {
    /// Whether the model fits with the context that was asked for.
    pub const fn fits(&self) -> bool {
        self.plan.is_some()
    }
}
