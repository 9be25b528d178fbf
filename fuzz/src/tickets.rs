//! Fuzz target for tickets: any text is a ticket or an error, and a ticket's text parses to the
//! same ticket.

use data_encoding::BASE64URL_NOPAD;
use sabul::Ticket;
use sabul::internal::ticket::MAX_ADDRESSES;

/// Input: a first byte, and then a ticket's text, or (first byte odd) the body of a ticket, to
/// which correct length and checksum are added.
pub(crate) fn target(data: &[u8]) -> bool {
    let Some((&form, rest)) = data.split_first() else {
        return false;
    };
    let text =
        if form % 2 == 0 { String::from_utf8_lossy(rest).into_owned() } else { ticket_text(rest) };
    match text.parse::<Ticket>() {
        Ok(ticket) => {
            assert!((1..=MAX_ADDRESSES).contains(&ticket.addresses().len()));
            assert!(ticket.addresses().iter().all(|address| {
                address.contains(':') && address.bytes().all(|b| b.is_ascii_graphic())
            }));
            assert_eq!(ticket.to_string().parse::<Ticket>().ok(), Some(ticket));
            true
        }
        Err(error) => {
            assert!(!error.to_string().contains(char::is_control), "{error:?} steers a terminal");
            form % 2 == 1
        }
    }
}

/// Returns the text of a ticket with this body, with correct length and checksum.
pub fn ticket_text(body: &[u8]) -> String {
    let length = u16::try_from(body.len() + 4).unwrap_or(u16::MAX);
    let mut bytes = [&length.to_be_bytes(), body].concat();
    let checksum = blake3::hash(&bytes);
    bytes.extend(&checksum.as_bytes()[..4]);
    format!("sabul1-{}", BASE64URL_NOPAD.encode(&bytes))
}
