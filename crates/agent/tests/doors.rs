//! Who is let in, and how much.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod kit;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kit::http::Reply;
use kit::{Folder, TOKEN, Wanted, toy};
use plimsoll::answers::Occupancy;
use plimsoll::profile::FreeMemory;
use plimsoll::units::{Bytes, NodeId};
use plimsoll_agent::{Agent, Config, Setup, Source, StartError, Token};

const PATHS: [(&str, &str); 13] = [
    ("GET", "/readyz"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/v1/profile"),
    ("GET", "/v1/cluster"),
    ("GET", "/v1/ledger"),
    ("GET", "/v1/events"),
    ("GET", "/v1/plan/current"),
    ("PUT", "/v1/plan/current"),
    ("DELETE", "/v1/plan/current"),
    ("POST", "/v1/plan"),
    ("POST", "/v1/reservations"),
    ("DELETE", "/v1/reservations/a"),
];

#[test]
fn with_a_token_nothing_but_the_page_and_the_sign_of_life_is_told_to_strangers() {
    let agent = Wanted::usual().with_token().serve();
    let client = agent.client();
    assert_eq!(client.get("/healthz").status, 200);
    assert_eq!(client.get("/").status, 200);
    for (method, path) in PATHS.into_iter().chain([("GET", "/nothing")]) {
        let reply = client.ask(method, path, None);
        assert!(reply.error(401).contains("needs a token"), "{method} {path}");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
        for wrong in ["0123456789abcdef-0123456789abcdeF", "", "0", &TOKEN[1..], &format!("{TOKEN}0")] {
            assert_eq!(
                client.with_token(wrong).ask(method, path, None).status,
                401,
                "{method} {path} {wrong:?}"
            );
        }
        assert_eq!(
            client.with("authorization", &format!("Basic {TOKEN}")).ask(method, path, None).status,
            401
        );
        assert_eq!(client.with("authorization", TOKEN).ask(method, path, None).status, 401);
    }
    assert_eq!(client.with_token(TOKEN).get("/v1/cluster").status, 200);
    assert_eq!(client.with("authorization", &format!("bearer {TOKEN}")).get("/v1/cluster").status, 200);
}

#[test]
fn names_that_are_not_this_machine_are_refused() {
    let agent = Wanted::usual().serve();
    let client = agent.client();
    let port = agent.address.port();
    for good in [
        format!("localhost:{port}"),
        format!("127.0.0.1:{port}"),
        "localhost".to_owned(),
        format!("[::1]:{port}"),
    ] {
        assert_eq!(client.with("host", &good).get("/v1/profile").status, 200, "{good}");
    }
    for bad in ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost:1", "10.0.0.1", ""] {
        for path in ["/v1/profile", "/", "/healthz"] {
            let reply = client.with("host", bad).get(path);
            assert_eq!(reply.status, 403, "{bad} {path}: {}", reply.text());
        }
    }
}

#[test]
fn two_hosts_or_none_are_wrong() {
    let agent = Wanted::usual().serve();
    let client = agent.client();
    for head in [
        "GET /v1/profile HTTP/1.1\r\nconnection: close\r\n\r\n",
        "GET /v1/profile HTTP/1.0\r\n\r\n",
        "GET /v1/profile HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\nconnection: close\r\n\r\n",
    ] {
        let mut stream = client.connect();
        stream.write_all(head.as_bytes()).unwrap();
        assert_eq!(Reply::read(stream).status, 400, "{head}");
    }
}

