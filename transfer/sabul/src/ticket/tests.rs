//! Tests of tickets: text form, damage and files.

use std::os::unix::fs::symlink;

use sabul_units::{Random, SeededRandom};

use super::*;

fn ticket() -> Ticket {
    let addresses = vec!["198.51.100.7:4711".to_owned(), "[2001:db8::7]:4711".to_owned()];
    Ticket::generate(addresses, [0xA5; 32]).unwrap()
}

#[test]
fn a_ticket_round_trips_through_its_text() {
    let original = ticket();
    let text = original.to_string();
    assert!(text.starts_with("sabul1-"), "{text}");
    assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'), "{text}");
    let parsed: Ticket = format!("  {text}\n").parse().unwrap();
    assert_eq!(parsed, original);
    assert_eq!(parsed.addresses(), ["198.51.100.7:4711", "[2001:db8::7]:4711"]);
    assert_eq!(parsed.fingerprint(), [0xA5; 32]);
}

#[test]
fn the_largest_ticket_round_trips_through_its_text() {
    let address = format!("{}:65535", "a".repeat(MAX_ADDRESS - 6));
    let original = Ticket::generate(vec![address.clone(); MAX_ADDRESSES], [1; 32]).unwrap();
    let introduction = Introduction { address, fingerprint: [1; 32], name: [1; 16] };
    let original = original.with_introduction(introduction).unwrap();
    assert_eq!(original.to_string().parse::<Ticket>().unwrap(), original);
}

#[test]
fn a_ticket_with_an_introducer_round_trips_and_other_programs_report_its_version() {
    let introduction = Introduction {
        address: "meet.example.org:4850".to_owned(),
        fingerprint: [7; 32],
        name: [9; 16],
    };
    let original = ticket().with_introduction(introduction.clone()).unwrap();
    let text = original.to_string();
    assert!(text.starts_with("sabul2-"), "{text}");
    assert_eq!(text.parse::<Ticket>().unwrap(), original);
    assert_eq!(original.introduction(), Some(&introduction));
    assert_eq!(introduction.to_string().parse::<Introduction>().unwrap(), introduction);
    for bad in ["", "meet:1", "meet:1 07 09", "meet 07 09"] {
        assert!(bad.parse::<Introduction>().is_err(), "{bad}");
    }
    // Neither kind is read as the other.
    for swapped in [
        text.replacen("sabul2-", "sabul1-", 1),
        ticket().to_string().replacen("sabul1-", "sabul2-", 1),
    ] {
        assert!(matches!(swapped.parse::<Ticket>(), Err(TicketError::Damaged)), "{swapped}");
    }
    let bad = Introduction { address: "no port".to_owned(), ..introduction };
    assert!(matches!(ticket().with_introduction(bad), Err(TicketError::Address(_))));
}

#[test]
fn each_ticket_has_its_own_secret() {
    assert_ne!(ticket().secret(), ticket().secret());
    assert_ne!(ticket().secret(), &[0; 32]);
}

#[test]
fn a_truncated_ticket_is_reported_as_cut_short() {
    let text = ticket().to_string();
    for length in PREFIX.len()..text.len() {
        let error = text[..length].parse::<Ticket>().unwrap_err();
        assert!(matches!(error, TicketError::CutShort), "{length}: {error}");
    }
}

#[test]
fn one_wrong_character_in_a_ticket_is_always_detected() {
    let text = ticket().to_string();
    for at in PREFIX.len()..text.len() {
        for wrong in ["A", "_", "!", "é"] {
            if text[at..].starts_with(wrong) {
                continue;
            }
            let mistyped = format!("{}{wrong}{}", &text[..at], &text[at + 1..]);
            let error = mistyped.parse::<Ticket>().unwrap_err();
            // A wrong character in the length may look like a truncated text.
            let expected = matches!(error, TicketError::Damaged)
                || at < PREFIX.len() + 3 && matches!(error, TicketError::CutShort);
            assert!(expected, "{wrong} at {at}: {error}");
        }
    }
    for wrong in [format!("{text}A"), format!("{text} {text}"), text.replacen('-', "-A", 1)] {
        wrong.parse::<Ticket>().unwrap_err();
    }
}

#[test]
fn other_text_is_not_a_ticket() {
    for text in
        ["", "hello", "sabul-x", "sabul1", "SABUL1-AAAA", "https://example.org", "sabul://h/"]
    {
        let error = text.parse::<Ticket>().unwrap_err();
        assert!(matches!(error, TicketError::NotATicket), "{text}: {error}");
    }
    let error = "sabul3-AAAA".parse::<Ticket>().unwrap_err();
    assert!(matches!(error, TicketError::OtherVersion), "{error}");
    let endless = format!("{PREFIX}{}", "A".repeat(MAX_TEXT));
    assert!(matches!(endless.parse::<Ticket>().unwrap_err(), TicketError::NotATicket));
}

