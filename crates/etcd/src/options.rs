//! How a cluster is reached.

use std::time::Duration;

use crate::Credentials;

/// How a cluster is reached.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who asks; these win over those of the address.
    pub credentials: Option<Credentials>,
    /// How long one member may take to let us in.
    pub connect: Duration,
    /// How long one attempt at a request may take, on one member.
    pub attempt: Duration,
    /// How long a request is tried on all members before it is given up.
    pub patience: Duration,
    /// How long what lives on a lease outlives the end of its process, or being cut off. Whole seconds, at least 2.
    pub lease: Duration,
    /// Certificates.
    #[cfg(feature = "tls")]
    pub tls: Tls,
}

/// Half a second to connect, 1.5 s for an attempt, 4 s for a request, leases of 10 s.
impl Default for Options {
    fn default() -> Self {
        Self {
            credentials: None,
            connect: Duration::from_millis(500),
            attempt: Duration::from_millis(1500),
            patience: Duration::from_secs(4),
            lease: Duration::from_secs(10),
            #[cfg(feature = "tls")]
            tls: Tls::default(),
        }
    }
}

/// Certificates, as PEM. Shown nowhere.
#[cfg(feature = "tls")]
#[derive(Clone, Default)]
pub struct Tls {
    /// Who vouches for the members; those that the system trusts where nobody is named.
    pub ca: Option<String>,
    /// Who we are: a certificate and its key.
    pub identity: Option<(String, String)>,
    /// The name that the members' certificates carry, where it is not the host of their address.
    pub domain: Option<String>,
}

#[cfg(feature = "tls")]
impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls(..)")
    }
}

#[cfg(feature = "tls")]
impl Tls {
    pub(crate) fn client(&self) -> etcd_client::TlsOptions {
        use etcd_client::{Certificate, Identity, TlsOptions};
        let mut options = match &self.ca {
            Some(ca) => TlsOptions::new().ca_certificate(Certificate::from_pem(ca)),
            None => TlsOptions::new().with_enabled_roots(),
        };
        if let Some((certificate, key)) = &self.identity {
            options = options.identity(Identity::from_pem(certificate, key));
        }
        if let Some(domain) = &self.domain {
            options = options.domain_name(domain);
        }
        options
    }
}
