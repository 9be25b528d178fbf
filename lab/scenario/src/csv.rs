//! CSV writers for time series.

use std::fmt::Write as _;
use std::io;

use sabul_run::results::Series;

/// Writes `series.csv`: one row per sample and flow.
///
/// A missing value, such as the RTT before the first RTT sample, is an empty cell.
///
/// # Errors
/// If writing to `out` fails.
pub fn write_series(series: &Series, out: &mut impl io::Write) -> io::Result<()> {
    out.write_all(
        b"t_s,flow,goodput_bps,rate_bps,gap_ns,rtt_ms,in_flight_pkts,loss_rate,cwnd_pkts,\
          delivery_bps\n",
    )?;
    let mut row = String::new();
    for (n, t_s) in series.t_s.iter().enumerate() {
        for flow in &series.flows {
            let columns = [
                &flow.goodput_bps,
                &flow.rate_bps,
                &flow.gap_ns,
                &flow.rtt_ms,
                &flow.in_flight_pkts,
                &flow.loss_rate,
                &flow.cwnd_pkts,
                &flow.delivery_bps,
            ];
            write_row(&mut row, *t_s, &flow.id, columns.map(|column| column.get(n)));
            out.write_all(row.as_bytes())?;
        }
    }
    Ok(())
}

/// Writes `links.csv`: one row per sample and link, in the order of the series' links.
///
/// # Errors
/// If writing to `out` fails.
pub fn write_links(series: &Series, out: &mut impl io::Write) -> io::Result<()> {
    out.write_all(b"t_s,link,queue_pkts,drops,utilisation\n")?;
    let mut row = String::new();
    for (n, t_s) in series.t_s.iter().enumerate() {
        for link in &series.links {
            let columns = [&link.queue_pkts, &link.drops, &link.utilisation];
            write_row(&mut row, *t_s, &link.id, columns.map(|column| column.get(n)));
            out.write_all(row.as_bytes())?;
        }
    }
    Ok(())
}

/// Formats one row. Identifiers contain neither commas nor quotes.
fn write_row<const N: usize>(row: &mut String, t_s: f64, id: &str, cells: [Option<&f64>; N]) {
    row.clear();
    write_number(row, t_s);
    row.push(',');
    row.push_str(id);
    for cell in cells {
        row.push(',');
        write_number(row, cell.copied().unwrap_or(f64::NAN));
    }
    row.push('\n');
}

fn write_number(row: &mut String, number: f64) {
    if number.is_finite() {
        // Writing to a string cannot fail.
        let _ = write!(row, "{number}");
    }
}
