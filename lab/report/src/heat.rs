//! Heat map: one number for each pair of categories, shown as a colour.

use crate::axis::{Axis, Fit, Scale, Ticks};
use crate::draw::{Anchor, Drawing, Font, GREY, TEXT};
use crate::format::{minus, shortened, significant, text_width};
use crate::frame;
use crate::palette::{Ramp, shade};

/// A heat map: one number for each pair of categories.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heatmap {
    /// Title of the map.
    pub title: String,
    /// Quantity that differs between columns, with its unit: `loss rate`.
    pub x_label: String,
    /// Names of the columns, from left to right.
    pub x: Vec<String>,
    /// Quantity that differs between rows, with its unit.
    pub y_label: String,
    /// Names of the rows, from the top down.
    pub y: Vec<String>,
    /// One list per row with one value per column. Missing and non-finite values are left white.
    pub values: Vec<Vec<f64>>,
    /// Axis of the values: label, unit, log colours or not, and the range of colours.
    pub value: Axis,
    /// The value that is white; colours get darker on both sides. If `None`, colours run from light
    /// to dark.
    pub center: Option<f64>,
}

impl Heatmap {
    /// Returns a map without values.
    #[must_use]
    pub fn new(title: impl Into<String>, value: Axis) -> Self {
        Self { title: title.into(), value, ..Self::default() }
    }

    /// Sets the label and the names of the columns.
    #[must_use]
    pub fn with_x(mut self, label: impl Into<String>, names: Vec<String>) -> Self {
        (self.x_label, self.x) = (label.into(), names);
        self
    }

    /// Adds a row of values, one per column.
    #[must_use]
    pub fn with_row(mut self, name: impl Into<String>, values: Vec<f64>) -> Self {
        self.y.push(name.into());
        self.values.push(values);
        self
    }

    /// Returns the colour scale, or `None` if no value can be drawn.
    fn ramp(&self) -> Option<(Scale, Ramp)> {
        let shown =
            self.values.iter().take(self.y.len()).flat_map(|row| row.iter().take(self.x.len()));
        let center = self.center.filter(|c| self.value.can_show(*c));
        let scale = Scale::fit(&self.value, shown.copied(), Fit::Round, 5)?;
        let Some(center) = center else { return Some((scale, Ramp::Amount)) };
        // Equal range on both sides of the centre, so equal distances have equal contrast.
        let (low, high) = if scale.log {
            let ratio = (scale.high / center).max(center / scale.low).max(1.01);
            (center / ratio, center * ratio)
        } else {
            let away = (scale.high - center).max(center - scale.low);
            (center - away, center + away)
        };
        Some((Scale { low, high, log: scale.log }, Ramp::Around))
    }

