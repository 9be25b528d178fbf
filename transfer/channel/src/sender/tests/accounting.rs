//! Blocks, packet numbers and the flow window.

use super::*;

#[test]
fn blocks_are_counted_from_the_first_block_of_the_channel() {
    let mut sender = sender(LossPolicy::Current, &[("window_packets", "3")]);
    sender.start_at_block(7);
    for _ in 0..3 {
        sender.push_block(2000);
    }
    assert_eq!((sender.released_blocks(), sender.uncut_blocks()), (7, 3));
    let blocks = std::iter::from_fn(|| match sender.poll(at_ms(0)) {
        Polled::Ready(Transmit::Data(packet)) => Some(packet.block),
        _ => None,
    });
    assert_eq!(blocks.collect::<Vec<_>>(), [7, 7, 8]);
    assert_eq!(sender.uncut_blocks(), 2, "one is cut to its end");
    sender.handle_feedback(at_ms(50), &ack(1, 3, 2)).unwrap();
    assert_eq!((sender.released_blocks(), sender.uncut_blocks()), (8, 2));
}

#[test]
fn settled_packet_numbers_are_removed() {
    let mut sender = sender(LossPolicy::Current, &[]);
    sender.push_block(10_000);
    drain(&mut sender, at_ms(0));
    // 3 is unacknowledged; 8 and 9 may be in flight.
    sender.handle_feedback(at_ms(50), &ack(1, 3, 7)).unwrap();
    assert_eq!(sender.ledger.numbers.len(), 7, "3 to 9");
    sender.handle_feedback(at_ms(60), &ack(2, 8, 7)).unwrap();
    assert_eq!(sender.ledger.numbers.len(), 2, "8 and 9");
}

#[test]
fn the_flow_window_limits_bytes_with_any_payload_size() {
    let mut sender = sender(LossPolicy::Current, &[]);
    // 2^20 bytes in all.
    sender.set_payload_bytes(payload(4096));
    sender.window.open_to(300);
    for _ in 0..300 {
        sender.push_block(4096);
    }
    assert_eq!(drain(&mut sender, at_ms(0)).len(), 256);
    assert!(matches!(sender.poll(at_ms(0)), Polled::Wait { because: WaitReason::Window, .. }));
}

#[test]
fn socket_drops_explain_losses_reported_within_two_rtts_and_10_ms() {
    for (late, explained) in [(0, 1), (1, 0)] {
        let mut sender = sender(LossPolicy::Current, &[]);
        sender.seed_rtt(Span::from_millis(50));
        sender.push_block(10_000);
        drain(&mut sender, at_ms(0));
        let mut overflow =
            Ack { serial: 1, largest: PacketNumber(9), packets: 9, ..Ack::default() };
        overflow.overflowed = 1;
        sender.handle_feedback(at_ms(50), &Feedback::Ack(overflow)).unwrap();
        assert_eq!(sender.rtt().unwrap().smoothed, Span::from_millis(50));
        let until = at_ms(50 + 2 * 50 + 10) + Span::from_micros(late);
        sender.handle_feedback(until, &nak(LossPolicy::Current, &[(3, 3)])).unwrap();
        let stats = sender.stats();
        assert_eq!((stats.lost_at_receiver, stats.lost), (explained, 1 - explained), "{late} µs");
    }
}
