//! A browser without a screen, spoken to over two pipes.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Whatever a page is to show, it shows within this time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser, and the page that it shows.
pub(crate) struct Browser {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    page: String,
    number: u64,
    _folder: super::Folder,
}

/// The browser of this machine; `None` where there is none, which in CI is a failure.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn program() -> Option<PathBuf> {
    let named = std::env::var_os("PLIMSOLL_CHROMIUM").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = named.or_else(|| {
        std::env::split_paths(&path).map(|folder| folder.join("chromium")).find(|file| file.is_file())
    });
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "there is no chromium, and in CI nothing is skipped");
        eprintln!("skipped: there is no chromium");
    }
    found
}

impl Browser {
    /// Opens a page, in a profile of its own.
    pub(crate) fn open(name: &str, url: &str) -> Option<Self> {
        let program = program()?;
        let folder = super::Folder::new(name);
        // The browser reads from its third descriptor and writes to its fourth.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1"])
            .arg(program)
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            .args([
                "--disable-extensions",
                "--hide-scrollbars",
                "--disable-background-networking",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", folder.0.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut browser = Self { child, to, from, page: String::new(), number: 0, _folder: folder };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        browser.page = attached["sessionId"].as_str().unwrap().to_owned();
        browser.call("Page.enable", json!({}));
        browser.call("Page.navigate", json!({"url": url}));
        Some(browser)
    }

    /// Calls a method of the browser's own protocol, and waits for its answer.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.attempt(method, params).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn attempt(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.number += 1;
        let mut message = json!({"id": self.number, "method": method, "params": params});
        if !self.page.is_empty() {
            message["sessionId"] = json!(self.page);
        }
        let to = self.to.as_mut().unwrap();
        to.write_all(format!("{message}\0").as_bytes()).unwrap();
        to.flush().unwrap();
        loop {
            let mut text = Vec::new();
            self.from.read_until(0, &mut text).unwrap();
            assert!(!text.is_empty(), "the browser ended during {method}");
            text.pop();
            let told: Value = serde_json::from_slice(&text).unwrap();
            if told["id"] == self.number {
                return told.get("error").map_or(Ok(told["result"].clone()), |error| Err(error.clone()));
            }
        }
    }

    /// The value of an expression on the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let told = self.call(
            "Runtime.evaluate",
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true}),
        );
        assert!(told.get("exceptionDetails").is_none(), "{expression}: {told}");
        told["result"]["value"].clone()
    }

    /// What the page shows of an element, as text; nothing while another page is on its way.
    pub(crate) fn text(&mut self, id: &str) -> String {
        let expression = format!("document.getElementById({id:?})?.innerText");
        let told = self.attempt("Runtime.evaluate", json!({"expression": expression, "returnByValue": true}));
        told.unwrap_or_default()["result"]["value"].as_str().unwrap_or_default().to_owned()
    }

    /// Waits until an element shows this.
    pub(crate) fn shows(&mut self, id: &str, wanted: &str) {
        #[expect(clippy::disallowed_methods, reason = "a test that waits for ever tells nothing")]
        let begun = Instant::now();
        loop {
            let text = self.text(id);
            if text.contains(wanted) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "#{id} does not show {wanted:?}, but {text:?}");
            std::thread::yield_now();
        }
    }

    /// A screen of this size, dark or light.
    pub(crate) fn screen(&mut self, width: u32, height: u32, dark: bool) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500});
        self.call("Emulation.setDeviceMetricsOverride", size);
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Writes a picture of the whole page into the folder that `PLIMSOLL_PICTURES` names; without that, nothing.
    pub(crate) fn picture(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("PLIMSOLL_PICTURES") else { return };
        let taken =
            self.call("Page.captureScreenshot", json!({"format": "png", "captureBeyondViewport": true}));
        let file = PathBuf::from(folder).join(format!("{name}.png"));
        std::fs::write(file, decode(taken["data"].as_str().unwrap())).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A closed pipe ends it.
        drop(self.to.take());
        drop(self.child.wait());
    }
}

/// Base64.
fn decode(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u32> = text.bytes().filter(|c| *c != b'=').map(|c| u32::from(digit(c))).collect();
    let bytes = digits.chunks(4).flat_map(|four| {
        let bits = four.iter().enumerate().fold(0, |bits, (place, digit)| bits | digit << (18 - 6 * place));
        let [_, bytes @ ..] = bits.to_be_bytes();
        bytes.into_iter().take(four.len() * 3 / 4)
    });
    bytes.collect()
}