#[test]
fn pages_of_other_sites_may_not_ask() {
    let agent = Wanted::usual().serve();
    let client = agent.client();
    let own = format!("http://{}", agent.address);
    assert_eq!(client.with("origin", &own).get("/v1/profile").status, 200);
    for origin in ["http://evil.example", "null", "http://127.0.0.1:1", "https://evil.example", "file://"] {
        assert_eq!(client.with("origin", origin).get("/v1/profile").status, 403, "{origin}");
        assert_eq!(client.with("origin", origin).post("/v1/plan", &toy(1, "1")).status, 403, "{origin}");
    }
    for (site, status) in [("same-origin", 200), ("none", 200), ("cross-site", 403), ("same-site", 403)] {
        assert_eq!(client.with("sec-fetch-site", site).get("/v1/profile").status, status, "{site}");
    }
    assert_eq!(client.with("sec-fetch-site", "cross-site").get("/").status, 200, "a link to the page");
}

#[test]
fn bodies_say_that_they_are_json() {
    let agent = Wanted::usual().serve();
    for kind in
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp"]
    {
        let reply = agent.client().with("content-type", kind).ask("POST", "/v1/plan", Some(b"{}"));
        assert!(reply.error(415).contains(kind), "{kind}");
    }
    assert_eq!(agent.client().ask("POST", "/v1/plan", Some(b"{}")).status, 415);
    let reply = agent.client().with("content-type", "application/json; charset=utf-8");
    assert_eq!(reply.ask("POST", "/v1/plan", Some(b"{}")).status, 400);
}

#[test]
fn a_body_that_is_too_long_is_not_read() {
    let agent = Wanted::usual().limited(|limits| limits.body = 1000).serve();
    let client = agent.client().with("content-type", "application/json");
    let reply = client.ask("POST", "/v1/plan", Some(&[b' '; 1001]));
    assert_eq!(reply.error(413), "the body has 1001 bytes, and at most 1000 are read");
    assert_eq!(reply.header("connection"), Some("close"));
    assert_eq!(client.ask("POST", "/v1/plan", Some(&[b' '; 1000])).status, 400);
    // Without a length it is counted as it comes.
    let mut stream = client.connect();
    let head =
        client.head("POST", "/v1/plan", None).replace("\r\n\r\n", "\r\ntransfer-encoding: chunked\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    for _ in 0..3 {
        drop(stream.write_all(b"200\r\n"));
        drop(stream.write_all(&[b' '; 512]));
        drop(stream.write_all(b"\r\n"));
    }
    assert!(Reply::read(stream).error(413).contains("more than 1000 bytes"));
}

#[test]
fn a_head_or_a_body_that_does_not_come_ends_the_connection_and_others_are_answered() {
    let quick = Duration::from_millis(200);
    let agent =
        Wanted::usual().limited(|limits| (limits.head_time, limits.body_time) = (quick, quick)).serve();
    let client = agent.client();
    let slow: Vec<_> = (0..50)
        .map(|_| {
            let mut stream = client.connect();
            stream.write_all(b"GET /v1/profile HTTP/1.1\r\nhost: loc").unwrap();
            stream
        })
        .collect();
    assert_eq!(client.get("/v1/profile").status, 200);
    for mut stream in slow {
        let mut rest = Vec::new();
        // Closed, with or without a word.
        drop(stream.read_to_end(&mut rest));
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&rest));
    }
    let client = client.with("content-type", "application/json");
    let mut stream = client.connect();
    stream.write_all(client.head("POST", "/v1/plan", Some(100)).as_bytes()).unwrap();
    stream.write_all(b"{\"li").unwrap();
    assert!(Reply::read(stream).error(408).contains("did not come within 0.2 s"));
}

#[test]
fn more_connections_than_there_are_places_for_are_told_to_come_again() {
    let agent = Wanted::usual().limited(|limits| limits.connections = 2).serve();
    let client = agent.client();
    let mut held = [client.connect(), client.connect()];
    for stream in &mut held {
        // Answered, and kept.
        stream
            .write_all(client.head("GET", "/healthz", None).replace("connection: close\r\n", "").as_bytes())
            .unwrap();
        let mut begin = [0; 15];
        stream.read_exact(&mut begin).unwrap();
        assert_eq!(&begin, b"HTTP/1.1 200 OK");
    }
    let reply = Reply::read(client.connect());
    assert_eq!(
        (reply.error(503).as_str(), reply.header("retry-after")),
        ("too many connections at once", Some("1"))
    );
    drop(held);
}

