//! Logins by key at the level of messages: each proof is valid only for its purpose and its connection.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::future::Future;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use sabul::internal::tls;
use sabul::keys::{
    AuthorizedKeys, Fingerprint, Identities, Search, ServerIdentity, StandingAccess,
};
use sabul::{ConnectConfig, Error, Listener, ListenerConfig, Service, keys};
use sabul_wire::control::{CONTROL_VERSION, Failure, FailureCode, Message};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::hostile::{receive, say};

const NAMESPACE: &str = "sabul-session@v1";
const LABEL: &[u8] = b"EXPORTER-sabul-login";

fn run<T>(test: impl Future<Output = T>) -> T {
    crate::common::within(Duration::from_secs(60), test)
}

/// A standing listener, an authorized key and another key.
struct Site {
    folder: TempDir,
    listener: Arc<Listener>,
    server: Fingerprint,
    known: Arc<Identities>,
    unknown: Arc<Identities>,
}

/// Makes a key and returns it with its public half; `None` without OpenSSH.
fn keygen(folder: &Path, name: &str) -> Option<(Identities, String)> {
    let path = folder.join(name);
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"]).arg(&path);
    let Ok(status) = command.status() else {
        println!("skipped: there is no ssh-keygen");
        return None;
    };
    assert!(status.success());
    let mut search = Search::default();
    search.file = Some(path.clone());
    let public = fs::read_to_string(path.with_extension("pub")).unwrap();
    Some((Identities::find(&search), public))
}

impl Site {
    async fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let (known, line) = keygen(folder.path(), "known")?;
        let (unknown, _) = keygen(folder.path(), "unknown")?;
        let file = folder.path().join("authorized_keys");
        fs::write(&file, line).unwrap();
        let identity = ServerIdentity::generate().unwrap();
        let server = Fingerprint(identity.fingerprint());
        let access = StandingAccess::new(identity).keys(AuthorizedKeys::open(&file).unwrap());
        let mut config = ListenerConfig::new("127.0.0.1:0".parse().unwrap());
        config.standing = Some(access);
        let listener = Arc::new(Listener::bind(config).await.unwrap());
        let (known, unknown) = (Arc::new(known), Arc::new(unknown));
        Some(Self { folder, listener, server, known, unknown })
    }

    /// Connects without authentication.
    async fn dial(&self) -> TlsStream<TcpStream> {
        let tcp = TcpStream::connect(self.listener.local_addr()).await.unwrap();
        tls::connect(tcp, self.server.0).await.unwrap()
    }
}

fn exporter(stream: &TlsStream<TcpStream>, label: &[u8]) -> [u8; 32] {
    tls::exporter(&**stream.get_ref().1, label, b"").unwrap()
}

fn login(signature: Vec<u8>) -> Message {
    let software = "hostile".to_owned();
    Message::Login { version: CONTROL_VERSION, signature, suites: vec![1], software }
}

/// Sends a message and returns the answer.
async fn answer(stream: &mut TlsStream<TcpStream>, message: &Message) -> Option<Message> {
    assert!(say(stream, message).await);
    receive(stream).await
}

#[track_caller]
fn expect_refusal(answer: Option<Message>, part: &str) {
    let Some(Message::Cancel { transfer: None, failure }) = answer else { panic!("{answer:?}") };
    assert_eq!(failure.code, FailureCode::Authentication, "{failure}");
    assert!(failure.message.contains(part), "{failure}");
}

#[test]
fn a_signature_is_valid_only_for_its_purpose_and_its_connection() {
    run(async {
        let Some(site) = Site::new().await else { return };
        let sign = |namespace, message: &[u8]| site.known.sign(0, namespace, message).unwrap();

        let mut good = site.dial().await;
        let signature = sign(NAMESPACE, &exporter(&good, LABEL));
        let welcome = answer(&mut good, &login(signature.clone())).await;
        assert!(matches!(welcome, Some(Message::Welcome { .. })), "{welcome:?}");

        // A replay on another connection.
        let refused = answer(&mut site.dial().await, &login(signature)).await;
        expect_refusal(refused, "does not belong to this connection");

        // A forged value, and the value of a ticket's proof.
        let mut stream = site.dial().await;
        let refused = answer(&mut stream, &login(sign(NAMESPACE, &[7; 32]))).await;
        expect_refusal(refused, "does not belong to this connection");
        let mut stream = site.dial().await;
        let other = exporter(&stream, b"EXPORTER-sabul-ticket-proof");
        let refused = answer(&mut stream, &login(sign(NAMESPACE, &other))).await;
        expect_refusal(refused, "does not belong to this connection");

        let mut stream = site.dial().await;
        let value = exporter(&stream, LABEL);
        let refused = answer(&mut stream, &login(sign("sabul-receipt@v1", &value))).await;
        expect_refusal(refused, "namespace 'sabul-receipt@v1'");

        let mut stream = site.dial().await;
        let value = exporter(&stream, LABEL);
        let signature = site.unknown.sign(0, NAMESPACE, &value).unwrap();
        expect_refusal(answer(&mut stream, &login(signature)).await, "is authorized");

        for garbage in [vec![], vec![0; 4000], b"SSHSIG".to_vec()] {
            let refused = answer(&mut site.dial().await, &login(garbage)).await;
            expect_refusal(refused, "no valid form");
        }
    });
}

