//! One share of the memory for all devices, as a short decimal number.

use std::fmt;

use plimsoll_units::DeviceRef;

use crate::engine_error::EngineError;

/// What one device needs and allows of an amount that the engine knows.
#[derive(Clone, Debug)]
pub(crate) struct Span<'a> {
    pub(crate) device: &'a DeviceRef,
    /// At least so many bytes.
    pub(crate) need: u64,
    /// At most so many.
    pub(crate) most: u64,
    /// Of so many.
    pub(crate) of: u64,
}

/// A share with so many decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The digits behind the point.
    pub digits: u32,
    /// Units of the last digit.
    pub units: u64,
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = 10_u64.pow(self.digits);
        let width = usize::try_from(self.digits).unwrap_or(9);
        write!(f, "{}.{:0width$}", self.units / one, self.units % one)
    }
}

/// The share with the fewest decimals, two at least, that gives every device what it needs and no more than it allows,
/// rounded up. The engine multiplies in double precision and cuts off: so is it checked here.
pub(crate) fn share(flag: &'static str, spans: &[Span<'_>]) -> Result<Share, EngineError> {
    for digits in 2..=9 {
        let one = 10_u64.pow(digits);
        let up =
            |span: &Span<'_>| (u128::from(span.need) * u128::from(one)).div_ceil(u128::from(span.of.max(1)));
        let least = spans.iter().map(up).max().unwrap_or(0);
        let Ok(least) = u64::try_from(least) else { break };
        // A product in floating point may fall short of the exact one by a byte: then one unit more.
        let found = [least, least.saturating_add(1)].into_iter().map(|units| Share { digits, units });
        if let Some(share) = found.into_iter().find(|share| spans.iter().all(|span| suits(*share, span))) {
            return Ok(share);
        }
    }
    Err(no_share(flag, spans))
}

fn suits(share: Share, span: &Span<'_>) -> bool {
    let given = given(share, span.of);
    share.units <= 10_u64.pow(share.digits) && given >= span.need && given <= span.most
}

/// What the engine makes of a share.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the engine computes in double precision; amounts of memory stay below 2^53"
)]
pub(crate) fn given(share: Share, of: u64) -> u64 {
    let text = share.to_string();
    text.parse::<f64>().map_or(0, |fraction| (of as f64 * fraction) as u64)
}

fn no_share(flag: &'static str, spans: &[Span<'_>]) -> EngineError {
    let ratio = |bytes: u64, of: u64| u128::from(bytes) * u128::from(u32::MAX) / u128::from(of.max(1));
    let needs = spans.iter().max_by_key(|span| ratio(span.need, span.of));
    let allows = spans.iter().min_by_key(|span| ratio(span.most, span.of));
    match needs.zip(allows) {
        Some((needs, allows)) => EngineError::NoShare {
            flag,
            needs: needs.device.clone(),
            need_bytes: needs.need,
            need_of: needs.of,
            allows: allows.device.clone(),
            most_bytes: allows.most,
            most_of: allows.of,
        },
        // Without a device any share does; this is never reached.
        None => EngineError::NoNames { engine: flag },
    }
}
