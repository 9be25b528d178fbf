//! The router between two TUN devices: one thread that takes in, paces, hands out and waits, in real time.
//!
//! Model:       what the kernel routes into the near device crosses the bottleneck and comes out of the far one; what it
//!     routes into the far device comes out of the near one at once. Neighbouring segments that leave together go in
//!     one frame, as a network card would hand them up.
//! Time:        arrivals count from when they are read, which under load is up to one [`TICK`] late; departures happen
//!     at or after their due time, never before, and by how much is measured.
//! Limits:      one thread, so one core.

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
use crate::look::Look;
use crate::settings::Settings;

/// How long a busy router sleeps between two rounds. Shorter keeps the schedule better, longer makes larger frames.
const TICK: Duration = Duration::from_micros(50);
/// Frames taken from each device before what is due has its turn.
const FRAMES_PER_TURN: usize = 64;
/// Frames that wait in each device until they are read: what comes while the thread is elsewhere for 30 ms at
/// 300 000 packets a second, none of which the kernel has joined.
const DEVICE_QUEUE_FRAMES: u32 = 10_000;
/// How often the counts are made known to others.
const PUBLISH: Span = Span::from_millis(50);
/// With nothing to do, look whether to end at least this often.
const LOOK_AGAIN: Span = Span::from_millis(100);

/// A running router; dropping it ends its thread.
#[derive(Debug)]
pub struct Router {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    is_ended: AtomicBool,
    look: Mutex<Look>,
    fault: Mutex<Option<RouterError>>,
}

impl Router {
    /// Makes the two devices, `near` where what is to be paced goes in and `far` where it comes out, and forwards
    /// between them from now on. A TUN device of that name that is there already is taken.
    ///
    /// # Errors
    /// If a setting is outside its range, a device cannot be had, or the system fails at something.
    pub fn start(settings: &Settings, near: &str, far: &str) -> Result<Self, RouterError> {
        // Refused before anything is made; the thread builds its own, whose parts stay with it.
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

    /// How it stands; at most a twentieth of a second old.
    pub fn look(&self) -> Look {
        self.shared.look.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it still forwards; it ends by itself when a device is gone.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Ends it; what still waits is gone. The last word of how it stood.
    ///
    /// # Errors
    /// If it had ended by itself.
    pub fn stop(mut self) -> Result<Look, RouterError> {
        self.join();
        match self.shared.fault.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(fault) => Err(fault),
            None => Ok(self.look()),
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

/// The router's thread.
fn forward(
    settings: &Settings,
    near: (Device, String),
    far: (Device, String),
    epoll: OwnedFd,
    shared: &Shared,
) {
    // By default the kernel may be 50 us late. Whatever it refuses costs punctuality, which is measured.
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
            own: Look::default(),
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
    /// Due, and to be written now.
    out: Vec<Leaving>,
    /// What only the engine counts.
    own: Look,
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
                *shared.look.lock().unwrap_or_else(PoisonError::into_inner) = self.look(now);
            }
            let has_moved = has_moved?;
            if is_ended {
                return Ok(());
            }
            self.wait(now, has_moved);
        }
    }

    /// Hands out what is due and takes in what has come; false if there was nothing of either.
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
            // As it came: what one device leaves to its reader, the other takes from its writer.
            if self.near.0.write(&[IoSlice::new(&self.frame[..bytes])]).is_ok() {
                self.own.back_frames += 1;
                self.own.back_bytes += bytes.saturating_sub(sabul_tun::VNET_BYTES) as u64;
            } else {
                self.own.back_refused_frames += 1;
            }
        }
        Ok(self.hand_out() || has_moved)
    }

    /// Writes what is due; false if that is nothing.
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

    /// Sleeps until something is due or comes in; a busy router for a whole tick.
    fn wait(&self, now: Instant, has_moved: bool) {
        let due = self.bottleneck.deadline().map(|at| at.since(now));
        if has_moved || due.is_some_and(|due| due <= Span::from(TICK)) {
            std::thread::sleep(TICK);
            return;
        }
        let until = Duration::from(due.map_or(LOOK_AGAIN, |due| due.min(LOOK_AGAIN)));
        let timeout = Timespec { tv_sec: 0, tv_nsec: until.subsec_nanos().into() };
        let nothing =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        if epoll::wait(&self.epoll, &mut [nothing; 2], Some(&timeout)).is_err() {
            // A signal; whatever else it is, sleeping is right.
            std::thread::sleep(TICK);
        }
    }

    fn look(&self, now: Instant) -> Look {
        let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ThreadCPUTime);
        let own = &self.own;
        Look {
            malformed_frames: own.malformed_frames,
            refused_frames: own.refused_frames,
            back_frames: own.back_frames,
            back_bytes: own.back_bytes,
            back_refused_frames: own.back_refused_frames,
            late_max_ms: own.late_max_ms,
            cpu_seconds: tv_sec as f64 + tv_nsec as f64 / 1e9,
            ..self.bottleneck.look(now)
        }
    }
}

/// Reads a frame; none if none waits.
fn read(device: &(Device, String), frame: &mut [u8]) -> Result<Option<usize>, RouterError> {
    match device.0.read(frame) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(None)
        }
        // Down for now: it says so for as long as it is.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
            Ok(None)
        }
        Err(error) => {
            let action = format!("read from the device '{}', which may be gone", device.1);
            Err(RouterError::system(action)(error))
        }
    }
}
