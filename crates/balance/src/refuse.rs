//! Why nothing fits, so that anybody can check it.

use std::collections::BTreeMap;

use plimsoll_units::Bytes;

use crate::context::Context;
use crate::core::bounds;
use crate::error::{Certificate, Refusal, Verdict};
use crate::fleet::Candidate;
use crate::items::Class;
use crate::search::Search;
use crate::stopped;

/// What is known, and by how much the best attempt failed.
///
/// The bytes that are short are the fewest by which one device would have to be larger, over all attempts: the last
/// device of every order that was filled greedily, every device alone, and the main host; never fewer than what the
/// certificate says is missing.
pub(crate) fn refusal(context: &Context<'_>, search: &Search<'_>) -> Refusal {
    let certificate = certificate(context);
    let missing = certificate.as_ref().map_or(0, missing);
    let proven = search.lower == f64::INFINITY;
    let verdict = match certificate {
        Some(certificate) => Verdict::ProvenInfeasible(certificate),
        None if proven => {
            let devices = u64::try_from(context.places().count()).unwrap_or(u64::MAX);
            Verdict::ProvenInfeasible(Certificate::Searched { devices })
        }
        None => Verdict::Unknown,
    };
    let short = search.short.unwrap_or_else(|| least(context, |c| c.resident(0, context.items.layers())));
    Refusal { verdict, short_bytes: Bytes::new(short.max(missing)), stopped: stopped::of_refusal(context) }
}

/// A refusal of whole layers as one of layers whose parts were moved as well: what still proves it, and what does not.
/// `complete` says whether every way to move them was looked at; `None` where none could be.
pub(crate) fn with_parts(refusal: Refusal, context: &Context<'_>, complete: Option<bool>) -> Refusal {
    let Some(complete) = complete else { return refusal };
    let verdict = match refusal.verdict {
        // These count bytes and devices, wherever parts lie.
        verdict @ Verdict::ProvenInfeasible(
            Certificate::Total { .. } | Certificate::Host { .. } | Certificate::Pipelines { .. },
        ) => verdict,
        Verdict::ProvenInfeasible(_) if complete => {
            let devices = u64::try_from(context.places().count()).unwrap_or(u64::MAX);
            Verdict::ProvenInfeasible(Certificate::Searched { devices })
        }
        _ => Verdict::Unknown,
    };
    Refusal { verdict, ..refusal }
}

/// What a certificate says is missing at least.
fn missing(certificate: &Certificate) -> u64 {
    match certificate {
        Certificate::Total { needs, budgets } => needs.saturating_sub(*budgets),
        Certificate::Layer { needs, largest, .. } => needs.saturating_sub(*largest),
        Certificate::Host { needs, budget, .. } | Certificate::Pinned { needs, budget, .. } => {
            needs.saturating_sub(*budget)
        }
        // A little more may let a device hold a layer that could hold none.
        Certificate::Usable { .. }
        | Certificate::Counting { .. }
        | Certificate::Pipelines { .. }
        | Certificate::Searched { .. } => 0,
    }
}

/// The smallest over all kinds of buffers.
fn least(context: &Context<'_>, part: impl Fn(&Class) -> u64) -> u64 {
    context.items.classes.iter().map(part).min().unwrap_or(0)
}

/// A certificate that needs no search.
fn certificate(context: &Context<'_>) -> Option<Certificate> {
    host(context)
        .or_else(|| pinned(context))
        .or_else(|| total(context))
        .or_else(|| layer(context))
        .or_else(|| usable(context))
        .or_else(|| counting(context))
        .or_else(|| pipelines(context))
}

/// How many copies of the model there have to be at least.
fn copies(context: &Context<'_>) -> u64 {
    context.options.pipelines.count().map_or(1, |count| u64::from(count.get()))
}

/// Every pipeline needs a device of its own.
fn pipelines(context: &Context<'_>) -> Option<Certificate> {
    let pipelines = copies(context);
    let devices = context.fleet.devices.len().min(context.limit);
    let devices = u64::try_from(devices).unwrap_or(u64::MAX);
    (pipelines > 1 && pipelines > devices).then_some(Certificate::Pipelines { pipelines, devices })
}

/// The main host cannot hold what the engine keeps there, whether devices are used or not.
fn host(context: &Context<'_>) -> Option<Certificate> {
    let host = context.fleet.host.as_ref()?;
    let charges = &context.rules.charges;
    let class = context.class(host.place.backend);
    let beside = charges.host.get().saturating_add(class.input);
    let layers = context.items.layers();
    let alone = [
        charges.host_alone.get(),
        class.input,
        class.resident(0, layers),
        class.each_device,
        class.head_beside_input,
    ];
    let alone = alone.into_iter().fold(0_u64, u64::saturating_add);
    let needs = if host.takes_layers { beside.min(alone) } else { beside };
    let budget = context.fleet.budget(&host.place);
    (needs > budget).then(|| Certificate::Host { host: host.place.device.clone(), needs, budget })
}

