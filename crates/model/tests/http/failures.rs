//! Every way in which a server can fail, and what is said of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use expect_test::{Expect, expect};
use plimsoll_model::http::{Client, HttpError, Options, Token, Url};

use crate::{open, options, small, wordy};
use plimsoll_testkit::http::{Answer, Request, Server, answer, not_found, part_of};

/// The error of a server that answers like this, with the port left out.
fn check(expected: Expect, reply: impl Fn(&Request) -> Answer + Send + Sync + 'static) {
    check_with(expected, options(), reply);
}

fn check_with(
    expected: Expect,
    options: Options,
    reply: impl Fn(&Request) -> Answer + Send + Sync + 'static,
) {
    let server = Server::new(reply);
    let address = server.url("/m.gguf?sig=secret").replace("http://", "http://me:hush@");
    let text = open(&address, options).0.unwrap_err();
    assert!(!text.contains("secret") && !text.contains("hush"), "{text}");
    expected.assert_eq(&text.replace(&server.port.to_string(), "PORT"));
}

fn status(line: &'static str) -> impl Fn(&Request) -> Answer + Send + Sync {
    move |_| Answer::Send(answer(line, &[], b"no"))
}

#[test]
fn a_file_that_is_not_there_or_not_for_everybody_says_what_can_be_done() {
    check(
        expect![
            "cannot open http://127.0.0.1:PORT/m.gguf: the server answers 404 (not found): is the address right?"
        ],
        |_| Answer::Send(not_found()),
    );
    check(
        expect![
            "cannot open http://127.0.0.1:PORT/m.gguf: the server answers 401: it wants a name and a password, as in https://name:password@host/…"
        ],
        status("401 Unauthorized"),
    );
    check(
        expect![
            "cannot open http://127.0.0.1:PORT/m.gguf: the server answers 403: it may not be read, or the address is one that has expired"
        ],
        status("403 Forbidden"),
    );
    check(
        expect!["cannot open http://127.0.0.1:PORT/m.gguf: the server answers 418"],
        status("418 I'm a teapot"),
    );
}

#[test]
fn a_model_of_a_hub_says_what_token_it_needs() {
    let token = || Token::new("hf_secret", ["127.0.0.1".to_owned()]);
    check_with(
        expect![
            "cannot open http://127.0.0.1:PORT/m.gguf: the server answers 403: has the token's owner agreed to the model's terms?"
        ],
        Options { token: token(), ..options() },
        status("403 Forbidden"),
    );
    check_with(
        expect![
            "cannot open http://127.0.0.1:PORT/m.gguf: the server answers 401: is the address right? A model that is not public needs a token in HF_TOKEN"
        ],
        Options { token: Token::new("", ["127.0.0.1".to_owned()]), ..options() },
        status("401 Unauthorized"),
    );
}

#[test]
fn a_server_that_fails_is_asked_twice_and_no_more() {
    let times = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&times);
    check(
        expect![
            "cannot open http://127.0.0.1:PORT/m.gguf: the server answers 503, which may pass: try again later"
        ],
        move |_| {
            seen.fetch_add(1, Ordering::SeqCst);
            Answer::Send(answer("503 Service Unavailable", &[], b""))
        },
    );
    assert_eq!(times.swap(0, Ordering::SeqCst), 2);
    let file = small().bytes();
    let server = Server::new(move |request| match times.fetch_add(1, Ordering::SeqCst) {
        0 => Answer::Send(answer("502 Bad Gateway", &[], b"")),
        _ => Answer::Send(part_of(&file, request)),
    });
    let (model, usage) = open(&server.url("/m.gguf"), options());
    assert_eq!((model.unwrap().layer_count(), usage.requests), (3, 2));
}

#[test]
fn a_host_that_does_not_listen_is_named() {
    let server = Server::new(|_| Answer::Send(not_found()));
    let port = server.port;
    drop(server);
    // The last connection of the server may still be going.
    let text = open(&format!("http://127.0.0.1:{port}/m.gguf"), options()).0.unwrap_err();
    assert!(
        text.starts_with(&format!(
            "cannot open http://127.0.0.1:{port}/m.gguf: the connection to 127.0.0.1 failed (is the server up, and the port right?): "
        )),
        "{text}"
    );
}

#[test]
fn a_server_without_ranges_is_refused_before_the_file_is_read() {
    check(
        expect![
            "cannot open http://127.0.0.1:PORT/m.gguf: the server sends the whole file when asked for a part of it (no range requests): download it, and name the file"
        ],
        |_| Answer::Hang(answer("200 OK", &["Content-Length: 400000000000"], b"GGUF")),
    );
}

