//! Built-in grid of the checker, used without a grid file.
//!
//! Seven points in ten are drawn from wide ranges. The rest is drawn near the limits of a lemma:
//! between the two bounds on k2 of Lemma 3 and at the bounds of Lemma 7. For Lemma 6, interfaces
//! are slightly faster than the service rate.

use sabul_units::{Random as _, SeededRandom};

use super::spec::unit;
use crate::formulas::{c_of_excess_loss_printed, excess, k2_printed, k2_sharp};
use crate::params::{Key, Params};

/// Draws a log-uniform number between two values.
fn log(random: &mut SeededRandom, from: f64, to: f64) -> f64 {
    (from.ln() + (to.ln() - from.ln()) * unit(random)).exp()
}

/// Draws a uniform number between two values.
fn linear(random: &mut SeededRandom, from: f64, to: f64) -> f64 {
    from + (to - from) * unit(random)
}

/// Most draws before a point is left out, which happens once in some thousand points.
const TRIES: u32 = 32;

/// Returns point `index` of `count`, redrawn until it is valid.
pub fn builtin(seed: u64, index: u64, count: u64) -> Option<Params> {
    let mut random = SeededRandom::new(seed).fork(&format!("builtin/{index}"));
    (0..TRIES).find_map(|_| {
        let params = general(&mut random)?;
        match index * 10 / count.max(1) {
            0..7 => Some(params),
            7 => between_bounds(&params, &mut random),
            8 => near_excess_loss(&params, &mut random),
            _ => slow_interface(&params, &mut random),
        }
    })
}

fn general(random: &mut SeededRandom) -> Option<Params> {
    let alpha = log(random, 1e-4, 5e-2);
    let queue = if random.below(5) == 0 { 0.0 } else { log(random, 10.0, 2e4).round() };
    Params::builder()
        .with(Key::CapacityMbps, log(random, 100.0, 1e4))
        .with(Key::ServiceShare, linear(random, 0.05, 0.98))
        .with(Key::QueuePackets, queue)
        .with(Key::RoundMs, log(random, 10.0, 500.0))
        .with(Key::K1, log(random, 1e-4, 5.0))
        // k2·α determines the step; above 1 the gap becomes negative.
        .with(Key::K2, log(random, 1e-3, 3.0) / alpha)
        .with(Key::Alpha, alpha)
        .with(Key::CUs, log(random, 1e-3, 5.0))
        .with(Key::RateShareInitial, log(random, 0.05, 0.95))
        .with(Key::RateShareInitialSecond, log(random, 0.05, 0.95))
        .build()
        .ok()
}

/// Draws `C/(C−µ) < k2 ≤ 1/D` without a queue, where Lemma 3 depends on the start.
fn between_bounds(params: &Params, random: &mut SeededRandom) -> Option<Params> {
    let k2 = linear(random, k2_printed(params), k2_sharp(params));
    let is_possible = excess(params) > 0.0;
    let builder = params.to_builder().with(Key::K2, k2).with(Key::QueuePackets, 0.0);
    builder.build().ok().filter(|_| is_possible)
}

/// Draws k2·(1−µ/C) from 2 to 10 and c up to its bound, at the limit of Lemma 7.
fn near_excess_loss(params: &Params, random: &mut SeededRandom) -> Option<Params> {
    let share = 1.0 - params.value(Key::ServiceShare);
    let k2 = log(random, 2.0, 10.0) / share;
    let k1 = k2 * params.alpha() * log(random, 1e-4, 1.0);
    let params = params.to_builder().with(Key::K1, k1).with(Key::K2, k2).build().ok()?;
    let c_us = c_of_excess_loss_printed(&params) * 1e6 * log(random, 1e-2, 1.0);
    params.to_builder().with(Key::CUs, c_us).build().ok()
}

/// Draws µ from C·(1 − 1.2·α) to C·(1 − 0.05·α).
fn slow_interface(params: &Params, random: &mut SeededRandom) -> Option<Params> {
    let share = 1.0 - params.alpha() * linear(random, 0.05, 1.2);
    params.to_builder().with(Key::ServiceShare, share.min(0.999_99)).build().ok()
}
