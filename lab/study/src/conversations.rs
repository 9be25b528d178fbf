//! Conversations over a path, as tables and CSV: both directions of each 5-tuple side by side.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use sabul_emu::{Protocol, Tuple, TupleSnapshot};
use sabul_net::Way;
use sabul_report::{Cell, Column, Table};

/// Two endpoints, and the traffic in each direction.
#[derive(Clone, Copy, Debug)]
struct Conversation<'a> {
    ends: Ends,
    there: Option<&'a TupleSnapshot>,
    back: Option<&'a TupleSnapshot>,
}

/// Key shared by both directions of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ends {
    pair: usize,
    protocol: Protocol,
    near: (IpAddr, u16),
    far: (IpAddr, u16),
}

impl Ends {
    fn of(snapshot: &TupleSnapshot) -> Self {
        let TupleSnapshot { pair, way, tuple, .. } = *snapshot;
        let Tuple { protocol, source, source_port, destination, destination_port } = tuple;
        let (from, to) = ((source, source_port), (destination, destination_port));
        let (near, far) = if way == Way::Forward { (from, to) } else { (to, from) };
        Self { pair, protocol, near, far }
    }
}

impl Conversation<'_> {
    fn sent_bytes(&self) -> u64 {
        [self.there, self.back]
            .into_iter()
            .flatten()
            .map(|snapshot| snapshot.amount.sent_bytes)
            .sum()
    }
}

/// Pairs both directions of each conversation; the busiest conversation is first.
fn conversations(tuples: &[TupleSnapshot]) -> Vec<Conversation<'_>> {
    let mut all: BTreeMap<Ends, Conversation<'_>> = BTreeMap::new();
    for snapshot in tuples {
        let ends = Ends::of(snapshot);
        let one = all.entry(ends).or_insert(Conversation { ends, there: None, back: None });
        match snapshot.way {
            Way::Forward => one.there = Some(snapshot),
            Way::Back => one.back = Some(snapshot),
        }
    }
    let mut all: Vec<_> = all.into_values().collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.sent_bytes()));
    all
}

/// Returns a table of the busiest conversations. The title states the total number if the table is
/// cut. `flows` are the names of the pairs of hosts, where pairs have names.
pub fn table(tuples: &[TupleSnapshot], flows: &[&str], most: usize) -> Table {
    let all = conversations(tuples);
    let title = if all.len() > most {
        format!("Conversations: the busiest {most} of {}", all.len())
    } else {
        "Conversations".to_owned()
    };
    let mut columns = vec![
        Column::text(""),
        Column::text("near"),
        Column::text("far"),
        Column::number("there", "MB"),
        Column::number("back", "MB"),
        Column::number("there", "Mb/s"),
        Column::number("back", "Mb/s"),
        Column::number("missing there", "packets"),
        Column::number("missing back", "packets"),
        Column::number("sent again", "packets"),
    ];
    if !flows.is_empty() {
        columns.insert(0, Column::text("flow"));
    }
    let row = |one: &Conversation<'_>| {
        let ways = [one.there, one.back];
        let [mb_there, mb_back] = ways
            .map(|snapshot| of(snapshot, |snapshot| snapshot.amount.sent_bytes as f64 / 1e6, 3));
        let [mbps_there, mbps_back] = ways.map(|snapshot| {
            snapshot.and_then(mean_bps).map_or(Cell::Empty, |bps| Cell::Fixed(bps / 1e6, 3))
        });
        let [lost_there, lost_back] =
            ways.map(|snapshot| of(snapshot, |snapshot| lost(snapshot) as f64, 0));
        let again: u64 =
            ways.into_iter().flatten().map(|snapshot| snapshot.amount.resent_packets).sum();
        let Ends { pair, protocol, near, far } = one.ends;
        let flow = flows.get(pair).map(|&flow| flow.into());
        let mut cells: Vec<Cell> = flow.into_iter().collect();
        cells.extend([
            protocol_name(protocol).into(),
            end(near).into(),
            end(far).into(),
            mb_there,
            mb_back,
            mbps_there,
            mbps_back,
            lost_there,
            lost_back,
            Cell::Fixed(again as f64, 0),
        ]);
        cells
    };
    Table { title, columns, rows: all.iter().take(most).map(row).collect() }
}

fn of(snapshot: Option<&TupleSnapshot>, value: fn(&TupleSnapshot) -> f64, decimals: usize) -> Cell {
    snapshot.map_or(Cell::Empty, |snapshot| Cell::Fixed(value(snapshot), decimals))
}

/// Returns the packets sent and not arrived. Some of these may still be in flight.
fn lost(snapshot: &TupleSnapshot) -> u64 {
    snapshot.amount.sent_packets.saturating_sub(snapshot.amount.arrived_packets)
}

/// Returns the arrived bits per second between the first and the last packet, headers included.
/// `None` if both have the same time.
fn mean_bps(snapshot: &TupleSnapshot) -> Option<f64> {
    let seconds = snapshot.last.since(snapshot.first).as_secs_f64();
    (seconds > 0.0).then(|| snapshot.amount.arrived_bytes as f64 * 8.0 / seconds)
}

fn protocol_name(protocol: Protocol) -> String {
    match protocol {
        Protocol::Tcp => "TCP".to_owned(),
        Protocol::Udp => "UDP".to_owned(),
        // IANA protocol numbers.
        Protocol::Other(1) => "ICMP".to_owned(),
        Protocol::Other(58) => "ICMPv6".to_owned(),
        // The router uses 255 for traffic that exceeds its table.
        Protocol::Other(255) => "others".to_owned(),
        Protocol::Other(number) => format!("IP {number}"),
    }
}

fn end((address, port): (IpAddr, u16)) -> String {
    if port == 0 { address.to_string() } else { SocketAddr::new(address, port).to_string() }
}

