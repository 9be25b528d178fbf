//! TLS of the control connection: authentication of the listener, and export of shared secrets.
//!
//! TLS 1.3 only, X25519MLKEM768 only, ALPN `sabul/1`. The listener has a self-signed certificate.
//! The connector has its fingerprint from a ticket and accepts no other certificate, so no
//! authority, name or date is checked. There is no resumption and no early data: each connection
//! has a full handshake and its own exported secrets.
//!
//! Not here: authorization of the connector: see [`crate::ticket::proof`] over [`proof_exporter`].

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::digest;
use data_encoding::{BASE64, HEXLOWER};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, Resumption};
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::{Accepted, Acceptor, NoServerSessionStorage, ServerConfig};
use rustls::{
    AlertDescription, CertificateError, CommonState, ConnectionCommon, DigitallySignedStruct,
    OtherError, SignatureScheme, version,
};
use sabul_keys::FileError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{LazyConfigAcceptor, StartHandshake, TlsAcceptor, TlsConnector, client, server};
use zeroize::{Zeroize as _, Zeroizing};

/// ALPN identifier of the control connection.
pub const ALPN: &[u8] = b"sabul/1";
/// Exporter label of the value that a ticket's proof covers.
pub(crate) const PROOF_LABEL: &[u8] = b"EXPORTER-sabul-ticket-proof";
/// Exporter label of the value that a key signs.
pub(crate) const LOGIN_LABEL: &[u8] = b"EXPORTER-sabul-login";
/// Exporter label of a channel's secrets; the context is the channel's number.
pub(crate) const CHANNEL_LABEL: &[u8] = b"EXPORTER-sabul-channel";
/// Exporter label of the secrets of connections that join a transfer; the context is the transfer's number.
pub(crate) const JOIN_LABEL: &[u8] = b"EXPORTER-sabul-join";
/// Exporter label of the secret with which a connection replaces the control connection of a session.
pub(crate) const RESUME_LABEL: &[u8] = b"EXPORTER-sabul-resume";
/// Exporter label of the secret with which an introducer authenticates questions for an outside address.
pub(crate) const OUTSIDE_LABEL: &[u8] = b"EXPORTER-sabul-outside";
/// Context of the name under which a listener registers at introducers [BLAKE3, derive_key].
const NAME_CONTEXT: &str = "sabul 2026-11-26 name of a registration at introducers";
/// Longest file of an identity in bytes.
const IDENTITY_MAX: u64 = 64 << 10;
/// Name in certificates; not verified, and not sent in the handshake.
const NAME: &str = "sabul";

/// Private key and self-signed certificate of a listener.
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
}

impl Identity {
    /// Generates a new identity with a P-256 key.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn generate() -> Result<Self, TlsError> {
        let other = |error: rcgen::Error| TlsError::Other(error.to_string());
        let key = rcgen::KeyPair::generate().map_err(other)?;
        let certificate = rcgen::CertificateParams::new([NAME.to_owned()])
            .and_then(|params| params.self_signed(&key))
            .map_err(other)?;
        Ok(Self { certificate: certificate.der().clone(), key: key.serialize_der().into() })
    }

    /// Reads the identity from a file of [`Self::write`].
    ///
    /// # Errors
    /// If the file does not exist, is open to other users, or has no key and certificate.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let pem = Zeroizing::new(sabul_keys::read_guarded(path, true, IDENTITY_MAX)?);
        let invalid = |_| FileError::Content {
            path: path.to_owned(),
            reason: "no key and certificate: restore the file, or remove it for a new identity"
                .to_owned(),
        };
        let certificate = CertificateDer::from_pem_slice(&pem).map_err(invalid)?;
        let key = PrivatePkcs8KeyDer::from_pem_slice(&pem).map_err(invalid)?;
        Ok(Self { certificate, key })
    }

    /// Reads the identity from a file, or generates an identity and writes the file.
    ///
    /// # Errors
    /// As [`Self::read`] and [`Self::write`], or if the system has no random numbers.
    pub fn read_or_create(path: &Path) -> Result<Self, FileError> {
        match Self::read(path) {
            Err(error) if error.is_missing() => {}
            other => return other,
        }
        let identity = Self::generate().map_err(|error| FileError::Content {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        identity.write(path)?;
        Ok(identity)
    }

    /// Writes key and certificate as PEM to a file with mode 0600.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), FileError> {
        let mut pem = Zeroizing::new(String::new());
        push_pem(&mut pem, "PRIVATE KEY", self.key.secret_pkcs8_der());
        push_pem(&mut pem, "CERTIFICATE", &self.certificate);
        sabul_keys::write_private(path, pem.as_bytes())
    }

    /// Adds the key of the certificate to keys that can sign.
    pub(crate) fn add_to(&self, identities: &mut sabul_keys::Identities) -> bool {
        identities.add_p256(self.key.secret_pkcs8_der(), "key of this server")
    }

    /// SHA-256 of the certificate (DER), as in a ticket.
    pub fn fingerprint(&self) -> [u8; 32] {
        fingerprint(&self.certificate)
    }

    /// Name under which this listener registers at introducers: the same for each run with this identity, and known only
    /// to the holders of tickets.
    pub(crate) fn registration_name(&self) -> [u8; 16] {
        let key = Zeroizing::new(blake3::derive_key(NAME_CONTEXT, self.key.secret_pkcs8_der()));
        *key.first_chunk().expect("32 bytes hold 16")
    }

    /// The TLS configuration of a listener with this identity; shared by all connections.
    ///
    /// # Errors
    /// If key and certificate do not match.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let key = PrivateKeyDer::Pkcs8(self.key.clone_key());
        let mut config = ServerConfig::builder_with_provider(crypto_provider())
            .with_protocol_versions(&[&version::TLS13])
            .map(|builder| builder.with_no_client_auth())
            .and_then(|builder| builder.with_single_cert(vec![self.certificate.clone()], key))
            .map_err(TlsError::from)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        Ok(Arc::new(config))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("fingerprint", &HEXLOWER.encode(&self.fingerprint()))
            .finish_non_exhaustive()
    }
}

