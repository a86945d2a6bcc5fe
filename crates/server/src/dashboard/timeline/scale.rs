//! The time axis of a timeline. Long stretches in which nothing happens are compressed.

/// A part of the axis with one scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScaleSegment {
    /// First and last millisecond.
    pub ms: (u64, u64),
    /// Their horizontal places.
    pub x: (f64, f64),
    /// Nothing happens in it, and it is drawn shorter than it is.
    pub compressed: bool,
}

/// Maps times to horizontal places.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeScale {
    segments: Vec<ScaleSegment>,
}

/// A shorter stretch is never compressed.
const MIN_COMPRESSED_MS: u64 = 60_000;
/// Width of a compressed stretch.
const COMPRESSED_WIDTH: f64 = 56.0;
/// Least width between two events, so that a gap of a millisecond is visible.
const MIN_WIDTH: f64 = 2.0;

impl TimeScale {
    /// Maps `range` to the places `x`, with `instants` as the ascending times of events.
    pub fn new(instants: &[u64], range: (u64, u64), x: (f64, f64)) -> Self {
        let (from, until) = (range.0, range.1.max(range.0 + 1));
        let mut times: Vec<u64> = instants.iter().copied().filter(|at| (from..=until).contains(at)).collect();
        times.extend([from, until]);
        times.sort_unstable();
        times.dedup();
        let pairs: Vec<(u64, u64)> = times.windows(2).map(|pair| (pair[0], pair[1])).collect();
        let limit = compression_limit(pairs.iter().map(|(from, until)| until - from).collect());
        let is_compressed = |(from, until): (u64, u64)| until - from >= limit;
        let compressed = pairs.iter().filter(|pair| is_compressed(**pair)).count();
        let compressed_width = COMPRESSED_WIDTH.min((x.1 - x.0) / 2.0 / compressed.max(1) as f64);
        let min_width = MIN_WIDTH.min((x.1 - x.0) / 4.0 / pairs.len() as f64);
        let proportional: u64 =
            pairs.iter().filter(|pair| !is_compressed(**pair)).map(|(from, until)| until - from).sum();
        let fixed = compressed as f64 * compressed_width + (pairs.len() - compressed) as f64 * min_width;
        let free = (x.1 - x.0 - fixed).max(0.0);
        // Without a proportional part, the compressed stretches fill the width.
        let stretch = if proportional == 0 { (x.1 - x.0) / fixed } else { 1.0 };
        let mut at = x.0;
        let segments = pairs.iter().map(|&(from, until)| {
            let compressed = is_compressed((from, until));
            let width = match compressed {
                true => compressed_width,
                false => min_width + free * (until - from) as f64 / proportional.max(1) as f64,
            };
            let place = (at, at + width * stretch);
            at = place.1;
            ScaleSegment { ms: (from, until), x: place, compressed }
        });
        Self { segments: segments.collect() }
    }

    /// The place of a time. Times outside of the range have the place of its end.
    pub fn x(&self, at: u64) -> f64 {
        let index = self.segments.partition_point(|segment| segment.ms.1 < at).min(self.segments.len() - 1);
        let ScaleSegment { ms: (from, until), x: (left, right), .. } = self.segments[index];
        let share = at.clamp(from, until).saturating_sub(from) as f64 / (until - from).max(1) as f64;
        left + (right - left) * share
    }

    /// The parts of the axis.
    pub fn segments(&self) -> &[ScaleSegment] {
        &self.segments
    }

    /// Times for labels, at least `distance` apart and outside of compressed stretches.
    pub fn ticks(&self, distance: f64) -> Vec<u64> {
        let mut ticks = Vec::new();
        let mut run: Vec<&ScaleSegment> = Vec::new();
        for segment in self.segments.iter().map(Some).chain([None]) {
            match segment.filter(|segment| !segment.compressed) {
                Some(segment) => run.push(segment),
                None => {
                    add_ticks(&run, distance, &mut ticks);
                    run.clear();
                }
            }
        }
        ticks.dedup_by(|later, earlier| (self.x(*later) - self.x(*earlier)).abs() < distance);
        ticks
    }
}

