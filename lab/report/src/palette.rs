//! Palette of colours, markers, dashes and colour scales that are distinguishable with colour
//! blindness and in print.

use std::fmt;

/// A colour in sRGB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Color {
    /// Red, 0 to 255.
    r: u8,
    /// Green, 0 to 255.
    g: u8,
    /// Blue, 0 to 255.
    b: u8,
}

impl Color {
    /// Returns a colour from its three components, 0 to 255 each.
    const fn rgb(r: u8, g: u8, b: u8) -> Self {
        Self { r, g, b }
    }

    /// Returns the relative luminance of sRGB, from 0 (black) to 1 (white).
    pub(crate) fn luminance(self) -> f64 {
        let linear = |part: u8| {
            let c = f64::from(part) / 255.0;
            if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * linear(self.r) + 0.7152 * linear(self.g) + 0.0722 * linear(self.b)
    }

    /// Returns the colour at a fraction of the way to another colour.
    fn towards(self, other: Self, fraction: f64) -> Self {
        let mix = |a: u8, b: u8| {
            let value = f64::from(a) + (f64::from(b) - f64::from(a)) * fraction;
            u8::try_from(crate::format::whole(value).clamp(0, 255)).unwrap_or(u8::MAX)
        };
        Self::rgb(mix(self.r, other.r), mix(self.g, other.g), mix(self.b, other.b))
    }
}

impl fmt::Display for Color {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{:02x}{:02x}{:02x}", self.r, self.g, self.b)
    }
}

/// Colours of series in order. Neighbours differ in lightness as well as in hue.
pub(crate) const SERIES: [Color; 10] = [
    Color::rgb(0x00, 0x6d, 0xb0),
    Color::rgb(0xd9, 0x5f, 0x02),
    Color::rgb(0x00, 0x8f, 0x68),
    Color::rgb(0x8e, 0x1f, 0x5a),
    Color::rgb(0x4f, 0xb0, 0xe8),
    Color::rgb(0x30, 0x22, 0x84),
    Color::rgb(0xe0, 0xa0, 0x10),
    Color::rgb(0x22, 0x22, 0x22),
    Color::rgb(0xd0, 0x74, 0xb4),
    Color::rgb(0x8a, 0x8a, 0x8a),
];

/// Returns the colour of the series at a position.
pub(crate) fn series(position: usize) -> Color {
    SERIES[position % SERIES.len()]
}

/// Dash patterns of dashed lines in order, in pixels.
const DASHES: [&str; 5] = ["7 4", "2 3", "9 3 2 3", "12 4", "4 2"];

/// Returns the dash pattern of the dashed line at a position.
pub(crate) fn dashes(position: usize) -> &'static str {
    DASHES[position % DASHES.len()]
}

/// Number of shapes of [`marker`].
const MARKERS: usize = 10;

/// Painting of a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    /// Filled with the colour of its line.
    Filled,
    /// White inside.
    Hollow,
    /// Strokes only.
    Strokes,
}

/// Returns how markers of a shape are painted.
pub(crate) fn paint(shape: usize) -> Paint {
    match shape % MARKERS {
        4 | 5 | 9 => Paint::Strokes,
        7 | 8 => Paint::Hollow,
        _ => Paint::Filled,
    }
}

/// Returns the relative path of a marker that starts at its centre. Add the path after `M x y`. The
/// marker is about 7 px wide.
pub(crate) fn marker(shape: usize) -> &'static str {
    match shape % MARKERS {
        // Disc, square, triangle, diamond.
        0 => "m-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0-6.4 0z",
        1 => "m-3-3h6v6h-6z",
        2 => "m0-3.9l3.7 6.6h-7.4z",
        3 => "m0-4.2l3.7 4.2l-3.7 4.2l-3.7-4.2z",
        // Cross, plus.
        4 => "m-3-3l6 6m0-6l-6 6",
        5 => "m-3.8 0h7.6m-3.8-3.8v7.6",
        // Triangle on its tip, ring, frame, star.
        6 => "m0 3.9l3.7-6.6h-7.4z",
        7 => "m-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0-6.4 0z",
        8 => "m-3-3h6v6h-6z",
        _ => "m-3.8 0h7.6m-5.7-3.3l3.8 6.6m0-6.6l-3.8 6.6",
    }
}

