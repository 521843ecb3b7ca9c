//! The page, in a real browser.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod kit;

use kit::browser::Browser;
use kit::{TOKEN, Wanted, toy};
use plimsoll::units::Bytes;

fn url(agent: &kit::Served) -> String {
    format!("http://{}/", agent.address)
}

#[test]
fn the_page_shows_what_is_follows_what_changes_and_survives_the_agent() {
    let mut agent = Wanted::usual().serve();
    let client = agent.client();
    let plan = client.post("/v1/plan", &toy(12, "3GB"));
    client.put("/v1/plan/current", plan.text()).json(200);
    client
        .post("/v1/reservations", r#"{"role": "coder <b>daily</b>", "needs": "9GB", "pool": "ram"}"#)
        .json(201);
    let Some(mut browser) = Browser::open("page", &url(&agent)) else { return };
    browser.shows("link", "live");
    browser.shows("where", "tower · this machine alone · 1 node");
    browser.shows("plan-body", "12 layers");
    browser.shows("plan-body", "✓ holds");
    // Text from outside stays text.
    browser.shows("bookings", "coder <b>daily</b>");
    browser.shows("memory", "booked besides 9.0 GB");
    browser.shows("memory", "weights 24.0 GB");
    assert_eq!(browser.value("document.querySelectorAll('.stage').length"), 2);
    // Every bar says in words what it draws.
    let bars = "[...document.querySelectorAll('.bar, .ribbon, .scale')].every(bar => bar.getAttribute('aria-label'))";
    assert_eq!(browser.value(bars), true);

    client.post("/v1/plan", &toy(99, "10GB")).json(409);
    browser.shows("events", "short of");
    agent.machine.show(1);
    browser.shows("plan-body", "✗ no longer holds");
    browser.shows("plan-body", "What helps");
    browser.shows("events", "GPU 1 'RTX 4090' GPU-1 gone");
    assert!(browser.value("document.title").as_str().unwrap().starts_with('⚠'));

    let (machine, ledger, address) = (agent.machine.clone(), agent.ledger.clone(), agent.address);
    agent.stop();
    browser.shows("link", "connection lost, trying again");
    let again = Wanted { machine, ledger, ..Wanted::usual() }.listening(address).serve();
    browser.shows("link", "live");
    browser.shows("plan-body", "None.");
    browser.shows("events", "the agent was started anew");
    again.client().post("/v1/plan", &toy(98, "10GB")).json(409);
    browser.shows("events", "980.0 GB");
    assert_eq!(
        browser.value(
            "performance.getEntriesByType('resource').every(one => one.name.startsWith(location.origin))"
        ),
        true
    );
}

#[test]
fn with_a_token_the_page_asks_for_it_and_keeps_it_for_the_tab() {
    let agent = Wanted::usual().with_token().serve();
    let Some(mut browser) = Browser::open("token-page", &url(&agent)) else { return };
    let enter = |browser: &mut Browser, token: &str| {
        browser.value(&format!(
            "document.getElementById('token').value = {token:?}; document.getElementById('ask').requestSubmit()"
        ));
    };
    browser.shows("link", "needs a token");
    assert_eq!(browser.text("where"), "…", "nothing is told before");
    enter(&mut browser, "0123456789abcdef-wrong");
    browser.shows("ask", "That token is another one");
    enter(&mut browser, TOKEN);
    browser.shows("link", "live");
    browser.value("location.reload()");
    browser.shows("link", "live");
    assert_eq!(browser.value("localStorage.length"), 0);
    assert_eq!(browser.value("document.cookie"), "");
}

#[test]
fn the_page_fits_a_phone_and_a_desk_by_day_and_by_night() {
    let agent = Wanted::usual().serve();
    let client = agent.client();
    let plan = client.post("/v1/plan", &toy(24, "1500MB"));
    client.put("/v1/plan/current", plan.text()).json(200);
    agent.machine.take(Bytes::gib(20));
    for (role, needs, pool) in [
        ("coder-daily", "2GB", "CUDA0"),
        ("embedder", "6GB", "ram"),
        ("planner-with-a-rather-long-name", "12GB", "ram"),
    ] {
        let body = format!("{{\"role\": \"{role}\", \"needs\": \"{needs}\", \"pool\": \"{pool}\"}}");
        client.post("/v1/reservations", &body).json(201);
    }
    client.post("/v1/plan", &toy(99, "10GB")).json(409);
    let Some(mut browser) = Browser::open("sizes", &url(&agent)) else { return };
    browser.shows("link", "live");
    browser.shows("memory", "others");
    for (name, width, height, dark) in [
        ("desk-light", 1280, 900, false),
        ("desk-dark", 1280, 900, true),
        ("phone-light", 360, 740, false),
        ("phone-dark", 360, 740, true),
    ] {
        browser.screen(width, height, dark);
        let over =
            browser.value("document.documentElement.scrollWidth - document.documentElement.clientWidth");
        assert_eq!(over, 0, "nothing is wider than {width}");
        browser.picture(name);
    }
    agent.machine.show(1);
    browser.shows("plan-body", "What helps");
    for (name, width, dark) in [("broken-desk-light", 1280, false), ("broken-phone-dark", 360, true)] {
        browser.screen(width, 900, dark);
        let over =
            browser.value("document.documentElement.scrollWidth - document.documentElement.clientWidth");
        assert_eq!(over, 0, "nothing is wider than {width}");
        browser.picture(name);
    }
    // Everything that does something can be reached by key.
    let reached = "[...document.querySelectorAll('summary, [tabindex]')].every(one => one.tabIndex >= 0)";
    assert_eq!(browser.value(reached), true);
}
