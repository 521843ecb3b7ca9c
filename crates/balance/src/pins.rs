//! Layers that must lie on certain devices.
//!
//! Layers pinned to one device are one piece, and nothing else that a planner tries may hold that piece: for every other
//! device it is heavier than all there is.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use plimsoll_cluster::ClusterSnapshot;
use plimsoll_units::{DeviceRef, IdError};

use crate::error::{PinProblem, PlanError};
use crate::fleet::Fleet;
use crate::items::Items;
use crate::workload::{LayerRange, Pin};

/// `0-8=tower/CUDA0`: half open, as it is typed.
impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}={}", self.layers.start, self.layers.end, self.device)
    }
}

/// A text that is no pin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParsePinError {
    /// Not of the form that pins have.
    #[error("'{text}' is not of the form 0-8=node/device, where the end (8) is the layer after the last one")]
    Form {
        /// The text as it came.
        text: String,
    },
    /// A layer that is no number.
    #[error("'{number}' in '{text}' is not the index of a layer")]
    Number {
        /// The text as it came.
        text: String,
        /// What should be a number.
        number: String,
    },
    /// A range without a layer.
    #[error(
        "'{text}' holds no layer: the end is the layer after the last one, so that {start}-{} is the layer {start}",
        .start.saturating_add(1)
    )]
    Empty {
        /// The text as it came.
        text: String,
        /// Where it starts.
        start: u32,
    },
    /// A name that no node or device can have.
    #[error("'{text}' does not name a device")]
    Name {
        /// The text as it came.
        text: String,
        /// What is wrong with the name.
        #[source]
        source: IdError,
    },
}

impl FromStr for Pin {
    type Err = ParsePinError;

    /// Reads `0-8=tower/CUDA0`.
    fn from_str(text: &str) -> Result<Self, ParsePinError> {
        let form = || ParsePinError::Form { text: text.to_owned() };
        let (layers, device) = text.split_once('=').ok_or_else(form)?;
        let (start, end) = layers.split_once('-').ok_or_else(form)?;
        let (node, device) = device.split_once('/').ok_or_else(form)?;
        let index = |number: &str| {
            // `parse` takes a plus sign, which nobody means here.
            let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            let parsed = if digits { number.parse::<u32>().ok() } else { None };
            parsed.ok_or_else(|| ParsePinError::Number { text: text.to_owned(), number: number.to_owned() })
        };
        let layers = LayerRange { start: index(start)?, end: index(end)? };
        if layers.end <= layers.start {
            return Err(ParsePinError::Empty { text: text.to_owned(), start: layers.start });
        }
        let name = |source| ParsePinError::Name { text: text.to_owned(), source };
        let device = DeviceRef { node: node.parse().map_err(name)?, device: device.parse().map_err(name)? };
        Ok(Self { device, layers })
    }
}

/// All that is pinned to one device.
#[derive(Clone, Debug)]
pub(crate) struct Hull {
    /// The device, as an index into the fleet; `None` for the main host.
    pub(crate) device: Option<usize>,
    /// Places of the layers that it holds at least: whole pieces.
    pub(crate) layers: Range<usize>,
    /// From the first layer that was named to the last one.
    pub(crate) named: Pin,
}

/// What is pinned where.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pins {
    /// What one pipeline has to keep: in the order of the layers, and no two share a piece.
    pub(crate) hulls: Vec<Hull>,
    /// What is pinned in any pipeline: the same where there is only one; in the order of the layers.
    pub(crate) anywhere: Vec<Hull>,
    /// More than any device can hold.
    pub(crate) too_heavy: u64,
}

impl Pins {
    /// Checks what was pinned in one pipeline, and makes the layers of each device one piece.
    pub(crate) fn new(
        snapshot: &ClusterSnapshot,
        pins: &[Pin],
        fleet: &Fleet,
        items: &mut Items,
        limit: usize,
    ) -> Result<Self, PlanError> {
        if pins.is_empty() {
            return Ok(Self::default());
        }
        let mut hulls = hulls(snapshot, pins, fleet, items)?;
        apart(&hulls, |before, _| PinProblem::Overlaps { other: before.named.clone() })?;
        for hull in &mut hulls {
            hull.layers = items.glue(&hull.layers);
        }
        apart(&hulls, |before, at| PinProblem::Uncuttable {
            other: before.named.clone(),
            start: items.index(at.start),
            end: items.index(at.end),
        })?;
        let too_heavy = too_heavy(&hulls, fleet, items, limit)?;
        Ok(Self { anywhere: hulls.clone(), hulls, too_heavy })
    }