/// Appends a section of PEM [RFC7468].
fn push_pem(pem: &mut String, label: &str, der: &[u8]) {
    pem.push_str(&format!("-----BEGIN {label}-----\n"));
    let text = Zeroizing::new(BASE64.encode(der));
    for line in text.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem.push_str(&format!("-----END {label}-----\n"));
}

/// The TLS configuration of a connector that accepts only the certificate with this fingerprint.
///
/// # Errors
/// If the cryptography of this build does not support TLS 1.3.
pub fn client_config(fingerprint: [u8; 32]) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = crypto_provider();
    let verifier = PinnedCertificate { expected: fingerprint, provider: Arc::clone(&provider) };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    config.enable_sni = false;
    Ok(Arc::new(config))
}

/// Runs the connector's handshake with an authenticated listener that supports [`ALPN`].
///
/// Has no timeout of its own: the caller must limit the duration.
///
/// # Errors
/// If the peer does not support this protocol, has another key, or closes the connection.
pub async fn connect<S>(stream: S, fingerprint: [u8; 32]) -> Result<client::TlsStream<S>, TlsError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let name = ServerName::try_from(NAME).expect("a plain word is a valid name");
    let connector = TlsConnector::from(client_config(fingerprint)?);
    let stream = connector.connect(name, stream).await?;
    check_alpn(stream.get_ref().1)?;
    Ok(stream)
}

/// Runs the listener's handshake with a connector that supports [`ALPN`]; the connector is not
/// authorized yet.
///
/// Has no timeout of its own: the caller must limit the duration.
///
/// # Errors
/// If the peer does not support this protocol, rejects the certificate, or closes the connection.
pub async fn accept<S>(
    stream: S,
    config: Arc<ServerConfig>,
) -> Result<server::TlsStream<S>, TlsError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let stream = TlsAcceptor::from(config).accept(stream).await?;
    check_alpn(stream.get_ref().1)?;
    Ok(stream)
}

/// Reply of a listener without room for another connector: the fatal TLS alert `internal_error`,
/// unencrypted. [RFC 8446 §6]
pub(crate) const BUSY: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];

/// A complete ClientHello of a connector, not processed yet.
pub(crate) struct ClientHello(Accepted);

/// Waits for a connector's ClientHello. Costs only memory, up to the 64 KiB that TLS allows.
///
/// The stream is borrowed: until [`ClientHello::answer`] the caller can still send [`BUSY`].
pub(crate) async fn client_hello<S>(stream: &mut S) -> Result<ClientHello, TlsError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    Ok(ClientHello(LazyConfigAcceptor::new(Acceptor::default(), stream).await?.accepted))
}

