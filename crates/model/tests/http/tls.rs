//! The same over TLS, with a certificate that the test makes for itself.

use std::sync::Arc;

use plimsoll_model::http::{Options, Token};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::{open, options, small};
use plimsoll_testkit::http::{Answer, Request, Server, answer, part_of};

/// A server for the name `localhost`, and its certificate in PEM.
fn serving(reply: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> (Server, Vec<u8>) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![cert.der().clone()], key).unwrap();
    let config = Arc::new(config);
    let server = Server::speaking(reply, move |stream| {
        let connection = ServerConnection::new(Arc::clone(&config)).ok()?;
        Some(Box::new(StreamOwned::new(connection, stream)))
    });
    (server, cert.pem().into_bytes())
}

fn address(server: &Server) -> String {
    format!("https://localhost:{}/m.gguf", server.port)
}

#[test]
fn a_token_is_told_to_its_host_over_tls() {
    let file = small().bytes();
    let (server, certificate) = serving(move |request| Answer::Send(part_of(&file, request)));
    let token = Token::new("hf_secret", ["localhost".to_owned()]);
    let trusting = Options { certificates: Some(certificate), token, ..options() };
    assert_eq!(open(&address(&server), trusting).0.unwrap().layer_count(), 3);
    assert_eq!(server.asked()[0].header("authorization"), Some("Bearer hf_secret"));
}

#[test]
fn a_certificate_that_is_not_trusted_is_refused() {
    let (server, _) = serving(|_| Answer::Send(Vec::new()));
    let text = open(&address(&server), options()).0.unwrap_err();
    let expected = format!("cannot open {}: no trusted connection to localhost: ", address(&server));
    assert!(text.starts_with(&expected) && text.contains("SSL_CERT_FILE"), "{text}");
    assert_eq!(server.asked().len(), 0);
}

#[test]
fn nothing_leads_from_a_protected_connection_to_an_open_one() {
    let open_server = Server::new(|_| Answer::Send(Vec::new()));
    let location = format!("Location: {}", open_server.url("/m.gguf"));
    let (server, certificate) =
        serving(move |_| Answer::Send(answer("302 Found", &[location.as_str()], b"")));
    let text =
        open(&address(&server), Options { certificates: Some(certificate), ..options() }).0.unwrap_err();
    assert!(
        text.ends_with(
            "the server redirects from https to http on 127.0.0.1, where anybody could change the answer"
        ),
        "{text}"
    );
    assert_eq!(open_server.asked().len(), 0);
}