    /// Checks what was pinned where every pipeline keeps only what is pinned to its own devices.
    ///
    /// Nothing has to be kept until it is known which devices these are: [`Context::pinning`](crate::context::Context::pinning).
    pub(crate) fn in_any_pipeline(
        snapshot: &ClusterSnapshot,
        pins: &[Pin],
        fleet: &Fleet,
        items: &Items,
        limit: usize,
    ) -> Result<Self, PlanError> {
        if pins.is_empty() {
            return Ok(Self::default());
        }
        let mut anywhere = hulls(snapshot, pins, fleet, items)?;
        for hull in &mut anywhere {
            hull.layers = items.pieces(&hull.layers);
        }
        let too_heavy = too_heavy(&anywhere, fleet, items, limit)?;
        Ok(Self { hulls: Vec::new(), anywhere, too_heavy })
    }

    /// What is pinned to devices, the main host not counted.
    pub(crate) fn on_devices(&self) -> impl Iterator<Item = (usize, &Range<usize>)> {
        self.hulls.iter().filter_map(|hull| Some((hull.device?, &hull.layers)))
    }

    /// How many of the first layers the main host holds at least.
    pub(crate) fn host_at_least(&self) -> usize {
        let host = self.hulls.iter().find(|hull| hull.device.is_none());
        host.map_or(0, |hull| hull.layers.end)
    }

    /// How many of the first layers the main host holds at most, where something is pinned elsewhere.
    pub(crate) fn host_at_most(&self) -> Option<usize> {
        self.on_devices().map(|(_, layers)| layers.start).min()
    }

    /// What a device has to hold; `None` for the main host.
    pub(crate) fn of(&self, device: Option<usize>) -> Option<&Hull> {
        self.hulls.iter().find(|hull| hull.device == device)
    }

    /// What a device has to hold in whatever pipeline it is.
    pub(crate) fn in_its_pipeline(&self, device: usize) -> Option<&Hull> {
        self.anywhere.iter().find(|hull| hull.device == Some(device))
    }

    /// The pin because of which a device cannot hold a layer at this place.
    pub(crate) fn elsewhere(&self, device: Option<usize>, place: usize) -> Option<&Hull> {
        self.hulls.iter().find(|hull| hull.device != device && hull.layers.contains(&place))
    }

    /// Where what a device cannot hold because it is pinned to another one begins at the earliest.
    pub(crate) fn first_elsewhere(&self, device: Option<usize>) -> Option<usize> {
        self.hulls.iter().filter(|hull| hull.device != device).map(|hull| hull.layers.start).min()
    }

    /// Whether a plan may put everything on one device.
    pub(crate) fn allow_alone(&self, device: Option<usize>) -> bool {
        self.hulls.iter().all(|hull| hull.device == device)
    }
}

/// What is pinned to each device, in the order of the layers.
fn hulls(
    snapshot: &ClusterSnapshot,
    pins: &[Pin],
    fleet: &Fleet,
    items: &Items,
) -> Result<Vec<Hull>, PlanError> {
    let mut by_device: BTreeMap<Option<usize>, Hull> = BTreeMap::new();
    for pin in pins {
        let trouble = |problem| PlanError::Pin { pin: pin.clone(), problem };
        let layers = places(pin, items).map_err(trouble)?;
        let device = device(pin, snapshot, fleet).map_err(trouble)?;
        let hull = by_device.entry(device).or_insert_with(|| Hull {
            device,
            layers: layers.clone(),
            named: pin.clone(),
        });
        hull.layers = hull.layers.start.min(layers.start)..hull.layers.end.max(layers.end);
        let named = &mut hull.named.layers;
        *named = LayerRange { start: named.start.min(pin.layers.start), end: named.end.max(pin.layers.end) };
    }
    if let Some(host) = by_device.get_mut(&None) {
        // The host holds layers only as a prefix.
        host.layers.start = 0;
        host.named.layers.start = items.first;
    }
    let mut hulls: Vec<Hull> = by_device.into_values().collect();
    hulls.sort_by_key(|hull| (hull.layers.start, hull.device));
    Ok(hulls)
}

