//! What a pipeline looks like that has certain of the devices with pins.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use super::team::Unit;
use crate::context::Context;
use crate::core::chain::Chain;
use crate::core::solve::Tries;
use crate::core::{Placement, as_f64};
use crate::items::Items;
use crate::search::{Posed, Search};

/// More sets of devices with pins than this are not looked at in one search over larger fleets.
const MOST: usize = 512;

/// The problem of one copy on all devices but those with pins that belong to other pipelines.
pub(super) struct View {
    pub(super) posed: Posed,
    pub(super) tries: Tries,
    /// The slot of each unit; `None` where it is too small for a part, or belongs to another pipeline.
    pub(super) slots: Vec<Option<usize>>,
    /// Item by item the least of all kinds of buffers.
    pub(super) smallest: Chain,
    /// For every unit with pins, where its layers begin, as a share of what a token reads.
    pub(super) begins: Vec<(usize, f64)>,
    items: Items,
}

impl View {
    pub(super) fn new(
        context: &Context<'_>,
        units: &[Unit],
        pinned: &[usize],
        chosen: Option<&[(usize, u64)]>,
    ) -> Self {
        let search = Search::new(context);
        let posed = search.posed(0, 0, 0, chosen);
        let tries = search.tries(&posed);
        let foreign = |number: usize, unit: &Unit| unit.pinned && !pinned.contains(&number);
        let slot = |(number, unit): (usize, &Unit)| {
            posed.devices.binary_search(&unit.device).ok().filter(|_| !foreign(number, unit))
        };
        let slots = units.iter().enumerate().map(slot).collect();
        let smallest = Chain::smallest(&posed.problem.chains);
        let all = as_f64(smallest.cost(0, smallest.items()));
        let begin = |&unit: &usize| {
            let hull = context.pins.of(Some(units[unit].device))?;
            let item = context.items.item(&posed.fold, hull.layers.start);
            Some((unit, as_f64(smallest.cost(0, item)) / all.max(1.0)))
        };
        let begins = pinned.iter().filter_map(begin).collect();
        Self { posed, tries, slots, smallest, begins, items: context.items.clone() }
    }

    /// A placement in terms of devices and layers; `slot` says which of all slots one of the placement is.
    pub(super) fn named(
        &self,
        placement: &Placement,
        slot: impl Fn(usize) -> usize,
    ) -> Vec<(usize, Range<usize>, bool)> {
        let stages = placement.stages().map(|(own, start, end)| {
            let (layers, head) = self.items.unfold(&self.posed.fold, start, end);
            (self.posed.devices[slot(own)], layers, head)
        });
        stages.collect()
    }
}

/// Views by the units with pins that they have, made when they are first asked for.
pub(super) struct Views {
    /// The one without pins.
    pub(super) plain: Rc<View>,
    others: RefCell<BTreeMap<Vec<usize>, Option<Rc<View>>>>,
}

impl Views {
    pub(super) fn new(plain: View) -> Self {
        Self { plain: Rc::new(plain), others: RefCell::default() }
    }

    /// The view of a pipeline with these units of all that have pins; `None` where what is pinned to them does not go
    /// together.
    pub(super) fn of(
        &self,
        context: &Context<'_>,
        units: &[Unit],
        mut pinned: Vec<usize>,
        chosen: Option<&[(usize, u64)]>,
    ) -> Option<Rc<View>> {
        if pinned.is_empty() {
            return Some(Rc::clone(&self.plain));
        }
        pinned.sort_unstable();
        if let Some(known) = self.others.borrow().get(&pinned) {
            return known.clone();
        }
        let mut others = self.others.borrow_mut();
        if others.values().flatten().count() >= MOST {
            return None;
        }
        let devices: Vec<usize> = pinned.iter().map(|&unit| units[unit].device).collect();
        let view = context.pinning(&devices).ok();
        let view = view.map(|context| Rc::new(View::new(&context, units, &pinned, chosen)));
        others.insert(pinned, view.clone());
        view
    }
}
