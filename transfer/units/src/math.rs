//! Roots, logarithm and exponential function, computed with the four basic operations. The
//! functions of the C library differ between targets; these give the same bits on every machine.

use std::f64::consts::{LN_2, SQRT_2};

/// Returns the cube root; zero for arguments that are not positive.
pub fn cube_root(a: f64) -> f64 {
    root::<3>(a)
}

/// Returns the fifth root; zero for arguments that are not positive.
pub fn fifth_root(a: f64) -> f64 {
    root::<5>(a)
}

/// Returns the Nth root of a positive, normal number by Newton's iteration; zero if not positive.
fn root<const N: u16>(a: f64) -> f64 {
    if a <= 0.0 {
        return 0.0;
    }
    // Dividing the exponent by N is accurate to a tenth; each step doubles the digits.
    let n = f64::from(N);
    let bias = (1023 << 52) / u64::from(N) * u64::from(N - 1);
    let mut x = f64::from_bits(a.to_bits() / u64::from(N) + bias);
    for _ in 0..6 {
        let power = (2..N).fold(x, |power, _| power * x);
        x = ((n - 1.0) * x + a / power) / n;
    }
    x
}

/// Returns the natural logarithm of a positive, normal number, to about one part in 10^15.
pub fn ln(x: f64) -> f64 {
    debug_assert!(x.is_normal() && x > 0.0);
    let bits = x.to_bits();
    let mut exponent = i32::try_from(bits >> 52).unwrap_or(0) - 1023;
    let mut mantissa = f64::from_bits((bits & 0x000F_FFFF_FFFF_FFFF) | 0x3FF0_0000_0000_0000);
    if mantissa > SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    // ln m = 2 atanh t = 2 (t + t³/3 + t⁵/5 + …), t = (m - 1) ÷ (m + 1), |t| < 0.172.
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let square = t * t;
    let sum = (0..12).rev().fold(0.0, |sum, k| sum * square + 1.0 / f64::from(2 * k + 1));
    2.0 * t * sum + f64::from(exponent) * LN_2
}

/// Returns e to the power of `x`, for |x| below 700, to about one part in 10^14.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "|x| is below 700")]
pub fn exp(x: f64) -> f64 {
    debug_assert!(x.abs() < 700.0);
    let halvings = if x < 0.0 { x / LN_2 - 0.5 } else { x / LN_2 + 0.5 } as i64;
    let rest = x - halvings as f64 * LN_2;
    let sum = (1..=16).rev().fold(1.0, |sum, k| 1.0 + sum * rest / f64::from(k));
    sum * f64::from_bits(((1023 + halvings) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_right_over_the_whole_range() {
        assert!((cube_root(27.0) - 3.0).abs() < 1e-12);
        assert!((fifth_root(243.0) - 3.0).abs() < 1e-12);
        for n in -60..100 {
            let a = 1.7 * if n < 0 { 1.0 / (1u64 << -n) as f64 } else { (1u128 << n) as f64 };
            let x = cube_root(a);
            assert!((x * x * x / a - 1.0).abs() < 1e-14, "{a}");
            let x = fifth_root(a);
            assert!((x * x * x * x * x / a - 1.0).abs() < 1e-14, "{a}");
        }
        for a in [0.0, -1.0] {
            assert!(cube_root(a).abs() < 1e-300 && fifth_root(a).abs() < 1e-300);
        }
    }

    #[test]
    fn the_logarithm_of_a_product_is_the_sum() {
        // ln 1 = 0, ln 2, ln 10, and products of known values.
        assert!(ln(1.0).abs() < 1e-300);
        assert!((ln(2.0) - LN_2).abs() < 1e-15);
        assert!((ln(10.0) - std::f64::consts::LN_10).abs() < 1e-15);
        for n in 1..2000 {
            let (a, b) = (f64::from(n) * 0.37, f64::from(n) * f64::from(n));
            assert!((ln(a * b) - ln(a) - ln(b)).abs() < 1e-13, "{a}, {b}");
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "what ours is held against")]
    fn exp_and_ln_agree_with_the_c_library() {
        for i in 1..4000 {
            let x = f64::from(i) * 0.01;
            assert!((ln(x) - x.ln()).abs() < 1e-14 * x.ln().abs().max(1.0), "ln {x}");
            let y = f64::from(i - 2000) * 0.03;
            assert!((exp(y) / y.exp() - 1.0).abs() < 1e-13, "exp {y}");
        }
        assert!((ln(1e-300) - 1e-300_f64.ln()).abs() < 1e-12);
    }
}
