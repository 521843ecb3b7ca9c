//! Which roles can be resident together.

use std::collections::BTreeSet;

use plimsoll_units::{Bytes, PoolId};

use crate::book::{Book, Shares, admit};
use crate::spec::bare;
use crate::{CoResidency, InferenceSpec, Request, Timestamp};

/// The most roles whose sets are listed.
pub const MOST_ROLES: usize = 24;

/// The most sets that are listed.
pub const MOST_SETS: usize = 100_000;

/// Which roles can be resident together, and which never can.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleSets {
    /// Every set of roles that fits together and to which no role can be added, each in the order of names, and all in
    /// that order.
    pub sets: Vec<Vec<String>>,
    /// The roles that cannot even be resident alone, with the reason, in the order of names.
    pub never: Vec<(String, CoResidency)>,
}

/// Why the sets cannot be listed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetsError {
    /// There are too many roles.
    #[error("{found} roles are too many to list which fit together; at most {MOST_ROLES} are allowed")]
    TooManyRoles {
        /// How many there are.
        found: usize,
    },
    /// There are too many sets.
    #[error("more than {MOST_SETS} sets of roles fit together")]
    TooManySets,
    /// A role is there twice.
    #[error("role '{role}' is listed twice")]
    Duplicate {
        /// The role.
        role: String,
    },
}

/// Lists which of these roles, one instance of each, can be resident together in these pools; `None` is a pool without a
/// limit.
///
/// # Errors
///
/// Too many roles or sets, or a role that is there twice.
pub fn maximal_sets(
    pools: &[(PoolId, Option<Bytes>)],
    roster: &[InferenceSpec],
) -> Result<RoleSets, SetsError> {
    if roster.len() > MOST_ROLES {
        return Err(SetsError::TooManyRoles { found: roster.len() });
    }
    let mut named: Vec<&InferenceSpec> = roster.iter().collect();
    named.sort_by_key(|spec| bare(&spec.role));
    if let Some(pair) = named.windows(2).find(|pair| bare(&pair[0].role) == bare(&pair[1].role)) {
        return Err(SetsError::Duplicate { role: bare(&pair[0].role).to_owned() });
    }
    let book = Book::new(pools.iter().cloned());
    let mut never = Vec::new();
    let mut members = Vec::new();
    for spec in named {
        let request = Request::new(bare(&spec.role), spec.clone());
        match (admit(&book, &request, Timestamp::ZERO), book.shares(spec)) {
            (Ok(_), Ok(shares)) => members.push(Member::new(spec, shares)),
            (Err(refusal), _) | (_, Err(refusal)) => never.push((bare(&spec.role).to_owned(), refusal)),
        }
    }
    for place in 0..members.len() {
        let conflicts =
            (0..members.len()).filter(|other| *other != place && members[place].excludes(&members[*other]));
        members[place].conflicts = conflicts.fold(0, |mask, other| mask | 1 << other);
    }
    let budgets =
        (0..pools.len()).map(|place| book.limit_of(place).map(|(budget, _)| budget.get())).collect();
    let sets = Walk::over(&members, budgets)?;
    let names = |set: u32| -> Vec<String> {
        let there = members.iter().enumerate().filter(|(place, _)| set >> place & 1 == 1);
        there.map(|(_, member)| member.role.to_owned()).collect()
    };
    let sets: BTreeSet<Vec<String>> = sets.into_iter().map(names).collect();
    Ok(RoleSets { sets: sets.into_iter().collect(), never })
}

struct Member<'a> {
    role: &'a str,
    spec: &'a InferenceSpec,
    shares: Shares,
    /// A bit for each member that may not be beside this one.
    conflicts: u32,
}

impl<'a> Member<'a> {
    fn new(spec: &'a InferenceSpec, shares: Shares) -> Self {
        Self { role: bare(&spec.role), spec, shares, conflicts: 0 }
    }

    fn excludes(&self, other: &Self) -> bool {
        let says = |a: &Self, b: &Self| a.spec.excludes.iter().any(|role| bare(role) == b.role);
        says(self, other) || says(other, self)
    }
}

/// A walk over all sets that fit, taking or leaving one member after the other.
struct Walk<'a> {
    members: &'a [Member<'a>],
    budgets: Vec<Option<u64>>,
    /// What is used of each pool.
    used: Vec<u128>,
    /// What the members from each place on need of each pool.
    later: Vec<Vec<u128>>,
    found: Vec<u32>,
}