#[test]
fn more_event_streams_than_there_are_places_for_are_told_to_come_again() {
    let agent = Wanted::usual().limited(|limits| limits.streams = 1).serve();
    let first = agent.client().events("/v1/events");
    let reply = agent.client().get("/v1/events");
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert!(reply.error(503).contains("1 event streams are open"));
    drop(first);
}

#[test]
fn paths_lead_nowhere_but_below_the_folder_of_models() {
    let outside = Folder::new("outside");
    let folder = Folder::new("inside");
    let list = "layers = [ { bytes = 1 } ]";
    std::fs::write(outside.0.join("secret.toml"), list).unwrap();
    std::fs::create_dir(folder.0.join("own")).unwrap();
    std::fs::write(folder.0.join("own/good.toml"), list).unwrap();
    std::fs::create_dir(folder.0.join("mixed")).unwrap();
    std::fs::write(folder.0.join("mixed/good.toml"), list).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::symlink;
        symlink(outside.0.join("secret.toml"), folder.0.join("link.toml")).unwrap();
        symlink(&outside.0, folder.0.join("way")).unwrap();
        symlink(folder.0.join("own/good.toml"), folder.0.join("own/alias.toml")).unwrap();
        // A part of a model beside it that leads elsewhere.
        symlink(outside.0.join("secret.toml"), folder.0.join("mixed/part.toml")).unwrap();
    }
    let agent = Wanted::usual().with_models(&folder.0).serve();
    let ask = |name: &str| agent.client().post("/v1/plan", &serde_json::json!({ "model": name }).to_string());
    assert_eq!(ask("own/good.toml").status, 200);
    let absolute = outside.0.join("secret.toml");
    for name in [
        "../secret.toml",
        "own/../../secret.toml",
        "own/../own/good.toml",
        absolute.to_str().unwrap(),
        "/etc/passwd",
        "",
        ".",
        "./own/good.toml",
        "..",
        "own/good.toml\u{0}",
        "own\\good.toml",
        "~/x.toml",
        "own/%2e%2e/good.toml",
    ] {
        let reply = ask(name);
        assert!([400, 404].contains(&reply.status), "{name}: {}", reply.text());
    }
    #[cfg(unix)]
    {
        assert_eq!(ask("own/alias.toml").status, 200);
        for name in ["link.toml", "way/secret.toml", "way", "mixed/good.toml"] {
            assert!(ask(name).error(400).contains("leads out of the folder"), "{name}");
        }
    }
}

#[test]
#[cfg(unix)]
fn a_pipe_among_the_models_is_not_waited_for() {
    let folder = Folder::new("pipes");
    let made = std::process::Command::new("mkfifo").arg(folder.0.join("pipe.gguf")).status().unwrap();
    assert!(made.success());
    let agent = Wanted::usual().with_models(&folder.0).serve();
    let reply = agent.client().post("/v1/plan", r#"{"model": "pipe.gguf"}"#);
    assert!(reply.error(400).contains("neither a file nor a folder"));
}

#[test]
fn what_other_machines_can_reach_needs_a_token() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bind = |listen: &str, token: Option<Token>| {
        let wanted = Wanted::usual();
        let setup = Setup {
            id: NodeId::new("tower").unwrap(),
            watcher: plimsoll::watcher::SystemProfileWatcher::with_probe(Duration::from_secs(9), || {
                Ok(kit::machine(1))
            })
            .unwrap(),
            free: Box::new(|_| FreeMemory::default()),
            ledger: wanted.ledger,
            kept_free: Bytes::ZERO,
            measure: Box::new(|book| Occupancy::new(book, &[], &[], "ram", Vec::new())),
            source: Source::Machine,
        };
        let listen: SocketAddr = listen.parse().unwrap();
        runtime
            .block_on(Agent::bind(Config { listen, token, ..Config::default() }, setup))
            .map(|agent| agent.address())
    };
    for open in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let error = bind(open, None).unwrap_err();
        assert!(matches!(error, StartError::Open { .. }), "{error}");
        assert!(
            error.to_string().starts_with(&format!("{open} can be reached from other machines")),
            "{error}"
        );
    }
    assert_ne!(bind("0.0.0.0:0", Some(Token::new(TOKEN).unwrap())).unwrap().port(), 0);
    assert!(matches!(bind("192.0.2.1:0", Some(Token::new(TOKEN).unwrap())), Err(StartError::Listen { .. })));
}

