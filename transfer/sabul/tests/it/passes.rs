//! Passes: tickets of a listener for another machine, for one copy on behalf of a user.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sabul::files::{LocalDestination, RemoteDestination, SourceSet, View};
use sabul::server::{Permit, ServedFiles, StreamAnswer, StreamRequest, StreamService, Streams};
use sabul::{
    ConnectConfig, Error, ErrorKind, Listener, ListenerConfig, Service, Session, Ticket,
    TransferOptions,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Answers each stream with a pass: to read the sources behind `read:`, or for the destination that the stream names.
struct Admitting;

impl StreamService for Admitting {
    fn answer(self: Arc<Self>, request: StreamRequest, _files: ServedFiles) -> StreamAnswer {
        Box::pin(async move {
            let permit = match request.name.strip_prefix("read:") {
                Some(source) => Permit::Get(vec![source.as_bytes().to_vec()]),
                None => Permit::Put(request.name.clone().into_bytes()),
            };
            let ticket = request.admit(permit)?;
            let mut stream = request.accept_sender()?;
            stream.write_all(ticket.to_string().as_bytes()).await.unwrap();
            stream.finish().await.map(|_| None)
        })
    }
}

/// Starts a listener that serves this directory, and returns its ticket.
async fn listen(root: &Path) -> Ticket {
    let listener =
        Listener::bind(ListenerConfig::new("127.0.0.1:0".parse().unwrap())).await.unwrap();
    let (ticket, service) = (listener.ticket().clone(), Service::default().root(root));
    tokio::spawn(async move {
        while let Ok(session) = listener.accept().await {
            let service = service.clone();
            tokio::spawn(async move {
                let _ =
                    session.serve_with(&service, Some(Streams(Arc::new(Admitting))), |_| {}).await;
            });
        }
    });
    ticket
}

async fn connect(ticket: &Ticket) -> Session {
    sabul::connect(ticket, ConnectConfig::default()).await.unwrap()
}

/// Requests a pass for this destination.
async fn pass(session: &Session, destination: &str) -> Ticket {
    let mut stream =
        session.receive_stream(destination, &TransferOptions::default()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text.parse().unwrap()
}

async fn put(session: &Session, source: &Path, destination: &str) -> Result<u64, Error> {
    let to = RemoteDestination::path(destination);
    let transfer = session.put(SourceSet::path(source), to, &TransferOptions::default()).await?;
    Ok(transfer.finish().await?.into_result()?.bytes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pass_permits_its_destination_once_and_nothing_else() {
    let (root, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = here.path().join("source");
    std::fs::write(&source, b"content").unwrap();
    std::fs::write(root.path().join("other"), b"private").unwrap();
    let user = connect(&listen(root.path()).await).await;
    let ticket = pass(&user, "in").await;
    let holder = connect(&ticket).await;
    let is_refused =
        |error: Error| assert!(error.to_string().contains("permits one copy"), "{error}");
    is_refused(put(&holder, &source, "other").await.unwrap_err());
    is_refused(put(&holder, &source, "in/").await.unwrap_err());
    let options = TransferOptions::default();
    let to = LocalDestination::directory(here.path());
    let read = holder.get(vec![b"other".to_vec()], false, to, &options).await.unwrap();
    is_refused(read.finish().await.unwrap_err());
    let mut listing = holder.list(vec![Vec::new()], View::Content, Vec::new()).unwrap();
    is_refused(listing.next().await.unwrap_err());
    // No pass makes another one.
    let further = holder.receive_stream("other", &options).await.unwrap();
    is_refused(further.finish().await.unwrap_err());
    assert_eq!(put(&holder, &source, "in").await.unwrap(), 7);
    assert_eq!(std::fs::read(root.path().join("in")).unwrap(), b"content");
    assert_eq!(std::fs::read(root.path().join("other")).unwrap(), b"private");
    let second = connect(&ticket).await;
    let error = put(&second, &source, "in").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Authentication, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pass_to_read_leads_to_no_file_behind_a_link_out_of_its_sources() {
    let (root, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir(root.path().join("named")).unwrap();
    std::fs::write(root.path().join("private"), b"private").unwrap();
    std::fs::write(root.path().join("named/file"), b"content").unwrap();
    std::os::unix::fs::symlink("../private", root.path().join("named/link")).unwrap();
    let user = connect(&listen(root.path()).await).await;
    let holder = connect(&pass(&user, "read:named").await).await;
    let read = async |options: &TransferOptions| {
        let to = LocalDestination::directory(here.path());
        let transfer = holder.get(vec![b"named".to_vec()], true, to, options).await.unwrap();
        transfer.finish().await
    };
    let error = read(&TransferOptions::default().links_out(true)).await.unwrap_err();
    assert!(error.to_string().contains("permits one copy"), "{error}");
    read(&TransferOptions::default()).await.unwrap();
    assert_eq!(std::fs::read(here.path().join("named/file")).unwrap(), b"content");
    assert!(!here.path().join("named/link").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pass_ends_with_the_session_of_its_user() {
    let (root, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = here.path().join("source");
    std::fs::write(&source, vec![7; 8 << 20]).unwrap();
    let user = connect(&listen(root.path()).await).await;
    let holder = connect(&pass(&user, "in").await).await;
    let unused = pass(&user, "in").await;
    let options = TransferOptions::default().rate_limit(Some("8M".parse().unwrap()));
    let to = RemoteDestination::path("in");
    let transfer = holder.put(SourceSet::path(&source), to, &options).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    user.close().await;
    let ended = tokio::time::timeout(Duration::from_secs(5), transfer.finish()).await;
    let error = ended.expect("the copy ends").unwrap_err();
    assert!(error.to_string().contains("has ended"), "{error}");
    assert!(!root.path().join("in").exists());
    let late = connect(&unused).await;
    let error = put(&late, &source, "in").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Authentication, "{error}");
}