/// Round steps of labels, in milliseconds.
const STEPS: [u64; 24] = [
    1,
    5,
    10,
    50,
    100,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    15_000,
    30_000,
    60_000,
    120_000,
    300_000,
    600_000,
    900_000,
    1_800_000,
    3_600_000,
    7_200_000,
    21_600_000,
    43_200_000,
    86_400_000,
    604_800_000,
];

fn add_ticks(run: &[&ScaleSegment], distance: f64, ticks: &mut Vec<u64>) {
    let (Some(first), Some(last)) = (run.first(), run.last()) else { return };
    let (from, until) = (first.ms.0, last.ms.1);
    let width = last.x.1 - first.x.0;
    let wanted = (until - from) as f64 * distance / width.max(1.0);
    let step = STEPS.into_iter().find(|step| *step as f64 >= wanted).unwrap_or(STEPS[STEPS.len() - 1]);
    let mut at = from.div_ceil(step) * step;
    while at <= until && ticks.len() < 100 {
        ticks.push(at);
        at += step;
    }
}

/// The shortest duration that is compressed: more than three times as long as all shorter ones together. At most half of the stretches
/// are.
fn compression_limit(mut durations: Vec<u64>) -> u64 {
    durations.sort_unstable();
    let mut shorter = 0u64;
    for (index, &duration) in durations.iter().enumerate() {
        if index > 0
            && index * 2 >= durations.len()
            && duration >= MIN_COMPRESSED_MS
            && duration > shorter.saturating_mul(3)
        {
            return duration;
        }
        shorter = shorter.saturating_add(duration);
    }
    u64::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_ascend_with_the_times_and_stay_inside() {
        let instants = [0, 10, 11, 5_000, 9_000_000, 9_000_100, 9_001_000];
        let scale = TimeScale::new(&instants, (0, 9_002_000), (100.0, 1_100.0));
        let places: Vec<f64> = instants.iter().map(|at| scale.x(*at)).collect();
        assert!(places.windows(2).all(|pair| pair[0] + 0.5 < pair[1]), "each event has a place of its own: {places:?}");
        assert!((scale.x(0) - 100.0).abs() < 0.01 && (scale.x(9_002_000) - 1_100.0).abs() < 0.01);
        assert_eq!(scale.x(99_000_000), scale.x(9_002_000));
    }

    #[test]
    fn only_long_stretches_without_an_event_are_compressed() {
        let instants = [0, 1_000, 2_000, 3_600_000, 3_601_000];
        let scale = TimeScale::new(&instants, (0, 3_602_000), (0.0, 1_000.0));
        let compressed: Vec<_> = scale.segments().iter().filter(|one| one.compressed).map(|one| one.ms).collect();
        assert_eq!(compressed, [(2_000, 3_600_000)]);
        assert!(scale.ticks(80.0).iter().all(|at| !(2_001..3_600_000).contains(at)));
        let even = TimeScale::new(&[0, 100_000, 200_000, 300_000], (0, 300_000), (0.0, 1_000.0));
        assert!(even.segments().iter().all(|one| !one.compressed));
    }

    #[test]
    fn a_timeline_without_events_or_of_one_moment_has_a_scale() {
        for range in [(5, 5), (5, 1_000_000)] {
            let scale = TimeScale::new(&[], range, (0.0, 100.0));
            assert!(scale.x(5).abs() < 0.01 && scale.x(u64::MAX) <= 100.01);
        }
    }

    #[test]
    fn a_thousand_events_stay_inside() {
        let instants: Vec<u64> = (0..1_000).map(|at| at * at).collect();
        let scale = TimeScale::new(&instants, (0, 1_000_000), (0.0, 900.0));
        assert!((scale.x(1_000_000) - 900.0).abs() < 0.1, "{}", scale.x(1_000_000));
    }
}
