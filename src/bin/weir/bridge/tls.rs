//! TLS towards callers.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::Stop;

/// With this certificate; with `client_ca` only for callers that have one, too.
pub fn server(cert: &str, key: &str, client_ca: Option<&str>) -> Result<Arc<ServerConfig>, Stop> {
    let chain = certificates("--tls-cert", cert)?;
    let key_of = PrivateKeyDer::from_pem_file(key);
    let key_of = key_of.map_err(|error| Stop(format!("--tls-key: {key}: {error}; write a file with a key in PEM")))?;
    let builder = ServerConfig::builder();
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let no = |error: &dyn std::fmt::Display| Stop(format!("--client-ca: {file}: {error}"));
            let mut roots = RootCertStore::empty();
            for certificate in certificates("--client-ca", file)? {
                roots.add(certificate).map_err(|error| no(&error))?;
            }
            let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().map_err(|error| no(&error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder.with_single_cert(chain, key_of);
    let mut config = config.map_err(|error| Stop(format!("--tls-cert: {cert}: does not go with its key: {error}")))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(word: &str, file: &str) -> Result<Vec<CertificateDer<'static>>, Stop> {
    let all = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = all.map_err(|error| Stop(format!("{word}: {file}: {error}; write a file with certificates in PEM")))?;
    if all.is_empty() {
        return Err(Stop(format!("{word}: {file}: holds no certificate; write a file with certificates in PEM")));
    }
    Ok(all)
}
