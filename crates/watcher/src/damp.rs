//! Hardware that comes and goes is told of less often.

use std::collections::VecDeque;
use std::time::Duration;

/// So many changes are told at once.
const AT_ONCE: usize = 3;

/// The window in which they count, in intervals between looks.
const WINDOW: u32 = 10;

/// After so many intervals without another difference the machine is steady again.
const STEADY: u32 = 3;

/// While it is not, the newest is told after so many intervals at most, so that nothing is hidden for good.
const AT_LEAST: u32 = 10;

/// What to do about a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It shows what was told last.
    Same,
    /// Tell it.
    Tell,
    /// It may be different again soon.
    Hold,
}

/// Decides when a change is told. Time is counted from any fixed moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Damper {
    // The last few times that something was told, oldest first.
    told: VecDeque<Duration>,
    // Since when all looks show the same.
    steady_since: Duration,
}

impl Damper {
    /// What to do about a look at `now`: `as_before` when it shows what the look before it showed, `differs` when that is
    /// not what was told last.
    pub(crate) fn judge(
        &mut self,
        now: Duration,
        interval: Duration,
        as_before: bool,
        differs: bool,
    ) -> Verdict {
        if !as_before {
            self.steady_since = now;
        }
        if !differs {
            return Verdict::Same;
        }
        let within =
            |since: Duration, intervals: u32| now.saturating_sub(since) < interval.saturating_mul(intervals);
        let restless = self.told.len() == AT_ONCE && self.told.front().is_some_and(|at| within(*at, WINDOW));
        let lately = self.told.back().is_some_and(|at| within(*at, AT_LEAST));
        if restless && lately && within(self.steady_since, STEADY) {
            return Verdict::Hold;
        }
        if self.told.len() == AT_ONCE {
            self.told.pop_front();
        }
        self.told.push_back(now);
        Verdict::Tell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(1);

    /// At which of the looks, one a second, something is told. Machines are letters; the first was told before.
    fn told(looks: &str) -> Vec<(usize, char)> {
        let mut damper = Damper::default();
        let first = looks.chars().next().unwrap();
        let (mut last, mut known, mut told) = (first, first, Vec::new());
        for (second, seen) in looks.chars().enumerate().skip(1) {
            let now = INTERVAL * u32::try_from(second).unwrap();
            if damper.judge(now, INTERVAL, seen == last, seen != known) == Verdict::Tell {
                known = seen;
                told.push((second, seen));
            }
            last = seen;
        }
        told
    }

    #[test]
    fn the_first_changes_are_told_at_once() {
        assert_eq!(told("aaaaa"), []);
        assert_eq!(told("aabbb"), [(2, 'b')]);
        assert_eq!(told("abca"), [(1, 'b'), (2, 'c'), (3, 'a')]);
    }

    #[test]
    fn what_comes_and_goes_is_told_when_it_has_settled() {
        // Held from the fourth change on, and told once it has stood for three intervals.
        assert_eq!(told("ababababbbbbb"), [(1, 'b'), (2, 'a'), (3, 'b')]);
        assert_eq!(told("abababcccccc"), [(1, 'b'), (2, 'a'), (3, 'b'), (9, 'c')]);
    }

    #[test]
    fn what_never_settles_is_told_all_the_same_now_and_then() {
        let restless: String = "ab".chars().cycle().take(60).collect();
        let told = told(&restless);
        assert_eq!(told[..3], [(1, 'b'), (2, 'a'), (3, 'b')]);
        let gaps: Vec<usize> = told[2..].windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        assert!(gaps.iter().all(|gap| (1..=11).contains(gap)) && told.len() >= 7, "{told:?}");
        assert!(told.len() <= 24, "{told:?}");
    }

    #[test]
    fn changes_that_are_far_apart_are_never_held() {
        let slow: String = "abc".chars().cycle().take(12).flat_map(|c| [c; 5]).collect();
        assert_eq!(told(&slow).len(), 11);
    }
}
