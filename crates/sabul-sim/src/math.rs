//! Logarithm and exponential from the four basic operations, so that a seed gives the same bits on
//! every machine; those of the C library differ between targets.

use std::f64::consts::{LN_2, SQRT_2};

/// The natural logarithm of a positive, normal number, to about one part in 10^15.
pub(crate) fn ln(x: f64) -> f64 {
    debug_assert!(x.is_normal() && x > 0.0);
    let bits = x.to_bits();
    let mut exponent = i32::try_from(bits >> 52).unwrap_or(0) - 1023;
    let mut mantissa = f64::from_bits((bits & 0x000F_FFFF_FFFF_FFFF) | 0x3FF0_0000_0000_0000);
    if mantissa > SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    // ln m = 2 atanh t = 2 (t + t³/3 + t⁵/5 + …), t = (m − 1) ÷ (m + 1), |t| < 0.172.
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let square = t * t;
    let sum = (0..12).rev().fold(0.0, |sum, k| sum * square + 1.0 / f64::from(2 * k + 1));
    2.0 * t * sum + f64::from(exponent) * LN_2
}

/// e to the power of `x`, for |x| below 700, to about one part in 10^14.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "|x| is below 700")]
pub(crate) fn exp(x: f64) -> f64 {
    debug_assert!(x.abs() < 700.0);
    let halvings = if x < 0.0 { x / LN_2 - 0.5 } else { x / LN_2 + 0.5 } as i64;
    let rest = x - halvings as f64 * LN_2;
    let sum = (1..=16).rev().fold(1.0, |sum, k| 1.0 + sum * rest / f64::from(k));
    sum * f64::from_bits(((1023 + halvings) as u64) << 52)
}

#[cfg(test)]
mod tests {
    #[test]
    #[expect(clippy::disallowed_methods, reason = "what ours is held against")]
    fn both_agree_with_the_c_library() {
        for i in 1..4000 {
            let x = f64::from(i) * 0.01;
            assert!((super::ln(x) - x.ln()).abs() < 1e-14 * x.ln().abs().max(1.0), "ln {x}");
            let y = f64::from(i - 2000) * 0.03;
            assert!((super::exp(y) / y.exp() - 1.0).abs() < 1e-13, "exp {y}");
        }
        assert!((super::ln(1e-300) - 1e-300_f64.ln()).abs() < 1e-12);
    }
}
