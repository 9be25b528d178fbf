//! Tables for terminals, Markdown and pages.

use crate::escape::{markdown, terminal, xml};
use crate::format::{fixed, significant, usable};

/// A table: columns with units, and rows of cells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Title; may be empty.
    pub title: String,
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows. Cells beyond the columns are not shown; missing cells are empty.
    pub rows: Vec<Vec<Cell>>,
}

/// One column of a [`Table`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// Name.
    pub name: String,
    /// Unit of the numbers; may be empty.
    pub unit: String,
    /// Alignment of the cells.
    pub align: Align,
}

/// Alignment of cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Align {
    /// Left, for text.
    #[default]
    Left,
    /// Right, for numbers.
    Right,
}

/// One cell of a [`Table`].
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Cell {
    /// Empty.
    #[default]
    Empty,
    /// Text.
    Text(String),
    /// A number with four significant digits; `–` if it is not finite.
    Number(f64),
    /// A number with this many decimals; `–` if it is not finite.
    Fixed(f64, usize),
    /// A positive verdict.
    Pass(String),
    /// A negative verdict.
    Fail(String),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl Cell {
    fn text(&self) -> String {
        match self {
            Self::Empty => String::new(),
            Self::Text(text) | Self::Pass(text) | Self::Fail(text) => text.clone(),
            Self::Number(number) => significant(*number, 4),
            Self::Fixed(number, _) if !usable(*number) => "–".to_owned(),
            Self::Fixed(number, decimals) if number.abs() < 1e15 => {
                fixed(*number, (*decimals).min(15))
            }
            Self::Fixed(number, _) => significant(*number, 4),
        }
    }
}

impl Column {
    /// Returns a column of text.
    #[must_use]
    pub fn text(name: impl Into<String>) -> Self {
        Self { name: name.into(), unit: String::new(), align: Align::Left }
    }

    /// Returns a column of numbers with their unit, which may be empty.
    #[must_use]
    pub fn number(name: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { name: name.into(), unit: unit.into(), align: Align::Right }
    }

    fn heading(&self) -> String {
        match (self.name.is_empty(), self.unit.is_empty()) {
            (_, true) => self.name.clone(),
            (true, false) => self.unit.clone(),
            (false, false) => format!("{} ({})", self.name, self.unit),
        }
    }
}

/// A table with one row for each item, which grows by columns.
#[derive(Clone, Debug)]
#[must_use]
pub struct TableOf<'a, T> {
    items: &'a [T],
    table: Table,
}

impl<T> TableOf<'_, T> {
    /// Adds a column of text; `cell` returns the cell of an item.
    pub fn text(self, name: impl Into<String>, cell: impl Fn(&T) -> Cell) -> Self {
        self.with(Column::text(name), cell)
    }

    /// Adds a column of numbers with their unit, which may be empty; `cell` returns the cell of an
    /// item.
    pub fn number(
        self,
        name: impl Into<String>,
        unit: impl Into<String>,
        cell: impl Fn(&T) -> Cell,
    ) -> Self {
        self.with(Column::number(name, unit), cell)
    }

    fn with(mut self, column: Column, cell: impl Fn(&T) -> Cell) -> Self {
        self.table.columns.push(column);
        for (row, item) in self.table.rows.iter_mut().zip(self.items) {
            row.push(cell(item));
        }
        self
    }

    /// Returns the finished table.
    pub fn table(self) -> Table {
        self.table
    }
}

/// Returns the terminal columns of a text. Wide East Asian characters count two.
fn columns_of(text: &str) -> usize {
    text.chars()
        .map(|c| match u32::from(c) {
            0x0300..=0x036f | 0x200b..=0x200f | 0xfe00..=0xfe0f => 0,
            0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff => 2,
            0xfe30..=0xfe6f | 0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1faff => 2,
            _ => 1,
        })
        .sum()
}

/// Returns a text in exactly `width` terminal columns, with `…` at the cut.
fn padded(text: &str, width: usize, align: Align) -> String {
    let mut shown = text.to_owned();
    if columns_of(text) > width {
        shown.clear();
        let mut used = 1;
        for c in text.chars() {
            used += columns_of(c.encode_utf8(&mut [0; 4]));
            if used > width {
                break;
            }
            shown.push(c);
        }
        if width > 0 {
            shown.push('…');
        }
    }
    let fill = " ".repeat(width.saturating_sub(columns_of(&shown)));
    match align {
        Align::Left => shown + &fill,
        Align::Right => fill + &shown,
    }
}