#[test]
fn random_bytes_behind_the_prefix_never_panic() {
    let mut random = SeededRandom::new(1);
    for _ in 0..2_000 {
        let length = usize::try_from(random.below(200)).unwrap();
        let bytes: Vec<u8> = (0..length).map(|_| random.next_u64().to_le_bytes()[0]).collect();
        // Correct length and checksum, so that the decoder after these checks is reached.
        let mut framed = u16::try_from(length + CHECKSUM_LEN).unwrap().to_be_bytes().to_vec();
        framed.extend_from_slice(&bytes);
        let sum = checksum(&framed);
        framed.extend_from_slice(&sum);
        let text = format!("{PREFIX}{}", BASE64URL_NOPAD.encode(&framed));
        text.parse::<Ticket>().unwrap_err();
    }
}

#[test]
fn addresses_are_host_and_port() {
    for good in
        ["h:1", "host.example.org:65535", "127.0.0.1:4711", "[::1]:4711", "[fe80::1%eth0]:9"]
    {
        assert!(is_host_and_port(good), "{good}");
    }
    let long = format!("{}:1", "a".repeat(MAX_ADDRESS));
    for bad in [
        "",
        "host",
        ":1",
        "host:",
        "host:0",
        "host:65536",
        "host:+1",
        "::1:4711",
        "[host]:1",
        "[]:1",
        "[::1]",
        "a b:1",
        "a\n:1",
        "é:1",
        "user@host:1",
        "a/b:1",
        "[::1:1",
        &long,
    ] {
        assert!(!is_host_and_port(bad), "{bad}");
        let error = Ticket::generate(vec![bad.to_owned()], [0; 32]).unwrap_err();
        assert!(matches!(error, TicketError::Address(_)), "{bad}: {error}");
    }
    for count in [0, MAX_ADDRESSES + 1] {
        let error = Ticket::generate(vec!["h:1".to_owned(); count], [0; 32]).unwrap_err();
        assert!(matches!(error, TicketError::AddressCount(n) if n == count), "{error}");
    }
}

#[test]
fn debug_output_hides_the_secret() {
    let ticket = ticket();
    let text = format!("{ticket:?}");
    assert!(text.contains("198.51.100.7:4711"), "{text}");
    assert!(!text.contains(&HEXLOWER.encode(ticket.secret())), "{text}");
    assert!(!text.contains(&format!("{:?}", ticket.secret())), "{text}");
}

#[test]
fn a_ticket_file_is_private_complete_and_replaces_an_older_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ticket");
    ticket().write_file(&path).unwrap();
    let second = ticket();
    second.write_file(&path).unwrap();
    assert_eq!(Ticket::read_file(&path).unwrap(), second);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file stays");
}

#[test]
fn writing_never_goes_through_a_link_or_onto_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (target, link) = (folder.path().join("target"), folder.path().join("link"));
    fs::write(&target, "precious").unwrap();
    symlink(&target, &link).unwrap();
    for path in [&link, folder.path(), Path::new("/"), Path::new("/dev/null")] {
        let error = ticket().write_file(path).unwrap_err();
        assert!(matches!(error, TicketError::NotAFile(_)), "{}: {error}", path.display());
    }
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let error = ticket().write_file(&folder.path().join("missing/ticket")).unwrap_err();
    assert!(matches!(error, TicketError::Write { .. }), "{error}");
}

#[test]
fn a_ticket_file_readable_by_others_is_refused_with_a_command() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my ticket");
    ticket().write_file(&path).unwrap();
    for mode in [0o644, 0o640, 0o604] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = Ticket::read_file(&path).unwrap_err();
        assert!(matches!(error, TicketError::Exposed { mode: m, .. } if m == mode), "{error}");
        let command = format!("chmod 600 -- '{}'", path.display());
        assert!(error.to_string().ends_with(&command), "{error}");
    }
    assert_eq!(shell_quoted(Path::new("/tmp/t.txt")), "/tmp/t.txt");
    assert_eq!(shell_quoted(Path::new("it's")), r"-- 'it'\''s'");
}

#[test]
fn an_invalid_ticket_file_is_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ticket");
    let error = Ticket::read_file(&path).unwrap_err();
    assert!(matches!(error, TicketError::Missing(_)), "{error}");
    let error = Ticket::read_file(folder.path()).unwrap_err();
    assert!(matches!(error, TicketError::NotAFile(_)), "{error}");
    let text = ticket().to_string();
    for (content, fault) in [
        (&b"hello\n"[..], "not a ticket"),
        (b"", "not a ticket"),
        (b"\xFF\xFE", "not a ticket"),
        (&text.as_bytes()[..40], "cut short"),
        (&[b' '; 2 * MAX_TEXT], "not a ticket"),
    ] {
        write_new(&path, "").unwrap();
        fs::write(&path, content).unwrap();
        let error = Ticket::read_file(&path).unwrap_err().to_string();
        assert!(error.contains(fault) && error.contains("/ticket: "), "{error}");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_proof_holds_for_one_secret_and_one_connection() {
    let (secret, exporter) = ([1; 32], [2; 32]);
    let proof = proof(&secret, &exporter);
    assert!(verify_proof(&secret, &exporter, &proof));
    assert!(!verify_proof(&[3; 32], &exporter, &proof));
    assert!(!verify_proof(&secret, &[3; 32], &proof));
    for byte in 0..32 {
        let mut altered = proof;
        altered[byte] ^= 1;
        assert!(!verify_proof(&secret, &exporter, &altered), "byte {byte}");
    }
}
