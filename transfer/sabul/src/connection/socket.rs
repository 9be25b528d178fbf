//! Socket options of a connection: kernel timeouts for a dead peer, and the congestion control of the kernel.

use rustix::net::sockopt;
use tokio::net::TcpStream;

use crate::timeouts::Timeouts;

/// Enables TCP keepalive and the TCP user timeout. The limit is 5/4 of the silence timeout: the
/// timeout of this program should fire first, because its error message is more precise.
pub(crate) fn watch_over(socket: &TcpStream, timeouts: Timeouts) {
    let limit = timeouts.silence + timeouts.silence / 4;
    let interval = (timeouts.silence / 3).max(std::time::Duration::from_secs(1));
    // Without these options only the timeout of this program detects a dead peer.
    let _ = sockopt::set_socket_keepalive(socket, true);
    let _ = sockopt::set_tcp_keepidle(socket, interval);
    let _ = sockopt::set_tcp_keepintvl(socket, interval);
    let _ = sockopt::set_tcp_keepcnt(socket, 4);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let millis = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
        let _ = sockopt::set_tcp_user_timeout(socket, millis);
    }
}

/// Congestion controls that share a path with CUBIC, in the order of preference. Linux lets everybody choose Reno.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LOSS_BASED: [&str; 2] = ["cubic", "reno"];

/// Chooses a congestion control of the kernel that shares a path with CUBIC flows. Systems other than Linux have such a
/// default.
pub(crate) fn choose_loss_based_control(socket: &TcpStream) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if !LOSS_BASED.iter().any(|name| sockopt::set_tcp_congestion(socket, name).is_ok()) {
        tracing::debug!("the kernel refuses CUBIC and Reno for a connection");
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = socket;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    #[cfg(any(target_os = "linux", target_os = "android"))]
    async fn the_chosen_congestion_control_is_loss_based() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        choose_loss_based_control(&socket);
        let name = sockopt::tcp_congestion(&socket).unwrap();
        assert!(LOSS_BASED.contains(&name.as_str()), "{name}");
    }

    #[tokio::test]
    async fn tcp_keepalive_gives_up_soon_after_the_session_timeout() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        watch_over(&socket, Timeouts::default());
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&socket).unwrap(), Duration::from_secs(10));
        #[cfg(target_os = "linux")]
        assert_eq!(sockopt::tcp_user_timeout(&socket).unwrap(), 37_500);
    }
}
