//! Router between two TUN devices: one thread that reads, paces and writes packets in real time.
//!
//! Model: packets that the kernel routes into the near device cross the bottleneck and leave by the
//!     far device. Packets routed into the far device leave by the near device at once.
//!     Neighbouring segments that leave together form one frame, as from a network card with
//!     receive offload.
//! Time: the arrival time is the time of reading, which under load is up to one [`TICK`] late.
//!     Departures happen at or after their due time, never before; their lateness is measured.
//! Limits: one thread, so one core.

use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::time::{ClockId, clock_gettime};
use sabul_tun::{Bundle, Device, FRAME_MAX};
use sabul_units::{Instant, Span};

use crate::bottleneck::{Bottleneck, Leaving};
use crate::error::RouterError;
use crate::frames::Frames;
use crate::settings::Settings;
use crate::snapshot::RouterSnapshot;

/// Sleep of a busy router between two rounds. A shorter sleep keeps the schedule better, a longer
/// sleep makes larger frames.
const TICK: Duration = Duration::from_micros(50);
/// Most frames read from each device before due packets are written.
const FRAMES_PER_TURN: usize = 64;
/// Queue of each device in frames: holds arrivals of 30 ms at 300 000 packets per second, without
/// offload, while the thread does not run.
const DEVICE_QUEUE_FRAMES: u32 = 10_000;
/// Interval at which the counters are published.
const PUBLISH: Span = Span::from_millis(50);
/// Longest sleep of an idle router before the check for its end.
const POLL_INTERVAL: Span = Span::from_millis(100);

/// A running router; dropping the router ends its thread.
#[derive(Debug)]
pub struct Router {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    is_ended: AtomicBool,
    snapshot: Mutex<RouterSnapshot>,
    fault: Mutex<Option<RouterError>>,
}

impl Router {
    /// Creates the two devices and starts forwarding. Traffic to be paced enters at `near` and
    /// leaves at `far`. An existing TUN device of that name is used.
    ///
    /// # Errors
    /// If a setting is outside its range, a device cannot be opened, or the system fails.
    pub fn start(settings: &Settings, near: &str, far: &str) -> Result<Self, RouterError> {
        // Checks the settings first; the thread builds its own bottleneck, which cannot move
        // between threads.
        Bottleneck::new(settings)?;
        if near == far {
            let allowed = "two devices: where traffic goes in, and where it comes out";
            return Err(RouterError::setting("--device", format!("'{near}' twice"), allowed));
        }
        let near = (Device::open_with_room(near, DEVICE_QUEUE_FRAMES)?, near.to_owned());
        let far = (Device::open_with_room(far, DEVICE_QUEUE_FRAMES)?, far.to_owned());
        let epoll = readable(&near.0, &far.0).map_err(RouterError::system("wait for packets"))?;
        let shared = Arc::<Shared>::default();
        let (theirs, settings) = (Arc::clone(&shared), settings.clone());
        let thread = std::thread::Builder::new()
            .name("sabul-router".to_owned())
            .spawn(move || forward(&settings, near, far, epoll, &theirs))
            .map_err(RouterError::system("start its thread"))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Returns a snapshot, at most 50 ms old.
    pub fn snapshot(&self) -> RouterSnapshot {
        self.shared.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether the router still forwards; it ends by itself when a device disappears.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Stops forwarding, discards queued packets and returns the last snapshot.
    ///
    /// # Errors
    /// If the router had ended by itself.
    pub fn stop(mut self) -> Result<RouterSnapshot, RouterError> {
        self.join();
        match self.shared.fault.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(fault) => Err(fault),
            None => Ok(self.snapshot()),
        }
    }

    fn join(&mut self) {
        self.shared.is_ended.store(true, Ordering::Relaxed);
        let has_panicked = self.thread.take().is_some_and(|thread| thread.join().is_err());
        if has_panicked {
            let source = io::Error::other("its thread has ended");
            let fault = RouterError::System { action: "go on".to_owned(), source };
            self.shared.fail(fault);
        }
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.join();
    }
}

impl Shared {
    fn fail(&self, fault: RouterError) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
    }
}

fn readable(near: &Device, far: &Device) -> io::Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (number, device) in [(0, near), (1, far)] {
        epoll::add(&epoll, device, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
    }
    Ok(epoll)
}

/// Main function of the router's thread.
fn forward(
    settings: &Settings,
    near: (Device, String),
    far: (Device, String),
    epoll: OwnedFd,
    shared: &Shared,
) {
    // By default the kernel may wake a thread 50 us late. A refusal only reduces accuracy, which is
    // measured.
    let _ = rustix::thread::set_current_timer_slack(Some(std::num::NonZeroU64::MIN));
    let _ = rustix::process::setpriority_process(None, -20);
    let result = Bottleneck::new(settings).and_then(|bottleneck| {
        let mut engine = Engine {
            near,
            far,
            epoll,
            bottleneck,
            start: std::time::Instant::now(),
            out: Vec::new(),
            own: RouterSnapshot::default(),
            frame: vec![0; FRAME_MAX].into_boxed_slice(),
            frames: Frames::default(),
        };
        engine.run(shared)
    });
    if let Err(fault) = result {
        shared.fail(fault);
    }
}

