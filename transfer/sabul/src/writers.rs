//! Registry of active writers. Lets a resumed transfer wait until the previous writer has released its journal lock.
//!
//! The journal of a transfer is locked while its writer exists. A sender that was killed and reconnects would find the
//! journal locked and send everything again. The lock lasts until the end of the old session is detected and written
//! data is flushed; after a silent network failure, the lock lasts for the silence timeout.
//! A new writer therefore waits for writers that are stopping. A new writer also stops writers of its own directory
//! whose sender has been silent for [`SILENT_AFTER`], and at once those of the same source whose control connection broke.
//! Not here:    the locks (`files/journal.rs`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use crate::channel::{ChannelError, PeerSilence};
use crate::control::Event;
use crate::lock::lock;
use sabul_files::root::RootPath;

/// Longest wait of a new writer, and its polling interval. Ours: flushing takes a second of disk time, or much longer
/// on a slow or busy disk; sending everything again would take longer.
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// A live sender sends at least twice a second, even without data. Ours: six losses in a row.
const SILENT_AFTER: Duration = Duration::from_secs(3);

/// Directory of a writer, and identifiers of its sources.
#[derive(Clone, Debug)]
pub(crate) struct WriterPlace {
    pub(crate) folder: RootPath,
    pub(crate) origins: Vec<[u8; 8]>,
}

impl WriterPlace {
    fn has_source_of(&self, other: &Self) -> bool {
        self.origins.iter().any(|origin| other.origins.contains(origin))
    }
}

/// Entry of an active writer.
#[derive(Clone, Debug)]
pub(crate) struct WriterNote {
    /// Stop flag of the writer; dropped with the writer.
    pub(crate) is_leaving: Weak<AtomicBool>,
    /// `None` if the output is no directory.
    pub(crate) place: Option<WriterPlace>,
    /// The control connection of the writer's session broke, and no other one has replaced it.
    pub(crate) is_cut: Arc<AtomicBool>,
    /// Silence of the writer's sender.
    pub(crate) peer_silence: PeerSilence,
    /// Receives the event that the channel has ended.
    pub(crate) event_sender: UnboundedSender<Event>,
}

impl WriterNote {
    fn is_leaving(&self) -> bool {
        self.is_leaving.upgrade().is_some_and(|flag| flag.load(Ordering::Acquire))
    }

    fn is_there(&self) -> bool {
        self.is_leaving.strong_count() > 0
    }

    fn is_in(&self, place: Option<&WriterPlace>) -> bool {
        let places = self.place.as_ref().zip(place);
        places.is_some_and(|(own, other)| own.folder == other.folder)
    }

    /// Whether the writer is stopping, or has lost its sender and writes to this directory.
    fn is_in_the_way(&self, place: Option<&WriterPlace>) -> bool {
        let is_silent = self.peer_silence.silence() >= SILENT_AFTER;
        let places = self.place.as_ref().zip(place);
        let is_lost = is_silent
            || self.is_cut.load(Ordering::Acquire)
                && places.is_some_and(|(own, other)| own.has_source_of(other));
        self.is_there() && (self.is_leaving() || is_lost && self.is_in(place))
    }

    /// Stops the writer.
    fn supersede(&self) {
        let _ = self.event_sender.send(Event::Channel(Err(ChannelError::Superseded)));
    }
}

/// Active writers of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Writers {
    notes: Mutex<Vec<WriterNote>>,
}

impl Writers {
    /// Registers a writer.
    pub(crate) fn note(&self, note: WriterNote) {
        let mut notes = lock(&self.notes);
        notes.retain(WriterNote::is_there);
        notes.push(note);
    }