/// What is pinned to a device is larger than it.
fn pinned(context: &Context<'_>) -> Option<Certificate> {
    let charges = &context.rules.charges;
    context.pins.anywhere.iter().find_map(|hull| {
        let (place, beside) = match hull.device {
            Some(device) => (context.fleet.devices.get(device)?, context.least_charge()),
            None => {
                let host = &context.fleet.host.as_ref()?.place;
                let input = context.class(host.backend).input;
                (host, charges.host.min(charges.host_alone).get().saturating_add(input))
            }
        };
        let class = context.class(place.backend);
        let layers = class.resident(hull.layers.start, hull.layers.end);
        let needs = layers.saturating_add(class.each_device).saturating_add(beside);
        let budget = context.fleet.budget(place);
        (needs > budget).then(|| Certificate::Pinned { pin: hull.named.clone(), needs, budget })
    })
}

/// What one copy takes at least, and what may be used in all.
pub(crate) fn needs_and_budgets(context: &Context<'_>) -> (u64, u64) {
    let places = context.fleet.host.iter().map(|host| &host.place).chain(&context.fleet.devices);
    (held(context), together(context, places))
}

/// What every copy has to hold at least.
fn held(context: &Context<'_>) -> u64 {
    let layers = context.items.layers();
    // A head beside the input takes no more than one elsewhere.
    least(context, |class| {
        let head = class.head.min(class.head_beside_input);
        [class.resident(0, layers), class.input, head, class.each_device]
            .into_iter()
            .fold(0_u64, u64::saturating_add)
    })
}

/// The budgets of these places together, no pool counted twice.
fn together<'a>(context: &Context<'_>, places: impl Iterator<Item = &'a Candidate>) -> u64 {
    let mut pools: BTreeMap<usize, u64> = BTreeMap::new();
    for place in places {
        let sum = pools.entry(place.pool).or_insert(0);
        let pool = context.fleet.pools.get(place.pool).copied().unwrap_or(0);
        *sum = sum.saturating_add(place.limit.min(pool)).min(pool);
    }
    pools.into_values().fold(0_u64, u64::saturating_add)
}

/// All pools that layers may lie on are too small together.
fn total(context: &Context<'_>) -> Option<Certificate> {
    let (needs, budgets) = needs_and_budgets(context);
    let needs = needs.saturating_mul(copies(context));
    (needs > budgets).then_some(Certificate::Total { needs, budgets })
}

/// So are they without those that cannot hold any layer.
fn usable(context: &Context<'_>) -> Option<Certificate> {
    let needs = held(context).saturating_mul(copies(context));
    let usable = || context.fleet.devices.iter().filter(|device| context.too_small(device).is_none());
    let devices = u64::try_from(usable().count()).unwrap_or(u64::MAX);
    let budgets = together(context, context.fleet.host.iter().map(|host| &host.place).chain(usable()));
    (needs > budgets).then_some(Certificate::Usable { needs, budgets, devices })
}

/// Budgets of all places that layers may lie on.
fn budgets(context: &Context<'_>) -> Vec<u64> {
    let host = context.fleet.host.iter().filter(|host| host.takes_layers).map(|host| &host.place);
    host.chain(&context.fleet.devices).map(|place| context.fleet.budget(place)).collect()
}

/// What each piece that cannot be cut takes at least.
fn pieces(context: &Context<'_>) -> Vec<(u64, u32)> {
    let cuts = context.items.cuts.windows(2);
    let needs = |cut: &[usize]| least(context, |class| class.resident(cut[0], cut[1]));
    cuts.map(|cut| (needs(cut), context.items.index(cut[0]))).collect()
}

fn layer(context: &Context<'_>) -> Option<Certificate> {
    let largest = budgets(context).into_iter().max().unwrap_or(0);
    let shared = least(context, |class| class.each_device);
    let largest_piece = pieces(context).into_iter().max_by_key(|(needs, index)| (*needs, u32::MAX - index));
    let (needs, index) = largest_piece?;
    let needs = needs.saturating_add(shared);
    (needs > largest).then_some(Certificate::Layer { index, needs, largest })
}

fn counting(context: &Context<'_>) -> Option<Certificate> {
    const MOST: usize = 2_000_000;
    let pieces: Vec<u64> = pieces(context).into_iter().map(|(needs, _)| needs).collect();
    let copies = usize::try_from(copies(context)).unwrap_or(usize::MAX);
    // So many pieces of several copies are not worth the memory: what is not counted proves nothing.
    let copies = copies.min(MOST / pieces.len().max(1)).max(1);
    let loads = pieces.repeat(copies);
    let (count, size, places) = bounds::crowded(&loads, &budgets(context))?;
    Some(Certificate::Counting { count, size, places })
}
