//! A largest flow, by Dinic's algorithm, in whole numbers.

use crate::core::as_f64;

/// Bits of the largest rate.
const BITS: i32 = 80;

/// What an unlimited way carries: more than all limited ones together, and so little that sums do not overflow.
const UNLIMITED: u128 = 1 << 120;

/// One direction of a way; the other one lies beside it.
#[derive(Clone, Copy, Debug)]
struct Arc {
    to: usize,
    /// What can still pass.
    left: u128,
}

/// Vertices and ways between them.
#[derive(Debug)]
pub(super) struct Network {
    /// The power of two that one unit is.
    exponent: i32,
    arcs: Vec<Arc>,
    /// The arcs out of each vertex, in the order in which they were added.
    out: Vec<Vec<usize>>,
}

impl Network {
    /// An empty one, in units that suit the largest of these rates.
    pub(super) fn new(rates: impl Iterator<Item = f64>) -> Self {
        let largest = rates.fold(0.0, f64::max);
        // The largest rate has its first bit just below 2^BITS.
        let (_, exponent) = parts(largest);
        Self { exponent: exponent + 53 - BITS, arcs: Vec::new(), out: Vec::new() }
    }

    pub(super) fn vertex(&mut self) -> usize {
        self.out.push(Vec::new());
        self.out.len() - 1
    }

    /// A rate in whole units, from below.
    pub(super) fn units(&self, rate: f64) -> u128 {
        let (mantissa, exponent) = parts(rate);
        let shift = exponent - self.exponent;
        let mantissa = u128::from(mantissa);
        match u32::try_from(shift) {
            Ok(up) if up <= 60 => mantissa << up,
            Ok(_) => UNLIMITED,
            Err(_) => mantissa.checked_shr(shift.unsigned_abs()).unwrap_or(0),
        }
    }

    /// Units as a rate.
    pub(super) fn rate(&self, units: u128) -> f64 {
        let low = u64::try_from(units & u128::from(u64::MAX)).unwrap_or(u64::MAX);
        let high = u64::try_from(units >> 64).unwrap_or(u64::MAX);
        let two = 2.0_f64;
        // In two steps: a power of two alone may be smaller than any number.
        let (half, rest) = (self.exponent / 2, self.exponent - self.exponent / 2);
        (as_f64(high) * two.powi(64) + as_f64(low)) * two.powi(half) * two.powi(rest)
    }

    pub(super) fn way(&mut self, from: usize, to: usize, units: u128) {
        self.out[from].push(self.arcs.len());
        self.arcs.push(Arc { to, left: units });
        self.out[to].push(self.arcs.len());
        self.arcs.push(Arc { to: from, left: 0 });
    }

    pub(super) fn unlimited(&mut self, from: usize, to: usize) {
        self.way(from, to, UNLIMITED);
    }

    /// The largest flow; afterwards it lies on the arcs.
    pub(super) fn solve(&mut self, start: usize, end: usize) -> u128 {
        let mut total = 0;
        if start == end {
            return total;
        }
        while let Some(levels) = self.levels(start, end) {
            let mut next = vec![0; self.out.len()];
            while let Some(path) = self.shortest(start, end, &levels, &mut next) {
                let units = path.iter().map(|&arc| self.arcs[arc].left).min().unwrap_or(0);
                for arc in path {
                    self.arcs[arc].left -= units;
                    self.arcs[arc ^ 1].left += units;
                }
                total += units;
            }
        }
        total
    }

    /// How many ways each vertex is from the start; `None` where the end is not reached.
    fn levels(&self, start: usize, end: usize) -> Option<Vec<usize>> {
        let mut levels = vec![usize::MAX; self.out.len()];
        levels[start] = 0;
        let mut queue = std::collections::VecDeque::from([start]);
        while let Some(vertex) = queue.pop_front() {
            for &arc in &self.out[vertex] {
                let Arc { to, left } = self.arcs[arc];
                if left > 0 && levels[to] == usize::MAX {
                    levels[to] = levels[vertex] + 1;
                    queue.push_back(to);
                }
            }
        }
        (levels[end] < usize::MAX).then_some(levels)
    }

    /// A path along rising levels with something left on every arc; `next` are the arcs not yet found to lead nowhere.
    fn shortest(&self, start: usize, end: usize, levels: &[usize], next: &mut [usize]) -> Option<Vec<usize>> {
        let mut path: Vec<usize> = Vec::new();
        let mut vertex = start;
        while vertex != end {
            match self.out[vertex].get(next[vertex]) {
                Some(&arc) => {
                    let Arc { to, left } = self.arcs[arc];
                    if left > 0 && levels[to] == levels[vertex] + 1 {
                        path.push(arc);
                        vertex = to;
                    } else {
                        next[vertex] += 1;
                    }
                }
                None => {
                    let back = path.pop()?;
                    vertex = self.arcs[back ^ 1].to;
                    next[vertex] += 1;
                }
            }
        }
        Some(path)
    }

    /// A path that the flow takes, as vertices, with what flows along all of it; takes that away.
    pub(super) fn take_route(&mut self, start: usize, end: usize) -> Option<(Vec<usize>, u128)> {
        let mut arcs: Vec<usize> = Vec::new();
        let mut vertex = start;
        // Ways only lead on through the model, so no vertex comes up twice.
        while vertex != end {
            let carried = |&&arc: &&usize| arc % 2 == 0 && self.arcs[arc ^ 1].left > 0;
            let arc = *self.out[vertex].iter().find(carried)?;
            arcs.push(arc);
            vertex = self.arcs[arc].to;
        }
        let units = arcs.iter().map(|&arc| self.arcs[arc ^ 1].left).min()?;
        let mut path = vec![start];
        for arc in arcs {
            self.arcs[arc ^ 1].left -= units;
            path.push(self.arcs[arc].to);
        }
        Some((path, units))
    }
}

/// A rate that is finite and not negative as a whole number of at most 53 bits and a power of two.
fn parts(rate: f64) -> (u64, i32) {
    const FRACTION: u32 = 52;
    let bits = rate.to_bits();
    let fraction = bits & ((1 << FRACTION) - 1);
    let exponent = i32::try_from((bits >> FRACTION) & 0x7ff).unwrap_or(0);
    if exponent == 0 { (fraction, -1074) } else { (fraction | (1 << FRACTION), exponent - 1075) }
}
