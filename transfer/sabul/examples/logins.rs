//! Cost of a login at a standing listener with few and with many authorized keys: medians over alternating sessions.
//!
//! `cargo run --release -p sabul --example logins -- [KEYS [SESSIONS]]`; needs `ssh-keygen`.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use data_encoding::BASE64;
use sabul::keys::{
    AuthorizedKeys, Fingerprint, Identities, Search, ServerIdentity, StandingAccess,
};
use sabul::{ConnectConfig, Listener, ListenerConfig, Service, keys};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A public key of ssh with arbitrary bytes.
fn line(number: u64) -> String {
    let mut blob = b"\0\0\0\x0bssh-ed25519\0\0\0\x20".to_vec();
    blob.extend(blake3::hash(&number.to_be_bytes()).as_bytes());
    format!("rights=\"read\" ssh-ed25519 {} user {number}\n", BASE64.encode(&blob))
}

/// A listener with these keys; the file is old, so it is read once.
async fn listener(folder: &Path, name: &str, text: &str) -> Outcome<(String, Fingerprint)> {
    let file = folder.join(name);
    fs::write(&file, text)?;
    let old = SystemTime::now() - Duration::from_secs(60);
    fs::File::options().write(true).open(&file)?.set_modified(old)?;
    let begun = Instant::now();
    let keys = AuthorizedKeys::open(&file)?;
    println!("{} keys read in {:.1} ms", keys.count(), begun.elapsed().as_secs_f64() * 1e3);
    let identity = ServerIdentity::generate()?;
    let server = Fingerprint(identity.fingerprint());
    let access = StandingAccess::new(identity).keys(keys);
    let config = ListenerConfig::new("127.0.0.1:0".parse()?).standing(access);
    let listener = Listener::bind(config).await?;
    let address = listener.local_addr().to_string();
    let root = folder.to_owned();
    tokio::spawn(async move {
        while let Ok(session) = listener.accept().await {
            let service = Service::default().root(&root);
            tokio::spawn(async move { session.serve(&service).await.map(drop) });
        }
    });
    Ok((address, server))
}

/// Time from dialling to the answer of a first request.
async fn session(
    (address, server): &(String, Fingerprint),
    identities: &Arc<Identities>,
) -> Outcome<Duration> {
    let begun = Instant::now();
    let config = ConnectConfig::default();
    let session = keys::connect(address, *server, identities, config).await?;
    session.make_folders(vec![b"made".to_vec()], true).await?;
    let took = begun.elapsed();
    session.close().await;
    Ok(took)
}

fn median_ms(times: &mut [Duration]) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e3
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let count = words.next().transpose()?.unwrap_or(10_000);
    let sessions = words.next().transpose()?.unwrap_or(200);
    let folder = tempfile::tempdir()?;
    let key = folder.path().join("key");
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status()?;
    let own = fs::read_to_string(key.with_extension("pub"))?;
    let mut search = Search::default();
    search.file = Some(key);
    let identities = Arc::new(Identities::find(&search));
    let many: String = (1..count).map(line).chain([own.clone()]).collect();
    let few = listener(folder.path(), "few", &own).await?;
    let many = listener(folder.path(), "many", &many).await?;
    let (mut of_few, mut of_many) = (Vec::new(), Vec::new());
    for round in 0..sessions {
        // Each of the two is the first one in every second round.
        for is_many in [round % 2 == 0, round % 2 == 1] {
            let (at, times) = if is_many { (&many, &mut of_many) } else { (&few, &mut of_few) };
            times.push(session(at, &identities).await?);
        }
    }
    let (few, many) = (median_ms(&mut of_few), median_ms(&mut of_many));
    println!("1 key: {few:.3} ms, {count} keys: {many:.3} ms, difference {:.3} ms", many - few);
    Ok(())
}