#[test]
fn a_part_that_is_not_the_one_asked_for_is_refused() {
    let reply = |range: &'static str, body: usize| {
        move |_: &Request| Answer::Send(answer("206 Partial Content", &[range], &vec![0; body]))
    };
    check(
        expect![
            "cannot open http://127.0.0.1:PORT/m.gguf: asked for the bytes 0-65535, the server says that it sends 'bytes 1-65536/99999999'"
        ],
        reply("Content-Range: bytes 1-65536/99999999", 65_536),
    );
    check(
        expect![
            "cannot open http://127.0.0.1:PORT/m.gguf: asked for the bytes 0-65535, the server says that it sends 'bytes 0-99/99999999'"
        ],
        reply("Content-Range: bytes 0-99/99999999", 100),
    );
    check(
        expect![
            "cannot open http://127.0.0.1:PORT/m.gguf: asked for the bytes 0-65535, the server says that it sends 'bytes 0-65535/*'"
        ],
        reply("Content-Range: bytes 0-65535/*", 65_536),
    );
    check(
        expect![
            "cannot open http://127.0.0.1:PORT/m.gguf: asked for the bytes 0-65535, the server says that it sends 'nothing of a range'"
        ],
        reply("X: y", 65_536),
    );
    check(
        expect![
            "cannot open http://127.0.0.1:PORT/m.gguf: asked for the bytes 0-65535, the server says that it sends 'bytes 0-99/100'"
        ],
        reply("Content-Range: bytes 0-99/100", 101),
    );
}

#[test]
fn an_answer_that_ends_early_is_refused() {
    check(expect!["cannot open http://127.0.0.1:PORT/m.gguf: the answer ends after 10 of 100 bytes"], |_| {
        let lines = ["Content-Range: bytes 0-99/100", "Content-Length: 100"];
        Answer::Send(answer("206 Partial Content", &lines, b"GGUF\x03\0\0\0\0\0"))
    });
}

#[test]
fn an_answer_without_a_length_is_bounded_by_what_was_asked_for() {
    check(
        expect![
            "cannot open http://127.0.0.1:PORT/m.gguf: the answer has more than the 100 bytes that were asked for"
        ],
        |_| {
            let mut bytes =
                b"HTTP/1.1 206 Partial Content\r\nConnection: close\r\nContent-Range: bytes 0-99/100\r\n\r\n"
                    .to_vec();
            bytes.resize(bytes.len() + 100_000, b'x');
            Answer::Send(bytes)
        },
    );
}

#[test]
fn an_empty_file_is_a_file_that_ends_within_its_header() {
    check(
        expect![[
            r#"http://127.0.0.1:PORT/m.gguf, byte 0, magic: needs 4 bytes, but the file has only 0 left"#
        ]],
        |request| Answer::Send(part_of(b"", request)),
    );
}

#[test]
fn a_compressed_answer_and_a_web_page_are_refused() {
    check(
        expect![
            "cannot open http://127.0.0.1:PORT/m.gguf: the answer is encoded as 'gzip', so its bytes are not those of the file"
        ],
        |_| {
            let lines = ["Content-Range: bytes 0-9/10", "Content-Encoding: gzip"];
            Answer::Send(answer("206 Partial Content", &lines, b"\x1f\x8b12345678"))
        },
    );
    check(
        expect![
            "cannot open http://127.0.0.1:PORT/m.gguf: this is a web page and no file (on huggingface.co, a file's address has /resolve/ in place of /blob/)"
        ],
        |_| Answer::Send(answer("200 OK", &["Content-Type: text/html; charset=utf-8"], b"<!doctype html>")),
    );
}

/// A file that takes several pieces, with another tag and another length from the second piece on.
fn changing(tag: &'static str, longer: usize) -> impl Fn(&Request) -> Answer + Send + Sync {
    let file = wordy(20_000).bytes();
    move |request| {
        let (from, to) = request.range().unwrap();
        let second = from > 0;
        let total = file.len() + if second { longer } else { 0 };
        let to = to.min(file.len() - 1);
        let range = format!("Content-Range: bytes {from}-{to}/{total}");
        let tag = format!("ETag: {}", if second { tag } else { "\"1\"" });
        Answer::Send(answer("206 Partial Content", &[&range, &tag], &file[from..=to]))
    }
}

#[test]
fn a_file_that_changes_while_it_is_read_is_refused() {
    let check = |tag, longer, expected: &str| {
        let server = Server::new(changing(tag, longer));
        let text = open(&server.url("/m.gguf"), options()).0.unwrap_err();
        assert!(text.contains(expected), "{text}");
    };
    check("\"2\"", 0, "the file changed while it was read (its tag was \"1\", now \"2\"): try again");
    check("\"1\"", 4096, "the file changed while it was read (its length was ");
}

