//! Point thinning that preserves every extreme.

use crate::format::index;

/// Returns at most about `limit` points of a line. Gaps (`None`) are kept.
///
/// The line is cut into segments, equal in x if x never decreases, otherwise equal in number of
/// points. Each segment keeps its first, last, lowest and highest point, and the leftmost and
/// rightmost if x may turn. A line of up to `limit` points stays unchanged.
pub(crate) fn thin(
    points: &[Option<(f64, f64)>],
    limit: usize,
    log_x: bool,
) -> Vec<Option<(f64, f64)>> {
    if points.len() <= limit {
        return points.to_vec();
    }
    let along = |x: f64| if log_x { x.log10() } else { x };
    let xs = || points.iter().flatten().map(|p| along(p.0));
    let rising = xs().zip(xs().skip(1)).all(|(a, b)| a <= b);
    let (start, end) = (xs().next().unwrap_or(0.0), xs().next_back().unwrap_or(0.0));
    let by_x = rising && end > start;
    let stretches = (limit / if by_x { 4 } else { 6 }).max(1);
    let stretch_of = |i: usize, x: f64| {
        let fraction =
            if by_x { (along(x) - start) / (end - start) } else { i as f64 / points.len() as f64 };
        index(fraction * stretches as f64).min(stretches - 1)
    };

    let mut out = Vec::with_capacity(limit + 2);
    let mut kept: Vec<usize> = Vec::with_capacity(6);
    let mut current = None;
    let mut extremes: Option<Extremes> = None;
    for (i, point) in points.iter().enumerate() {
        let Some((x, y)) = *point else { continue };
        let stretch = stretch_of(i, x);
        if current != Some(stretch) {
            emit(points, extremes.take(), by_x, &mut kept, &mut out);
            current = Some(stretch);
        }
        match &mut extremes {
            Some(e) => e.add(i, x, y),
            None => extremes = Some(Extremes::new(i, x, y)),
        }
    }
    emit(points, extremes, by_x, &mut kept, &mut out);
    out
}

/// Indexes of the kept points of one segment.
struct Extremes {
    first: usize,
    last: usize,
    low: (f64, usize),
    high: (f64, usize),
    left: (f64, usize),
    right: (f64, usize),
}

impl Extremes {
    fn new(i: usize, x: f64, y: f64) -> Self {
        Self { first: i, last: i, low: (y, i), high: (y, i), left: (x, i), right: (x, i) }
    }

    fn add(&mut self, i: usize, x: f64, y: f64) {
        self.last = i;
        if y < self.low.0 {
            self.low = (y, i);
        }
        if y > self.high.0 {
            self.high = (y, i);
        }
        if x < self.left.0 {
            self.left = (x, i);
        }
        if x > self.right.0 {
            self.right = (x, i);
        }
    }
}

/// Writes the kept points of one segment, with one gap wherever gaps were skipped.
fn emit(
    points: &[Option<(f64, f64)>],
    extremes: Option<Extremes>,
    by_x: bool,
    kept: &mut Vec<usize>,
    out: &mut Vec<Option<(f64, f64)>>,
) {
    let Some(e) = extremes else { return };
    let before = kept.last().copied();
    kept.clear();
    kept.extend([e.first, e.low.1, e.high.1, e.last]);
    if !by_x {
        kept.extend([e.left.1, e.right.1]);
    }
    kept.sort_unstable();
    kept.dedup();
    let mut previous = before;
    for &i in kept.iter() {
        if previous.is_some_and(|p| points[p..i].iter().any(Option::is_none)) {
            out.push(None);
        }
        out.push(points[i]);
        previous = Some(i);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wave with one spike up and one down, each a single point.
    fn spiky(count: u32) -> Vec<Option<(f64, f64)>> {
        (0..count)
            .map(|i| {
                let y = match i {
                    77_777 => 1e6,
                    33_333 => -1e6,
                    _ => f64::from(i % 100),
                };
                Some((f64::from(i), y))
            })
            .collect()
    }

    #[test]
    fn every_extreme_survives_thinning() {
        let points = spiky(100_000);
        let thinned = thin(&points, 2000, false);
        assert!(thinned.len() <= 2000, "{}", thinned.len());
        assert!(thinned.contains(&Some((77_777.0, 1e6))));
        assert!(thinned.contains(&Some((33_333.0, -1e6))));
        assert_eq!(thinned.first(), points.first());
        assert_eq!(thinned.last(), points.last());
    }

    #[test]
    fn short_lines_stay_whole() {
        let points = spiky(2000);
        assert_eq!(thin(&points, 2000, false), points);
        assert_eq!(thin(&[], 0, false), vec![]);
    }

    #[test]
    fn gaps_survive_thinning() {
        let mut points = spiky(10_000);
        points[5000] = None;
        for hole in &mut points[7000..9000] {
            *hole = None;
        }
        let thinned = thin(&points, 400, false);
        assert_eq!(thinned.iter().filter(|p| p.is_none()).count(), 2);
        let hole = thinned.iter().rposition(Option::is_none).unwrap();
        assert_eq!(thinned[hole - 1], points[6999]);
        assert_eq!(thinned[hole + 1], points[9000]);
    }

    #[test]
    fn gaps_at_every_other_point_stay_bounded() {
        let points: Vec<_> = (0..50_000)
            .map(|i| (i % 2 == 0).then_some((f64::from(i), f64::from(i % 37))))
            .collect();
        assert!(thin(&points, 1000, false).len() <= 2000);
    }

    #[test]
    fn thinning_a_spiral_keeps_its_extremes_in_both_directions() {
        let points: Vec<_> = (0..50_000)
            .map(|i| {
                let t = f64::from(i) * 0.001;
                Some((t * t.cos(), t * t.sin()))
            })
            .collect();
        let thinned = thin(&points, 1200, false);
        assert!(thinned.len() <= 1200);
        let largest = |of: &[Option<(f64, f64)>], f: fn(&(f64, f64)) -> f64| {
            of.iter().flatten().map(f).fold(f64::NEG_INFINITY, f64::max)
        };
        for f in [
            |p: &(f64, f64)| p.0,
            |p: &(f64, f64)| p.1,
            |p: &(f64, f64)| -p.0,
            |p: &(f64, f64)| -p.1,
        ] {
            assert!(largest(&points, f) <= largest(&thinned, f));
        }
    }

    #[test]
    fn points_on_one_spot_thin_to_few() {
        let points = vec![(1.0, 1.0); 10_000];
        let line: Vec<_> = points.into_iter().map(Some).collect();
        assert!(thin(&line, 100, false).len() <= 100);
    }
}
