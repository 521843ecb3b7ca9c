//! Who is there, over a real etcd: machines that come, go, come back, and are drained.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(unix)]

mod kit;

use std::time::Duration;

use kit::{event, id, machine, open, open_with};
use plimsoll_cluster::{ClusterEvent, NodeStatus, RegisterError};
use plimsoll_etcd::{ClusterUrl, DrainError, JoinError, Options, PlanError, RegistryEvent};
use plimsoll_residency::Timestamp;
use plimsoll_units::{Bytes, Generation, PoolId};

const GRACE: Duration = Duration::from_millis(300);

fn short() -> Options {
    Options { lease: Duration::from_secs(2), ..Options::default() }
}

fn status(node: &str, to: NodeStatus) -> impl Fn(&RegistryEvent) -> bool {
    let node = id(node);
    move |event| matches!(event, RegistryEvent::Cluster(ClusterEvent::Status { node: n, to: t, .. }) if *n == node && *t == to)
}

#[test]
fn a_machine_that_joins_is_seen_by_the_others_with_what_is_free() {
    let Some(etcd) = kit::shared() else { return };
    let url = etcd.url();
    let mirror = open(&url).registry().mirror(GRACE).unwrap();
    let mut news = mirror.subscribe();
    let cluster = open(&url);
    let agent = cluster.registry().join(machine("tower", "boot-1")).unwrap();
    event(&mut news, |e| *e == RegistryEvent::Cluster(ClusterEvent::Joined { node: id("tower") }));
    let free = [(PoolId::new("gpu0").unwrap(), Bytes::gib(20))];
    let before = mirror.state().generation();
    agent.report(&free, Timestamp::from_millis(1)).unwrap();
    assert!(mirror.state().wait_newer(before, kit::now() + Duration::from_secs(10)).is_some());
    let (snapshot, basis) = mirror.snapshot();
    assert_eq!(snapshot.nodes[0].pools[1].free, Some(Bytes::gib(20)));
    assert_eq!(snapshot.generation, basis.generation);
    // Whoever asks once sees the same.
    let members = cluster.registry().members().unwrap();
    assert_eq!(members.snapshot.nodes, snapshot.nodes);
    assert!(members.snapshot.generation >= snapshot.generation);
    assert_eq!(members.problems, Vec::<String>::new());
}

#[test]
fn a_machine_whose_lease_ends_fails_soon_and_leaves_after_the_grace() {
    let Some(etcd) = kit::members(1) else { return };
    let url = etcd.url("t");
    let mirror = open(&url).registry().mirror(GRACE).unwrap();
    let proxy = kit::Proxy::to(etcd.url("t").as_str());
    let agent = open_with(&proxy.url("t"), short()).registry().join(machine("tower", "boot-1")).unwrap();
    let mut news = mirror.subscribe();
    // Cut off, not ended: nobody takes the lease back.
    let cut = proxy.cut();
    event(&mut news, status("tower", NodeStatus::Failed));
    let lasted = cut.elapsed();
    assert!(lasted <= Duration::from_secs(3), "{lasted:?} after a lease of 2 s was cut off");
    event(&mut news, |e| *e == RegistryEvent::Cluster(ClusterEvent::Left { node: id("tower") }));
    assert_eq!(mirror.snapshot().0.nodes, []);
    // It comes back without hands once it is let through.
    proxy.heal();
    event(&mut news, |e| *e == RegistryEvent::Cluster(ClusterEvent::Joined { node: id("tower") }));
    drop(agent);
    event(&mut news, status("tower", NodeStatus::Failed));
}

#[test]
fn another_machine_of_a_living_name_is_refused_with_both_addresses() {
    let Some(etcd) = kit::shared() else { return };
    let url = etcd.url();
    let registry = open(&url).registry();
    let _agent = registry.join(machine("tower", "boot-1").with_address("10.0.0.7:7000")).unwrap();
    let other = machine("tower", "boot-2").with_address("10.0.0.8:7000");
    let error = registry.join(other.clone()).unwrap_err();
    assert!(matches!(error, JoinError::Refused(RegisterError::NameTaken { .. })));
    let text = error.to_string();
    assert!(
        text.contains("10.0.0.7:7000 (boot boot-1)") && text.contains("10.0.0.8:7000 (boot boot-2)"),
        "{text}"
    );
    // The same machine after a reboot replaces itself, at once.
    let again = registry.join(machine("tower", "boot-3").with_address("10.0.0.7:7000")).unwrap();
    let members = registry.members().unwrap();
    assert_eq!(members.snapshot.nodes.len(), 1);
    // Only when it is gone the name is free.
    drop((_agent, again));
    let _other = registry.join(other).unwrap();
}