#[test]
fn an_offer_without_a_signature_is_not_enough() {
    run(async {
        let Some(site) = Site::new().await else { return };
        let offer = |keys: &[&Identities]| Message::Offer {
            version: CONTROL_VERSION,
            keys: keys.iter().flat_map(|it| it.fingerprints()).map(|key| key.0).collect(),
        };
        let refused = answer(&mut site.dial().await, &offer(&[&site.unknown])).await;
        expect_refusal(refused, "none of the 1 offered keys is authorized");
        expect_refusal(answer(&mut site.dial().await, &offer(&[])).await, "none of the 0");

        let both = offer(&[&site.unknown, &site.known]);
        let mut stream = site.dial().await;
        assert_eq!(answer(&mut stream, &both).await, Some(Message::Choose { key: 1 }));
        // Only the signature counts, and a second offer is no greeting.
        let value = exporter(&stream, LABEL);
        let signature = site.unknown.sign(0, NAMESPACE, &value).unwrap();
        expect_refusal(answer(&mut stream, &login(signature)).await, "is authorized");
        let mut stream = site.dial().await;
        assert_eq!(answer(&mut stream, &both).await, Some(Message::Choose { key: 1 }));
        assert_eq!(answer(&mut stream, &both).await, None);

        // The ticket of this run is not accepted, because the configuration does not say so.
        let mut stream = site.dial().await;
        let secret = site.listener.ticket().secret();
        let value = tls::proof_exporter(&**stream.get_ref().1).unwrap();
        let proof = sabul::internal::ticket::proof(secret, &value);
        let software = String::new();
        let hello = Message::Hello { version: CONTROL_VERSION, proof, suites: vec![1], software };
        expect_refusal(answer(&mut stream, &hello).await, "secret is wrong");

        // More bytes than a login has are not read.
        let mut stream = site.dial().await;
        stream.write_all(&[0, 1, 0, 0]).await.unwrap();
        assert_eq!(receive(&mut stream).await, None);
        let other = Message::Offer { version: CONTROL_VERSION + 1, keys: vec![] };
        let answer = answer(&mut site.dial().await, &other).await;
        let Some(Message::Cancel { failure: Failure { code, .. }, .. }) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(code, FailureCode::Version);
    });
}

#[test]
fn a_session_by_key_knows_its_user_and_serves_files() {
    run(async {
        let Some(site) = Site::new().await else { return };
        let address = site.listener.local_addr().to_string();
        let found = keys::fingerprint_at(&address, Duration::from_secs(10)).await.unwrap();
        assert_eq!(found, site.server);
        let root = site.folder.path().join("root");
        fs::create_dir(&root).unwrap();
        let listener = Arc::clone(&site.listener);
        let serving = tokio::spawn(async move {
            let session = listener.accept().await.unwrap();
            let name = session.user().unwrap().name.clone();
            session.serve(&Service::default().root(root)).await.map(|_| name)
        });
        let config = ConnectConfig::default();
        let session = keys::connect(&address, site.server, &site.known, config).await.unwrap();
        let mut folder = session.make_folders(vec![b"made".to_vec()], false).await.unwrap();
        assert!(std::mem::take(&mut folder.failures).is_empty());
        session.close().await;
        let name = serving.await.unwrap().unwrap();
        assert_eq!(name, site.known.fingerprints()[0].to_string());
        assert!(site.folder.path().join("root/made").is_dir());

        let config = ConnectConfig::default();
        let wrong = keys::connect(&address, Fingerprint([1; 32]), &site.known, config).await;
        assert!(matches!(wrong, Err(Error::Authentication(_))), "{wrong:?}");
    });
}
