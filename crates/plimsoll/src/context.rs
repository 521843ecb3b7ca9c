//! How much context a plan is made for when nobody says.

use plimsoll_model::{ContextLength, EstimateError};

use crate::job::{Job, JobError};

/// The step in which a context is lowered: llama.cpp allocates cells in these.
pub(crate) const STEP: u64 = 256;

/// The least context that is chosen without being asked.
pub(crate) const LEAST: u64 = 4096;

/// Where the context of a plan comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextChoice {
    /// It was asked for.
    Asked,
    /// The model was trained for it.
    Trained,
    /// The trained context does not fit; this is the largest multiple of 256 that does.
    Lowered {
        /// What the model was trained for.
        trained: u64,
        /// What fits.
        fits: u64,
    },
}

/// The context to plan for, as one sequence sees it: what was asked, else the trained one, lowered to the largest multiple
/// of 256 that fits, never below min(4096, trained).
///
/// # Errors
///
/// The estimate cannot be made. A context that does not fit is no error here: the plan will say so.
pub(crate) fn choose(job: &Job<'_>) -> Result<(Option<ContextLength>, ContextChoice), JobError> {
    if let Some(asked) = job.request.context {
        return Ok((Some(asked), ContextChoice::Asked));
    }
    let Some(trained) = job.model.trained_context() else {
        return Ok((None, ContextChoice::Trained));
    };
    let fits = |cells: u64| match job.fits(ContextLength::PerSequence(cells)) {
        Ok(fits) => Ok(fits),
        Err(JobError::Estimate(EstimateError::TooLarge { .. })) => Ok(false),
        Err(error) => Err(error),
    };
    let least = LEAST.min(trained);
    if fits(trained)? {
        return Ok((Some(ContextLength::PerSequence(trained)), ContextChoice::Trained));
    }
    let chosen = largest_step(least, trained, fits)?;
    let choice = ContextChoice::Lowered { trained, fits: chosen };
    Ok((Some(ContextLength::PerSequence(chosen)), choice))
}

/// The largest multiple of [`STEP`] from `least` up to below `trained` for which `fits` holds; `least` when none does.
fn largest_step<E>(least: u64, trained: u64, fits: impl Fn(u64) -> Result<bool, E>) -> Result<u64, E> {
    let mut low = least.div_ceil(STEP);
    let mut high = trained.div_ceil(STEP);
    // `low` fits or nothing is known of it, `high` does not fit.
    while high.saturating_sub(low) > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle * STEP)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok((low * STEP).max(least).min(trained))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_lowered_to_the_largest_step_that_fits() {
        let chosen = |least, trained, most| {
            largest_step(least, trained, |cells| Ok::<bool, std::convert::Infallible>(cells <= most)).unwrap()
        };
        assert_eq!(chosen(4096, 131_072, 100_000), 99_840);
        assert_eq!(chosen(4096, 131_072, 131_071), 130_816);
        assert_eq!(chosen(4096, 131_072, 99_840), 99_840);
        assert_eq!(chosen(4096, 131_072, 0), 4096);
        assert_eq!(chosen(4096, 131_072, 4096), 4096);
        assert_eq!(chosen(2048, 2048, 0), 2048);
        assert_eq!(chosen(1000, 1000, 0), 1000);
    }
}