#[test]
fn a_machine_whose_place_was_taken_and_left_comes_back_with_its_next_report() {
    let Some(etcd) = kit::shared() else { return };
    let registry = open(&etcd.url()).registry();
    let first = registry.join(machine("tower", "1")).unwrap();
    // The same machine once more: it replaces the first, and leaves nothing behind.
    drop(registry.join(machine("tower", "1")).unwrap());
    assert_eq!(registry.members().unwrap().snapshot.nodes, []);
    let free = [(PoolId::new("gpu0").unwrap(), Bytes::gib(20))];
    first.report(&free, Timestamp::from_millis(1)).unwrap();
    assert_eq!(registry.members().unwrap().snapshot.nodes[0].pools[1].free, Some(Bytes::gib(20)));
}

#[test]
fn one_machine_runs_the_engine() {
    let Some(etcd) = kit::shared() else { return };
    let registry = open(&etcd.url()).registry();
    let _tower = registry.join(machine("tower", "1").as_main()).unwrap();
    let error = registry.join(machine("mac", "2").as_main()).unwrap_err();
    assert!(matches!(error, JoinError::Refused(RegisterError::SecondMain { .. })), "{error}");
}

#[test]
fn a_drained_machine_stays_drained_until_it_is_put_back() {
    let Some(etcd) = kit::shared() else { return };
    let url = etcd.url();
    let registry = open(&url).registry();
    let error = registry.drain(&id("tower")).unwrap_err();
    assert_eq!(error.to_string(), "the cluster has no node 'tower' (it has none)");
    let agent = registry.join(machine("tower", "1")).unwrap();
    assert!(
        matches!(registry.drain(&id("tow")), Err(DrainError::UnknownNode { known, .. }) if known == [id("tower")])
    );
    let mirror = registry.mirror(GRACE).unwrap();
    let mut news = mirror.subscribe();
    assert!(registry.drain(&id("tower")).unwrap());
    assert!(!registry.drain(&id("tower")).unwrap());
    event(&mut news, |e| *e == RegistryEvent::Cluster(ClusterEvent::Drained { node: id("tower") }));
    drop(agent);
    let _agent = registry.join(machine("tower", "2")).unwrap();
    assert!(registry.members().unwrap().snapshot.nodes[0].drained);
    assert!(registry.undrain(&id("tower")).unwrap());
    assert!(!registry.undrain(&id("tower")).unwrap());
    assert!(!registry.members().unwrap().snapshot.nodes[0].drained);
}

#[test]
fn a_mirror_that_was_away_while_history_was_thrown_away_sees_what_is() {
    let Some(etcd) = kit::members(1) else { return };
    let url = etcd.url("t");
    let registry = open(&url).registry();
    let tower = registry.join(machine("tower", "1")).unwrap();
    let proxy = kit::Proxy::to(&url);
    let mirror = open(&proxy.url("t")).registry().mirror(GRACE).unwrap();
    let mut news = mirror.subscribe();
    proxy.cut();
    event(&mut news, |e| matches!(e, RegistryEvent::Silent { .. }));
    assert!(mirror.age() > Duration::from_secs(1));
    drop(tower);
    let _mac = registry.join(machine("mac", "1")).unwrap();
    kit::compact(&url);
    proxy.heal();
    event(&mut news, |e| *e == RegistryEvent::Cluster(ClusterEvent::Joined { node: id("mac") }));
    event(&mut news, |e| *e == RegistryEvent::Cluster(ClusterEvent::Left { node: id("tower") }));
    assert!(mirror.age() < Duration::from_secs(10));
    assert_eq!(mirror.snapshot().0.nodes, registry.members().unwrap().snapshot.nodes);
}

