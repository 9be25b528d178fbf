//! Prometheus endpoint of a router: counters as text, over plain HTTP.
//!
//! Serves one request at a time, of at most 4 KiB and within two seconds. Prometheus scrapes every
//! few seconds, and other requests cost the forwarding thread nothing.

use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::RouterError;
use crate::kernel::KernelSnapshot;
use crate::snapshot::RouterSnapshot;

/// Time limit of a request, and of a response.
const TIMEOUT: Duration = Duration::from_secs(2);
const QUESTION_MAX: usize = 4096;

/// HTTP server at an address; dropping the value ends its thread.
#[derive(Debug)]
pub struct Endpoint {
    address: SocketAddr,
    is_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Listens at `address` (port 0 for any free port) and responds with the current result of
    /// `text`.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub fn start(
        address: SocketAddr,
        text: impl Fn() -> String + Send + 'static,
    ) -> Result<Self, RouterError> {
        let listener = TcpListener::bind(address).map_err(|error| {
            let allowed = format!("an address of this machine and a port that is free: {error}");
            RouterError::setting("--metrics", address.to_string(), allowed)
        })?;
        let fail = RouterError::system("answer at --metrics");
        let address = match listener.local_addr() {
            Ok(address) => address,
            Err(error) => return Err(fail(error)),
        };
        let is_ended = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&is_ended);
        let thread = std::thread::Builder::new()
            .name("sabul-metrics".to_owned())
            .spawn(move || serve(&listener, &theirs, text))
            .map_err(fail)?;
        Ok(Self { address, is_ended, thread: Some(thread) })
    }

    /// Returns the listening address.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Relaxed);
        // Wakes the thread; if that fails, the thread ends with the process.
        let is_woken = TcpStream::connect_timeout(&self.address, TIMEOUT).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| is_woken) {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, is_ended: &AtomicBool, text: impl Fn() -> String) {
    for stream in listener.incoming() {
        if is_ended.load(Ordering::Relaxed) {
            return;
        }
        match stream {
            // An error means that the client is gone.
            Ok(stream) => drop(answer(stream, &text)),
            // Probably too many open files; retry later.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn answer(mut stream: TcpStream, text: &impl Fn() -> String) -> io::Result<()> {
    stream.set_write_timeout(Some(TIMEOUT))?;
    let question = question(&mut stream)?;
    let mut words = question.split_ascii_whitespace();
    let (status, body) = match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics")) => ("200 OK", text()),
        (Some("GET"), Some(_)) => ("404 Not Found", "request /metrics\n".to_owned()),
        _ => ("400 Bad Request", "use GET /metrics\n".to_owned()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    stream.shutdown(Shutdown::Write)
}

/// Returns the first line after reading the whole request, so that no byte is left unread.
fn question(stream: &mut TcpStream) -> io::Result<String> {
    let until = std::time::Instant::now() + TIMEOUT;
    let mut bytes = Vec::new();
    let mut part = [0; 512];
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        let rest = until.saturating_duration_since(std::time::Instant::now());
        if rest.is_zero() || bytes.len() > QUESTION_MAX {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(rest))?;
        let count = stream.read(&mut part)?;
        if count == 0 {
            break;
        }
        bytes.extend_from_slice(&part[..count]);
    }
    let line = bytes.split(|&byte| byte == b'\r').next().unwrap_or_default();
    Ok(String::from_utf8_lossy(line).into_owned())
}

/// Formats the counters in the text format of Prometheus, version 0.0.4.
pub fn metrics(snapshot: &RouterSnapshot, kernel: &KernelSnapshot) -> String {
    let mut text = String::new();
    let classes = [("explicit", &snapshot.explicit), ("plain", &snapshot.plain)];
    let mut by_class = |name: &str, kind: &str, help: &str, values: [u64; 2]| {
        describe(&mut text, name, kind, help);
        for ((class, _), value) in classes.iter().zip(values) {
            let _ = writeln!(text, "sabul_router_{name}{{class=\"{class}\"}} {value}");
        }
    };
    let of = |value: fn(&crate::ClassCounts) -> u64| classes.map(|(_, counts)| value(counts));
    by_class("arrived_packets_total", "counter", "Packets that came.", of(|c| c.arrived_packets));
    by_class("sent_packets_total", "counter", "Packets that left.", of(|c| c.sent_packets));
    by_class("sent_bytes_total", "counter", "IP bytes that left.", of(|c| c.sent_bytes));
    let help = "Packets that found their queue full.";
    by_class("dropped_packets_total", "counter", help, of(|c| c.dropped_packets));
    by_class("queue_packets", "gauge", "Packets that wait.", of(|c| c.queue_packets));
    by_class("queue_bytes", "gauge", "Bytes that wait.", of(|c| c.queue_bytes));
    let help = "The most bytes that waited at once.";
    by_class("queue_max_bytes", "gauge", help, of(|c| c.queue_max_bytes));

    let mut one = |name: &str, kind: &str, help: &str, value: &dyn std::fmt::Display| {
        describe(&mut text, name, kind, help);
        let _ = writeln!(text, "sabul_router_{name} {value}");
    };
    let (counter, gauge) = ("counter", "gauge");
    one("rate_bits_per_second", gauge, "The link's rate as configured.", &snapshot.rate_bps);
    let help = "Rate that the explicit class shares.";
    one("explicit_capacity_bits_per_second", gauge, help, &snapshot.explicit_capacity_bps);
    let help = "Rate demanded by the plain class.";
    one("plain_demand_bits_per_second", gauge, help, &snapshot.plain_demand_bps);
    if let Some(rate) = &snapshot.signalled_bps {
        one("told_bits_per_second", gauge, "Rate signalled to flows.", rate);
    }
    one("headers_written_total", counter, "Congestion headers written.", &snapshot.headers_written);
    let help = "Packets with a congestion header of a later version.";
    one("headers_later_total", counter, help, &snapshot.headers_later);
    let help = "Packets with a congestion header of another algorithm.";
    one("headers_foreign_total", counter, help, &snapshot.headers_foreign);
    let help = "Frames that were no IP packets.";
    one("malformed_frames_total", counter, help, &snapshot.malformed_frames);
    let help = "Frames that the far device did not take.";
    one("refused_frames_total", counter, help, &snapshot.refused_frames);
    let help = "Frames dropped before the router could read them.";
    one("missed_frames_total", counter, help, &kernel.missed_frames);
    one("back_frames_total", counter, "Frames that went the other way.", &snapshot.back_frames);
    one("back_bytes_total", counter, "Their bytes.", &snapshot.back_bytes);
    let help = "Processor time of the forwarding thread.";
    one("cpu_seconds_total", counter, help, &snapshot.cpu_seconds);
    let help = "The longest by which a packet left late.";
    one("late_max_seconds", gauge, help, &(snapshot.late_max_ms / 1e3));
    if let Some(queue) = &kernel.uplink {
        let help = "Bytes in the own queue of the link behind.";
        one("uplink_queue_bytes", gauge, help, &queue.waiting_bytes);
        let help = "Packets dropped by the own queue of the link behind.";
        one("uplink_dropped_packets_total", counter, help, &queue.dropped);
    }
    text
}

fn describe(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP sabul_router_{name} {help}\n# TYPE sabul_router_{name} {kind}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::ClassCounts;

    fn query(endpoint: &Endpoint, question: &str) -> String {
        let mut stream = TcpStream::connect(endpoint.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(question.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn metrics_requests_are_answered_and_other_requests_get_a_hint() {
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let endpoint = Endpoint::start(anywhere, || "up 1\n".to_owned()).unwrap();
        let right = query(&endpoint, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(right.starts_with("HTTP/1.1 200 OK\r\n") && right.ends_with("\r\n\r\nup 1\n"));
        assert!(query(&endpoint, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(query(&endpoint, "noise").starts_with("HTTP/1.1 400"));
        let taken = Endpoint::start(endpoint.address(), String::new).unwrap_err().to_string();
        assert!(taken.contains("--metrics cannot be 127.0.0.1:"), "{taken}");
    }

    #[test]
    fn every_metrics_line_is_a_comment_or_a_name_and_a_number() {
        let explicit = ClassCounts { sent_packets: 12, ..ClassCounts::default() };
        let snapshot =
            RouterSnapshot { explicit, signalled_bps: Some(5), ..RouterSnapshot::default() };
        let kernel = KernelSnapshot {
            uplink: Some(crate::QueueSnapshot::default()),
            ..KernelSnapshot::default()
        };
        let text = metrics(&snapshot, &kernel);
        assert!(
            text.contains("sabul_router_sent_packets_total{class=\"explicit\"} 12\n"),
            "{text}"
        );
        for line in text.lines().filter(|line| !line.starts_with("# ")) {
            let (name, value) = line.split_once(' ').unwrap();
            assert!(name.starts_with("sabul_router_"), "{line}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
        let described = text.lines().filter(|line| line.starts_with("# TYPE")).count();
        assert_eq!(described, text.lines().filter(|line| line.starts_with("# HELP")).count());
    }
}
