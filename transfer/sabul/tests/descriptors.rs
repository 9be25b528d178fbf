//! A listener that runs out of file descriptors. Alone in its process, because the limit applies to
//! the process.

use std::fs;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sabul::files::RemoteDestination;
use sabul::files::{Source, SourceSet};
use sabul::settings::{Direction, MeasureLimit};
use sabul::{
    Bytes, ConnectConfig, Error, Listener, ListenerConfig, Service, Session, Ticket,
    TransferOptions, connect,
};

/// Descriptor limit in this test: half of the descriptors may be sessions.
const FILES: u64 = 256;

async fn measured(session: &Session) -> Result<u64, Error> {
    let limit = MeasureLimit::default().bytes(Bytes(1000));
    let transfer = session.measure(Direction::Send, limit, &TransferOptions::default()).await?;
    transfer.finish().await.map(|report| report.bytes)
}

/// A session with the listener that has transferred data, or the error.
async fn session(ticket: &Ticket) -> Result<Session, Error> {
    let session = connect(ticket, ConnectConfig::default()).await?;
    measured(&session).await.map(|_| session)
}

#[test]
fn at_the_descriptor_limit_new_clients_wait_and_open_sessions_work() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(FILES), maximum }).unwrap();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    let test = async {
        let (root, from) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let config = ListenerConfig::new("127.0.0.1:0".parse().unwrap());
        let listener = Listener::bind(config).await.unwrap();
        let ticket = listener.ticket().clone();
        let service = Service::default().root(root.path()).measure(true);
        tokio::spawn(async move {
            while let Ok(session) = listener.accept().await {
                let service = service.clone();
                tokio::spawn(async move { session.serve(&service).await });
            }
        });
        let mut sessions = Vec::new();
        let mut waiting = loop {
            let mut next = Box::pin(session(&ticket));
            match tokio::time::timeout(Duration::from_millis(1500), &mut next).await {
                Ok(session) => sessions.push(session.unwrap()),
                Err(_) => break next,
            }
            assert!(sessions.len() < 200, "the limit does not hold");
        };
        assert!(sessions.len() > 30, "{}", sessions.len());

        // An admitted session continues, with a hundred files.
        for number in 0..100 {
            fs::write(from.path().join(number.to_string()), b"content").unwrap();
        }
        let set = SourceSet::local(vec![Source::Path(from.path().to_owned())], true).unwrap();
        let options = TransferOptions::default();
        let to = RemoteDestination::default();
        let transfer = sessions[0].put(set, to, &options).await.unwrap();
        let report = transfer.finish().await.unwrap();
        assert_eq!((report.files, report.entries_failed), (100, 0));

        // After some sessions have closed, the waiting connector is admitted.
        for session in sessions.drain(..10) {
            session.close().await;
        }
        (&mut waiting).await.unwrap();
    };
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), test).await }).unwrap();
    runtime.shutdown_timeout(Duration::from_secs(1));
}