/// Returns `tuples.csv`: one row per direction of each conversation, in order of the first packet.
pub fn csv(tuples: &[TupleSnapshot], flows: &[&str]) -> String {
    let mut text = "flow,way,protocol,source,source_port,destination,destination_port,\
        sent_packets,sent_bytes,sent_payload_bytes,data_packets,resent_packets,arrived_packets,\
        arrived_bytes,arrived_payload_bytes,arrived_data_packets,fresh_bytes,first_s,last_s\n"
        .to_owned();
    for snapshot in tuples {
        let Tuple { protocol, source, source_port, destination, destination_port } = snapshot.tuple;
        let way = if snapshot.way == Way::Forward { "forward" } else { "back" };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{},{way},{},{source},{source_port},{destination},{destination_port},{},{},{},{},{},\
             {},{},{},{},{},{},{}",
            flows.get(snapshot.pair).copied().unwrap_or_default(),
            protocol_name(protocol),
            snapshot.amount.sent_packets,
            snapshot.amount.sent_bytes,
            snapshot.amount.sent_payload_bytes,
            snapshot.amount.data_packets,
            snapshot.amount.resent_packets,
            snapshot.amount.arrived_packets,
            snapshot.amount.arrived_bytes,
            snapshot.amount.arrived_payload_bytes,
            snapshot.amount.arrived_data_packets,
            snapshot.amount.fresh_bytes,
            snapshot.first.elapsed().as_secs_f64(),
            snapshot.last.elapsed().as_secs_f64(),
        );
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use sabul_emu::Amount;
    use sabul_units::{Instant, Span};

    use super::*;

    /// A direction from port 5000 at the near end to `far_port`, over two seconds.
    pub(crate) fn snapshot(way: Way, far_port: u16, bytes: u64) -> TupleSnapshot {
        let (near, far) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let (source, source_port, destination, destination_port) = match way {
            Way::Forward => (near, 5000, far, far_port),
            Way::Back => (far, far_port, near, 5000),
        };
        TupleSnapshot {
            pair: 0,
            way,
            tuple: Tuple {
                protocol: Protocol::Tcp,
                source,
                source_port,
                destination,
                destination_port,
            },
            amount: Amount {
                sent_packets: bytes / 1000,
                sent_bytes: bytes,
                sent_payload_bytes: bytes,
                resent_packets: 3,
                data_packets: bytes / 1000,
                arrived_packets: bytes / 1000 - 5,
                arrived_bytes: bytes - 5000,
                arrived_payload_bytes: bytes - 5000,
                arrived_data_packets: bytes / 1000 - 5,
                fresh_bytes: bytes - 8000,
            },
            first: Instant::ZERO,
            last: Instant::ZERO + Span::from_secs(2),
        }
    }

    #[test]
    fn both_directions_share_one_row_and_the_busiest_is_first() {
        let tuples = [
            snapshot(Way::Forward, 80, 10_000),
            snapshot(Way::Back, 443, 50_000),
            snapshot(Way::Forward, 443, 1_005_000),
        ];
        let table = table(&tuples, &[], 20);
        assert_eq!(table.rows.len(), 2);
        // 1 000 000 bytes arrived in 2 s: 4 Mb/s; 45 000 back: 0.18 Mb/s; 5 packets lost each way.
        let wanted: Vec<Cell> = vec![
            "TCP".into(),
            "10.0.0.1:5000".into(),
            "10.0.0.2:443".into(),
            Cell::Fixed(1.005, 3),
            Cell::Fixed(0.05, 3),
            Cell::Fixed(4.0, 3),
            Cell::Fixed(0.18, 3),
            Cell::Fixed(5.0, 0),
            Cell::Fixed(5.0, 0),
            Cell::Fixed(6.0, 0),
        ];
        assert_eq!(table.rows[0], wanted);
        assert_eq!(
            table.rows[1][4..8],
            [Cell::Empty, Cell::Fixed(0.02, 3), Cell::Empty, Cell::Fixed(5.0, 0)]
        );
    }

    #[test]
    fn conversations_beyond_the_table_limit_are_counted() {
        let tuples: Vec<_> = (1..=30).map(|port| snapshot(Way::Forward, port, 9_000)).collect();
        let table = table(&tuples, &[], 20);
        assert_eq!(table.rows.len(), 20);
        assert!(table.title.ends_with("20 of 30"), "{}", table.title);
    }

    #[test]
    fn a_host_pair_is_labelled_with_the_name_of_its_flow() {
        let mut other = snapshot(Way::Forward, 80, 20_000);
        other.pair = 1;
        let table = table(&[snapshot(Way::Forward, 80, 10_000), other], &["a", "b"], 20);
        assert_eq!(table.columns[0].name, "flow");
        assert_eq!([&table.rows[0][0], &table.rows[1][0]], [&Cell::from("b"), &Cell::from("a")]);
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
    }

    #[test]
    fn more_arrivals_than_departures_are_not_negative_loss() {
        let mut one = snapshot(Way::Forward, 80, 9_000);
        one.amount.arrived_packets = one.amount.sent_packets + 2;
        one.last = one.first;
        assert_eq!((lost(&one), mean_bps(&one)), (0, None));
    }

    #[test]
    fn csv_has_a_row_for_each_direction_with_all_columns() {
        let text =
            csv(&[snapshot(Way::Forward, 80, 10_000), snapshot(Way::Back, 80, 9_000)], &["web"]);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!(rows.len(), 3);
        assert!(rows.iter().all(|row| row.len() == rows[0].len()));
        assert_eq!(rows[2][..7], ["web", "back", "TCP", "10.0.0.2", "80", "10.0.0.1", "5000"]);
        assert_eq!(rows[1][17..], ["0", "2"]);
    }
}