impl ClientHello {
    /// Processes the ClientHello at once, which takes processor time. Returns the rest of the
    /// handshake on the same stream as a future, with the result of [`accept`].
    pub(crate) fn answer<S>(
        self,
        stream: S,
        config: Arc<ServerConfig>,
    ) -> impl Future<Output = Result<server::TlsStream<S>, TlsError>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let handshake = StartHandshake::from_parts(self.0, stream).into_stream(config);
        async move {
            let stream = handshake.await?;
            check_alpn(stream.get_ref().1)?;
            Ok(stream)
        }
    }
}

/// TLS accepts a peer that sends no ALPN extension; this check does not.
fn check_alpn(connection: &CommonState) -> Result<(), TlsError> {
    match connection.alpn_protocol() {
        Some(ALPN) => Ok(()),
        _ => Err(TlsError::NotSabul("it uses TLS without the protocol sabul/1".to_owned())),
    }
}

/// Exports `N` bytes that only the two ends of this connection can compute. [RFC 8446 §7.5]
///
/// # Errors
/// If the handshake is not complete.
pub fn exporter<const N: usize, Side>(
    connection: &ConnectionCommon<Side>,
    label: &[u8],
    context: &[u8],
) -> Result<[u8; N], TlsError> {
    Ok(connection.export_keying_material([0; N], label, Some(context))?)
}

/// The value that a ticket's proof covers, so that the proof is valid only on this connection.
///
/// # Errors
/// If the handshake is not complete.
pub fn proof_exporter<Side>(connection: &ConnectionCommon<Side>) -> Result<[u8; 32], TlsError> {
    exporter(connection, PROOF_LABEL, b"")
}

/// Identifier and key with which connections join a transfer, or replace the control connection of a session.
pub(crate) struct JoinSecrets {
    pub(crate) id: u64,
    pub(crate) key: [u8; 32],
}

impl Drop for JoinSecrets {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

impl fmt::Debug for JoinSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinSecrets").field("id", &self.id).finish_non_exhaustive()
    }
}

impl JoinSecrets {
    /// Splits exported bytes.
    pub(crate) fn new(exported: [u8; 40]) -> Self {
        let exported = Zeroizing::new(exported);
        let (id, rest) = exported.split_first_chunk().expect("40 bytes hold these 8");
        let mut secrets = Self { id: u64::from_be_bytes(*id), key: [0; 32] };
        secrets.key.copy_from_slice(rest);
        secrets
    }
}

/// Secrets of a channel, derived by both ends from their control connection.
pub struct ChannelSecrets {
    /// Identifier of the channel in datagrams; not a secret.
    pub connection_id: u64,
    /// Secret for datagrams from the connector to the listener.
    pub to_listener: [u8; 32],
    /// Secret for datagrams from the listener to the connector.
    pub to_connector: [u8; 32],
}

impl ChannelSecrets {
    /// Exports the secrets of channel number `channel` of this control connection.
    ///
    /// # Errors
    /// If the handshake is not complete.
    pub fn export<Side>(
        connection: &ConnectionCommon<Side>,
        channel: u32,
    ) -> Result<Self, TlsError> {
        exporter(connection, CHANNEL_LABEL, &Self::context(channel, 0)).map(Self::new)
    }

    /// Context of the exporter for a transfer's channel after this number of changes to TCP.
    pub(crate) fn context(transfer: u32, changes: u32) -> Vec<u8> {
        let mut context = transfer.to_be_bytes().to_vec();
        if changes > 0 {
            context.extend(changes.to_be_bytes());
        }
        context
    }

    /// Splits exported bytes.
    pub(crate) fn new(exported: [u8; 72]) -> Self {
        let exported = Zeroizing::new(exported);
        let mut secrets = Self { connection_id: 0, to_listener: [0; 32], to_connector: [0; 32] };
        let (connection_id, rest) = exported.split_first_chunk().expect("72 bytes hold these 8");
        secrets.connection_id = u64::from_be_bytes(*connection_id);
        let (to_listener, to_connector) = rest.split_at(32);
        secrets.to_listener.copy_from_slice(to_listener);
        secrets.to_connector.copy_from_slice(to_connector);
        secrets
    }
}

impl Drop for ChannelSecrets {
    fn drop(&mut self) {
        self.to_listener.zeroize();
        self.to_connector.zeroize();
    }
}