#[test]
fn a_plan_replaces_the_one_that_its_maker_knew_and_no_other() {
    let Some(etcd) = kit::shared() else { return };
    let url = etcd.url();
    let (one, two) = (open(&url), open(&url));
    let _tower = one.registry().join(machine("tower", "1")).unwrap();
    let basis = one.registry().members().unwrap().basis;
    let nodes = [id("tower")];
    assert_eq!(one.plans().current().unwrap(), None);
    let first = one.plans().put_in_force(None, &basis, &nodes, "{\"a\": 1}").unwrap();
    assert_eq!((first.generation, first.basis), (Generation::new(1), basis.generation));
    let error = two.plans().put_in_force(None, &basis, &nodes, "b").unwrap_err();
    assert_eq!(error.to_string(), "the plan was to replace plan 0, and plan 1 is in force; 0 is none");
    let second = two.plans().put_in_force(Some(first.generation), &basis, &nodes, "b").unwrap();
    assert_eq!(one.plans().current().unwrap(), Some(second));
    let error = one.plans().put_in_force(Some(first.generation), &basis, &nodes, "c").unwrap_err();
    let (expected, current) = (Generation::new(1), Generation::new(2));
    assert_eq!(error, PlanError::Outrun { expected, current });
}

#[test]
fn a_plan_of_an_older_cluster_is_stale() {
    let Some(etcd) = kit::shared() else { return };
    let cluster = open(&etcd.url());
    let registry = cluster.registry();
    let tower = registry.join(machine("tower", "1")).unwrap();
    let before = registry.members().unwrap().basis;
    let _mac = registry.join(machine("mac", "1")).unwrap();
    let stale = |error: PlanError| match error {
        PlanError::Stale { basis, current, gone } => (basis, current > basis, gone),
        other => panic!("not stale: {other}"),
    };
    let error = cluster.plans().put_in_force(None, &before, &[id("tower")], "a").unwrap_err();
    assert_eq!(stale(error), (before.generation, true, None));
    // One that went is noticed where the plan lies on it.
    let both = registry.members().unwrap().basis;
    drop(tower);
    let error = cluster.plans().put_in_force(None, &both, &[id("tower"), id("mac")], "a").unwrap_err();
    assert!(error.to_string().contains("without node 'tower' as it was"), "{error}");
    assert_eq!(stale(error), (both.generation, true, Some(id("tower"))));
    assert_eq!(cluster.plans().current().unwrap(), None);
    let now = registry.members().unwrap().basis;
    cluster.plans().put_in_force(None, &now, &[id("mac")], "a").unwrap();
    // Drained since: a plan has to be made anew.
    registry.drain(&id("mac")).unwrap();
    let error = cluster.plans().put_in_force(Some(Generation::new(1)), &now, &[id("mac")], "b").unwrap_err();
    assert!(stale(error).1);
}

#[test]
fn nobody_who_answers_is_told_with_the_place_and_without_the_password() {
    let port = plimsoll_testkit::etcd::free_ports(1)[0];
    let url: ClusterUrl = format!("etcd://anna:hunter2@127.0.0.1:{port}/home").parse().unwrap();
    let patience = Duration::from_millis(1500);
    let error = plimsoll_etcd::Cluster::open(url, Options { patience, ..Options::default() }).unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(text.contains(&format!("127.0.0.1:{port}")) && !text.contains("hunter2"), "{text}");
}

#[test]
fn a_password_opens_its_own_cluster_and_is_never_told() {
    let Some(etcd) = kit::members(1) else { return };
    let url = etcd.url("home");
    open(&url);
    kit::protect(&url, ("anna", "hunter2"), "/plimsoll/home/");
    let with = |user: &str, name: &str| etcd.url(name).replacen("etcd://", &format!("etcd://{user}@"), 1);
    let cluster = open(&with("anna:hunter2", "home"));
    let _agent = cluster.registry().join(machine("tower", "1")).unwrap();
    assert_eq!(cluster.registry().members().unwrap().snapshot.nodes.len(), 1);
    let refused = |url: String| {
        let error = plimsoll_etcd::Cluster::open(url.parse().unwrap(), Options::default()).unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains("refused") && !text.contains("hunter"), "{text}");
        text
    };
    assert!(refused(with("anna:hunter3", "home")).contains("authentication failed"));
    assert!(refused(with("anna:hunter2", "other")).contains("permission denied"));
    assert!(refused(url).contains("user name is empty"));
}
