//! What every ledger does, whatever keeps its book: behaviours, and a macro that runs each on a store.

use std::time::Duration;

use super::common::{Case, at, gb, held, owned_by, pool, process, request, spec};
use plimsoll_residency::{
    CoResidency, Eviction, InferenceSpec, KeptBecause, LedgerError, ProcessId, Request, Standing, Terms,
    Wait, WaitEnd,
};
use plimsoll_units::Bytes;

pub(crate) const UNIFIED: &str = "unified-memory";

/// Makes a module of tests: every behaviour on ledgers that `made` makes over the pools it is given.
macro_rules! suite {
    ($module:ident, $made:path) => {
        mod $module {
            use crate::suite::{self, UNIFIED};

            suite::behaviours!($made =>
                reserving_twice_counts_once([(UNIFIED, Some(10))]);
                a_refusal_reserves_nothing([(UNIFIED, Some(10))]);
                a_resize_counts_its_own_bytes_as_free([(UNIFIED, Some(10))]);
                a_refused_resize_leaves_the_old_booking([(UNIFIED, Some(10))]);
                a_resize_keeps_its_terms([(UNIFIED, Some(10))]);
                exclusions_are_checked_before_budgets([(UNIFIED, Some(10))]);
                the_newcomers_own_word_comes_first([(UNIFIED, None)]);
                a_role_that_excludes_itself_runs_once([(UNIFIED, None)]);
                several_pools_are_held_all_or_none([("CUDA0", Some(24)), ("CUDA1", Some(16))]);
                a_pool_is_named_in_its_refusal([("CUDA0", Some(24)), ("CUDA1", Some(16))]);
                a_pool_that_nobody_made_is_refused([("CUDA0", Some(24)), ("CUDA1", Some(16))]);
                an_empty_gpu_is_taken_without_evicting_anybody([("GPU0", Some(48)), ("GPU1", Some(16))]);
                nothing_overflows([(UNIFIED, None)]);
                nothing_at_all_is_admitted_even_when_full([(UNIFIED, Some(4))]);
                a_role_is_released_with_all_its_instances([(UNIFIED, Some(10))]);
                what_nobody_owns_lasts_until_its_time_is_up([(UNIFIED, Some(10))]);
                a_dead_owner_gives_back_on_the_next_decision([(UNIFIED, Some(10))]);
                a_number_used_again_does_not_keep_a_booking_alive([(UNIFIED, Some(10))]);
                an_owner_elsewhere_lives_as_long_as_its_lease([(UNIFIED, Some(10))]);
                one_living_owner_is_enough([(UNIFIED, Some(10))]);
                what_another_process_holds_is_not_taken_over([(UNIFIED, Some(10))]);
                those_who_wait_come_in_order([(UNIFIED, Some(10))]);
                a_big_one_is_not_starved_by_small_ones([(UNIFIED, Some(10))]);
                who_waits_for_other_memory_holds_nobody_up([("CUDA0", Some(10)), ("CUDA1", Some(10))]);
                priority_goes_first([(UNIFIED, Some(10))]);
                a_wait_that_cannot_succeed_is_refused_at_once([(UNIFIED, Some(10))]);
                a_shrunken_budget_ends_a_hopeless_wait([(UNIFIED, Some(10))]);
                a_wait_ends_at_its_deadline_with_the_reason([(UNIFIED, Some(10))]);
                a_cancelled_wait_leaves_no_trace([(UNIFIED, Some(10))]);
                a_dead_waiter_holds_nobody_up([(UNIFIED, Some(10))]);
                a_waiter_elsewhere_waits_as_long_as_it_asks([(UNIFIED, Some(10))]);
                one_model_at_a_time_makes_the_others_wait([(UNIFIED, Some(100))]);
                two_that_fit_together_are_both_admitted_in_either_order([(UNIFIED, Some(32))]);
                an_eviction_that_cannot_succeed_evicts_nobody([(UNIFIED, Some(24))]);
                one_victim_is_better_than_three([(UNIFIED, Some(300))]);
                a_model_in_use_is_never_advised([(UNIFIED, Some(24))]);
                pinned_models_before_it_do_not_hide_a_victim([(UNIFIED, Some(5))]);
                what_fits_needs_no_eviction([(UNIFIED, Some(24))]);
                who_is_excluded_has_to_go_first([(UNIFIED, Some(24))]);
                the_young_and_the_sticky_stay([(UNIFIED, Some(24))]);
                weights_and_priority_decide_what_goes([(UNIFIED, Some(20))]);
                victims_are_sought_in_the_right_pool([("CUDA0", Some(10)), ("CUDA1", Some(10))]);
                a_shrunken_budget_is_reported_and_throws_nobody_out([(UNIFIED, Some(10))]);
                measured_use_counts_when_it_is_more_and_later_when_it_is_less([(UNIFIED, Some(10))]);
                an_explanation_names_everything_in_the_way([(UNIFIED, Some(10))]);
                what_is_held_is_shown_pool_by_pool([("CUDA0", Some(24)), ("CUDA1", Some(16))]);
                asking_about_an_instance_that_holds_nothing_is_an_error([(UNIFIED, Some(10))]);
            );
        }
    };
}