impl Table {
    /// Returns a table without rows.
    #[must_use]
    pub fn new(title: impl Into<String>, columns: Vec<Column>) -> Self {
        Self { title: title.into(), columns, rows: Vec::new() }
    }

    /// Begins a table with one row for each item.
    pub fn of<T>(title: impl Into<String>, items: &[T]) -> TableOf<'_, T> {
        let rows = vec![Vec::new(); items.len()];
        TableOf { items, table: Self { title: title.into(), columns: Vec::new(), rows } }
    }

    /// Adds a row.
    #[must_use]
    pub fn with_row(mut self, cells: Vec<Cell>) -> Self {
        self.rows.push(cells);
        self
    }

    /// Returns the text of a cell; empty if the row is too short.
    fn cell(&self, row: usize, column: usize) -> String {
        self.rows.get(row).and_then(|r| r.get(column)).map(Cell::text).unwrap_or_default()
    }

    /// Returns the table as lines of at most `width` terminal columns, each ending with a newline.
    ///
    /// Headings have the unit below the name. If the table is too wide, the widest text columns are
    /// cut first, with `…`. Below four columns for each, lines get longer instead.
    #[must_use]
    pub fn to_text(&self, width: usize) -> String {
        let mut out = String::new();
        if !self.title.is_empty() {
            out.push_str(&terminal(&self.title));
            out.push('\n');
        }
        if self.columns.is_empty() {
            return out;
        }
        let texts: Vec<Vec<String>> = (0..self.rows.len())
            .map(|r| (0..self.columns.len()).map(|c| terminal(&self.cell(r, c))).collect())
            .collect();
        let widths = self.text_widths(&texts, width);
        let mut line = |cells: &mut dyn Iterator<Item = String>| {
            let parts: Vec<String> = cells
                .zip(&self.columns)
                .zip(&widths)
                .map(|((text, column), w)| padded(&text, *w, column.align))
                .collect();
            out.push_str(parts.join("  ").trim_end());
            out.push('\n');
        };
        line(&mut self.columns.iter().map(|c| terminal(&c.name)));
        if self.columns.iter().any(|c| !c.unit.is_empty()) {
            line(&mut self.columns.iter().map(|c| terminal(&c.unit)));
        }
        line(&mut widths.iter().map(|w| "─".repeat(*w)));
        if texts.is_empty() {
            out.push_str("no data\n");
            return out;
        }
        for row in texts {
            line(&mut row.into_iter());
        }
        out
    }

    fn text_widths(&self, texts: &[Vec<String>], width: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(c, column)| {
                let cells = texts.iter().map(|row| columns_of(&row[c])).max().unwrap_or(0);
                let name = columns_of(&terminal(&column.name));
                cells.max(name).max(columns_of(&terminal(&column.unit)))
            })
            .collect();
        let room = width.saturating_sub(2 * (widths.len() - 1));
        while widths.iter().sum::<usize>() > room {
            // A cut text is still readable, but a cut number is not.
            let widest = |align: Align| {
                (0..widths.len())
                    .filter(|c| self.columns[*c].align == align && widths[*c] > 4)
                    .max_by_key(|c| widths[*c])
            };
            let Some(c) = widest(Align::Left).or_else(|| widest(Align::Right)) else { break };
            widths[c] -= 1;
        }
        widths
    }

    /// Returns the table as Markdown, with its title in bold above the table.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut out = String::new();
        if !self.title.is_empty() {
            out.push_str(&format!("**{}**\n\n", markdown(&self.title)));
        }
        if self.columns.is_empty() {
            return out;
        }
        let mut line = |cells: Vec<String>| out.push_str(&format!("| {} |\n", cells.join(" | ")));
        line(self.columns.iter().map(|c| markdown(&c.heading())).collect());
        let rule = |c: &Column| if c.align == Align::Right { "--:" } else { "---" }.to_owned();
        line(self.columns.iter().map(rule).collect());
        for r in 0..self.rows.len() {
            line((0..self.columns.len()).map(|c| markdown(&self.cell(r, c))).collect());
        }
        out
    }

    /// Returns the table as an HTML fragment.
    pub(crate) fn to_html(&self) -> String {
        let mut out = String::from("<div class=\"scroll\"><table>\n");
        if !self.title.is_empty() {
            out.push_str(&format!("<caption>{}</caption>\n", xml(&self.title)));
        }
        let class = |column: &Column| match column.align {
            Align::Left => "",
            Align::Right => " class=\"n\"",
        };
        out.push_str("<thead><tr>");
        for column in &self.columns {
            let name = xml(&column.name);
            let unit = if column.unit.is_empty() {
                String::new()
            } else {
                format!(" <small>{}</small>", xml(&column.unit))
            };
            out.push_str(&format!("<th scope=\"col\"{}>{name}{unit}</th>", class(column)));
        }
        out.push_str("</tr></thead>\n<tbody>\n");
        for (r, row) in self.rows.iter().enumerate() {
            out.push_str("<tr>");
            for (c, column) in self.columns.iter().enumerate() {
                let text = xml(&self.cell(r, c));
                let text = match row.get(c) {
                    Some(Cell::Pass(_)) => format!("<span class=\"pass\">{text}</span>"),
                    Some(Cell::Fail(_)) => format!("<span class=\"fail\">{text}</span>"),
                    _ => text,
                };
                out.push_str(&format!("<td{}>{text}</td>", class(column)));
            }
            out.push_str("</tr>\n");
        }
        if self.rows.is_empty() {
            let span = self.columns.len().max(1);
            out.push_str(&format!("<tr><td colspan=\"{span}\">no data</td></tr>\n"));
        }
        out.push_str("</tbody></table></div>\n");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let columns = vec![
            Column::text("controller"),
            Column::number("goodput", "Mb/s"),
            Column::number("loss rate", ""),
        ];
        Table::new("Two flows", columns)
            .with_row(vec!["sabul".into(), Cell::Fixed(439.96, 1), 0.000_125.into()])
            .with_row(vec!["reno".into(), f64::NAN.into()])
    }

    #[test]
    fn columns_line_up_with_units_beneath_their_names() {
        let wanted = "\
Two flows
controller  goodput  loss rate
               Mb/s
──────────  ───────  ─────────
sabul         440.0   0.000125
reno              –
";
        assert_eq!(table().to_text(80), wanted);
    }

    #[test]
    fn wide_tables_shorten_text_before_numbers() {
        let text = table()
            .with_row(vec!["a very long name of a controller".into(), 123_456.7.into()])
            .to_text(34);
        for line in text.lines().skip(1) {
            assert!(columns_of(line) <= 34, "{line}");
        }
        assert!(text.contains("a very long n…") && text.contains("123457"), "{text}");
    }

    #[test]
    fn a_table_prints_at_width_zero() {
        let text = table().to_text(0);
        assert!(text.contains("sab…") && text.lines().count() == 6, "{text}");
    }

    #[test]
    fn markdown_has_one_line_a_row() {
        let wanted = "\
**Two flows**

| controller | goodput (Mb/s) | loss rate |
| --- | --: | --: |
| sabul | 440.0 | 0.000125 |
| reno | – |  |
";
        assert_eq!(table().to_markdown(), wanted);
    }

    #[test]
    fn tables_without_rows_print_no_data() {
        let empty = Table::new("", vec![Column::text("a")]);
        assert_eq!(empty.to_text(80), "a\n─\nno data\n");
        assert!(empty.to_html().contains("no data"));
        assert_eq!(Table::default().to_text(80), "");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(padded("測試", 6, Align::Right), "  測試");
        assert_eq!(columns_of(&padded("測試測試", 5, Align::Left)), 5);
    }

    #[test]
    fn verdicts_are_highlighted_in_html_and_plain_in_text() {
        let row = vec![Cell::Pass("yes".to_owned()), Cell::Fail("<no>".to_owned())];
        let table = Table::new("", vec![Column::text("a"), Column::text("b")]).with_row(row);
        assert!(table.to_html().contains("<span class=\"fail\">&lt;no&gt;</span>"));
        assert!(table.to_text(80).contains("yes  <no>"));
    }
}
