//! Inputs at the ends of what is possible.

mod kit;

use plimsoll_balance::{
    EngineRules, Objective, Optimality, Plan, PlanError, PlanOptions, Verdict, audit, plan,
};
use plimsoll_cluster::ClusterSnapshot;
use plimsoll_units::BytesPerSec;

const OBJECTIVES: [Objective; 4] =
    [Objective::Fit, Objective::Throughput, Objective::Latency, Objective::Balanced];

fn planned(snapshot: &ClusterSnapshot, layers: &[u64], objective: Objective) -> Result<Plan, PlanError> {
    let (workload, rules) = (kit::layers(layers), EngineRules::none());
    let options = PlanOptions { objective, ..PlanOptions::default() };
    let made = plan(snapshot, &workload, &rules, &options);
    if let Ok(plan) = &made {
        assert_eq!(audit(plan, snapshot, &workload, &rules, &options), Ok(()));
    }
    made
}

fn never_fits(made: &Result<Plan, PlanError>) -> bool {
    matches!(made, Err(PlanError::DoesNotFit(refusal)) if matches!(refusal.verdict, Verdict::ProvenInfeasible(_)))
}

#[test]
fn layers_of_no_bytes_fit_everywhere() {
    for capacities in [&[0_u64, 0][..], &[5], &[1, 2, 3]] {
        for objective in OBJECTIVES {
            let plan = planned(&kit::devices(capacities), &[0; 5], objective).expect("they fit");
            assert_eq!(plan.stages.len(), 1);
            assert_eq!(plan.value.optimality, Optimality::Proven);
        }
    }
}

#[test]
fn layers_of_no_bytes_among_others_go_along() {
    let snapshot = kit::devices(&[10, 10]);
    for objective in OBJECTIVES {
        let plan = planned(&snapshot, &[0, 10, 0, 0, 10, 0], objective).expect("they fit");
        assert_eq!(plan.stages.len(), 2, "{objective:?}");
        assert_eq!(plan.value.optimality, Optimality::Proven, "{objective:?}");
    }
}

#[test]
fn one_huge_layer_goes_where_it_fits_or_nowhere() {
    for objective in OBJECTIVES {
        let plan = planned(&kit::devices(&[30, 1_000, 40]), &[1, 999, 2], objective).expect("it fits");
        let holder = plan.stages.iter().find(|stage| stage.layers.contains(&1)).expect("somebody holds it");
        assert_eq!(holder.device, kit::device_ref("n01", "d0"));
        let refused = planned(&kit::devices(&[900, 900, 900]), &[1, 999, 2], objective);
        assert!(never_fits(&refused), "{refused:?}");
    }
}

#[test]
fn sums_near_the_end_of_the_numbers_neither_wrap_nor_panic() {
    let huge = u64::MAX / 4;
    for objective in OBJECTIVES {
        let plan = planned(&kit::devices(&[huge, huge, huge, huge]), &[huge - 1; 4], objective);
        assert_eq!(plan.expect("one on each").stages.len(), 4, "{objective:?}");
        let refused = planned(&kit::devices(&[huge, huge, huge]), &[huge - 1; 4], objective);
        assert!(never_fits(&refused), "{refused:?}");
        let over = planned(&kit::devices(&[u64::MAX]), &[huge, huge, huge, huge, huge], objective);
        assert!(matches!(over, Err(PlanError::Overflow { .. })), "{over:?}");
    }
}

#[test]
fn more_devices_than_layers_leave_some_empty() {
    for objective in OBJECTIVES {
        let plan = planned(&kit::devices(&[10; 20]), &[9, 9, 9], objective).expect("it fits");
        assert_eq!(plan.stages.len(), 3, "{objective:?}");
        // Of equal devices the first ones by name.
        let names = plan.stages.iter().map(|stage| stage.device.clone());
        assert!(names.eq((0..3).map(|n| kit::device_ref(&format!("n{n:02}"), "d0"))), "{objective:?}");
        assert_eq!(plan.value.optimality, Optimality::Proven, "{objective:?}");
    }
}

#[test]
fn sixteen_equal_devices_get_equal_shares_and_proof() {
    for objective in [Objective::Throughput, Objective::Balanced] {
        let plan = planned(&kit::devices(&[60; 16]), &[10; 80], objective).expect("it fits");
        assert!(plan.stages.iter().all(|stage| stage.layers.len() == 5), "{objective:?}");
        assert_eq!(plan.value.optimality, Optimality::Proven);
    }
    // One more layer than fits.
    assert!(never_fits(&planned(&kit::devices(&[60; 16]), &[10; 97], Objective::Fit)));
}

#[test]
fn devices_without_room_stay_empty() {
    for objective in OBJECTIVES {
        let plan = planned(&kit::devices(&[0, 25, 0, 25]), &[10, 10, 10, 10], objective).expect("it fits");
        assert_eq!(plan.stages.len(), 2, "{objective:?}");
    }
}

#[test]
fn a_speed_of_zero_is_refused_at_the_door() {
    let mut snapshot = kit::devices(&[10, 10]);
    snapshot.nodes[1].devices[0].bandwidth = Some(BytesPerSec::new(0));
    for objective in OBJECTIVES {
        let refused = planned(&snapshot, &[5, 5], objective);
        assert!(matches!(refused, Err(PlanError::Snapshot(_))), "{refused:?}");
    }
}

#[test]
fn budgets_that_hold_no_layer_are_no_help_and_the_certificate_says_so() {
    // 40 bytes in all, of which 12 can hold no layer.
    let refused = planned(&kit::devices(&[14, 6, 14, 6]), &[7, 7, 7, 7, 7], Objective::Fit);
    let Err(PlanError::DoesNotFit(refusal)) = refused else { panic!("{refused:?}") };
    let usable = plimsoll_balance::Certificate::Usable { needs: 35, budgets: 28, devices: 2 };
    assert_eq!(refusal.verdict, Verdict::ProvenInfeasible(usable));
    assert!(refusal.short_bytes.get() > 0, "{refusal:?}");
}
