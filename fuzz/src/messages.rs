//! Fuzz target for messages of the control connection: a decoded message is within limits, and
//! unchanged by another round of encoding and decoding.

use sabul_wire::Feedback;
use sabul_wire::control::{MAX_MESSAGE, MAX_TEXT, Message, body_length, body_limit};

use crate::datagrams::check_report;

/// Input: the length prefix and the body of one message; the prefix may be wrong.
pub(crate) fn target(data: &[u8]) -> bool {
    let Some((prefix, body)) = data.split_first_chunk::<4>() else {
        return false;
    };
    if let Ok(length) = body_length(*prefix) {
        assert!(length <= MAX_MESSAGE);
    }
    let Ok(message) = Message::decode_body(body) else {
        return false;
    };
    assert!(body.len() <= body_limit(body[0]));
    let mut bytes = Vec::new();
    message.encode(&mut bytes).expect("what fitted once fits again");
    let (prefix, again) = bytes.split_first_chunk::<4>().expect("the prefix was just written");
    assert_eq!(body_length(*prefix), Ok(again.len()));
    if let Message::Cancel { failure, .. } = &message {
        assert!(failure.message.len() <= MAX_TEXT);
        assert!(!failure.message.contains(char::is_control), "texts cannot steer a terminal");
    } else if !matches!(
        &message,
        Message::Hello { .. }
            | Message::Welcome { .. }
            | Message::Login { .. }
            | Message::Open(_)
            | Message::Steer { .. }
    ) && !matches!(
        &message,
        Message::EntryFailed { .. } | Message::Seen { .. } | Message::Done(_)
    ) {
        // Texts may have become longer, because terminal control characters are escaped.
        assert!(again.len() <= body.len(), "the shortest form is written");
    }
    assert_eq!(Message::decode_body(again).as_ref(), Ok(&message));
    if let Message::Feedback { report, .. } = &message
        && let Ok(report) = Feedback::decode(report)
    {
        check_report(&report);
    }
    true
}
