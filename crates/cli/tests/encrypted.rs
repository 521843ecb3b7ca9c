//! Clusters in etcd whose members ask who is there.

#![cfg(all(target_os = "linux", feature = "etcd-tls"))]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_testkit::etcd::{Certificates, Etcd};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

impl Folder {
    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// An authority, and a certificate of its own with a key: for a member on the loopback, which is a client as well.
    fn authority(&self, name: &str) -> [PathBuf; 3] {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let mut params = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        [
            self.write(&format!("{name}-ca.pem"), &authority.pem()),
            self.write(&format!("{name}.pem"), &certificate.pem()),
            self.write(&format!("{name}-key.pem"), &key.serialize_pem()),
        ]
    }
}

const NAMES: [&str; 3] = ["PLIMSOLL_ETCD_CACERT", "PLIMSOLL_ETCD_CERT", "PLIMSOLL_ETCD_KEY"];

/// What `node ls` says with these certificates.
fn listed(url: &str, certificates: [Option<&Path>; 3]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(["node", "ls", "--cluster", url]).env("NO_COLOR", "1");
    for (name, file) in NAMES.iter().zip(certificates) {
        match file {
            Some(file) => command.env(name, file),
            None => command.env_remove(name),
        };
    }
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn only_whom_the_authority_vouches_for_is_let_in() {
    let folder =
        Folder(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("encrypted-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).unwrap();
    let [ca, certificate, key] = folder.authority("ours");
    let [other_ca, other_certificate, other_key] = folder.authority("other");
    let certificates = Certificates { authority: &ca, member: &certificate, key: &key };
    let Some(etcd) = Etcd::start_with(&folder.0, 1, Some(certificates)) else { return };
    let url = etcd.url("home");
    assert!(url.starts_with("etcds://"));
    // The member may still be starting: a request is tried for 4 s, and this as often as it takes.
    let ours = [Some(&*ca), Some(&*certificate), Some(&*key)];
    let told = (0..10).map(|_| listed(&url, ours)).find(|(status, _)| *status == Some(0));
    assert!(told.is_some(), "{}", listed(&url, ours).1);
    for (certificates, why) in [
        // Nobody vouches for the member; another authority does; we say nothing of ourselves; somebody else does.
        ([None, Some(&*certificate), Some(&*key)], "no majority of etcd answers"),
        ([Some(&*other_ca), Some(&*certificate), Some(&*key)], "no majority of etcd answers"),
        ([Some(&*ca), None, None], "no majority of etcd answers"),
        ([Some(&*ca), Some(&*other_certificate), Some(&*other_key)], "no majority of etcd answers"),
        ([Some(&*ca), Some(&*certificate), None], "PLIMSOLL_ETCD_CERT and PLIMSOLL_ETCD_KEY go together"),
        ([Some(&*folder.0.join("none.pem")), None, None], "cannot read"),
        ([Some(&*folder.write("text.pem", "no certificate")), None, None], "holds no PEM"),
    ] {
        let (status, text) = listed(&url, certificates);
        assert_eq!(status, Some(2), "{text}");
        assert!(text.contains(why), "{why}: {text}");
    }
    // Not encrypted there is nobody.
    let plain = url.replacen("etcds://", "etcd://", 1);
    assert_eq!(listed(&plain, [None; 3]).0, Some(2));
}
