//! Who asks: names, passwords and tokens, and to whom they are told.

use std::env;
use std::fmt;
use std::path::PathBuf;

use super::url::Url;

/// The hosts that a token of Hugging Face is for.
const HUB: [&str; 2] = ["huggingface.co", "hf.co"];

/// The longest token that is read from a file, in bytes.
const LONGEST: usize = 4096;

/// A token, and the hosts that it is told to: over `https` alone, and nobody else, wherever they redirect to.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Token {
    secret: Option<String>,
    hosts: Vec<String>,
}

impl Token {
    /// No token.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// A token for some hosts. One with blanks or characters that cannot be in a header is none.
    #[must_use]
    pub fn new(secret: &str, hosts: impl IntoIterator<Item = String>) -> Self {
        let secret = secret.trim();
        let good =
            !secret.is_empty() && secret.len() <= LONGEST && secret.bytes().all(|b| b.is_ascii_graphic());
        Self { secret: good.then(|| secret.to_owned()), hosts: hosts.into_iter().collect() }
    }

    /// The token that programs for Hugging Face take: `HF_TOKEN`, else the file that `HF_TOKEN_PATH` names, else `token` in
    /// `HF_HOME` or in `~/.cache/huggingface`. It is for huggingface.co and the host of `HF_ENDPOINT`.
    #[must_use]
    pub fn from_env() -> Self {
        let set = |name| env::var(name).ok().filter(|text| !text.is_empty());
        let cache = || {
            let cache = set("XDG_CACHE_HOME").map(PathBuf::from);
            cache.or_else(|| Some(PathBuf::from(set("HOME")?).join(".cache"))).map(|c| c.join("huggingface"))
        };
        let file = || {
            let home = || set("HF_HOME").map(PathBuf::from).or_else(cache).map(|home| home.join("token"));
            set("HF_TOKEN_PATH").map(PathBuf::from).or_else(home)
        };
        let secret = set("HF_TOKEN").or_else(|| std::fs::read_to_string(file()?).ok()).unwrap_or_default();
        let endpoint = set("HF_ENDPOINT").and_then(|text| text.parse::<Url>().ok());
        let hosts = HUB.into_iter().map(str::to_owned);
        Self::new(&secret, hosts.chain(endpoint.map(|url| url.host().to_owned())))
    }

    /// What a request to `url` says of who asks, where `first` is the address that was typed: its name and password on its
    /// own server, else the token where that is for this server.
    pub(super) fn authorization(&self, first: &Url, url: &Url) -> Option<String> {
        if !first.same_origin(url) {
            return None;
        }
        if let Some(user) = first.user() {
            return Some(format!("Basic {}", base64(&unescaped(user))));
        }
        let secret = self.secret.as_ref()?;
        (url.is_https() && self.hosts.iter().any(|host| host == url.host()))
            .then(|| format!("Bearer {secret}"))
    }

    /// What somebody may do whom `url` refuses.
    pub(super) fn hint(&self, status: u16, url: &Url) -> &'static str {
        let hub = self.hosts.iter().any(|host| host == url.host()) || HUB.contains(&url.host());
        match (status, hub, self.secret.is_some()) {
            (401, true, false) => {
                "is the address right? A model that is not public needs a token in HF_TOKEN"
            }
            (401, true, true) => "is the address right, and may the token read it?",
            (403, true, false) => {
                "it needs a token in HF_TOKEN of somebody who has agreed to the model's terms"
            }
            (403, true, true) => "has the token's owner agreed to the model's terms?",
            (401, ..) => "it wants a name and a password, as in https://name:password@host/…",
            _ => "it may not be read, or the address is one that has expired",
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secret = self.secret.as_ref().map(|_| "…");
        f.debug_struct("Token").field("secret", &secret).field("hosts", &self.hosts).finish()
    }
}

/// `%2F` as `/`.
fn unescaped(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let code = (byte == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(code) => {
                out.push(code);
                at += 3;
            }
            None => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |n: usize| u32::from(group.get(n).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for n in 0..4 {
            let digit = usize::try_from(bits >> (18 - 6 * n) & 63).unwrap_or(0);
            text.push(if n <= group.len() { char::from(DIGITS[digit]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Token, base64, unescaped};
    use crate::http::Url;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[test]
    fn a_token_goes_to_its_hosts_over_https_alone() {
        let token = Token::new(" hf_x\n", ["huggingface.co".to_owned()]);
        let hub = url("https://huggingface.co/o/m/resolve/main/m.gguf");
        let said = |first: &Url, url: &Url| token.authorization(first, url);
        assert_eq!(said(&hub, &hub).as_deref(), Some("Bearer hf_x"));
        // Not to where the hub redirects to, not where another host redirects to the hub, not in the open, not on another port.
        assert_eq!(said(&hub, &url("https://cdn.hf.co/x")), None);
        assert_eq!(said(&url("https://other/x"), &hub), None);
        let open = url("http://huggingface.co/x");
        assert_eq!(said(&open, &open), None);
        assert_eq!(said(&hub, &open), None);
        assert_eq!(said(&hub, &url("https://huggingface.co:8443/x")), None);
        let other = url("https://example.org/x");
        assert_eq!(said(&other, &other), None);
        assert!(!format!("{token:?}").contains("hf_x"));
    }

    #[test]
    fn a_password_goes_to_its_own_server_alone() {
        let first = url("http://Aladdin:open%20sesame@h:8080/x");
        let token = Token::none();
        let said = token.authorization(&first, &url("http://h:8080/y"));
        assert_eq!(said.as_deref(), Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="));
        assert_eq!(token.authorization(&first, &url("http://h:8081/y")), None);
        assert_eq!(token.authorization(&first, &url("https://h:8080/y")), None);
    }

    #[test]
    fn base64_has_the_examples_of_its_standard() {
        let examples = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (n, expected) in examples.iter().enumerate() {
            assert_eq!(base64(&b"foobar"[..n]), *expected);
        }
        assert_eq!(unescaped("a%3a%zz%"), b"a:%zz%");
    }

    #[test]
    fn what_cannot_stand_in_a_header_is_no_token() {
        for bad in ["", " ", "a b", "a\r\nHost: x", &"x".repeat(5000)] {
            assert_eq!(Token::new(bad, ["h".to_owned()]).secret, None);
        }
    }
}
