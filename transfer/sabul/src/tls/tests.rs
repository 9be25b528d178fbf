//! Tests of the TLS handshake: pinned keys and other services.

use std::collections::BTreeSet;
use std::time::Duration;

use rustls::NamedGroup;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::*;

type Client = Result<client::TlsStream<DuplexStream>, TlsError>;
type Server = Result<server::TlsStream<DuplexStream>, TlsError>;

/// Runs both halves of a test, within ten seconds.
async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    tokio::time::timeout(Duration::from_secs(10), async { tokio::join!(a, b) })
        .await
        .expect("a handshake in memory takes milliseconds")
}

async fn handshake(expected: [u8; 32], config: Arc<ServerConfig>) -> (Client, Server) {
    let (near, far) = duplex(1 << 16);
    both(connect(near, expected), accept(far, config)).await
}

/// Runs a connector against a peer that reads once, sends `reply` and closes.
async fn against(reply: &[u8]) -> TlsError {
    let (near, mut far) = duplex(1 << 16);
    let peer = async move {
        far.read_u8().await.unwrap();
        far.write_all(reply).await.unwrap();
    };
    both(connect(near, [0; 32]), peer).await.0.unwrap_err()
}

#[tokio::test]
async fn the_pinned_listener_is_accepted_with_post_quantum_key_exchange() {
    let identity = Identity::generate().unwrap();
    let (client, server) =
        handshake(identity.fingerprint(), identity.server_config().unwrap()).await;
    let (mut client, mut server) = (client.unwrap(), server.unwrap());
    let (_, connection) = client.get_ref();
    let group = connection.negotiated_key_exchange_group().unwrap().name();
    assert_eq!(group, NamedGroup::X25519MLKEM768);
    assert_eq!(connection.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
    assert_eq!(connection.alpn_protocol(), Some(ALPN));
    assert_eq!(connection.peer_certificates().unwrap().len(), 1);
    let mut received = [0; 5];
    let (sent, read) = both(
        async {
            client.write_all(b"hello").await?;
            client.flush().await
        },
        server.read_exact(&mut received),
    )
    .await;
    sent.unwrap();
    read.unwrap();
    assert_eq!(&received, b"hello");
}

#[tokio::test]
async fn a_wrong_key_is_refused_and_both_ends_get_the_reason() {
    let (expected, found) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let (client, server) = handshake(expected.fingerprint(), found.server_config().unwrap()).await;
    let (expected, found) = (expected.fingerprint(), found.fingerprint());
    assert_eq!(client.unwrap_err(), TlsError::WrongKey { expected, found });
    assert_eq!(server.unwrap_err(), TlsError::KeyRefused);
}

#[tokio::test]
async fn the_pinned_certificate_without_its_key_is_refused() {
    let (victim, thief) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    // A custom resolver does not check that key and certificate match; an impostor could do the
    // same.
    let key = PrivateKeyDer::Pkcs8(thief.key.clone_key());
    let certified = rustls::sign::CertifiedKey::new(
        vec![victim.certificate.clone()],
        provider::sign::any_supported_type(&key).unwrap(),
    );
    let mut config = ServerConfig::builder_with_provider(crypto_provider())
        .with_protocol_versions(&[&version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    let (client, server) = handshake(victim.fingerprint(), Arc::new(config)).await;
    let error = client.unwrap_err();
    assert!(matches!(&error, TlsError::Other(reason) if reason.contains("Signature")), "{error}");
    assert!(server.is_err());
}

#[tokio::test]
async fn a_peer_without_tls_is_reported_as_not_sabul() {
    for reply in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"SSH-2.0-OpenSSH_9.9\r\n"] {
        let error = against(reply).await;
        assert!(matches!(error, TlsError::NotSabul(_)), "{error}");
    }
    let config = Identity::generate().unwrap().server_config().unwrap();
    let (mut near, far) = duplex(1 << 16);
    let browser = async move {
        near.write_all(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n").await.unwrap();
        near.read_to_end(&mut Vec::new()).await.unwrap();
    };
    let (_, error) = both(browser, accept(far, config)).await;
    let error = error.unwrap_err();
    assert!(matches!(error, TlsError::NotSabul(_)), "{error}");
}

#[tokio::test]
async fn a_peer_with_classical_key_exchange_only_is_refused_by_either_end() {
    let classical = CryptoProvider {
        kx_groups: vec![provider::kx_group::X25519],
        ..provider::default_provider()
    };
    let identity = Identity::generate().unwrap();
    let verifier =
        PinnedCertificate { expected: identity.fingerprint(), provider: crypto_provider() };
    let mut config = ClientConfig::builder_with_provider(Arc::new(classical.clone()))
        .with_protocol_versions(&[&version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    let (near, far) = duplex(1 << 16);
    let connector = TlsConnector::from(Arc::new(config));
    let dialling = connector.connect(ServerName::try_from(NAME).unwrap(), near);
    let (client, server) = both(dialling, accept(far, identity.server_config().unwrap())).await;
    assert!(client.is_err());
    assert!(matches!(server, Err(TlsError::NotSabul(_))), "{server:?}");

    let key = PrivateKeyDer::Pkcs8(identity.key.clone_key());
    let mut config = ServerConfig::builder_with_provider(Arc::new(classical))
        .with_protocol_versions(&[&version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![identity.certificate.clone()], key)
        .unwrap();
    config.alpn_protocols = vec![ALPN.to_vec()];
    let (client, server) = handshake(identity.fingerprint(), Arc::new(config)).await;
    assert!(matches!(client, Err(TlsError::NotSabul(_))), "{client:?}");
    assert!(server.is_err());
}

#[tokio::test]
async fn a_closed_connection_is_reported_as_closed() {
    assert_eq!(against(b"").await, TlsError::Closed);
    let config = Identity::generate().unwrap().server_config().unwrap();
    let (near, far) = duplex(1 << 16);
    drop(near);
    assert_eq!(both(async {}, accept(far, config)).await.1.unwrap_err(), TlsError::Closed);
}

#[tokio::test]
async fn tls_with_another_application_protocol_or_none_is_not_sabul() {
    let identity = Identity::generate().unwrap();
    for protocols in [vec![b"h2".to_vec()], Vec::new()] {
        let mut config = ServerConfig::clone(&identity.server_config().unwrap());
        config.alpn_protocols = protocols.clone();
        let (client, _) = handshake(identity.fingerprint(), Arc::new(config)).await;
        let error = client.unwrap_err();
        assert!(matches!(error, TlsError::NotSabul(_)), "{protocols:?}: {error}");

        let mut config = ClientConfig::clone(&client_config(identity.fingerprint()).unwrap());
        config.alpn_protocols = protocols.clone();
        let (near, far) = duplex(1 << 16);
        let name = ServerName::try_from(NAME).unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        let (_, error) =
            both(connector.connect(name, near), accept(far, identity.server_config().unwrap()))
                .await;
        let error = error.unwrap_err();
        assert!(matches!(error, TlsError::NotSabul(_)), "{protocols:?}: {error}");
    }
}

#[tokio::test]
async fn exported_keys_match_at_both_ends_and_differ_per_channel_and_connection() {
    let identity = Identity::generate().unwrap();
    let mut seen = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for _ in 0..2 {
        let (client, server) =
            handshake(identity.fingerprint(), identity.server_config().unwrap()).await;
        let (client, server) = (client.unwrap(), server.unwrap());
        let (client, server) = (client.get_ref().1, server.get_ref().1);
        let proof = proof_exporter(client).unwrap();
        assert_eq!(proof, proof_exporter(server).unwrap());
        assert!(seen.insert(proof));
        for channel in [0, 1, u32::MAX] {
            let ours = ChannelSecrets::export(client, channel).unwrap();
            let theirs = ChannelSecrets::export(server, channel).unwrap();
            assert_eq!(ours.connection_id, theirs.connection_id);
            assert_eq!(ours.to_listener, theirs.to_listener);
            assert_eq!(ours.to_connector, theirs.to_connector);
            assert!(seen.insert(ours.to_listener) && seen.insert(ours.to_connector));
            assert!(ids.insert(ours.connection_id));
        }
    }
    assert_eq!(seen.len(), 14);
}

#[test]
fn no_keys_are_exported_before_the_handshake() {
    let name = ServerName::try_from(NAME).unwrap();
    let config = client_config([0; 32]).unwrap();
    let connection = rustls::ClientConnection::new(config, name).unwrap();
    assert!(proof_exporter(&connection).is_err());
    assert!(ChannelSecrets::export(&connection, 0).is_err());
}

#[test]
fn debug_output_shows_no_secret() {
    let identity = Identity::generate().unwrap();
    let key = format!("{:?}", &identity.key.secret_pkcs8_der()[40..60]);
    let text = format!("{identity:?}");
    assert!(text.contains(&HEXLOWER.encode(&identity.fingerprint())), "{text}");
    assert!(!text.contains(key.trim_matches(['[', ']'])), "{text}");
    let secrets =
        ChannelSecrets { connection_id: 9, to_listener: [171; 32], to_connector: [172; 32] };
    let text = format!("{secrets:?}");
    assert!(text.contains('9') && !text.contains("171") && !text.contains("172"), "{text}");
}