    /// Waits for writers that block a new writer to this directory (see the module). A finished writer of this
    /// directory that does not stop soon waits for its sender's confirmation; that wait is then ended.
    pub(crate) async fn make_way(&self, place: Option<&WriterPlace>) {
        let mut leaving: Vec<WriterNote> = {
            let notes = lock(&self.notes);
            notes.iter().filter(|note| note.is_in_the_way(place)).cloned().collect()
        };
        leaving.iter().filter(|note| !note.is_leaving()).for_each(WriterNote::supersede);
        let began = Instant::now();
        let mut is_superseded = false;
        while began.elapsed() < TIMEOUT {
            leaving.retain(WriterNote::is_there);
            if leaving.is_empty() {
                return;
            }
            if !is_superseded && began.elapsed() >= SILENT_AFTER {
                leaving.iter().filter(|note| note.is_in(place)).for_each(WriterNote::supersede);
                is_superseded = true;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    fn place(name: &str) -> Option<WriterPlace> {
        Some(WriterPlace { folder: RootPath::new([name]).unwrap(), origins: vec![[1; 8]] })
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_writer_waits_only_for_writers_that_are_leaving() {
        let writers = Writers::default();
        let started = Instant::now();
        let (event_sender, _events) = unbounded_channel();
        let note = |flag: &Arc<AtomicBool>| WriterNote {
            is_leaving: Arc::downgrade(flag),
            place: place("a"),
            is_cut: Arc::default(),
            peer_silence: PeerSilence::default(),
            event_sender: event_sender.clone(),
        };
        let staying = Arc::new(AtomicBool::new(false));
        writers.note(note(&staying));
        writers.make_way(place("a").as_ref()).await;
        assert_eq!(started.elapsed(), Duration::ZERO);
        let leaving = Arc::new(AtomicBool::new(true));
        writers.note(note(&leaving));
        let gone = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(leaving);
        });
        writers.make_way(place("b").as_ref()).await;
        assert!((1000..1100).contains(&started.elapsed().as_millis()), "{:?}", started.elapsed());
        gone.await.unwrap();
        // A writer that hangs does not block forever.
        staying.store(true, Ordering::Release);
        writers.make_way(None).await;
        assert!(started.elapsed() < Duration::from_secs(32), "{:?}", started.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_writer_is_displaced_only_in_its_own_folder() {
        let writers = Writers::default();
        let (event_sender, mut events) = unbounded_channel();
        let flag = Arc::new(AtomicBool::new(false));
        let peer_silence = PeerSilence::default();
        let is_leaving = Arc::downgrade(&flag);
        writers.note(WriterNote {
            is_leaving,
            place: place("a"),
            is_cut: Arc::default(),
            peer_silence: peer_silence.clone(),
            event_sender,
        });
        peer_silence.set_silence(Duration::from_secs(2));
        writers.make_way(place("a").as_ref()).await;
        peer_silence.set_silence(Duration::from_secs(3));
        writers.make_way(place("b").as_ref()).await;
        writers.make_way(None).await;
        assert!(events.try_recv().is_err());
        let leaves = async {
            let reported = events.recv().await;
            assert!(
                matches!(reported, Some(Event::Channel(Err(ChannelError::Superseded)))),
                "{reported:?}"
            );
            drop(flag);
        };
        let started = Instant::now();
        let in_a = place("a");
        tokio::join!(leaves, writers.make_way(in_a.as_ref()));
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_without_control_connection_is_displaced_only_by_its_own_source() {
        let writers = Writers::default();
        let (event_sender, mut events) = unbounded_channel();
        let flag = Arc::new(AtomicBool::new(false));
        let is_cut = Arc::new(AtomicBool::new(false));
        writers.note(WriterNote {
            is_leaving: Arc::downgrade(&flag),
            place: place("a"),
            is_cut: Arc::clone(&is_cut),
            peer_silence: PeerSilence::default(),
            event_sender,
        });
        writers.make_way(place("a").as_ref()).await;
        is_cut.store(true, Ordering::Release);
        writers.make_way(place("b").as_ref()).await;
        let other = WriterPlace { origins: vec![[2; 8]], ..place("a").unwrap() };
        writers.make_way(Some(&other)).await;
        assert!(events.try_recv().is_err());
        let leaves = async {
            assert!(events.recv().await.is_some());
            drop(flag);
        };
        let (started, own) = (Instant::now(), place("a"));
        tokio::join!(leaves, writers.make_way(own.as_ref()));
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    }
}