/// Light to dark, for amounts. Lightness falls monotonically, so the scale is also readable in
/// grey.
const AMOUNT: [Color; 5] = [
    Color::rgb(0xfb, 0xf6, 0xdc),
    Color::rgb(0xb4, 0xdc, 0xb8),
    Color::rgb(0x4f, 0xa9, 0xb8),
    Color::rgb(0x2b, 0x66, 0xa6),
    Color::rgb(0x1c, 0x22, 0x5e),
];

/// Dark orange over white to dark blue, for amounts below and above a centre.
const AROUND: [Color; 5] = [
    Color::rgb(0x8c, 0x3a, 0x04),
    Color::rgb(0xf0, 0xa8, 0x5a),
    Color::rgb(0xfa, 0xfa, 0xf7),
    Color::rgb(0x6f, 0xab, 0xd6),
    Color::rgb(0x0c, 0x3d, 0x78),
];

/// Direction of a colour scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ramp {
    /// Small is light, large is dark.
    Amount,
    /// The middle is white.
    Around,
}

/// Returns the colour of a fraction from 0 to 1.
pub(crate) fn shade(ramp: Ramp, fraction: f64) -> Color {
    let stops = match ramp {
        Ramp::Amount => &AMOUNT,
        Ramp::Around => &AROUND,
    };
    let position = fraction.clamp(0.0, 1.0) * 4.0;
    let below = crate::format::index(position).min(3);
    stops[below].towards(stops[below + 1], position - below as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Colour as seen with one kind of cone missing, in linear light. Full-strength matrices of the
    /// physiological model by Machado, Oliveira and Fernandes (2009).
    const SEEN: [[[f64; 3]; 3]; 3] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [
            [0.152_286, 1.052_583, -0.204_868],
            [0.114_503, 0.786_281, 0.099_216],
            [-0.003_882, -0.048_116, 1.051_998],
        ],
        [
            [0.367_322, 0.860_646, -0.227_968],
            [0.280_085, 0.672_501, 0.047_413],
            [-0.011_820, 0.042_940, 0.968_881],
        ],
    ];

    /// Returns the Lab coordinates of the perceived colour (white point D65).
    fn seen_lab(color: Color, matrix: &[[f64; 3]; 3]) -> [f64; 3] {
        let linear = [color.r, color.g, color.b].map(|part| {
            let c = f64::from(part) / 255.0;
            if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
        });
        let dot = |row: &[f64; 3], v: &[f64; 3]| row.iter().zip(v).map(|(a, b)| a * b).sum::<f64>();
        let rgb = [0, 1, 2].map(|i| dot(&matrix[i], &linear).clamp(0.0, 1.0));
        let f = |t: f64| if t > 0.008_856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 };
        let x = f(dot(&[0.4124, 0.3576, 0.1805], &rgb) / 0.9505);
        let y = f(dot(&[0.2126, 0.7152, 0.0722], &rgb));
        let z = f(dot(&[0.0193, 0.1192, 0.9505], &rgb) / 1.089);
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    #[test]
    fn any_two_series_are_distinguishable_with_colour_blindness() {
        for (kind, matrix) in SEEN.iter().enumerate() {
            for (i, a) in SERIES.iter().enumerate() {
                for (j, b) in SERIES.iter().enumerate().skip(i + 1) {
                    let (a, b) = (seen_lab(*a, matrix), seen_lab(*b, matrix));
                    let apart = a.iter().zip(b).map(|(p, q)| (p - q).powi(2)).sum::<f64>().sqrt();
                    assert!(apart > 10.0, "series {i} and {j} look alike to kind {kind}: {apart}");
                }
            }
        }
    }

    #[test]
    fn every_series_colour_contrasts_with_white() {
        for color in SERIES {
            let contrast = 1.05 / (color.luminance() + 0.05);
            assert!(contrast > 2.0, "{color} has contrast {contrast}");
        }
    }

    #[test]
    fn amounts_map_to_ever_darker_shades() {
        let light = |i: u32| shade(Ramp::Amount, f64::from(i) / 100.0).luminance();
        assert!((0..100).all(|i| light(i) > light(i + 1)));
    }

    #[test]
    fn values_outside_the_scale_get_the_shades_of_its_ends() {
        assert_eq!(shade(Ramp::Around, -3.0), AROUND[0]);
        assert_eq!(shade(Ramp::Around, 9.0), AROUND[4]);
        assert_eq!(shade(Ramp::Around, 0.5), AROUND[2]);
        assert_eq!(Color::rgb(1, 171, 255).to_string(), "#01abff");
    }
}
