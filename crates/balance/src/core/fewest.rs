//! The fewest slots that hold everything, and the evenest use of so many.

use super::class::Sets;
use super::solve::{Solved, Tries, counted, in_orders, missing, orders_of};
use super::subset::{self, Found};
use super::{Problem, bounds, fit, free, orders, walk};

/// Slots whose count is known to be needed at least, and an order of few ones that fits.
struct Few {
    least: usize,
    order: Option<Vec<usize>>,
}

/// Solves a problem that is not hopeless.
pub(crate) fn fewest(problem: &Problem, tries: &Tries) -> Solved {
    let most = problem.limit.min(problem.slots.len());
    let few = match tries {
        Tries::Portfolio => any_order(problem, most),
        Tries::LargestFirst | Tries::Given(_) => these_orders(problem, tries, most),
    };
    let Some(order) = few.order else {
        let lower = if few.least > most { f64::INFINITY } else { counted(few.least) };
        return Solved { placement: None, lower, missing: missing(problem, tries) };
    };
    let mut small = problem.clone();
    small.limit = order.len();
    let solved = match tries {
        Tries::Portfolio => free::min_max(&small, Some(&order)),
        Tries::LargestFirst | Tries::Given(_) => in_orders(&small, tries, Some(&order)),
    };
    Solved { lower: counted(few.least), ..solved }
}

/// Of every order.
fn any_order(problem: &Problem, most: usize) -> Few {
    let least = bounds::fewest(problem).unwrap_or(usize::MAX);
    let known = filled(problem, &[orders::largest_first(problem)]);
    if let Some(order) = known.as_ref().filter(|order| order.len() <= least) {
        return Few { least, order: Some(order.clone()) };
    }
    if let Some(sets) = Sets::new(problem) {
        let order = sets.fewest();
        return Few { least: order.as_ref().map_or(usize::MAX, Vec::len), order };
    }
    let mut few = Few { least, order: known };
    let mut small = problem.clone();
    let mut count = least;
    while count < few.order.as_ref().map_or(most + 1, Vec::len) {
        small.limit = count;
        let beam = if few.order.is_some() { subset::NARROW } else { subset::WIDE };
        match fit::any(&small).map_or_else(|| subset::search(problem, count, beam), Found::Fits) {
            Found::Fits(order) => few.order = Some(order),
            Found::Never if few.least == count => few.least = count + 1,
            Found::Never | Found::Unknown => {}
        }
        count += 1;
    }
    few
}

/// Of the orders that were asked for; that fewer do not suffice is proven of every order.
fn these_orders(problem: &Problem, tries: &Tries, most: usize) -> Few {
    let mut least = bounds::fewest(problem).unwrap_or(usize::MAX);
    let orders = orders_of(problem, tries);
    let mut order = filled(problem, &orders);
    let sets = Sets::new(problem);
    if let Some(sets) = sets.as_ref().filter(|_| order.as_ref().is_none_or(|order| order.len() > least)) {
        least = sets.fewest().map_or(usize::MAX, |order| order.len());
    }
    let mut small = problem.clone();
    let mut count = least;
    while count < order.as_ref().map_or(most.saturating_add(1), Vec::len) {
        if sets.is_none()
            && least == count
            && matches!(subset::search(problem, count, subset::WIDE), Found::Never)
        {
            least = count + 1;
        }
        // A walk uses the slots as they come: which ones to leave out, a search has to choose.
        small.limit = count;
        let choices: Vec<Vec<usize>> =
            orders.iter().flat_map(|order| orders::shortened(&small, order).0).collect();
        if let Some(found) = filled(&small, &choices) {
            order = Some(found);
        }
        count += 1;
    }
    Few { least, order }
}

/// The slots of the first of these orders that fits on the fewest slots.
fn filled(problem: &Problem, orders: &[Vec<usize>]) -> Option<Vec<usize>> {
    let placements = orders.iter().filter_map(|order| {
        let first: Vec<usize> = order.iter().copied().take(problem.limit).collect();
        walk::fill(problem, &first)
    });
    let fewest = placements.min_by_key(super::Placement::used)?;
    Some(fewest.stages().map(|stage| stage.0).collect())
}