impl fmt::Debug for ChannelSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelSecrets")
            .field("connection_id", &self.connection_id)
            .finish_non_exhaustive()
    }
}

/// Reason why a handshake failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsError {
    /// The peer does not support TLS 1.3 with this ALPN, so it is another service; with a
    /// description of its behaviour.
    NotSabul(String),
    /// The listener's certificate has another fingerprint than expected.
    WrongKey {
        /// The fingerprint in the ticket.
        expected: [u8; 32],
        /// The fingerprint of the received certificate.
        found: [u8; 32],
    },
    /// The connector expected another listener and rejected the certificate.
    KeyRefused,
    /// The connection was closed during the handshake.
    Closed,
    /// The listener accepts no further connections now.
    Busy,
    /// Any other error.
    Other(String),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSabul(hint) => {
                write!(f, "peer is not a sabul of this version ({hint}): check address and port")
            }
            Self::WrongKey { expected, found } => write!(
                f,
                "listener has another key than the ticket says ({} instead of {}): get a fresh \
                 ticket; if this one is fresh, someone may be in between",
                HEXLOWER.encode(&found[..8]),
                HEXLOWER.encode(&expected[..8])
            ),
            Self::KeyRefused => f.write_str(
                "connector refused our key: its ticket is for another run of this listener",
            ),
            Self::Busy => f.write_str("listener has no room for more callers now: try again later"),
            Self::Closed => f.write_str("peer closed the connection during the TLS handshake"),
            Self::Other(reason) => write!(f, "TLS failed: {reason}"),
        }
    }
}

impl std::error::Error for TlsError {}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        use rustls::Error;
        match &error {
            Error::InvalidCertificate(CertificateError::Other(OtherError(cause))) => {
                match cause.downcast_ref::<WrongCertificate>() {
                    Some(WrongCertificate { expected, found }) => {
                        Self::WrongKey { expected: *expected, found: *found }
                    }
                    None => Self::Other(error.to_string()),
                }
            }
            // Alert that rustls sends if a verifier rejects a certificate for a custom reason.
            Error::AlertReceived(AlertDescription::CertificateUnknown) => Self::KeyRefused,
            Error::AlertReceived(AlertDescription::InternalError) => Self::Busy,
            Error::InvalidMessage(_) => Self::NotSabul("it does not send TLS".to_owned()),
            Error::NoApplicationProtocol
            | Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
                Self::NotSabul("it uses TLS without the protocol sabul/1".to_owned())
            }
            Error::PeerIncompatible(_)
            | Error::AlertReceived(
                AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure,
            )
            | Error::InappropriateMessage { .. }
            | Error::InappropriateHandshakeMessage { .. } => Self::NotSabul(error.to_string()),
            _ => Self::Other(error.to_string()),
        }
    }
}

impl From<io::Error> for TlsError {
    fn from(error: io::Error) -> Self {
        if let Some(tls) = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>()) {
            return tls.clone().into();
        }
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Other(error.to_string()),
        }
    }
}

/// Verifier that accepts one certificate, whatever its fields are, if the peer has its private key.
#[derive(Debug)]
struct PinnedCertificate {
    expected: [u8; 32],
    provider: Arc<CryptoProvider>,
}

/// Cause of a rejection by [`PinnedCertificate`], wrapped in a rustls error.
#[derive(Debug)]
struct WrongCertificate {
    expected: [u8; 32],
    found: [u8; 32],
}

impl fmt::Display for WrongCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("certificate is not the pinned one")
    }
}

impl std::error::Error for WrongCertificate {}

impl ServerCertVerifier for PinnedCertificate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found = fingerprint(end_entity);
        if found == self.expected {
            return Ok(ServerCertVerified::assertion());
        }
        let cause = WrongCertificate { expected: self.expected, found };
        Err(CertificateError::Other(OtherError(Arc::new(cause))).into())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not offered".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn fingerprint(certificate: &CertificateDer<'_>) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, certificate);
    digest.as_ref().try_into().expect("SHA-256 gives 32 bytes")
}

/// Only the hybrid key exchange is needed, because both ends are `sabul`. Recorded traffic stays
/// secure against quantum computers.
fn crypto_provider() -> Arc<CryptoProvider> {
    let kx_groups = vec![provider::kx_group::X25519MLKEM768];
    Arc::new(CryptoProvider { kx_groups, ..provider::default_provider() })
}

#[cfg(test)]
mod tests;