#[test]
fn where_others_are_listened_to_any_host_name_will_do() {
    let agent = Wanted::usual().with_token().listening("0.0.0.0:0".parse().unwrap()).serve();
    let here = SocketAddr::from(([127, 0, 0, 1], agent.address.port()));
    let client = kit::Client::of(here).with_token(TOKEN);
    assert_eq!(client.with("host", "tower.home:8710").get("/v1/profile").status, 200);
    assert_eq!(
        client
            .with("host", "tower.home:8710")
            .with("origin", "http://evil.example")
            .get("/v1/profile")
            .status,
        403
    );
}

#[test]
#[cfg(unix)]
fn a_token_file_that_others_may_read_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("token");
    let path = folder.0.join("token");
    std::fs::write(&path, format!("{TOKEN}\n")).unwrap();
    let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    for open in [0o644, 0o640, 0o604, 0o620] {
        mode(open);
        let error = Token::read(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("has mode {open:04o}")), "{error}");
    }
    mode(0o600);
    assert!(Token::read(&path).is_ok());
    std::fs::write(&path, "short\n").unwrap();
    assert!(Token::read(&path).unwrap_err().to_string().contains("this has 5 bytes"));
    assert!(Token::read(&folder.0).unwrap_err().to_string().contains("no regular file"));
    assert!(Token::read(&folder.0.join("none")).is_err());
}

#[test]
fn what_is_not_there_and_what_has_other_methods_is_said_in_json() {
    let agent = Wanted::usual().serve();
    assert!(agent.client().get("/v2").error(404).contains("nothing at this path"));
    assert!(agent.client().get("/v1/plan").error(405).contains("other methods"));
    assert!(agent.client().delete("/healthz").error(405).contains("other methods"));
}

#[test]
fn an_end_lets_answers_end_ends_streams_and_keeps_bookings() {
    use plimsoll::residency::Store;
    let mut agent = Wanted::usual().serve();
    let client = agent.client();
    client.post("/v1/reservations", r#"{"role": "coder", "needs": 7, "pool": "CUDA0"}"#).json(201);
    let mut events = client.events("/v1/events");
    assert_eq!(events.next().unwrap().kind, "hello");
    let ledger = Arc::clone(&agent.ledger);
    agent.stop();
    while events.next().is_some() {}
    assert_eq!(ledger.book().unwrap().holders().len(), 1);
    assert!(std::net::TcpStream::connect(agent.address).is_err());
}

#[test]
fn many_who_ask_at_once_what_is_used_are_given_one_measurement() {
    let wanted = Wanted::usual().limited(|limits| limits.ledger_interval = Duration::from_secs(3600));
    let measured = Arc::clone(&wanted.measured);
    let agent = wanted.serve();
    let client = agent.client();
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| client.get("/v1/ledger").json(200));
        }
    });
    client.get("/metrics");
    assert_eq!(measured.load(Ordering::Relaxed), 1);
    client.post("/v1/reservations", r#"{"role": "coder", "needs": 7, "pool": "CUDA0"}"#).json(201);
    assert_eq!(client.get("/v1/ledger").json(200)["holders"][0]["bytes"], 7);
    assert_eq!(measured.load(Ordering::Relaxed), 2, "other bookings are measured anew");
}