    /// Returns the map as one SVG file of this size in pixels. The least size is 200 × 140.
    #[must_use]
    pub fn to_svg(&self, width: u32, height: u32) -> String {
        let mut d = Drawing::new(width, height, &self.title);
        let top = frame::header(&mut d, &self.title, &[]);
        let Some((scale, ramp)) = self.ramp() else {
            d.message((d.width / 2.0, d.height / 2.0), "no data");
            return d.finish();
        };
        let ticks = scale.ticks(&self.value.unit, 5);
        let legend = self.legend(&mut d, top, &scale, ramp, &ticks);
        let names = self.y.iter().map(|n| text_width(n) * TEXT).fold(0.0, f64::max);
        let left = (names + 22.0).clamp(40.0, d.width * 0.35);
        let plot_top = top + 24.0;
        let plot_right = d.width - legend;
        let cell_w = ((plot_right - left) / self.x.len().max(1) as f64).max(1.0);
        let widest = self.x.iter().map(|n| text_width(n) * TEXT).fold(0.0, f64::max);
        let slanted = widest + 6.0 > cell_w;
        let below = if slanted { (widest * 0.574 + 34.0).min(d.height / 3.0) } else { 42.0 };
        let cell_h = ((d.height - below - plot_top) / self.y.len().max(1) as f64).max(1.0);

        let caption = Font { fill: GREY, ..Font::plain(Anchor::Start) };
        d.text(
            10.0,
            plot_top - 9.0,
            caption,
            &shortened(&self.y_label, TEXT, d.width - legend - 20.0),
        );
        for (r, name) in self.y.iter().enumerate() {
            let y = plot_top + cell_h * r as f64;
            for c in 0..self.x.len() {
                let value = self.values.get(r).and_then(|row| row.get(c)).copied();
                let at = (left + cell_w * c as f64, y);
                self.cell(&mut d, at, (cell_w, cell_h), value, (&scale, ramp, ticks.divisor));
            }
            if cell_h >= 9.0 || r % 2 == 0 {
                let text = shortened(name, TEXT, left - 16.0);
                d.text(left - 7.0, y + cell_h / 2.0 + 4.0, Font::plain(Anchor::End), &text);
            }
        }
        let bottom = plot_top + cell_h * self.y.len() as f64;
        let every = crate::format::index((14.0 / cell_w).ceil()).max(1);
        for (c, name) in self.x.iter().enumerate().step_by(every) {
            let middle = left + cell_w * (c as f64 + 0.5);
            if slanted {
                let room = (middle / 0.82).min((below - 32.0) / 0.574).max(10.0);
                d.slanted(middle + 4.0, bottom + 14.0, &shortened(name, TEXT, room));
            } else {
                d.text(middle, bottom + 17.0, Font::plain(Anchor::Middle), name);
            }
        }
        let middle = f64::midpoint(left, plot_right);
        let text = shortened(&self.x_label, TEXT, plot_right - 10.0);
        d.text(middle, d.height - 8.0, Font { fill: GREY, ..Font::plain(Anchor::Middle) }, &text);
        d.finish()
    }

    fn cell(
        &self,
        d: &mut Drawing,
        at: (f64, f64),
        size: (f64, f64),
        value: Option<f64>,
        (scale, ramp, divisor): (&Scale, Ramp, f64),
    ) {
        let (text, fill, light) = match value.filter(|v| self.value.can_show(*v)) {
            Some(v) => {
                let color = shade(ramp, scale.fraction(v));
                (minus(&significant(v / divisor, 3)), color.to_string(), color.luminance() > 0.32)
            }
            None => ("–".to_owned(), "#ffffff".to_owned(), true),
        };
        d.rect(at, size, &fill, " stroke=\"#ffffff\" stroke-width=\"1\"");
        let font_size = if text_width(&text) * TEXT + 6.0 <= size.0 { TEXT } else { 10.0 };
        if text_width(&text) * font_size + 3.0 <= size.0 && size.1 >= font_size + 3.0 {
            let fill = if light { "#111111" } else { "#ffffff" };
            let font = Font { size: font_size, fill, ..Font::plain(Anchor::Middle) };
            d.text(at.0 + size.0 / 2.0, at.1 + size.1 / 2.0 + font_size * 0.36, font, &text);
        }
    }

    /// Draws the colour scale on the right and returns its width.
    fn legend(&self, d: &mut Drawing, top: f64, scale: &Scale, ramp: Ramp, ticks: &Ticks) -> f64 {
        let caption = self.value.caption(&ticks.unit);
        let labels = ticks.labelled.iter().map(|t| text_width(&t.label) * TEXT).fold(0.0, f64::max);
        let width = labels + 14.0 + 22.0 + 16.0;
        let (x, upper) = (d.width - width + 14.0, top + 24.0);
        let height = (d.height - upper - 42.0).clamp(20.0, 240.0);
        let caption = shortened(&caption, TEXT, d.width * 0.5);
        let font = Font { fill: GREY, ..Font::plain(Anchor::End) };
        d.text(d.width - 10.0, upper - 9.0, font, &caption);
        let steps = 48;
        let each = height / f64::from(steps);
        for i in 0..steps {
            let color = shade(ramp, 1.0 - (f64::from(i) + 0.5) / f64::from(steps)).to_string();
            d.rect((x, upper + each * f64::from(i)), (14.0, each + 0.5), &color, "");
        }
        for tick in &ticks.labelled {
            let y = upper + height * (1.0 - scale.fraction(tick.at));
            d.line((x + 14.0, y), (x + 18.0, y), GREY, "");
            d.text(x + 22.0, y + 4.0, Font::plain(Anchor::Start), &tick.label);
        }
        width
    }
}