impl<'a> Walk<'a> {
    fn over(members: &'a [Member<'a>], budgets: Vec<Option<u64>>) -> Result<Vec<u32>, SetsError> {
        let mut later = vec![vec![0; budgets.len()]; members.len() + 1];
        for place in (0..members.len()).rev() {
            later[place] = later[place + 1].clone();
            for share in members[place].shares.iter() {
                later[place][share.pool] += u128::from(share.booked.get());
            }
        }
        let used = vec![0; budgets.len()];
        let mut walk = Self { members, budgets, used, later, found: Vec::new() };
        if !members.is_empty() {
            walk.visit(0, 0)?;
        }
        Ok(walk.found)
    }

    fn visit(&mut self, place: usize, set: u32) -> Result<(), SetsError> {
        let Some(member) = self.members.get(place) else {
            return self.end(set);
        };
        let fits = self.fits(member, set, 0);
        if fits {
            self.count(member, true);
            self.visit(place + 1, set | 1 << place)?;
            self.count(member, false);
        }
        // Left out, it has to be kept out by somebody: by one that is there, or by one that may still come.
        let rest = !(u32::MAX << self.members.len().min(31)) & (u32::MAX << (place + 1));
        if !fits || member.conflicts & rest != 0 || !self.fits(member, set, place + 1) {
            self.visit(place + 1, set)?;
        }
        Ok(())
    }

    /// Whether a member fits beside a set; from a place other than 0, also when all from that place on have come.
    fn fits(&self, member: &Member<'_>, set: u32, from: usize) -> bool {
        let beside = member.conflicts & set == 0;
        beside
            && member.shares.iter().all(|share| {
                let later = if from == 0 { 0 } else { self.later[from][share.pool] };
                let needs = self.used[share.pool] + later + u128::from(share.booked.get());
                self.budgets[share.pool].is_none_or(|budget| needs <= u128::from(budget))
            })
    }

    fn count(&mut self, member: &Member<'_>, add: bool) {
        for share in member.shares.iter() {
            let bytes = u128::from(share.booked.get());
            let used = &mut self.used[share.pool];
            *used = if add { *used + bytes } else { *used - bytes };
        }
    }

    fn end(&mut self, set: u32) -> Result<(), SetsError> {
        let mut left_out = self.members.iter().enumerate().filter(|(place, _)| set >> place & 1 == 0);
        if left_out.all(|(_, member)| !self.fits(member, set, 0)) {
            if self.found.len() == MOST_SETS {
                return Err(SetsError::TooManySets);
            }
            self.found.push(set);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROLES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

    fn gb(n: u64) -> Bytes {
        Bytes::new(n * 1_000_000_000)
    }

    fn spec(role: &str, needs: u64, excludes: &[&str]) -> InferenceSpec {
        InferenceSpec::new(role, "x").with_memory(gb(needs), Bytes::ZERO).excluding(excludes)
    }

    fn unified(budget: u64) -> Vec<(PoolId, Option<Bytes>)> {
        vec![(PoolId::new(crate::UNIFIED_MEMORY).unwrap(), Some(gb(budget)))]
    }

    #[test]
    fn sets_are_as_large_as_they_can_be() {
        let roster = [
            spec("planner", 55, &["coder"]),
            spec("small", 9, &[]),
            spec("coder", 40, &[]),
            spec("huge", 97, &[]),
        ];
        let told = maximal_sets(&unified(96), &roster).unwrap();
        assert_eq!(told.sets, [["coder", "small"], ["planner", "small"]]);
        assert_eq!(told.never.len(), 1);
        assert_eq!(
            told.never[0].1.to_string(),
            "unplaceable: 'huge' needs 97.0 GB but only 96.0 GB of the 96.0 GB unified-memory budget is free \
             (held by nothing)"
        );
    }

    #[test]
    fn a_roster_has_a_limit_and_each_role_once() {
        let many: Vec<_> = (0..25).map(|i| spec(&format!("r{i}"), 1, &[])).collect();
        assert_eq!(maximal_sets(&unified(9), &many), Err(SetsError::TooManyRoles { found: 25 }));
        assert_eq!(maximal_sets(&unified(12), &many[..24]), Err(SetsError::TooManySets));
        assert_eq!(maximal_sets(&unified(24), &many[..24]).unwrap().sets.len(), 1);
        let twice = [spec("a", 1, &[]), spec("role:a", 2, &[])];
        let twice = maximal_sets(&unified(9), &twice).unwrap_err();
        assert_eq!(twice.to_string(), "role 'a' is listed twice");
        assert_eq!(maximal_sets(&unified(9), &[]), Ok(RoleSets::default()));
    }

    proptest! {
        #[test]
        fn every_maximal_set_is_listed_and_no_other(
            needs in prop::collection::vec((0_u64..8, prop::collection::vec(0_usize..7, 0..2)), 0..7),
            budget in 0_u64..16,
        ) {
            let roster: Vec<InferenceSpec> = needs
                .iter()
                .zip(ROLES)
                .map(|((needs, excludes), role)| spec(role, *needs, &excludes.iter().map(|e| ROLES[*e]).collect::<Vec<_>>()))
                .collect();
            // The ledger itself is the judge: a set fits when all of it can be reserved.
            let fits = |set: u32| {
                let ledger = crate::ResidencyLedger::new(Some(gb(budget)));
                let mut members = roster.iter().enumerate().filter(|(place, _)| set >> place & 1 == 1);
                members.all(|(_, spec)| ledger.reserve(&spec.role, spec).is_ok())
            };
            let all = 0..1_u32 << roster.len();
            let maximal = |set: &u32| {
                *set != 0 && fits(*set) && (0..roster.len()).all(|more| set >> more & 1 == 1 || !fits(set | 1 << more))
            };
            let names = |set: u32| -> Vec<String> {
                (0..roster.len()).filter(|place| set >> place & 1 == 1).map(|place| roster[place].role.clone()).collect()
            };
            let expected: BTreeSet<Vec<String>> = all.filter(maximal).map(names).collect();
            let told = maximal_sets(&unified(budget), &roster).unwrap();
            prop_assert_eq!(&told.sets, &Vec::from_iter(expected));
            let never: Vec<String> = told.never.iter().map(|(role, _)| role.clone()).collect();
            let alone: Vec<String> = (0..roster.len()).filter(|p| !fits(1 << p)).flat_map(|p| names(1 << p)).collect();
            prop_assert_eq!(never, alone);
        }
    }
}
