//! How many tokens any placement makes: a largest flow through the model.
//!
//! A placement may hold layers several times, in pieces that overlap. A token that has passed the first `n` layers goes
//! on at any device that holds layer `n`, and that device takes it to the end of its range. So devices are ways between
//! boundaries, each with a capacity, and the most tokens in a second are a largest flow from the first boundary to the
//! last one (Dinic's algorithm).

mod network;

use std::ops::Range;

use plimsoll_units::DeviceRef;

use crate::plan::Plan;
use network::Network;

/// What a device serves.
#[derive(Clone, Debug, PartialEq)]
pub struct Served {
    /// The device.
    pub device: DeviceRef,
    /// The layers it holds, by their indices. A token may come in at any of them and goes on to the last one.
    pub layers: Range<u32>,
    /// Tokens in a second, wherever they come in: what it makes of its whole range.
    pub rate: f64,
}

/// How many tokens a placement makes, and how they go.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Tokens in a second.
    pub tokens_per_second: f64,
    /// The ways that they go; their tokens add up to all of them. Weights for a router.
    pub routes: Vec<Route>,
}

/// One way through the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// The devices in order, as places in what was served, each with the layers that a token passes there.
    pub steps: Vec<(usize, Range<u32>)>,
    /// Tokens in a second on this way.
    pub tokens_per_second: f64,
}

/// Why a placement cannot be weighed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// A rate is no number of tokens.
    #[error("{device} serves {rate} tokens per second, which is no rate")]
    Rate {
        /// The device.
        device: DeviceRef,
        /// What is said of it.
        rate: f64,
    },
    /// A range begins after its end, or holds layers that the model does not have.
    #[error(
        "{device} serves the layers from {} up to {}, and the model's are from {} up to {}",
        .layers.start, .layers.end, .model.start, .model.end
    )]
    Layers {
        /// The device.
        device: DeviceRef,
        /// What it serves.
        layers: Range<u32>,
        /// What there is.
        model: Range<u32>,
    },
    /// What a way between two devices lets through is no number of tokens.
    #[error("the way from {from} to {to} lets {rate} tokens per second pass, which is no rate")]
    Way {
        /// Where it begins.
        from: DeviceRef,
        /// Where it ends.
        to: DeviceRef,
        /// What is said of it.
        rate: f64,
    },
}

/// The most tokens in a second of a placement of a model's layers, with ways that carry them.
///
/// Rates are taken as whole numbers of a unit that is a power of two, 2^-80 of the largest rate or less; what a rate has
/// beyond that is dropped. So rates down to 2^-27 of the largest one count exactly, sums and differences are exact, and
/// the same input gives the same routes, bit for bit.
///
/// # Errors
///
/// A rate that is negative or not finite, or a range outside the model.
pub fn evaluate(model: Range<u32>, served: &[Served]) -> Result<Flow, FlowError> {
    check(&model, served)?;
    let mut network = Network::new(served.iter().map(|s| s.rate));
    // Tokens can only be at the first boundary, and where a device ends.
    let mut boundaries: Vec<u32> =
        served.iter().map(|s| s.layers.end).chain([model.start, model.end]).collect();
    boundaries.sort_unstable();
    boundaries.dedup();
    let vertices: Vec<usize> = boundaries.iter().map(|_| network.vertex()).collect();
    for device in served {
        let (inside, outside) = (network.vertex(), network.vertex());
        let limited = network.units(device.rate);
        network.way(inside, outside, limited);
        for (&boundary, &vertex) in boundaries.iter().zip(&vertices) {
            if device.layers.contains(&boundary) {
                network.unlimited(vertex, inside);
            } else if boundary == device.layers.end && !device.layers.is_empty() {
                network.unlimited(outside, vertex);
            }
        }
    }
    let at = |boundary: u32| boundaries.binary_search(&boundary).map_or(0, |place| vertices[place]);
    let first_device = vertices.len();
    Ok(routed(network, (at(model.start), at(model.end)), &model, served, |vertex| {
        vertex.checked_sub(first_device).map(|n| n / 2)
    }))
}