/// More than any device can hold, where no more devices have pins than may be used.
fn too_heavy(hulls: &[Hull], fleet: &Fleet, items: &Items, limit: usize) -> Result<u64, PlanError> {
    let on_devices = hulls.iter().filter(|hull| hull.device.is_some());
    if let Some(hull) = on_devices.clone().nth(limit) {
        let problem = PinProblem::TooMany {
            pinned: u64::try_from(on_devices.count()).unwrap_or(u64::MAX),
            limit: u64::try_from(limit).unwrap_or(u64::MAX),
        };
        return Err(PlanError::Pin { pin: hull.named.clone(), problem });
    }
    let largest = fleet.devices.iter().map(|place| fleet.budget(place)).max().unwrap_or(0);
    let too_heavy = items.heavier_than(largest, hulls.len());
    too_heavy.ok_or(PlanError::Overflow { what: "layers, charges and pinned layers" })
}

/// The places of the layers that a pin names.
fn places(pin: &Pin, items: &Items) -> Result<Range<usize>, PinProblem> {
    let LayerRange { start, end } = pin.layers;
    if end <= start {
        return Err(PinProblem::Empty);
    }
    let all = items.index(0)..items.index(items.layers());
    if start < all.start || end > all.end {
        return Err(PinProblem::Outside { start: all.start, end: all.end });
    }
    let place = |index: u32| usize::try_from(index - items.first).unwrap_or(usize::MAX);
    Ok(place(start)..place(end))
}

/// The device of a pin, where it may be used.
fn device(pin: &Pin, snapshot: &ClusterSnapshot, fleet: &Fleet) -> Result<Option<usize>, PinProblem> {
    if snapshot.device(&pin.device).is_none() {
        return Err(PinProblem::NoSuchDevice);
    }
    if let Some(left_out) = fleet.left_out.iter().find(|stopped| stopped.device == pin.device) {
        return Err(PinProblem::LeftOut { reason: left_out.reason.clone() });
    }
    match &fleet.host {
        Some(host) if host.place.device == pin.device => match host.takes_layers {
            true => Ok(None),
            false => Err(PinProblem::LeftOut { reason: crate::StoppedBy::NotAsked }),
        },
        _ => {
            let found = fleet.devices.iter().position(|place| place.device == pin.device);
            found.map(Some).ok_or(PinProblem::TakesNoPart)
        }
    }
}

/// Refuses two neighbours that share a layer.
fn apart(hulls: &[Hull], problem: impl Fn(&Hull, &Range<usize>) -> PinProblem) -> Result<(), PlanError> {
    let mut before: Option<&Hull> = None;
    for hull in hulls {
        if let Some(before) = before.filter(|before| hull.layers.start < before.layers.end) {
            let shared = hull.layers.start.min(before.layers.start)..hull.layers.end.max(before.layers.end);
            return Err(PlanError::Pin { pin: hull.named.clone(), problem: problem(before, &shared) });
        }
        before = Some(hull);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_is_shown_as_it_is_typed() {
        for text in ["0-8=tower/CUDA0", "7-4294967295=a/b"] {
            assert_eq!(text.parse::<Pin>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_pin_is_told_with_what_was_read() {
        for (text, why) in [
            ("", "'' is not of the form 0-8=node/device"),
            ("0-8", "'0-8' is not of the form"),
            ("8=tower/CUDA0", "'8=tower/CUDA0' is not of the form"),
            ("0-8=tower", "'0-8=tower' is not of the form"),
            ("0-x=tower/CUDA0", "'x' in '0-x=tower/CUDA0' is not the index of a layer"),
            ("-1-8=tower/CUDA0", "'' in '-1-8=tower/CUDA0'"),
            ("+1-8=tower/CUDA0", "'+1' in"),
            ("0-4294967296=tower/CUDA0", "'4294967296' in"),
            (
                "8-8=tower/CUDA0",
                "'8-8=tower/CUDA0' holds no layer: the end is the layer after the last one, so that 8-9 is",
            ),
            ("9-8=tower/CUDA0", "holds no layer"),
            ("0-8=/CUDA0", "'0-8=/CUDA0' does not name a device"),
            ("0-8=tower/", "does not name a device"),
        ] {
            let error = text.parse::<Pin>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
