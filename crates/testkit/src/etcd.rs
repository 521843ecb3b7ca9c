//! Real etcd on the loopback: one or several members in a folder of their own, ended when they are dropped.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};

/// Starts a member and says its number; ends it when whoever started it lets go of its input, however that comes.
const KEEPER: &str =
    r#""$@" </dev/null >"$LOG" 2>&1 & echo $!; cat >/dev/null; kill -9 $! 2>/dev/null; wait"#;

/// A few members of etcd.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<Member>,
    folder: PathBuf,
    encrypted: bool,
}

/// The files of members that let in only whom an authority vouches for.
#[derive(Clone, Copy, Debug)]
pub struct Certificates<'a> {
    /// The authority's certificate.
    pub authority: &'a Path,
    /// The members' certificate, and its key.
    pub member: &'a Path,
    /// The key.
    pub key: &'a Path,
}

/// One member.
#[derive(Debug)]
pub struct Member {
    arguments: Vec<String>,
    endpoint: String,
    log: PathBuf,
    program: PathBuf,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    keeper: Child,
    pid: Pid,
}

/// Where the program is: what `PLIMSOLL_ETCD` names, or the first in the path.
pub fn program() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("PLIMSOLL_ETCD") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join("etcd")).find(|file| file.is_file())
}

impl Etcd {
    /// Starts so many members under `folder`. Without the program there are none: then it says so, and the test has
    /// nothing to do.
    ///
    /// # Panics
    ///
    /// A program that does not start; or none at all where `CI` is set.
    pub fn start(folder: &Path, members: usize) -> Option<Self> {
        Self::start_with(folder, members, None)
    }

    /// The same, encrypted where there are certificates.
    ///
    /// # Panics
    ///
    /// As [`Etcd::start`].
    #[expect(clippy::print_stderr, reason = "whoever runs the tests has to see it")]
    pub fn start_with(folder: &Path, members: usize, certificates: Option<Certificates<'_>>) -> Option<Self> {
        let Some(program) = program() else {
            let in_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
            assert!(!in_ci, "etcd is not installed: apt-get install etcd-server");
            eprintln!("skipped: no etcd (apt-get install etcd-server, or set PLIMSOLL_ETCD)");
            return None;
        };
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = folder.join(format!("etcd-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).expect("the folder of the tests can be written");
        let ports = free_ports(2 * members);
        let peer = |n: usize| format!("http://127.0.0.1:{}", ports[members + n]);
        let all: Vec<String> = (0..members).map(|n| format!("m{n}={}", peer(n))).collect();
        let members = (0..members).map(|n| {
            let endpoint = format!("127.0.0.1:{}", ports[n]);
            let client = format!("{}://{endpoint}", if certificates.is_some() { "https" } else { "http" });
            let data = folder.join(format!("m{n}")).display().to_string();
            let arguments = [
                ("--name", format!("m{n}")),
                ("--data-dir", data),
                ("--listen-client-urls", client.clone()),
                ("--advertise-client-urls", client),
                ("--listen-peer-urls", peer(n)),
                ("--initial-advertise-peer-urls", peer(n)),
                ("--initial-cluster", all.join(",")),
                ("--initial-cluster-token", format!("test-{}-{number}", std::process::id())),
                ("--heartbeat-interval", "50".to_owned()),
                ("--election-timeout", "500".to_owned()),
                ("--log-level", "error".to_owned()),
            ];
            let mut arguments: Vec<String> =
                arguments.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
            if let Some(Certificates { authority, member, key }) = certificates {
                for (name, file) in
                    [("--trusted-ca-file", authority), ("--cert-file", member), ("--key-file", key)]
                {
                    arguments.extend([name.to_owned(), file.display().to_string()]);
                }
                arguments.push("--client-cert-auth".to_owned());
            }
            Member {
                arguments,
                endpoint,
                log: folder.join(format!("m{n}.log")),
                program: program.clone(),
                running: None,
            }
        });
        let encrypted = certificates.is_some();
        let mut etcd = Self { members: members.collect(), folder: folder.clone(), encrypted };
        etcd.members.iter_mut().for_each(Member::start);
        Some(etcd)
    }

    /// `etcd://127.0.0.1:1234,…/name`.
    pub fn url(&self, name: &str) -> String {
        let endpoints: Vec<&str> = self.members.iter().map(Member::endpoint).collect();
        let scheme = if self.encrypted { "etcds" } else { "etcd" };
        format!("{scheme}://{}/{name}", endpoints.join(","))
    }

    /// The members.
    pub fn members(&mut self) -> &mut [Member] {
        &mut self.members
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.members.iter_mut().for_each(Member::end);
        drop(fs::remove_dir_all(&self.folder));
    }
}

impl Member {
    /// Where it listens: `127.0.0.1:1234`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Starts it, anew where it was ended.
    ///
    /// # Panics
    ///
    /// A program that does not start.
    pub fn start(&mut self) {
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "sh"])
            .arg(&self.program)
            .args(&self.arguments)
            .env("LOG", &self.log)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(self.log.with_extension("keeper")).expect("the folder can be written"))
            .spawn()
            .expect("there is a shell");
        let mut line = String::new();
        let told = keeper.stdout.take().expect("it is piped");
        BufReader::new(told).read_line(&mut line).expect("the shell says a number");
        let pid = line.trim().parse().ok().and_then(Pid::from_raw).expect("the shell says a number");
        self.running = Some(Running { keeper, pid });
    }

    /// Ends it as a power cut would.
    pub fn kill(&mut self) {
        self.end();
    }

    /// Halts it: its connections stay open and nothing answers.
    pub fn halt(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(running) = &self.running {
            // It may have ended by itself.
            let _gone = kill_process(running.pid, signal);
        }
    }

    fn end(&mut self) {
        self.signal(Signal::KILL);
        if let Some(mut running) = self.running.take() {
            drop(running.keeper.stdin.take());
            drop(running.keeper.wait());
        }
    }
}

/// Ports that nobody listens on at this moment.
///
/// # Panics
///
/// The loopback has none left.
pub fn free_ports(count: usize) -> Vec<u16> {
    let bound: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port is free")).collect();
    bound.iter().map(|listener| listener.local_addr().expect("it is bound").port()).collect()
}