/// The same where tokens do not pass between all devices at will.
///
/// `way` says how many tokens in a second pass from one device, by its place in what is served, to another one; `None`
/// where nothing limits that.
///
/// # Errors
///
/// As [`evaluate`], and a way that lets a negative number of tokens pass or one that is not finite.
pub fn evaluate_over_ways(
    model: Range<u32>,
    served: &[Served],
    way: impl Fn(usize, usize) -> Option<f64>,
) -> Result<Flow, FlowError> {
    check(&model, served)?;
    let follows = |from: usize, to: usize| {
        from != to && !served[from].layers.is_empty() && served[to].layers.contains(&served[from].layers.end)
    };
    let mut ways = Vec::new();
    for from in 0..served.len() {
        for to in (0..served.len()).filter(|&to| follows(from, to)) {
            let limit = way(from, to);
            if let Some(rate) = limit.filter(|rate| !is_rate(*rate)) {
                let (from, to) = (served[from].device.clone(), served[to].device.clone());
                return Err(FlowError::Way { from, to, rate });
            }
            ways.push((from, to, limit));
        }
    }
    let mut network = Network::new(served.iter().map(|s| s.rate));
    let (start, end) = (network.vertex(), network.vertex());
    let doors: Vec<(usize, usize)> = served.iter().map(|_| (network.vertex(), network.vertex())).collect();
    for (device, &(inside, outside)) in served.iter().zip(&doors) {
        let limited = network.units(device.rate);
        network.way(inside, outside, limited);
        if device.layers.contains(&model.start) {
            network.unlimited(start, inside);
        }
        if device.layers.end == model.end && !device.layers.is_empty() {
            network.unlimited(outside, end);
        }
    }
    for (from, to, limit) in ways {
        match limit {
            Some(rate) => {
                let limited = network.units(rate);
                network.way(doors[from].1, doors[to].0, limited);
            }
            None => network.unlimited(doors[from].1, doors[to].0),
        }
    }
    Ok(routed(network, (start, end), &model, served, |vertex| vertex.checked_sub(2).map(|n| n / 2)))
}

/// No placement of these makes more tokens in a second: the least over all layers of what the devices that hold it make
/// together. Zero where nobody holds a layer; infinite without layers.
pub fn layerwise_bound(model: Range<u32>, served: &[Served]) -> f64 {
    let mut changes: Vec<(u32, f64)> = vec![(model.start, 0.0)];
    for device in served.iter().filter(|s| !s.layers.is_empty()) {
        changes.push((device.layers.start, 0.0));
        changes.push((device.layers.end, 0.0));
    }
    changes.retain(|change| model.contains(&change.0));
    changes.sort_by_key(|change| change.0);
    changes.dedup_by_key(|change| change.0);
    // Between two of these nothing changes.
    let made = changes.iter().map(|&(layer, _)| {
        let holding = served.iter().filter(|s| s.layers.contains(&layer));
        holding.map(|s| s.rate).fold(0.0, |sum, rate| sum + rate)
    });
    made.fold(f64::INFINITY, f64::min)
}

/// What the stages of a plan serve, each as fast as its time lets it; `None` where times are not known, or where a stage
/// takes no time at all.
///
/// Stages without layers are left out. Where a plan has several pipelines, tokens that change between them can make
/// [`evaluate`] give more than the plan's own value, never less.
pub fn of_plan(plan: &Plan) -> Option<Vec<Served>> {
    let holding = plan.stages.iter().filter(|stage| !stage.layers.is_empty());
    let served = holding.map(|stage| {
        let seconds = stage.seconds.filter(|seconds| *seconds > 0.0)?;
        Some(Served { device: stage.device.clone(), layers: stage.layers.clone(), rate: 1.0 / seconds })
    });
    served.collect()
}

fn is_rate(rate: f64) -> bool {
    rate.is_finite() && rate >= 0.0
}

fn check(model: &Range<u32>, served: &[Served]) -> Result<(), FlowError> {
    for device in served {
        let (layers, rate) = (&device.layers, device.rate);
        if !is_rate(rate) {
            return Err(FlowError::Rate { device: device.device.clone(), rate });
        }
        if layers.start > layers.end || layers.start < model.start || layers.end > model.end {
            let (layers, model) = (layers.clone(), model.clone());
            return Err(FlowError::Layers { device: device.device.clone(), layers, model });
        }
    }
    Ok(())
}

/// Solves a network and names the ways; `device` says whose door a vertex is.
fn routed(
    mut network: Network,
    (start, end): (usize, usize),
    model: &Range<u32>,
    served: &[Served],
    device: impl Fn(usize) -> Option<usize>,
) -> Flow {
    if model.is_empty() {
        return Flow { tokens_per_second: 0.0, routes: Vec::new() };
    }
    let total = network.solve(start, end);
    let mut routes = Vec::new();
    while let Some((path, units)) = network.take_route(start, end) {
        let mut steps: Vec<(usize, Range<u32>)> = Vec::new();
        let mut next = model.start;
        for number in path.into_iter().filter_map(&device) {
            if steps.last().is_none_or(|last| last.0 != number) {
                let until = served[number].layers.end;
                steps.push((number, next..until));
                next = until;
            }
        }
        routes.push(Route { steps, tokens_per_second: network.rate(units) });
    }
    Flow { tokens_per_second: network.rate(total), routes }
}
