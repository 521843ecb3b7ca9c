//! Asks an agent for plans as fast as it answers, and says how fast that was.
//!
//! ```text
//! cargo run --release -p plimsoll-agent --example load -- serve 8710 8
//! cargo run --release -p plimsoll-agent --example load -- ask 127.0.0.1:8710 16 10 new
//! ```
//!
//! The first serves an agent on a cluster of so many machines with a card each. The arguments of the second are the address,
//! how many connections, how many seconds, and `new` (no request is like another, so that every plan is made) or `same`.
//! The model has 80 layers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use plimsoll::answers::Occupancy;
use plimsoll::cluster::file::parse_cluster;
use plimsoll::profile::{FreeMemory, SystemProfile};
use plimsoll::residency::ResidencyLedger;
use plimsoll::units::{Bytes, NodeId};
use plimsoll::watcher::SystemProfileWatcher;
use plimsoll_agent::{Agent, Config, Setup, Source};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

#[expect(clippy::disallowed_methods, reason = "a measurement is of time")]
fn now() -> Instant {
    Instant::now()
}

/// A request for a plan that no other number asks for in the same words.
fn body(number: u64) -> String {
    format!(
        "{{\"list\":{{\"name\":\"load {number}\",\"head_bytes\":500000000,\"layers\":[{{\"count\":40,\"bytes\":\"1GB\",\"kv_bytes\":1000000}},\
         {{\"count\":40,\"bytes\":\"900MB\",\"kv_bytes\":1000000}}]}}}}"
    )
}

/// Sends requests on one connection until time is up; how long each took.
fn ask(address: &str, numbers: &AtomicU64, same: bool, stop: &AtomicBool) -> io::Result<Vec<Duration>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut took = Vec::new();
    let (mut line, mut answer) = (String::new(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let number = if same { 0 } else { numbers.fetch_add(1, Ordering::Relaxed) };
        let body = body(number);
        let length = body.len();
        let begun = now();
        write!(
            stream,
            "POST /v1/plan HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )?;
        let mut size = 0;
        let mut first = true;
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            if first && !line.starts_with("HTTP/1.1 200") {
                return Err(io::Error::other(format!("answered {}", line.trim())));
            }
            first = false;
            let head = line.trim_end();
            if head.is_empty() {
                break;
            }
            if let Some(told) = head.strip_prefix("content-length: ") {
                size = told.parse().map_err(io::Error::other)?;
            }
        }
        answer.resize(size, 0);
        reader.read_exact(&mut answer)?;
        took.push(begun.elapsed());
    }
    Ok(took)
}

/// The share of all that took at most this long.
fn at(sorted: &[Duration], per_mille: usize) -> Duration {
    let place = sorted.len().saturating_mul(per_mille) / 1000;
    sorted.get(place.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["serve", port, nodes] => serve(port.parse()?, nodes.parse()?),
        ["ask", address, connections, seconds, which @ ("new" | "same")] => {
            load(address, connections.parse()?, Duration::from_secs(seconds.parse()?), *which == "same")
        }
        _ => Err("give serve PORT NODES, or ask ADDRESS:PORT CONNECTIONS SECONDS new|same".into()),
    }
}

/// Serves an agent until the process is ended.
fn serve(port: u16, nodes: u32) -> Outcome {
    let node = |n| {
        let (memory, rate) = (16 + n % 3 * 4, 400 + n % 5 * 100);
        format!(
            "[[node]]\nid = \"n{n:05}\"\n[[node.device]]\nid = \"CUDA0\"\nmemory = \"{memory}GB\"\nbandwidth = \"{rate}GB/s\"\n"
        )
    };
    let cluster = parse_cluster(&(0..nodes).map(node).collect::<String>())?.snapshot;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let probe = || Ok(SystemProfile::detect_fast());
        let setup = Setup {
            id: NodeId::new("here")?,
            watcher: SystemProfileWatcher::with_probe(Duration::from_secs(5), probe)?,
            free: Box::new(|_| FreeMemory::default()),
            ledger: Arc::new(ResidencyLedger::with_pools([])),
            kept_free: Bytes::gib(1),
            measure: Box::new(|book| Occupancy::new(book, &book.holders(), &[], "ram", Vec::new())),
            source: Source::described(&cluster)?,
        };
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Agent::bind(Config { listen, ..Config::default() }, setup).await?.run(std::future::pending()).await;
        Ok(())
    })
}

fn load(address: &str, connections: u32, time: Duration, same: bool) -> Outcome {
    // Another run asks for others.
    let numbers = AtomicU64::new(u64::from(std::process::id()) << 20);
    let stop = AtomicBool::new(false);
    let begun = now();
    let answers: Vec<io::Result<Vec<Duration>>> = std::thread::scope(|scope| {
        let asking: Vec<_> =
            (0..connections).map(|_| scope.spawn(|| ask(address, &numbers, same, &stop))).collect();
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let ended = asking.into_iter().map(|thread| thread.join());
        ended.map(|answer| answer.unwrap_or_else(|_| Err(io::Error::other("panicked")))).collect()
    });
    let wall = begun.elapsed();
    let mut took = Vec::new();
    for answer in answers {
        took.extend(answer?);
    }
    took.sort_unstable();
    let count = u32::try_from(took.len())?;
    let milliseconds = |per_mille| at(&took, per_mille).as_secs_f64() * 1e3;
    let text = format!(
        "{count} answers in {:.1} s: {:.0} a second; half within {:.2} ms, 99 % within {:.2} ms, the slowest {:.2} ms\n",
        wall.as_secs_f64(),
        f64::from(count) / wall.as_secs_f64(),
        milliseconds(500),
        milliseconds(990),
        milliseconds(1000)
    );
    Ok(io::stdout().write_all(text.as_bytes())?)
}
