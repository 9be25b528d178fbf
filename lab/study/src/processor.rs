//! Processor cost of work, in clock cycles.

use sabul_run::statistics::mean;

/// Returns clock cycles per bit, as MHz of processor per Mb/s of goodput [SLAC Table 1].
pub fn mhz_per_mbps(
    cpu_seconds: Option<f64>,
    clock_mhz: Option<f64>,
    seconds: f64,
    goodput_bps: f64,
) -> Option<f64> {
    let cost = cpu_seconds? * clock_mhz? / seconds / (goodput_bps / 1e6);
    cost.is_finite().then_some(cost)
}

/// Returns the present mean clock of the processors in MHz, if the system reports it.
pub fn cpu_mhz() -> Option<f64> {
    clock_of(&std::fs::read_to_string("/proc/cpuinfo").ok()?)
}

fn clock_of(cpuinfo: &str) -> Option<f64> {
    let clocks = cpuinfo.lines().filter_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "cpu MHz").then(|| value.trim().parse::<f64>().ok())?
    });
    mean(clocks.filter(|clock| *clock > 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_frequency_is_the_mean_of_all_processors() {
        let text = "processor: 0\ncpu MHz\t\t: 2000.0\nprocessor: 1\ncpu MHz\t\t: 3000.0\n";
        assert_eq!(clock_of(text), Some(2500.0));
        assert_eq!(clock_of("model name: x\n"), None);
    }

    #[test]
    fn the_cost_is_cycles_per_bit() {
        // 1 s of a 2000 MHz processor in 2 s of time, at 500 Mb/s: 1000 MHz ÷ 500 Mb/s = 2.
        assert_eq!(mhz_per_mbps(Some(1.0), Some(2000.0), 2.0, 5e8), Some(2.0));
        assert_eq!(mhz_per_mbps(Some(1.0), None, 2.0, 5e8), None);
        assert_eq!(mhz_per_mbps(Some(1.0), Some(2000.0), 0.0, 0.0), None);
    }
}