#[test]
fn a_redirection_keeps_the_query_of_its_target_and_loses_the_credentials_at_another_host() {
    let file = small().bytes();
    let far = Server::new(move |request| Answer::Send(part_of(&file, request)));
    let target = format!("Location: http://localhost:{}/blob?X-Sig=a%2Fb&x=1", far.port);
    let near = Server::new(move |request| {
        let next = if request.target == "/m.gguf" { "Location: /there/m.gguf?a=b" } else { target.as_str() };
        Answer::Send(answer("302 Found", &[next], b""))
    });
    let address = near.url("/m.gguf").replace("http://", "http://me:hush@");
    let (model, usage) = open(&address, options());
    assert_eq!((model.unwrap().layer_count(), usage.requests), (3, 3));
    let asked = near.asked();
    assert_eq!(asked[1].target, "/there/m.gguf?a=b");
    assert!(asked.iter().all(|request| request.header("authorization") == Some("Basic bWU6aHVzaA==")));
    let there = &far.asked()[0];
    assert_eq!((there.target.as_str(), there.header("authorization")), ("/blob?X-Sig=a%2Fb&x=1", None));
}

#[test]
fn later_pieces_are_asked_for_where_the_redirection_led() {
    let file = wordy(20_000).bytes();
    let server = Server::new(move |request| {
        if request.target == "/m.gguf" {
            return Answer::Send(answer("307 Temporary Redirect", &["Location: /real"], b""));
        }
        Answer::Send(part_of(&file, request))
    });
    open(&server.url("/m.gguf"), options()).0.unwrap();
    let asked: Vec<_> = server.asked().into_iter().map(|request| request.target).collect();
    assert!(asked.len() >= 3, "{asked:?}");
    assert!(asked.iter().skip(1).all(|target| target == "/real"), "{asked:?}");
}

#[test]
fn redirections_end() {
    check(
        expect![
            "cannot open http://127.0.0.1:PORT/m.gguf: more than 8 redirections, the last one to 127.0.0.1"
        ],
        |_| Answer::Send(answer("301 Moved Permanently", &["Location: ?again=secret"], b"")),
    );
    check(
        expect![
            "cannot open http://127.0.0.1:PORT/m.gguf: a redirection that cannot be followed: an address begins with http:// or https://"
        ],
        |_| Answer::Send(answer("301 Moved Permanently", &["Location: file:///etc/passwd"], b"")),
    );
    check(
        expect![
            "cannot open http://127.0.0.1:PORT/m.gguf: the server answers 302 (a redirection) and does not say where to"
        ],
        status("302 Found"),
    );
}

#[test]
fn a_slow_server_is_given_up() {
    let silence = Duration::from_millis(100);
    let slow = || Options { silence, ..options() };
    check_with(
        expect![
            "cannot open http://127.0.0.1:PORT/m.gguf: no answer from 127.0.0.1 in time: its silence took more than 0.1 s"
        ],
        slow(),
        |_| Answer::Hang(Vec::new()),
    );
    check_with(
        expect![
            "cannot open http://127.0.0.1:PORT/m.gguf: no answer from 127.0.0.1 in time: its silence took more than 0.1 s"
        ],
        slow(),
        |_| {
            let lines = ["Content-Range: bytes 0-65535/99999999", "Content-Length: 65536"];
            Answer::Hang(answer("206 Partial Content", &lines, b"GGUF"))
        },
    );
    check_with(
        expect![
            "cannot open http://127.0.0.1:PORT/m.gguf: no answer from 127.0.0.1 in time: all of it took more than 0.1 s"
        ],
        Options { whole: silence, ..options() },
        |_| Answer::Hang(Vec::new()),
    );
}

#[test]
fn what_is_no_http_and_a_header_without_an_end_are_refused() {
    check(
        expect![
            "cannot open http://127.0.0.1:PORT/m.gguf: no good answer from 127.0.0.1: it does not speak HTTP as it should"
        ],
        |_| Answer::Send(b"SSH-2.0-OpenSSH_9.2\r\n\r\n".to_vec()),
    );
    check(
        expect![
            "cannot open http://127.0.0.1:PORT/m.gguf: the header of the answer has more than 65536 bytes"
        ],
        |_| Answer::Send(answer("206 Partial Content", &[&format!("X: {}", "y".repeat(200_000))], b"")),
    );
}

#[test]
fn no_more_is_read_than_the_limit() {
    let file = wordy(20_000).bytes();
    let server = Server::new(move |request| Answer::Send(part_of(&file, request)));
    let (model, usage) = open(&server.url("/m.gguf"), Options { most_bytes: 200_000, ..options() });
    let text = model.unwrap_err();
    assert!(text.contains("more than 200000 bytes would have to be read"), "{text}");
    assert_eq!(usage.bytes, 65_536);
}

#[test]
fn a_whole_text_is_read_up_to_its_limit() {
    let server = Server::new(|request| {
        // Without a length, the end of the connection is the end of the text.
        let bare = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n".to_owned() + &"x".repeat(1000);
        let told = answer("200 OK", &[], &[b'x'; 1000]);
        Answer::Send(if request.target == "/bare" { bare.into_bytes() } else { told })
    });
    let client = Client::new(options());
    for path in ["/bare", "/told"] {
        let url: Url = server.url(path).parse().unwrap();
        assert_eq!(client.text(&url, 1000).unwrap().len(), 1000);
        assert!(matches!(client.text(&url, 999), Err(HttpError::Limit { limit: 999 })), "{path}");
    }
}
