//! Vertical stack of pictures in one file.

/// Returns pictures, each with its height in pixels, below one another as one SVG file.
///
/// Each picture must have been drawn by this crate with the width `width`.
#[must_use]
pub fn stacked(width: u32, pictures: &[(String, u32)]) -> String {
    let height: u32 = pictures.iter().map(|(_, height)| height).sum();
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\">\n"
    );
    let mut top = 0;
    for (svg, height) in pictures {
        out += &svg.replacen("<svg ", &format!("<svg y=\"{top}\" "), 1);
        out.push('\n');
        top += height;
    }
    out + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Axis, Bar, BarChart, BarSeries};

    #[test]
    fn pictures_are_stacked_vertically_and_keep_their_size() {
        let chart = |title: &str| {
            BarChart::new(title, Axis::new("share", "%"), vec!["a".to_owned()])
                .with_series(BarSeries::new("x", vec![Bar::new(5.0)]))
                .to_svg(400, 200)
        };
        let both = stacked(400, &[(chart("over"), 200), (chart("under"), 200)]);
        assert!(both.contains("viewBox=\"0 0 400 400\""), "{both}");
        assert!(both.contains("<svg y=\"0\" ") && both.contains("<svg y=\"200\" "));
        assert_eq!((both.matches("<svg ").count(), both.matches("</svg>").count()), (3, 3));
    }
}