struct Engine {
    near: (Device, String),
    far: (Device, String),
    epoll: OwnedFd,
    bottleneck: Bottleneck,
    start: std::time::Instant,
    /// Due packets, to be written now.
    out: Vec<Leaving>,
    /// Counters of the engine itself.
    own: RouterSnapshot,
    frame: Box<[u8]>,
    frames: Frames,
}

impl Engine {
    fn now(&self) -> Instant {
        Instant::ZERO + self.start.elapsed().into()
    }

    fn run(&mut self, shared: &Shared) -> Result<(), RouterError> {
        let mut published = Instant::ZERO;
        loop {
            let has_moved = self.round();
            let now = self.now();
            let is_ended = shared.is_ended.load(Ordering::Relaxed);
            if is_ended || now.since(published) >= PUBLISH {
                published = now;
                *shared.snapshot.lock().unwrap_or_else(PoisonError::into_inner) =
                    self.snapshot(now);
            }
            let has_moved = has_moved?;
            if is_ended {
                return Ok(());
            }
            self.wait(now, has_moved);
        }
    }

    /// Writes due packets and reads arrived packets; returns false if there were none.
    fn round(&mut self) -> Result<bool, RouterError> {
        let mut has_moved = self.hand_out();
        for _ in 0..FRAMES_PER_TURN {
            let Some(bytes) = read(&self.near, &mut self.frame)? else { break };
            has_moved = true;
            let now = self.now();
            match Bundle::parse(&self.frame[..bytes]) {
                Ok(bundle) => self.bottleneck.push(now, &Rc::new(bundle)),
                Err(_) => self.own.malformed_frames += 1,
            }
        }
        for _ in 0..FRAMES_PER_TURN {
            let Some(bytes) = read(&self.far, &mut self.frame)? else { break };
            has_moved = true;
            // Forwarded unchanged: offload flags of one device are valid for the other.
            if self.near.0.write(&[IoSlice::new(&self.frame[..bytes])]).is_ok() {
                self.own.back_frames += 1;
                self.own.back_bytes += bytes.saturating_sub(sabul_tun::VNET_BYTES) as u64;
            } else {
                self.own.back_refused_frames += 1;
            }
        }
        Ok(self.hand_out() || has_moved)
    }

    /// Writes due packets; returns false if there were none.
    fn hand_out(&mut self) -> bool {
        let now = self.now();
        let mut out = std::mem::take(&mut self.out);
        while let Some(leaving) = self.bottleneck.poll(now).ready() {
            out.push(leaving);
        }
        if let Some(first) = out.first() {
            let late = now.since(first.at).as_millis_f64();
            self.own.late_max_ms = self.own.late_max_ms.max(late);
        }
        let far = &self.far.0;
        self.own.refused_frames += self.frames.of(&out, |parts| far.write(parts).is_ok());
        let has_written = !out.is_empty();
        out.clear();
        self.out = out;
        has_written
    }

    /// Sleeps until the next due time or arrival; a busy router sleeps one tick.
    fn wait(&self, now: Instant, has_moved: bool) {
        let due = self.bottleneck.deadline().map(|at| at.since(now));
        if has_moved || due.is_some_and(|due| due <= Span::from(TICK)) {
            std::thread::sleep(TICK);
            return;
        }
        let until = Duration::from(due.map_or(POLL_INTERVAL, |due| due.min(POLL_INTERVAL)));
        let timeout = Timespec { tv_sec: 0, tv_nsec: until.subsec_nanos().into() };
        let nothing =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        if epoll::wait(&self.epoll, &mut [nothing; 2], Some(&timeout)).is_err() {
            // A signal; after any error, sleeping is safe.
            std::thread::sleep(TICK);
        }
    }

    fn snapshot(&self, now: Instant) -> RouterSnapshot {
        let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ThreadCPUTime);
        let own = &self.own;
        RouterSnapshot {
            malformed_frames: own.malformed_frames,
            refused_frames: own.refused_frames,
            back_frames: own.back_frames,
            back_bytes: own.back_bytes,
            back_refused_frames: own.back_refused_frames,
            late_max_ms: own.late_max_ms,
            cpu_seconds: tv_sec as f64 + tv_nsec as f64 / 1e9,
            ..self.bottleneck.snapshot(now)
        }
    }
}

/// Reads a frame; `None` if there is none.
fn read(device: &(Device, String), frame: &mut [u8]) -> Result<Option<usize>, RouterError> {
    match device.0.read(frame) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(None)
        }
        // The device is down; reads return this error until the device is up.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
            Ok(None)
        }
        Err(error) => {
            let action = format!("read from the device '{}', which may be gone", device.1);
            Err(RouterError::system(action)(error))
        }
    }
}