macro_rules! behaviours {
    ($made:path => $($behaviour:ident($pools:expr);)*) => {
        $(#[test] fn $behaviour() { suite::$behaviour(&$made(&$pools)); })*
    };
}

pub(crate) use {behaviours, suite};

fn refused(result: Result<bool, LedgerError>) -> CoResidency {
    match result {
        Err(LedgerError::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

fn on(pools: &[(&str, u64)], role: &str) -> Request {
    let pools = pools.iter().map(|(id, n)| (pool(id), gb(*n)));
    Request::new(role, InferenceSpec::new(role, "vllm").with_pools(pools))
}

pub(crate) fn reserving_twice_counts_once(case: &Case) {
    assert!(case.request(&request("a", 4), at(0)).unwrap());
    assert!(!case.request(&request("a", 4), at(1)).unwrap());
    let same = Request::new("a", spec("role:a", 4));
    assert!(!case.request(&same, at(1)).unwrap());
    assert_eq!(held(&**case), [("a".to_owned(), 4)]);
}

pub(crate) fn a_refusal_reserves_nothing(case: &Case) {
    case.request(&request("a", 4), at(0)).unwrap();
    let before = case.list().unwrap();
    assert!(matches!(refused(case.request(&request("b", 7), at(1))), CoResidency::OverBudget { .. }));
    assert!(
        refused(case.request(&Request::new("c", spec("c", 1).excluding(["a"])), at(1)))
            .to_string()
            .contains("beside 'a'")
    );
    assert_eq!(case.list().unwrap(), before);
    assert!(case.request(&request("b", 6), at(1)).unwrap());
}

pub(crate) fn a_resize_counts_its_own_bytes_as_free(case: &Case) {
    case.request(&request("a", 6), at(0)).unwrap();
    assert!(case.request(&request("a", 10), at(1)).unwrap());
    assert!(case.resize("a", &spec("a", 3), at(1)).unwrap());
    assert!(!case.resize("a", &spec("a", 3), at(1)).unwrap());
    assert_eq!(held(&**case), [("a".to_owned(), 3)]);
    assert_eq!(case.list().unwrap()[0].since(), at(0));
}

pub(crate) fn a_refused_resize_leaves_the_old_booking(case: &Case) {
    case.request(&Request::new("a", spec("a", 6).excluding(["z"])), at(0)).unwrap();
    case.request(&request("b", 2), at(0)).unwrap();
    let before = case.list().unwrap();
    assert_eq!(
        refused(case.request(&request("a", 9), at(1))).to_string(),
        "unplaceable: 'a' needs 9.0 GB but only 8.0 GB of the 10.0 GB unified-memory budget is free \
         (held by a 6.0 GB, b 2.0 GB)"
    );
    assert!(case.request(&Request::new("a", spec("a", 6).excluding(["b"])), at(1)).is_err());
    assert_eq!(case.list().unwrap(), before);
    assert!(case.request(&request("z", 1), at(1)).is_err());
}

pub(crate) fn a_resize_keeps_its_terms(case: &Case) {
    let terms = Terms { pinned: true, priority: 3, ..Terms::default() };
    case.request(&request("a", 6).on(terms.clone()), at(0)).unwrap();
    case.request(&request("a", 7), at(1)).unwrap();
    assert_eq!(case.list().unwrap()[0].terms(), &terms);
}

pub(crate) fn exclusions_are_checked_before_budgets(case: &Case) {
    case.request(&Request::new("a", spec("a", 6).excluding(["role:b"])), at(0)).unwrap();
    assert!(matches!(refused(case.request(&request("b", 60), at(0))), CoResidency::Excluded { .. }));
}

pub(crate) fn the_newcomers_own_word_comes_first(case: &Case) {
    let told = |role: &str, with: &str, by: &str| CoResidency::Excluded {
        role: role.to_owned(),
        with: with.to_owned(),
        declared_by: by.to_owned(),
    };
    case.request(&Request::new("1", spec("a", 1).excluding(["c"])), at(0)).unwrap();
    case.request(&Request::new("2", spec("b", 1)), at(0)).unwrap();
    let newcomer = |excludes: &[&str]| Request::new("3", spec("c", 1).excluding(excludes));
    // Both say it: the newcomer's own word is told.
    assert_eq!(refused(case.request(&newcomer(&["a", "b"]), at(0))), told("c", "a", "c"));
    // The first instance counts, whoever declares it.
    assert_eq!(refused(case.request(&newcomer(&["b"]), at(0))), told("c", "a", "a"));
    case.release_instance("1", at(0)).unwrap();
    assert_eq!(refused(case.request(&newcomer(&["role:b"]), at(0))), told("c", "b", "c"));
}

pub(crate) fn a_role_that_excludes_itself_runs_once(case: &Case) {
    let alone = |instance: &str| Request::new(instance, spec("a", 1).excluding(["a"]));
    case.request(&alone("1"), at(0)).unwrap();
    assert!(matches!(refused(case.request(&alone("2"), at(0))), CoResidency::Excluded { .. }));
    assert!(!case.request(&alone("1"), at(0)).unwrap());
    assert!(case.resize("1", &spec("a", 2).excluding(["a"]), at(0)).unwrap());
}

pub(crate) fn several_pools_are_held_all_or_none(case: &Case) {
    case.request(&on(&[("CUDA1", 10)], "a"), at(0)).unwrap();
    assert!(case.request(&on(&[("CUDA0", 20), ("CUDA1", 7)], "b"), at(0)).is_err());
    let used = |id: &str| case.book().unwrap().pool(id).unwrap().used;
    assert_eq!((used("CUDA0"), used("CUDA1")), (Bytes::ZERO, gb(10)));
    assert!(case.request(&on(&[("CUDA0", 20), ("CUDA1", 6)], "b"), at(0)).unwrap());
    assert_eq!((used("CUDA0"), used("CUDA1")), (gb(20), gb(16)));
    assert!(case.release_instance("b", at(0)).unwrap());
    assert_eq!((used("CUDA0"), used("CUDA1")), (Bytes::ZERO, gb(10)));
}

pub(crate) fn a_pool_is_named_in_its_refusal(case: &Case) {
    case.request(&on(&[("CUDA0", 20), ("CUDA1", 1)], "a"), at(0)).unwrap();
    case.request(&on(&[("CUDA1", 1)], "b"), at(0)).unwrap();
    assert_eq!(
        refused(case.request(&on(&[("CUDA0", 5), ("CUDA1", 15)], "c"), at(0))).to_string(),
        "unplaceable: 'c' needs 5.0 GB but only 4.0 GB of the 24.0 GB 'CUDA0' budget is free (held by a 20.0 GB)"
    );
}

pub(crate) fn a_pool_that_nobody_made_is_refused(case: &Case) {
    assert_eq!(
        refused(case.request(&on(&[("CUDA2", 1)], "a"), at(0))).to_string(),
        "unplaceable: 'a' needs pool 'CUDA2' but the ledger knows only 'CUDA0', 'CUDA1'"
    );
    assert_eq!(
        refused(case.request(&request("a", 1), at(0))).to_string(),
        "unplaceable: 'a' needs memory without naming a pool but the ledger knows only 'CUDA0', 'CUDA1'"
    );
}

pub(crate) fn an_empty_gpu_is_taken_without_evicting_anybody(case: &Case) {
    case.request(&on(&[("GPU0", 47)], "resident"), at(0)).unwrap();
    let newcomer = on(&[("GPU1", 5)], "newcomer");
    let advice = case.advise(&newcomer, &Eviction::default(), at(1)).unwrap().unwrap();
    assert_eq!(advice.victims, []);
    assert!(case.request(&newcomer, at(1)).unwrap());
}

pub(crate) fn nothing_overflows(case: &Case) {
    let huge =
        |role: &str| Request::new(role, InferenceSpec::new(role, "x").with_memory(Bytes::MAX, Bytes::MAX));
    for role in ["a", "b", "c"] {
        assert!(case.request(&huge(role), at(0)).unwrap());
    }
    let used = || case.book().unwrap().pool(UNIFIED).unwrap().used;
    assert_eq!(used(), Bytes::MAX);
    for role in ["a", "b", "c"] {
        assert!(case.release_instance(role, at(0)).unwrap());
    }
    assert_eq!(used(), Bytes::ZERO);
    case.set_budget(&pool(UNIFIED), Some(Bytes::MAX), at(0)).unwrap();
    assert!(case.request(&huge("a"), at(0)).unwrap());
    assert!(case.request(&request("b", 1), at(0)).is_err());
}

pub(crate) fn nothing_at_all_is_admitted_even_when_full(case: &Case) {
    case.request(&request("a", 4), at(0)).unwrap();
    assert!(case.request(&request("b", 0), at(0)).unwrap());
}

pub(crate) fn a_role_is_released_with_all_its_instances(case: &Case) {
    for instance in ["1", "2"] {
        case.request(&Request::new(instance, spec("a", 1)), at(0)).unwrap();
    }
    case.request(&request("b", 1), at(0)).unwrap();
    assert_eq!(case.release_role("role:a", at(0)).unwrap(), ["1", "2"]);
    assert_eq!(case.release_role("a", at(0)).unwrap(), Vec::<String>::new());
    assert_eq!(held(&**case), [("b".to_owned(), 1)]);
}

pub(crate) fn what_nobody_owns_lasts_until_its_time_is_up(case: &Case) {
    let terms = Terms { ttl: Some(Duration::from_secs(60)), ..Terms::default() };
    case.request(&request("a", 6).on(terms), at(0)).unwrap();
    case.request(&request("b", 4), at(0)).unwrap();
    assert!(case.request(&request("c", 6), at(59)).is_err());
    assert!(case.request(&request("c", 6), at(60)).unwrap());
    assert_eq!(held(&**case), [("b".to_owned(), 4), ("c".to_owned(), 6)]);
}

pub(crate) fn a_dead_owner_gives_back_on_the_next_decision(case: &Case) {
    let owner = process(7);
    case.request(&request("a", 10).on(owned_by(&owner)), at(0)).unwrap();
    assert!(case.request(&request("b", 10), at(1_000_000)).is_err());
    case.owners.set(&owner, Standing::Dead);
    assert!(case.request(&request("b", 10), at(1_000_000)).unwrap());
    assert_eq!(held(&**case), [("b".to_owned(), 10)]);
}

pub(crate) fn a_number_used_again_does_not_keep_a_booking_alive(case: &Case) {
    let first = process(7);
    let second = ProcessId { start: first.start + 1, ..first.clone() };
    case.request(&request("a", 4).on(owned_by(&first)), at(0)).unwrap();
    case.request(&request("b", 4).on(owned_by(&second)), at(0)).unwrap();
    case.owners.set(&first, Standing::Dead);
    case.sweep(at(1)).unwrap();
    assert_eq!(held(&**case), [("b".to_owned(), 4)]);
}

pub(crate) fn an_owner_elsewhere_lives_as_long_as_its_lease(case: &Case) {
    let there = ProcessId { boot: "another".to_owned(), ..process(7) };
    let terms = Terms { lease: Some(Duration::from_secs(30)), ..owned_by(&there) };
    case.request(&request("a", 4).on(terms), at(0)).unwrap();
    case.heartbeat("a", at(29)).unwrap();
    case.sweep(at(58)).unwrap();
    assert_eq!(held(&**case), [("a".to_owned(), 4)]);
    case.sweep(at(59)).unwrap();
    assert!(matches!(case.heartbeat("a", at(60)), Err(LedgerError::NotHeld { .. })));
    // Without a lease another boot is a boot that has ended; another namespace of this boot is left alone.
    case.request(&request("b", 4).on(owned_by(&there)), at(60)).unwrap();
    let hidden = ProcessId { namespace: 2, ..process(8) };
    case.owners.set(&hidden, Standing::Elsewhere);
    case.request(&request("c", 4).on(owned_by(&hidden)), at(60)).unwrap();
    case.sweep(at(61)).unwrap();
    assert_eq!(held(&**case), [("c".to_owned(), 4)]);
}

pub(crate) fn one_living_owner_is_enough(case: &Case) {
    let (parent, child) = (process(7), process(8));
    case.request(&request("a", 4).on(owned_by(&parent)), at(0)).unwrap();
    case.add_owner("a", &child, at(0)).unwrap();
    case.owners.set(&parent, Standing::Dead);
    case.sweep(at(1)).unwrap();
    assert_eq!(held(&**case), [("a".to_owned(), 4)]);
    case.owners.set(&child, Standing::Dead);
    case.sweep(at(2)).unwrap();
    assert_eq!(held(&**case), []);
}

pub(crate) fn what_another_process_holds_is_not_taken_over(case: &Case) {
    case.request(&request("a", 4).on(owned_by(&process(7))), at(0)).unwrap();
    let taken = refused(case.request(&request("a", 5).on(owned_by(&process(8))), at(0)));
    assert_eq!(taken.to_string(), "unplaceable: instance 'a' of 'a' is held by pid 7");
    assert!(!case.request(&request("a", 4).on(owned_by(&process(7))), at(0)).unwrap());
}

pub(crate) fn those_who_wait_come_in_order(case: &Case) {
    case.request(&request("a", 10), at(0)).unwrap();
    let mut first = case.enqueue(&request("b", 6), None, at(1)).unwrap();
    let mut second = case.enqueue(&request("c", 6), None, at(2)).unwrap();
    assert!(matches!(
        case.poll_wait(&mut first, at(3)).unwrap(),
        Wait::Pending(CoResidency::OverBudget { .. })
    ));
    case.release_instance("a", at(4)).unwrap();
    assert_eq!(case.poll_wait(&mut first, at(4)).unwrap(), Wait::Admitted);
    assert!(matches!(case.poll_wait(&mut second, at(4)).unwrap(), Wait::Pending(_)));
    assert_eq!(held(&**case), [("b".to_owned(), 6)]);
    case.release_instance("b", at(5)).unwrap();
    assert_eq!(case.poll_wait(&mut second, at(5)).unwrap(), Wait::Admitted);
    assert_eq!(case.list().unwrap()[0].since(), at(5));
}

pub(crate) fn a_big_one_is_not_starved_by_small_ones(case: &Case) {
    case.request(&request("a", 5), at(0)).unwrap();
    case.request(&request("b", 3), at(0)).unwrap();
    let mut big = case.enqueue(&request("big", 10), None, at(1)).unwrap();
    // Two are free, but whoever takes them delays the one that waits.
    assert_eq!(
        refused(case.request(&request("small", 1), at(1))).to_string(),
        "unplaceable: 'small' would overtake 'big', which waits for 10.0 GB"
    );
    let mut small = case.enqueue(&request("small", 1), None, at(2)).unwrap();
    assert!(matches!(case.poll_wait(&mut small, at(2)).unwrap(), Wait::Pending(CoResidency::Behind { .. })));
    case.release_instance("a", at(3)).unwrap();
    case.release_instance("b", at(3)).unwrap();
    assert_eq!(case.poll_wait(&mut big, at(3)).unwrap(), Wait::Admitted);
    assert!(matches!(case.poll_wait(&mut small, at(3)).unwrap(), Wait::Pending(_)));
    // Who is resident already may change its size without queueing.
    assert!(case.resize("big", &spec("big", 9), at(4)).unwrap());
    assert_eq!(case.poll_wait(&mut small, at(4)).unwrap(), Wait::Admitted);
}

pub(crate) fn who_waits_for_other_memory_holds_nobody_up(case: &Case) {
    case.request(&on(&[("CUDA0", 10)], "a"), at(0)).unwrap();
    let both = case.enqueue(&on(&[("CUDA0", 1), ("CUDA1", 9)], "b"), None, at(0)).unwrap();
    assert!(case.request(&on(&[("CUDA1", 2)], "c"), at(0)).is_err());
    case.cancel(&both, at(0)).unwrap();
    let _first = case.enqueue(&on(&[("CUDA0", 1)], "b"), None, at(0)).unwrap();
    assert!(case.request(&on(&[("CUDA1", 2)], "c"), at(0)).unwrap());
    let mut other = case.enqueue(&on(&[("CUDA1", 2)], "d"), None, at(0)).unwrap();
    assert_eq!(case.poll_wait(&mut other, at(0)).unwrap(), Wait::Admitted);
}

pub(crate) fn priority_goes_first(case: &Case) {
    case.request(&request("a", 10), at(0)).unwrap();
    let mut low = case.enqueue(&request("low", 10), None, at(1)).unwrap();
    let urgent = Terms { priority: 1, ..Terms::default() };
    let mut high = case.enqueue(&request("high", 10).on(urgent.clone()), None, at(2)).unwrap();
    let order: Vec<String> = case.waiting().unwrap().into_iter().map(|waiting| waiting.role).collect();
    assert_eq!(order, ["high", "low"]);
    case.release_instance("a", at(3)).unwrap();
    assert_eq!(case.poll_wait(&mut high, at(3)).unwrap(), Wait::Admitted);
    assert!(matches!(case.poll_wait(&mut low, at(3)).unwrap(), Wait::Pending(_)));
    case.resize("high", &spec("high", 8), at(4)).unwrap();
    // It does not wait behind one of lower priority.
    assert!(case.request(&request("urgent", 2).on(urgent), at(4)).unwrap());
}

pub(crate) fn a_wait_that_cannot_succeed_is_refused_at_once(case: &Case) {
    let refused = case.enqueue(&request("a", 11), None, at(0));
    assert!(matches!(refused, Err(LedgerError::Refused(CoResidency::OverBudget { .. }))), "{refused:?}");
    case.request(&request("b", 1), at(0)).unwrap();
    assert!(matches!(
        case.enqueue(&request("b", 2), None, at(0)),
        Err(LedgerError::Refused(CoResidency::Taken { .. }))
    ));
    assert_eq!(case.waiting().unwrap(), []);
}

pub(crate) fn a_shrunken_budget_ends_a_hopeless_wait(case: &Case) {
    case.request(&request("a", 4), at(0)).unwrap();
    let mut waiting = case.enqueue(&request("b", 8), None, at(0)).unwrap();
    case.set_budget(&pool(UNIFIED), Some(gb(7)), at(1)).unwrap();
    let ended = case.poll_wait(&mut waiting, at(1)).unwrap();
    assert!(matches!(ended, Wait::Ended(WaitEnd::Refused(CoResidency::OverBudget { .. }))), "{ended:?}");
    case.set_budget(&pool(UNIFIED), Some(gb(12)), at(2)).unwrap();
    assert_eq!(held(&**case), [("a".to_owned(), 4)]);
}

pub(crate) fn a_wait_ends_at_its_deadline_with_the_reason(case: &Case) {
    case.request(&request("a", 4), at(0)).unwrap();
    let mut waiting = case.enqueue(&request("b", 8), Some(at(10)), at(0)).unwrap();
    assert!(matches!(case.poll_wait(&mut waiting, at(9)).unwrap(), Wait::Pending(_)));
    let ended = case.poll_wait(&mut waiting, at(10)).unwrap();
    let Wait::Ended(WaitEnd::TimedOut(why)) = ended else { panic!("{ended:?}") };
    assert!(why.to_string().ends_with("(held by a 4.0 GB)"), "{why}");
    case.release_instance("a", at(11)).unwrap();
    assert_eq!(held(&**case), []);
}

pub(crate) fn a_cancelled_wait_leaves_no_trace(case: &Case) {
    case.request(&request("a", 10), at(0)).unwrap();
    let first = case.enqueue(&request("b", 6), None, at(1)).unwrap();
    let mut second = case.enqueue(&request("c", 6), None, at(2)).unwrap();
    case.cancel(&first, at(3)).unwrap();
    case.release_instance("a", at(4)).unwrap();
    assert_eq!(case.poll_wait(&mut second, at(4)).unwrap(), Wait::Admitted);
    // Admitted before it was cancelled: what was booked comes back, and the next one gets it.
    let mut third = case.enqueue(&request("d", 6), None, at(5)).unwrap();
    case.cancel(&second, at(6)).unwrap();
    assert_eq!(case.poll_wait(&mut third, at(6)).unwrap(), Wait::Admitted);
    assert_eq!(held(&**case), [("d".to_owned(), 6)]);
    // A late cancel does not touch a later booking of the same instance.
    case.request(&request("b", 4), at(7)).unwrap();
    case.cancel(&first, at(8)).unwrap();
    assert_eq!(held(&**case), [("b".to_owned(), 4), ("d".to_owned(), 6)]);
    assert_eq!(
        case.poll_wait(&mut second, at(9)).unwrap(),
        Wait::Ended(WaitEnd::Gone { ticket: second.number() })
    );
}

pub(crate) fn a_dead_waiter_holds_nobody_up(case: &Case) {
    case.request(&request("a", 4), at(0)).unwrap();
    let owner = process(9);
    let _waits = case.enqueue(&request("b", 8).on(owned_by(&owner)), None, at(0)).unwrap();
    assert!(case.request(&request("c", 6), at(1)).is_err());
    case.owners.set(&owner, Standing::Dead);
    assert!(case.request(&request("c", 6), at(2)).unwrap());
}

pub(crate) fn a_waiter_elsewhere_waits_as_long_as_it_asks(case: &Case) {
    let hidden = ProcessId { namespace: 2, ..process(8) };
    case.owners.set(&hidden, Standing::Elsewhere);
    let terms = Terms { lease: Some(Duration::from_secs(30)), ..owned_by(&hidden) };
    case.request(&request("a", 4), at(0)).unwrap();
    let mut ticket = case.enqueue(&request("b", 8).on(terms), None, at(0)).unwrap();
    for moment in [1, 20, 49, 50, 70, 95] {
        assert!(matches!(case.poll_wait(&mut ticket, at(moment)).unwrap(), Wait::Pending(_)), "at {moment}");
    }
    case.sweep(at(124)).unwrap();
    assert_eq!(case.waiting().unwrap().len(), 1);
    case.sweep(at(125)).unwrap();
    assert_eq!(case.waiting().unwrap(), []);
}

pub(crate) fn one_model_at_a_time_makes_the_others_wait(case: &Case) {
    let cold = |instance: &str| Request::new(instance, spec("model", 1).excluding(["model"]));
    let mut tickets: Vec<_> =
        ["1", "2", "3"].map(|instance| case.enqueue(&cold(instance), None, at(0)).unwrap()).into();
    for served in 0..3 {
        let waits: Vec<Wait> =
            tickets.iter_mut().map(|ticket| case.poll_wait(ticket, at(1)).unwrap()).collect();
        assert_eq!(waits[0], Wait::Admitted);
        assert!(waits[1..].iter().all(|wait| matches!(wait, Wait::Pending(_))), "{waits:?}");
        assert_eq!(case.list().unwrap().len(), 1, "after {served}");
        let done = tickets.remove(0);
        case.release_instance(done.instance(), at(2)).unwrap();
    }
}

pub(crate) fn two_that_fit_together_are_both_admitted_in_either_order(case: &Case) {
    let share = |role: &str, percent: u64| {
        let bytes = Bytes::new(gb(32).get() * percent / 100);
        Request::new(role, InferenceSpec::new(role, "vllm").with_memory(bytes, Bytes::ZERO))
    };
    let both = [share("a", 35), share("b", 20)];
    for order in [[0, 1], [1, 0]] {
        for place in order {
            assert!(case.request(&both[place], at(0)).unwrap());
        }
        let holds: Vec<Bytes> = case.list().unwrap().iter().map(plimsoll_residency::Booking::bytes).collect();
        assert_eq!(holds, [Bytes::new(11_200_000_000), Bytes::new(6_400_000_000)]);
        case.release_instance("a", at(0)).unwrap();
        case.release_instance("b", at(0)).unwrap();
    }
}

fn victims(case: &Case, request: &Request, policy: &Eviction, seconds: u64) -> Vec<String> {
    let advice = case.advise(request, policy, at(seconds)).unwrap().unwrap();
    assert!(advice.proven);
    // What is advised is enough.
    let mut book = case.book().unwrap();
    for victim in &advice.victims {
        book.release(&victim.instance).unwrap();
    }
    book.reserve(request, at(seconds)).unwrap();
    advice.victims.into_iter().map(|victim| victim.instance).collect()
}

pub(crate) fn an_eviction_that_cannot_succeed_evicts_nobody(case: &Case) {
    let pinned = Terms { pinned: true, ..Terms::default() };
    case.request(&request("p", 10).on(pinned), at(0)).unwrap();
    case.request(&request("q", 8), at(0)).unwrap();
    let none = case.advise(&request("target", 16), &Eviction::default(), at(1)).unwrap().unwrap_err();
    assert_eq!(none.to_string(), "no eviction makes room for 'target' (p 10.0 GB is pinned)");
    assert_eq!(none.kept[0].because, KeptBecause::Pinned);
    assert_eq!(held(&**case).len(), 2);
    assert_eq!(victims(case, &request("target", 14), &Eviction::default(), 1), ["q"]);
}

/// In tenths of a gigabyte: 1.7, 8 and 17 held of 30, and 20 wanted.
pub(crate) fn one_victim_is_better_than_three(case: &Case) {
    for (role, needs) in [("small", 17), ("middle", 80), ("large", 170)] {
        case.request(&request(role, needs), at(0)).unwrap();
    }
    assert_eq!(victims(case, &request("target", 200), &Eviction::default(), 1), ["large"]);
}

pub(crate) fn a_model_in_use_is_never_advised(case: &Case) {
    let gib = |role: &str, mb: u64| {
        Request::new(role, InferenceSpec::new(role, "x").with_memory(Bytes::new(mb * 1_000_000), Bytes::ZERO))
    };
    let (a, b) = (gib("a", 6_550), gib("b", 19_190));
    case.request(&a, at(0)).unwrap();
    case.begin_use("a", at(0)).unwrap();
    let none = case.advise(&b, &Eviction::default(), at(1)).unwrap().unwrap_err();
    assert_eq!(none.kept[0].because, KeptBecause::InUse);
    // It waits instead; the one in use is served meanwhile, and again while the other waits.
    let mut waits = case.enqueue(&b, None, at(1)).unwrap();
    case.begin_use("a", at(2)).unwrap();
    case.end_use("a", at(3)).unwrap();
    assert!(case.advise(&b, &Eviction::default(), at(3)).unwrap().is_err());
    case.end_use("a", at(4)).unwrap();
    let advice = case.advise(&b, &Eviction::default(), at(4)).unwrap().unwrap();
    assert_eq!(advice.victims[0].instance, "a");
    case.release_instance("a", at(4)).unwrap();
    assert_eq!(case.poll_wait(&mut waits, at(4)).unwrap(), Wait::Admitted);
    // Back again: one more swap, no more.
    let mut back = case.enqueue(&a, None, at(5)).unwrap();
    case.release_instance("b", at(6)).unwrap();
    assert_eq!(case.poll_wait(&mut back, at(6)).unwrap(), Wait::Admitted);
}

pub(crate) fn pinned_models_before_it_do_not_hide_a_victim(case: &Case) {
    let pinned = Terms { pinned: true, ..Terms::default() };
    for role in ["p1", "p2", "p3"] {
        case.request(&request(role, 1).on(pinned.clone()), at(0)).unwrap();
    }
    for role in ["x", "y"] {
        case.request(&request(role, 1), at(1)).unwrap();
    }
    assert_eq!(victims(case, &request("new", 1), &Eviction::default(), 2), ["x"]);
    case.set_pinned("x", true, at(2)).unwrap();
    assert_eq!(victims(case, &request("new", 1), &Eviction::default(), 2), ["y"]);
    case.set_pinned("y", true, at(2)).unwrap();
    assert_eq!(
        case.advise(&request("new", 1), &Eviction::default(), at(2)).unwrap().unwrap_err().kept.len(),
        5
    );
    assert!(case.request(&request("new", 1), at(2)).is_err());
}

pub(crate) fn what_fits_needs_no_eviction(case: &Case) {
    case.request(&request("a", 20), at(0)).unwrap();
    assert_eq!(victims(case, &request("b", 4), &Eviction::default(), 1), Vec::<String>::new());
    // Its own bytes count as free.
    assert_eq!(victims(case, &request("a", 24), &Eviction::default(), 1), Vec::<String>::new());
}

pub(crate) fn who_is_excluded_has_to_go_first(case: &Case) {
    for (role, needs) in [("a", 8), ("b", 8), ("c", 8)] {
        case.request(&Request::new(role, spec(role, needs).excluding(["late"])), at(0)).unwrap();
        if role == "a" {
            case.set_priority("a", 100, at(0)).unwrap();
        }
    }
    assert_eq!(victims(case, &request("late", 1), &Eviction::default(), 1), ["a", "b", "c"]);
    let picky = Request::new("picky", spec("picky", 12).excluding(["a"]));
    assert_eq!(victims(case, &picky, &Eviction::default(), 1), ["a", "b"]);
    case.set_pinned("a", true, at(1)).unwrap();
    assert!(case.advise(&picky, &Eviction::default(), at(1)).unwrap().is_err());
}

pub(crate) fn the_young_and_the_sticky_stay(case: &Case) {
    let mut sticky = request("sticky", 8);
    sticky.spec.sticky = true;
    case.request(&sticky, at(0)).unwrap();
    case.request(&request("young", 8), at(100)).unwrap();
    let policy = Eviction { min_age: Duration::from_secs(60), ..Eviction::default() };
    let none = case.advise(&request("new", 9), &policy, at(159)).unwrap().unwrap_err();
    let because: Vec<KeptBecause> = none.kept.iter().map(|kept| kept.because).collect();
    assert_eq!(because, [KeptBecause::Sticky, KeptBecause::TooYoung]);
    assert_eq!(victims(case, &request("new", 9), &policy, 160), ["young"]);
}

pub(crate) fn weights_and_priority_decide_what_goes(case: &Case) {
    // The cache is lost for nothing, only weights have to be loaded again.
    let cached = InferenceSpec::new("cached", "x").with_memory(gb(1), gb(9));
    case.request(&Request::new("cached", cached), at(0)).unwrap();
    case.request(&request("weights", 10), at(0)).unwrap();
    assert_eq!(victims(case, &request("new", 10), &Eviction::default(), 1), ["cached"]);
    case.set_priority("cached", 9, at(1)).unwrap();
    // Ten times one is as much as ten: equal cost and bytes, so the first by name.
    assert_eq!(victims(case, &request("new", 10), &Eviction::default(), 1), ["cached"]);
    case.set_priority("cached", 10, at(1)).unwrap();
    assert_eq!(victims(case, &request("new", 10), &Eviction::default(), 1), ["weights"]);
}

pub(crate) fn victims_are_sought_in_the_right_pool(case: &Case) {
    case.request(&on(&[("CUDA0", 9)], "a"), at(0)).unwrap();
    case.request(&on(&[("CUDA1", 4)], "b"), at(0)).unwrap();
    case.request(&on(&[("CUDA0", 1), ("CUDA1", 6)], "c"), at(0)).unwrap();
    assert_eq!(victims(case, &on(&[("CUDA1", 4)], "new"), &Eviction::default(), 1), ["b"]);
    assert_eq!(victims(case, &on(&[("CUDA0", 1), ("CUDA1", 6)], "new"), &Eviction::default(), 1), ["c"]);
    assert_eq!(victims(case, &on(&[("CUDA0", 9), ("CUDA1", 4)], "new"), &Eviction::default(), 1), ["a", "b"]);
}

pub(crate) fn a_shrunken_budget_is_reported_and_throws_nobody_out(case: &Case) {
    case.request(&request("a", 6), at(0)).unwrap();
    case.request(&request("b", 4), at(0)).unwrap();
    let full = case.set_budget(&pool(UNIFIED), Some(gb(7)), at(1)).unwrap();
    assert_eq!((full.excess(), full.free()), (gb(3), Some(Bytes::ZERO)));
    assert_eq!(held(&**case).len(), 2);
    assert!(case.request(&request("c", 1), at(1)).is_err());
    // Giving back is always admitted, and evicting makes up for the excess as well.
    assert!(case.resize("a", &spec("a", 5), at(2)).unwrap());
    assert_eq!(victims(case, &request("c", 3), &Eviction::default(), 3), ["a"]);
}

pub(crate) fn measured_use_counts_when_it_is_more_and_later_when_it_is_less(case: &Case) {
    let measure = |n| case.measure("a", &pool(UNIFIED), gb(n), at(1)).unwrap();
    case.request(&request("a", 6), at(0)).unwrap();
    measure(4);
    assert_eq!(held(&**case), [("a".to_owned(), 6)]);
    measure(8);
    assert_eq!(held(&**case), [("a".to_owned(), 8)]);
    measure(3);
    assert_eq!(held(&**case), [("a".to_owned(), 8)]);
    measure(4);
    assert_eq!(held(&**case), [("a".to_owned(), 4)]);
    assert!(case.request(&request("b", 6), at(2)).unwrap());
    measure(12);
    assert_eq!(case.book().unwrap().pool(UNIFIED).unwrap().excess(), gb(8));
    // Another booking begins anew.
    case.resize("a", &spec("a", 3), at(3)).unwrap();
    assert_eq!(held(&**case), [("a".to_owned(), 3), ("b".to_owned(), 6)]);
    assert!(matches!(case.measure("a", &pool("x"), gb(1), at(3)), Err(LedgerError::NotHeld { .. })));
}

pub(crate) fn an_explanation_names_everything_in_the_way(case: &Case) {
    case.request(&Request::new("1", spec("a", 6).excluding(["new"])), at(0)).unwrap();
    case.request(&Request::new("2", spec("b", 3)), at(0)).unwrap();
    let _waits = case.enqueue(&request("big", 10), None, at(0)).unwrap();
    let newcomer = Request::new("new", spec("new", 9).excluding(["a", "b"]));
    let told = case.explain(&newcomer, &Eviction::default(), at(1)).unwrap();
    let conflicts: Vec<(&str, Vec<&str>)> = told
        .conflicts
        .iter()
        .map(|conflict| (&*conflict.instance, conflict.declared_by.iter().map(String::as_str).collect()))
        .collect();
    assert_eq!(conflicts, [("1", vec!["new", "a"]), ("2", vec!["new"])]);
    assert_eq!((told.shortages[0].free, told.shortages[0].holders.len()), (gb(1), 2));
    assert_eq!(told.ahead[0].role, "big");
    assert!(matches!(told.refusal, Some(CoResidency::Excluded { .. })));
    assert_eq!(told.advice.unwrap().victims.len(), 2);
}

pub(crate) fn asking_about_an_instance_that_holds_nothing_is_an_error(case: &Case) {
    assert!(!case.release_instance("a", at(0)).unwrap());
    let error = case.resize("a", &spec("a", 1), at(0)).unwrap_err();
    assert_eq!(error.to_string(), "nothing is held by 'a'");
    assert!(case.set_pinned("a", true, at(0)).is_err());
    assert!(case.begin_use("a", at(0)).is_err());
    assert!(case.add_owner("a", &process(1), at(0)).is_err());
}

pub(crate) fn what_is_held_is_shown_pool_by_pool(case: &Case) {
    let terms =
        Terms { pinned: true, priority: 2, ttl: Some(Duration::from_secs(60)), ..owned_by(&process(7)) };
    case.request(&on(&[("CUDA1", 1), ("CUDA0", 2)], "a").on(terms), at(5)).unwrap();
    case.measure("a", &pool("CUDA1"), gb(3), at(6)).unwrap();
    case.begin_use("a", at(6)).unwrap();
    let shown = case.book().unwrap().holders();
    assert_eq!(shown.len(), 2);
    assert_eq!((shown[0].pool.as_str(), shown[0].bytes, shown[0].measured), ("CUDA0", gb(2), None));
    let second = &shown[1];
    assert_eq!((second.booked, second.bytes, second.measured), (gb(1), gb(3), Some(gb(3))));
    assert_eq!((second.since, second.expires), (at(5), Some(at(65))));
    assert_eq!(
        (second.owners.as_slice(), second.pinned, second.priority, second.in_use),
        (&[process(7)][..], true, 2, 1)
    );
}
